"""Placing one request on a ring that may change under it.

While no SPU can become saturated, a request is the next rows of its rule. Otherwise it is placed in
blocks: up to and with the list that fills an SPU, then that SPU leaves the ring, the cursor is
re-based, and so on. `redpanda` takes an SPU out at the very replica that fills it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.errors import Code, Rejection
from spu_assigner.core.base.limits import LOOKS_EACH, PLACING_LOOKS_MAX
from spu_assigner.core.base.records import Mode
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.policies.cursor import (
    REPEATING,
    SCORING,
    TABLE_REQUEST_MAX,
    Cursor,
    rows_ahead,
)
from spu_assigner.core.state.ledger import CountArray

BLOCK_ROWS_FIRST: Final = 64  # at once near a saturation; doubled while none happens


class ShortRingError(Rejection):
    """Fewer SPUs in the ring than the replicas still to place; `why`: room is what they lack."""

    def __init__(self, *, partition: int, needed: int, found: int, why: str = "") -> None:
        super().__init__(
            Code.INSUFFICIENT_CAPACITY,
            f"partition {partition} found {found} SPUs with {'room' if why else 'a free slot'} for "
            f"{needed} replicas, {needed - found} more needed{why}; add SPUs or capacity, delete "
            "topics, or ask for less",
        )


class TooManyLooksError(Rejection):
    """A request takes more looks at SPUs than one may, which place the partitions that are done."""

    def __init__(self, *, done: int, partitions: int) -> None:
        super().__init__(
            Code.TOO_COMPLEX,
            f"one request may take {PLACING_LOOKS_MAX} looks at SPUs, which place {done} of "
            f"{partitions} partitions by this policy; ask for {max(done, 1)}, and let the topic "
            "grow after that, or choose another policy",
        )


def place(
    cursor: Cursor, *, partitions: int, replicas: int, free: CountArray | None = None
) -> ReplicaLists:
    """Place a request from a cursor on, which then stands behind it.

    Args:
        cursor: on a ring of at least `replicas` members.
        free: the free slots of the members, by ascending id; None: none can be saturated.

    Raises:
        ShortRingError: the ring became too small on the way.
        TooManyLooksError: too many SPUs are scored, or become saturated on a large ring.
    """
    is_alone = cursor.is_own or cursor.rule not in REPEATING or partitions > TABLE_REQUEST_MAX
    if free is None and not is_alone:
        lists = rows_ahead(cursor, partitions, replicas)
        cursor.index += partitions
        return lists
    if cursor.rule in SCORING and partitions * cursor.ring.size > PLACING_LOOKS_MAX:
        done = PLACING_LOOKS_MAX // cursor.ring.size
        raise TooManyLooksError(done=done, partitions=partitions)
    if free is not None:
        return _place_in_blocks(cursor, partitions, replicas, free.copy())
    lists = ReplicaLists(cursor.rows(partitions, replicas))
    cursor.advance(partitions, replicas)
    return lists


def _place_in_blocks(
    cursor: Cursor, partitions: int, replicas: int, free: CountArray
) -> ReplicaLists:
    """The same near a saturation; writes `free`."""
    ids = cursor.ring.ids
    width = 1 if cursor.rule is Mode.POINTER else replicas
    placed = np.empty((partitions * replicas // width, width), dtype=np.int32)
    done = looks = 0
    looks_of_row = cursor.ring.size if cursor.rule in SCORING else 0
    block_rows = BLOCK_ROWS_FIRST
    while done < len(placed):
        partition, begun = divmod(done * width, replicas)
        needed = replicas - begun
        # A pointer passes all others before it comes back to those of the list that has begun.
        found = cursor.ring.size - int(np.isin(placed[done - begun : done], cursor.ring.ids).sum())
        if found < needed:
            raise ShortRingError(partition=partition, needed=needed, found=found)
        if looks > PLACING_LOOKS_MAX:
            raise TooManyLooksError(done=partition, partitions=partitions)
        rows = cursor.rows(needed if begun else min(block_rows, len(placed) - done), width)
        looks += len(rows) * looks_of_row
        slots = np.searchsorted(ids, rows)
        filling = _first_filling_cell(slots.ravel(), free)
        if filling is not None:
            rows = rows[: filling // width + 1]
        free -= np.bincount(slots[: len(rows)].ravel(), minlength=len(ids))
        placed[done : done + len(rows)] = rows
        done += len(rows)
        cursor.advance(len(rows), width)
        block_rows *= 2
        if filling is not None:
            block_rows = BLOCK_ROWS_FIRST
            looks += cursor.ring.size * LOOKS_EACH
            last = np.sort(rows[-1])
            cursor.drop(tuple(last[free[np.searchsorted(ids, last)] == 0].tolist()))
    return ReplicaLists(placed.reshape(partitions, replicas))


def _first_filling_cell(slots: NDArray[np.intp], free: CountArray) -> int | None:
    """The first cell that takes the last free slot of its SPU; None: none does.

    `slots` are positions in `free`, cell by cell.
    """
    if (np.bincount(slots, minlength=len(free)) < free).all():
        return None
    left: list[int] = free.tolist()
    for cell, slot in enumerate(slots.tolist()):
        left[slot] -= 1
        if left[slot] == 0:
            return cell
    return None
