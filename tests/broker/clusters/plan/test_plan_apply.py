"""Replica maps become topics: `plan` and `apply` on three real brokers, and Kafka's own tool."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from spu_assigner.stream.clusters.plan import apply
from support.events.builders import Events
from support.job.kafka_operator import SEEN_SECONDS_MAX, Lists, Operator, simulated
from support.job.small_job import SmallJob
from support.kafka.moving import Mover
from support.placers.kafka_reassign import run_tool

TOPICS = 1_000
VALUE_SIZE = 512 * 1024
VALUES = 8  # more than a broker fetches at once: a throttled copy stands still then


@pytest.fixture
def job(operator: Operator) -> Iterator[SmallJob]:
    """What the job leaves in Kafka: maps, statuses, state."""
    with operator.job() as job:
        yield job


def mapped(job: SmallJob, topic: str) -> Lists:
    """As the job knows it."""
    return job.states()["c1"].topics[topic].replicas.lists().tolist()


def reassign(operator: Operator, file: Path, *options: str) -> str:
    """Kafka's own tool, as its script starts it."""
    return run_tool(operator.cluster.bootstrap_servers, "--reassignment-json-file", file, *options)


def verified(operator: Operator, file: Path) -> None:
    deadline = time.monotonic() + 90
    while "is still in progress" in (output := reassign(operator, file, "--verify")):
        assert time.monotonic() < deadline, output
    assert "is completed" in output
    assert "failed" not in output.casefold()


@pytest.mark.smoke
def test_a_cluster_is_made_as_its_maps_and_kept_so(
    operator: Operator, job: SmallJob, tmp_path: Path
) -> None:
    """A day's work: planned, made, nothing to do, grown, deleted; foreign topics untouched."""
    events, orders, logs = operator.events, operator.name("orders"), operator.name("logs")
    job.apply(
        [
            events.create(orders, 6, 3),
            events.create(logs, 2, 2, policy="kafka"),
            events.create(operator.name("late"), 1, 4, on_shortage="wait"),
            events.create(operator.name("gone"), 1, 1),
            events.delete(operator.name("gone")),
            Events("c2").join(1),
            Events("c2", first=9).create(operator.name("another-clusters"), 1, 1),
        ]
    )
    operator.make("foreign", [[1, 2]])
    planned = operator.plan()
    assert planned.exit_code == 2, planned.output
    assert f"+ {orders}  6 partitions of 3 replicas" in planned.stdout
    assert f"? {operator.name('late')}  its create of 1 partitions waits for room" in planned.stdout
    total, better, unmapped = planned.stdout.splitlines()[-3:]
    assert total == "2 to create, 0 to change, 0 to delete, 1 waiting"
    assert better == "could be better: 8 partitions not as mapped"
    assert re.fullmatch(r"\d+ topics? in Kafka ha(s|ve) no map \(adopt takes .* in\)", unmapped)
    mine = json.loads(operator.plan("-o", "json", "--topics", operator.name("*")).stdout)
    assert mine["unmapped"] == [operator.name("foreign")]
    assert (mine["partitions_ahead"], mine["improvable"]["few_racks"]) == (8, 0)
    assert operator.lists("orders", "logs") == {}

    assert operator.plan("--topics", "*logs", "--out", tmp_path / "logs.json").exit_code == 2
    kept = operator("apply", tmp_path / "logs.json")
    few = f"apply: warning: {logs}: replication factor 2, min.insync.replicas 2: while a broker of "
    assert (kept.exit_code, kept.stderr[: len(few)]) == (0, few)
    done = operator.apply()
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"created  {orders}  6 partitions" in done.stdout
    assert "1 created, 0 grown, 0 deleted; 1 as mapped before" in done.stdout
    of_maps = {"orders": mapped(job, orders), "logs": mapped(job, logs)}
    assert operator.lists("orders", "logs", "late", "gone", "another-clusters") == of_maps
    assert operator.plan().exit_code == 0
    failed = operator("whatif", "--cluster", "c1", "--fail", "rack=a", "-o", "json")
    found = json.loads(failed.stdout)  # Of what the job has published.
    assert (found["before"]["partitions"], found["failure"]["failed"]) == (8, [1])

    job.apply([events.grow(orders, 9), events.delete(logs)])
    planned = operator.plan("--delete")
    assert planned.exit_code == 2
    assert f"~ {orders}  6 → 9 partitions" in planned.stdout
    assert f"- {logs}  2 partitions" in planned.stdout
    careful = operator.apply()
    assert (careful.exit_code, operator.lists("logs")) == (0, {"logs": of_maps["logs"]})
    grown = {"orders": mapped(job, orders)}
    assert len(grown["orders"]) == 9
    assert operator.lists("orders") == grown
    assert f". {logs}  is mapped no more" in operator.plan().stdout
    deleted = operator.apply("--delete", "--yes")
    assert (deleted.exit_code, deleted.stderr) == (0, "")
    assert operator.lists("orders", "logs", "foreign") == {**grown, "foreign": [[1, 2]]}
    assert operator.plan("--delete").exit_code == 0

    foreign, file = operator.name("foreign"), tmp_path / "topics.yaml"
    file.write_text(
        f"topics:\n"
        f"  - {{name: {orders}, partitions: 9, replication_factor: 3}}\n"
        f"  - {{name: {foreign}, partitions: 1, replication_factor: 2}}\n",
        "utf-8",
    )
    compared = operator.plan("--desired", file, "-o", "json")  # A topic without a map is refused.
    found = json.loads(compared.stdout)
    assert (compared.exit_code, found["events"], found["unchanged"]) == (1, [], 1)
    assert [each["topic"] for each in found["refused"]] == [foreign]
    assert found["extra"] == [operator.name("late")]


