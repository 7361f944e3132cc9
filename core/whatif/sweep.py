"""All failures of a kind: each SPU, each pair of SPUs, each rack; how many are bad, and the worst.

Pairs are not gone through one by one. What two SPUs cost together is what each costs alone, less
what both hold, and that is counted for all pairs at once: a partition of R replicas lies in
R (R - 1) / 2 pairs. With a and b failed, a partition that a leads is led by the second of its list,
or by the third where the second is b; so the leaders afterwards are those before, plus what a hands
over, plus what b does, with a correction for each partition that begins with a and b.

Cost of pairs: O(partitions · R² + SPUs³ / 2), the second part as sums of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.replica_lists import PADDING, IdArray
from spu_assigner.core.whatif.failure import FailureAnalysis
from spu_assigner.core.whatif.layout import CountArray, FlagArray
from spu_assigner.core.whatif.resources import FloatArray

# What failures are compared by; the worst of all is the worst by the first, then by the next.
MEASURES: Final = (
    *("lost", "without_slot", "over_capacity"),
    *("leaders_lost", "under_replicated", "leaders_most"),
)
PAIR_SPUS_MAX: Final = 4_000  # of pairs: a minute and 200 MB; twice as many take eight times that
SMALL_CLUSTER_MAX: Final = 64  # SPUs, of whom all pairs may be gone through one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstByMeasure:
    """The worst failures by one measure."""

    measure: str
    """The attribute of `FailureOutcome` that is compared."""
    most: int
    """What the worst of them come to."""
    cases: int
    """How many cases come to the most."""
    failed: IdArray
    """SPUs of the first of them, by number; nothing where there is no case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSweep:
    """All failures of a kind."""

    cases: int
    """How many failures were looked at."""
    losing: int
    """Cases that lose a partition."""
    lacking_slots: int
    """Cases with more replicas to re-create than there is room for."""
    over_capacity: int
    """Cases whose failover puts an SPU over the capacity of a resource."""
    worst: tuple[WorstByMeasure, ...]
    """The worst cases by each measure."""
    failed: IdArray
    """SPUs of the worst of all, by number; nothing where there is no case."""


def sweep_spus(analysis: FailureAnalysis) -> FailureSweep:
    """The failure of each online SPU."""
    return _one_by_one(analysis, analysis.layout.numbers_online.reshape(-1, 1))


def sweep_racks(analysis: FailureAnalysis) -> FailureSweep:
    """The failure of each rack that has an online SPU, in the order of names."""
    members: dict[str, list[int]] = {}
    for number in analysis.layout.numbers_online.tolist():
        rack = analysis.layout.racks[number]
        if rack is not None:
            members.setdefault(rack, []).append(number)
    return _one_by_one(
        analysis, [np.array(members[rack], dtype=np.int32) for rack in sorted(members)]
    )


def sweep_pairs(analysis: FailureAnalysis) -> FailureSweep:
    """The failure of each two online SPUs, of which there are at most PAIR_SPUS_MAX."""
    online = analysis.layout.numbers_online
    first, second = np.triu_indices(len(online), k=1)
    pairs = np.stack((online[first], online[second]), axis=1)
    takers = int(np.count_nonzero(analysis.takers))
    if len(online) <= SMALL_CLUSTER_MAX and takers < analysis.layout.live.shape[1] + 2:
        return _one_by_one(analysis, pairs)  # There may be too few SPUs left for a list.
    return _sweep(_PairCounts(analysis).values(), pairs)


def _one_by_one(analysis: FailureAnalysis, cases: Sequence[IdArray] | IdArray) -> FailureSweep:
    values: dict[str, list[int]] = {name: [] for name in MEASURES}
    for failed in cases:
        outcome = analysis.outcome(failed)
        for name, known in values.items():
            known.append(getattr(outcome, name))
    return _sweep({name: np.array(known) for name, known in values.items()}, cases)


