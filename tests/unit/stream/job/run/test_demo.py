"""The demonstration: the core gives the documents' tables, and whatever differs is named."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from spu_assigner.core import Assigner, ReplicaLists, ReplicaMap, Status
from spu_assigner.core.base.records import TopicStatus
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_event
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.job.run.demo import (
    DemoAnswers,
    Example,
    Row,
    compare,
    examples,
    show,
    summarise,
)


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
            found.take(step.event_id, letter)
            continue
        for answer in assigner.apply(step.event):
            if isinstance(answer, ReplicaMap) and answer.replicas is None:
                found.tombstones.add(f"{answer.cluster_id}/{step.topic}")
            else:
                found.take(answer.cause, answer)
    return found


def redpanda() -> tuple[Example, DemoAnswers]:
    """The example with an answer of each sort, and what the core gives."""
    [example] = [each for each in examples() if each.cluster_id == "redpanda"]
    return example, found_by_the_core(example)


def differing(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not row.is_equal]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.cluster_id)
def test_the_core_gives_the_documents_answers(example: Example) -> None:
    """So whatever differs in a demonstration was changed on the way through Kafka and Spark."""
    rows = compare(example, found_by_the_core(example))
    assert differing(rows) == []
    partitions = sum(len(step.replicas or ()) for step in example.steps)
    answers = sum(not step.is_join for step in example.steps)
    assert sum(row.partition is not None for row in rows) == partitions
    assert len(rows) == 1 + partitions + answers


def test_ids_differ_from_run_to_run() -> None:
    """A second run on the same broker must not be taken for a repetition of the first."""
    first, second = (
        [step.event_id for example in examples(prefix) for step in example.steps]
        for prefix in ("run-1.", "run-2.")
    )
    assert len(set(first)) == len(first)
    assert not set(first) & set(second)


def test_whatever_differs_is_found() -> None:
    """A judge that never says no proves nothing; every part of an answer counts."""
    example, found = redpanda()
    found.tombstones.clear()
    found.members["redpanda"].add(2)
    first, given = found.by_event["redpanda.4"], found.by_event["redpanda.5"]
    lists = {"replicas": ReplicaLists.of_lists([[2, 1]]), "cores": ReplicaLists.of_lists([[0, 1]])}
    given[:] = [replace(each, **lists) if isinstance(each, ReplicaMap) else each for each in given]
    refused = next(step for step in example.steps if "INSUFFICIENT" in (step.answer or ""))
    maps = [each for each in first if isinstance(each, ReplicaMap)]
    found.by_event[refused.event_id] += maps
    waiting = [
        replace(each, status=Status.WAITING) if isinstance(each, TopicStatus) else each
        for each in first
    ]
    first[:] = [*waiting, *maps]
    rows = compare(example, found)
    assert [row[:3] for row in differing(rows)] == [
        ("ring", None, "0 2"),
        ("a", 0, "nothing"),
        ("a", 1, "nothing"),
        ("a", None, "waiting, a map, SPU 0 saturated"),
        ("b", 0, "[2, 1] on cores [0, 1]"),
        ("too-much", None, "rejected INSUFFICIENT_CAPACITY, a map"),
        ("a", None, "deleted, SPU 0 restored, SPU 1 restored, SPU 2 restored"),
    ]
    assert summarise(rows).startswith("7 of 6 replica lists")


def test_missing_answers_are_differences_and_no_crash() -> None:
    """The judge must not need what it judges."""
    for example in examples():
        rows = compare(example, DemoAnswers())
        assert {row.found for row in rows} <= {"nothing", "empty"}
        assert differing(rows)


def test_what_differs_is_printed_so() -> None:
    """Without colours, which litter a file."""
    file = io.StringIO()
    rows = [Row("t", 0, "[3, 1]", "[3, 1]"), Row("t", 1, "[2, 1]", "[1, 2]")]
    show(examples()[0], rows, Console(file=file, width=120))
    *_, equal, differs, _ = file.getvalue().splitlines()
    assert equal.rstrip().endswith("equal")
    assert differs.rstrip().endswith("DIFFERS")
    assert "\x1b" not in file.getvalue()
