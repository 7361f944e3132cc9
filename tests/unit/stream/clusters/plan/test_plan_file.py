"""Plans as files, replica maps out of `simulate`'s lines, and how `plan` and `apply` are called."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.plan.decision import make_plan
from spu_assigner.stream.clusters.plan.model import Maps, TopicsPlan, Wanted
from spu_assigner.stream.clusters.plan.rendering import json_text, reassignment_text
from spu_assigner.stream.clusters.plan.sources import (
    EventsFileError,
    PlanFileError,
    maps_of_events,
    matcher,
    read_plan,
    write_whole,
)
from spu_assigner.stream.kafka.config.settings import Settings, SettingsError
from support.events.plans import kafka, maps, record, recorded, wanted

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


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named without a folder."""
    monkeypatch.chdir(tmp_path)


def read(lines: Sequence[dict[str, Any] | str], cluster_id: str = "c1", *globs: str) -> Maps:
    text = "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines)
    file = Path("events.jsonl")
    file.write_text(text, encoding="utf-8")
    return maps_of_events(file, cluster_id, matcher(globs))


def event(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "event_id": name, "cluster_id": "c1", **more}


def test_the_maps_are_those_that_the_core_gives() -> None:
    """A plan can be looked at before any job runs; of the topics that are meant."""
    asked = maps(
        {"orders": [[1], [2]], "old": None},
        late="its create of 1 partitions waits for room for 3 replicas of each",
    )
    assert read(EVENTS) == replace(asked, is_live=False)
    assert list(read(EVENTS, "c1", "ord*", "x").topics) == ["orders"]
    assert read(EVENTS, "c1", "ord*").waiting == {}


def test_a_list_that_lost_its_replica_is_short_and_one_that_was_adopted_shorter_is_not() -> None:
    """What is in Kafka stays until the list is whole."""
    create = {**EVENTS[3], "event_id": "e2", "topic": "pair", "replication_factor": 2}
    leave = event("spu_left", "l", spu_id=1, mode="decommission")
    assert read([*EVENTS, create, leave]).topics["pair"] == wanted([[2], [2]], 0, 1)
    adopted = event("topic_adopted", "a", topic="t", replicas=[[1, 2], [2]])
    found = read([*EVENTS[:2], adopted]).topics["t"]
    assert found == replace(wanted([[1, 2], [2]]), is_adopted=True)


def test_a_release_is_read_as_one() -> None:
    """Also when the name was asked for, and deleted again."""
    release, again = event("topic_release", "r", topic="orders"), {**EVENTS[3], "event_id": "again"}
    deleted = event("topic_delete", "d2", topic="orders")
    steps = [read([*EVENTS, release, again, deleted][:count]) for count in (8, 9, 10)]
    assert [step.topics["orders"] for step in steps] == [
        Wanted(replicas=None, is_released=True, was_released=True),
        replace(wanted([[2], [1]]), was_released=True),
        Wanted(replicas=None, was_released=True),
    ]


@pytest.mark.parametrize(
    ("line", "cluster_id", "fault"),
    [
        ("{", "c1", "line 8 of events.jsonl is not an event: "),
        (
            '{"type":"replica_map","cluster_id":"c1"}',
            "c1",
            "line 8 of events.jsonl is not an event: ",
        ),
        ("", "c3", "events.jsonl has no cluster 'c3'; it has c1, c2"),
    ],
)
def test_lines_that_are_no_events_are_reported(line: str, cluster_id: str, fault: str) -> None:
    """A topic that was passed over in silence would look as if it had no map."""
    with pytest.raises(EventsFileError) as caught:
        read([*EVENTS, line], cluster_id)
    assert fault in str(caught.value)


WANTED = maps(
    {"new": [[1, 2]], "old": None, "same": [[3]], "wide": [[2, 1], [3, 1]], "bad": [[9]]},
    late="its create waits",
)
THEN = {"old": [[1]], "same": [[3]], "wide": [[1, 2]], "foreign": [[1]]}


def kept() -> TopicsPlan:
    """With all that a plan can say."""
    applied = recorded(*(record(topic, Origin.CREATED) for topic in THEN))
    plan = make_plan(WANTED, kafka(THEN), applied=applied, delete=True, recreate=True)
    changes = tuple(
        replace(change, records=7) if change.topic == "old" else change for change in plan.changes
    )
    return replace(plan, changes=changes)


def test_a_saved_plan_is_read_back_as_it_was(tmp_path: Path) -> None:
    """What is printed for programs is what the file holds, and nothing of it is lost."""
    write_whole(tmp_path / "plan.json", json_text(kept()))
    assert read_plan(tmp_path / "plan.json") == kept()
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
    document = json.loads(json_text(kept()))
    assert {"unmapped", "unseen", "load", "changes"} <= document.keys()
    assert document["load"].keys() >= {"bytes_to_copy", "replicas_to_copy", "brokers"}


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """In one line."""
    with pytest.raises(PlanFileError, match="cannot be written: No such file"):
        write_whole(tmp_path / "none" / "plan.json", "")


