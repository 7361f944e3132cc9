"""What is given to a request, what any of it must hold, and the refusal where SPUs are too few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, TopicCreate
from spu_assigner.core.base.limits import MAP_SIZE_MAX
from spu_assigner.core.base.records import Chain, Order, Reason
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists
from spu_assigner.core.decision.answers import Refusal
from spu_assigner.core.policies.planner import ShortRingError
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import Ring

ID_SIZE_MAX: Final = 5  # bytes of an id on the wire
_VARINT_STEPS: Final = np.array(
    [64, 8_192, 2**20, 2**27]
)  # from here on an id takes one byte more on the wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
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
    reason: Reason


def refuse_size(
    replicas: ReplicaLists, cores: ReplicaLists | None, wanted_lengths: bytes | None = None
) -> Refusal | None:
    """Why a map cannot be sent: it is too large for a message."""
    size = wire_size(replicas.matrix) + (0 if cores is None else wire_size(cores.matrix))
    size += len(wanted_lengths or b"")
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


def short_on_the_way(short: ShortRingError) -> Refusal:
    """Of a ring that became too small within the request."""
    need = short.needed - short.found
    return Refusal(
        Code.INSUFFICIENT_CAPACITY,
        f"partition {short.partition} found {short.found} SPUs with a free slot "
        f"for {short.needed} replicas, {need} more needed; "
        "add SPUs or capacity, delete topics, or ask for less",
    )


def shortage(state: ClusterState, event: TopicCreate, found: int, *, offline: int = 0) -> Refusal:
    """Of a ring that is too small; `offline`: SPUs outside it that could take replicas too."""
    need = event.replication_factor - found - (offline if found else 0)
    cordoned = state.cordoned_count
    if event.replication_factor <= state.online_count:
        full = state.saturated_count
        and_cordoned = f", {cordoned} are cordoned" if cordoned else ""
        return Refusal(
            Code.INSUFFICIENT_CAPACITY,
            f"replication_factor {event.replication_factor} needs {need} more SPUs with a free "
            f"slot: {full} of {state.online_count} online SPUs are saturated{and_cordoned}; "
            f"add SPUs or capacity, {'uncordon SPUs, ' if cordoned else ''}or delete topics",
        )
    and_offline = f", and {offline} SPUs are offline and cannot lead" if offline else ""
    return Refusal(
        Code.INSUFFICIENT_SPUS,
        f"replication_factor {event.replication_factor} needs {need} more SPUs: "
        f"the ring has {found}{and_offline}; add SPUs or ask for fewer replicas",
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
