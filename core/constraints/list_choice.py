"""The best list of SPUs under rules: a search through lists, of which the first is mostly the best.

The score of a list, the smaller the better, level by level:
1. for each level, the outermost first: the pairs of replicas in one group, so that a list is as
   even over the groups as can be;
2. less the weights of what is preferred;
3. the rank of the best leader: the first selector of `leaders` that an SPU of the list meets.

A list is built SPU by SPU, each the one that adds the least, then the one with the lowest dominant
share, then the lowest id. Where levels are nested that gives the best score for 1 and 2: the groups
form a tree, the costs are convex (a laminar matroid; Federgruen and Groenevelt, as in `balanced`).
For 3 each SPU that could lead better is tried as the first. Where levels cross, a branch and bound
search looks for a better one, through at most SEARCH_STEPS_MAX partial lists.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spu_assigner.core.constraints.rule_table import RuleTable

SEARCH_STEPS_MAX: Final = 20_000  # partial lists looked at for one request; some 0.2 s

Score = tuple[int, ...]
Row = list[int]  # places in the table
Load = Callable[[int], int]  # the smaller, the better


@dataclass(slots=True)
class Steps:
    """How many partial lists a request may still look at."""

    left: int = SEARCH_STEPS_MAX


@dataclass(slots=True)
class SpuKind:
    """SPUs that are alike to the rules."""

    groups: tuple[int, ...]  # at each level
    weight: int
    rank: int  # as a leader; of those that may not lead behind all others
    apart: int  # what else tells them from others
    members: list[tuple[int, int]]  # load and place, ascending


class ListChoice:
    """Chooses lists among SPUs with room; where there is none it says so by None.

    `load` decides between SPUs that are alike to the rules. `barred` SPUs (a bit for each) may not
    lead. `apart` tells SPUs apart that are alike to the rules but not to who accepts lists.
    """

    def __init__(
        self,
        table: RuleTable,
        able: Iterable[int],
        load: Load,
        barred: int,
        apart: Load | None = None,
    ) -> None:
        self._table = table
        self._barred = barred
        self._last_rank = 1 + max(table.ranks, default=0)
        kinds: dict[tuple[tuple[int, ...], int, int, int], SpuKind] = {}
        self._kind_of: dict[int, SpuKind] = {}
        for place in able:
            groups = tuple([level.groups[place] for level in table.levels])
            other = 0 if apart is None else apart(place)
            key = groups, table.weights[place], self._rank(place), other
            kind = kinds.get(key)
            if kind is None:
                kind = kinds[key] = SpuKind(*key, [])
            kind.members.append((load(place), place))
            self._kind_of[place] = kind
        for kind in kinds.values():
            kind.members.sort()
        self._kinds = sorted(kinds.values(), key=_by_rules)
        self._first_rank = min((kind.rank for kind in self._kinds), default=self._last_rank)
        self._maxes = [level.max for level in table.levels]

    def reload(self, place: int, before: int, after: int | None) -> None:
        """Let an SPU have another load; None: no room any more."""
        members = self._kind_of[place].members
        members.remove((before, place))
        if after is not None:
            insort(members, (after, place))

    def best(self, base: Sequence[int], length: int, steps: Steps) -> Row | None:
        """The best list of this length that begins with `base`, whichever SPUs those are.

        The others are in the order in which they were chosen. None: there is none, or none was
        found in so many steps.
        """
        found = self._greedy(base, length, None)
        best_rank = min(self._first_rank, self._last_rank - 1)
        if found is not None and self._leading_rank(found) > best_rank:
            found = self._led_better(base, length, found)
        if self._table.is_nested:
            return found
        return self.search(base, length, found, lambda _: True, steps)

    def score(self, row: Sequence[int]) -> Score:
        """What lists are compared by."""
        return (*self._upper_score(row), self._leading_rank(row))

    def _rank(self, place: int) -> int:
        return self._last_rank if self._barred >> place & 1 else self._table.ranks[place]

    def _leading_rank(self, row: Sequence[int]) -> int:
        return min(map(self._rank, row))

    def _upper_score(self, row: Sequence[int]) -> Score:
        pairs = []
        for level in self._table.levels:
            counts: dict[int, int] = {}
            cost = 0
            for place in row:
                group = level.groups[place]
                known = counts.get(group, 0)
                cost += known
                counts[group] = known + 1
            pairs.append(cost)
        return (*pairs, -sum([self._table.weights[place] for place in row]))

    def _counted(self, row: Sequence[int]) -> list[dict[int, int]]:
        """How many of a list are in each group, at each level."""
        counts: list[dict[int, int]] = [{} for _ in self._table.levels]
        for place in row:
            for level, of_level in zip(self._table.levels, counts, strict=True):
                group = level.groups[place]
                of_level[group] = of_level.get(group, 0) + 1
        return counts

    def _marginal(self, kind: SpuKind, counts: list[dict[int, int]]) -> list[int] | None:
        """What one more of a kind adds at each level, less its weight; None: a level is full."""
        costs = []
        for group, of_level, most in zip(kind.groups, counts, self._maxes, strict=True):
            count = of_level.get(group, 0)
            if most is not None and count >= most:
                return None
            costs.append(count)
        costs.append(-kind.weight)
        return costs

    def _greedy(self, base: Sequence[int], length: int, first: int | None) -> Row | None:
        row = [*base] if first is None else [*base, first]
        counts = self._counted(row)
        heads = [0] * len(self._kinds)
        while len(row) < length:
            best: tuple[list[int], tuple[int, int], int] | None = None
            for number, kind in enumerate(self._kinds):
                members = kind.members
                while heads[number] < len(members) and members[heads[number]][1] in row:
                    heads[number] += 1
                if heads[number] == len(members):
                    continue
                costs = self._marginal(kind, counts)
                if costs is not None:
                    option = costs, members[heads[number]], number
                    if best is None or option < best:
                        best = option
            if best is None:
                return None
            row.append(best[1][1])
            for group, of_level in zip(self._kinds[best[2]].groups, counts, strict=True):
                of_level[group] = of_level.get(group, 0) + 1
        return row

    def _led_better(self, base: Sequence[int], length: int, found: Row) -> Row | None:
        """A list as good at the levels above, of which a better leader is a member.

        Where nobody in the list may lead: the best of those with one who may.
        """
        leads = self._leading_rank(found) < self._last_rank
        best = found if leads else None
        for kind in self._kinds:
            if kind.rank >= (self._leading_rank(found) if leads else self._last_rank):
                continue
            first = next((place for _, place in kind.members if place not in base), None)
            trial = None if first is None else self._greedy(base, length, first)
            if trial is not None and (best is None or self.score(trial) < self.score(best)):
                best = trial
        return best

    def search(
        self,
        base: Sequence[int],
        length: int,
        found: Row | None,
        accept: Callable[[Row], bool],
        steps: Steps,
    ) -> Row | None:
        """The best list that is accepted, if it is better than the one that was found."""
        best, bound = found, None if found is None else self.score(found)
        taken = set(base)
        members = [
            [place for _, place in kind.members if place not in taken] for kind in self._kinds
        ]
        # Partial lists, each with the number of its last kind and how many of that it has.
        stack: list[tuple[Row, int, int]] = [([*base], 0, 0)]
        while stack and steps.left:
            steps.left -= 1
            row, kind_number, used = stack.pop()
            if bound is not None and self._least(row, length) >= bound:
                continue
            if len(row) == length:
                if self._leading_rank(row) < self._last_rank and accept(row):
                    best, bound = row, self.score(row)
                continue
            counts = self._counted(row)
            options = []
            for number in range(kind_number, len(self._kinds)):
                start = used if number == kind_number else 0
                costs = self._marginal(self._kinds[number], counts)
                if start < len(members[number]) and costs is not None:
                    options.append((costs, number, start))
            # The most promising is on top.
            for _, number, start in sorted(options, reverse=True):
                stack.append(([*row, members[number][start]], number, start + 1))
        return best

    def _least(self, row: Row, length: int) -> Score:
        """A bound: no list of this length that begins so scores less."""
        missing = length - len(row)
        upper = list(self._upper_score(row)) if row else [0] * (len(self._table.levels) + 1)
        for number, (level, of_level) in enumerate(
            zip(self._table.levels, self._counted(row), strict=True)
        ):
            left, cost = missing, 0
            while left:
                room = level.size - sum(count > cost for count in of_level.values())
                upper[number] += cost * min(left, room)
                left -= min(left, room)
                cost += 1
        if missing:
            upper[-1] -= missing * max(kind.weight for kind in self._kinds)
        rank = min(map(self._rank, row), default=self._last_rank)
        return (*upper, min(rank, self._first_rank) if missing else rank)


def _by_rules(kind: SpuKind) -> tuple[tuple[int, ...], int, int, int]:
    return kind.groups, -kind.weight, kind.rank, kind.apart
