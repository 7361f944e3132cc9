"""`spu-assigner doctor` on a sound installation, and on one for each thing that can be wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
)
from spu_assigner.stream.audit.doctor.command import doctor
from spu_assigner.stream.job.marker import read_marker
from spu_assigner.stream.kafka.acls import Role, acls
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from spu_assigner.stream.local.jvm import java as java_module
from spu_assigner.stream.local.jvm.java import Java
from support.doctor.installations import PASSWORD, PREFIX, Installation, InstallationFactory
from support.doctor.seeds import SEEDS, Seed
from support.kafka.secured import Secured

SECONDS = "60"  # a slow machine is not what is tested
FEW_SECONDS = "20"  # are waited out


@pytest.fixture(scope="module")
def factory(
    kafka: EmbeddedBroker, java: Java, secured: Secured, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InstallationFactory]:
    with ExitStack() as stack:
        made = InstallationFactory(
            bootstrap=kafka.bootstrap_servers,
            secured=secured,
            folder=tmp_path_factory.mktemp("factory"),
            stack=stack,
        )
        made.open()
        yield made


def call(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    *arguments: str,
    seconds: str = SECONDS,
) -> Result:
    with monkeypatch.context() as patch:
        if installation.has_no_other_java:
            patch.setattr(java_module, "SEARCH_PATTERNS", ())
            patch.setattr(java_module, "PACKAGE", "no_such_package")
        patch.setattr("os.environ", dict(installation.environ))
        asked = ["--timeout", seconds, *arguments]
        return CliRunner().invoke(doctor, asked, standalone_mode=False)


def findings(result: Result) -> list[dict[str, Any]]:
    assert result.exception is None, result.output
    return [each for check in json.loads(result.stdout)["checks"] for each in check["findings"]]


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.slug)
def test_a_seeded_fault_is_found_and_no_other(
    seed: Seed, factory: InstallationFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With its code, what to do about it, and the exit status that a script goes by."""
    installation = seed.prepare(factory, tmp_path)
    result = call(
        installation, monkeypatch, "--output=json", seconds=FEW_SECONDS if seed.waits else SECONDS
    )
    found = findings(result)
    assert sorted({each["code"] for each in found}) == seed.codes.split(), found
    first = next(each for each in found if each["code"] == seed.codes[:4])
    assert seed.fix in first["fix"]
    assert result.return_value == any(each["severity"] == "fault" for each in found)


def traces(factory: InstallationFactory, folder: Path) -> dict[str, Any]:
    """All that a check could leave behind."""
    with AdminClient(factory.client) as admin:
        found = admin.list_topics(timeout=30).topics.items()
        places = [TopicPartition(name, each) for name, topic in found for each in topic.partitions]
        ends = admin.list_offsets({place: OffsetSpec.latest() for place in places})
        groups = admin.list_consumer_groups().result(timeout=30).valid
        return {
            "groups": sorted(each.group_id for each in groups),
            "ends": {
                (place.topic, place.partition): future.result(timeout=30).offset
                for place, future in ends.items()
            },
            "files": {
                str(path): (path.stat().st_mtime_ns, path.stat().st_mode, path.stat().st_size)
                for path in folder.rglob("*")
            },
        }


