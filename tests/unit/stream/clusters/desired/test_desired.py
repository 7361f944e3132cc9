"""What is between a file of desired topics and a cluster, and which events follow from it."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.constraints import NO_CONSTRAINTS, Constraints
from spu_assigner.core.base.events import (
    Event,
    LeaveMode,
    OnShortage,
    Policy,
    TopicConstraints,
    TopicCreate,
    TopicGrow,
    TopicReplication,
)
from spu_assigner.schemas.json_lines.lines import event_from_json
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.desired import command
from spu_assigner.stream.clusters.desired.command import desired_json, desired_lines
from spu_assigner.stream.clusters.desired.decision import DesiredEvents, desired_events
from support.events.builders import Events

RULES = Constraints(require=("tier = ssd",), apart_from=("u",))


def create(name: str = "t", partitions: int = 4, factor: int = 2, **more: Any) -> TopicCreate:
    return Events().create(name, partitions, factor, event_id=f"e-{name}", **more)


def cluster(*events: Event, spus: int = 3) -> Assigner:
    """Three SPUs of tier ssd, and what was sent before."""
    assigner = Assigner()
    joins = [Events().join(n, labels={"tier": "ssd"}, event_id=f"j{n}") for n in range(spus)]
    for event in (*joins, *events):
        assigner.apply(event)
    return assigner


def found_by(
    assigner: Assigner, *creates: TopicCreate, in_kafka: Collection[str] = ()
) -> DesiredEvents:
    reserved, state = frozenset({"replica-map"}), assigner.clusters["c1"]
    return desired_events(creates, state, in_kafka=in_kafka, reserved=reserved)


LOST = Events().leave(2, mode=LeaveMode.DECOMMISSION, event_id="l")
UNEVEN = Events().adopt("t", [0, 1], [1], event_id="a")
NO_HDD = Constraints(forbid=("tier = hdd",))


@pytest.mark.parametrize(
    ("before", "asked", "line"),
    [
        ([], create(policy=Policy.KAFKA), "+ t  4 partitions, replication factor 2, policy kafka"),
        (
            [create("u", 1, 1)],
            create(constraints=RULES, factor=1, partitions=1),
            "+ t  1 partitions, replication factor 1, requires tier = ssd; apart from u",
        ),
        *(
            ([create()], create(**same), "= 1 topic mapped as desired")
            for same in ({}, {"policy": Policy.BALANCED}, {"constraints": NO_CONSTRAINTS})
        ),
        ([create(partitions=3)], create(), "~ t  3 → 4 partitions"),
        ([create(factor=3)], create(), "~ t  replication factor 3 → 2"),
        ([UNEVEN], create(partitions=2), "~ t  replication factor 1 to 2 → 2"),
        ([create(factor=3), LOST], create(factor=3), "? t  its repair waits for SPUs or slots"),
        ([create(factor=5, on_shortage=OnShortage.WAIT)], create(), "? t  its create waits for"),
        ([create(partitions=5)], create(), "! t  5 → 4 partitions: rejected as the clu"),
        ([create()], create(policy=Policy.KAFKA), "! t  has policy balanced, which a top"),
        ([create()], create(constraints=NO_HDD), "~ t  other constraints, forbids tier = hdd"),
        (
            [create(constraints=NO_HDD)],
            create(constraints=NO_CONSTRAINTS),
            "~ t  other constraints, none",
        ),
        ([], create(factor=5), "! t  4 partitions, replication factor 5: rejected as the"),
        ([], create("replica-map"), "! replica-map  4 partitions, replication factor 2: r"),
    ],
)
def test_a_topic_is_brought_to_what_is_desired_or_it_is_said_why_not(
    before: Sequence[Event], asked: TopicCreate, line: str
) -> None:
    """It is what a review of the file shows; the core answers what can be."""
    first, *_ = desired_lines(found_by(cluster(*before), asked))
    assert first.startswith(line)


def test_topics_that_others_name_come_first() -> None:
    """The assigner knows no topic of the future; of two that name each other neither can."""
    rules = {name: Constraints(apart_from=(name,)) for name in "bcde"}
    file = (
        create("a", 1, 1, constraints=rules["b"]),
        create("b", 2, 1, constraints=rules["c"]),
        create("c", 1, 1),
        create("d", 1, 1, constraints=rules["e"]),
        create("e", 1, 1, constraints=rules["d"]),
    )
    found = found_by(cluster(create("b", 1, 1)), *file)
    assert [(type(each), each.topic) for each, _ in found.changes] == [
        (TopicCreate, "a"),
        (TopicCreate, "c"),
        (TopicConstraints, "b"),
        (TopicGrow, "b"),
    ]
    assert list(found.refused) == ["d", "e"]
    assert [*desired_lines(found)][-1] == (
        "2 to create, 1 to grow, 1 to constrain otherwise, 2 that cannot be as desired"
    )


def test_what_is_not_in_the_file_is_reported_and_never_deleted() -> None:
    """A file that lost a line must not cost data; of many topics ten are named."""
    waiting = create("a", factor=9, on_shortage=OnShortage.WAIT)
    found = found_by(cluster(waiting, *(create(f"t{n:02}", 1, 1) for n in range(12))))
    assert (found.events, len(found.extra)) == ([], 13)
    named, total = desired_lines(found)
    names = ", ".join(["a", *(f"t{n:02}" for n in range(9))])
    assert named == f". {names} and 3 more  in the cluster and not in the file; left alone"
    assert total == "nothing to do: 13 not in the file"


def test_a_topic_that_kafka_has_without_a_map_is_not_requested() -> None:
    """It would be created under the name of another; a mapped one is as always."""
    creates = [create(name, 1, 1) for name in ("a", "b.c", "t")]
    found = found_by(cluster(create("t", 1, 1)), *creates, in_kafka={"a", "b_c"})
    assert (found.events, found.unchanged) == ([], 1)
    assert [reason.partition("; ")[0] for reason in found.refused.values()] == [
        "is in Kafka and has no map",
        "differs from topic 'b_c' in Kafka by dots and underscores alone, which Kafka refuses",
    ]


def test_the_events_make_the_cluster_as_desired_and_then_there_is_nothing_to_do() -> None:
    """Created, sent twice, grown, deleted, asked for again: by an id that was not used."""
    sent: list[Event] = []

    def found(*creates: TopicCreate) -> list[Event]:
        return found_by(cluster(*sent), *creates).events

    file = [create("a"), create("b", policy=Policy.KAFKA)]
    first = found(*file)
    assert [type(event) for event in first] == [TopicCreate, TopicCreate]
    assert found(*file) == first
    sent += first * 2
    assert found(*file) == []
    file[0] = create("a", 9, 3)
    grown = found(*file)
    assert [type(event) for event in grown] == [TopicReplication, TopicGrow]
    sent += grown
    assert found(*file) == []
    sent.append(Events().delete("b", event_id="d"))
    (again,) = found(*file)
    assert again.event_id not in {event.event_id for event in first}


FILE = "topics: [{name: t, partitions: 4, replication_factor: 2}]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "topics.yaml"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Topics of the events that were sent; the job has published a cluster, Kafka has nothing."""
    topics: list[str] = []

    def send_events(named: Any, **_: object) -> int:
        topics.extend(event.topic for _, event in named)
        return 3 if "late" in topics else 0

    state = cluster().clusters["c1"]
    monkeypatch.setattr(command, "read_cluster_state", lambda *_: state)
    monkeypatch.setattr(command, "topics_of", lambda _: set())
    monkeypatch.setattr(command, "send_events", send_events)
    return topics


