"""Even out units over SPUs at the least cost: a minimum-cost flow by successive shortest paths.

A *unit* (a replica, a leadership) is held by one SPU in one replica list (a *row*) and may pass to
another SPU there, for a cost: 1 if that SPU did not hold it at first, less 1 if the giver did not
either. So the cost of all that was passed is the number of units that are elsewhere now. Each SPU
has a band of counts. A path of transfers takes one unit from its first SPU and gives one to its
last; those between keep their counts.

Rules:
- Paths are between any two SPUs, as long as one makes the sum of the squared distances outside the
  bands smaller: what cannot be evened out is shared evenly. Of these always one that makes the sum
  the least, and of those one that costs no more than any other. Without a circle of transfers that
  costs less than nothing, which such paths never make, the end is the least sum at the least cost.
- The first paths go in one step, at cost 1: nothing was passed, so none costs less. Most units pass
  so, and the pool finds such paths for many at once (`deal`).
- In one search an SPU that is the first of some paths and the last of others counts as if it were
  two, with the counts it had before: that costs no less than the truth, since the squares are
  convex. So another search follows, until one finds nothing.
- Ties go to the SPU furthest outside its band, then to the lowest position.

Source: Ahuja, Magnanti, Orlin, "Network Flows", 1993, sections 9.7 (successive shortest paths) and
14.5 (convex costs).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.state.ledger import CountArray

Positions = NDArray[np.signedinteger[Any]]  # shape (n,), positions of SPUs among those in question
Flags = NDArray[np.bool_]

FAR: Final = 2**60
LOOK: Final = 200  # what a look at an SPU costs, beside one for each of its units,
SPUS_A_LOOK: Final = 32  # one for so many SPUs,
SPUS_A_PATH: Final = 8  # and one for so many SPUs for each path


class Pool(Protocol):
    """The units of one kind, who holds them, and who may take them."""

    def reach(self, giver: int) -> Iterator[tuple[int, Positions]]:
        """Costs, and who can take one of the giver's units at that cost."""

    def find(self, giver: int, taker: int, cost: int) -> int:
        """The first row in which that can be done."""

    def deal(self, excess: CountArray, lack: CountArray) -> CountArray:
        """Pass units at cost 1 that nobody has passed yet, each in one step from an SPU with an
        excess to one with a lack, as long as that goes fast; how many more each SPU has then."""

    def is_narrow(self, row: int, giver: int, taker: int) -> bool:
        """Whether two such transfers in this row might hinder each other."""

    def transfer(self, row: int, giver: int, taker: int) -> None:
        """Do it."""


