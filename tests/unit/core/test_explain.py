"""Every decision can be explained: with the events at hand, and from the outputs alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Event, LeaveMode, Policy
from spu_assigner.core.base.records import Mode, ReplicaMap, RingEvent
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.explain.decisions import (
    GIVEN,
    KnownOutputs,
    RetainedMap,
    explain,
)
from spu_assigner.core.explain.explaining_assigner import ExplainingAssigner
from spu_assigner.core.explain.placement_decision import PlacementDecision
from spu_assigner.core.explain.ring_history import RingGroup, Why
from spu_assigner.core.state.cluster_state import ClusterState
from support.events.builders import Events
from support.events.random_lives import life_of

LIVES = 200  # of each property here; some seconds
WITH_MORE_THAN_IDS = (
    *(Mode.RACK_WALK, Mode.RACK_SHIFTED, Mode.BALANCED, Mode.BALANCED_ROUNDS),
    *(Mode.REPAIR, Mode.REBALANCE, Mode.REPLICATION, Mode.DEMOTION),
    *(Mode.SCORED, Mode.RACK_SCORED),  # over capacities, which change likewise
    Mode.STRIPED,  # over SPUs that were offline
)
ABSENT = (Why.OFFLINE, Why.LEAVING, Why.SATURATED)


def absent(decision: PlacementDecision) -> Counter[Why]:
    """How many are named of those that were not in the ring, leaving counted as offline."""
    whys = [each.why for each in decision.absent if each.why in ABSENT]
    return Counter(Why.OFFLINE if why is Why.LEAVING else why for why in whys)


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
                same_rack = in_list = 0
                for partition, decision in reasons:
                    assert decision.unknown == (), (seed, event, decision)
                    assert decision.replicas == tuple(answer.replicas.tolist()[partition])
                    is_repeated = reason.mode not in (Mode.REBALANCE, Mode.DEMOTION, *GIVEN)
                    assert decision.recomputed == is_repeated, (seed, event, decision)
                    if reason.mode not in GIVEN:
                        named = absent(decision)
                        assert named[Why.OFFLINE] == reason.offline
                        assert named[Why.SATURATED] == reason.saturated
                    passed = Counter(
                        each.why for step in decision.replica_steps for each in step.passed
                    )
                    same_rack += passed[Why.SAME_RACK]
                    in_list += passed[Why.IN_LIST]
                assert (same_rack, in_list) == (reason.same_rack, reason.in_list)


def outputs_of(
    events: tuple[Event, ...], assigner: Assigner
) -> tuple[KnownOutputs, dict[str, list[RetainedMap]]]:
    """A cluster as a reader of the topics knows it: state, ring events, maps of living topics."""
    groups: list[RingGroup] = []
    maps: dict[str, list[RetainedMap]] = {}
    for number, event in enumerate(events):
        given = answers(assigner.records(event))
        # As `stream.kafka.outputs` reads them: who has used up a resource stays in the ring.
        ring = tuple(
            answer for answer in given if isinstance(answer, RingEvent) and answer.resource is None
        )
        if ring:
            groups.append(RingGroup(key=str(number), events=ring))
        for answer in given:
            if isinstance(answer, ReplicaMap):
                if answer.replicas is None:
                    maps.pop(answer.topic)
                else:
                    retained = RetainedMap(key=str(number), map=answer)
                    maps.setdefault(answer.topic, []).append(retained)
    [state] = [*assigner.clusters.values()] or [ClusterState(events[0].cluster_id)]
    return KnownOutputs(state=state, groups=tuple(groups), is_whole=True), maps


def test_from_the_outputs_alone_what_is_said_is_what_was_recorded() -> None:
    """The ring is found by its fingerprint; where it is not, that is said, never guessed."""
    known = unknown = named_in_full = 0
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
        outputs, maps = outputs_of(life.events, Assigner(life.default_policy))
        for retained in maps.values():
            for explanation in explain(outputs, retained):
                assert explanation.is_whole
                for decision in explanation.decisions:
                    reason = decision.reason
                    assert reason is not None
                    assert not any("should not be" in each for each in decision.unknown), seed
                    if decision.unknown:
                        assert reason.mode in WITH_MORE_THAN_IDS, (seed, decision)
                        unknown += 1
                        continue
                    known += 1
                    truth = exact[
                        explanation.topic, decision.cause, decision.revision, explanation.partition
                    ]
                    assert decision.step == truth.step
                    true_steps = tuple(
                        replace(true_step, rack=step.rack if step.rack is None else true_step.rack)
                        for step, true_step in zip(
                            decision.replica_steps, truth.replica_steps, strict=True
                        )
                    )
                    assert decision.replica_steps == true_steps, (seed, decision, truth)
                    assert {each.spu_id for each in decision.absent} <= {
                        each.spu_id for each in truth.absent
                    }, (seed, decision, truth)
                    named_in_full += decision.absent_unnamed == 0
                    named = absent(decision)
                    if reason.mode in GIVEN:
                        continue
                    assert named[Why.OFFLINE] <= reason.offline
                    assert named[Why.SATURATED] <= reason.saturated
                    assert (
                        named.total() + decision.absent_unnamed == reason.offline + reason.saturated
                    )
    assert named_in_full > 0.9 * known
    assert known > 5 * unknown  # Racks change often in these lives.


def decided(*events: Event) -> list[tuple[ReplicaMap, list[tuple[int, PlacementDecision]]]]:
    """The maps of these events with their reasons."""
    assigner = ExplainingAssigner(Policy.FLUVIO)
    return [
        (answer, reasons)
        for event in events
        for answer, reasons in assigner.apply(event)
        if isinstance(answer, ReplicaMap)
    ]


def test_who_is_not_in_the_ring_is_named_with_the_cause() -> None:
    """The operator's first question: why not on that one?"""
    events = Events()
    joins = [*events.joins(0, 1, 2, 3), events.join(4, capacity=0), events.leave(1)]
    [(_, [(_, decision)])] = decided(*joins, events.create("t", 1, 3))
    assert decision.replicas == (0, 2, 3)
    assert [(each.spu_id, each.why) for each in decision.absent] == [
        (1, Why.OFFLINE),
        (4, Why.SATURATED),
    ]


