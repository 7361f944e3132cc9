"""What a topic-create or a topic-grow asks for, whether it may be had, and where it would go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from spu_assigner.core.base.bounded_repr import bounded_repr
from spu_assigner.core.base.chains import Chain, Order
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, TopicCreate, TopicGrow
from spu_assigner.core.base.limits import KAFKA_OWN, PARTITIONS_MAX, REPLICATION_FACTOR_MAX
from spu_assigner.core.base.records import Mode, Reason
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.resources import Need
from spu_assigner.core.constraints.rule_table import binding_constraints
from spu_assigner.core.constraints.work import TooMuchWorkError, Work
from spu_assigner.core.decision.answers import (
    Refusal,
    recorded_ring,
    refuse_number,
    refuse_start,
    unknown_topic,
)
from spu_assigner.core.decision.assignment import (
    Assignment,
    chain_after,
    departed_one_by_one,
    refuse_described,
    refuse_size,
    refuse_taken,
    too_many_looks,
    with_room,
)
from spu_assigner.core.decision.manual_placement import place_manual
from spu_assigner.core.decision.shortage import (
    short_of_room,
    short_on_the_way,
    shortage,
    too_complex,
    unsatisfied,
)
from spu_assigner.core.placement.eligibility import PlacementField, ring_field, ruled_field
from spu_assigner.core.placement.request import ListsRequest, place_lists
from spu_assigner.core.placement.rounds import lists_of_rounds
from spu_assigner.core.policies.cursor import ORDER_OF, SCORING, Cursor
from spu_assigner.core.policies.planner import ShortRingError, TooManyLooksError, place
from spu_assigner.core.policies.striped import (
    free_slots,
    offline_spus,
    place_striped,
    stripes_seed,
)
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.core_weights import first_cores
from spu_assigner.core.state.leading import led_by_others
from spu_assigner.core.state.ring import Ring, ranges_text

# Of the policies that place by a rule: without racks, and over racks where all SPUs have one.
RULES_OF: Final = {
    Policy.FLUVIO: (Mode.ROUND_ROBIN, Mode.RACK_WALK),
    Policy.KAFKA: (Mode.SHIFTED, Mode.RACK_SHIFTED),
    Policy.REDPANDA: (Mode.POINTER, Mode.POINTER),
    Policy.RENDEZVOUS: (Mode.SCORED, Mode.RACK_SCORED),
}
_KRAFT_ORDER = Order.ALTERNATION
_MANUAL = Policy.MANUAL  # a member of an enum's class takes longer to look up


def refuse_create(
    state: ClusterState, event: TopicCreate, policy: Policy, reserved_names: frozenset[str]
) -> Refusal | None:
    """Why a create is refused before it is placed; None: it is not."""
    if policy is not _MANUAL:
        if not 1 <= event.partitions <= PARTITIONS_MAX:
            return refuse_number(
                Code.INVALID_PARTITIONS, "partitions", event.partitions, PARTITIONS_MAX
            )
        if not 1 <= event.replication_factor <= REPLICATION_FACTOR_MAX:
            return refuse_number(
                Code.INVALID_REPLICATION_FACTOR,
                "replication_factor",
                event.replication_factor,
                REPLICATION_FACTOR_MAX,
            )
    if event.start_index is not None or event.shift is not None:
        refusal = refuse_start(event, policy)
        if refusal is not None:
            return refusal
    if (event.replicas is None) is (policy is _MANUAL):
        found = "no replicas" if event.replicas is None else "replicas"
        return Refusal(
            Code.INVALID_REPLICAS,
            f"{found} with policy {policy.value!r}; "
            "name the replica lists with policy 'manual', and only with it",
        )
    topic = event.topic
    if (
        topic in state.topics
        or topic in state.waiting
        or topic in reserved_names
        or topic.startswith(KAFKA_OWN)
        or state.names.colliding(topic) is not None
    ):
        return refuse_described(state, event, policy) or refuse_taken(state, topic, reserved_names)
    return None


def place_create(state: ClusterState, event: TopicCreate, policy: Policy) -> Assignment | Refusal:
    """Place a create, or say why it cannot be; the state is only read.

    `refuse_create` must not refuse it. What it says of resources and constraints is checked here.
    """
    names_demand = event.demand is not None or event.leader_demand is not None
    if names_demand or event.constraints is not None:
        refusal = refuse_described(state, event, policy)
        if refusal is not None:
            return refusal
    if policy is _MANUAL:
        assignment = with_room(state, event, place_manual(state, event))
    else:
        assignment = automatic(state, event, policy)
    if isinstance(assignment, Assignment):
        return refuse_size(assignment.replicas, assignment.cores) or assignment
    return assignment


def decide_grow(state: ClusterState, event: TopicGrow) -> Assignment | Refusal:
    """Grant new partitions behind those that are there, or refuse; the state is only read."""
    topic = state.topics.get(event.topic)
    if topic is None:
        return unknown_topic(state, event.topic)
    if topic.policy is Policy.MANUAL:
        hint = "delete it and create it again with all its lists"
        return Refusal(
            Code.MANUAL_TOPIC,
            f"topic {event.topic!r} was placed by hand, so there is no rule to grow it by; {hint}",
        )
    lists = topic.replicas.lists()
    if not len(lists) < event.partitions <= PARTITIONS_MAX:
        return Refusal(
            Code.INVALID_PARTITIONS,
            f"partitions is {bounded_repr(event.partitions)}; expected a new total, more than the "
            f"{len(lists)} there are and at most {PARTITIONS_MAX}",
        )
    request = TopicCreate(
        event_id=event.event_id,
        cluster_id=event.cluster_id,
        topic=event.topic,
        partitions=event.partitions - len(lists),
        replication_factor=topic.replication_factor,
        policy=topic.policy,
        ignore_rack=topic.ignore_rack,
        demand=None if topic.need is None else dict(topic.need.demand),
        leader_demand=None if topic.need is None else dict(topic.need.leader_demand),
        constraints=topic.constraints,
    )
    assignment = automatic(state, request, topic.policy, first_partition=len(lists))
    if isinstance(assignment, Refusal):
        return assignment
    cores = None
    if topic.cores is not None and assignment.cores is not None:
        cores = topic.cores.lists().followed_by(assignment.cores)
    grown = replace(
        assignment,
        replicas=lists.followed_by(assignment.replicas),
        cores=cores,
        reason=replace(assignment.reason, first_partition=len(lists)),
    )
    return refuse_size(grown.replicas, grown.cores, topic.wanted_lengths) or grown


def automatic(
    state: ClusterState,
    event: TopicCreate,
    policy: Policy,
    *,
    first_partition: int = 0,
    retry: Work | None = None,
) -> Assignment | Refusal:
    """Place a request by a rule, or say why it cannot be.

    Args:
        first_partition: what the topic has already, of a request that grows it.
        retry: of a create that is tried again: counts its work, and rules that conflict are not
            looked for.
    """
    if policy is Policy.BALANCED:
        return _balanced(state, event, retry)
    if policy is Policy.KRAFT:
        assignment = _kraft(state, event)
    else:
        assignment = _by_rule(state, event, policy, first_partition)
    if event.demand is None and event.leader_demand is None:
        return assignment
    return with_room(state, event, assignment)


def _by_rule(
    state: ClusterState, event: TopicCreate, policy: Policy, first_partition: int
) -> Assignment | Refusal:
    rule = rule_of(state, policy, ignore_rack=event.ignore_rack)
    if rule is None:
        missing = next(
            spu for _, spu in sorted(state.spus.items()) if spu.online and spu.rack is None
        )
        return Refusal(
            Code.RACKS_INCOMPLETE,
            f"{state.racked_count} of {state.online_count} online SPUs have a rack, "
            f"SPU {missing.spu_id} has none; label all or none, or set ignore_rack",
        )
    ring = state.ring
    if event.replication_factor > ring.size:
        return shortage(state, event, ring.size)
    order = ORDER_OF[rule]
    has_chain = rule not in SCORING
    index = ring.index(order, state.chains[order]) if has_chain else first_partition
    cursor = Cursor(ring, rule, index, event.topic)
    if event.start_index is not None:
        cursor.start_at(event.start_index, event.shift)
    nobody_fills = state.ledger.free_floor(event.partitions) > event.partitions
    try:
        lists, departed = place(
            cursor,
            partitions=event.partitions,
            replicas=event.replication_factor,
            free=None if nobody_fills else state.ledger.free(ring.ids),
        )
    except ShortRingError as short:
        return short_on_the_way(short)
    except TooManyLooksError as error:
        return too_many_looks(error)
    replicas = led_by_others(state, lists) if state.demoted else lists
    start = index if has_chain and event.start_index is None else event.start_index
    return Assignment(
        policy=policy,
        replicas=replicas,
        cores=first_cores(state.core_weights, replicas) if policy is Policy.REDPANDA else None,
        order=order if has_chain else None,
        chain=cursor.chain() if has_chain and event.start_index is None else None,
        departed=departed,
        reason=Reason(
            mode=rule,
            start_index=start,
            shift=event.shift,
            is_named=event.start_index is not None,
            ring=recorded_ring(state, order, is_weighted=not has_chain),
            filled=ranges_text(sorted(spu_id for gone in departed for spu_id in gone)),
        ),
    )


def _balanced(state: ClusterState, event: TopicCreate, work: Work | None) -> Assignment | Refusal:
    """Place by the order of preference, under the rules of the topic. The chain rises by the number
    of partitions; SPUs outside the ring that the topic tolerates do not move it."""
    ring = state.ring
    constraints = binding_constraints(state, event.topic, event.constraints)
    if constraints is not None:
        field = ruled_field(state, constraints, ignore_rack=event.ignore_rack)
    elif event.replication_factor > ring.size:
        return shortage(state, event, ring.size)
    else:
        field = ring_field(ring, ignore_rack=event.ignore_rack)
    index = ring.index(Order.BALANCED, state.chains[Order.BALANCED]) if ring.size else None
    need = Need.of(event.demand, event.leader_demand)
    asked = ListsRequest(
        event.partitions, event.replication_factor, need, index or 0, event.ignore_rack
    )
    topic = state.topics.get(event.topic)
    if topic is not None:
        asked = asked.of_topic(topic)
    try:
        mode, lists = _placed(state, field, asked, work or Work())
    except TooMuchWorkError as error:
        return too_complex(event, error.given)
    if lists is None and work is not None:
        return Refusal(Code.INSUFFICIENT_CAPACITY, "there is still no room")
    if lists is None:
        if constraints is not None:
            return unsatisfied(state, event, constraints)
        return short_of_room(state, event, field.id_list, need)
    departed: tuple[tuple[int, ...], ...] = ()
    if state.ledger.free_floor(event.partitions) <= event.partitions:
        ids, counts = np.unique(lists.matrix, return_counts=True)
        is_full = (counts == state.ledger.free(ids)) & np.isin(ids, ring.ids)
        departed = departed_one_by_one(lists.matrix, tuple(ids[is_full].tolist()))
    chain = None
    if index is not None:
        chain = chain_after(ring, Order.BALANCED, index, lists.matrix, departed)
    return Assignment(
        policy=Policy.BALANCED,
        replicas=lists,
        order=Order.BALANCED,
        chain=chain,
        departed=departed,
        reason=_reason(state, mode, Order.BALANCED, index),
    )


def _placed(
    state: ClusterState, field: PlacementField, asked: ListsRequest, work: Work
) -> tuple[Mode, ReplicaLists | None]:
    """The lists of a request, and how they were found; None: they do not fit."""
    if field.table is None and asked.need is None:
        lists = lists_of_rounds(state, field, asked)
        if lists is not None:
            return Mode.BALANCED_ROUNDS, lists
    matrix = place_lists(state, field, asked, work)
    mode = Mode.BALANCED if field.table is None else Mode.CONSTRAINED
    return mode, None if matrix is None else ReplicaLists(matrix)


def _kraft(state: ClusterState, event: TopicCreate) -> Assignment | Refusal:
    """Place as Kafka 4 would. The chain rises by the number of partitions."""
    ring = state.ring
    offline = offline_spus(state, ignore_rack=event.ignore_rack)
    if ring.size == 0 or event.replication_factor > ring.size + len(offline):
        return shortage(state, event, ring.size, offline=len(offline))
    index = ring.index(_KRAFT_ORDER, state.chains[_KRAFT_ORDER])
    try:
        matrix, departed, filled = place_striped(
            ring.racks_of_members(ignore_rack=event.ignore_rack),
            offline,
            seed=stripes_seed(event.cluster_id, event.topic, index),
            partitions=event.partitions,
            replicas=event.replication_factor,
            free=free_slots(state, offline, event.partitions),
        )
    except ShortRingError as short:
        return short_on_the_way(short)
    except TooManyLooksError as error:
        return too_many_looks(error)
    return Assignment(
        policy=Policy.KRAFT,
        replicas=led_by_others(state, ReplicaLists(matrix)),
        order=_KRAFT_ORDER,
        chain=chain_after(ring, _KRAFT_ORDER, index, matrix, departed),
        departed=departed,
        reason=replace(
            _reason(state, Mode.STRIPED, _KRAFT_ORDER, index),
            ring=recorded_ring(state, _KRAFT_ORDER, fenced=offline),
            filled=ranges_text(filled),
        ),
    )


def _reason(state: ClusterState, mode: Mode, order: Order, index: int | None) -> Reason:
    return Reason(
        mode=mode,
        start_index=index,
        ring=recorded_ring(state, order),
    )


def rule_of(state: ClusterState, policy: Policy, *, ignore_rack: bool) -> Mode | None:
    """How the policy places on this cluster.

    None: some online SPUs have racks and some have not. (For `rendezvous` those count as one rack.)
    """
    unracked, racked = RULES_OF[policy]
    if unracked is racked or ignore_rack or state.racked_count == 0:
        return unracked
    is_whole = racked in SCORING or state.racked_count == state.online_count
    return racked if is_whole else None


def shown_index(
    state: ClusterState,
    policy: Policy,
    ring: Ring,
    chains: Mapping[Order, Chain],
    *,
    ignore_rack: bool,
) -> int | None:
    """The index that a record of a living topic shows: of its policy's order; None: it has none.

    While racks are incomplete that is the order by id.
    """
    if policy in (Policy.MANUAL, Policy.RENDEZVOUS):
        return None
    if policy is Policy.BALANCED:
        order = Order.BALANCED
    elif policy is Policy.KRAFT:
        order = _KRAFT_ORDER
    else:
        rule = rule_of(state, policy, ignore_rack=ignore_rack)
        order = Order.ID if rule is None else ORDER_OF[rule]
    return ring.index(order, chains[order])
