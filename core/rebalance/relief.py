"""The moves of few bytes that bring all SPUs under their goals, by resources.

The goal of an SPU is the *bound*, the band above the fair dominant share, or what it holds for good
where that is more. The *excess* of an SPU beyond its goal is its largest share less the bound.

Rules:
- The SPU of the largest excess gives one replica, or a lead alone, which costs no bytes, to an SPU
  that comes to have a smaller excess. What the first has less, without half of what the other has
  more, is the gain; the step of the largest gain for its price is taken. Of those as good it is
  the one that the SPU has less by, then to where the excess, then the share, is the least.
- Where no such step helps, it gives one and takes another. Where that does not help, it is left.
- The price is the square root of the bytes. One pass improves on that: the steps of each SPU, then
  each step, are left out and others chosen, at the price of one for each, of the root and of the
  bytes. They are kept if the largest excess is smaller, then the sum of excesses, then the bytes,
  then the number of steps.
- A replica moves once at most, never to an SPU that was in its list at first, and to another rack
  only if its list never was there; a list whose lead passes has no moves. So any prefix of the
  steps is a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.rebalance.lists import ClusterLists, Step
from spu_assigner.core.rebalance.resource_goal import ResourceGoal, fair_level
from spu_assigner.core.rebalance.ruled_lists import RuledLists

LOOKS_MAX: Final = 2_000_000  # at replicas, SPUs and steps, then nothing is improved; some 1.5 s
LOOKS_OF_STEP: Final = 64  # what it takes to choose one, beside those at what is given and taken
LEAST: Final = 1e-18  # excess of an SPU beyond its goal, which is rounded down

Numbers = NDArray[np.float64]


class Relief:
    """Steps of few bytes that bring the SPUs into the band above the fair dominant share.

    Any prefix of the steps keeps all rules.
    """

    def __init__(self, lists: ClusterLists, goal: ResourceGoal, ruled: RuledLists) -> None:
        self.fixed = goal.used - goal.movable(lists)  # what SPUs hold for good
        self.fair = fair_level(lists, goal, self.fixed, ruled)  # dominant share
        bound = self.fair * (100 + goal.band_percent) / 100
        ceilings = goal.capacities * bound.numerator // bound.denominator
        goals = np.maximum(self.fixed, np.minimum(goal.capacities, ceilings))
        self.steps: list[Step] = []
        self._looks = 0
        self._ruled, self._bound = ruled, float(bound)
        # A kind is a topic and a role: follower, leader, or the lead alone; the last is nothing.
        # Amounts are exact up to all capacities.
        self._used, self._goals, self._capacities = (
            np.array(amounts, dtype=np.float64) for amounts in (goal.used, goals, goal.capacities)
        )
        self._topics = len(goal.needs)
        followers = np.array([need.follower for need in goal.needs], dtype=np.float64)
        leaders = np.array([need.leader for need in goal.needs], dtype=np.float64)
        nothing = np.zeros_like(followers[:1])
        self._amounts = np.concatenate((followers, leaders, leaders - followers, nothing))
        self._nothing = 3 * self._topics
        sizes = [need.size for need in goal.needs]
        self._sizes = [*sizes, *sizes, *[0] * self._topics, 0]
        # Leads, and what has no bytes, cost as one.
        bytes_of = np.maximum(self._sizes, 1).astype(np.float64)
        bytes_of[-1] = 0
        self._prices = np.sign(bytes_of), np.sqrt(bytes_of), bytes_of
        self._price = self._prices[1]
        self._topic_of: list[int] = lists.topics.tolist()
        self._rack_of: list[int] = [*lists.rack_of.tolist(), -1]
        self._first, self._rows = lists.places.tolist(), lists.places.tolist()
        self._first_racks: list[list[int]] = lists.racks.tolist()
        self._led: set[int] = set()  # lists that have another leader
        self._able: list[list[bool]] = ruled.able_to_lead(lists).tolist()
        self._left_out: Step | None = None
        has_role = (followers != leaders).any(axis=1).tolist()
        # Of each SPU the lists in which it has a replica at first, by kind.
        self._held: list[dict[int, list[int]]] = [{} for _ in range(lists.spus)]
        for row, members in enumerate(self._rows):
            topic = self._topic_of[row]
            for at, spu in enumerate(members):
                roles = (1, 2) if at == 0 and has_role[topic] else (0,)
                for role in roles if spu < lists.spus else ():
                    self._held[spu].setdefault(topic + role * self._topics, []).append(row)
        # What each SPU may give in exchange: nothing, or any of its kinds.
        kinds, spus = [self._nothing] * lists.spus, list(range(lists.spus))
        for spu, held in enumerate(self._held):
            kinds += held
            spus += [spu] * len(held)
        self._exchanged, self._takers = np.array(kinds), np.array(spus)
        self._over = self._excess(self._used, spus[: lists.spus])
        self._relieve_all()
        self._improve()
        self.is_cut = self._looks > LOOKS_MAX  # the search ended at its limit

    def _excess(self, used: Numbers, spus: Any) -> Numbers:
        """Those of SPUs that use so much."""
        shares = used / np.maximum(self._capacities[spus], 1)
        is_over = used > self._goals[spus]
        over = np.where(is_over, np.maximum(shares - self._bound, LEAST), 0)
        return np.asarray(over.max(axis=-1))

    def _relieve_all(self) -> None:
        """Bring the SPUs under their goals."""
        is_left = np.zeros(len(self._over), dtype=np.bool_)
        while (over := np.where(is_left, 0, self._over)).any() and self._looks <= 2 * LOOKS_MAX:
            spu = int(over.argmax())
            steps = self._best_steps(spu) or self._best_steps(spu, is_exchange=True)
            is_left[spu] = not steps
            for step in steps:
                self._make(step)

    def _improve(self) -> None:
        """Leave out steps and choose others."""
        for price in self._prices:
            self._price = price
            for spu in sorted({step.giver for step in self.steps}):
                self._choose_again([step for step in self.steps if step.giver == spu])
        for price in reversed(self._prices):
            self._price = price
            for step in sorted(self.steps, key=lambda each: (-self._sizes[self._kind(each)], each)):
                self._left_out = step
                self._choose_again([step])

    def _choose_again(self, steps: Sequence[Step]) -> None:
        """Take back those of these steps that make no room for others, and choose other ones."""
        if self._looks > LOOKS_MAX:
            return
        self._looks += LOOKS_OF_STEP + len(self.steps)
        before, key = set(self.steps), self._key()
        last_to = {step.taker: at for at, step in enumerate(self.steps)}
        taken_back = [
            step
            for step in steps
            if step in before and last_to.get(step.giver, -1) < self.steps.index(step)
        ]
        for step in taken_back:
            self._take_back(step)
        self._relieve_all()
        if self._key() >= key:
            for step in [each for each in self.steps if each not in before or each in taken_back]:
                self._take_back(step)
            for step in taken_back:
                self._make(step)

    def _best_steps(self, spu: int, *, is_exchange: bool = False) -> list[Step]:
        """What an SPU gives, and takes in exchange; empty: nothing makes anything better."""
        now, found, best = float(self._over[spu]), list[Step](), 0.0
        kinds = np.array([*self._held[spu]], dtype=np.int64)
        lowers = now - self._excess(self._used[spu] - self._amounts[kinds], spu)
        # Rounded, so that those of equal rates are compared by what comes next.
        rates = (lowers / self._price[kinds]).astype(np.float32)
        count = None if is_exchange else len(self._over)
        takers, exchanged = self._takers[:count], self._exchanged[:count]
        returned, over_before = self._amounts[exchanged], self._over[takers]
        used, capacities = self._used[takers] - returned, self._capacities[takers]
        shares = (self._used / np.maximum(self._capacities, 1)).max(axis=1)[takers]
        self._looks += LOOKS_OF_STEP + len(kinds)
        for at in np.lexsort((self._prices[-1][kinds], -lowers, -rates)).tolist():
            if rates[at] <= best:
                break
            kind = int(kinds[at])
            if not any(self._is_there(row, spu) for row in self._held[spu][kind]):
                continue
            amounts = self._amounts[kind]
            own = self._excess(self._used[spu] - amounts + returned, spu)
            over = self._excess(used + amounts, takers)
            gains = now - own - (over - over_before) / 2
            rates_now = (gains / (self._price[kind] + self._price[exchanged])).astype(np.float32)
            may = (rates_now > best) & (np.maximum(own, over) < now) & (takers != spu)
            may &= ((used + amounts <= capacities) | (amounts <= 0)).all(axis=1)
            good = np.flatnonzero(may)
            self._looks += LOOKS_OF_STEP + len(takers) // 4
            for each in good[np.lexsort((shares[good], over[good], -rates_now[good]))].tolist():
                steps = self._steps(spu, kind, int(takers[each]), int(exchanged[each]))
                if steps:
                    found, best = steps, rates_now[each]
                    break
        return found

    def _steps(self, spu: int, kind: int, taker: int, exchanged: int) -> list[Step]:
        """Those by which an SPU gives one kind and takes another; empty: they are not permitted."""
        first = self._step(spu, kind, taker)
        if exchanged == self._nothing or first is None:
            return [] if first is None else [first]
        self._make(first)
        second = self._step(taker, exchanged, spu)
        self._take_back(first)
        return [] if second is None else [first, second]

    def _step(self, giver: int, kind: int, taker: int) -> Step | None:
        """One by which such a replica goes there; None: none is permitted."""
        rows, amounts = self._held[giver][kind], self._amounts[kind]
        self._looks += len(rows)
        if ((self._used[taker] + amounts > self._capacities[taker]) & (amounts > 0)).any():
            return None
        steps = (Step(row, giver, taker, kind >= 2 * self._topics) for row in rows)
        return next(filter(self._may, steps), None)

    def _key(self) -> tuple[float, ...]:
        """The largest excess, the sum of all, bytes, steps."""
        size = sum(self._sizes[self._kind(step)] for step in self.steps)
        return float(self._over.max()), float(self._over.sum()), size, len(self.steps)

    def _kind(self, step: Step) -> int:
        topic = self._topic_of[step.row]
        if step.is_lead:
            return topic + 2 * self._topics
        leader = topic + self._topics
        is_leader = self._first[step.row][0] == step.giver and leader in self._held[step.giver]
        return leader if is_leader else topic

    def _is_there(self, row: int, spu: int) -> bool:
        return row not in self._led and spu in self._rows[row]

    def _may(self, step: Step) -> bool:
        """Whether racks, rules and roles permit a step.

        Rules are those of the list as it was: it gets a new leader, or its replicas move.
        """
        row, giver, taker, is_lead = step
        members, first = self._rows[row], self._first[row]
        if not self._is_there(row, giver) or step == self._left_out:
            return False
        if members[0] == giver and self._ruled.is_demoted(taker, self._topic_of[row]):
            return False
        if is_lead:
            return members == first and taker in members and self._able[row][members.index(taker)]
        if self._ruled.is_ruled[row]:
            return bool(self._ruled.takers(row, first.index(giver))[taker])
        if taker in members or taker in first or self._ruled.closed[taker]:
            return False
        rack = self._rack_of[taker]
        racks = {*self._first_racks[row], *map(self._rack_of.__getitem__, members)}
        return rack == self._rack_of[giver] or rack not in racks

    def _make(self, step: Step) -> None:
        self._apply(step, 1)
        self.steps.append(step)

    def _take_back(self, step: Step) -> None:
        self.steps.remove(step)
        self._apply(step, -1)

    def _apply(self, step: Step, sign: int) -> None:
        """Make a step, or, with a sign of -1, take it back."""
        row, giver, taker, is_lead = step
        members, amounts = self._rows[row], sign * self._amounts[self._kind(step)]
        if is_lead:
            at, other = members.index(giver), members.index(taker)
            members[at], members[other] = taker, giver
            self._led ^= {row}
        elif sign > 0:
            members[members.index(giver)] = taker
        else:
            members[members.index(taker)] = giver
        spus = [giver, taker]
        self._used[spus] += np.stack((-amounts, amounts))
        self._over[spus] = self._excess(self._used[spus], spus)