def call(name: str, file: Path, *more: object) -> tuple[int, str, str]:
    asked = [name, "--cluster", "c1", "--desired", file, *more]
    done = CliRunner().invoke(cli, [str(each) for each in asked])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.usefixtures("sent")
def test_the_plan_is_shown_and_its_events_are_written(file: Path, tmp_path: Path) -> None:
    """As `produce events` takes them."""
    out = tmp_path / "events.jsonl"
    file.write_text(FILE, "utf-8")
    status, text, _ = call("plan", file, "--out", out)
    assert (status, text) == (2, "+ t  4 partitions, replication factor 2\n1 to create\n")
    assert isinstance(event_from_json(out.read_text("utf-8")), TopicCreate)
    assert call("plan", file)[:2] == (0, "= 1 topic mapped as desired\nnothing to do\n")
    shown = json.loads(call("plan", file, "-o", "json")[1])
    assert shown == desired_json("c1", DesiredEvents(unchanged=1))
    file.write_text(FILE.replace("4", "3"), "utf-8")
    assert call("plan", file)[0] == 1


def test_what_cannot_be_as_desired_does_not_hold_up_the_rest(file: Path, sent: list[str]) -> None:
    """The others are sent, and the status is 1, or that of the answers."""
    bad = "  - {name: bad, partitions: 1, replication_factor: 9}\n"
    good = "  - {name: good, partitions: 1, replication_factor: 1}\n"
    file.write_text(f"topics:\n{bad}{good}", "utf-8")
    status, _, text = call("apply", file)
    assert (status, sent, text.startswith("apply: bad: 1 part")) == (1, ["good"], True)
    file.write_text(f"topics:\n{bad}", "utf-8")
    last = "nothing to do: 1 that cannot be as desired, 1 not in the file\n"
    status, text, _ = call("apply", file)
    assert (status, text.endswith(last)) == (1, True)
    file.write_text(f"topics:\n{good.replace('good', 'late')}", "utf-8")
    assert call("apply", file)[0] == 3


@pytest.mark.parametrize("name", ["plan", "apply"])
def test_every_fault_of_the_file_is_a_line_and_the_status_is_1(name: str, file: Path) -> None:
    """Nothing was compared, and nothing is sent; one that is not there is a line likewise."""
    status, _, text = call(name, file)
    assert (status, text) == (
        1,
        f"the file of desired topics {str(file)!r} cannot be read: No such file or directory; "
        "expected YAML with a list of `topics`\n",
    )
    file.write_text("topics:\n  - name: t\n    partitions: x\n", "utf-8")
    status, _, text = call(name, file)
    heads = [line.partition(": topics[0]")[0] for line in text.splitlines()]
    assert (status, heads) == (1, [str(file)] * 2)