@pytest.mark.smoke
def test_a_sound_installation_has_no_findings_and_is_left_as_it_was(
    factory: InstallationFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No topic, no message, no group, no file."""
    installation = factory.sound(tmp_path)
    settings = Settings.load(environ=installation.environ)
    # As the job does at its start: the first consumer of a cluster makes Kafka's topic of groups.
    read_marker(settings, topic=f"{PREFIX}assigner-commits", seconds_max=float(SECONDS))
    before = traces(factory, tmp_path)
    result = call(installation, monkeypatch, "--output=json", "--strict")
    assert findings(result) == []
    assert result.return_value == 0
    checks = json.loads(result.stdout)["checks"]
    assert {each["check"]: each["state"] for each in checks if each["state"] != "ok"} == {}
    assert traces(factory, tmp_path) == before
    shown = call(installation, monkeypatch)
    assert "✓" in shown.stdout
    assert "batch 12 in 2 shards" in " ".join(shown.stdout.split())  # however it is wrapped
    assert shown.stdout.endswith("\nnothing wrong\n")


def test_a_user_with_the_jobs_rights_has_no_findings_over_tls(
    factory: InstallationFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Exactly those of the table are enough for every check; another role's are missing. Kafka
    makes its own topics when a consumer or a producer of transactions comes first."""
    installation = factory.user(tmp_path)
    with AdminClient(factory.secured.plain) as admin:
        before = {*admin.list_topics(timeout=30).topics}
        result = call(installation, monkeypatch, "--output=json", "--strict")
        assert findings(result) == []
        assert {*admin.list_topics(timeout=30).topics} == before
    kafka = section(result, "kafka")
    assert kafka["found"].endswith(", SASL_SSL: topics and rights are as the job needs them")
    (lacking,) = findings(call(installation, monkeypatch, "--output=json", "--role", "auditor"))
    assert lacking["code"] == "D301"
    assert f"{PREFIX}replica-map: access is" in lacking["message"]
    assert lacking["fix"] == "grant what `spu-assigner topics acls --role auditor` lists"


def test_a_user_who_may_not_move_data_is_warned(
    factory: InstallationFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Creating and growing topics needs none of these rights."""
    factory.secured.add_user("doctor-applier", PASSWORD)
    rights = acls(Role.APPLIER, prefix=PREFIX, query_name="q", group="", with_optional=False)
    factory.secured.allow({"doctor-applier": rights})
    result = call(
        factory.user(tmp_path, "doctor-applier"), monkeypatch, "--output=json", "--role", "applier"
    )
    (moving,) = findings(result)
    assert (moving["code"], moving["severity"], result.return_value) == ("D602", "warning", 0)
    assert moving["fix"] == "grant what `spu-assigner topics acls --role mover` lists"


def test_a_plain_consumer_is_not_asked_for_what_pages_of_moves_need(
    factory: InstallationFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`ui` and `explain` alone read `applied-topics`, and do without; the rest is needed."""
    rights = acls(Role.CONSUMER, prefix=PREFIX, query_name="q", group="unused")
    plain = [each for each in rights if each.name != f"{PREFIX}applied-topics"]
    assert len(plain) == len(rights) - 1
    given = {"doctor-plain": plain, "doctor-deaf": plain[1:]}
    for user in given:
        factory.secured.add_user(user, PASSWORD)
    factory.secured.allow(given)
    role = ("--output=json", "--strict", "--role", "consumer")
    result = call(factory.user(tmp_path, "doctor-plain"), monkeypatch, *role)
    assert (findings(result), result.return_value) == ([], 0)
    assert section(result, "kafka")["found"] == "those of consumer on 5 topics"
    (lacking,) = findings(call(factory.user(tmp_path, "doctor-deaf"), monkeypatch, *role))
    assert lacking["code"] == "D301"
    assert f"{plain[0].name}: access is none, expected Read" in lacking["message"]


def test_a_throttle_that_a_move_left_behind_is_reported(
    factory: InstallationFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Replicas that fall back later would catch up no faster, and nobody would know why."""
    installation = factory.sound(tmp_path)
    topic = f"{PREFIX}topic-status"
    role = ("--output=json", "--role", "applier")
    target = section(call(installation, monkeypatch, *role), "target")
    assert (target["state"], target["not_checked"]) == ("ok", None)
    kinds = ConfigResource.Type
    with AdminClient(factory.client) as admin:
        (broker,) = admin.list_topics(timeout=60).brokers
        places = (
            (kinds.BROKER, str(broker), "leader.replication.throttled.rate", str(10**12)),
            (kinds.TOPIC, topic, "follower.replication.throttled.replicas", "0:1"),
        )
        alter(admin, places, AlterConfigOpType.SET)
        try:
            result = call(installation, monkeypatch, *role)
        finally:
            alter(admin, places, AlterConfigOpType.DELETE)
    (left,) = findings(result)
    assert (left["code"], left["severity"], result.return_value) == ("D603", "warning", 0)
    assert left["message"] == (
        f"no partition is being moved, and replication is limited: broker {broker}: "
        f"leader.replication.throttled.rate={10**12}; replicas of topics {topic} are limited"
    )


def alter(
    admin: AdminClient, places: Sequence[tuple[Any, str, str, str]], deed: AlterConfigOpType
) -> None:
    """Set or remove one setting of each; back when the broker reports it."""
    for kind, place, name, value in places:
        entry = ConfigEntry(name, value, incremental_operation=deed)
        asked = ConfigResource(kind, place, incremental_configs=[entry])
        (future,) = admin.incremental_alter_configs([asked]).values()
        future.result(timeout=60)
        is_wanted = False
        while not is_wanted:
            (future,) = admin.describe_configs([ConfigResource(kind, place)]).values()
            found = {each.name: each.value for each in future.result(timeout=60).values()}
            is_wanted = (found.get(name) == value) is (deed is AlterConfigOpType.SET)


def section(result: Result, name: str) -> dict[str, Any]:
    """What a check has found."""
    (found,) = (each for each in json.loads(result.stdout)["checks"] if each["check"] == name)
    return found


@pytest.mark.smoke
def test_what_apply_has_not_made_yet_is_no_fault(
    factory: InstallationFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An installation of before has no applied-topics, and needs none until the first apply."""
    installation = factory.sound(tmp_path)
    factory.delete(f"{PREFIX}applied-topics")
    try:
        assert findings(call(installation, monkeypatch, "--output=json", "--strict")) == []
        result = call(installation, monkeypatch, "--output=json", "--strict", "--role", "applier")
        assert findings(result) == []
    finally:
        create_topics(factory.client, prefix=PREFIX)
