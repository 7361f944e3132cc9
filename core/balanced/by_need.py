"""`balanced` for topics that name what they need: dominant shares as even as the rules permit.

The dominant share of an SPU is the largest of used / capacity over its resources, of which its
replica slots are one. Source: A. Ghodsi et al., "Dominant Resource Fairness", NSDI 2011.

Replicas are given one by one, each to the SPU whose dominant share with it is the smallest, then to
whoever got fewer of them, then to the lowest id, within the bounds of racks and of room. The
replicas of a topic are alike and the bounds nested, so no other choice has a smaller largest share
(Federgruen and Groenevelt, as in `quotas`).
Shares within BAND of the mean of a rack count as alike: there the SPUs with the least room come
first, so that the others keep theirs for larger replicas, which may come later
(`Giving._keep_room`).
Where leaders need other amounts than followers, leaders are given first; then those of the largest
share hand leads over. That choice is good, but not always the best.

Amounts are whole numbers below 2**53, which floating point holds, and it rounds each share to the
nearest number that it has: equal shares stay equal, and a smaller one never becomes the larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core.balanced.policy import (
    SMALL_REQUEST_CELLS_MAX,
    even_leaders,
    field_of,
    filled,
    is_by_leader,
    lists_under_one_rule,
)
from spu_assigner.core.balanced.small_quotas import SmallRequest
from spu_assigner.core.balanced.small_request import lists_of
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.loads import Layout, Loads
from spu_assigner.core.state.resource_use import FloatArray

SHARES_AT_ONCE: Final = 2**18  # 2 MB of them
NO_ROOM: Final = np.inf  # the share of an SPU that has to give what it has not
BAND: Final = 1.03  # times the mean share of a rack: as good as a smaller one
ANY_SHARE: Final = np.finfo(np.float64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLoads:
    """What SPUs have and use, by ascending id, and what a replica needs: slots, then resources.

    Amounts are whole numbers. A capacity of 0 is a tiny one here, so that it can be divided by.
    """

    names: tuple[str, ...]  # of the resources
    capacities: FloatArray  # shape (1 + resources, SPUs)
    used: FloatArray  # the same; what is given is added
    follower: FloatArray  # what one takes, shape (1 + resources,)
    leader: FloatArray


def has_room_for_all(resources: ResourceLoads, partitions: int) -> bool:
    """Whether each SPU could take a replica of every partition, and none is filled by that."""
    most = np.maximum(resources.follower, resources.leader)[:, np.newaxis] * partitions
    return bool((resources.capacities - resources.used > most).all())


def place_by_need(
    loads: Loads, resources: ResourceLoads, *, partitions: int, replicas: int, start: int
) -> IdMatrix:
    """Place the partitions on the ring whose members `loads` describes.

    `start` varies who comes together. One row a partition, leader first. **Fewer rows than
    partitions** when the next one finds fewer than `replicas` SPUs with room; then `resources` say
    what is used up to there. Cost: O(resources * n), and sorting what may be given.
    """
    if partitions * replicas <= SMALL_REQUEST_CELLS_MAX and replicas <= len(loads.ids):
        rows = _place_few(loads, resources, partitions, replicas, start)
        if rows is not None:
            return rows
    held, led = loads.replicas.astype(np.int64), loads.leaders.astype(np.int64)
    by_leader = is_by_leader(loads, partitions=partitions, replicas=replicas)
    blocks: list[IdMatrix] = []
    done = 0
    while done < partitions:
        seed = (start + done) % 2**32
        for is_careful in (False, True):
            room = _room(resources, partitions - done, is_careful=is_careful)
            field = field_of(loads, held, led, replicas, start + done, room=room)
            if field is None:
                break
            count = lists_under_one_rule(field, partitions - done, replicas)
            by_id = np.argsort(field.ids)
            at = np.searchsorted(loads.ids, field.ids[by_id])
            # A field of one rack has each SPU on a rack of its own; then lists take any.
            is_one = len(field.starts) == len(field.ids)
            giving = Giving(
                resources,
                at,
                racks=np.zeros_like(at) if is_one else field.racks[by_id],
                lower=[count * replicas] if is_one else (count * field.lower).tolist(),
                upper=[count * replicas] if is_one else (count * field.upper).tolist(),
                lists=count,
                replicas=replicas,
            )
            if giving.give():
                break
        else:
            break
        if field is None:
            break
        quotas, leaders = np.zeros((2, len(at)), dtype=np.int64)
        quotas[by_id] = giving.numbers
        if giving.leaders is None:
            leaders = even_leaders(field, quotas, count)
        else:
            leaders[by_id] = giving.leaders
        blocks.append(filled(field, quotas, leaders, replicas, seed, by_leader=by_leader))
        done += count
        held[at] += quotas[by_id]
        led[at] += leaders[by_id]
        resources.used[:, at] += np.multiply.outer(resources.follower, (quotas - leaders)[by_id])
        resources.used[:, at] += np.multiply.outer(resources.leader, leaders[by_id])
    return np.concatenate(blocks) if blocks else np.zeros((0, replicas), dtype=np.int32)


def _place_few(
    loads: Loads, resources: ResourceLoads, lists: int, replicas: int, start: int
) -> IdMatrix | None:
    """Place few lists by the rule about racks of the whole ring; None: there is too little room."""
    layout = loads.layout or Layout.of(loads.ids, loads.racks, loads.capacities)
    rule = layout.rule(replicas)
    giving = Giving(
        resources,
        None,
        racks=layout.racks,
        lower=[lists * count for count in (rule.upper if rule.is_bound else rule.lower)],
        upper=[lists * count for count in rule.upper],
        lists=lists,
        replicas=replicas,
    )
    if not giving.give():
        return None
    request = SmallRequest(
        layout=layout,
        rule=rule,
        ids=loads.ids,
        held=loads.replicas,
        led=loads.leaders,
        lists=lists,
        replicas=replicas,
        begin=start % len(loads.ids),
        seed=start % 2**32,
    )
    leaders = None if giving.leaders is None else _by_number(giving.leaders)
    return lists_of(request, _by_number(giving.numbers), leaders)


def _by_number(counts: CountArray) -> dict[int, int]:
    """The counts above 0."""
    numbers = np.flatnonzero(counts)
    return dict(zip(numbers.tolist(), counts[numbers].tolist(), strict=True))


def _room(resources: ResourceLoads, lists: int, *, is_careful: bool) -> CountArray:
    """How many replicas each SPU can take, up to one of each list: followers, or, to be careful,
    replicas that may lead."""
    amounts = resources.follower
    if is_careful:
        amounts = np.maximum(amounts, resources.leader)
    rows = np.flatnonzero(amounts)
    left = resources.capacities[rows] - resources.used[rows]
    fitting = (left // amounts[rows, np.newaxis]).min(axis=0)
    return np.asarray(np.clip(fitting, -1, lists).astype(np.int64))


class Giving:
    """Giving the replicas of so many lists to SPUs that have room for them."""

    def __init__(
        self,
        resources: ResourceLoads,
        at: CountArray | None,
        *,
        racks: CountArray,
        lower: list[int],
        upper: list[int],
        lists: int,
        replicas: int,
    ) -> None:
        """To the SPUs at these places, ascending, or to all; a rack gets `lower` to `upper`."""
        places = slice(None) if at is None else at
        self._capacities = resources.capacities[:, places]
        self._used = resources.used[:, places].copy()
        self._follower, self._leader = resources.follower, resources.leader
        self._lists = lists
        self._replicas = replicas
        self._racks = racks
        self._sizes = np.bincount(racks, minlength=len(upper))
        self._missing = list(lower)  # what each rack has still to get,
        self._room = list(upper)  # and may get
        self._free = lists * replicas - sum(lower)  # beyond what racks have to get
        self.numbers = np.zeros(len(racks), dtype=np.int64)  # of replicas that each SPU gets
        self.leaders: CountArray | None = None  # of these; None: all of them may lead

    def give(self) -> bool:
        """Give them all; False: there is no room."""
        if bool((self._follower == self._leader).all()):
            before = self._used.copy()
            if not self._give(self._follower, self._lists * self._replicas):
                return False
            self._keep_room(before)
            return True
        if not self._give(self._leader, self._lists):
            return False
        self.leaders = self.numbers.copy()
        if not self._give(self._follower, self._lists * (self._replicas - 1)):
            return False
        self._hand_leads_over(self.leaders)
        return True

    def _give(self, amounts: FloatArray, count: int) -> bool:
        """Give so many replicas that need these amounts; whether there was room for all."""
        rows = amounts.nonzero()[0]
        needed, capacities = amounts[rows][:, np.newaxis], self._capacities[rows]
        least = None  # the share by what is not needed
        if len(rows) < len(amounts):
            others = np.flatnonzero(amounts == 0)
            least = (self._used[others] / self._capacities[others]).max(axis=0)
        while count:
            used = self._used[rows]
            first = ((used + needed) / capacities).max(axis=0)
            self._limit(first, 1, least, self.numbers)
            levels = np.minimum(self._levels(first, count), ANY_SHARE)
            near = (first <= levels).nonzero()[0]
            if not len(near):
                return False
            used, levels = used[:, near], np.broadcast_to(levels, first.shape)[near]
            of_near = capacities[:, near]
            below = (np.minimum(levels, 1) * of_near - used) / needed
            wanted = min(int(below.min(axis=0).max()) + 2, self._lists)
            steps = min(wanted, max(SHARES_AT_ONCE // used.size, 1))
            more = np.arange(1, steps + 1)
            after = (needed * more)[:, :, np.newaxis] + used[:, np.newaxis]
            after /= of_near[:, np.newaxis]
            shares = after.max(axis=0)
            self._limit(
                shares,
                more[:, np.newaxis],
                None if least is None else least[near],
                self.numbers[near],
            )
            if steps < wanted:  # What comes after these is not known yet.
                levels = np.minimum(levels, shares[-1].min())
            chosen = (shares <= levels).ravel().nonzero()[0]
            chosen = chosen[shares.ravel()[chosen].argsort(kind="stable")]
            taken = self._taken(near[chosen % len(near)], count)
            given = np.bincount(taken, minlength=len(first))
            self.numbers += given
            self._used += amounts[:, np.newaxis] * given
            count -= len(taken)
        return True

    def _keep_room(self, before: FloatArray) -> None:
        """Let the SPUs of each rack that have the least room have its replicas instead, as far as
        no share comes to be above BAND times the mean of the rack, by the resource that is scarcest
        there. Where not all of them fit so, nothing changes.

        None gets more of them than one had. `before`: what was used without them.
        """
        rows = self._follower.nonzero()[0]
        capacities, racks, count = self._capacities[rows], self._racks, len(self._sizes)
        used, needed = before[rows], self._follower[rows, np.newaxis]
        each = np.concatenate((used, capacities))
        cells = np.arange(len(each))[:, np.newaxis] * count + racks
        sums = np.bincount(cells.ravel(), each.ravel(), len(each) * count).reshape(2, -1, count)
        levels = np.minimum(BAND * (sums[0] / sums[1]).max(axis=0), 1)
        taken = self.numbers.nonzero()[0]
        shares = (self._used[rows[:, np.newaxis], taken] / capacities[:, taken]).max(axis=0)
        largest, most, wanted = np.zeros((3, count))
        np.maximum.at(largest, racks[taken], shares)
        is_open = largest < levels
        if not is_open.any():
            return
        numbers = self.numbers[taken]
        np.maximum.at(most, racks[taken], numbers)
        np.add.at(wanted, racks[taken], numbers)
        room = ((levels[racks] * capacities - used) / needed).min(axis=0)
        order = np.lexsort((room, racks))
        by_rack = racks[order]
        takes = np.clip(np.floor(room[order]), 0, most[by_rack])
        ahead = takes.cumsum() - takes
        ahead -= ahead[self._sizes.cumsum() - self._sizes][by_rack]
        given = np.empty_like(takes)
        given[order] = np.minimum(takes, np.maximum(wanted[by_rack] - ahead, 0))
        is_met = np.bincount(racks, given, count) == wanted
        self.numbers = np.where((is_open & is_met)[racks], given, self.numbers).astype(np.int64)
        self._used = before + np.multiply.outer(self._follower, self.numbers)

    def _limit(
        self,
        shares: FloatArray,
        more: CountArray | int,
        least: FloatArray | None,
        numbers: CountArray,
    ) -> None:
        """Let shares by what so many more replicas need be no less than by all else, and `NO_ROOM`
        where an SPU would get more than it has, or two replicas of a list."""
        shares[shares > 1] = NO_ROOM
        if least is not None:
            np.maximum(shares, least, out=shares)
        shares[more + numbers > self._lists] = NO_ROOM

    def _levels(self, first: FloatArray, count: int) -> FloatArray:
        """For each SPU a share above which it surely gets nothing.

        A rack that takes m replicas can give one each to its m SPUs of the smallest shares.
        """
        if len(self._room) == 1:
            all_may = first.size <= count
            return np.array(NO_ROOM if all_may else np.partition(first, count - 1)[count - 1])
        by_rack = first[np.lexsort((first, self._racks))]
        ends = self._sizes.cumsum()
        room = np.array(self._room)
        if not self._free:
            room = np.array(self._missing)
        nth = ends - self._sizes + np.minimum(room, self._sizes) - 1
        levels = np.where(room < self._sizes, by_rack[nth], NO_ROOM)
        levels[room == 0] = -1
        return np.asarray(levels[self._racks])

    def _taken(self, places: CountArray, count: int) -> CountArray:
        """Those of the SPUs, which come in this order, that get a replica."""
        if len(self._room) == 1:
            return places[:count]
        missing, room = self._missing, self._room
        taken = []
        for at, rack in enumerate(self._racks[places].tolist()):
            if missing[rack]:
                missing[rack] -= 1
            elif self._free and room[rack]:
                self._free -= 1
            else:
                continue
            room[rack] -= 1
            taken.append(at)
            if len(taken) == count:
                break
        return places[taken]

    def _hand_leads_over(self, leaders: CountArray) -> None:
        """Let another SPU that gets replicas lead in place of the one of the largest share, as long
        as the larger share of the two becomes smaller."""
        more = (self._leader - self._follower)[:, np.newaxis]
        for _ in range(self._lists):
            shares = np.where(leaders > 0, self._dominant(self._used), -1)
            giver = int(shares.argmax())
            can_take = self.numbers > leaders
            can_take[giver] = False
            after = np.where(can_take, self._dominant(self._used + more), NO_ROOM)
            taker = int(after.argmin())
            left = self._dominant(self._used - more)[giver]
            if max(after[taker], left) >= shares[giver]:
                return
            self._used[:, taker] += more[:, 0]
            self._used[:, giver] -= more[:, 0]
            leaders[taker] += 1
            leaders[giver] -= 1

    def _dominant(self, used: FloatArray) -> FloatArray:
        """The dominant shares of SPUs that use so much; `NO_ROOM` where that is more than they
        have."""
        shares: FloatArray = (used / self._capacities).max(axis=0)
        shares[shares > 1] = NO_ROOM
        return shares
