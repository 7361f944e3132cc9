"""The SPUs of a cluster by what rules read of them: labels, taints, and whether they are open.

A selector takes a comparison of arrays for each of its conditions, as clusters are large.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.constraints import Taint
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.base.selectors import RACK, Requirement, selector_of

SPU_ID: Final = "spu_id"  # labels that every SPU has: its id, and its rack, "" for none
ABSENT: Final = -1

Flags = NDArray[np.bool_]
Numbers = NDArray[np.signedinteger[Any]]


class SpuLabels:
    """Of these SPUs; arrays are by ascending id."""

    def __init__(self, spus: Collection[SpuChanged]) -> None:
        self.spus = sorted(spus, key=lambda spu: spu.spu_id)
        self.ids = np.array([spu.spu_id for spu in self.spus], dtype=np.int32)
        self.id_list: list[int] = self.ids.tolist()
        self.place = {spu_id: at for at, spu_id in enumerate(self.id_list)}  # of each id
        self.nobody: Flags = np.zeros(len(self.ids), dtype=np.bool_)
        self.open = np.array([s.online and not s.cordoned for s in self.spus], dtype=np.bool_)
        self.staying = np.array([not spu.leaving for spu in self.spus], dtype=np.bool_)
        self.demoted = np.array([spu.demoted for spu in self.spus], dtype=np.bool_)
        self.taints: dict[Taint, list[int]] = {}  # whose they are
        for place, spu in enumerate(self.spus):
            for taint in spu.taints:
                self.taints.setdefault(taint, []).append(place)
        # Of labels that were asked for: of each value its number, and of each SPU that of its own.
        self._numbers: dict[str, tuple[dict[str, int], Numbers]] = {}

    def holding(self, text: str) -> Flags:
        """The SPUs that a selector holds for."""
        found = np.ones(len(self.ids), dtype=np.bool_)
        for requirement in selector_of(text):
            found &= self._meeting(requirement)
        return found

    def groups(self, name: str) -> tuple[Numbers, int]:
        """Of each SPU the number of its value of a label, in order of value, and how many there
        are; an SPU without the label has the value ""."""
        number_of, numbers = self._numbered(name)
        if "" in number_of:  # It is the first.
            return np.maximum(numbers, 0), len(number_of)
        is_missing = bool((numbers == ABSENT).any())
        return numbers + is_missing, len(number_of) + is_missing

    @cached_property
    def _labels(self) -> list[dict[str, str]]:
        """What each SPU has."""
        return [
            {**dict(spu.labels), RACK: spu.rack or "", SPU_ID: str(spu.spu_id)} for spu in self.spus
        ]

    @cached_property
    def _names(self) -> set[str]:
        return {*chain.from_iterable(self._labels)}

    def _meeting(self, requirement: Requirement) -> Flags:
        if requirement.key not in self._names:
            return np.full(len(self.ids), not requirement.is_met_by_presence)
        number_of, numbers = self._numbered(requirement.key)
        if requirement.values is None:
            is_present: Flags = numbers != ABSENT
        else:
            is_wanted = np.zeros(len(number_of) + 1, dtype=np.bool_)  # absent: the last one
            is_wanted[[number_of[each] for each in requirement.values if each in number_of]] = True
            is_present = is_wanted[numbers]
        return is_present if requirement.is_met_by_presence else ~is_present

    def _numbered(self, name: str) -> tuple[dict[str, int], Numbers]:
        known = self._numbers.get(name)
        if known is None:
            values = [own.get(name) for own in self._labels]
            in_order = sorted({value for value in values if value is not None})
            number_of = {value: number for number, value in enumerate(in_order)}
            found = [ABSENT if value is None else number_of[value] for value in values]
            known = number_of, np.array(found, dtype=np.int64)
            if number_of:  # What no SPU has is not kept: there is no end of it.
                self._numbers[name] = known
        return known
