"""The moves of few bytes that bring all SPUs under their goals, by resources.

The goal of an SPU is its ceiling, the band above the fair dominant share, or what it holds for good
where that is more.

Rules:
- The SPU furthest over gives first: the replicas of the fewest bytes that relieve it (`covering`),
  the largest first, each to the SPU of the least share that comes to be over by none, or else to
  one that can be relieved in turn, up to `DEPTH` times. Leads alone cost no bytes.
- What cannot be given is left out, and others are chosen. Where nothing relieves the SPU, it gives
  all that makes it less over.
- One pass improves on that: the steps of each SPU are undone and chosen again, and kept if less is
  over the goals, first of the SPU furthest over, then in all; then by bytes, then by steps.
- A replica moves once at most, and never to an SPU that was in its list at first; a list whose lead
  passes has no moves. So any prefix of the steps is a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Final, NamedTuple

from spu_assigner.core.rebalance.covering import Item, least_cover
from spu_assigner.core.rebalance.lists import ClusterLists, Step
from spu_assigner.core.rebalance.resource_goal import (
    SHARE_BITS,
    Amounts,
    ResourceGoal,
    add,
    dominant_share,
    fair_level,
)
from spu_assigner.core.rebalance.ruled_lists import RuledLists

DEPTH: Final = 2  # SPUs that give in turn
KINDS: Final = 24  # of replicas that cannot be given, then an SPU is given up
TAKERS: Final = 3  # that may give in turn
LOOKS_OF_ITEM: Final = 16  # what it takes to weigh replicas that are alike
LOOKS_OF_STEP: Final = 8  # what it takes to undo a step and to make it again
LOOKS_MAX: Final = 300_000  # at replicas and SPUs; some 2 s

Demoted = Mapping[int, Collection[int]]


class Kind(NamedTuple):
    """Replicas of a topic that take the same amounts, or their leads."""

    topic: int
    is_leader: bool  # False also where leaders take what followers do
    is_lead: bool = False  # the lead alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """What was found."""

    steps: list[Step]
    fair: Fraction  # dominant share
    fixed: list[Amounts]  # what SPUs hold for good
    is_cut: bool  # the search ended at its limit


def find_relief(
    lists: ClusterLists, goal: ResourceGoal, ruled: RuledLists, *, demoted: Demoted
) -> Relief:
    """Steps of few bytes that bring the SPUs into the band above the fair dominant share.

    `demoted`: of each topic the positions of SPUs that take no lead, if there are some. Any prefix
    of the steps keeps all rules.
    """
    fixed = [list(amounts) for amounts in goal.used]
    for amounts, moving in zip(fixed, goal.movable(lists), strict=True):
        add(amounts, moving, -1)
    fair = fair_level(lists, goal, fixed, ruled)
    bound = fair * (100 + goal.band_percent) / 100
    goals = [
        [max(low, min(has, floor(has * bound))) for has, low in zip(capacities, held, strict=True)]
        for capacities, held in zip(goal.capacities, fixed, strict=True)
    ]
    search = _Search(lists, goal, goals, ruled, demoted)
    search.relieve_all()
    search.improve()
    is_cut = search.looks > LOOKS_MAX
    return Relief(steps=search.steps, fair=fair, fixed=fixed, is_cut=is_cut)


class _Search:
    def __init__(
        self,
        lists: ClusterLists,
        goal: ResourceGoal,
        goals: list[Amounts],
        ruled: RuledLists,
        demoted: Demoted,
    ) -> None:
        self.steps: list[Step] = []
        self.looks = self._size = 0  # bytes moved
        self._spus, self._needs, self._ruled = lists.spus, goal.needs, ruled
        self._demoted, self._capacities, self._goals = demoted, goal.capacities, goals
        self._used = [list(amounts) for amounts in goal.used]
        self._topics: list[int] = lists.topics.tolist()
        self._rack_of: list[int] = lists.rack_of.tolist()
        self._first, self._rows = lists.places.tolist(), lists.places.tolist()
        self._first_racks, self._racks = lists.racks.tolist(), lists.racks.tolist()
        self._led: set[int] = set()  # lists that have another leader
        self._able: list[list[bool]] = ruled.able_to_lead(lists).tolist()
        # Of each SPU the lists in which it has a replica at first.
        self._held: list[dict[Kind, list[int]]] = [{} for _ in range(self._spus)]
        for row, members in enumerate(self._rows):
            for at, spu in enumerate(members):
                kind = self._kind(row, at)
                for is_lead in (False, True)[: 1 + kind.is_leader] if spu < self._spus else ():
                    each = kind._replace(is_lead=is_lead)
                    self._held[spu].setdefault(each, []).append(row)
        self._order: list[int] = []  # SPUs, the least share first

    def relieve_all(self) -> None:
        """Bring the SPUs under their goals, the one furthest beyond first."""
        given_up = set[int]()
        while over := [
            (-excess, spu)
            for spu, excess in enumerate(self._excesses())
            if excess and spu not in given_up
        ]:
            spu = min(over)[1]
            shares = map(dominant_share, self._used, self._capacities)
            self._order = [at for _, at in sorted(zip(shares, range(self._spus), strict=True))]
            if not self._relieve(spu, DEPTH):
                self._relieve(spu, 0, is_part=True)
                given_up.add(spu)

    def improve(self) -> None:
        """Undo the steps by which each SPU gives, or takes, and choose again."""
        for spu in sorted({spu for step in self.steps for spu in step[1:3]}):
            before = list(self.steps)
            kept = [step for step in before if spu not in step[1:3]]
            if self.looks > LOOKS_MAX or len(kept) == len(before):
                continue
            key = self._key()
            self._redo(kept)
            self.looks += len(before) * LOOKS_OF_STEP
            self.relieve_all()
            if self._key() >= key:
                self._redo(before)

    def _redo(self, steps: Iterable[Step]) -> None:
        """Make these steps from the beginning, those that can be made."""
        self._undo(0)
        for step in steps:
            if self._may(step):
                at = self._rows[step.row].index(step.giver)
                kind = self._kind(step.row, at)._replace(is_lead=step.is_lead)
                if self._beyond(step.taker, self._amounts(kind)) is not None:
                    self._make(step)

    def _relieve(self, spu: int, depth: int, *, is_part: bool = False) -> bool:
        """Let an SPU give the replicas of the fewest bytes that relieve it. If it cannot, nothing
        is changed; with `is_part`, what makes it less over."""
        begin, others = len(self.steps), set[Kind]()
        while self._excess(spu):
            first, kinds = len(self.steps), self._least_kinds(spu, others, is_part=is_part)
            for kind in kinds:
                over_max = max(self._excess(spu) - 1, 0) if is_part else 0
                if kind not in others and not self._give(spu, kind, depth, over_max=over_max):
                    others.add(kind)
                    if not is_part:
                        self._undo(first)
                        break
            if not kinds or len(others) > KINDS:
                if not is_part:
                    self._undo(begin)
                return False
        return True

    def _least_kinds(self, spu: int, others: Collection[Kind], *, is_part: bool) -> list[Kind]:
        """What to give, the largest first, so that the resource that is furthest over is relieved;
        nothing of these others. Where all together do not relieve it, all in part, else none."""
        if self.looks > 2 * LOOKS_MAX:
            return []
        shares = self._shares_over(spu)
        index = shares.index(max(shares))
        offers = list[tuple[Kind, Item]]()
        for kind, rows in self._held[spu].items():
            copies = sum(spu in self._rows[row] and row not in self._led for row in rows)
            gain = self._amounts(kind)[index]
            if copies and gain > 0 and kind not in others:
                size = 0 if kind.is_lead else self._needs[kind.topic].size
                offers.append((kind, Item(gain, size, copies)))
        self.looks += len(offers) * LOOKS_OF_ITEM
        amount = self._used[spu][index] - self._goals[spu][index]
        counts = least_cover([item for _, item in offers], amount)
        if counts is None:
            counts = [item.copies * is_part for _, item in offers]
        pairs = zip(offers, counts, strict=True)
        found = [(-item.size, kind) for (kind, item), count in pairs for _ in range(count)]
        return [kind for _, kind in sorted(found)]

    def _give(self, spu: int, kind: Kind, depth: int, *, over_max: int) -> bool:
        """Let an SPU give such a replica, to one that comes over its goal by more than `over_max`
        then only if that can be relieved in turn."""
        rows, beyond = self._held[spu][kind], list[tuple[int, Step]]()
        for taker in self._order if self.looks <= 2 * LOOKS_MAX else ():
            step = Step(-1, spu, taker, kind.is_lead)
            over = self._beyond(taker, self._amounts(kind))
            is_far = over is not None and over > over_max
            if over is None or taker == spu or (is_far and (not depth or len(beyond) == TAKERS)):
                continue
            self.looks += 1 + len(rows)
            found = next((row for row in rows if self._may(step._replace(row=row))), None)
            if found is not None and not is_far:
                self._make(step._replace(row=found))
                return True
            if found is not None:
                beyond.append((over, step._replace(row=found)))
        ways, begin = list[tuple[int, list[Step]]](), len(self.steps)
        for _, step in sorted(beyond):
            self._make(step)
            if self._relieve(step.taker, depth - 1):
                ways.append((self._size, self.steps[begin:]))
            self._undo(begin)
        for step in min(ways, key=lambda way: way[0])[1] if ways else ():
            self._make(step)
        return bool(ways)

    def _excess(self, spu: int) -> int:
        """By how much of a share the SPU is over its goal; 0: it is not."""
        return max(0, *self._shares_over(spu))

    def _shares_over(self, spu: int) -> list[int]:
        triples = zip(self._used[spu], self._goals[spu], self._capacities[spu], strict=True)
        return [
            ((used - goal) << SHARE_BITS) // (capacity or 1) for used, goal, capacity in triples
        ]

    def _excesses(self) -> list[int]:
        self.looks += self._spus
        return [self._excess(spu) for spu in range(self._spus)]

    def _key(self) -> tuple[int, ...]:
        """The largest share over a goal, the sum of these, bytes, steps."""
        found = self._excesses()
        return max(found), sum(found), self._size, len(self.steps)

    def _beyond(self, spu: int, amounts: Amounts) -> int | None:
        """By how much of a share an SPU comes over its goal with these; None: over its capacity."""
        worst = 0
        for capacity, used, goal, amount in zip(
            self._capacities[spu], self._used[spu], self._goals[spu], amounts, strict=True
        ):
            if amount > 0 and used + amount > goal:
                if used + amount > capacity:
                    return None
                worst = max(worst, ((used + amount - goal) << SHARE_BITS) // capacity)
        return worst

    def _amounts(self, kind: Kind) -> Amounts:
        need = self._needs[kind.topic]
        if kind.is_lead:
            return [a - b for a, b in zip(need.leader, need.follower, strict=True)]
        return need.leader if kind.is_leader else need.follower

    def _kind(self, row: int, at: int) -> Kind:
        need = self._needs[self._topics[row]]
        return Kind(self._topics[row], at == 0 and need.leader != need.follower)

    def _may(self, step: Step) -> bool:
        """Whether racks, rules and roles permit a step.

        Rules are those of the list as it was: it gets a new leader, or its replicas move.
        """
        row, giver, taker, is_lead = step
        members, first = self._rows[row], self._first[row]
        if row in self._led or giver not in members:
            return False
        if members[0] == giver and taker in self._demoted.get(self._topics[row], ()):
            return False
        if is_lead:
            return members == first and taker in members and self._able[row][members.index(taker)]
        if self._ruled.has(row):
            return bool(self._ruled.takers(row, first.index(giver))[taker])
        if taker in members or taker in first or self._ruled.closed[taker]:
            return False
        rack = self._rack_of[taker]
        here, at_first = self._racks[row].count(rack), self._first_racks[row].count(rack)
        return rack == self._rack_of[giver] or here < max(1, at_first)

    def _make(self, step: Step) -> None:
        self._apply(step, 1)
        self.steps.append(step)

    def _undo(self, count: int) -> None:
        """Undo the steps after so many."""
        while len(self.steps) > count:
            self._apply(self.steps.pop(), -1)

    def _apply(self, step: Step, sign: int) -> None:
        """Make a step, or, with a sign of -1, take it back."""
        row, giver, taker, is_lead = step
        members, racks = self._rows[row], self._racks[row]
        before, after = (giver, taker) if sign > 0 else (taker, giver)
        at = members.index(before)
        kind = self._kind(row, at)._replace(is_lead=is_lead)
        if is_lead:
            other = members.index(after)
            for each in (members, racks):
                each[at], each[other] = each[other], each[at]
            self._led ^= {row}
        else:
            members[at], racks[at] = after, self._rack_of[after]
            self._size += sign * self._needs[kind.topic].size
        add(self._used[giver], self._amounts(kind), -sign)
        add(self._used[taker], self._amounts(kind), sign)
