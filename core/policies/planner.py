"""Placing one request on a ring that may change under it.

While no SPU can become saturated, a request is the next rows of its rule: a slice of the table that
is kept with the ring (`cursor`), or one call of the rule. Otherwise it is placed in blocks: up to
and with the partition that fills an SPU, then that SPU leaves the ring, the cursor is re-based, and
so on. `redpanda` takes an SPU out at the very replica that fills it, so the list in which that
happens is placed replica by replica. `rendezvous` places each partition for itself: its index is
the partition's number, and no change of the ring moves it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.chains import Chain
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import LOOKS_EACH, PLACING_LOOKS_MAX
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix, ReplicaLists
from spu_assigner.core.base.structs import FrozenStruct
from spu_assigner.core.policies.cursor import (
    ORDER_OF,
    REPEATING,
    SCORING,
    TABLE_REQUEST_MAX,
    Cursor,
    PlacementRule,
    rows_ahead,
)
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.ring import Ring

BLOCK_ROWS_FIRST: Final = 64  # partitions at once near a saturation; doubled while none happens


class ShortRingError(AssignerError):
    """Fewer SPUs in the ring than the replicas still to place.

    Caught by `decide`, answered with a rejection.
    """

    def __init__(self, *, partition: int, needed: int, found: int) -> None:
        self.partition = partition
        self.needed = needed
        self.found = found
        super().__init__(f"partition {partition} needs {needed} more SPUs, the ring has {found}")


class TooManyLooksError(AssignerError):
    """A request takes more looks at SPUs than one may; caught like `ShortRingError`."""

    def __init__(self, *, done: int, partitions: int) -> None:
        self.done = done  # partitions that were placed within the limit
        self.partitions = partitions
        super().__init__(f"{done} of {partitions} partitions are placed within the limit")


class Demand(FrozenStruct, frozen=True, kw_only=True):
    """What is to be placed, and from where. `start` and `shift` are set for a cursor of its own."""

    rule: PlacementRule
    topic: str = ""  # of a rule in SCORING
    partitions: int
    replicas: int
    start: int | None
    shift: int | None


class PlacementPlan(FrozenStruct, frozen=True, kw_only=True):
    """Where it went.

    `departed` holds the SPUs that became saturated, in groups that left the ring together.
    """

    replicas: ReplicaLists
    chain: Chain  # where the cursor stands after the request
    departed: tuple[tuple[int, ...], ...] = ()
    same_rack: int = 0  # times an SPU was passed over for its rack, over all lists
    in_list: int = 0  # likewise because the list had it already


def cursor_for(ring: Ring, demand: Demand, chain_index: int) -> Cursor:
    """Where the request starts: at the chain index, or at its own start.

    The ring must not be empty. Of a rule without a chain the index is its first partition.
    """
    rule = demand.rule
    if demand.start is None:
        return Cursor(ring, rule, chain_index, topic=demand.topic)
    if rule in (PlacementRule.SHIFTED, PlacementRule.SHIFTED_OVER_RACKS):
        shift = demand.start if demand.shift is None else demand.shift
        cursor = Cursor(ring, rule, 0, shift=shift)
        cursor.rotate(demand.start)
        return cursor
    return Cursor(ring, rule, demand.start)


def place(
    ring: Ring, demand: Demand, chain_index: int, free: CountArray | None = None
) -> PlacementPlan:
    """Place a request on a ring of at least `replicas` members.

    `free` holds the free slots of the members, by ascending id; None: nobody can be saturated.

    Raises:
        ShortRingError: the ring became too small on the way.
        TooManyLooksError: too many SPUs are scored, or become saturated on a large ring.
    """
    rule, count = demand.rule, demand.partitions
    if free is None and demand.start is None and rule in REPEATING and count <= TABLE_REQUEST_MAX:
        lists, passed = rows_ahead(ring, rule, demand.replicas).rows(ring, chain_index, count)
        chain = ring.chain_at(ORDER_OF[rule], chain_index + count)
        if passed is None:
            return PlacementPlan(replicas=lists, chain=chain)
        same_rack, in_list = passed.sum(axis=0).tolist()
        return PlacementPlan(replicas=lists, chain=chain, same_rack=same_rack, in_list=in_list)
    looks_of_row = ring.size if rule in SCORING else 0
    if count * looks_of_row > PLACING_LOOKS_MAX:
        raise TooManyLooksError(done=PLACING_LOOKS_MAX // looks_of_row, partitions=count)
    return _place_in_blocks(cursor_for(ring, demand, chain_index), demand, free, looks_of_row)


def _place_in_blocks(
    cursor: Cursor, demand: Demand, free: CountArray | None, looks_of_row: int
) -> PlacementPlan:
    """The same by calls of the rule, one for each block: up to what saturates an SPU."""
    ids, replicas = cursor.ring.ids, demand.replicas
    free = None if free is None else free.copy()
    blocks: list[IdMatrix] = []
    departed: list[tuple[int, ...]] = []
    looks = done = same_rack = in_list = 0
    block_rows = demand.partitions if free is None else BLOCK_ROWS_FIRST
    while done < demand.partitions:
        if cursor.ring.size < replicas:
            raise ShortRingError(partition=done, needed=replicas, found=cursor.ring.size)
        if looks > PLACING_LOOKS_MAX:
            raise TooManyLooksError(done=done, partitions=demand.partitions)
        count = min(block_rows, demand.partitions - done)
        looks += count * looks_of_row
        rows, passed = cursor.rows(count, replicas)
        filling = None
        if free is not None:
            filling = _first_filling_cell(np.searchsorted(ids, rows.ravel()), free)
            if filling is not None:  # `redpanda`'s list in which it happens is placed below.
                count = filling // replicas + (demand.rule is not PlacementRule.POINTER)
                rows = rows[:count]
            free -= np.bincount(np.searchsorted(ids, rows.ravel()), minlength=len(ids))
        if passed is not None:
            # Column by column: a sum of all rows takes as long as half the walk.
            for_rack, for_list = (int(each.sum(dtype=np.int64)) for each in passed[:count].T)
            same_rack += for_rack
            in_list += for_list
        blocks.append(rows)
        cursor.index = cursor.moved(count, replicas)
        done += count
        if free is None or filling is None:
            block_rows *= 2
            continue
        block_rows = BLOCK_ROWS_FIRST
        looks += cursor.ring.size * LOOKS_EACH
        if demand.rule is PlacementRule.POINTER:
            row, left = _replica_by_replica(cursor, ids, free, replicas, done)
            blocks.append(row)
            departed += left
            done += 1
        else:
            full = np.sort(rows[-1])
            full = full[free[np.searchsorted(ids, full)] == 0]
            departed.append(tuple(full.tolist()))
            cursor.drop(departed[-1])
    return PlacementPlan(
        replicas=ReplicaLists(blocks[0] if len(blocks) == 1 else np.concatenate(blocks)),
        chain=cursor.chain(),
        departed=tuple(departed),
        same_rack=same_rack,
        in_list=in_list,
    )


def _first_filling_cell(slots: NDArray[np.intp], free: CountArray) -> int | None:
    """The first cell that takes the last free slot of its SPU.

    `slots` are positions in `free`, cell by cell.
    """
    tight = np.bincount(slots, minlength=len(free)) >= free
    cells = np.flatnonzero(tight[slots])
    if len(cells) == 0:
        return None
    used = slots[cells]
    by_slot = np.argsort(used, kind="stable")
    ordered = used[by_slot]
    run_starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    lasts = by_slot[run_starts + free[ordered[run_starts]] - 1]
    return int(cells[lasts.min()])


def _replica_by_replica(
    cursor: Cursor, ids: IdArray, free: CountArray, replicas: int, partition: int
) -> tuple[IdMatrix, list[tuple[int, ...]]]:
    """One list of `redpanda`, in which SPUs may leave the ring.

    Returns the list and those that left, one by one; writes `free` and moves the cursor. The
    pointer cannot come back to an SPU of the list before it has passed, and taken, all others.
    """
    chosen: list[int] = []
    departed: list[tuple[int, ...]] = []
    while len(chosen) < replicas:
        unused = cursor.ring.size - sum(spu_id in chosen for spu_id in cursor.order.tolist())
        if unused < replicas - len(chosen):
            raise ShortRingError(partition=partition, needed=replicas - len(chosen), found=unused)
        candidate = int(cursor.order[cursor.index % len(cursor.order)])
        cursor.index += 1
        chosen.append(candidate)
        slot = int(np.searchsorted(ids, candidate))
        free[slot] -= 1
        if free[slot] == 0:
            departed.append((candidate,))
            cursor.drop((candidate,))
    return np.array([chosen], dtype=np.int32), departed
