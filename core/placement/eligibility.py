"""Which SPUs may get replicas of a topic, and which of them are alike to its rules.

A field is the SPUs that all hard rules on single SPUs admit: the ring, or under constraints the
open SPUs that no `require`, `forbid`, `apart_from`, `together_with` and no taint excludes. Room is
no part of it: it changes with each replica.

A *cell* is one value of one level: a rack, a zone. A *kind* is the SPUs of a field that are alike
to the rules. What a list has in each cell says which kinds take its next replica: those of the
first *tier* that has an SPU with room.

Example: racks a: 0, 1 and b: 2, without constraints: two cells, two kinds. For an empty list one
tier has both kinds; for `[0]` the first tier is the kind of rack b, the second that of rack a.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

import numpy as np
from spu_assigner.core.base.constraints import NO_CONSTRAINTS, Constraints
from spu_assigner.core.base.limits import REPLICATION_FACTOR_MAX
from spu_assigner.core.constraints.rule_table import (
    AlikeSpus,
    BoundRules,
    RuleTable,
    are_nested,
    rule_table,
    topic_rules,
)
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.ring import Ring

FIELDS_MAX: Final = 16  # that are kept with a table of rules
TURNS_MAX: Final = 2**18  # kinds of turns that are kept for the next list

# Names; and what SPUs have, replica slots first, shape (1 + names, SPUs), as an array and as lists.
Resources = tuple[tuple[str, ...], CountArray, list[list[int]]]


@dataclass(slots=True, eq=False)
class Turn:
    """The kinds that may take the next replica of a list that has so many in each cell."""

    counts: tuple[int, ...]
    # Numbers of kinds that are as good as each other, and what takes their values; the best first.
    tiers: list[tuple[tuple[int, ...], itemgetter[Any]]]
    after: dict[int, Turn] = field(default_factory=dict)  # of each kind that took it
    mark: object = None  # of the last request that has counted it


class PlacementField:
    """The SPUs that rules admit, by ascending id; kept while they are the same."""

    def __init__(
        self,
        table: RuleTable,
        places: Sequence[int],
        found: Sequence[AlikeSpus],
        *,
        levels: Sequence[range],
        maxes: Sequence[int],
        mins: Sequence[int],
        is_ruled: bool = True,
    ) -> None:
        """Of the SPUs at these places of a table, of each of which the rules say what is `found`;
        `levels`: the cells of each, of which a list has `maxes` replicas at most and `mins` at
        least; `is_ruled`: the topic has constraints."""
        number_of = {kind: number for number, kind in enumerate(sorted({*found}))}
        self.kinds = [*number_of]
        self.kind_of = [number_of[each] for each in found]
        self.levels, self.maxes, self.mins = levels, maxes, mins
        self.described = [table.labels.spus[place] for place in places]
        self.is_ruled, self.last_rank, self._table = is_ruled, table.last_rank, table
        self.id_list = [int(spu.spu_id) for spu in self.described]
        self.ids = np.array(self.id_list, dtype=np.int32)
        self.at_of = {spu_id: at for at, spu_id in enumerate(self.id_list)}  # of each id
        self.size = len(self.id_list)
        numbers = np.array(self.kind_of, dtype=np.int64)
        self.order = np.argsort(numbers, kind="stable")  # places in the field, kind by kind,
        # and where kinds begin and the last one ends.
        self.ends = [0, *np.cumsum(np.bincount(numbers, minlength=len(self.kinds))).tolist()]
        self.capacity_list = [spu.capacity for spu in self.described]
        self.capacities: CountArray = np.array(self.capacity_list, dtype=np.int64)
        self.whole = int(self.capacities.sum()) or 1
        self.is_limited = any(most < REPLICATION_FACTOR_MAX for most in maxes)
        self.is_demanding = any(mins)
        self.is_nested = are_nested(self.kinds, range(len(levels)))
        self.outermost = sorted(  # levels, by the cells that these SPUs are in
            range(len(levels)), key=lambda level: len({kind.cells[level] for kind in self.kinds})
        )
        self.hard = [
            level
            for level in self.outermost
            if any(maxes[cell] < REPLICATION_FACTOR_MAX or mins[cell] for cell in levels[level])
        ]
        self.is_counted = are_nested(self.kinds, self.hard)  # which lists fit
        self.most_weight = max((kind.weight for kind in self.kinds), default=0)
        self.ranks = tuple(sorted({kind.rank for kind in self.kinds}))  # of leaders
        self.rank_array: CountArray | None = None  # of each SPU; None: it is the same
        if len(self.ranks) > 1:
            self.rank_array = np.array([kind.rank for kind in found], dtype=np.int64)
        self.looks_a_turn = len(self.kinds) * (1 + len(levels)) or 1
        self._turns: dict[tuple[int, ...], Turn] = {}
        self._resources: dict[Collection[str], Resources] = {}
        self.placing: object = None  # what the last request for new lists has left, see `request`
        self.first_turn = self.turn((0,) * len(maxes))

    def of_id(self, spu_id: int) -> AlikeSpus:
        """What the rules say of any SPU of the cluster."""
        return self._table.spus[self._table.labels.place[spu_id]]

    def counts(self, row: Iterable[AlikeSpus]) -> list[int]:
        """How many replicas of a list are in each cell."""
        counts = [0] * len(self.maxes)
        for kind in row:
            for cell in kind.cells:
                counts[cell] += 1
        return counts

    def kind_at(self, at: int) -> AlikeSpus:
        """What the rules say of an SPU of the field."""
        return self.kinds[self.kind_of[at]]

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
            takers = [itemgetter(*(tier if len(tier) > 1 else 2 * tier)) for tier in tiers]
            known = Turn(counts, list(zip(tiers, takers, strict=True)))
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
        """What each SPU has: of replica slots and, if some are asked for, of these resources and of
        each that some SPU has."""
        known = self._resources.get(asked)
        if known is None:
            has = [dict(spu.resources) for spu in self.described] if asked else []
            names = tuple(sorted({*asked, *(name for each in has for name in each)}))
            rows = [self.capacity_list, *([each.get(name, 0) for each in has] for name in names)]
            known = names, np.array(rows, dtype=np.int64), rows
            self._resources[asked] = known
        return known


def ring_field(state: ClusterState, ring: Ring, *, ignore_rack: bool) -> PlacementField:
    """The field of a topic without constraints; kept with the ring."""
    known = ring.kept.get(("field", ignore_rack))
    if isinstance(known, PlacementField):
        return known
    rules = rule_table(state, NO_CONSTRAINTS, ignore_rack=ignore_rack).alone
    places = [rules.table.labels.place[spu_id] for spu_id in ring.ids.tolist()]
    made = ring.kept["field", ignore_rack] = _field(rules, places, is_ruled=False)
    return made


def ruled_field(
    state: ClusterState, topic: str, constraints: Constraints, *, ignore_rack: bool
) -> PlacementField:
    """The field of a topic with constraints; kept with their table."""
    rules = topic_rules(state, topic, constraints, ignore_rack=ignore_rack)
    fields, key = rules.table.fields, (rules.allowed.tobytes(), rules.admitted.tobytes())
    known = fields.get(key)
    if isinstance(known, PlacementField):
        return known
    if len(fields) >= FIELDS_MAX:
        del fields[next(iter(fields))]
    made = fields[key] = _field(rules, np.flatnonzero(rules.allowed).tolist(), is_ruled=True)
    return made


def _field(rules: BoundRules, places: Sequence[int], *, is_ruled: bool) -> PlacementField:
    table = rules.table
    return PlacementField(
        table,
        places,
        [table.spus[place] for place in places],
        levels=[level.cells for level in table.levels],
        maxes=table.maxes,
        mins=rules.mins,
        is_ruled=is_ruled,
    )
