"""The rules that place by an order of the ring, and where a request goes on in it.

Requests of one rule go on where the last one stopped: the next rows are made many at once, as a
`Table` that is kept with the ring, of which each request takes a slice, in ids and in bytes. Rules
that score each partition, `redpanda` and requests with a start of their own have no table.

While no SPU can become saturated, a request is the next rows of its rule. Otherwise it is placed in
blocks: up to and with the list that fills an SPU, then that SPU leaves the ring, the cursor is
re-based, and so on. `redpanda` takes an SPU out at the very replica that fills it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from spu_assigner.core.base.errors import Code, InvariantError, Rejection
from spu_assigner.core.base.events import Policy
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


class Rule(NamedTuple):
    """A way to place by an order of the ring: a row of `RULES`."""

    policy: Policy
    order: Order
    rows: Callable[..., IdMatrix]  # of the SPUs in this order, from `start` on
    turns: Callable[[int, int], int] | None = None
    """Of ring size and replicas: after so many turns of the ring the same rows come, and the rule
    has tables. None: the index is not all that a row depends on, or counts no partitions."""
    is_shifted: bool = False  # it takes a `shift` of followers: a request may fix the start
    is_scored: bool = False  # by `topic` and `weights`, each partition by its number: no chain
    reads_racks: bool = False  # it takes `racks`, beside the order


# By the mode of a step that was placed so; of a policy's two the second is over racks.
RULES: Final = {
    Mode.ROUND_ROBIN: Rule(
        Policy.FLUVIO, Order.ID, fluvio.round_robin, lambda size, replicas: size - replicas + 1
    ),
    Mode.RACK_WALK: Rule(Policy.FLUVIO, Order.DIAGONAL, fluvio.walk, lambda size, replicas: 1),
    Mode.SHIFTED: Rule(
        *(Policy.KAFKA, Order.ID, kafka.shifted, lambda size, _: max(size - 1, 1)), is_shifted=True
    ),
    Mode.RACK_SHIFTED: Rule(
        *(Policy.KAFKA, Order.ALTERNATION, kafka.shifted_over_racks),
        lambda size, replicas: max(size - 1, 1),
        is_shifted=True,
        reads_racks=True,
    ),
    Mode.POINTER: Rule(Policy.REDPANDA, Order.REGISTRATION, redpanda.pointed),
    Mode.SCORED: Rule(Policy.RENDEZVOUS, Order.ID, rendezvous.scored, is_scored=True),
    Mode.RACK_SCORED: Rule(
        Policy.RENDEZVOUS, Order.BALANCED, rendezvous.scored, is_scored=True, reads_racks=True
    ),
}
RULES_OF: Final = {
    policy: [mode for mode, rule in RULES.items() if rule.policy is policy] for policy in Policy
}


class Cursor(Struct):
    """A place in the order of a ring that a rule reads, and how it moves when the ring shrinks.

    It stands at the chain index (of a rule that scores: at a partition of the topic), or at the
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
    def row(self) -> Rule:
        """What is known of the rule."""
        return RULES[self.rule]

    @property
    def order(self) -> IdArray:
        """The SPUs in the order that the rule reads."""
        order = self.ring.order(self.row.order)
        return order if self.head is None else np.roll(order, -_position(order, self.head))

    def start_at(self, start: int, shift: int | None) -> None:
        """Leave the chain for the start that a request names."""
        self.is_own, self.index = True, start
        if self.row.is_shifted:
            self.head = int(self.order[start % self.ring.size])
            self.index, self.shift = 0, start if shift is None else shift

    def rows(self, count: int, replicas: int) -> IdMatrix:
        """The next `count` replica lists; the cursor does not move."""
        if replicas > self.ring.size:  # A rule would name an SPU twice.
            raise InvariantError(f"{replicas} replicas were asked of a ring of {self.ring.size}")
        rule, order = self.row, self.order
        given: dict[str, Any] = {"start": self.index, "partitions": count, "replicas": replicas}
        if rule.is_shifted:
            given["shift"] = self.shift
        if rule.is_scored:
            given |= {"topic": self.topic, "weights": self.ring.weights}
        if rule.reads_racks:
            given["racks"] = self.ring.rack_numbers(order)
        return rule.rows(order, **given)

    def advance(self, count: int, replicas: int) -> None:
        """Move on by so many lists."""
        self.index += count * replicas if self.rule is Mode.POINTER else count

    def drop(self, gone: Collection[int]) -> None:
        """Go on in the ring without these: at the next leader, or the first SPU after it."""
        old: list[int] = self.order.tolist()
        self.ring = self.ring.without(gone)
        if self.row.is_scored:
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
        return self.ring.chain_at(self.row.order, self.index)


def _position(order: IdArray, spu_id: int) -> int:
    return int(np.flatnonzero(order == spu_id)[0])


def rows_ahead(
    cursor: Cursor, turns: Callable[[int, int], int], count: int, replicas: int
) -> ReplicaLists:
    """The next rows of a cursor that goes by a chain, at most `TABLE_REQUEST_MAX`: a slice."""
    kept, key, size = cursor.ring.kept, (cursor.rule, replicas), cursor.ring.size
    table: Table | None  # with the index of its first row, and after how many the same rows come
    first, period, table = kept.get(key, (0, 1, None))
    begin = (cursor.index - first) % period
    if table is None or begin + count > table.count:
        made = ROWS_AHEAD_FIRST if table is None else min(2 * table.count, ROWS_AHEAD_MAX)
        table = Table(cursor.rows(max(made, count), replicas))
        begin, kept[key] = 0, (cursor.index, size * turns(size, replicas), table)
    return table.lists(begin, count)


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
    turns, is_large = cursor.row.turns, partitions > TABLE_REQUEST_MAX
    if free is None and turns is not None and not (cursor.is_own or is_large):
        lists = rows_ahead(cursor, turns, partitions, replicas)
        cursor.index += partitions
        return lists
    if cursor.row.is_scored and partitions * cursor.ring.size > PLACING_LOOKS_MAX:
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
    looks_of_row = cursor.ring.size if cursor.row.is_scored else 0
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
