"""`plan --desired` and `apply --desired` of what a file of desired topics must not be taken for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.core.base.events import LeaveMode, TopicAdopted
from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.kafka import connection_diagnosis
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.connection_diagnosis import WaitLimits
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.events.builders import Events
from support.job.small_job import SmallJob, small_job
from support.job.streams import Outgoing
from support.kafka.ports import free_ports
from support.kafka.reading import committed
from support.kafka.shared_broker import SharedBroker

SPUS = (1, 2, 3)
UNEVEN = ((1, 2), (3,))
Call = Callable[..., Result]


@pytest.fixture
def settings(kafka: SharedBroker, topic_prefix: str) -> Settings:
    create_topics({"bootstrap.servers": kafka.bootstrap_servers}, prefix=topic_prefix)
    flags = {"bootstrap_servers": kafka.bootstrap_servers, "topic_prefix": topic_prefix}
    return Settings.load(flags=flags, environ={})


@pytest.fixture
def job(settings: Settings) -> Iterator[SmallJob]:
    with small_job(settings) as job:
        job.apply([Events().join(spu_id, event_id=f"join/{spu_id}") for spu_id in SPUS])
        yield job


@pytest.fixture
def desired(settings: Settings, tmp_path: Path) -> Call:
    """`plan` or `apply` of so many partitions and replicas of a topic."""

    def call(command: str, name: str, partitions: int, factor: int, *options: str) -> Result:
        file = tmp_path / "topics.yaml"
        file.write_text(
            f"topics: [{{name: {name}, partitions: {partitions}, replication_factor: {factor}}}]",
            "utf-8",
        )
        where = ("-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix)
        asked = [command, "--cluster", "c1", "--desired", str(file), *where, *options]
        return CliRunner().invoke(cli, asked)

    return call


def sent(settings: Settings) -> int:
    """The requests so far."""
    return len(committed(settings.bootstrap_servers, f"{settings.topic_prefix}topic-events"))


@pytest.mark.smoke
def test_lists_of_unequal_length_get_the_factor_of_the_file(
    settings: Settings, job: SmallJob, desired: Call
) -> None:
    """The longest list alone has what the file says of all."""
    adopted = TopicAdopted(event_id="adopt/1", cluster_id="c1", topic="t", replicas=UNEVEN)
    job.apply([adopted])
    planned = desired("plan", "t", 2, 2)
    assert (planned.exit_code, planned.stderr) == (2, "")
    assert planned.stdout.startswith("~ t  replication factor 1 to 2 → 2\n")
    with job.answering():
        applied = desired("apply", "t", 2, 2)
    assert (applied.exit_code, applied.stderr) == (0, "")
    lists = job.states()["c1"].topics["t"].replicas.lists().tolist()
    assert [len(row) for row in lists] == [2, 2]
    before = sent(settings)
    again = desired("apply", "t", 2, 2)
    assert (again.exit_code, again.stdout.splitlines()[0]) == (0, "= 1 topic as desired")
    assert sent(settings) == before


def test_lists_that_wait_for_spus_are_not_asked_for_again(
    settings: Settings, job: SmallJob, desired: Call
) -> None:
    """Each run would be one more request that is rejected."""
    events = Events("c1")
    create = events.create("t", 2, 3, event_id="create/1")
    left = events.leave(3, mode=LeaveMode.DECOMMISSION, event_id="leave/1")
    job.apply([create])
    job.apply([left])
    before = sent(settings)
    for factor, more in ((3, ""), (4, "; replication factor 4 is asked for after that")):
        for _ in range(2):
            waits = desired("apply", "t", 2, factor, "--wait", "1")
            assert (waits.exit_code, waits.stderr) == (0, "")
            assert waits.stdout.splitlines()[0] == (
                f"? t  the lists of partitions 0, 1 wait for SPUs or slots{more}"
            )
    assert sent(settings) == before
    planned = desired("plan", "t", 2, 2, "-o", "json")
    assert [event["type"] for event in json.loads(planned.stdout)["events"]] == [
        "topic_replication"
    ]


def test_nothing_is_sent_where_the_topics_in_kafka_cannot_be_seen(
    settings: Settings, job: SmallJob, desired: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is there without a map would be created under its name."""
    monkeypatch.setattr(connection_diagnosis, "WAIT_LIMITS", WaitLimits(request=5.0))
    name = f"{settings.topic_prefix}foreign"
    with AdminClient(settings.connection().client()) as admin:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(timeout=60)
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        with monkeypatch.context() as patch:
            patch.setenv("SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS", address)
            done = desired("apply", name, 1, 1)
        assert (done.exit_code, done.stdout) == (1, "")
        # After 1.5 s a line says what it waits for.
        assert (
            f"spu-assigner: nothing was sent: no Kafka broker answers at {address} " in done.stderr
        )
        assert "check the address and that it runs" in done.stderr
        assert done.stderr.endswith(
            "the topics in Kafka must be seen, since one that is there without a map is not to be "
            "created\n"
        )
        seen = desired("apply", name, 1, 1)
        assert (seen.exit_code, sent(settings)) == (1, 0)
        assert f"! {name}  is in Kafka and has no map" in seen.stdout
        admin.delete_topics([name])[name].result(timeout=60)
    assert job.states()["c1"].topics == {}


