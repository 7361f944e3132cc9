"""Plans as files, replica maps out of `simulate`'s lines, and how `plan` and `apply` are called."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.plan.applied import AppliedRecords
from spu_assigner.stream.clusters.plan.decision import make_plan
from spu_assigner.stream.clusters.plan.model import (
    KafkaCluster,
    Maps,
    TopicSize,
    TopicsPlan,
    Wanted,
)
from spu_assigner.stream.clusters.plan.plan_file import (
    PlanFileError,
    StalePlanError,
    plan_json,
    read_plan,
    reassignment_json,
    require_fresh,
    write_json,
)
from spu_assigner.stream.clusters.plan.wanted_maps import MapsError, maps_of_file, matcher
from spu_assigner.stream.kafka.config.settings import Settings, SettingsError
from support.job.plans import kafka, maps, record, recorded, wanted

EVENTS = [
    *({"type": "spu_joined", "event_id": f"j{n}", "cluster_id": "c1", "spu_id": n} for n in (1, 2)),
    {"type": "spu_joined", "event_id": "o", "cluster_id": "c2", "spu_id": 1},
    *(
        {
            "type": "topic_create",
            "event_id": f"e-{topic}",
            "cluster_id": "c1",
            "topic": topic,
            "partitions": partitions,
            "replication_factor": factor,
            "policy": "kafka",
            "on_shortage": "wait",
        }
        for topic, partitions, factor in (("orders", 2, 1), ("old", 1, 1), ("late", 1, 3))
    ),
    {"type": "topic_delete", "event_id": "d", "cluster_id": "c1", "topic": "old"},
]


def simulated(events: list[dict[str, Any]], *options: str) -> bytes:
    lines = "".join(json.dumps(event) + "\n" for event in events)
    return CliRunner().invoke(cli, ["simulate", *options], input=lines).stdout_bytes


def read(data: bytes, cluster_id: str = "c1", *globs: str) -> Maps:
    return maps_of_file(io.BytesIO(data), Path("maps.jsonl"), cluster_id, matcher(globs))


@pytest.mark.parametrize("options", [(), ("--explain",)])
def test_the_output_of_simulate_is_read(options: tuple[str, ...]) -> None:
    """A plan can be looked at before any job runs; what else is printed does no harm."""
    found = read(simulated(EVENTS, *options))
    assert found.topics == {
        "orders": Wanted(replicas=((1,), (2,)), replication_factor=1),
        "old": Wanted(replicas=None),
    }
    assert list(found.waiting) == ["late"]
    assert "needs 1 more SPUs" in found.waiting["late"]


def test_topics_are_chosen_by_globs() -> None:
    """Team by team."""
    assert list(read(simulated(EVENTS), "c1", "ord*", "x").topics) == ["orders"]
    assert read(simulated(EVENTS), "c1", "ord*").waiting == {}


def test_a_list_that_lost_its_replica_is_short_though_all_are() -> None:
    """The lines do not say how many were requested; the status says that it waits."""
    leave = {"event_id": "l", "cluster_id": "c1", "spu_id": 1, "mode": "decommission"}
    create = {**EVENTS[3], "event_id": "e2", "topic": "pair", "replication_factor": 2}
    refused = {**create, "event_id": "e3"}
    found = read(simulated([*EVENTS, create, {"type": "spu_left", **leave}, refused]))
    pair = found.topics["pair"]
    assert (pair.replicas, pair.short) == (((2,), (2,)), frozenset({0, 1}))


RELEASE = [
    {"type": "replica_map", "cluster_id": "c1", "topic": "orders", "replicas": None},
    {"type": "topic_status", "cluster_id": "c1", "topic": "orders", "status": "released"},
]
AGAIN = {"type": "replica_map", "cluster_id": "c1", "topic": "orders", "replicas": [[1]]}


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (RELEASE, Wanted(replicas=None, is_released=True, released_at=0)),
        ([*RELEASE, AGAIN], Wanted(replicas=((1,),), replication_factor=1, released_at=0)),
        ([*RELEASE, AGAIN, RELEASE[0]], Wanted(replicas=None, released_at=0)),
        ([RELEASE[0]], Wanted(replicas=None)),
    ],
)
def test_a_release_is_read_as_one(lines: list[dict[str, Any]], found: Wanted) -> None:
    """Both look alike but for the status: a map that is gone."""
    printed = "".join(json.dumps(line) + "\n" for line in lines).encode()
    assert read(simulated(EVENTS) + printed).topics["orders"] == found


def test_lists_that_were_adopted_with_several_lengths_wait_for_nobody() -> None:
    """A list is short only while its topic waits."""
    joins = [
        {"type": "spu_joined", "event_id": f"a{n}", "cluster_id": "c1", "spu_id": n}
        for n in range(3)
    ]
    adopted = {
        "type": "topic_adopted",
        "event_id": "a",
        "cluster_id": "c1",
        "topic": "t",
        "replicas": [[0, 1], [1, 2, 0]],
    }
    assert not read(simulated([*joins, adopted])).topics["t"].short


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"{", "line 1 of maps.jsonl is no JSON"),
        (b"[" * 100_000, "line 1 of maps.jsonl is no JSON"),
        (b"[]", "has type None"),
        (b'{"type":"spu_joined"}', "has type 'spu_joined'"),
        (b'{"type":"dead_letter","line":7}', "line 7 of the events was not understood"),
        (b'{"type":"replica_map","cluster_id":"c1","topic":"a/b"}', "Kafka would not take"),
        (b'{"type":"replica_map","cluster_id":"c1","topic":"t","replicas":[]}', "expected a list"),
        (b'{"type":"replica_map","cluster_id":"c1","topic":"t","replicas":[[]]}', "partition 0"),
        (b'{"type":"replica_map","cluster_id":"c1","topic":"t","replicas":[[1],[1,true]]}', "has "),
        (b'{"type":"replica_map","cluster_id":"c1","topic":"t","replicas":[[-1]]}', "an id in"),
        (b'{"type":"replica_map","cluster_id":"c1","topic":"t","replicas":[[1,1]]}', "twice"),
        (b'{"type":"replica_map","cluster_id":"c2","topic":"t"}', "no cluster 'c1'; it has c2"),
        (b"", "no cluster 'c1'; it has none"),
    ],
)
def test_lines_that_are_none_of_simulates_are_reported(line: bytes, fault: str) -> None:
    """A topic that was passed over in silence would look as if it had no map."""
    with pytest.raises(MapsError) as caught:
        read(line)
    assert fault in str(caught.value)


def made(*topics: str, origin: Origin = Origin.CREATED) -> AppliedRecords:
    return recorded(*(record(topic, origin) for topic in topics))


def planned(asked: Maps, cluster: KafkaCluster, **options: Any) -> TopicsPlan:
    """Of topics that apply made."""
    return make_plan(asked, cluster, applied=made(*cluster.topics), **options)


WANTED = maps(
    {
        "new": [[1, 2]],
        "old": None,
        "same": [[3]],
        "wide": [[2, 1], [3, 1]],
        "bad": [[9]],
    },
    late="its create waits",
)
THEN = {"old": [[1]], "same": [[3]], "wide": [[1, 2]], "foreign": [[1]]}


APPLIED = made(*THEN)


def kept() -> TopicsPlan:
    """With all that a plan can say."""
    plan = planned(WANTED, kafka(THEN), delete=True, recreate=True)
    size = TopicSize(records=7, size_bytes=None)
    changes = tuple(
        replace(change, size=size) if change.topic == "old" else change for change in plan.changes
    )
    return replace(plan, changes=changes)


def test_a_saved_plan_is_read_back_as_it_was(tmp_path: Path) -> None:
    """Nothing of it is lost on the way."""
    write_json(tmp_path / "plan.json", plan_json(kept()))
    assert read_plan(tmp_path / "plan.json") == kept()
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """And nothing is left beside it."""
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "none" / "plan.json", tmp_path / "folder"):
        with pytest.raises(PlanFileError, match="cannot be written"):
            write_json(path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


SPOILED: list[Callable[[dict[str, Any]], object]] = [
    lambda plan: plan.update(format=1),
    lambda plan: plan.update(recreate=1),
    lambda plan: plan.pop("kafka_id"),
    lambda plan: plan.update(brokers=[True]),
    lambda plan: plan.update(maps={}),
    lambda plan: plan["changes"][0].update(topic="../x"),
    lambda plan: plan["changes"][0].update(kind="drop"),
    lambda plan: plan["changes"][0].update(kind="delete"),
    lambda plan: plan["changes"][0].update(after=[]),
    lambda plan: plan["changes"][0].update(after=[[1, 1]]),
    lambda plan: plan["changes"][2].update(after=[[1]], before=[[1], [2]]),
    lambda plan: plan["changes"][0].update(topic_id=7),
    lambda plan: plan["changes"][0].update(topic_id="x"),
    lambda plan: plan["changes"][1].update(topic_id=None),
    lambda plan: plan["changes"][1].update(gone_id="x"),
    lambda plan: plan["changes"][1].update(records=-1),
    lambda plan: plan.update(changes={"topic": "x"}),
]


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_file_that_is_no_plan_is_refused(
    spoil: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    """Before anything is done by it."""
    document = json.loads(json.dumps(plan_json(kept())))
    spoil(document)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(PlanFileError, match="is no plan of this release"):
        read_plan(path)


def test_the_moves_are_written_for_kafkas_tool() -> None:
    """Its own form; new partitions are none of its business."""
    assert reassignment_json(kept()) == {
        "version": 1,
        "partitions": [{"topic": "wide", "partition": 0, "replicas": [2, 1]}],
    }


SAME = kafka(THEN)
RECREATED = {topic: replace(SAME, ids={**SAME.ids, topic: "another"}) for topic in ("old", "wide")}


def now(**topics: list[list[int]] | None) -> KafkaCluster:
    """What is there, but for these."""
    found = {name: lists for name, lists in {**THEN, **topics}.items() if lists is not None}
    return kafka(found)


def mapped(**topics: Wanted) -> Maps:
    return replace(WANTED, topics={**WANTED.topics, **topics})


MADE_SINCE = AppliedRecords(records={**APPLIED.records, **made("new").records})
ONE = wanted([[1]])
RELEASED = Wanted(replicas=None, is_released=True, released_at=11)


@pytest.mark.parametrize(
    ("cluster", "now_mapped", "applied", "fault"),
    [
        (SAME, WANTED, APPLIED, None),
        # Done already: a run that broke off can be finished by the same plan.
        (now(new=[[1, 2]]), WANTED, MADE_SINCE, None),
        (now(wide=[[1, 2], [3, 1]]), WANTED, APPLIED, None),
        (now(wide=[[2, 1]]), WANTED, APPLIED, None),
        # None of the plan's business.
        (now(foreign=[[2], [3]], other=[[1]]), mapped(another=ONE), APPLIED, None),
        # What would be done now was decided on something else.
        (now(new=[[2, 1]]), WANTED, APPLIED, "topic new is there, made otherwise"),
        (now(same=[[1]]), None, APPLIED, "topic same had partition 0 on [3] and has it on [1]"),
        (now(wide=[[3, 2]]), None, APPLIED, "wide had partition 0 on [1, 2] and has it on [3, 2]"),
        (now(wide=[[1, 2], [2, 3]]), None, APPLIED, "partition 1 on [3, 1] and has it on [2, 3]"),
        (now(wide=[[1, 2]] * 3), None, APPLIED, "topic wide had 1 partitions and has 3"),
        (now(old=[[2]]), None, APPLIED, "topic old had partition 0 on [1] and has it on [2]"),
        (now(same=None), None, APPLIED, "topic same is gone"),
        (now(wide=None), None, APPLIED, "topic wide is gone"),
        (RECREATED["old"], None, APPLIED, "topic old was deleted and made again"),
        (RECREATED["wide"], None, APPLIED, "topic wide was deleted and made again"),
        (replace(SAME, kafka_id="other"), WANTED, APPLIED, "for Kafka cluster k, this is other"),
        (replace(SAME, brokers=(1, 3)), None, APPLIED, "brokers were [1, 2, 3] and are [1, 3]"),
        (SAME, mapped(old=ONE), APPLIED, "the map of topic old has changed"),
        # Only what apply made is deleted, though a file can be written by hand.
        (SAME, None, AppliedRecords(), "topic old was not made by apply"),
        (SAME, None, made("old", origin=Origin.FOUND), "topic old was not made by apply"),
        (SAME, mapped(old=RELEASED), APPLIED, "topic old was released"),
        # It was created by this plan, and would come back empty.
        (SAME, None, MADE_SINCE, "topic new was in Kafka since and is gone, with its data"),
    ],
)
def test_a_plan_is_applied_while_all_is_as_it_was_or_as_it_is_to_be(
    cluster: KafkaCluster, now_mapped: Maps | None, applied: AppliedRecords, fault: str | None
) -> None:
    """Whatever else has changed makes it stale, and nothing is done."""
    if fault is None:
        require_fresh(kept(), cluster, now_mapped, applied)
        return
    with pytest.raises(StalePlanError) as caught:
        require_fresh(kept(), cluster, now_mapped, applied)
    assert fault in str(caught.value)
    assert str(caught.value).endswith("nothing was done, plan again")


def test_a_partition_on_its_way_is_no_change_of_the_cluster() -> None:
    """While Kafka moves it, both old and new replicas are listed, the new ones first."""
    asked = maps({"t": [[2, 3]]})
    plan = planned(asked, kafka({"t": [[1, 2]]}))
    require_fresh(plan, kafka({"t": [[2, 3, 1]]}), None, APPLIED)
    with pytest.raises(StalePlanError, match=r"partition 0 on \[1, 2\] and has it on \[2, 1, 3\]"):
        require_fresh(plan, kafka({"t": [[2, 1, 3]]}), None, APPLIED)


def test_a_plan_to_create_again_what_is_gone_does_so_once() -> None:
    """It was asked for by --recreate, of that topic and no later one."""
    again = make_plan(WANTED, SAME, applied=MADE_SINCE, recreate=True)
    require_fresh(again, SAME, WANTED, MADE_SINCE)
    later = {"new": record("new", Origin.CREATED, "a-later-one")}
    for applied in (APPLIED, AppliedRecords(records={**APPLIED.records, **later})):
        with pytest.raises(StalePlanError, match="topic new was in Kafka since and is gone"):
            require_fresh(again, SAME, WANTED, applied)


def test_a_plan_that_was_tampered_with_touches_no_reserved_topic() -> None:
    """A file can say anything."""
    plan = kept()
    changes = tuple(replace(each, topic="__consumer_offsets") for each in plan.changes)
    with pytest.raises(StalePlanError, match="none that may be changed"):
        require_fresh(replace(plan, changes=changes), SAME, None, APPLIED)


NO_TARGET = {"SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS": "x"}


@pytest.mark.parametrize(
    ("arguments", "environ", "status", "fault"),
    [
        # 2 says that there is something to do: a script must not take a typing error for that.
        (["plan"], {}, 1, "Missing option '--cluster'"),
        (["plan", "--no-such"], {}, 1, "No such option"),
        (["plan", "x"], {}, 1, "unexpected extra argument"),
        (["plan", "--cluster", "c1", "-b", "nowhere"], {}, 1, "--bootstrap-servers is 'nowhere'"),
        (["plan", "--cluster", "c1", "--maps", "/none"], {}, 1, "cannot read '/none'"),
        (["--config", "/none", "plan", "--cluster", "c1"], {}, 1, "settings file /none"),
        (["plan", "--cluster", "c1"], NO_TARGET, 1, "SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS is 'x'"),
        (["apply", "--no-such"], {}, 2, "No such option"),
        (["apply"], {}, 2, "Missing option '--cluster'"),
        (["apply", "plan.json", "--delete"], {}, 2, "PLAN says what to do"),
        (["apply", "plan.json", "--recreate"], {}, 2, "PLAN says what to do"),
        (["apply", "plan.json", "--foreign", "t*"], {}, 2, "PLAN says what to do"),
    ],
)
def test_wrong_usage_ends_with_two_and_of_plan_with_one(
    arguments: list[str], environ: dict[str, str], status: int, fault: str
) -> None:
    """On standard error, before Kafka is asked."""
    done = CliRunner().invoke(cli, arguments, env=environ)
    assert (done.exit_code, done.stdout) == (status, "")
    assert fault in done.stderr


def test_a_target_has_settings_of_its_own(tmp_path: Path) -> None:
    """What is set for the job's Kafka, its password above all, is never sent to another."""
    password = tmp_path / "password"
    password.write_text("there\n", encoding="utf-8")
    password.chmod(0o600)
    environ = {
        "KAFKA_BOOTSTRAP_SERVERS": "here:1",
        "SPU_ASSIGNER_SECURITY_PROTOCOL": "SASL_SSL",
        "SPU_ASSIGNER_SASL_USERNAME": "me",
        "SPU_ASSIGNER_SASL_PASSWORD": "here",
    }
    target = Settings.load(
        flags={"bootstrap_servers": "there:2"}, environ=environ, is_target=True
    ).connection()
    assert target.client() == {"bootstrap.servers": "there:2"}
    environ |= {
        "SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS": "there:2",
        "SPU_ASSIGNER_TARGET_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "SPU_ASSIGNER_TARGET_SASL_USERNAME": "you",
        "SPU_ASSIGNER_TARGET_SASL_PASSWORD_FILE": str(password),
    }
    client = Settings.load(environ=environ, is_target=True).connection().client()
    assert client == {
        "bootstrap.servers": "there:2",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "you",
        "sasl.password": "there",
    }
    assert Settings.load(environ=environ).connection().client()["sasl.password"] == "here"


def test_a_wrong_setting_of_a_target_is_reported_by_its_own_name() -> None:
    """The line must lead to the place to fix."""
    with pytest.raises(SettingsError, match=r"^SPU_ASSIGNER_TARGET_SASL_MECHANISM is 'X'"):
        Settings.load(environ={"SPU_ASSIGNER_TARGET_SASL_MECHANISM": "X"}, is_target=True)
    with pytest.raises(AssignerError, match=r"^--target-bootstrap-servers is 'x'"):
        Settings.load(flags={"bootstrap_servers": "x"}, environ={}, is_target=True)
