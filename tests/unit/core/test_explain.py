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
from spu_assigner.stream.client.explanation import decision_lines
from support.events.builders import Events
from support.events.random_lives import Life, life_of

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
    return {name: ids_of_text(getattr(ring, name)) for name in ("offline", "saturated", "cordoned")}


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


def explained(life: Life) -> dict[tuple[str, str, int, int], PlacementDecision]:
    """Why each list of a life is as it is, by topic, cause, revision and partition."""
    assigner = ExplainingAssigner(life.default_policy)
    found = {}
    for event in life.events:
        for answer, reasons in assigner.apply(event):
            if not isinstance(answer, ReplicaMap) or answer.replicas is None:
                continue
            for partition, decision in reasons:
                assert decision.replicas == tuple(answer.replicas.tolist()[partition])
                found[answer.topic, answer.cause, answer.revision, partition] = decision
    return found


def test_with_the_events_at_hand_every_list_is_recomputed_and_named() -> None:
    """Whatever happened before: nothing may stay unknown, and the numbers are the record's."""
    for seed in range(LIVES):
        for decision in explained(life_of(seed)).values():
            reason = decision.reason
            assert reason is not None
            assert decision.unknown == (), (seed, decision)
            is_by_rule = reason.mode not in (*BY_SHARES, *CHANGES, *GIVEN)
            assert decision.recomputed == is_by_rule, (seed, decision)
            assert (reason.ring is None) == (reason.mode in GIVEN)
            if reason.ring is not None:
                assert absent(decision) == recorded(reason.ring)


def test_from_the_outputs_alone_every_step_of_a_rule_is_computed_again() -> None:
    """Whatever became of SPUs, racks and capacities since: the record has all that the rule read.

    Of other steps the outputs name the same SPUs; what these hold is that of now.
    """
    by_rule = 0
    for seed in range(LIVES):
        life = life_of(seed)
        exact = explained(life)
        state, maps = outputs_of(life.events, Assigner(life.default_policy))
        for explanation in (
            each for retained in maps.values() for each in explain(state, retained)
        ):
            assert explanation.is_whole
            for decision in explanation.decisions:
                place = decision.cause, decision.revision, explanation.partition
                truth = exact[explanation.topic, *place]
                assert NOT_REPEATED not in decision.unknown, (seed, decision)
                assert absent(decision) == absent(truth)
                assert decision.moves == truth.moves
                assert decision.recomputed == truth.recomputed, (seed, decision)
                if decision.recomputed:
                    by_rule += 1
                    assert decision.step == truth.step
                    steps = [without_racks(each).replica_steps for each in (decision, truth)]
                    assert steps[0] == steps[1], (seed, decision, truth)
    assert by_rule > LIVES // 4


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
    story = (*events.racks(RACKS), events.create("t", 1, 3, policy=Policy.KAFKA, start_index=0))
    state, maps = outputs_of((*story, events.join(spu_id, rack=rack)), Assigner())
    [explained] = explain(state, maps["t"])
    [decision] = explained.decisions
    assert decision.recomputed
    assert [taken.rack for taken in decision.replica_steps] == names
    assert bool(decision.unknown) == (None in names)


def test_the_rule_is_said_in_words() -> None:
    assigner = ExplainingAssigner(Policy.KAFKA)
    for event in Events().racks({"a": [0, 1, 2], "b": [3]}):
        assigner.apply(event)
    (_, reasons), *_ = assigner.apply(Events(first=50).create("orders", 3, 2))
    assert decision_lines(reasons[-1][1]) == [
        "kafka over racks",
        "ring of 4 alternating over racks, chain index 2: cycle 0, position 2, shift 0",
        "leader   SPU 1: position 2, rack a",
        "follower SPU 3: position 1, rack b, "
        "passed over SPU 2 (same rack as 1), SPU 0 (same rack as 1)",
        "repeated for this answer: the same comes out",
    ]