SPOILED: list[Callable[[dict[str, Any]], object]] = [
    lambda plan: plan.update(format=2),
    lambda plan: plan.update(other=1),
    lambda plan: plan.pop("kafka_id"),
    lambda plan: plan["changes"][0].update(topic="../x"),
    lambda plan: plan["changes"][0].update(topic="x\n"),
]


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_file_that_is_no_plan_is_refused(
    spoil: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    """Before anything is done by it."""
    document = json.loads(json_text(kept()))
    spoil(document)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(PlanFileError, match="is no plan of this release"):
        read_plan(path)


def test_the_moves_are_written_for_kafkas_tool() -> None:
    """Its own form; new partitions are none of its business."""
    assert json.loads(reassignment_text(kept())) == {
        "version": 1,
        "partitions": [{"topic": "wide", "partition": 0, "replicas": [2, 1]}],
    }


NO_TARGET = {"SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS": "x"}


@pytest.mark.parametrize(
    ("arguments", "environ", "status", "fault"),
    [
        # 2 says that there is something to do: a script must not take a typing error for that.
        (["plan"], {}, 1, "Missing option '--cluster'"),
        (["plan", "--no-such"], {}, 1, "No such option"),
        (["plan", "--cluster", "c1", "-b", "nowhere"], {}, 1, "--bootstrap-servers is 'nowhere'"),
        (["plan", "--cluster", "c1", "--maps", "/none"], {}, 1, "cannot read '/none'"),
        (["plan", "--cluster", "c1", "--config", "/none"], {}, 1, "settings file /none"),
        (["plan", "--cluster", "c1"], NO_TARGET, 1, "SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS is 'x'"),
        (["apply", "--moves"], {}, 2, "Missing option '--cluster'"),
        (["apply", "--cluster", "c1", "--throttle", "50MB/s"], {}, 2, "need --moves"),
        (["apply", "--moves", "--throttle", "fast"], {}, 2, "'fast' is no rate; expected bytes"),
        (
            ["apply", "--cancel", "-o", "json", "--yes"],
            {},
            2,
            "--output, --yes cannot be given with --cancel",
        ),
        (["apply", "plan.json", "--cancel"], {}, 2, "PLAN cannot be given with --cancel; leave"),
        (["apply", "--cancel", "--desired", "f"], {}, 2, "cannot be given with desired topics"),
        (["apply", "--cluster", "c1", "--create"], {}, 2, "--create needs --desired"),
        (["apply", "plan.json", "--delete"], {}, 2, "--delete cannot be given with PLAN"),
        (["apply", "plan.json", "--foreign", "t*"], {}, 2, "be given with PLAN, which"),
        (["apply", "/none"], {}, 1, "the plan '/none' cannot be read: No such file or directory"),
    ],
)
def test_wrong_usage_ends_with_two_and_of_plan_with_one(
    arguments: list[str], environ: dict[str, str], status: int, fault: str
) -> None:
    """On standard error, before Kafka is asked."""
    done = CliRunner().invoke(cli, arguments, env=environ)
    assert (done.exit_code, done.stdout) == (status, "")
    assert fault in done.stderr


def test_a_target_has_settings_of_its_own() -> None:
    """What is set for the job's Kafka, its password above all, is never sent to another."""
    environ = {
        "KAFKA_BOOTSTRAP_SERVERS": "here:1",
        "SPU_ASSIGNER_SECURITY_PROTOCOL": "SASL_SSL",
        "SPU_ASSIGNER_SASL_USERNAME": "me",
        "SPU_ASSIGNER_SASL_PASSWORD": "here",
        "SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS": "there:2",
    }
    target = Settings.load(environ=environ, is_target=True).connection()
    assert target.client() == {"bootstrap.servers": "there:2"}
    of_target = {
        "SPU_ASSIGNER_TARGET_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "SPU_ASSIGNER_TARGET_SASL_USERNAME": "you",
        "SPU_ASSIGNER_TARGET_SASL_PASSWORD": "there",
    }
    target = Settings.load(environ={**environ, **of_target}, is_target=True).connection()
    assert target.client() == {
        "bootstrap.servers": "there:2",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "you",
        "sasl.password": "there",
    }
    with pytest.raises(SettingsError, match=r"^SPU_ASSIGNER_TARGET_SASL_MECHANISM is 'X'"):
        Settings.load(environ={"SPU_ASSIGNER_TARGET_SASL_MECHANISM": "X"}, is_target=True)
