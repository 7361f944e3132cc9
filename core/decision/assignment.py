"""What is given to a request, and what any of it must hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.limits import MAP_SIZE_MAX
from spu_assigner.core.base.records import Chain, Order, Reason
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists
from spu_assigner.core.decision.answers import Refusal

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
