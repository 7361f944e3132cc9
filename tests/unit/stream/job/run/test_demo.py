"""The demonstration: the core gives the documents' tables, and whatever differs is named."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from spu_assigner.core import Assigner, ReplicaLists, Status
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_event
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.job.run.demo import (
    Comparison,
    DemoAnswers,
    compare,
    is_equal,
    show,
    summarise,
)
from spu_assigner.stream.job.run.scenario import Example, examples


def found_by_the_core(example: Example) -> DemoAnswers:
    """What the core alone answers, as it would come back from Kafka."""
    found, assigner = DemoAnswers(), Assigner()
    for step in example.steps:
        if isinstance(step.event, bytes):
            with pytest.raises(DecodeError) as refusal:
                decode_event(step.event, kind="topic")
            letter = DeadLetter.of_value(
                step.event,
                source_topic="topic-events",
                source_partition=0,
                source_offset=0,
                source_timestamp_ms=0,
                code=refusal.value.code,
                message=refusal.value.message,
            )
            found.letters[step.event_id].append(letter)
            continue
        for answer in assigner.apply(step.event):
            if getattr(answer, "replicas", ()) is None and hasattr(answer, "revision"):
                found.tombstones.add(f"{answer.cluster_id}/{step.topic}")
            else:
                found.take(answer)
    return found


def example_named(name: str) -> Example:
    return next(example for example in examples() if example.cluster_id == name)


def differing(comparison: Comparison) -> list[tuple[str, int | None, str, str]]:
    return [
        (row.what, row.partition, row.found, row.expected)
        for row in comparison.rows
        if not row.is_equal
    ]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.cluster_id)
def test_the_core_gives_the_documents_answers(example: Example) -> None:
    """So whatever differs in a demonstration was changed on the way through Kafka and Spark."""
    comparison = compare(example, found_by_the_core(example))
    assert differing(comparison) == []
    partitions = sum(len(step.replicas or ()) for step in example.steps)
    answers = sum(not step.is_join for step in example.steps)
    assert [row.partition is None for row in comparison.rows].count(False) == partitions
    assert len(comparison.rows) == 1 + partitions + answers


def test_ids_differ_from_run_to_run() -> None:
    """A second run on the same broker must not be taken for a repetition of the first."""
    first, second = (
        [step.event_id for example in examples(prefix) for step in example.steps]
        for prefix in ("run-1.", "run-2.")
    )
    assert len(set(first)) == len(first)
    assert not set(first) & set(second)


def test_one_changed_replica_is_found() -> None:
    """A judge that never says no proves nothing."""
    example = example_named("kafka-case-2")
    found = found_by_the_core(example)
    [given] = found.maps["kafka-case-2.4"]
    changed = ReplicaLists.of_lists([[3, 1], [2, 1]])
    found.maps["kafka-case-2.4"] = [replace(given, replicas=changed)]
    comparison = compare(example, found)
    assert differing(comparison) == [("case", 1, "[2, 1]", "[1, 2]")]
    assert not is_equal([comparison])
    assert summarise([comparison]).startswith("1 of 2 replica lists")


def test_a_core_that_differs_is_found() -> None:
    """Redpanda's maps name cores as well."""
    example = example_named("redpanda")
    found = found_by_the_core(example)
    [given] = found.maps["redpanda.5"]
    found.maps["redpanda.5"] = [replace(given, cores=ReplicaLists.of_lists([[0, 1]]))]
    assert differing(compare(example, found)) == [
        ("b", 0, "[1, 2] on cores [0, 1]", "[1, 2] on cores [1, 1]")
    ]


def test_a_map_that_comes_twice_is_found() -> None:
    """Exactly once is promised."""
    example = example_named("kafka-case-1")
    found = found_by_the_core(example)
    found.maps["kafka-case-1.4"] *= 2
    assert differing(compare(example, found)) == [
        ("case", 0, "nothing", "[3]"),
        ("case", 1, "nothing", "[1]"),
        ("case", None, "assigned, a map", "assigned"),
    ]


def test_a_map_where_none_was_due_is_found() -> None:
    """A refused request must leave no map behind."""
    example = example_named("redpanda")
    found = found_by_the_core(example)
    refused = next(step for step in example.steps if "INSUFFICIENT" in (step.answer or ""))
    found.maps[refused.event_id] = found.maps["redpanda.5"]
    [(what, _, said, expected)] = differing(compare(example, found))
    assert (what, said) == ("too-much", "rejected INSUFFICIENT_CAPACITY, a map")
    assert expected == "rejected INSUFFICIENT_CAPACITY"


def test_another_status_a_missing_tombstone_and_a_wrong_ring_are_found() -> None:
    """Every part of an answer counts."""
    example = example_named("redpanda")
    found = found_by_the_core(example)
    found.tombstones.clear()
    found.members["redpanda"].add(2)
    [status] = found.statuses["redpanda.4"]
    found.statuses["redpanda.4"] = [replace(status, status=Status.WAITING)]
    assert [row[0] for row in differing(compare(example, found))] == ["ring", "a", "a"]


def test_missing_answers_are_differences_and_no_crash() -> None:
    """The judge must not need what it judges."""
    for example in examples():
        comparison = compare(example, DemoAnswers())
        assert {row.found for row in comparison.rows} <= {"nothing", "empty"}
        assert not is_equal([comparison])


@pytest.mark.parametrize(
    ("encoding", "good", "bad"), [("utf-8", "✓", "✗ differs"), ("ascii", "equal", "DIFFERS")]
)
def test_what_is_printed_suits_the_terminal(encoding: str, good: str, bad: str) -> None:
    """Marks that a terminal cannot show would be an error there, and colours litter a file."""
    example = example_named("kafka-case-2")
    found = found_by_the_core(example)
    found.maps["kafka-case-2.4"] = [
        replace(given, replicas=ReplicaLists.of_lists([[3, 1], [2, 1]]))
        for given in found.maps["kafka-case-2.4"]
    ]
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    show(compare(example, found), Console(file=file, width=120))
    file.flush()
    lines = raw.getvalue().decode(encoding).splitlines()
    [equal] = [line for line in lines if "[3, 1]" in line]
    [differs] = [line for line in lines if "[2, 1]" in line]
    assert good in equal
    assert "differ" not in equal.lower()
    assert bad in differs
    assert "\x1b" not in raw.getvalue().decode(encoding)
