"""The bundled scenario through the core alone: the documents' tables come out."""

from __future__ import annotations

import pytest
from spu_assigner.core import Assigner, ReplicaMap, RingEvent, TopicStatus
from spu_assigner.stream.run.scenario import Example, ScenarioStep, examples


def as_lists(lists: object) -> list[list[int]] | None:
    return None if lists is None else [list(row) for row in lists]  # type: ignore[attr-defined]


def check_step(assigner: Assigner, step: ScenarioStep) -> None:
    """The answers to one step are the expected ones, no more and no fewer."""
    if isinstance(step.event, bytes):
        return
    answers = assigner.apply(step.event)
    maps = [answer for answer in answers if isinstance(answer, ReplicaMap)]
    statuses = [answer for answer in answers if isinstance(answer, TopicStatus)]
    ring = [answer for answer in answers if isinstance(answer, RingEvent)]
    assert [(status.status, status.code) for status in statuses] == (
        [] if step.status is None else [(step.status, step.code)]
    )
    assert tuple((event.spu_id, event.change) for event in ring) == step.ring
    expected = as_lists(step.replicas)
    if step.status == "validated":
        assert statuses[0].replicas is not None
        assert statuses[0].replicas.tolist() == expected
        assert maps == []
    elif step.replicas is not None:
        assert [None if given.replicas is None else given.replicas.tolist() for given in maps] == [
            expected
        ]
        assert maps[0].cores is None or maps[0].cores.tolist() == as_lists(step.cores)
    else:
        assert [given.replicas for given in maps] == [None] * step.leaves_tombstone


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.cluster_id)
def test_the_core_gives_the_documents_answers(example: Example) -> None:
    """The demonstration compares Kafka with these tables: they must be right to begin with."""
    assigner = Assigner()
    for step in example.steps:
        check_step(assigner, step)
    ring = assigner.clusters[example.cluster_id].ring
    assert tuple(sorted(ring.ids.tolist())) == example.ring


def test_joins_come_before_requests() -> None:
    """Requests are promised to see only joins that were acknowledged before them."""
    for example in examples():
        is_request = [not step.is_join for step in example.steps]
        assert is_request == sorted(is_request)


def test_ids_differ_from_run_to_run() -> None:
    """A second run on the same broker must not be taken for a repetition of the first."""
    first, second = (
        [step.event_id for example in examples(prefix) for step in example.steps]
        for prefix in ("run-1.", "run-2.")
    )
    assert len(set(first)) == len(first)
    assert not set(first) & set(second)


def test_events_carry_the_ids_of_their_steps() -> None:
    """Answers are found by them."""
    for example in examples():
        for step in example.steps:
            if not isinstance(step.event, bytes):
                assert (step.event.event_id, step.event.cluster_id) == (
                    step.event_id,
                    example.cluster_id,
                )