AnyPool = TypeVar("AnyPool", bound=Pool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """How many units each SPU is to hold: floors[i] … ceilings[i]; it takes none at limits[i]."""

    floors: CountArray
    ceilings: CountArray
    limits: CountArray

    def wider(self, width: int) -> Bands:
        """Bands that are wider by this on either side, but never above the limits."""
        ceilings = np.minimum(self.ceilings + width, self.limits)
        return Bands(floors=self.floors - width, ceilings=ceilings, limits=self.limits)

    def moves(self, counts: CountArray) -> int:
        """How many units have to pass at least to bring all into their bands."""
        above, below = counts - self.ceilings, self.floors - counts
        return max(int(above.clip(min=0).sum()), int(below.clip(min=0).sum()))

    def widest(self, counts: CountArray, *, moves: int) -> Bands:
        """The widest bands into which it takes no fewer moves than that."""
        low, high = 0, int(counts.max()) + 1
        while high - low > 1:
            width = (low + high) // 2
            if self.wider(width).moves(counts) >= moves:
                low = width
            else:
                high = width
        return self.wider(low)


@dataclass(frozen=True, slots=True)
class Evened(Generic[AnyPool]):
    """What came of it."""

    pool: AnyPool  # after the transfers
    counts: CountArray  # likewise
    is_cut: bool  # it ended before nothing was left to do


def even_out(pool: AnyPool, counts: CountArray, bands: Bands, *, looks_max: int) -> Evened[AnyPool]:
    """Pass units until no SPU can be brought nearer to its band, with the fewest out of place.

    Cost: about one visit of each SPU for each length of path, and one of each SPU on a path for
    each unit. After `looks_max` it ends with what has been passed.
    """
    flow = _Flow(pool, counts, bands, looks_max)
    flow.deal()
    while flow.run():
        pass
    return Evened(pool, flow.counts, flow.is_cut)


class _Flow:
    """The search for paths; node i is the SPU at position i."""

    def __init__(self, pool: Pool, counts: CountArray, bands: Bands, looks: int) -> None:
        self.counts = counts.copy()
        self.looks_left = looks
        self._pool = pool
        self._floors, self._ceilings = bands.floors, bands.ceilings
        self._limits = np.maximum(bands.limits, counts)
        self._spus = len(counts)
        self._unit = 2 * self._spus + 4  # more than twice the steps of any path
        self._given = np.zeros_like(counts)  # as the first of a path
        self._taken = np.zeros_like(counts)  # as the last

    @property
    def is_cut(self) -> bool:
        """Whether it has used up its looks."""
        return self.looks_left <= 0

    def deal(self) -> None:
        """Pass what takes one step, while nothing was passed: from above to below, then what is
        left above to any with room, or what is left below from any that can spare one."""
        above, below = self._outside_by()
        self.counts += self._pool.deal(above, below)
        above, below = self._outside_by()
        if above.any() and not below.any():
            room = (self._ceilings - self.counts).clip(min=0)
            self.counts += self._pool.deal(above, room)
        elif below.any() and not above.any():
            spare = (self.counts - self._floors).clip(min=0)
            self.counts += self._pool.deal(spare, below)

    def _outside_by(self) -> tuple[CountArray, CountArray]:
        """How far each SPU is above its band, and below it."""
        above, below = self.counts - self._ceilings, self._floors - self.counts
        return above.clip(min=0), below.clip(min=0)

    def run(self) -> bool:
        """Pass units along shortest paths between any two SPUs until none makes the sum of squares
        smaller; whether any passed."""
        self._given[:] = self._taken[:] = 0
        bound = -FAR
        while True:
            starts, ends = self._terminals()
            distances = self._distances(starts, ends, bound)
            cost = int((distances + ends).min()) // self._unit
            if self.is_cut or cost >= 0:
                return bool(self._given.any()) and not self.is_cut
            bound = (cost + 1) * self._unit - 1
            self._pass_at(bound, distances)

    def _terminals(self) -> tuple[CountArray, CountArray]:
        """What it adds to a path's length to start, or end, at each node; FAR: it cannot."""
        first = self.counts + self._given - self._taken
        low, high = first - self._given, first + self._taken
        weight = self._unit * self._unit
        starts = weight * (self._penalties(low - 1) - self._penalties(low))
        ends = weight * (self._penalties(high + 1) - self._penalties(high))
        return starts, np.where(high < self._limits, ends, FAR)

    def _penalties(self, counts: CountArray) -> CountArray:
        """The square of the distance outside the band."""
        outside = np.maximum(0, np.maximum(self._floors - counts, counts - self._ceilings))
        return np.asarray(outside * outside)

    def _steps(self, node: int) -> Iterator[tuple[int, Positions]]:
        """Where a path may lead to from a node, and the length of that step.

        Length is cost * unit + 1: of paths that cost the same, those with fewer steps come first.
        """
        self.looks_left -= LOOK + self._spus // SPUS_A_LOOK
        self.looks_left -= int(self.counts[node])
        for cost, takers in self._pool.reach(node):
            yield cost * self._unit + 1, takers

    def _distances(self, starts: CountArray, ends: CountArray, bound: int) -> CountArray:
        """How long a path to each node is at least.

        Ends early once a whole path is no longer than `bound`, or none can be shorter than one that
        was found; other nodes may then be nearer than that. Lengths may be negative, but no circle
        is, since the units passed so far cost the least.
        """
        distances = starts.copy()
        heap = [(start, node) for node, start in enumerate(starts.tolist()) if start < FAR]
        heapify(heap)
        targets = np.flatnonzero(ends < FAR)
        if len(targets) == 0:
            return distances
        ends = ends[targets]
        least_rest = int(ends.min()) - self._unit * self._unit // 2
        best = FAR
        while heap and not self.is_cut:
            distance, node = heappop(heap)
            if distance > distances[node]:
                continue
            if distance + least_rest > best:
                break
            for length, takers in self._steps(node):
                nearer = takers[distances[takers] > distance + length]
                distances[nearer] = distance + length
                for taker in nearer.tolist():
                    heappush(heap, (distance + length, taker))
            best = int((distances[targets] + ends).min())
            if best <= bound:
                break
        return distances

    def _pass_at(self, bound: int, distances: CountArray) -> None:
        """Pass units along paths no longer than `bound`, until the distances show no more."""
        given_up = np.zeros(self._spus, dtype=np.bool_)
        has_passed = True
        while has_passed:
            has_passed = False
            starts, ends = self._terminals()
            for source in self._sources(starts, ends, bound, distances):
                if self.is_cut:
                    return
                self.looks_left -= self._spus // SPUS_A_PATH
                if given_up[source] or starts[source] > distances[source]:
                    continue
                path = self._path(source, (starts, ends), distances, given_up, bound)
                if path:
                    self._apply(path)
                    has_passed = True
                    starts, ends = self._terminals()

    def _sources(
        self, starts: CountArray, ends: CountArray, bound: int, distances: CountArray, /
    ) -> list[int]:
        """Where paths may start, the furthest above its band first."""
        least_rest = int(ends.min()) - self._unit * self._unit // 2
        fit = (starts < FAR) & (starts <= distances) & (starts + least_rest <= bound)
        sources = np.flatnonzero(fit)
        excess = (self.counts - self._ceilings)[sources]
        found: list[int] = sources[np.argsort(-excess, kind="stable")].tolist()
        return found

    def _path(
        self,
        source: int,
        terminals: tuple[CountArray, CountArray],
        distances: CountArray,
        given_up: Flags,
        bound: int,
        /,
    ) -> list[tuple[int, int, int]]:
        """Transfers (giver, taker, length) from the source to a target; empty: none was found.

        In depth first; nodes that lead nowhere are given up.
        """
        starts, ends = terminals
        path: list[tuple[int, int, int]] = []
        given_up[source] = True  # also: on the path
        node, spent = source, int(starts[source])
        options: list[Iterator[tuple[int, int, int]]] = []
        while not self.is_cut:
            steps = list(self._steps(node))
            last = self._last_step(steps, bound - spent, ends)
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
        return []

    def _last_step(
        self, steps: list[tuple[int, Positions]], budget: int, ends: CountArray
    ) -> tuple[int, int] | None:
        """The target that one of the steps leads to within the budget, and its length."""
        for length, takers in steps:
            targets = takers[ends[takers] <= budget - length]
            if len(targets) == 0:
                continue
            lack = self._floors[targets] - self.counts[targets]
            return int(targets[np.argmax(lack)]), length
        return None

    def _apply(self, path: list[tuple[int, int, int]]) -> None:
        """Pass one unit along the path."""
        rows = [
            self._pool.find(giver, taker, length // self._unit) for giver, taker, length in path
        ]
        transfers = [(row, giver, taker) for row, (giver, taker, _) in zip(rows, path, strict=True)]
        self._given[path[0][0]] += 1
        self._taken[path[-1][1]] += 1
        for row, giver, taker in self._shortened(transfers):
            self._pool.transfer(row, giver, taker)
            self.counts[giver] -= 1
            self.counts[taker] += 1

    def _shortened(self, path: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """The path without the detour between two transfers that might hinder each other.

        In the flow both go through the same node, so the way past it costs no more.
        """
        kept: list[tuple[int, int, int]] = []
        for row, giver, taker in path:
            narrow = self._pool.is_narrow(row, giver, taker)
            for at, (row_before, giver_before, taker_before) in enumerate(kept):
                if (
                    narrow
                    and row_before == row
                    and self._pool.is_narrow(row, giver_before, taker_before)
                ):
                    kept[at:] = [(row, giver_before, taker)]
                    break
            else:
                kept.append((row, giver, taker))
        return kept


def _onward(
    steps: list[tuple[int, Positions]], spent: int, distances: CountArray, given_up: Flags
) -> Iterator[tuple[int, int, int]]:
    """The next nodes of a shortest path, not looked at yet: node, length of the step, length so
    far."""
    for length, takers in steps:
        fit = ~given_up[takers] & (spent + length <= distances[takers])
        for taker in takers[fit].tolist():
            if not given_up[taker]:  # It may have been since.
                yield taker, length, spent + length