def test_moves_are_made_by_kafkas_own_tool(
    operator: Operator, job: SmallJob, tmp_path: Path
) -> None:
    """What is written is what the tool takes, and when it is done there is nothing to do."""
    events, orders = operator.events, operator.name("orders")
    job.apply([events.create(orders, 2, 2)])
    assert operator.apply().exit_code == 0
    first = operator.lists("orders")
    Mover(operator, tmp_path).fill("orders", 2, VALUES, value_size=VALUE_SIZE)
    job.apply([events.leave(3, mode="decommission")])
    file = tmp_path / "moves.json"
    without = operator.apply()
    assert without.exit_code == 1
    assert " to move: run `apply --moves`" in without.stderr
    shown = operator.plan(*("--reassignment-file", file, "--topics", operator.name("orders")))
    assert shown.exit_code == 2
    assert re.search(r"^\d replicas? to copy, [48]\.0 MiB$", shown.stdout, re.MULTILINE)
    assert operator.lists("orders") == first

    reassign(operator, file, "--execute", "--throttle", "1")
    operator.wait(["orders"], lambda found: found != first)
    moving = operator.plan()
    assert moving.exit_code == 2
    assert "being moved by Kafka" in moving.stdout
    assert "to move by" not in moving.stdout
    reassign(operator, file, "--execute", "--additional", "--throttle", "1000000000")
    verified(operator, file)
    operator.until("orders", mapped(job, orders))
    done = operator.plan()
    assert done.exit_code == 0, done.stdout
    assert operator.lists("orders") == {"orders": mapped(job, orders)}
    assert all(3 not in row for row in mapped(job, orders))


