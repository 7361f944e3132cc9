"""How much of each resource the replicas on each SPU need together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spu_assigner.core.base.replica_lists import ReplicaLists, tally
from spu_assigner.core.base.resources import Need

_NOTHING: Final[Mapping[str, int]] = {}


class ResourceUse:
    """Sums over the replicas of topics that name what they need; empty where none does."""

    __slots__ = ("_by_spu",)

    def __init__(self) -> None:
        self._by_spu: dict[int, dict[str, int]] = {}  # amounts above 0 only

    def of(self, spu_id: int) -> Mapping[str, int]:
        """What is used of each resource on an SPU; what is not named is not used."""
        return self._by_spu.get(spu_id, _NOTHING)

    def add(self, lists: ReplicaLists, need: Need) -> None:
        """Count the replicas of a topic."""
        for spu_id, amounts in amounts_by_spu(lists, need).items():
            used = self._by_spu.setdefault(spu_id, {})
            for name, amount in amounts.items():
                used[name] = used.get(name, 0) + amount

    def subtract(self, lists: ReplicaLists, need: Need) -> None:
        """Take them out of the count again."""
        for spu_id, amounts in amounts_by_spu(lists, need).items():
            used = self._by_spu[spu_id]
            for name, amount in amounts.items():
                left = used[name] - amount
                if left:
                    used[name] = left
                else:
                    del used[name]
            if not used:
                del self._by_spu[spu_id]


def amounts_by_spu(lists: ReplicaLists, need: Need) -> dict[int, dict[str, int]]:
    """What a topic needs of each resource on each SPU that it is on; amounts above 0 only."""
    of_leaders = dict(zip(*tally(lists.matrix[:, 0]), strict=True))
    by_name = need.by_name()
    found: dict[int, dict[str, int]] = {}
    for spu_id, count in zip(*tally(lists.flat()), strict=True):
        led = of_leaders.get(spu_id, 0)
        amounts = {
            name: amount
            for name, follower, leader in by_name
            if (amount := (count - led) * follower + led * leader)
        }
        if amounts:
            found[spu_id] = amounts
    return found
