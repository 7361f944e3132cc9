"""The rules by which requests are placed, and where one goes on in an order of the ring.

Requests of one rule go on where the last one stopped, so the next rows are known before they are
asked for: they are made many at once, as a `Table` that is kept with the ring, of which each
request takes a slice, in ids and in bytes. Rules that score each partition, `redpanda` and requests
with a start of their own have no table: their rows are made for them alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import auto
from typing import Any, Final, assert_never
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.chains import Chain, Order
from spu_assigner.core.base.records import Mode
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix, ReplicaLists, Table
from spu_assigner.core.base.structs import FastStrEnum
from spu_assigner.core.rules import fluvio, kafka, redpanda, rendezvous
from spu_assigner.core.state.ring import Ring, next_remaining

# Rows of a larger request are made for it alone: it costs so much that nothing is saved.
TABLE_REQUEST_MAX: Final = 1_024
ROWS_AHEAD_FIRST: Final = 64  # doubled each time, since a ring may not last
ROWS_AHEAD_MAX: Final = (
    8_192  # 100 KB of three replicas each; made in the time of some ten requests
)
_PASSED: Final = "passed"  # of a table's cache: SPUs that each row passed over

_Alike = tuple[str, int, bytes, bytes]  # rule, replicas, order, racks where they matter
_SHARED: Final[WeakValueDictionary[_Alike, Table]] = WeakValueDictionary()  # as rings have them


class PlacementRule(FastStrEnum):
    """How rows are made; each belongs to one order of the ring."""

    ROUND_ROBIN = auto()  # fluvio without racks
    WALK = auto()  # fluvio over racks
    SHIFTED = auto()  # kafka without racks
    SHIFTED_OVER_RACKS = auto()  # kafka over racks
    POINTER = auto()  # redpanda
    SCORED = auto()  # rendezvous without racks
    SCORED_OVER_RACKS = auto()  # rendezvous over racks


ORDER_OF: Final = {
    PlacementRule.ROUND_ROBIN: Order.ID,
    PlacementRule.WALK: Order.DIAGONAL,
    PlacementRule.SHIFTED: Order.ID,
    PlacementRule.SHIFTED_OVER_RACKS: Order.ALTERNATION,
    PlacementRule.POINTER: Order.REGISTRATION,
    PlacementRule.SCORED: Order.ID,
    PlacementRule.SCORED_OVER_RACKS: Order.BALANCED,
}

MODE_OF: Final = {
    PlacementRule.ROUND_ROBIN: Mode.ROUND_ROBIN,
    PlacementRule.WALK: Mode.RACK_WALK,
    PlacementRule.SHIFTED: Mode.SHIFTED,
    PlacementRule.SHIFTED_OVER_RACKS: Mode.RACK_SHIFTED,
    PlacementRule.POINTER: Mode.POINTER,
    PlacementRule.SCORED: Mode.SCORED,
    PlacementRule.SCORED_OVER_RACKS: Mode.RACK_SCORED,
}

# Each partition by its name and the weights of the SPUs: these rules have no chain.
SCORING: Final = (PlacementRule.SCORED, PlacementRule.SCORED_OVER_RACKS)
# Row i is that of index i, and repeats itself: these rules have tables.
REPEATING: Final = (
    PlacementRule.ROUND_ROBIN,
    PlacementRule.WALK,
    PlacementRule.SHIFTED,
    PlacementRule.SHIFTED_OVER_RACKS,
)


@dataclass(slots=True)
class Cursor:
    """A place in an order of a ring, and how it moves when the ring shrinks.

    `rotated`: Kafka's fixed start. The order begins at the start SPU, so that the index counts
    partitions and index // N the completed rounds.
    """

    ring: Ring
    rule: PlacementRule
    index: int
    shift: int = 0
    rotated: bool = False
    topic: str = ""
    emptied_cycle: int = 0  # of a ring that was emptied: an index says no more
    order: IdArray = field(init=False)

    def __post_init__(self) -> None:
        self.order = self.ring.order(ORDER_OF[self.rule])

    def rotate(self, start: int) -> None:
        """Let the order begin at position start (modulo its length)."""
        self.rotated = True
        self.order = np.roll(self.order, -(start % len(self.order)))

    def rows(self, count: int, replicas: int) -> tuple[IdMatrix, IdMatrix | None]:
        """The next `count` replica lists; the cursor does not move.

        Also how many SPUs each list passed over (for their rack, because the list had them), None
        where the rule passes over nobody.
        """
        order, start = self.order, self.index
        match self.rule:
            case PlacementRule.ROUND_ROBIN:
                rows = fluvio.round_robin(order, start=start, partitions=count, replicas=replicas)
            case PlacementRule.WALK:
                rows = fluvio.walk(order, start=start, partitions=count, replicas=replicas)
            case PlacementRule.SHIFTED:
                rows = kafka.shifted(
                    order, start=start, shift=self.shift, partitions=count, replicas=replicas
                )
            case PlacementRule.SHIFTED_OVER_RACKS:
                return kafka.shifted_over_racks(
                    order,
                    self.ring.rack_numbers(order),
                    start=start,
                    shift=self.shift,
                    partitions=count,
                    replicas=replicas,
                )
            case PlacementRule.POINTER:
                rows = redpanda.pointed(order, start=start, partitions=count, replicas=replicas)
            case PlacementRule.SCORED | PlacementRule.SCORED_OVER_RACKS:
                over_racks = self.rule is PlacementRule.SCORED_OVER_RACKS
                return rendezvous.scored(
                    order,
                    self.ring.weights(),
                    self.ring.rack_numbers(order) if over_racks else None,
                    topic=self.topic,
                    start=start,
                    partitions=count,
                    replicas=replicas,
                )
            case _:
                assert_never(self.rule)
        return rows, None

    def moved(self, count: int, replicas: int) -> int:
        """The index after `count` more lists."""
        return self.index + (count * replicas if self.rule is PlacementRule.POINTER else count)

    def drop(self, gone: tuple[int, ...]) -> None:
        """Go on in the ring without these: who was to lead next, or the first after it."""
        if self.rule in SCORING:
            self.ring = self.ring.without(gone)
            self.order = self.ring.order(ORDER_OF[self.rule])
            return
        old: list[int] = self.order.tolist()
        cycle, position = divmod(self.index, len(old))
        self.ring = self.ring.without(gone)
        self.order = self.ring.order(ORDER_OF[self.rule])
        if self.rotated and len(self.order):
            _, head = next_remaining(old, 0, gone)
            self.order = np.roll(self.order, -_position(self.order, head))
        stands, lead = next_remaining(old, position, gone)
        if lead is None:
            self.index, self.emptied_cycle = 0, cycle
        else:
            self.index = (cycle + stands // len(old)) * len(self.order) + _position(
                self.order, lead
            )

    def chain(self) -> Chain:
        """Where the cursor stands, as the chain of its order."""
        if len(self.order) == 0:
            return Chain(cycle=self.emptied_cycle, lead=None, moved=True)
        return self.ring.chain_at(ORDER_OF[self.rule], self.index)


def _position(order: IdArray, spu_id: int | None) -> int:
    return int(np.flatnonzero(order == spu_id)[0])


class RowsAhead:
    """The next rows of a rule that repeats itself, kept with the ring on which they were made.

    Requests of one rule go on where the last one stopped, so their rows are made many at once. On
    a small ring they are the whole period of the rule, on a large one a window that moves on.
    """

    __slots__ = ("_count", "_first", "_period", "_replicas", "_rule", "_table")

    def __init__(self, ring: Ring, rule: PlacementRule, replicas: int) -> None:
        self._rule = rule
        self._replicas = replicas
        self._period = _period(rule, ring.size, replicas)
        self._count = ROWS_AHEAD_FIRST // 2
        self._table: Table | None = None
        self._first = 0  # the index of the table's first row

    def rows(
        self, ring: Ring, index: int, count: int
    ) -> tuple[ReplicaLists, NDArray[np.integer[Any]] | None]:
        """So many rows from an index on, at most `TABLE_REQUEST_MAX`, and what they passed over."""
        table, begin = self._table, index - self._first
        if table is None or begin < 0 or begin + count > table.count:
            table = self._table = self._look_ahead(ring, index, count)
            begin = index - self._first
        passed = table.cache.get(_PASSED)
        lists = table.lists(begin, count)
        return lists, None if passed is None else passed[begin : begin + count]

    def _look_ahead(self, ring: Ring, index: int, count: int) -> Table:
        """A table that holds these rows; twice as many as the last time."""
        self._count = min(2 * self._count, ROWS_AHEAD_MAX)
        if self._period <= ROWS_AHEAD_MAX:
            alike = _alike(ring, self._rule, self._replicas)
            table = _SHARED.get(alike)
            if table is None and self._period <= self._count:
                cursor = Cursor(ring, self._rule, 0)  # so many that no request passes the end
                table = self._made(cursor, self._period + TABLE_REQUEST_MAX)
                _SHARED[alike] = table
            if table is not None:
                self._first = index - index % self._period
                return table
        self._first = index
        return self._made(Cursor(ring, self._rule, index), max(self._count, count))

    def _made(self, cursor: Cursor, count: int) -> Table:
        rows, passed = cursor.rows(count, self._replicas)
        table = Table(rows)
        if passed is not None:
            table.cache[_PASSED] = passed
        return table


def rows_ahead(ring: Ring, rule: PlacementRule, replicas: int) -> RowsAhead:
    """Those of a rule in `REPEATING` on this ring."""
    kept, key = ring.kept, (rule, replicas)
    ahead: RowsAhead | None = kept.get(key)
    if ahead is None:
        ahead = kept[key] = RowsAhead(ring, rule, replicas)
    return ahead


def _alike(ring: Ring, rule: PlacementRule, replicas: int) -> _Alike:
    """All that the rows of a rule depend on.

    Rings of SPUs 0 … n - 1 without racks are alike in all clusters, and their tables large.
    """
    order = ring.order(ORDER_OF[rule])
    racks = ring.rack_numbers(order).tobytes() if rule is PlacementRule.SHIFTED_OVER_RACKS else b""
    return rule, replicas, order.tobytes(), racks


def _period(rule: PlacementRule, size: int, replicas: int) -> int:
    """After how many rows a rule repeats itself on a ring."""
    if rule is PlacementRule.ROUND_ROBIN:
        return size * (size - replicas + 1)
    if rule is PlacementRule.WALK:
        return size
    return size * max(size - 1, 1)