def _sweep(
    values: Mapping[str, NDArray[np.integer[Any]]], cases: Sequence[IdArray] | IdArray
) -> FailureSweep:
    """What the cases come to; the first of equally bad ones is named."""
    none = np.zeros(0, dtype=np.int32)
    worst = []
    candidates = np.arange(len(cases))
    for name in MEASURES:
        measured = values[name]
        most = int(measured.max(initial=0))
        failed = cases[int(measured.argmax())] if len(cases) else none
        count = int(np.count_nonzero(measured == most))
        worst.append(WorstByMeasure(measure=name, most=most, cases=count, failed=failed))
        among = measured[candidates]
        candidates = candidates[among == among.max(initial=0)]
    return FailureSweep(
        cases=len(cases),
        losing=int(np.count_nonzero(values["lost"])),
        lacking_slots=int(np.count_nonzero(values["without_slot"])),
        over_capacity=int(np.count_nonzero(values["over_capacity"])),
        worst=tuple(worst),
        failed=cases[int(candidates[0])] if len(cases) else none,
    )


class _PairCounts:
    """What each two online SPUs cost together; they are numbered among themselves here."""

    def __init__(self, analysis: FailureAnalysis) -> None:
        online = analysis.layout.numbers_online
        number_of = np.full(analysis.count + 1, PADDING, dtype=np.int32)  # the last: padding
        number_of[online] = np.arange(len(online), dtype=np.int32)
        self._count = len(online)
        self._live = number_of[analysis.layout.live]
        self._lengths = analysis.lengths
        self._leaders = analysis.leaders[online].astype(np.int32)
        self._held = analysis.held[online]
        self._free = None if analysis.free is None else analysis.free[online]
        self._resources = analysis.layout.resources
        self._used = None if analysis.used is None else analysis.used[:, online]
        self._online = online

    def values(self) -> dict[str, NDArray[np.integer[Any]]]:
        """By measure a value for each pair: (0, 1), (0, 2), …, (1, 2), …"""
        upper = np.triu_indices(self._count, k=1)
        first, second = upper
        held = self._held[first] + self._held[second]
        lost = self._lost()[upper]
        without_slot = np.zeros_like(held)
        if self._free is not None:
            slots = int(self._free.sum()) - self._free[first] - self._free[second]
            without_slot = np.maximum(held - slots, 0)
        return {
            "lost": lost,
            "without_slot": without_slot,
            "over_capacity": self._over_capacity(len(held)),
            "leaders_lost": self._leaders[first] + self._leaders[second],
            "under_replicated": held - self._shared()[upper] - lost,
            "leaders_most": self._leaders_most(),
        }

    def _lost(self) -> CountArray:
        """Partitions that lie on the two alone, or on one of them alone."""
        alone = np.bincount(self._live[self._lengths == 1, 0], minlength=self._count)
        lost = alone[:, None] + alone
        both = self._live[self._lengths == 2]
        if len(both):
            lost += self._square(both[:, 0], both[:, 1])
        return np.asarray(lost)

    def _shared(self) -> CountArray:
        """Partitions that both hold."""
        shared = np.zeros((self._count, self._count), dtype=np.int64)
        for left, right in combinations(range(self._live.shape[1]), 2):
            lists = self._live[self._lengths > right]
            shared += self._square(lists[:, left], lists[:, right])
        return shared

    def _square(self, left: IdArray, right: IdArray) -> CountArray:
        """How often each two occur side by side, in either order."""
        keys = left.astype(np.int64) * self._count + right
        square = np.bincount(keys, minlength=self._count**2).reshape(self._count, self._count)
        return np.asarray(square + square.T)

    def _leaders_most(self) -> IdArray:
        """The most that one of the others leads afterwards, for each pair."""
        count, live = self._count, self._live
        heirs = np.zeros((count, count), dtype=np.int32)  # [a, s]: what s gets of a, alone
        lists = live[self._lengths > 1]
        if len(lists):
            keys = lists[:, 0].astype(np.int64) * count + lists[:, 1]
            heirs = np.bincount(keys, minlength=count**2).astype(np.int32).reshape(count, count)
        _, upper, third, begins = self._thirds()
        rows = np.empty((count, count), dtype=np.int32)
        most = [np.zeros(0, dtype=np.int32)]
        for first in range(count - 1):
            others = count - 1 - first
            led = rows[:others]
            np.add(heirs[first + 1 :], self._leaders + heirs[first], out=led)
            these = slice(begins[first], begins[first + 1])
            np.add.at(led, (upper[these] - first - 1, third[these]), 1)
            led[:, first] = 0
            led[np.arange(others), np.arange(first + 1, count)] = 0
            most.append(led.max(axis=1))
        return np.concatenate(most)

    def _thirds(self) -> tuple[NDArray[np.integer[Any]], ...]:
        """The lists of three and more, by the lesser of their first two: which lists, the greater
        of the two, who is third, and where those of each lesser begin."""
        live = self._live
        chosen = np.flatnonzero(self._lengths > 2)
        thirds = live[chosen, :3] if live.shape[1] > 2 else live[:0, :1].repeat(3, 1)
        lower = thirds[:, :2].min(axis=1)
        order = np.argsort(lower, kind="stable")
        begins = np.searchsorted(lower[order], np.arange(self._count + 1))
        return chosen[order], thirds[order, :2].max(axis=1), thirds[order, 2], begins

    def _over_capacity(self, pairs: int) -> CountArray:
        """How many SPUs each pair's failover puts over the capacity of a resource."""
        found = np.zeros(pairs, dtype=np.int64)
        risks = list(self._risks())
        if not risks:
            return found
        count, begin = self._count, 0
        buffer = np.empty((count, count), dtype=np.bool_)
        for first in range(count - 1):
            others = count - 1 - first
            is_over = buffer[:others]
            is_over[:] = False
            for risk in risks:
                risk.note(first, is_over)
            is_over[:, first] = False
            is_over[np.arange(others), np.arange(first + 1, count)] = False
            found[begin : begin + others] = is_over.sum(axis=1)
            begin += others
        return found

    def _risks(self) -> Iterator[_Risk]:
        """The resources of which a pair's failover could put an SPU over its capacity."""
        resources, all_used = self._resources, self._used
        count, live = self._count, self._live
        if resources is None or all_used is None or live.shape[1] == 1:
            return
        has_heir = self._lengths > 1
        keys = live[has_heir, 0].astype(np.int64) * count + live[has_heir, 1]
        chosen, upper, third, begins = self._thirds()
        lower = np.repeat(np.arange(count), np.diff(begins))
        cells, cell_of = np.unique((lower * count + upper) * count + third, return_inverse=True)
        lower, upper, third = cells // count**2, cells // count % count, cells % count
        for row in np.flatnonzero(resources.lead.any(axis=1)).tolist():
            of_row, used = resources.lead[row][resources.topic_of], all_used[row]
            heirs = np.bincount(keys, weights=of_row[has_heir], minlength=count**2)
            heirs = heirs.reshape(count, count)
            weights = np.bincount(cell_of, weights=of_row[chosen], minlength=len(cells))
            room = np.maximum(resources.capacities[row, self._online] - used, 0.0)
            most = np.zeros(count)
            np.maximum.at(most, third, weights)
            # Who has room for the most of two, and of all that come third, need not be asked.
            columns = np.flatnonzero(most + 2 * heirs.max(axis=0, initial=0.0) > room)
            if not len(columns):
                continue
            at = np.full(count, PADDING)
            at[columns] = np.arange(len(columns))
            is_asked = at[third] != PADDING
            yield _Risk(
                columns=columns,
                room=room[columns],
                heirs=np.ascontiguousarray(heirs[:, columns]),
                begins=np.searchsorted(lower[is_asked], np.arange(count + 1)),
                upper=upper[is_asked],
                third=at[third[is_asked]],
                weights=weights[is_asked],
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Risk:
    """SPUs that may come to be over their capacity of one resource."""

    columns: CountArray  # which SPUs; numbered among themselves below
    room: FloatArray  # how much more each can take
    heirs: FloatArray  # [a, s]: what s takes more when a fails, alone
    # What the third of lists takes when both before it fail: where that of each lesser of the two
    # begins, the greater, the third, how much.
    begins: CountArray
    upper: CountArray
    third: CountArray
    weights: FloatArray

    def note(self, first: int, is_over: FlagArray) -> None:
        """Note who is over when `first` fails, and one behind it; shape (those behind, SPUs)."""
        room = self.room - self.heirs[first]
        exceeds = self.heirs[first + 1 :] > room
        these = slice(self.begins[first], self.begins[first + 1])
        upper, third = self.upper[these], self.third[these]
        taken = self.heirs[upper, third] + self.weights[these]
        exceeds[upper - first - 1, third] = taken > room[third]
        if len(self.columns) == is_over.shape[1]:
            np.logical_or(is_over, exceeds, out=is_over)
        elif exceeds.any():  # Else nothing needs to be scattered, which takes long.
            is_over[:, self.columns] |= exceeds
