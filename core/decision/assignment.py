"""What is given to a request, and what any of it must hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from spu_assigner.core.base.chains import Chain, Order
from spu_assigner.core.base.constraints import NO_CONSTRAINTS, Constraints, constraints_fault
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, SpuId, TopicCreate
from spu_assigner.core.base.limits import (
    AMOUNT_MAX,
    KAFKA_OWN,
    MAP_SIZE_MAX,
    PLACING_LOOKS_MAX,
    RESOURCES_MAX,
)
from spu_assigner.core.base.records import Reason
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists, tally
from spu_assigner.core.base.resources import Need, amounts_fault
from spu_assigner.core.base.structs import FrozenStruct
from spu_assigner.core.decision.answers import Refusal, refuse_name
from spu_assigner.core.policies.planner import TooManyLooksError
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import Ring

ID_SIZE_MAX: Final = 5  # bytes of an id on the wire
_VARINT_STEPS: Final = np.array([64, 8_192, 2**20, 2**27])  # from here on an id takes a byte more


class Assignment(FrozenStruct, frozen=True, kw_only=True):
    """Where a topic goes."""

    policy: Policy
    replicas: ReplicaLists
    cores: ReplicaLists | None = None
    order: Order | None = None  # whose chain index the record shows
    chain: Chain | None = None  # of that order after the request; None: it stays
    departed: tuple[tuple[int, ...], ...] = ()  # SPUs that it saturates, in groups that leave
    reason: Reason


def refuse_size(
    replicas: ReplicaLists, cores: ReplicaLists | None, wanted_lengths: bytes | None = None
) -> Refusal | None:
    """Why a map cannot be sent: it is too large for a message."""
    size = len(wanted_lengths or b"")
    for lists in (replicas, cores):
        if lists is not None:
            partitions, width = lists.matrix.shape
            bound = partitions * (2 + width * ID_SIZE_MAX) + 8
            size += bound if bound <= MAP_SIZE_MAX else _wire_size(lists.matrix)
    if size <= MAP_SIZE_MAX:
        return None
    hint = "ask for fewer partitions or replicas"
    return Refusal(
        Code.MAP_TOO_LARGE, f"the map takes {size} bytes, the limit is {MAP_SIZE_MAX}; {hint}"
    )


def departed_one_by_one(matrix: IdMatrix, full: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Groups of SPUs that a map fills with the same partition, in the map's order."""
    if not full:
        return ()
    last_row = {spu_id: int(np.flatnonzero((matrix == spu_id).any(axis=1))[-1]) for spu_id in full}
    rows = sorted(set(last_row.values()))
    return tuple(tuple(spu_id for spu_id in full if last_row[spu_id] == row) for row in rows)


def too_many_looks(error: TooManyLooksError) -> Refusal:
    """Of a request that takes more looks at SPUs than one may."""
    return Refusal(
        Code.TOO_COMPLEX,
        f"one request may take {PLACING_LOOKS_MAX} looks at SPUs, which place {error.done} of "
        f"{error.partitions} partitions by this policy; ask for {max(error.done, 1)}, and let the "
        "topic grow after that, or choose another policy",
    )


def chain_after(
    ring: Ring, order: Order, index: int, matrix: IdMatrix, departed: tuple[tuple[int, ...], ...]
) -> Chain:
    """The chain after a request: one further for each partition, re-based where the ring lost
    members on the way."""
    done = 0
    for gone in departed:
        last = int(np.flatnonzero((matrix == gone[0]).any(axis=1))[-1]) + 1
        chain = ring.chain_at(order, index + last - done)
        chain = ring.chain_without(order, chain, gone)
        ring, done = ring.without(gone), last
        if ring.size == 0:
            return chain
        index = ring.index(order, chain)
    return ring.chain_at(order, index + len(matrix) - done)


def _wire_size(matrix: IdMatrix) -> int:
    """Bytes of a map on the wire: ids and lengths are in variable-length form; each list and the
    whole end with a byte."""
    partitions, replicas = matrix.shape
    larger = sum(int(np.count_nonzero(matrix >= step)) for step in _VARINT_STEPS)
    return int(partitions * (2 + replicas) + 8 + larger)


def refuse_need(
    state: ClusterState, demand: Mapping[str, int] | None, leader_demand: Mapping[str, int] | None
) -> Refusal | None:
    """Why no topic of the cluster can need this; None: it can."""
    if not leader_demand and _is_plain(demand or {}, state.ring.resource_names()):
        return None
    for field, given in (("demand", demand), ("leader_demand", leader_demand)):
        fault = amounts_fault(field, given)
        if fault is not None:
            return Refusal(Code.INVALID_DEMAND, fault)
    need = Need.of(demand, leader_demand)
    if need is None:
        return None
    names = [name for name, follower, leader in need.by_name() if follower or leader]
    if state.ring.resource_names().issuperset(names):
        return None
    known = {name for spu in state.spus.values() for name, _ in spu.resources}
    for name in names:
        if name not in known:
            field = "demand" if name in (demand or {}) else "leader_demand"
            has = (
                f"they have {', '.join(sorted(known))}: name one of these"
                if known
                else "none has any: leave it out"
            )
            return Refusal(
                Code.UNKNOWN_RESOURCE,
                f"{field} names {name!r}, which no SPU of cluster {state.cluster_id!r} has; "
                f"{has}, or send the joins of its SPUs again with this one",
            )
    return None


