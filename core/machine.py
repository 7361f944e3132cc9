"""The decision: `decide` reads the state and an event and returns records, `step` applies them too.

`decide` writes nothing, so an event that is refused, or raises, leaves the state as it was. The
records of one event come in a fixed order: the map, the status, ring events by SPU id, then what
the state needs to know besides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from spu_assigner.core import placement
from spu_assigner.core.errors import Code
from spu_assigner.core.events import (
    ClusterRebalance,
    Event,
    LeaveMode,
    Policy,
    SpuId,
    SpuJoined,
    SpuLeft,
    TopicCreate,
    TopicDelete,
    TopicGrow,
)
from spu_assigner.core.limits import (
    CAPACITY_MAX,
    CORES_MAX,
    RACK_LENGTH_MAX,
    SPU_ID_MAX,
    SPUS_MAX,
    default_capacity,
)
from spu_assigner.core.records import (
    Chain,
    ChainsChanged,
    EventSeen,
    Order,
    Record,
    ReplicaMap,
    RingChange,
    RingEvent,
    SpuChanged,
    Status,
    TopicStatus,
)
from spu_assigner.core.replicas import IdMatrix
from spu_assigner.core.requests import Refusal, decide_create, order_of_policy
from spu_assigner.core.ring import Ring
from spu_assigner.core.state import ClusterState, event_hash, evolve, weights_without


def step(state: ClusterState, event: Event, *, default_policy: Policy) -> tuple[Record, ...]:
    """Decide and apply. An event that was seen before gives no records and changes nothing."""
    records = decide(state, event, default_policy=default_policy)
    for record in records:
        evolve(state, record)
    return records


def decide(state: ClusterState, event: Event, *, default_policy: Policy) -> tuple[Record, ...]:
    """What follows from an event, `EventSeen` last."""
    hashed = event_hash(event.event_id)
    if hashed in state.memory:
        return ()
    match event:
        case TopicCreate():
            topic = state.topics.get(event.topic)
            if topic is not None and topic.cause_hash == hashed:
                return ()  # It made this topic; a living topic's own event is never forgotten.
            records = _create(state, event, default_policy)
        case TopicDelete():
            records = _delete(state, event)
        case SpuJoined():
            records = _join(state, event)
        case SpuLeft():
            records = _leave(state, event)
        case TopicGrow():
            refusal = Refusal(
                Code.NOT_SUPPORTED, "growing a topic is not supported by this release"
            )
            records = [_rejected(state, event.topic, refusal, event.event_id)]
        case ClusterRebalance():
            refusal = Refusal(Code.NOT_SUPPORTED, "rebalancing is not supported by this release")
            records = [_rejected(state, "", refusal, event.event_id)]
        case _:
            assert_never(event)
    records.append(EventSeen(cluster_id=state.cluster_id, event_hash=hashed))
    return tuple(records)


def _create(state: ClusterState, event: TopicCreate, default_policy: Policy) -> list[Record]:
    grant = decide_create(state, event, default_policy)
    if isinstance(grant, Refusal):
        return [_rejected(state, event.topic, grant, event.event_id)]
    if event.validate_only:
        return [
            TopicStatus(
                cluster_id=state.cluster_id,
                topic=event.topic,
                status=Status.VALIDATED,
                code=None,
                message=None,
                replicas=grant.replicas,
                cause=event.event_id,
            )
        ]
    ring, chains = state.ring, dict(state.chains)
    for gone in grant.departed:
        ring, chains = _ring_without(ring, chains, gone)
    if grant.order is not None and grant.chain is not None:
        chains[grant.order] = grant.chain
    records: list[Record] = [
        ReplicaMap(
            cluster_id=state.cluster_id,
            topic=event.topic,
            revision=1,
            policy=grant.policy,
            replicas=grant.replicas,
            cores=grant.cores,
            chain_index=None
            if grant.order is None
            else ring.index(grant.order, chains[grant.order]),
            cause=event.event_id,
        ),
        TopicStatus(
            cluster_id=state.cluster_id,
            topic=event.topic,
            status=Status.ASSIGNED,
            code=None,
            message=None,
            replicas=None,
            cause=event.event_id,
        ),
    ]
    for spu_id in sorted(spu_id for gone in grant.departed for spu_id in gone):
        records.append(_ring_event(state, spu_id, RingChange.SATURATED, ring.size, event.event_id))
    records += _chains_changed(state, chains)
    return records


def _delete(state: ClusterState, event: TopicDelete) -> list[Record]:
    topic = state.topics.get(event.topic)
    if topic is None:
        refusal = Refusal(
            Code.TOPIC_UNKNOWN, f"no topic {event.topic!r} in cluster {state.cluster_id!r}"
        )
        return [_rejected(state, event.topic, refusal, event.event_id)]
    matrix = topic.replicas.matrix()
    held: set[int] = set(matrix.ravel().tolist())
    full = state.ledger.saturated_ids()
    restored = [
        spu_id for spu_id in full if spu_id in held and _slots_after(state, spu_id, matrix) > 0
    ]
    weights = weights_without(state.core_weights, topic)
    changed: dict[SpuId, SpuChanged] = {}
    registration = state.registration_next
    for host in map(SpuId, restored):
        after = tuple(weights.get(host, state.core_weights[host]))
        changed[host] = replace(state.spus[host], registration=registration, core_weights=after)
        registration += 1
    ring = _ring_with(state, changed, restored)
    chains = _entered(ring, state.chains)
    order = order_of_policy(state, topic.policy)
    records: list[Record] = [
        ReplicaMap(
            cluster_id=state.cluster_id,
            topic=event.topic,
            revision=topic.revision + 1,
            policy=topic.policy,
            replicas=None,
            cores=None,
            chain_index=None if order is None else ring.index(order, chains[order]),
            cause=event.event_id,
        ),
        TopicStatus(
            cluster_id=state.cluster_id,
            topic=event.topic,
            status=Status.DELETED,
            code=None,
            message=None,
            replicas=None,
            cause=event.event_id,
        ),
    ]
    for spu_id in restored:
        records.append(_ring_event(state, spu_id, RingChange.RESTORED, ring.size, event.event_id))
    records += changed.values()
    records += _chains_changed(state, chains, registration)
    return records


def _join(state: ClusterState, event: SpuJoined) -> list[Record]:
    refusal = _refuse_join(state, event)
    if refusal is not None:
        return [_ignored(state, event.spu_id, refusal, event.event_id)]
    spu_id = SpuId(event.spu_id)
    before = state.spus.get(spu_id)
    weights = (
        placement.initial_weights(event.cores)
        if before is None
        else placement.shrink_weights(state.core_weights[spu_id], event.cores)
    )
    was_in_ring = before is not None and spu_id in state.ring
    was_full = before is not None and before.online and not was_in_ring
    capacity = default_capacity(event.cores) if event.capacity is None else event.capacity
    count = 0 if before is None else state.ledger.count(spu_id)
    full = count >= capacity
    registration = state.registration_next
    if before is not None and before.online and (was_in_ring or full):
        registration = (
            before.registration
        )  # An update keeps the place; a return, or a freed slot, goes to the tail.
    spu = SpuChanged(
        cluster_id=state.cluster_id,
        spu_id=spu_id,
        online=True,
        rack=event.rack,
        cores=event.cores,
        capacity=capacity,
        labels=tuple(sorted((event.labels or {}).items())),
        registration=registration,
        core_weights=tuple(weights),
    )
    ring, chains = state.ring, dict(state.chains)
    if was_in_ring and full:
        ring, chains = _ring_without(ring, chains, (spu_id,))
    entering = [] if full or was_in_ring else [spu_id]
    ring = _ring_with(state, {spu_id: spu}, entering, ring)
    chains = _entered(ring, chains)
    is_update = before is not None and before.online
    changes = [RingChange.UPDATED if is_update else RingChange.JOINED]
    if full and not was_full:
        changes.append(RingChange.SATURATED)
    elif was_full and not full:
        changes.append(RingChange.RESTORED)
    records: list[Record] = [
        _ring_event(state, spu_id, change, ring.size, event.event_id) for change in changes
    ]
    records.append(spu)
    records += _chains_changed(state, chains, max(state.registration_next, registration + 1))
    return records


def _refuse_join(state: ClusterState, event: SpuJoined) -> Refusal | None:
    if not 0 <= event.spu_id <= SPU_ID_MAX:
        return Refusal(Code.INVALID_SPU_ID, f"spu_id is {event.spu_id}; expected 0 to {SPU_ID_MAX}")
    if not 1 <= event.cores <= CORES_MAX:
        return Refusal(Code.INVALID_CORES, f"cores is {event.cores}; expected 1 to {CORES_MAX}")
    if event.capacity is not None and not 0 <= event.capacity <= CAPACITY_MAX:
        return Refusal(
            Code.INVALID_CAPACITY, f"capacity is {event.capacity}; expected 0 to {CAPACITY_MAX}"
        )
    if event.rack is not None and not 1 <= len(event.rack) <= RACK_LENGTH_MAX:
        found = f"rack has {len(event.rack)} characters"
        return Refusal(
            Code.INVALID_RACK, f"{found}; expected 1 to {RACK_LENGTH_MAX}, or none for no rack"
        )
    if SpuId(event.spu_id) not in state.spus and len(state.spus) >= SPUS_MAX:
        return Refusal(Code.TOO_MANY_SPUS, f"the cluster has {SPUS_MAX} SPUs, which is the limit")
    return None


def _leave(state: ClusterState, event: SpuLeft) -> list[Record]:
    spu_id = SpuId(event.spu_id)
    spu = state.spus.get(spu_id)
    if spu is None:
        refusal = Refusal(
            Code.SPU_UNKNOWN, f"no SPU {event.spu_id} in cluster {state.cluster_id!r}"
        )
        return [_ignored(state, event.spu_id, refusal, event.event_id)]
    if event.mode is LeaveMode.DECOMMISSION:
        refusal = Refusal(
            Code.NOT_SUPPORTED, "decommissioning an SPU is not supported by this release"
        )
        return [_ignored(state, event.spu_id, refusal, event.event_id)]
    ring, chains = state.ring, dict(state.chains)
    if spu_id in ring:
        ring, chains = _ring_without(ring, chains, (spu_id,))
    records: list[Record] = [_ring_event(state, spu_id, RingChange.LEFT, ring.size, event.event_id)]
    records.append(replace(spu, online=False, core_weights=tuple(state.core_weights[spu_id])))
    records += _chains_changed(state, chains)
    return records


def _ring_without(
    ring: Ring, chains: Mapping[Order, Chain], gone: tuple[int, ...]
) -> tuple[Ring, dict[Order, Chain]]:
    """The ring and its chains after some members leave together."""
    return ring.without(gone), {
        order: ring.chain_without(order, chain, gone) for order, chain in chains.items()
    }


def _ring_with(
    state: ClusterState,
    changed: Mapping[SpuId, SpuChanged],
    entering: Iterable[int],
    ring: Ring | None = None,
) -> Ring:
    """The ring after SPUs have entered it or were described anew.

    Nothing has to be made if none was.
    """
    ring = state.ring if ring is None else ring
    return ring.with_members(entering, {**state.spus, **changed}) if changed else ring


def _slots_after(state: ClusterState, spu_id: int, matrix: IdMatrix) -> int:
    """Free slots of an SPU once a map is gone."""
    return (
        state.spus[SpuId(spu_id)].capacity
        - state.ledger.count(spu_id)
        + int((matrix == spu_id).sum())
    )


def _entered(ring: Ring, chains: Mapping[Order, Chain]) -> dict[Order, Chain]:
    return {order: ring.chain_entered(order, chain) for order, chain in chains.items()}


def _chains_changed(
    state: ClusterState, chains: Mapping[Order, Chain], registration_next: int | None = None
) -> list[Record]:
    before = state.chains
    changed = tuple([pair for pair in chains.items() if pair[1] is not before[pair[0]]])
    if registration_next is None:
        registration_next = state.registration_next
    if not changed and registration_next == state.registration_next:
        return []
    return [
        ChainsChanged(
            cluster_id=state.cluster_id, chains=changed, registration_next=registration_next
        )
    ]


def _rejected(state: ClusterState, topic: str, refusal: Refusal, cause: str) -> TopicStatus:
    return TopicStatus(
        cluster_id=state.cluster_id,
        topic=topic,
        status=Status.REJECTED,
        code=refusal.code,
        message=refusal.message,
        replicas=None,
        cause=cause,
    )


def _ignored(state: ClusterState, spu_id: int, refusal: Refusal, cause: str) -> RingEvent:
    return RingEvent(
        cluster_id=state.cluster_id,
        spu_id=spu_id,
        change=RingChange.IGNORED,
        code=refusal.code,
        message=refusal.message,
        ring_size=state.ring.size,
        cause=cause,
    )


def _ring_event(
    state: ClusterState, spu_id: int, change: RingChange, size: int, cause: str
) -> RingEvent:
    return RingEvent(
        cluster_id=state.cluster_id,
        spu_id=spu_id,
        change=change,
        code=None,
        message=None,
        ring_size=size,
        cause=cause,
    )
