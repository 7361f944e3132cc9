"""Where a create or a grow places its topic, by policy or by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from spu_assigner.core.base.errors import Code, Rejection, bounded_repr
from spu_assigner.core.base.events import Policy, TopicCreate, TopicGrow
from spu_assigner.core.base.limits import PARTITIONS_MAX
from spu_assigner.core.base.records import Chain, Mode, Order, Reason, RecordedRing, Waiting
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists
from spu_assigner.core.base.resources import Need
from spu_assigner.core.base.structs import FrozenStruct
from spu_assigner.core.constraints.rule_table import binding_constraints
from spu_assigner.core.constraints.work import TooMuchWorkError, Work
from spu_assigner.core.decision import shortage
from spu_assigner.core.decision.answers import known_topic
from spu_assigner.core.decision.checks import check_room, spu_faults
from spu_assigner.core.placement.eligibility import ring_field, ruled_field
from spu_assigner.core.placement.request import ListsRequest, place_lists
from spu_assigner.core.placement.rounds import lists_of_rounds
from spu_assigner.core.policies.cursor import RULES, RULES_OF, Cursor, place
from spu_assigner.core.policies.manual_lists import read_lists
from spu_assigner.core.policies.striped import free_slots, offline_spus, place_striped, stripes_seed
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.core_weights import cores_of
from spu_assigner.core.state.leading import led_by_others
from spu_assigner.core.state.ring import Ring, members_text, ranges_text
from spu_assigner.core.state.topic import Topic

KRAFT_ORDER: Final = Order.ALTERNATION


class Assignment(FrozenStruct, frozen=True, kw_only=True):
    """Where a topic goes."""

    policy: Policy
    replicas: ReplicaLists  # of a topic that grows, with those that it has
    cores: ReplicaLists | None = None
    order: Order | None = None  # whose chain index the record shows
    chain: Chain | None = None  # of that order after the request; None: it stays
    filled: tuple[int, ...] = ()  # SPUs that it saturates, by id
    reason: Reason


def place_grow(state: ClusterState, event: TopicGrow) -> Assignment:
    """Place new partitions behind those that are there."""
    topic = known_topic(state, event.topic)
    if topic.policy is Policy.MANUAL:
        raise Rejection(
            Code.MANUAL_TOPIC,
            f"topic {event.topic!r} was placed by hand, so there is no rule to grow it by; "
            "delete it and create it again with all its lists",
        )
    lists = topic.replicas.lists()
    first = len(lists)
    if not first < event.partitions <= PARTITIONS_MAX:
        raise Rejection(
            Code.INVALID_PARTITIONS,
            f"partitions is {bounded_repr(event.partitions)}; expected a new total, more than the "
            f"{first} there are and at most {PARTITIONS_MAX}",
        )
    request = create_of(topic, event, event.event_id, event.partitions - first)
    assignment = automatic(state, request, topic.policy, first_partition=first)
    cores = None
    if topic.cores is not None and assignment.cores is not None:
        cores = topic.cores.lists().followed_by(assignment.cores)
    return replace(
        assignment,
        replicas=lists.followed_by(assignment.replicas),
        cores=cores,
        reason=replace(assignment.reason, first_partition=first),
    )


def create_of(
    kept: Topic | Waiting, named: TopicGrow | Waiting, event_id: str, partitions: int
) -> TopicCreate:
    """The create of so many partitions of a topic that is there, or waits."""
    need = kept.need
    return TopicCreate(
        event_id=event_id,
        cluster_id=named.cluster_id,
        topic=named.topic,
        partitions=partitions,
        replication_factor=kept.replication_factor,
        policy=kept.policy,
        ignore_rack=kept.ignore_rack,
        demand=None if need is None else dict(need.demand),
        leader_demand=None if need is None else dict(need.leader_demand),
        constraints=kept.constraints,
    )


def automatic(
    state: ClusterState,
    event: TopicCreate,
    policy: Policy,
    *,
    first_partition: int = 0,
    retry: Work | None = None,
) -> Assignment:
    """Place a request by a rule.

    Args:
        first_partition: what the topic has already, of a request that grows it.
        retry: of a create that is tried again: counts its work, and rules that conflict are not
            looked for.
    """
    try:
        if policy is Policy.BALANCED:
            return _balanced(state, event, retry)
        if policy is Policy.KRAFT:
            assignment = _kraft(state, event)
        else:
            assignment = _by_rule(state, event, policy, first_partition)
    except TooMuchWorkError as error:
        raise shortage.too_complex(event, error.given) from None
    if event.demand is not None or event.leader_demand is not None:
        check_room(state, event, assignment.replicas)
    return assignment


def _by_rule(
    state: ClusterState, event: TopicCreate, policy: Policy, first_partition: int
) -> Assignment:
    rule = rule_of(state, policy, ignore_rack=event.ignore_rack)
    if rule is None:
        raise shortage.incomplete_racks(state)
    ring = state.ring
    if event.replication_factor > ring.size:
        raise shortage.short_ring(state, event)
    order, has_chain = RULES[rule].order, not RULES[rule].is_scored
    index = ring.index(order, state.chains[order]) if has_chain else first_partition
    has_room = state.ledger.free_floor(event.partitions) > event.partitions  # None can fill.
    cursor, is_named = Cursor(ring, rule, index, event.topic), event.start_index is not None
    if event.start_index is not None:
        cursor.start_at(event.start_index, event.shift)
    lists = place(
        cursor,
        partitions=event.partitions,
        replicas=event.replication_factor,
        free=None if has_room else state.ledger.free(ring.ids),
    )
    replicas = led_by_others(state, lists) if state.demoted else lists
    filled = () if has_room else filled_by(state, lists)
    goes_on = has_chain and not is_named
    return Assignment(
        policy=policy,
        replicas=replicas,
        cores=cores_of(state.spus, None, replicas) if policy is Policy.REDPANDA else None,
        order=order if has_chain else None,
        chain=cursor.chain() if goes_on else None,
        filled=filled,
        reason=Reason(
            mode=rule,
            start_index=index if goes_on else event.start_index,
            shift=event.shift,
            is_named=is_named,
            ring=recorded_ring(state, order, is_weighted=not has_chain),
            filled=ranges_text(filled) if filled else "",
        ),
    )


def _balanced(state: ClusterState, event: TopicCreate, work: Work | None) -> Assignment:
    """Place by preference. The chain rises by the partitions, whatever is outside the ring."""
    ring = state.ring
    constraints = binding_constraints(state, event.topic, event.constraints)
    if constraints is not None:
        field = ruled_field(state, event.topic, constraints, ignore_rack=event.ignore_rack)
    elif event.replication_factor > ring.size:
        raise shortage.short_ring(state, event)
    else:
        field = ring_field(state, ring, ignore_rack=event.ignore_rack)
    index = ring.index(Order.BALANCED, state.chains[Order.BALANCED]) if ring.size else None
    need = Need.of(event.demand, event.leader_demand)
    asked = ListsRequest(
        event.partitions, event.replication_factor, need, index or 0, event.ignore_rack
    )
    topic = state.topics.get(event.topic)
    if topic is not None:
        asked = asked.of_topic(topic)
    mode = Mode.CONSTRAINED if field.is_ruled else Mode.BALANCED
    lists = None
    if need is None and not field.is_ruled:
        lists = lists_of_rounds(state, asked)
        mode = mode if lists is None else Mode.BALANCED_ROUNDS
    if lists is None:
        lists = place_lists(state, field, asked, work or Work())
    if lists is None:
        if work is not None:
            raise Rejection(Code.INSUFFICIENT_CAPACITY, "there is still no room")
        if constraints is not None:
            raise shortage.unsatisfied(state, event, constraints)
        raise shortage.short_of_room(state, event, field.id_list, need)
    filled, after = filled_by(state, lists), None
    if index is not None:
        after = chain_after(ring, Order.BALANCED, index, lists.matrix, filled)
    return Assignment(
        policy=Policy.BALANCED,
        replicas=lists,
        order=Order.BALANCED,
        chain=after,
        filled=filled,
        reason=Reason(mode=mode, start_index=index, ring=recorded_ring(state, Order.BALANCED)),
    )


def _kraft(state: ClusterState, event: TopicCreate) -> Assignment:
    """Place as Kafka 4 would. The chain rises by the number of partitions."""
    ring = state.ring
    offline = offline_spus(state, ignore_rack=event.ignore_rack)
    if ring.size == 0 or event.replication_factor > ring.size + len(offline):
        raise shortage.short_ring(state, event, offline=len(offline))
    index = ring.index(KRAFT_ORDER, state.chains[KRAFT_ORDER])
    matrix, full = place_striped(
        ring.racks_of_members(ignore_rack=event.ignore_rack),
        offline,
        seed=stripes_seed(event.cluster_id, event.topic, index),
        partitions=event.partitions,
        replicas=event.replication_factor,
        free=free_slots(state, offline, event.partitions),
    )
    filled = tuple(spu_id for spu_id in full if spu_id in ring)
    return Assignment(
        policy=Policy.KRAFT,
        replicas=led_by_others(state, ReplicaLists(matrix)),
        order=KRAFT_ORDER,
        chain=chain_after(ring, KRAFT_ORDER, index, matrix, filled),
        filled=filled,
        reason=Reason(
            mode=Mode.STRIPED,
            start_index=index,
            ring=recorded_ring(state, KRAFT_ORDER, fenced=offline),
            filled=ranges_text(full),
        ),
    )


def place_manual(state: ClusterState, event: TopicCreate) -> Assignment:
    """The lists of a request as they are."""
    lists = read_lists(event.replicas)
    rows = enumerate(lists.matrix.tolist())
    for fault in spu_faults(state, ((at, list(enumerate(row))) for at, row in rows)):
        raise fault
    check_room(state, event, lists)
    filled, reason = filled_by(state, lists), Reason(mode=Mode.LISTS)
    return Assignment(policy=Policy.MANUAL, replicas=lists, filled=filled, reason=reason)


def rule_of(state: ClusterState, policy: Policy, *, ignore_rack: bool) -> Mode | None:
    """How the policy places on this cluster.

    None: some online SPUs have racks and some have not. (For `rendezvous` those count as one rack.)
    """
    unracked, racked = RULES_OF[policy][0], RULES_OF[policy][-1]
    if unracked is racked or ignore_rack or state.racked_count == 0:
        return unracked
    is_whole = RULES[racked].is_scored or state.racked_count == state.online_count
    return racked if is_whole else None


def filled_by(state: ClusterState, lists: ReplicaLists) -> tuple[int, ...]:
    """The members of the ring that new lists leave no free slot, by id."""
    if state.ledger.free_floor(len(lists)) > len(lists):
        return ()
    ids, counts = np.unique(lists.matrix, return_counts=True)
    is_full = (counts == state.ledger.free(ids)) & np.isin(ids, state.ring.ids)
    return tuple(ids[is_full].tolist())


def chain_after(
    ring: Ring, order: Order, index: int, matrix: IdMatrix, filled: Sequence[int]
) -> Chain:
    """The chain after a request: one further for each partition, re-based where the ring lost
    members on the way, those that the request has filled."""
    last = {spu_id: int(np.flatnonzero((matrix == spu_id).any(axis=1))[-1]) for spu_id in filled}
    done = 0
    for row in sorted({*last.values()}):
        gone = [spu_id for spu_id in filled if last[spu_id] == row]
        chain = ring.chain_at(order, index + row + 1 - done)
        chain = ring.chain_without(order, chain, gone)
        ring, done = ring.without(gone), row + 1
        if ring.size == 0:
            return chain
        index = ring.index(order, chain)
    return ring.chain_at(order, index + len(matrix) - done)


def recorded_ring(
    state: ClusterState,
    order: Order,
    *,
    is_weighted: bool = False,
    fenced: Mapping[int, str] | None = None,
) -> RecordedRing:
    """What a reason says of the ring; made once for each ring and order.

    Args:
        state: before the step.
        order: that the rule read.
        is_weighted: whether it read capacities too.
        fenced: the offline SPUs that `kraft` read too, each with its rack.
    """
    ring = state.ring
    key = RecordedRing, order, is_weighted
    known: RecordedRing | None = ring.kept.get(key)
    if known is None:
        outside = map(ranges_text, state.ledger.outside_ring())
        parts = dict(zip(("offline", "cordoned", "saturated"), outside, strict=True))
        known = RecordedRing(members=ring.text(order, is_weighted=is_weighted), **parts)
        ring.kept[key] = known
    if not fenced:
        return known
    racks = [*ring.racks_of_members().values(), *fenced.values()]
    number_of = {rack: number for number, rack in enumerate(sorted(set(racks)))}
    numbers = np.array([number_of[rack] for rack in racks], dtype=np.int32)
    return replace(
        known,
        members=members_text(ring.ids, numbers[: ring.size]),
        fenced=members_text(np.array([*fenced], dtype=np.int32), numbers[ring.size :]),
    )