def test_an_spu_that_fills_within_the_request_is_named_from_then_on() -> None:
    """It was in the ring at first and took its last replica on the way."""
    events = Events()
    joins = [events.join(0, capacity=1), *events.joins(1, 2)]
    [(_, reasons)] = decided(*joins, events.create("t", 3, 2))
    filled = [
        [each.spu_id for each in decision.absent if each.why is Why.FILLED]
        for _, decision in reasons
    ]
    assert filled == [[], [0], [0]]


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


def test_a_ring_without_its_events_is_not_guessed() -> None:
    """Ring events expire: the record's own numbers are given, and that names are not known."""
    events = Events()
    story: list[Event] = [*events.joins(0, 1, 2), events.leave(2), events.create("t", 2, 2)]
    outputs, maps = outputs_of((*story, events.join(2), events.join(3)), Assigner(Policy.FLUVIO))
    [whole] = explain(outputs, maps["t"], [0])
    [expired] = explain(KnownOutputs(state=outputs.state), maps["t"], [0])
    assert whole.decisions[0].recomputed
    assert [each.spu_id for each in whole.decisions[0].absent] == [2]
    decision = expired.decisions[0]
    assert (decision.recomputed, decision.absent, decision.absent_unnamed) == (False, (), 1)
    assert "the ring of then (2 SPUs" in decision.unknown[0]


def test_an_spu_that_is_gone_for_good_took_its_rack_with_it() -> None:
    """Of three brokers on three racks one was drained: that is why older rings are not known."""
    events = Events()
    joins = events.racks({"a": [0], "b": [1], "c": [2]})
    story = (*joins, events.create("t", 2, 2, policy=Policy.KAFKA))
    leave = events.leave(2, mode=LeaveMode.DECOMMISSION)
    outputs, maps = outputs_of((*story, leave), Assigner(Policy.KAFKA))
    [explained] = explain(outputs, maps["t"], [0])
    [unknown] = explained.decisions[0].unknown
    assert unknown.endswith(
        "; on which racks these SPUs were, which are gone for good, is not known: 2"
    )


def test_a_map_of_an_earlier_release_is_reported_as_far_as_it_goes() -> None:
    """Its maps hold no reason."""
    events = Events()
    outputs, maps = outputs_of(
        (*events.joins(0, 1), events.create("t", 1, 2)), Assigner(Policy.FLUVIO)
    )
    [retained] = maps["t"]
    bare = RetainedMap(key=retained.key, map=replace(retained.map, reason=None))
    [explanation] = explain(outputs, [bare])
    [decision] = explanation.decisions
    assert decision.replicas == (0, 1)
    assert decision.unknown == ("the release that wrote this revision recorded no reason",)
