"""Which SPUs may get replicas of a topic, and which of them are alike to its rules.

A field is the SPUs that all hard rules on single SPUs admit: the ring, or under constraints the
open SPUs that no `require`, `forbid`, `apart_from`, `together_with` and no taint excludes. Room is
no part of it: it changes with each replica.

A *cell* is one value of one level: a rack, a zone. A *kind* is the SPUs of a field that are in the
same cells, meet preferences of the same weight and lead with the same rank. What a list has in each
cell says which kinds take its next replica: those of the first *tier* that has an SPU with room.

Example: racks a: 0, 1 and b: 2, without constraints: two cells, two kinds. For an empty list one
tier has both kinds; for `[0]` the first tier is the kind of rack b, the second that of rack a.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.limits import REPLICATION_FACTOR_MAX
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.constraints.rule_table import RuleTable, bits, bound_table
from spu_assigner.core.placement.preference import twofold
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.ring import Ring

BARRED: Final = 2**20  # the rank of an SPU that may not lead
LIMITS_MAX: Final = 8  # sizes of topics of which twice the fair share is kept
TURNS_MAX: Final = 2**18  # kinds of turns that are kept for the next list

Cells = tuple[int, ...]


class AlikeSpus(NamedTuple):
    """SPUs that are alike to the rules."""

    cells: Cells  # of each level, in order of preference; cells of all levels numbered on
    weight: int
    rank: int  # as a leader, 0 first; a demoted SPU is behind all others
    is_last: bool  # it leads nothing where another can, and stands last in lists


@dataclass(slots=True, eq=False)
class Turn:
    """The kinds that may take the next replica of a list that has so many in each cell."""

    counts: tuple[int, ...]
    # Numbers of kinds that are as good as each other, and what takes their values; the best first.
    tiers: list[tuple[tuple[int, ...], itemgetter[Any]]]
    after: dict[int, Turn] = field(default_factory=dict)  # of each kind that took it
    mark: object = None  # of the last request that has counted it


class Resources(NamedTuple):
    """What the SPUs of a field have."""

    names: tuple[str, ...]
    capacities: CountArray  # shape (names, SPUs)
    capacity_lists: list[list[int]]  # the same


@dataclass(slots=True, eq=False, kw_only=True)
class PlacementField:
    """The SPUs that rules admit, by ascending id; kept while they are the same."""

    ids: IdArray
    capacities: CountArray
    kinds: Sequence[AlikeSpus]
    kind_of: Sequence[int]  # of each SPU
    maxes: Sequence[int]  # of each cell: replicas of a list, at most,
    mins: Sequence[int]  # and at least
    table: RuleTable | None  # None: without constraints
    cell_of_rack: Mapping[str, int]  # without constraints
    described: Sequence[SpuChanged]
    id_list: list[int] = field(init=False)
    at_of: dict[int, int] = field(init=False)  # of each id its place in the field
    order: CountArray = field(init=False)  # places in the field, kind by kind,
    ends: list[int] = field(init=False)  # and where kinds begin and the last one ends
    capacity_list: list[int] = field(init=False)
    is_even: bool = field(init=False)  # all SPUs have the same capacity
    capacity_sum: int = field(init=False)
    is_limited: bool = field(init=False)  # some level has a `max`
    is_demanding: bool = field(init=False)  # some level has a `min`
    ranks: tuple[int, ...] = field(init=False)  # of leaders, ascending
    rank_array: CountArray | None = field(init=False)  # of each SPU; None: it is the same
    looks_a_turn: int = field(init=False)
    first_turn: Turn = field(init=False)
    _turns: dict[tuple[int, ...], Turn] = field(init=False, default_factory=dict)
    _limits: dict[int, list[int]] = field(init=False, default_factory=dict)
    _resources: dict[Collection[str], Resources] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.id_list = self.ids.tolist()
        self.at_of = {spu_id: at for at, spu_id in enumerate(self.id_list)}
        numbers = np.array(self.kind_of, dtype=np.int64)
        self.order = np.argsort(numbers, kind="stable")
        self.ends = [0, *np.cumsum(np.bincount(numbers, minlength=len(self.kinds))).tolist()]
        self.capacity_list = self.capacities.tolist()
        self.is_even = len({*self.capacity_list}) == 1
        self.capacity_sum = int(self.capacities.sum())
        self.is_limited = any(most < REPLICATION_FACTOR_MAX for most in self.maxes)
        self.is_demanding = any(self.mins)
        self.ranks = tuple(sorted({kind.rank for kind in self.kinds}))
        self.rank_array = None
        if len(self.ranks) > 1:
            self.rank_array = np.array([kind.rank for kind in self.kinds], dtype=np.int64)[numbers]
        self.looks_a_turn = len(self.kinds) * (1 + len(self.kinds[0].cells) if self.kinds else 1)
        self.first_turn = self.turn((0,) * len(self.maxes))

    @property
    def size(self) -> int:
        """SPUs."""
        return len(self.id_list)

    def cells_of(self, state: ClusterState, spu_id: int) -> Cells:
        """The cells of any SPU of the cluster."""
        if self.table is not None:
            return self.table.cells[self.table.place[spu_id]]
        cell = self.cell_of_rack.get(state.spus[SpuId(spu_id)].rack or "")
        return () if cell is None else (cell,)

    def counts(self, state: ClusterState, row: Collection[int]) -> list[int]:
        """How many replicas of a list are in each cell."""
        counts = [0] * len(self.maxes)
        for spu_id in row:
            at = self.at_of.get(spu_id)
            cells = self.cells_of(state, spu_id) if at is None else self.cells_at(at)
            for cell in cells:
                counts[cell] += 1
        return counts

    def cells_at(self, at: int) -> Cells:
        """The cells of an SPU of the field."""
        return self.kinds[self.kind_of[at]].cells

    def limits(self, total: int) -> list[int]:
        """How many of so many replicas of a topic are twice the fair share of each SPU."""
        known = self._limits.get(total)
        if known is None:
            if len(self._limits) >= LIMITS_MAX:
                del self._limits[next(iter(self._limits))]
            known = self._limits[total] = twofold(
                total, self.capacities, self.capacity_sum
            ).tolist()
        return known

    def of_kind(self, kind: int) -> list[int]:
        """The places of the SPUs of a kind."""
        members: list[int] = self.order[self.ends[kind] : self.ends[kind + 1]].tolist()
        return members

    def cost(self, kind: AlikeSpus, counts: Sequence[int]) -> tuple[int, ...] | None:
        """Levels 1 to 3 of the preference, for a list with these counts; None: a `max` is met."""
        cells = kind.cells
        if self.is_limited and any(counts[cell] >= self.maxes[cell] for cell in cells):
            return None
        met = 0
        if self.is_demanding:
            met = sum(counts[cell] < self.mins[cell] for cell in cells)
        return (-met, *[counts[cell] for cell in cells], -kind.weight)

    def turn(self, counts: tuple[int, ...]) -> Turn:
        """The turn of a list with these counts."""
        known = self._turns.get(counts)
        if known is None:
            alike: dict[tuple[int, ...], list[int]] = {}
            for number, kind in enumerate(self.kinds):
                cost = self.cost(kind, counts)
                if cost is not None:
                    alike.setdefault(cost, []).append(number)
            if len(self._turns) * len(self.kinds) > TURNS_MAX:
                self._turns.clear()
            tiers = [tuple(alike[cost]) for cost in sorted(alike)]
            # A single index gives no tuple, so it is asked for twice.
            known = Turn(counts, [(tier, itemgetter(*tier, tier[-1])) for tier in tiers])
            self._turns[counts] = known
        return known

    def turn_after(self, turn: Turn, kind: int) -> Turn:
        """The next one, where an SPU of this kind has taken the replica."""
        known = turn.after.get(kind)
        if known is None:
            counts = list(turn.counts)
            for cell in self.kinds[kind].cells:
                counts[cell] += 1
            known = turn.after[kind] = self.turn(tuple(counts))
        return known

    def lacks(self, counts: Sequence[int]) -> int:
        """How many replicas a list with these counts lacks of what `min` demands."""
        return sum(max(least - has, 0) for least, has in zip(self.mins, counts, strict=True))

    def resources(self, asked: Collection[str]) -> Resources:
        """What each SPU has of each resource that some SPU has, or that is asked for."""
        known = self._resources.get(asked)
        if known is None:
            has = [dict(spu.resources) for spu in self.described]
            names = tuple(sorted({*asked, *(name for each in has for name in each)}))
            rows = [[each.get(name, 0) for each in has] for name in names]
            capacities = np.array(rows, dtype=np.int64).reshape(len(names), len(has))
            known = self._resources[asked] = Resources(names, capacities, rows)
        return known


def ring_field(ring: Ring, *, ignore_rack: bool) -> PlacementField:
    """The field of a topic without constraints; kept with the ring."""
    known = ring.kept.get(("field", ignore_rack))
    if isinstance(known, PlacementField):
        return known
    described = ring.described()
    racks = [""] * ring.size if ignore_rack else ring.racks().tolist()
    cell_of_rack: dict[str, int] = {}
    if len({*racks}) > 1:
        cell_of_rack = {rack: cell for cell, rack in enumerate(sorted({*racks}))}
    found = [
        AlikeSpus((cell_of_rack[rack],) if cell_of_rack else (), 0, int(spu.demoted), spu.demoted)
        for rack, spu in zip(racks, described, strict=True)
    ]
    made = _field(
        ring.ids,
        ring.weights(),
        found,
        maxes=[REPLICATION_FACTOR_MAX] * len(cell_of_rack),
        mins=[0] * len(cell_of_rack),
        table=None,
        cell_of_rack=cell_of_rack,
        described=described,
    )
    ring.kept["field", ignore_rack] = made
    return made


def ruled_field(
    state: ClusterState, constraints: Constraints, *, ignore_rack: bool
) -> PlacementField:
    """The field of a topic with constraints; kept with their table."""
    table, of_topics = bound_table(state, constraints, ignore_rack=ignore_rack)
    mask = table.allowed(of_topics)
    known = table.kept.get(("field", mask))
    if isinstance(known, PlacementField):
        return known
    places = list(bits(mask))
    barred = table.barred_leaders
    found = [
        AlikeSpus(
            table.cells[place],
            table.weights[place],
            BARRED if barred >> place & 1 else table.lead_ranks[place],
            bool((barred | table.demoted) >> place & 1),
        )
        for place in places
    ]
    ids = table.id_array[places]
    described = [state.spus[SpuId(spu_id)] for spu_id in ids.tolist()]
    made = _field(
        ids,
        np.array([spu.capacity for spu in described], dtype=np.int64),
        found,
        maxes=table.cell_maxes,
        mins=table.cell_mins,
        table=table,
        cell_of_rack={},
        described=described,
    )
    table.keep(("field", mask), made)
    return made


def _field(
    ids: IdArray,
    capacities: CountArray,
    kinds: Sequence[AlikeSpus],
    *,
    maxes: Sequence[int],
    mins: Sequence[int],
    table: RuleTable | None,
    cell_of_rack: Mapping[str, int],
    described: Sequence[SpuChanged],
) -> PlacementField:
    number_of = {kind: number for number, kind in enumerate(sorted({*kinds}))}
    return PlacementField(
        ids=ids,
        capacities=capacities,
        kinds=list(number_of),
        kind_of=[number_of[kind] for kind in kinds],
        maxes=maxes,
        mins=mins,
        table=table,
        cell_of_rack=cell_of_rack,
        described=described,
    )
