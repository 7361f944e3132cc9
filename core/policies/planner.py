"""Placing one request on a ring that may change under it.

While nobody can become saturated, a whole request is one call of its rule. Otherwise it is placed
in blocks: up to and with the partition that fills an SPU, then that SPU leaves the ring, the cursor
is re-based, and so on. `redpanda` takes an SPU out at the very replica that fills it, so the list
in which that happens is placed replica by replica. `rendezvous` places each partition for itself:
its index is the partition's number, and no change of the ring moves it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, assert_never
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.chains import Chain, Order
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import LOOKS_EACH, PLACING_LOOKS_MAX
from spu_assigner.core.base.records import Mode
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix, ReplicaLists, Table
from spu_assigner.core.rules import fluvio, kafka, redpanda, rendezvous
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.ring import Ring, next_remaining

# Past the period, so that a usual request never passes the table's end.
TABLE_OVERLAP_ROWS: Final = 1_024
BLOCK_ROWS_FIRST: Final = 64  # partitions at once near a saturation; doubled while none happens

PASSED_BEFORE: Final = "passed-before"  # in a table's cache: row i sums what rows 0 … i - 1 passed

_Alike = tuple[str, int, bytes, bytes]  # rule, replicas, order, racks where they matter
_SHARED: Final[WeakValueDictionary[_Alike, Table]] = WeakValueDictionary()  # as rings have them


class PlacementRule(Enum):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is to be placed, and from where. `start` and `shift` are set for a cursor of its own."""

    rule: PlacementRule
    topic: str = ""  # of a rule in SCORING
    partitions: int
    replicas: int
    start: int | None
    shift: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPlan:
    """Where it went.

    `departed` holds the SPUs that became saturated, in groups that left the ring together.
    """

    replicas: ReplicaLists
    chain: Chain  # where the cursor stands after the request
    departed: tuple[tuple[int, ...], ...] = ()
    same_rack: int = 0  # times an SPU was passed over for its rack, over all lists
    in_list: int = 0  # likewise because the list had it already


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


def cursor_for(ring: Ring, demand: Demand, chain_index: int) -> Cursor:
    """Where the request starts: at the chain index, or at its own start.

    The ring must not be empty. Of a rule without a chain the index is its first partition.
    """
    if demand.start is None:
        return Cursor(ring, demand.rule, chain_index, topic=demand.topic)
    if demand.rule in (PlacementRule.SHIFTED, PlacementRule.SHIFTED_OVER_RACKS):
        shift = demand.start if demand.shift is None else demand.shift
        cursor = Cursor(ring, demand.rule, 0, shift=shift)
        cursor.rotate(demand.start)
        return cursor
    return Cursor(ring, demand.rule, demand.start)


def place(
    ring: Ring, demand: Demand, chain_index: int, free: CountArray | None = None
) -> PlacementPlan:
    """Place a request on a ring of at least `replicas` members.

    `free` holds the free slots of the members, by ascending id; None: nobody can be saturated.

    Raises:
        ShortRingError: the ring became too small on the way.
        TooManyLooksError: too many SPUs are scored, or become saturated on a large ring.
    """
    looks_of_row = ring.size if demand.rule in SCORING else 0
    if demand.partitions * looks_of_row > PLACING_LOOKS_MAX:
        done = PLACING_LOOKS_MAX // looks_of_row
        raise TooManyLooksError(done=done, partitions=demand.partitions)
    looks = 0
    cursor = cursor_for(ring, demand, chain_index)
    ids = ring.ids
    free = None if free is None else free.copy()
    blocks: list[IdMatrix] = []
    departed: list[tuple[int, ...]] = []
    same_rack = in_list = 0
    done, block_rows = 0, demand.partitions if free is None else BLOCK_ROWS_FIRST
    while done < demand.partitions:
        if cursor.ring.size < demand.replicas:
            raise ShortRingError(partition=done, needed=demand.replicas, found=cursor.ring.size)
        if looks > PLACING_LOOKS_MAX:
            raise TooManyLooksError(done=done, partitions=demand.partitions)
        count = min(block_rows, demand.partitions - done)
        looks += count * looks_of_row
        rows, passed = cursor.rows(count, demand.replicas)
        filling = None
        if free is not None:
            filling = _first_filling_cell(np.searchsorted(ids, rows.ravel()), free)
            if filling is not None:  # `redpanda`'s list in which it happens is placed below.
                count = filling // demand.replicas + (demand.rule is not PlacementRule.POINTER)
                rows = rows[:count]
            free -= np.bincount(np.searchsorted(ids, rows.ravel()), minlength=len(ids))
        if passed is not None:
            # Column by column: a sum of all rows takes as long as half the walk.
            for_rack, for_list = (int(each.sum(dtype=np.int64)) for each in passed[:count].T)
            same_rack += for_rack
            in_list += for_list
        blocks.append(rows)
        cursor.index = cursor.moved(count, demand.replicas)
        done += count
        if free is None or filling is None:
            block_rows *= 2
            continue
        block_rows = BLOCK_ROWS_FIRST
        looks += cursor.ring.size * LOOKS_EACH
        if demand.rule is PlacementRule.POINTER:
            row, left = _replica_by_replica(cursor, ids, free, demand.replicas, done)
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


def period_table(ring: Ring, rule: PlacementRule, replicas: int, period: int) -> Table:
    """The ring's table for this rule: a period and some rows more."""
    table = known_table(ring, rule, replicas)
    if table is None:
        rows = period + TABLE_OVERLAP_ROWS
        table = table_ahead(Cursor(ring, rule, 0), rows, replicas)
        ring.tables[rule.name, replicas] = _SHARED[_alike(ring, rule, replicas)] = table
    return table


def known_table(ring: Ring, rule: PlacementRule, replicas: int) -> Table | None:
    """The ring's table for this rule, if it was made, or that of a ring alike.

    Rings of SPUs 0 … n - 1 without racks are alike in all clusters, and their tables large.
    """
    key = (rule.name, replicas)
    table = ring.tables.get(key)
    if table is None:
        table = _SHARED.get(_alike(ring, rule, replicas))
        if table is not None:
            ring.tables[key] = table
    return table


def _alike(ring: Ring, rule: PlacementRule, replicas: int) -> _Alike:
    """All that the rows of a rule depend on."""
    order = ring.order(ORDER_OF[rule])
    racks = ring.rack_numbers(order).tobytes() if rule is PlacementRule.SHIFTED_OVER_RACKS else b""
    return rule.name, replicas, order.tobytes(), racks


def table_ahead(cursor: Cursor, count: int, replicas: int) -> Table:
    """The next `count` rows as a table; the cursor does not move."""
    rows, passed = cursor.rows(count, replicas)
    table = Table(rows)
    if passed is not None:
        table.cache[PASSED_BEFORE] = np.cumsum(
            np.vstack((np.zeros((1, 2), dtype=np.int64), passed)), axis=0
        )
    return table


def period_of(rule: PlacementRule, size: int, replicas: int) -> int | None:
    """After how many rows a rule repeats itself on a ring.

    None: it is cheap enough without a table.
    """
    if rule is PlacementRule.ROUND_ROBIN:
        return size * (size - replicas + 1)
    if rule is PlacementRule.WALK:
        return size
    if rule in (PlacementRule.SHIFTED, PlacementRule.SHIFTED_OVER_RACKS):
        return size * max(size - 1, 1)
    return None
