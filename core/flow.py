"""Even out units over SPUs at the least cost: a minimum-cost flow by successive shortest paths.

A *unit* (a replica, a leadership) is held by one SPU in one replica list (a *row*) and may pass to
another SPU there, for a cost: 1 if that SPU did not hold it at first, less 1 if the giver did not
either. So the cost of all that was passed is the number of units that are elsewhere now. Each SPU
has a band of counts. A path of transfers takes one unit from its first SPU and gives one to its
last; those between keep their counts.

Rules:
- First paths from SPUs above their band to SPUs below it, then from above to any with room, then
  from any that can spare one to below: so the distance outside the bands ends as small as can be.
- Always a path that costs no more than any other: so each number of paths has cost least in all.
  The least cost never falls from one path to the next, so any path found at that cost will do.
- Between bands a path may end at an SPU with room and go on at one that can spare a unit: the node
  `hub`, at no cost, stands for all that are within their band.
- Ties go to the SPU furthest outside its band, then to the lowest position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.ledger import CountArray

Positions = NDArray[np.signedinteger[Any]]  # shape (n,), positions of SPUs among those in question
Flags = NDArray[np.bool_]

FAR: Final = 2**40


class Pool(Protocol):
    """The units of one kind, who holds them, and who may take them."""

    def reach(self, giver: int) -> Iterator[tuple[int, Positions]]:
        """Costs, and who can take one of the giver's units at that cost."""

    def find(self, giver: int, taker: int, cost: int) -> int:
        """The first row in which that can be done."""

    def is_narrow(self, giver: int, taker: int) -> bool:
        """Whether two such transfers in one row might hinder each other."""

    def transfer(self, row: int, giver: int, taker: int) -> None:
        """Do it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """How many units each SPU is to hold: floors[i] … ceilings[i]."""

    floors: CountArray
    ceilings: CountArray


@dataclass(frozen=True, slots=True, kw_only=True)
class _Goal:
    """Between whom units are to pass; False: from or to the hub."""

    is_from_above: bool
    is_to_below: bool


_GOALS: Final = (
    _Goal(is_from_above=True, is_to_below=True),
    _Goal(is_from_above=True, is_to_below=False),
    _Goal(is_from_above=False, is_to_below=True),
)


def even_out(pool: Pool, counts: CountArray, bands: Bands) -> None:
    """Pass units until no SPU can be brought nearer to its band, with the fewest out of place.

    `counts` is brought up to date. Cost: about one visit of each SPU for each length of path, and
    one of each SPU on a path for each unit.
    """
    flow = _Flow(pool, counts, bands)
    for goal in _GOALS:
        flow.run(goal)


class _Flow:
    """The search for paths; node i is the SPU at position i, the last node is the hub."""

    def __init__(self, pool: Pool, counts: CountArray, bands: Bands) -> None:
        self._pool = pool
        self._counts = counts
        self._floors = bands.floors
        self._ceilings = bands.ceilings
        self._hub = len(counts)
        self._only_hub = np.array([self._hub])
        self._unit = self._hub + 2  # more than a path has steps

    def run(self, goal: _Goal) -> None:
        """Pass units along shortest paths until there is no path."""
        bound = -FAR
        while True:
            sources, targets = self._sources(goal), self._targets(goal)
            if len(sources) == 0 or len(targets) == 0:
                return
            distances = self._distances(sources, targets, bound)
            nearest = int(distances[targets].min())
            if nearest >= FAR:
                return
            bound = (nearest // self._unit + 1) * self._unit - 1
            self._pass_at(bound, goal, distances)

    def _sources(self, goal: _Goal) -> Positions:
        """Where units are to come from, the furthest above its band first."""
        if not goal.is_from_above:
            return self._only_hub
        excess = self._counts - self._ceilings
        above = np.flatnonzero(excess > 0)
        return above[np.argsort(-excess[above], kind="stable")]

    def _targets(self, goal: _Goal) -> Positions:
        return np.flatnonzero(self._counts < self._floors) if goal.is_to_below else self._only_hub

    def _steps(self, node: int) -> Iterator[tuple[int, Positions]]:
        """Where a path may go on to from a node, and the length of that step.

        Length is cost * unit + 1: of paths that cost the same, those with fewer steps come first.
        """
        if node == self._hub:
            can_spare = (self._counts > self._floors) & (self._counts <= self._ceilings)
            yield 1, np.flatnonzero(can_spare)
            return
        if self._floors[node] <= self._counts[node] < self._ceilings[node]:
            yield 1, self._only_hub
        for cost, takers in self._pool.reach(node):
            yield cost * self._unit + 1, takers

    def _distances(self, sources: Positions, targets: Positions, bound: int) -> CountArray:
        """How long a path from a source to each node is at least.

        Ends early once a target is as near as `bound`; other nodes may then be nearer than told.
        Lengths may be negative, but no circle is, since the units passed so far cost the least.
        """
        distances = np.full(self._hub + 1, FAR)
        distances[sources] = 0
        heap = [(0, node) for node in sources.tolist()]
        heapify(heap)
        while heap:
            distance, node = heappop(heap)
            if distance > distances[node]:
                continue
            for length, takers in self._steps(node):
                nearer = takers[distances[takers] > distance + length]
                distances[nearer] = distance + length
                for taker in nearer.tolist():
                    heappush(heap, (distance + length, taker))
            if distances[targets].min() <= bound:
                break
        return distances

    def _pass_at(self, bound: int, goal: _Goal, distances: CountArray) -> None:
        """Pass units along paths no longer than `bound`, until the distances show no more."""
        given_up = np.zeros(self._hub + 1, dtype=np.bool_)
        is_source = True
        while is_source:
            is_source = False
            for source in self._sources(goal).tolist():
                if given_up[source]:
                    continue
                is_target = np.zeros(self._hub + 1, dtype=np.bool_)
                is_target[self._targets(goal)] = True
                path = self._path(source, is_target, distances, given_up, bound)
                if path:
                    self._apply(path)
                    is_source = True

    def _path(
        self,
        source: int,
        is_target: Flags,
        distances: CountArray,
        given_up: Flags,
        bound: int,
        /,
    ) -> list[tuple[int, int, int]]:
        """Transfers (giver, taker, length) from the source to a target; empty: none was found.

        In depth first; nodes that lead nowhere are given up.
        """
        path: list[tuple[int, int, int]] = []
        given_up[source] = True  # also: on the path
        node, spent = source, 0
        options: list[Iterator[tuple[int, int, int]]] = []
        while True:
            steps = list(self._steps(node))
            last = self._last_step(steps, bound - spent, is_target)
            if last is not None:
                path.append((node, *last))
                given_up[[giver for giver, _, _ in path]] = False
                return path
            options.append(_onward(steps, spent, distances, given_up))
            following = next(options[-1], None)
            while following is None:
                options.pop()
                if not options:
                    return []
                node = path.pop()[0]
                following = next(options[-1], None)
            taker, length, spent = following
            path.append((node, taker, length))
            node = taker
            given_up[node] = True

    def _last_step(
        self, steps: list[tuple[int, Positions]], budget: int, is_target: Flags
    ) -> tuple[int, int] | None:
        """The target that one of the steps leads to within the budget, and its length."""
        for length, takers in steps:
            targets = takers[is_target[takers]]
            if length > budget or len(targets) == 0:
                continue
            if targets[0] == self._hub:
                return self._hub, length
            lack = self._floors[targets] - self._counts[targets]
            return int(targets[np.argmax(lack)]), length
        return None

    def _apply(self, path: list[tuple[int, int, int]]) -> None:
        """Pass one unit along the path."""
        rows = [
            -1
            if self._hub in (giver, taker)
            else self._pool.find(giver, taker, length // self._unit)
            for giver, taker, length in path
        ]
        transfers = [(row, giver, taker) for row, (giver, taker, _) in zip(rows, path, strict=True)]
        for row, giver, taker in self._shortened(transfers):
            if row >= 0:  # Steps to and from the hub pass nothing.
                self._pool.transfer(row, giver, taker)
                self._counts[giver] -= 1
                self._counts[taker] += 1

    def _shortened(self, path: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """The path without the detour between two transfers that might hinder each other.

        In the flow both go through the same node, so the way past it costs no more.
        """
        kept: list[tuple[int, int, int]] = []
        for row, giver, taker in path:
            narrow = row >= 0 and self._pool.is_narrow(giver, taker)
            for at, (row_before, giver_before, taker_before) in enumerate(kept):
                if (
                    narrow
                    and row_before == row
                    and self._pool.is_narrow(giver_before, taker_before)
                ):
                    kept[at:] = [(row, giver_before, taker)]
                    break
            else:
                kept.append((row, giver, taker))
        return kept


def _onward(
    steps: list[tuple[int, Positions]], spent: int, distances: CountArray, given_up: Flags
) -> Iterator[tuple[int, int, int]]:
    """Nodes not looked at yet that a shortest path may go on to: node, length of the
    step, length so far."""
    for length, takers in steps:
        fit = ~given_up[takers] & (spent + length <= distances[takers])
        for taker in takers[fit].tolist():
            if not given_up[taker]:  # It may have been since.
                yield taker, length, spent + length
