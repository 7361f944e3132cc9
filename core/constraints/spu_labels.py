"""The labels of the SPUs of a cluster, label by label: which SPUs a selector holds for, and how a
level groups them.

To ask each SPU about each selector would take seconds on a large cluster. Here a selector takes a
comparison of arrays for each of its conditions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.base.selectors import RACK, Requirement, selector_of

SPU_ID: Final = "spu_id"  # labels that every SPU has: its id, and its rack, "" for none
ABSENT: Final = -1

Flags = NDArray[np.bool_]
Numbers = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, slots=True)
class _Label:
    number_of: Mapping[str, int]  # of each value, in order of value
    numbers: Numbers  # of each SPU: that of its value, or `ABSENT`


class SpuLabels:
    """Of these SPUs; arrays are by ascending id."""

    def __init__(self, spus: Collection[SpuChanged]) -> None:
        self.spus = sorted(spus, key=lambda spu: spu.spu_id)
        self.ids = np.array([spu.spu_id for spu in self.spus], dtype=np.int32)
        self._places: dict[str, dict[str, list[int]]] = {}  # by label and value
        for place, spu in enumerate(self.spus):
            own = {**dict(spu.labels), RACK: spu.rack or "", SPU_ID: str(spu.spu_id)}
            for name, value in own.items():
                self._places.setdefault(name, {}).setdefault(value, []).append(place)
        self.staying = np.fromiter((not spu.leaving for spu in self.spus), dtype=np.bool_)
        self.tainted = [place for place, spu in enumerate(self.spus) if spu.taints]
        self._labels: dict[str, _Label] = {}  # those that were asked for

    def holding(self, text: str) -> Flags:
        """The SPUs that a selector holds for."""
        found = np.ones(len(self.ids), dtype=np.bool_)
        for requirement in selector_of(text).requirements:
            found &= self._meeting(requirement)
        return found

    def groups(self, name: str) -> tuple[Numbers, int]:
        """Of each SPU the number of its value of a label, in order of value, and how many there
        are; an SPU without the label has the value ""."""
        label = self._label(name)
        if "" in label.number_of:  # It is the first.
            return np.maximum(label.numbers, 0), len(label.number_of)
        is_missing = bool((label.numbers == ABSENT).any())
        return label.numbers + is_missing, len(label.number_of) + is_missing

    def _meeting(self, requirement: Requirement) -> Flags:
        if requirement.key not in self._places:
            return np.full(len(self.ids), not requirement.is_met_by_presence)
        label = self._label(requirement.key)
        if requirement.values is None:
            is_present: Flags = label.numbers != ABSENT
        else:
            is_wanted = np.zeros(len(label.number_of) + 1, dtype=np.bool_)  # absent: the last one
            for value in requirement.values:
                if value in label.number_of:
                    is_wanted[label.number_of[value]] = True
            is_present = is_wanted[label.numbers]
        return is_present if requirement.is_met_by_presence else ~is_present

    def _label(self, name: str) -> _Label:
        known = self._labels.get(name)
        if known is None:
            places = self._places.get(name, {})
            numbers = np.full(len(self.ids), ABSENT, dtype=np.int64)
            number_of = {value: number for number, value in enumerate(sorted(places))}
            for value, number in number_of.items():
                numbers[places[value]] = number
            known = _Label(number_of, numbers)
            if places:  # What no SPU has is not kept: there is no end of it.
                self._labels[name] = known
        return known
