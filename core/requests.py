"""What a topic-create asks for, whether it may be had, and where it would go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core import placement
from spu_assigner.core.errors import Code
from spu_assigner.core.events import OnShortage, Policy, SpuId, TopicCreate
from spu_assigner.core.limits import INDEX_MAX, MAP_SIZE_MAX, PARTITIONS_MAX, REPLICATION_FACTOR_MAX
from spu_assigner.core.manual import ManualFault, read_lists
from spu_assigner.core.planner import (
    ORDER_OF,
    Demand,
    Plan,
    Rule,
    ShortRingError,
    place,
    place_with_care,
)
from spu_assigner.core.records import Chain, Order
from spu_assigner.core.replicas import IdMatrix, ReplicaLists, tally
from spu_assigner.core.state import ClusterState

ID_SIZE_MAX: Final = 5  # bytes of an id on the wire
_VARINT_STEPS: Final = np.array(
    [64, 8_192, 2**20, 2**27]
)  # from here on an id takes one byte more on the wire


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not, and what to do."""

    code: Code
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Where a topic goes.

    `departed` holds the SPUs that it saturates, in groups that leave the ring together.
    """

    policy: Policy
    replicas: ReplicaLists
    cores: ReplicaLists | None = None
    order: Order | None = None  # whose chain index the record shows
    chain: Chain | None = (
        None  # of that order after the request; None: the request does not move it
    )
    departed: tuple[tuple[int, ...], ...] = ()


def decide_create(
    state: ClusterState, event: TopicCreate, default_policy: Policy
) -> Grant | Refusal:
    """Grant a create or refuse it; the state is only read."""
    policy = event.policy
    if policy is None:
        policy = default_policy if event.replicas is None else Policy.MANUAL
    refusal = _refuse_fields(event, policy)
    if refusal is not None:
        return refusal
    if event.topic in state.topics:
        hint = "delete it first, or choose another name"
        return Refusal(
            Code.TOPIC_EXISTS,
            f"topic {event.topic!r} exists in cluster {state.cluster_id!r}; {hint}",
        )
    grant = _manual(state, event) if policy is Policy.MANUAL else _automatic(state, event, policy)
    if isinstance(grant, Grant):
        size = wire_size(grant.replicas.matrix) + (
            0 if grant.cores is None else wire_size(grant.cores.matrix)
        )
        if size > MAP_SIZE_MAX:
            hint = "ask for fewer partitions or replicas"
            return Refusal(
                Code.MAP_TOO_LARGE,
                f"the map takes {size} bytes, the limit is {MAP_SIZE_MAX}; {hint}",
            )
    return grant


def _refuse_fields(event: TopicCreate, policy: Policy) -> Refusal | None:
    if policy is Policy.BALANCED or event.on_shortage is OnShortage.WAIT:
        what = "policy 'balanced'" if policy is Policy.BALANCED else "on_shortage 'wait'"
        return Refusal(Code.NOT_SUPPORTED, f"{what} is not supported by this release")
    if policy is not Policy.MANUAL:
        for code, field, value, largest in (
            (Code.INVALID_PARTITIONS, "partitions", event.partitions, PARTITIONS_MAX),
            (
                Code.INVALID_REPLICATION_FACTOR,
                "replication_factor",
                event.replication_factor,
                REPLICATION_FACTOR_MAX,
            ),
        ):
            if not 1 <= value <= largest:
                return Refusal(code, f"{field} is {value}; expected 1 to {largest}")
    if event.start_index is not None:
        if policy not in (Policy.FLUVIO, Policy.KAFKA):
            found = f"start_index with policy {policy.value!r}"
            return Refusal(
                Code.INVALID_START_INDEX,
                f"{found}; it is for 'fluvio' and 'kafka' only, leave it out",
            )
        if not 0 <= event.start_index <= INDEX_MAX:
            return Refusal(
                Code.INVALID_START_INDEX,
                f"start_index is {event.start_index}; expected 0 to {INDEX_MAX}",
            )
    if event.shift is not None:
        if policy is not Policy.KAFKA or event.start_index is None:
            return Refusal(
                Code.INVALID_SHIFT,
                "shift is for policy 'kafka' with a start_index only; leave it out",
            )
        if not 0 <= event.shift <= INDEX_MAX:
            return Refusal(Code.INVALID_SHIFT, f"shift is {event.shift}; expected 0 to {INDEX_MAX}")
    if (event.replicas is not None) != (policy is Policy.MANUAL):
        found = "no replicas" if event.replicas is None else "replicas"
        return Refusal(
            Code.INVALID_REPLICAS,
            f"{found} with policy {policy.value!r}; "
            "name the replica lists with policy 'manual', and only with it",
        )
    return None


def _automatic(state: ClusterState, event: TopicCreate, policy: Policy) -> Grant | Refusal:
    rule = _rule(state, policy, ignore_rack=event.ignore_rack)
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
        return _shortage(state, event, ring.size)
    demand = Demand(
        rule=rule,
        partitions=event.partitions,
        replicas=event.replication_factor,
        start=event.start_index,
        shift=event.shift,
    )
    order = ORDER_OF[rule]
    index = ring.index(order, state.chains[order])
    try:
        if state.ledger.free_floor(event.partitions) > event.partitions:
            plan = place(ring, demand, index)
        else:
            plan = place_with_care(ring, demand, index, state.ledger.free(ring.ids))
    except ShortRingError as short:
        need = short.needed - short.found
        return Refusal(
            Code.INSUFFICIENT_CAPACITY,
            f"partition {short.partition} found {short.found} SPUs with a free slot "
            f"for {short.needed} replicas, {need} more needed; "
            "add SPUs or capacity, delete topics, or ask for less",
        )
    return Grant(
        policy=policy,
        replicas=plan.replicas,
        cores=_cores(state, plan) if policy is Policy.REDPANDA else None,
        order=order,
        chain=plan.chain if event.start_index is None else None,
        departed=plan.departed,
    )


def _rule(state: ClusterState, policy: Policy, *, ignore_rack: bool) -> Rule | None:
    """How the policy places on this cluster.

    None: some online SPUs have racks and some have not.
    """
    if policy is Policy.REDPANDA:
        return Rule.POINTER
    unracked, racked = (
        (Rule.ROUND_ROBIN, Rule.WALK)
        if policy is Policy.FLUVIO
        else (Rule.SHIFTED, Rule.SHIFTED_OVER_RACKS)
    )
    if ignore_rack or state.racked_count == 0:
        return unracked
    return racked if state.racked_count == state.online_count else None


def order_of_policy(state: ClusterState, policy: Policy) -> Order | None:
    """The order whose index a record of the policy shows.

    None for `manual`, and while racks are incomplete: by id.
    """
    if policy is Policy.MANUAL:
        return None
    rule = _rule(state, policy, ignore_rack=False)
    return Order.ID if rule is None else ORDER_OF[rule]


def _shortage(state: ClusterState, event: TopicCreate, found: int) -> Refusal:
    need = event.replication_factor - found
    if event.replication_factor <= state.online_count:
        full = state.online_count - found
        return Refusal(
            Code.INSUFFICIENT_CAPACITY,
            f"replication_factor {event.replication_factor} needs {need} more SPUs "
            f"with a free slot: {full} of {state.online_count} online SPUs are saturated; "
            "add SPUs or capacity, or delete topics",
        )
    return Refusal(
        Code.INSUFFICIENT_SPUS,
        f"replication_factor {event.replication_factor} needs {need} more SPUs: "
        f"the ring has {found}; add SPUs or ask for fewer replicas",
    )


def _cores(state: ClusterState, plan: Plan) -> ReplicaLists:
    """On each SPU the first core of least weight, replica after replica."""
    matrix = plan.replicas.matrix
    flat = matrix.ravel()
    cores = np.zeros(len(flat), dtype=np.int32)
    hosts, counts = tally(flat)
    weights = [state.core_weights[SpuId(spu_id)] for spu_id in hosts]
    if any(len(of_host) > 1 for of_host in weights):
        # At most SPUS_MAX hosts: their positions fit in 16 bits, which sort in linear time.
        positions = np.searchsorted(hosts, flat).astype(np.uint16)
        by_host = np.argsort(positions, kind="stable")
        ends = np.cumsum(counts).tolist()
        for of_host, count, end in zip(weights, counts, ends, strict=True):
            if len(of_host) > 1:
                cores[by_host[end - count : end]] = placement.take_cores(of_host, count)
    return ReplicaLists(cores.reshape(matrix.shape))


def _manual(state: ClusterState, event: TopicCreate) -> Grant | Refusal:
    lists = read_lists(event.replicas)
    if isinstance(lists, ManualFault):
        return Refusal(lists.code, lists.message)
    refusal = _refuse_hosts(state, lists.matrix)
    if refusal is not None:
        return refusal
    ids, counts = np.unique(lists.matrix, return_counts=True)
    free = state.ledger.free(ids)
    full = tuple(
        spu_id for spu_id in ids[counts == free].tolist() if state.spus[SpuId(spu_id)].online
    )
    return Grant(
        policy=Policy.MANUAL, replicas=lists, departed=_departed_one_by_one(lists.matrix, full)
    )


def _refuse_hosts(state: ClusterState, matrix: IdMatrix) -> Refusal | None:
    """The first partition of a manual map with an SPU that is not there, or has no slot left."""
    ids, counts = np.unique(matrix, return_counts=True)
    known = np.array([SpuId(spu_id) in state.spus for spu_id in ids.tolist()])
    free = np.zeros(len(ids), dtype=np.int64)
    free[known] = state.ledger.free(ids[known])
    if known.all() and (counts <= free).all():
        return None
    left = dict(zip(ids.tolist(), free.tolist(), strict=True))
    for partition, row in enumerate(matrix.tolist()):
        for spu_id in row:
            if SpuId(spu_id) not in state.spus:
                return Refusal(
                    Code.MANUAL_UNKNOWN_SPU,
                    f"partition {partition} names SPU {spu_id}, "
                    f"which is not in cluster {state.cluster_id!r}",
                )
        for spu_id in row:
            if left[spu_id] <= 0:
                capacity = state.spus[SpuId(spu_id)].capacity
                return Refusal(
                    Code.MANUAL_SPU_FULL,
                    f"partition {partition} names SPU {spu_id}, "
                    f"which has no free slot left of its {capacity}",
                )
            left[spu_id] -= 1
    return None


def _departed_one_by_one(matrix: IdMatrix, full: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Groups of SPUs that a manual map fills with the same partition, in the map's order."""
    if not full:
        return ()
    last_row = {spu_id: int(np.flatnonzero((matrix == spu_id).any(axis=1))[-1]) for spu_id in full}
    rows = sorted(set(last_row.values()))
    return tuple(tuple(spu_id for spu_id in full if last_row[spu_id] == row) for row in rows)


def wire_size(matrix: IdMatrix) -> int:
    """Bytes of a map on the wire, or an upper bound of them where that is within the limit.

    Ids and lengths are in variable-length form; each list and the whole end with a byte.
    """
    partitions, replicas = len(matrix), int(matrix.shape[1])
    bound = partitions * (2 + replicas * ID_SIZE_MAX) + 8
    if bound <= MAP_SIZE_MAX:
        return bound
    exact = partitions * (2 + replicas) + 8
    larger = [int(np.count_nonzero(matrix >= step)) for step in _VARINT_STEPS]
    return exact + sum(larger)
