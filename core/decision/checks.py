"""What a request must hold before it is placed, and its map before it is sent.

Each check raises a `Rejection`, or returns nothing; of lists by hand all faults can be had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from spu_assigner.core.base.constraints import NO_CONSTRAINTS, Constraints, constraint_faults
from spu_assigner.core.base.errors import Code, Rejection, bounded_repr
from spu_assigner.core.base.events import Event, Policy, SpuId, TopicCreate
from spu_assigner.core.base.limits import (
    AMOUNT_MAX,
    BAND_MAX,
    BAND_PERCENT_MAX,
    CAPACITY_MAX,
    CORES_MAX,
    INDEX_MAX,
    KAFKA_OWN,
    MAP_SIZE_MAX,
    MOVES_MAX,
    PARTITIONS_MAX,
    REPLICATION_FACTOR_MAX,
    SPU_ID_MAX,
)
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.core.base.replica_lists import ReplicaLists, tally
from spu_assigner.core.base.resources import Need, amounts_fault
from spu_assigner.core.policies.manual_lists import ManualFault, is_spu_id
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ledger import NO_LIMIT

ID_SIZE_MAX: Final = 5  # bytes of an id on the wire
_VARINT_STEPS: Final = np.array([64, 8_192, 2**20, 2**27])  # from here on an id takes a byte more
_Found = tuple[Code, str]
_CODES: Final = (
    Code.MANUAL_UNKNOWN_SPU,
    Code.MANUAL_SPU_LEAVING,
    Code.MANUAL_SPU_CORDONED,
    Code.MANUAL_SPU_FULL,
)
_MANUAL: Final = Policy.MANUAL  # a member of an enum's class takes longer to look up
# The numbers of events, first and last; the code of one out of range is its name after `INVALID_`.
RANGES: Final = {
    "partitions": (1, PARTITIONS_MAX),
    "replication_factor": (1, REPLICATION_FACTOR_MAX),
    "start_index": (0, INDEX_MAX),
    "shift": (0, INDEX_MAX),
    "spu_id": (0, SPU_ID_MAX),
    "cores": (1, CORES_MAX),
    "capacity": (0, CAPACITY_MAX),
    "max_moves": (0, MOVES_MAX),
    "max_bytes": (0, AMOUNT_MAX),
    "band_percent": (0, BAND_PERCENT_MAX),
    "band": (0, BAND_MAX),
}


def check_create(
    state: ClusterState, event: TopicCreate, policy: Policy, reserved_names: frozenset[str]
) -> None:
    """What any create must hold, beside its replica lists."""
    if policy is not _MANUAL:
        check_ranges(event, "partitions", "replication_factor")
    if event.start_index is not None or event.shift is not None:
        _check_start(event, policy)
    if (event.replicas is None) is (policy is _MANUAL):
        found = "no replicas" if event.replicas is None else "replicas"
        raise Rejection(
            Code.INVALID_REPLICAS,
            f"{found} with policy {policy.value!r}; "
            "name the replica lists with policy 'manual', and only with it",
        )
    if event.demand is not None or event.leader_demand is not None:
        check_demand(state, event.demand, event.leader_demand)
    if event.constraints is not None and event.constraints != NO_CONSTRAINTS:
        check_constraints(state, event.topic, policy, event.constraints)
    topic = event.topic
    check_name(topic, reserved_names)
    if topic in state.topics or topic in state.waiting:
        cluster = f"cluster {state.cluster_id!r}"
        found = f"exists in {cluster}" if topic in state.topics else f"waits in {cluster} already"
        raise Rejection(
            Code.TOPIC_EXISTS, f"topic {topic!r} {found}; delete it first, or choose another name"
        )
    if (other := state.colliding(topic)) is not None:
        raise Rejection(
            Code.TOPIC_COLLIDES,
            f"topic {topic!r} and {other!r} of cluster {state.cluster_id!r} differ in dots and "
            "underscores alone, so Kafka refuses one of them; choose another name",
        )


def check_ranges(event: Event, *fields: str) -> None:
    """Numbers must be within `RANGES`, as far as the event names them."""
    for field in fields:
        value, (first, last) = getattr(event, field), RANGES[field]
        if value is not None and not first <= value <= last:
            code = Code[f"INVALID_{field.upper()}"]
            raise Rejection(code, f"{field} is {bounded_repr(value)}; expected {first} to {last}")


def _check_start(event: TopicCreate, policy: Policy) -> None:
    """The policy must take the start that a create names."""
    index, shift = event.start_index, event.shift
    if index is not None:
        if policy not in (Policy.FLUVIO, Policy.KAFKA):
            raise Rejection(
                Code.INVALID_START_INDEX,
                f"start_index with policy {policy.value!r}; it is for 'fluvio' and 'kafka' only, "
                "leave it out",
            )
        check_ranges(event, "start_index")
    if shift is not None:
        if policy is not Policy.KAFKA or index is None:
            raise Rejection(
                Code.INVALID_SHIFT,
                "shift is for policy 'kafka' with a start_index only; leave it out",
            )
        check_ranges(event, "shift")


def check_name(
    topic: str, reserved_names: frozenset[str], *, advice: str = "choose another name"
) -> None:
    """The name must not be reserved."""
    if topic.startswith(KAFKA_OWN):
        found = f"begins with {KAFKA_OWN!r}, as Kafka's own topics do"
    elif topic in reserved_names:
        found = "is one of the assigner's own topics"
    else:
        return
    raise Rejection(Code.RESERVED_NAME, f"topic {topic!r} {found}; {advice}")


def check_demand(
    state: ClusterState, demand: Mapping[str, int] | None, leader_demand: Mapping[str, int] | None
) -> None:
    """The amounts must be within limits, of resources that an SPU of the cluster has."""
    for field, given in (("demand", demand), ("leader_demand", leader_demand)):
        fault = amounts_fault(field, given)
        if fault is not None:
            raise Rejection(Code.INVALID_DEMAND, fault)
    need = Need.of(demand, leader_demand)
    names = [] if need is None else [name for name, *amounts in need.by_name() if any(amounts)]
    if state.ring.resource_names.issuperset(names):
        return
    known = {name for spu in state.spus.values() for name, _ in spu.resources}
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        field = "demand" if unknown in (demand or {}) else "leader_demand"
        has = "none has any: leave it out"
        if known:
            has = f"they have {', '.join(sorted(known))}: name one of these"
        raise Rejection(
            Code.UNKNOWN_RESOURCE,
            f"{field} names {unknown!r}, which no SPU of cluster {state.cluster_id!r} has; {has}, "
            "or send the joins of its SPUs again with this one",
        )


def check_constraints(
    state: ClusterState, topic: str, policy: Policy, constraints: Constraints
) -> None:
    """A topic of this name and policy can have these constraints."""
    for fault in constraint_faults(constraints, topic=topic):
        raise Rejection(Code.INVALID_CONSTRAINTS, fault)
    if policy is not Policy.BALANCED:
        raise Rejection(
            Code.INVALID_CONSTRAINTS,
            f"constraints with policy {policy.value!r}; they are for 'balanced' only, leave them "
            "out, or name that",
        )
    for field in ("apart_from", "together_with"):
        for other in getattr(constraints, field):
            if other not in state.topics:
                raise Rejection(
                    Code.INVALID_CONSTRAINTS,
                    f"constraints.{field} names {other!r}, which is no topic of cluster "
                    f"{state.cluster_id!r}; create it first, or leave it out",
                )


def check_room(state: ClusterState, event: TopicCreate, lists: ReplicaLists) -> None:
    """No SPU gets more of a resource by these new lists than it has."""
    need = Need.of(event.demand, event.leader_demand)
    if need is None:
        return
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
                raise Rejection(
                    Code.INSUFFICIENT_CAPACITY,
                    f"SPU {spu_id} has {free} of {name} free, and the lists take {amount} there; "
                    "add capacity, place with 'balanced', or ask for less",
                )


def unknown_spus(state: ClusterState, lists: Sequence[Sequence[int]]) -> Iterator[ManualFault]:
    """Every SPU of these lists that the cluster does not have; its path is partition and place."""
    for partition, row in enumerate(lists):
        for place, spu_id in enumerate(row):
            if SpuId(spu_id) not in state.spus and is_spu_id(spu_id):
                [found], _ = _judged(state, spu_id)
                yield _fault(found, partition, spu_id, (partition, place))


def spu_faults(
    state: ClusterState, lists: Iterable[tuple[int, list[tuple[int, int]]]]
) -> Iterator[ManualFault]:
    """Every SPU that cannot take its replica, list by list in the order of `_CODES`.

    A list is its partition and its (place, SPU id).
    """
    judged: dict[int, list[_Found]] = {}
    left: dict[int, int] = {}  # free slots
    for partition, replicas in lists:
        faults: list[ManualFault] = []
        for place, spu_id in replicas:
            if spu_id not in judged:
                judged[spu_id], left[spu_id] = _judged(state, spu_id)
            left[spu_id] -= 1
            found = judged[spu_id]
            if left[spu_id] < 0:
                capacity = state.spus[SpuId(spu_id)].capacity
                full = f"has no free slot left of its {capacity}"
                found = [*found, (Code.MANUAL_SPU_FULL, full)]
            path = (partition, "replicas", place)
            faults += [_fault(each, partition, spu_id, path) for each in found]
        yield from sorted(faults, key=lambda fault: _CODES.index(fault.code))


def _judged(state: ClusterState, spu_id: int) -> tuple[list[_Found], int]:
    """Why an SPU cannot take replicas, slots aside, and how many slots it has for some."""
    spu = state.spus.get(SpuId(spu_id))
    if spu is None:
        return [(Code.MANUAL_UNKNOWN_SPU, f"is not in cluster {state.cluster_id!r}")], NO_LIMIT
    found = [(Code.MANUAL_SPU_LEAVING, "is being decommissioned")] if spu.leaving else []
    if spu.is_closed:
        why = "cordoned; uncordon it" if spu.cordoned else "tainted; untaint it"
        found.append((Code.MANUAL_SPU_CORDONED, f"is {why} first, or name another"))
    return found, spu.capacity - state.ledger.count(spu_id)


def _fault(found: _Found, partition: int, spu_id: int, path: tuple[int | str, ...]) -> ManualFault:
    code, why = found
    message = f"partition {partition} names SPU {spu_id}, which {why}"
    return ManualFault(code=code, message=message, path=path)


def check_size(replica_map: ReplicaMap) -> None:
    """A map must fit into a message."""
    size = len(replica_map.wanted_lengths or ())
    for lists in (replica_map.replicas, replica_map.cores):
        if lists is None:
            continue
        partitions, replicas = lists.matrix.shape
        # Of ids as varints; an upper bound where that is within the limit.
        bound = partitions * (2 + replicas * ID_SIZE_MAX) + 8
        if bound > MAP_SIZE_MAX:
            larger = sum(int(np.count_nonzero(lists.matrix >= step)) for step in _VARINT_STEPS)
            bound = partitions * (2 + replicas) + 8 + larger
        size += bound
    if size > MAP_SIZE_MAX:
        raise Rejection(
            Code.MAP_TOO_LARGE,
            f"the map takes {size} bytes, the limit is {MAP_SIZE_MAX}; "
            "ask for fewer partitions or replicas",
        )
