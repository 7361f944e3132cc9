"""Very many kinds of SPUs, such as racks of their own: compared in arrays, level by level."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import numpy as np
from spu_assigner.core.placement.eligibility import PlacementField
from spu_assigner.core.placement.preference import NEVER

KINDS_A_LOOK: Final = 16  # that take as long

Front = Callable[[int, Collection[int]], int]  # the key of the best SPU of a kind, none of these


class KindTable:
    """The kinds of a field, and the best SPU of each."""

    def __init__(self, field: PlacementField, front: Front) -> None:
        self.looks = len(field.kinds) // KINDS_A_LOOK  # of each place
        self._front, self._field = front, field
        self._cells = np.array([kind.cells for kind in field.kinds], dtype=np.int64).T.copy()
        self._weights = np.array([-kind.weight for kind in field.kinds], dtype=np.int64)
        self._maxes, self._mins = np.array(field.maxes), np.array(field.mins)
        # Of each kind no more than the key of its best SPU: what has risen is corrected in `best`.
        self._keys = np.array([front(kind, ()) for kind in range(len(field.kinds))], dtype=np.int64)

    def enter(self, kind: int, key: int) -> None:
        """A kind may have a better SPU than before."""
        self._keys[kind] = min(key, self._keys[kind])

    def best(self, cells: Collection[int], taken: Collection[int]) -> int:
        """The key of the best SPU, none of these, for a list with replicas in these cells; `NEVER`:
        there is none."""
        field, keys = self._field, self._keys.copy()
        counts = np.bincount(np.array(cells, dtype=np.int64), minlength=len(self._maxes))
        levels = counts[self._cells]
        if field.is_limited:
            keys[(levels >= self._maxes[self._cells]).any(axis=0)] = NEVER
        values = [*levels, self._weights] if field.most_weight else [*levels]
        if field.is_demanding:
            values.insert(0, -(levels < self._mins[self._cells]).sum(axis=0))
        left = np.flatnonzero(keys != NEVER)
        while len(left):
            tier = left
            for value in values:
                of_tier = value[tier]
                tier = tier[of_tier == of_tier.min()]
            while (entered := keys[kind := int(tier[keys[tier].argmin()])]) != NEVER:
                self._keys[kind] = self._front(kind, ())
                keys[kind] = found = self._front(kind, taken)
                if found == entered:
                    return found
            left = left[keys[left] != NEVER]
        return NEVER
