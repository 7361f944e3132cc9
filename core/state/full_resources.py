"""Which resources of which SPUs are used up.

Measuring is put off, as counting in the ledger: a topic of P partitions takes of an SPU at most P
times what one replica needs. So as long as the smallest amount that is left of a resource, less
all that came since it was measured, stays above 0, nobody has used up anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Final

import numpy as np
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.limits import RESOURCES_MAX
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.base.resources import Need
from spu_assigner.core.state.resource_use import FloatArray, ResourceUse

_Full = tuple[SpuId, str]  # an SPU, and a resource of which it has nothing left
_NO_LIMIT: Final = 2.0**62


class FullResources:
    """What SPUs have of resources beside what is used, as far as one is used up.

    Only of resources that an SPU announces; whether or not it is online.
    """

    __slots__ = ("_described", "_full", "_left", "_spus", "_table", "_use", "is_stale")

    def __init__(self, spus: Mapping[SpuId, SpuChanged], use: ResourceUse) -> None:
        """`spus` and `use` are those of the state, which change."""
        self._spus, self._use = spus, use
        self._full: set[_Full] = set()
        # No SPU that has something left has less than this; None: unknown, measure.
        self._left: dict[str, float] | None = {}
        self._described: set[SpuId] = set()  # since the last look
        self._table: tuple[list[SpuId], tuple[str, ...], FloatArray] | None = None
        self.is_stale = False  # something may have changed since the last look

    def describe(self, spu_id: SpuId) -> None:
        """Note that an SPU has other amounts, or is gone."""
        self._described.add(spu_id)
        self._table = None
        self.is_stale = True

    def add(self, partitions: int, need: Need) -> None:
        """Note that a topic is counted."""
        left = self._left
        if left is None:
            return
        for name, follower, leader in need.by_name():
            most = follower if follower > leader else leader
            left[name] = rest = left.get(name, _NO_LIMIT) - partitions * most
            if rest <= 0:
                self._left, self.is_stale = None, True
                return

    def subtract(self) -> None:
        """Note that a topic is taken out of the count again."""
        if self._full:
            self._left, self.is_stale = None, True

    def look(self) -> list[tuple[SpuId, str, bool]]:
        """What has changed since the last look: SPU, resource, whether it is used up now.

        Nothing of SPUs that are gone.
        """
        before = set(self._full)
        if self._left is None:
            self._full, self._left = self._measured()
        else:
            self._full = {each for each in before if each[0] not in self._described}
            for spu_id in sorted(self._described & self._spus.keys()):
                self._measure(self._spus[spu_id], self._left)
        self._described.clear()
        self.is_stale = False
        changed = sorted(before ^ self._full)
        return [(*each, each in self._full) for each in changed if each[0] in self._spus]

    def largest_shares(self) -> dict[str, float]:
        """Of the resources of which an SPU has used the most, the largest share of one; by name."""
        ids, names, capacities = self._capacities()
        if not names:
            return {}
        used = self._use.of_each(np.array(ids, dtype=np.int32), names)
        shares = np.divide(used, capacities, out=np.zeros_like(used), where=capacities > 0)
        largest = zip(names, shares.max(axis=1, initial=0.0).tolist(), strict=True)
        return dict(sorted(sorted(largest, key=itemgetter(1), reverse=True)[:RESOURCES_MAX]))

    def _measure(self, spu: SpuChanged, left: dict[str, float]) -> None:
        used = self._use.of(spu.spu_id)
        for name, capacity in spu.resources:
            rest = capacity - used.get(name, 0)
            if rest <= 0:
                self._full.add((SpuId(spu.spu_id), name))
            else:
                left[name] = min(left.get(name, _NO_LIMIT), rest)

    def _measured(self) -> tuple[set[_Full], dict[str, float]]:
        ids, names, capacities = self._capacities()
        left = capacities - self._use.of_each(np.array(ids, dtype=np.int32), names)
        rows, columns = np.nonzero(left <= 0)
        full = {
            (ids[at], names[row]) for row, at in zip(rows.tolist(), columns.tolist(), strict=True)
        }
        left[left <= 0] = _NO_LIMIT
        return full, dict(zip(names, left.min(axis=1, initial=_NO_LIMIT).tolist(), strict=True))

    def _capacities(self) -> tuple[list[SpuId], tuple[str, ...], FloatArray]:
        """SPUs, names, and what each SPU has of each; shape (names, SPUs)."""
        if self._table is None:
            held = {spu_id: dict(spu.resources) for spu_id, spu in sorted(self._spus.items())}
            names = tuple(sorted({name for each in held.values() for name in each}))
            rows = [[each.get(name, _NO_LIMIT) for each in held.values()] for name in names]
            amounts = np.array(rows, dtype=np.float64).reshape(len(names), len(held))
            self._table = list(held), names, amounts
        return self._table
