"""Every decision can be explained: with the events at hand, and from the outputs alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.core.base.records import Mode, RecordedRing, ReplicaMap
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.explain.decisions import (
    BY_SHARES,
    CHANGES,
    NOT_REPEATED,
    ExplainingAssigner,
    explain,
)
from spu_assigner.core.explain.placement_decision import PlacementDecision, Why
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import ids_of_text
from support.events.builders import Events
from support.events.random_lives import life_of

GIVEN = (Mode.LISTS, Mode.ADOPTED)  # lists that the event named, so no ring was read
LIVES = 200  # of each property here; some seconds
ABSENT = (Why.OFFLINE, Why.LEAVING, Why.SATURATED, Why.CORDONED)


def absent(decision: PlacementDecision) -> dict[str, list[int]]:
    """The SPUs that were not in the ring, leaving ones as offline."""
    found: dict[str, list[int]] = {"offline": [], "saturated": [], "cordoned": []}
    for each in decision.absent:
        if each.why in ABSENT:
            found["offline" if each.why is Why.LEAVING else each.why.value].append(each.spu_id)
    return found


def recorded(ring: RecordedRing) -> dict[str, list[int]]:
    """The same as the record has it."""
    return {name: ids_of_text(getattr(ring, name)) for name in ("offline", "saturated", "cordoned")}


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, LIVES, 50)])
def test_with_the_events_at_hand_every_list_is_recomputed_and_named(seeds: range) -> None:
    """Whatever happened before: nothing may stay unknown, and the numbers are the record's."""
    for seed in seeds:
        life = life_of(seed)
        assigner = ExplainingAssigner(life.default_policy)
        for event in life.events:
            for answer, reasons in assigner.apply(event):
                if not isinstance(answer, ReplicaMap) or answer.replicas is None:
                    continue
                reason = answer.reason
                assert reason is not None
                is_by_rule = reason.mode not in (*BY_SHARES, *CHANGES, *GIVEN)
                for partition, decision in reasons:
                    assert decision.unknown == (), (seed, event, decision)
                    assert decision.replicas == tuple(answer.replicas.tolist()[partition])
                    assert decision.recomputed == is_by_rule, (seed, event, decision)
                    assert (reason.ring is None) == (reason.mode in GIVEN)
                    if reason.ring is not None:
                        assert absent(decision) == recorded(reason.ring)


def outputs_of(
    events: tuple[Event, ...], assigner: Assigner
) -> tuple[ClusterState, dict[str, list[ReplicaMap]]]:
    """A cluster as a reader of the topics knows it: its state, the maps of living topics."""
    maps: dict[str, list[ReplicaMap]] = {}
    for event in events:
        for answer in answers(assigner.records(event)):
            if isinstance(answer, ReplicaMap):
                if answer.replicas is None:
                    maps.pop(answer.topic)
                else:
                    maps.setdefault(answer.topic, []).append(answer)
    [state] = [*assigner.clusters.values()] or [ClusterState(events[0].cluster_id)]
    return state, maps


def without_racks(decision: PlacementDecision) -> PlacementDecision:
    return replace(
        decision, replica_steps=tuple(replace(each, rack=None) for each in decision.replica_steps)
    )


def test_from_the_outputs_alone_every_step_of_a_rule_is_computed_again() -> None:
    """Whatever became of SPUs, racks and capacities since: the record has all that the rule read.

    Of other steps the outputs name the same SPUs; what these hold is that of now.
    """
    by_rule = 0
    for seed in range(LIVES):
        life = life_of(seed)
        assigner = ExplainingAssigner(life.default_policy)
        exact = {
            (answer.topic, answer.cause, answer.revision, partition): decision
            for event in life.events
            for answer, reasons in assigner.apply(event)
            if isinstance(answer, ReplicaMap)
            for partition, decision in reasons
        }
        state, maps = outputs_of(life.events, Assigner(life.default_policy))
        for retained in maps.values():
            for explanation in explain(state, retained):
                assert explanation.is_whole
                for decision in explanation.decisions:
                    reason = decision.reason
                    assert reason is not None
                    truth = exact[
                        explanation.topic, decision.cause, decision.revision, explanation.partition
                    ]
                    assert NOT_REPEATED not in decision.unknown, (seed, decision)
                    assert absent(decision) == absent(truth)
                    assert decision.moves == truth.moves
                    is_by_rule = reason.mode not in (*BY_SHARES, *CHANGES, *GIVEN)
                    assert decision.recomputed == is_by_rule, (seed, decision)
                    if is_by_rule:
                        by_rule += 1
                        assert decision.step == truth.step
                        assert (
                            without_racks(decision).replica_steps
                            == without_racks(truth).replica_steps
                        ), (seed, decision, truth)
    assert by_rule > LIVES // 4


def decided(*events: Event) -> list[tuple[ReplicaMap, list[tuple[int, PlacementDecision]]]]:
    """The maps of these events with their reasons."""
    assigner = ExplainingAssigner(Policy.FLUVIO)
    return [
        (answer, reasons)
        for event in events
        for answer, reasons in assigner.apply(event)
        if isinstance(answer, ReplicaMap)
    ]


def test_kafkas_walk_names_the_rack_it_passed_over() -> None:
    """Two SPUs on rack a follow each other: the second is passed over for the first."""
    events = Events()
    joins = events.racks({"a": [0, 1, 2], "b": [3]})
    [(_, reasons)] = decided(*joins, events.create("t", 3, 2, policy=Policy.KAFKA))
    passed = [
        [(each.spu_id, each.why, each.beside) for each in decision.replica_steps[1].passed]
        for _, decision in reasons
    ]
    assert [decision.replicas for _, decision in reasons] == [(0, 3), (3, 1), (1, 3)]
    assert passed == [[], [], [(2, Why.SAME_RACK, 1), (0, Why.SAME_RACK, 1)]]


RACKS = {"a": [0, 1], "b": [2], "c": [3]}


@pytest.mark.parametrize(
    ("spu_id", "rack", "names"),
    [(2, "bb", ["a", "bb", "c"]), (1, "b", [None, None, None])],
    ids=["renamed", "moved"],
)
def test_racks_have_the_names_of_now_as_long_as_their_members_are_the_same(
    spu_id: int, rack: str, names: list[str | None]
) -> None:
    """The record has which SPUs were on one rack, without the racks' names: maps stay small."""
    events = Events()
    story = (*events.racks(RACKS), events.create("t", 1, 3, policy=Policy.KAFKA))
    state, maps = outputs_of((*story, events.join(spu_id, rack=rack)), Assigner())
    [explained] = explain(state, maps["t"])
    [decision] = explained.decisions
    assert decision.recomputed
    assert [taken.rack for taken in decision.replica_steps] == names
    assert bool(decision.unknown) == (None in names)
