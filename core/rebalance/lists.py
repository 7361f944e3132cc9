"""The lists of all topics that a rebalance may change, one below the other, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix, stacked
from spu_assigner.core.state.ledger import CountArray, Loads


@dataclass(frozen=True, slots=True, kw_only=True)
class ListMove:
    """One replica goes from one SPU to another."""

    topic: int  # index among the topics that were given
    partition: int
    gone: int
    taken: int


class Step(NamedTuple):
    """A replica goes from one SPU to another, or a lead within its list; SPUs by position."""

    row: int
    giver: int
    taker: int
    is_lead: bool = False


@dataclass(slots=True)
class ClusterLists:
    """Arrays of one row for each list; SPUs that take part have positions 0 … n-1."""

    topics: IdArray  # ascending
    ids: IdMatrix  # padded with -1
    places: IdMatrix  # positions; n for members that take no part and for padding
    racks: IdMatrix  # of the members at first, -1 for padding
    rack_of: CountArray  # of each position, 0 … without gaps; other racks come behind these

    @classmethod
    def of(cls, topics: Sequence[IdMatrix], loads: Loads, racks: Mapping[int, int]) -> ClusterLists:
        """Those of these topics. The SPUs of `loads` take part; `racks` are those of all SPUs."""
        ids = stacked(topics)
        found = np.minimum(np.searchsorted(loads.ids, ids), len(loads.ids) - 1)
        own = [racks[i] for i in loads.ids.tolist()]
        known, rack_of = np.unique(own, return_inverse=True)
        number_of = {rack: number for number, rack in enumerate(known.tolist())}
        every = np.unique(ids[ids >= 0])
        numbers = [number_of.setdefault(racks[i], len(number_of)) for i in every.tolist()]
        at = np.where(ids >= 0, np.searchsorted(every, ids), len(every))
        return cls(
            topics=np.repeat(np.arange(len(topics), dtype=np.int32), list(map(len, topics))),
            ids=ids,
            places=np.where(loads.ids[found] == ids, found, len(loads.ids)).astype(np.int32),
            racks=np.array([*numbers, -1], dtype=np.int32)[at],
            rack_of=rack_of,
        )

    @property
    def spus(self) -> int:
        """How many take part."""
        return len(self.rack_of)

    @property
    def is_movable(self) -> NDArray[np.bool_]:
        """Which members take part."""
        return np.asarray(self.places < self.spus)

    def members(self, row: int) -> list[int]:
        """The ids of a list."""
        return [spu_id for spu_id in self.ids[row].tolist() if spu_id >= 0]

    def move(self, step: Step, taken: int) -> ListMove:
        """Let the taker, which has this id, have the giver's place."""
        row = step.row
        at = self.places[row].tolist().index(step.giver)
        gone = int(self.ids[row, at])
        self.ids[row, at], self.places[row, at] = taken, step.taker
        topic = self.topics[row]
        partition = row - int(np.searchsorted(self.topics, topic))
        return ListMove(topic=int(topic), partition=partition, gone=gone, taken=taken)

    def lead(self, row: int, leader: int) -> None:
        """Let a member lead, in place of the one that does."""
        at = self.places[row].tolist().index(leader)
        for members in (self.ids, self.places):
            members[row, 0], members[row, at] = int(members[row, at]), int(members[row, 0])

    def leads(self) -> CountArray:
        """How many of the lists each SPU leads."""
        return np.bincount(self.places[:, 0], minlength=self.spus + 1)[:-1].astype(np.int64)

    def changed(self, topics: Sequence[IdMatrix], before: IdMatrix) -> dict[int, IdMatrix]:
        """The new matrices of the topics in which any list differs from `before`."""
        touched = np.unique(self.topics[(self.ids != before).any(axis=1)])
        begins = np.searchsorted(self.topics, touched)
        changed = {}
        for index, begin in zip(touched.tolist(), begins.tolist(), strict=True):
            rows, width = topics[index].shape
            changed[index] = self.ids[begin : begin + rows, :width].copy()
        return changed
