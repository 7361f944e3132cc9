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
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists, tally

COUNTS_MAX: Final = 2**18  # racks times SPUs, for each of which there may be a number
PAIRS_SPUS_MAX: Final = 128  # up to so many SPUs it is counted for each pair of them, too
PAIR_WEIGHT: Final = 2  # of what is taken over from one SPU, beside what is from its whole rack
ONE_BY_ONE: Final = 2_048  # lists of a map up to which they are counted in plain Python
NEVER: Final = float("inf")  # what an SPU takes over from its own rack: it is never the least
NOBODY: Final = -1  # no leader: where pairs are not counted

Rack = str | int  # an SPU without a rack fails alone: its id is its rack
Counts = defaultdict[int, float]  # of each SPU


class Takeovers:
    """The counts of one cluster."""

    def __init__(
        self, spus: Iterable[tuple[int, str | None]], maps: Iterable[ReplicaLists] = ()
    ) -> None:
        """Of SPUs on these racks, and of the maps of a cluster."""
        self.rack_of: dict[int, Rack] = {}
        self._from_racks: dict[Rack, Counts] = {}
        self._from_spus: defaultdict[int, Counts] = defaultdict(lambda: defaultdict(int))
        self.pair_weight = PAIR_WEIGHT  # 0: there are too many SPUs
        for spu_id, rack in spus:
            self.enter(spu_id, rack)
        for lists in maps:
            self.count(lists)

    @property
    def size(self) -> int:
        """Racks times SPUs."""
        return len(self._from_racks) * len(self.rack_of)

    def enter(self, spu_id: int, rack: str | None) -> None:
        """Enter an SPU that no list holds yet, or that is there."""
        home = self.rack_of.setdefault(spu_id, spu_id if rack is None else rack)
        self._from_racks.setdefault(home, defaultdict(int))[spu_id] = NEVER
        if len(self.rack_of) > PAIRS_SPUS_MAX:
            self.pair_weight = 0
            self._from_spus.clear()

    def from_leader(self, leader: int) -> tuple[Counts, Counts]:
        """What SPUs take over from the rack of an SPU, and from it alone, weighed."""
        of_spu = self._from_spus[leader if self.pair_weight else NOBODY]
        return self._from_racks[self.rack_of[leader]], of_spu

    def add(self, leader: int, target: int, lists: int = 1) -> None:
        """Count so many lists of this leader and failover target; below 0 they are gone."""
        of_rack, of_spu = self.from_leader(leader)
        of_rack[target] += lists
        of_spu[target] += lists * self.pair_weight

    def count(self, lists: ReplicaLists, sign: int = 1) -> None:
        """Count a map, or, with -1, take it out."""
        if lists.count > ONE_BY_ONE:
            self._count_many(lists.matrix, sign)
            return
        rack_of, weight = self.rack_of, self.pair_weight * sign
        for leader, *others in lists.tolist():
            home = rack_of[leader]
            for other in others:
                if rack_of[other] != home:
                    self._from_racks[home][other] += sign
                    if weight:
                        self._from_spus[leader][other] += weight
                    break

    def _count_many(self, matrix: IdMatrix, sign: int) -> None:
        """The same, vectorised."""
        known = np.array(sorted(self.rack_of))
        ids: list[int] = known.tolist()
        numbers = {rack: number for number, rack in enumerate(self._from_racks)}
        rack_at = np.array([numbers[self.rack_of[spu_id]] for spu_id in ids])
        if (matrix < 0).any():  # A short list is padded with its leader, which takes nothing over.
            matrix = np.where(matrix < 0, matrix[:, :1], matrix)
        leaders, *others = matrix.T if ids[-1] == len(ids) - 1 else np.searchsorted(known, matrix.T)
        targets, homes = leaders, rack_at[leaders]
        for places in others[::-1]:
            targets = np.where(rack_at[places] == homes, targets, places)
        pairs, counts = tally((leaders * len(ids) + targets)[targets != leaders])
        for pair, count in zip(pairs, counts, strict=True):
            leader, target = divmod(pair, len(ids))
            self.add(ids[leader], ids[target], sign * count)