def test_what_kafka_refuses_leaves_all_else_done(operator: Operator, tmp_path: Path) -> None:
    """One line for each, status 1, and a second run does what is left."""
    events, file = operator.events, tmp_path / "maps.jsonl"
    names = [operator.name(each) for each in ("absent", "fine", "taken_x", "vast")]
    absent, fine, taken, vast = names
    lists = {absent: [[3, 2]], fine: [[1, 2]], taken: [[1]], vast: [[1]] * 10_001}
    creates = [events.manual(topic, *rows) for topic, rows in lists.items()]
    assert simulated(file, [*events.joins(1, 2, 3, capacity=100_000), *creates]) == lists
    operator.make("taken.x", [[2]])
    with operator.cluster.stopped(3):
        planned = operator.plan("--maps", file, "--out", tmp_path / "plan.json")
        assert planned.exit_code == 1
        result = operator.apply("--maps", file)
        assert result.exit_code == 1
        few, *lines = result.stderr.splitlines()
        assert few.startswith(f"apply: warning: {fine}: replication factor 2, min.insync.replicas ")
        for line, topic in zip(lines, (taken, vast), strict=False):
            assert line.startswith(f"apply: {topic}: was not created: ")
            assert line.endswith("; fix that and run again")
        assert lines[2:] == [
            f"apply: {absent}: its map names SPUs 3, and Kafka's live brokers are 1, 2; start "
            "them, or decommission these SPUs (`spu-assigner produce spu-left --mode "
            "decommission`)"
        ]
        assert operator.lists("absent", "fine", "vast") == {"fine": [[1, 2]]}
    stale = operator("apply", tmp_path / "plan.json")
    assert (stale.exit_code, stale.stdout) == (1, "")
    assert stale.stderr == (
        "spu-assigner: not as when it was planned: brokers were [1, 2] and are [1, 2, 3]; nothing "
        "was done, plan again\n"
    )
    rest = operator.apply("--maps", file, "--topics", "*fine", "--topics", "*absent")
    assert (rest.exit_code, rest.stdout.splitlines()) == (
        0,
        [f"created  {absent}  1 partition", "1 created, 0 grown, 0 deleted; 1 as mapped before"],
    )
    assert operator.lists("absent", "fine") == {"absent": [[3, 2]], "fine": [[1, 2]]}


def test_a_saved_plan_is_refused_when_the_cluster_has_changed(
    operator: Operator, job: SmallJob, tmp_path: Path
) -> None:
    """What was decided on something else is not done, not even in part."""
    events, file = operator.events, tmp_path / "plan.json"
    job.apply([events.create(operator.name(each), 1, 2) for each in ("a", "b", "c")])
    assert operator.apply("--topics", "*c").exit_code == 0
    job.apply([events.delete(operator.name("c"))])
    assert operator.plan("--delete", "--out", file).exit_code == 2
    lists = operator.lists("c")["c"]
    operator.make("b", [[3], [2]])
    operator.remove("c")
    operator.make("c", lists)  # Another topic, though it looks the same.
    job.apply([events.delete(operator.name("a"))])
    refused = operator("apply", file, "--yes")
    assert (refused.exit_code, refused.stdout) == (1, "")
    for name in map(operator.name, "abc"):
        assert f"topic {name} needs something else now" in refused.stderr
    assert list(operator.lists("a", "b", "c")) == ["b", "c"]
    operator.remove("b")
    assert operator.plan("--delete", "--out", file).exit_code == 2
    assert operator("apply", file).exit_code == 0
    assert list(operator.lists("a", "b", "c")) == ["b", "c"]


def test_a_thousand_topics_are_made_exactly_as_mapped(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each list, in its order, as the brokers report it."""
    monkeypatch.setattr(apply, "SEEN_SECONDS_MAX", SEEN_SECONDS_MAX)
    events, file = operator.events, tmp_path / "maps.jsonl"
    names = [operator.name(f"t{number:04}") for number in range(TOPICS)]
    asked = [*events.racks({"a": [1], "b": [2], "c": [3]})]
    asked += [
        events.create(name, 1 + number % 2, 1 + number % 2) for number, name in enumerate(names)
    ]
    wanted = simulated(file, asked)
    done = operator.apply("--maps", file, "-o", "json")
    one, two = done.stderr.splitlines()  # Of each factor, as the cluster wants two in sync.
    for factor, line in enumerate((one, two), start=1):
        assert f" and 490 more: replication factor {factor}, min.insync.replicas 2: " in line
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    assert report["created"] == names
    short = [name.removeprefix(operator.prefix) for name in names]
    made = operator.lists(*short)
    assert {operator.name(topic): lists for topic, lists in made.items()} == wanted
    planned = operator.plan("--maps", file, "-o", "json")
    assert planned.exit_code == 0
    assert json.loads(planned.stdout)["changes"] == []
    simulated(file, [*asked, *(events.delete(name) for name in names)])
    assert operator.apply("--maps", file, "--delete", "--yes").exit_code == 0
    assert operator.lists(*short) == {}
