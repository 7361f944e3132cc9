"""`balanced` for topics that name what they need: dominant shares as even as the rules permit.

The dominant share of an SPU is the largest of used / capacity over its resources, of which its
replica slots are one. Source: A. Ghodsi et al., "Dominant Resource Fairness", NSDI 2011.

Replicas are given one by one, each to the SPU whose dominant share with it is the smallest, then to
the lowest id, within the bounds of racks and of room. The replicas of a topic are alike and the
bounds nested, so no other choice has a smaller largest share (Federgruen and Groenevelt, as in
`quotas`).
Where leaders need other amounts than followers, leaders are given first; then those of the largest
share hand leads over. That choice is good, but not always the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np
from spu_assigner.core.balanced.policy import (
    Field,
    even_leaders,
    field_of,
    filled,
    lists_under_one_rule,
)
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.loads import Loads

# Amounts are below 2**53, so different shares differ by more than 2**-106: these bits tell them
# apart, however much is used.
SHARE_BITS: Final = 107
FULL: Final = 2**200  # the share of an SPU that has to give what it has not


@dataclass(frozen=True, slots=True)
class ResourceLoad:
    """One resource over all SPUs, by ascending id."""

    name: str
    capacities: Sequence[int]
    used: list[int]  # what is given is added
    follower: int  # what one needs of it
    leader: int

    @property
    def most(self) -> int:
        """What a replica of either kind needs at most."""
        return max(self.follower, self.leader)


def place_by_need(
    loads: Loads, resources: Sequence[ResourceLoad], *, partitions: int, replicas: int, start: int
) -> IdMatrix:
    """Place the partitions on the ring whose members `loads` describes.

    `start` varies who comes together. One row a partition, leader first. **Fewer rows than
    partitions** when the next one finds fewer than `replicas` SPUs with room; then `resources` say
    what is used up to there. Cost: O((n + cells) * resources) and the logarithm of n for each cell.
    """
    held, led = loads.replicas.astype(np.int64), loads.leaders.astype(np.int64)
    blocks: list[IdMatrix] = []
    done = 0
    while done < partitions:
        seed = (start + done) % 2**32
        for is_careful in (False, True):
            room = _room(loads, held, resources, partitions - done, is_careful=is_careful)
            field = field_of(loads, held, led, replicas, start + done, room=room)
            if field is None:
                break
            count = lists_under_one_rule(field, partitions - done, replicas)
            numbers = _Giving(field, loads, resources, lists=count, replicas=replicas).numbers()
            if numbers is not None:
                break
        if field is None or numbers is None:
            break
        quotas, leaders = numbers
        blocks.append(filled(field, quotas, leaders, replicas, seed))
        done += count
        at = np.searchsorted(loads.ids, field.ids)
        held[at] += quotas
        led[at] += leaders
        for resource in resources:
            for spu, number, leads in zip(
                at.tolist(), quotas.tolist(), leaders.tolist(), strict=True
            ):
                resource.used[spu] += (number - leads) * resource.follower + leads * resource.leader
    return np.concatenate(blocks) if blocks else np.zeros((0, replicas), dtype=np.int32)


def _room(
    loads: Loads,
    held: CountArray,
    resources: Sequence[ResourceLoad],
    lists: int,
    *,
    is_careful: bool,
) -> CountArray:
    """How many replicas each SPU can take, up to one of each list: followers, or, to be careful,
    replicas that may lead."""
    room = np.minimum(loads.capacities.astype(np.int64) - held, lists)
    for resource in resources:
        amount = resource.most if is_careful else resource.follower
        if amount:
            fitting = [
                min((capacity - used) // amount, lists)
                for capacity, used in zip(resource.capacities, resource.used, strict=True)
            ]
            room = np.minimum(room, np.array(fitting, dtype=np.int64))
    return np.asarray(room)


class _Giving:
    """Giving the replicas of so many lists to the SPUs of a field, which has room for them."""

    def __init__(
        self,
        field: Field,
        loads: Loads,
        resources: Sequence[ResourceLoad],
        *,
        lists: int,
        replicas: int,
    ) -> None:
        self._field = field
        self._lists = lists
        at = np.searchsorted(loads.ids, field.ids).tolist()
        # Of each SPU what it has and what is used of each resource, slots first; what one replica
        # takes.
        self._capacities = [
            [capacity, *[each.capacities[spu] for each in resources]]
            for spu, capacity in zip(at, field.capacities.tolist(), strict=True)
        ]
        self._used = [
            [count, *[each.used[spu] for each in resources]]
            for spu, count in zip(at, field.replicas.tolist(), strict=True)
        ]
        self._follower = [1, *[each.follower for each in resources]]
        self._leader = [1, *[each.leader for each in resources]]
        self._numbers = [0] * len(at)
        self._ids: list[int] = field.ids.tolist()
        # A field of one rack has each SPU on a rack of its own; then lists take any.
        is_one = len(field.starts) == len(field.ids)
        self._racks: list[int] = [0] * len(at) if is_one else field.racks.tolist()
        lower = np.array([lists * replicas]) if is_one else lists * field.lower
        upper = np.array([lists * replicas]) if is_one else lists * field.upper
        self._missing: list[int] = lower.tolist()  # what each rack has still to get,
        self._room: list[int] = upper.tolist()  # and may get
        self._free = lists * replicas - int(lower.sum())  # beyond what racks have to get
        self._followers = lists * (replicas - 1)

    def numbers(self) -> tuple[CountArray, CountArray] | None:
        """How many replicas each SPU gets, and how many of them lead; None: there is no room."""
        if self._follower == self._leader:
            if not self._give(self._follower, self._lists + self._followers):
                return None
            quotas = np.array(self._numbers, dtype=np.int64)
            return quotas, even_leaders(self._field, quotas, self._lists)
        if not self._give(self._leader, self._lists):
            return None
        leaders = list(self._numbers)
        if not self._give(self._follower, self._followers):
            return None
        self._hand_leads_over(leaders)
        return np.array(self._numbers, dtype=np.int64), np.array(leaders, dtype=np.int64)

    def _hand_leads_over(self, leaders: list[int]) -> None:
        """Let another SPU that gets replicas lead in place of the one of the largest share, as long
        as the larger share of the two becomes smaller."""
        more = [a - b for a, b in zip(self._leader, self._follower, strict=True)]
        less = [-amount for amount in more]
        for _ in range(self._lists):
            leading = [spu for spu, count in enumerate(leaders) if count]
            share, giver = max((self._share(self._used[spu], spu), -spu) for spu in leading)
            takers = [
                (self._share(self._with(spu, more), spu), spu)
                for spu, count in enumerate(leaders)
                if spu != -giver and self._numbers[spu] > count
            ]
            best, taker = min(takers, default=(FULL, -1))
            if max(best, self._share(self._with(-giver, less), -giver)) >= share:
                return
            self._used[taker], self._used[-giver] = (
                self._with(taker, more),
                self._with(-giver, less),
            )
            leaders[taker] += 1
            leaders[-giver] -= 1

    def _with(self, spu: int, amounts: Sequence[int]) -> list[int]:
        return [a + b for a, b in zip(self._used[spu], amounts, strict=True)]

    def _share(self, used: Sequence[int], spu: int) -> int:
        """The dominant share of an SPU that uses so much; `FULL` where that is more than it has."""
        largest = 0
        for capacity, amount in zip(self._capacities[spu], used, strict=True):
            if amount > capacity:
                return FULL
            if amount:
                largest = max(largest, (amount << SHARE_BITS) // capacity)
        return largest

    def _give(self, amounts: Sequence[int], count: int) -> bool:
        """Give so many replicas that need these amounts; whether there was room for all."""
        entries = [
            (share, self._ids[spu], spu)
            for spu in range(len(self._ids))
            if (share := self._share_with(spu, amounts)) is not None
        ]
        heapify(entries)
        while count and entries:
            _, spu_id, spu = heappop(entries)
            if not self._takes(self._racks[spu]):
                continue  # It never will: what racks may get only shrinks.
            count -= 1
            self._numbers[spu] += 1
            self._used[spu] = self._with(spu, amounts)
            share = self._share_with(spu, amounts)
            if share is not None:
                heappush(entries, (share, spu_id, spu))
        return count == 0

    def _takes(self, rack: int) -> bool:
        if self._missing[rack]:
            self._missing[rack] -= 1
        elif self._free and self._room[rack]:
            self._free -= 1
        else:
            return False
        self._room[rack] -= 1
        return True

    def _share_with(self, spu: int, amounts: Sequence[int]) -> int | None:
        """The dominant share of an SPU with one replica more; None: it has no room for it."""
        if self._numbers[spu] == self._lists:
            return None
        largest = 0
        for capacity, used, amount in zip(
            self._capacities[spu], self._used[spu], amounts, strict=True
        ):
            after = used + amount
            if amount and after > capacity:
                return None
            share = (after << SHARE_BITS) // capacity if capacity else FULL if after else 0
            largest = max(largest, share)
        return largest