def _is_plain(demand: Mapping[str, int], known: frozenset[str]) -> bool:
    """Whether these are amounts of resources that SPUs of the ring have, as nearly always."""
    for name, amount in demand.items():
        if name not in known or not 0 <= amount <= AMOUNT_MAX:
            return False
    return len(demand) <= RESOURCES_MAX


def refuse_constraints(
    state: ClusterState, topic: str, policy: Policy, constraints: Constraints
) -> Refusal | None:
    """Why no topic of this name and policy can have these constraints; None: it can."""
    fault = constraints_fault(constraints, topic=topic)
    if fault is not None:
        return Refusal(Code.INVALID_CONSTRAINTS, fault)
    if policy is not Policy.BALANCED:
        return Refusal(
            Code.INVALID_CONSTRAINTS,
            f"constraints with policy {policy.value!r}; they are for 'balanced' only, leave them "
            "out, or name that",
        )
    for field in ("apart_from", "together_with"):
        for other in getattr(constraints, field):
            if other not in state.topics:
                return Refusal(
                    Code.INVALID_CONSTRAINTS,
                    f"constraints.{field} names {other!r}, which is no topic of cluster "
                    f"{state.cluster_id!r}; create it first, or leave it out",
                )
    return None


def refuse_room(state: ClusterState, lists: ReplicaLists, need: Need) -> Refusal | None:
    """Why new lists may not be given: an SPU would get more than it has."""
    by_name = need.by_name()
    spu_ids, counts = tally(lists.flat())
    of_leaders = dict(zip(*tally(lists.matrix[:, 0]), strict=True))
    used = state.ledger.used_of_each(np.array(spu_ids), tuple(name for name, *_ in by_name))
    for spu_id, count, of_spu in zip(spu_ids, counts, used.T.tolist(), strict=True):
        has, led = dict(state.spus[SpuId(spu_id)].resources), of_leaders.get(spu_id, 0)
        for (name, follower, leader), so_far in zip(by_name, of_spu, strict=True):
            amount = (count - led) * follower + led * leader
            free = max(has.get(name, 0) - int(so_far), 0)
            if amount > free:
                return Refusal(
                    Code.INSUFFICIENT_CAPACITY,
                    f"SPU {spu_id} has {free} of {name} free, and the lists take {amount} there; "
                    "add capacity, place with 'balanced', or ask for less",
                )
    return None


def with_room(
    state: ClusterState, event: TopicCreate, assignment: Assignment | Refusal
) -> Assignment | Refusal:
    """The assignment of a request, unless an SPU would get more of a resource than it has."""
    need = Need.of(event.demand, event.leader_demand)
    if need is None or isinstance(assignment, Refusal):
        return assignment
    return refuse_room(state, assignment.replicas, need) or assignment


def refuse_described(state: ClusterState, event: TopicCreate, policy: Policy) -> Refusal | None:
    """Why no topic can have what a create says of resources and constraints; None: one can."""
    if event.demand is not None or event.leader_demand is not None:
        refusal = refuse_need(state, event.demand, event.leader_demand)
        if refusal is not None:
            return refusal
    if event.constraints is not None and event.constraints != NO_CONSTRAINTS:
        return refuse_constraints(state, event.topic, policy, event.constraints)
    return None


def refuse_taken(state: ClusterState, topic: str, reserved_names: frozenset[str]) -> Refusal | None:
    """Why no topic can be created under a name that is reserved, exists or waits, or collides."""
    if topic in reserved_names or topic.startswith(KAFKA_OWN):
        return refuse_name(topic, reserved_names)
    if topic not in state.topics and topic not in state.waiting:
        return Refusal(
            Code.TOPIC_COLLIDES,
            f"topic {topic!r} and {state.names.colliding(topic)!r} of cluster {state.cluster_id!r} "
            "differ in dots and underscores alone, so Kafka refuses one of them; choose another "
            "name",
        )
    found = "exists" if topic in state.topics else "waits"
    already = "" if topic in state.topics else " already"
    return Refusal(
        Code.TOPIC_EXISTS,
        f"topic {topic!r} {found} in cluster {state.cluster_id!r}{already}; "
        "delete it first, or choose another name",
    )
