"""Failover counts per rack and SPU: how often each SPU is next behind the leaders of a rack.

When an SPU or a rack fails, the first replica that is left of a list leads it: the failover target,
the first follower on another rack than the leader's. `balanced` keeps these even (`failover`).

The counts are no part of the published state: they are made when they are first asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import numpy as np
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists

COUNTS_MAX: Final = 2**18  # racks times SPUs, for each of which there may be a number
PAIRS_SPUS_MAX: Final = 128  # up to so many SPUs it is counted for each pair of them, too
PAIR_WEIGHT: Final = 2  # of what is taken over from one SPU, beside what is from its whole rack
ONE_BY_ONE: Final = 2_048  # lists of a map up to which they are counted in plain Python
NEVER: Final = float("inf")  # what an SPU takes over from its own rack: it is never the least
ALL: Final = -1  # no SPU: what all together take over

Rack = str | int  # an SPU without a rack fails alone: its id is its rack
Counts = defaultdict[int, float]  # of each SPU
# What SPUs take over from the rack of one and from it alone, weighed, and both for each slot of
# theirs at the mean.
FromLeader = tuple[Counts, Counts, float]


class Takeovers:
    """The counts of one cluster."""

    def __init__(
        self, spus: Iterable[tuple[int, str | None, int]], maps: Iterable[ReplicaLists]
    ) -> None:
        """Of SPUs with these racks and capacities, and of the maps of a cluster."""
        self.rack_of: dict[int, Rack] = {}
        self._capacities: dict[int, int] = {}
        self._slots: defaultdict[Rack, int] = defaultdict(int)
        self._all_slots = 0
        self._from_racks: dict[Rack, Counts] = {}
        self._from_spus: defaultdict[int, Counts] = defaultdict(lambda: defaultdict(int))
        self._pair_weight = PAIR_WEIGHT  # 0: there are too many SPUs
        self._known: dict[int, FromLeader] = {}  # with the mean of one list, by leader
        for spu_id, rack, capacity in spus:
            self.enter(spu_id, rack, capacity)
        for lists in maps:
            self.count(lists)

    @property
    def size(self) -> int:
        """Racks times SPUs."""
        return len(self._from_racks) * len(self.rack_of)

    def enter(self, spu_id: int, rack: str | None, capacity: int) -> None:
        """Enter an SPU that no list holds yet, or another capacity of one that is there."""
        home = self.rack_of.setdefault(spu_id, spu_id if rack is None else rack)
        more = max(capacity, 1) - self._capacities.get(spu_id, 0)
        self._capacities[spu_id] = max(capacity, 1)
        self._slots[home] += more
        self._all_slots += more
        self._known.clear()
        self._from_racks.setdefault(home, defaultdict(int))[spu_id] = NEVER
        if len(self.rack_of) > PAIRS_SPUS_MAX:
            self._pair_weight = 0
            self._from_spus.clear()

    def from_leader(self, leader: int) -> FromLeader:
        """What is taken over from an SPU."""
        of_rack, of_spu, mean = self._known.get(leader) or self._counts_of(leader)
        return of_rack, of_spu, of_rack[ALL] * mean

    def _counts_of(self, leader: int) -> FromLeader:
        home, weight = self.rack_of[leader], self._pair_weight
        slots, of_spu = self._slots[home], self._from_spus[leader if weight else ALL]
        part = 1 + weight * self._capacities[leader] / slots
        mean = part / (self._all_slots - slots or 1)
        known = self._known[leader] = self._from_racks[home], of_spu, mean
        return known

    def add(self, leader: int, target: int, lists: int = 1) -> None:
        """Count so many lists of this leader and failover target; below 0 they are gone."""
        of_rack, of_spu, _ = self._known.get(leader) or self._counts_of(leader)
        of_rack[target] += lists
        of_rack[ALL] += lists
        of_spu[target] += lists * self._pair_weight

    def count(self, lists: ReplicaLists, sign: int = 1) -> None:
        """Count a map, or, with -1, take it out."""
        if lists.count > ONE_BY_ONE:
            self._count_many(lists.matrix, sign)
            return
        rack_of = self.rack_of
        for leader, *others in lists.tolist():
            home = rack_of[leader]
            for other in others:
                if rack_of[other] != home:
                    self.add(leader, other, sign)
                    break

    def _count_many(self, matrix: IdMatrix, sign: int) -> None:
        """The same, vectorised."""
        known = np.array(sorted(self.rack_of))
        ids: list[int] = known.tolist()
        racks = {rack: number for number, rack in enumerate(self._from_racks)}
        rack_at = np.array([racks[self.rack_of[spu_id]] for spu_id in ids])
        if (matrix < 0).any():  # A short list is padded with its leader, which takes nothing over.
            matrix = np.where(matrix < 0, matrix[:, :1], matrix)
        places = matrix.T if ids[-1] == len(ids) - 1 else np.searchsorted(known, matrix.T)
        givers, of_giver, homes = places[0], ids, rack_at[places[0]]
        targets = givers.copy()
        for others in places[:0:-1]:
            targets = np.where(rack_at[others] == homes, targets, others)
        if not self._pair_weight:  # One SPU stands for those of its rack.
            givers, of_giver = homes, [ids[at] for at in np.unique(rack_at, return_index=True)[1]]
        keys = (givers.astype(np.int64) * len(ids) + targets)[targets != places[0]]
        counts = sign * np.bincount(keys, minlength=len(of_giver) * len(ids))
        for giver, of_each in zip(of_giver, counts.reshape(-1, len(ids)).tolist(), strict=True):
            of_rack, of_spu, _ = self.from_leader(giver)
            of_rack[ALL] += sum(of_each)
            for target, taken in zip(ids, of_each, strict=True):
                if taken:
                    of_rack[target] += taken
                    of_spu[target] += taken * self._pair_weight
