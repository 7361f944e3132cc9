"""The rules that place by an order of the ring, and where a request goes on in it.

Requests of one rule go on where the last one stopped: the next rows are made many at once, as a
`Table` that is kept with the ring, of which each request takes a slice, in ids and in bytes. Rules
that score each partition, `redpanda` and requests with a start of their own have no table.

While no SPU can become saturated, a request is the next rows of its rule. Otherwise it is placed in
blocks: up to and with the list that fills an SPU, then that SPU leaves the ring, the cursor is
re-based, and so on. `redpanda` takes an SPU out at the very replica that fills it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from spu_assigner.core.base.errors import Code, InvariantError, Rejection
from spu_assigner.core.base.limits import LOOKS_EACH, PLACING_LOOKS_MAX
from spu_assigner.core.base.records import Chain, Mode, Order
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix, ReplicaLists, Table
from spu_assigner.core.rules import fluvio, kafka, redpanda, rendezvous
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.ring import Ring, next_remaining

# Rows of a larger request are made for it alone: it costs so much that nothing is saved.
TABLE_REQUEST_MAX: Final = 1_024
BLOCK_ROWS_FIRST: Final = 64  # at once near a saturation; doubled while none happens
ROWS_AHEAD_FIRST: Final = 64  # doubled each time, since a ring may not last
ROWS_AHEAD_MAX: Final = 8_192  # 100 KB of three replicas each, made in the time of ten requests

# The rules, by the mode of a step that was placed so, and the order that each reads.
ORDER_OF: Final = {
    Mode.ROUND_ROBIN: Order.ID,
    Mode.RACK_WALK: Order.DIAGONAL,
    Mode.SHIFTED: Order.ID,
    Mode.RACK_SHIFTED: Order.ALTERNATION,
    Mode.POINTER: Order.REGISTRATION,
    Mode.SCORED: Order.ID,
    Mode.RACK_SCORED: Order.BALANCED,
}
# Each partition by its name and the weights of the SPUs: these rules have no chain.
SCORING: Final = (Mode.SCORED, Mode.RACK_SCORED)
# Row i is that of index i, and repeats itself: these rules have tables.
REPEATING: Final = (Mode.ROUND_ROBIN, Mode.RACK_WALK, Mode.SHIFTED, Mode.RACK_SHIFTED)
# Followers are shifted with each turn: these rules have a fixed start.
SHIFTING: Final = (Mode.SHIFTED, Mode.RACK_SHIFTED)


class Cursor(Struct):
    """A place in the order of a ring that a rule reads, and how it moves when the ring shrinks.

    It stands at the chain index (of a rule in SCORING: at a partition of the topic), or at the
    start that the request names; Kafka's order then begins at the start SPU, at index 0.
    """

    ring: Ring  # not empty at first
    rule: Mode
    index: int
    topic: str = ""
    is_own: bool = False  # whether the request names its start
    shift: int = 0
    head: int | None = None  # the SPU with which the order begins; None: as the ring's does
    emptied_cycle: int = 0  # of a ring that was emptied: an index says no more

    @property
    def order(self) -> IdArray:
        """The SPUs in the order that the rule reads."""
        order = self.ring.order(ORDER_OF[self.rule])
        return order if self.head is None else np.roll(order, -_position(order, self.head))

    def start_at(self, start: int, shift: int | None) -> None:
        """Leave the chain for the start that a request names."""
        self.is_own, self.index = True, start
        if self.rule in SHIFTING:
            self.head = int(self.order[start % self.ring.size])
            self.index, self.shift = 0, start if shift is None else shift

    def rows(self, count: int, replicas: int) -> IdMatrix:
        """The next `count` replica lists; the cursor does not move."""
        order, racks = self.order, self.ring.rack_numbers
        if replicas > len(order):  # A rule would name an SPU twice.
            raise InvariantError(f"{replicas} replicas were asked of a ring of {len(order)}")
        span = {"start": self.index, "partitions": count, "replicas": replicas}
        match self.rule:
            case Mode.ROUND_ROBIN:
                return fluvio.round_robin(order, **span)
            case Mode.RACK_WALK:
                return fluvio.walk(order, **span)
            case Mode.SHIFTED:
                return kafka.shifted(order, shift=self.shift, **span)
            case Mode.RACK_SHIFTED:
                return kafka.shifted_over_racks(order, racks(order), shift=self.shift, **span)
            case Mode.POINTER:
                return redpanda.pointed(order, **span)
            case Mode.SCORED | Mode.RACK_SCORED:
                of_racks = racks(order) if self.rule is Mode.RACK_SCORED else None
                return rendezvous.scored(
                    order, self.ring.weights, of_racks, topic=self.topic, **span
                )
            case _:
                raise InvariantError(f"mode {self.rule} places by no order of the ring")

    def advance(self, count: int, replicas: int) -> None:
        """Move on by so many lists."""
        self.index += count * replicas if self.rule is Mode.POINTER else count

    def drop(self, gone: Collection[int]) -> None:
        """Go on in the ring without these: who was to lead next, or the first after it."""
        old: list[int] = self.order.tolist()
        self.ring = self.ring.without(gone)
        if self.rule in SCORING:
            return
        cycle, position = divmod(self.index, len(old))
        if self.head is not None:
            _, self.head = next_remaining(old, 0, gone)
        stands, lead = next_remaining(old, position, gone)
        if lead is None:
            self.index, self.emptied_cycle = 0, cycle
        else:
            turns = cycle + stands // len(old)
            self.index = turns * self.ring.size + _position(self.order, lead)

    def chain(self) -> Chain:
        """Where the cursor stands, as the chain of its order."""
        if self.ring.size == 0:
            return Chain(cycle=self.emptied_cycle, lead=None, moved=True)
        return self.ring.chain_at(ORDER_OF[self.rule], self.index)


def _position(order: IdArray, spu_id: int) -> int:
    return int(np.flatnonzero(order == spu_id)[0])


class RowsAhead(NamedTuple):
    """Rows of a rule in `REPEATING`, kept with the ring on which they were made."""

    first: int  # the index of the table's first row
    period: int  # after so many indexes the same rows come
    table: Table


def rows_ahead(cursor: Cursor, count: int, replicas: int) -> ReplicaLists:
    """The next rows of a cursor that goes by a chain, at most `TABLE_REQUEST_MAX`: a slice."""
    kept, key = cursor.ring.kept, (cursor.rule, replicas)
    ahead: RowsAhead | None = kept.get(key)
    begin = 0 if ahead is None else (cursor.index - ahead.first) % ahead.period
    if ahead is None or begin + count > ahead.table.count:
        made = ROWS_AHEAD_FIRST if ahead is None else min(2 * ahead.table.count, ROWS_AHEAD_MAX)
        period, rows = _period(cursor.rule, cursor.ring.size, replicas), max(made, count)
        begin, ahead = 0, RowsAhead(cursor.index, period, Table(cursor.rows(rows, replicas)))
        kept[key] = ahead
    return ahead.table.lists(begin, count)


def _period(rule: Mode, size: int, replicas: int) -> int:
    """After how many rows a rule repeats itself on a ring."""
    if rule is Mode.ROUND_ROBIN:
        return size * (size - replicas + 1)
    if rule is Mode.RACK_WALK:
        return size
    return size * max(size - 1, 1)


class ShortRingError(Rejection):
    """Fewer SPUs in the ring than the replicas still to place; `why`: room is what they lack."""

    def __init__(self, *, partition: int, needed: int, found: int, why: str = "") -> None:
        super().__init__(
            Code.INSUFFICIENT_CAPACITY,
            f"partition {partition} found {found} SPUs with {'room' if why else 'a free slot'} for "
            f"{needed} replicas, {needed - found} more needed{why}; add SPUs or capacity, delete "
            "topics, or ask for less",
        )


def too_many_looks(*, done: int, partitions: int) -> Rejection:
    """Of a request that takes more looks at SPUs than one may, which place so many partitions."""
    return Rejection(
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
        Rejection: too many SPUs are scored, or become saturated on a large ring.
    """
    is_alone = cursor.is_own or cursor.rule not in REPEATING or partitions > TABLE_REQUEST_MAX
    if free is None and not is_alone:
        lists = rows_ahead(cursor, partitions, replicas)
        cursor.index += partitions
        return lists
    if cursor.rule in SCORING and partitions * cursor.ring.size > PLACING_LOOKS_MAX:
        done = PLACING_LOOKS_MAX // cursor.ring.size
        raise too_many_looks(done=done, partitions=partitions)
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
            raise too_many_looks(done=partition, partitions=partitions)
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