def test_a_factor_that_the_job_would_reject_is_not_planned(
    settings: Settings, job: SmallJob, desired: Call
) -> None:
    """`plan` asks the core with the published state; the job decides what `apply` is given."""
    planned = desired("plan", "t", 2, 5)
    assert (planned.exit_code, planned.stderr) == (1, "")
    assert planned.stdout.startswith(
        "! t  2 partitions, replication factor 5: rejected as the cluster is now: "
    )
    assert "(INSUFFICIENT_SPUS)\n" in planned.stdout
    assert sent(settings) == 0
    joins = [Events().join(spu_id, event_id=f"join/{spu_id}") for spu_id in (4, 5)]
    with job.answering():
        job.streams.send([Outgoing.of_event(join, 0) for join in joins])
        applied = desired("apply", "t", 2, 5)
    assert (applied.exit_code, applied.stderr) == (0, "")
    assert desired("plan", "t", 2, 5).exit_code == 0


def test_a_topic_that_is_gone_from_kafka_is_not_as_desired(
    settings: Settings, job: SmallJob, desired: Call
) -> None:
    """`apply` has recorded that it was there; one that it has still to make is as desired."""
    gone, new = (f"{settings.topic_prefix}{name}" for name in ("gone", "new"))
    job.apply([Events().create(name, 2, 1, event_id=f"create/{name}") for name in (gone, new)])
    with AdminClient(settings.connection().client()) as admin:
        admin.create_topics([NewTopic(gone, 2, 1)])[gone].result(timeout=60)
        found_id = topic_id(admin, gone)
        connection = settings.connection()
        ledger = AppliedLedger(connection, "c1", is_there=True)
        record = AppliedTopic(
            cluster_id="c1",
            topic=gone,
            topic_id=found_id,
            origin=Origin.CREATED,
            recorded_at=1,
            lists="",
        )
        ledger.record([record])
        there = desired("plan", gone, 2, 1)
        assert (there.exit_code, "= 1 topic as desired\n" in there.stdout) == (0, True)
        admin.delete_topics([gone])[gone].result(timeout=60)
    for command, status in (("plan", 1), ("apply", 1)):
        seen = desired(command, gone, 2, 1)
        assert seen.exit_code == status, seen.output
        assert f"! {gone}  was in Kafka before; its data are gone: " in seen.stdout
        assert "= 1 topic as desired" not in seen.stdout
    due = desired("plan", new, 2, 1)
    assert (due.exit_code, "= 1 topic as desired\n" in due.stdout) == (0, True)
    assert f"1 topic not in Kafka yet, or without all partitions: {new}; " in due.stdout


def topic_id(admin: AdminClient, name: str) -> str:
    """Kafka's id of a topic."""
    described = admin.describe_topics(TopicCollection([name]))[name]
    return str(described.result(timeout=60).topic_id)
