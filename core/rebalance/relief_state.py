"""Lists and loads while a rebalance by resources looks for its plan: steps are made and undone."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np
from spu_assigner.core.rebalance.covering import Item
from spu_assigner.core.rebalance.resource_loads import (
    SHARE_BITS,
    Amounts,
    MovableLists,
    SpuResources,
    TopicNeed,
    dominant_share,
)

ROWS: Final = 16  # of alike replicas, that are asked which racks they may go to
NEVER: Final = 2**200
LOOKS_OF_OFFER: Final = 8  # what it takes to weigh a kind of replicas


class Step(NamedTuple):
    """A replica goes from one SPU to another, or a lead within its list."""

    row: int
    giver: int
    taker: int
    is_lead: bool


class Kind(NamedTuple):
    """Replicas that take the same amounts."""

    topic: int
    is_leader: bool  # False also where leaders take what followers do


class Rest(NamedTuple):
    """What an SPU has still to give, at least."""

    size: int  # bytes
    resource: int  # that says so, by its place
    price: tuple[int, int]  # bytes for so much of that resource


NOTHING: Final = Rest(0, 0, (0, 1))


class ReliefState:
    """What each SPU uses after the steps made so far, and what it may use.

    An SPU is *over* where it uses more than its goal: its ceiling, or what it holds for good where
    that is more. A replica moves once at most, and never to an SPU that was in its list at first:
    so any prefix of the steps is a plan.
    """

    def __init__(
        self,
        loads: SpuResources,
        fixed: Sequence[Amounts],
        lists: MovableLists,
        needs: Sequence[TopicNeed],
        *,
        bound: Fraction,
        demoted: Collection[int],
    ) -> None:
        """`bound`: the dominant share that SPUs may have; `demoted`: those that take no lead."""
        self.steps: list[Step] = []
        self.size = 0  # bytes moved
        self.looks = 0  # at SPUs, kinds of replicas and lists, so far
        self.spus = len(loads.used)
        self._capacities = loads.capacities
        self._used = [list(amounts) for amounts in loads.used]
        up, down = bound.numerator, bound.denominator
        self._ceilings = [
            [min(capacity, capacity * up // down) for capacity in amounts]
            for amounts in loads.capacities
        ]
        self._goals = [
            list(map(max, ceilings, held))
            for ceilings, held in zip(self._ceilings, fixed, strict=True)
        ]
        self._needs = needs
        self._topics = lists.topics
        self._first = lists.places.tolist()
        self._first_racks = lists.racks.tolist()
        self._rows = lists.places.tolist()
        self._racks = lists.racks.tolist()
        self.rack_of: list[int] = lists.rack_of.tolist()
        self._rack_array = lists.rack_of
        self._all_racks = sorted(set(self.rack_of))
        self._demoted = demoted
        self._led: set[int] = set()  # lists that have another leader
        self._ruled = lists.ruled
        # Of each SPU the lists in which it has a replica that has not moved.
        self._held: list[dict[Kind, list[int]]] = [{} for _ in range(self.spus)]
        self._prices: dict[tuple[int, int], tuple[int, list[tuple[int, int, int, Kind]]]] = {}
        for row, members in enumerate(self._rows):
            for at, spu in enumerate(members):
                if spu < self.spus:
                    self._held[spu].setdefault(self._kind(row, at), []).append(row)

    def share(self, spu: int) -> int:
        """The dominant share of an SPU."""
        return dominant_share(self._used[spu], self._capacities[spu])

    def excess(self, spu: int) -> int:
        """By how much of a share the SPU is over its goal; 0: it is not."""
        worst = 0
        for capacity, used, goal in zip(
            self._capacities[spu], self._used[spu], self._goals[spu], strict=True
        ):
            if used > goal:
                worst = max(worst, ((used - goal) << SHARE_BITS) // (capacity or 1))
        return worst

    def over(self) -> list[int]:
        """The SPUs over their goals, the one furthest beyond first."""
        self.looks += self.spus
        found = [(-excess, spu) for spu in range(self.spus) if (excess := self.excess(spu))]
        return [spu for _, spu in sorted(found)]

    def rest(self, spu: int) -> Rest:
        """At least how many bytes have to leave an SPU, so that it is no longer over.

        Of each resource as if replicas could be divided, those with the fewest bytes for what they
        take of it first; the most of these.
        """
        worst = NOTHING
        for index, (used, goal) in enumerate(zip(self._used[spu], self._goals[spu], strict=True)):
            over = used - goal
            if over <= 0:
                continue
            size, found = 0, Rest(NEVER, index, (NEVER, 1))
            for _, amount, each, kind in self._by_price(spu, index):
                count = len(self._held[spu][kind])
                if amount * count >= over:
                    found = Rest(size - (-over * each // amount), index, (each, amount))
                    break
                over -= amount * count
                size += each * count
            worst = max(worst, found)
        return worst

    def _by_price(self, spu: int, resource: int) -> list[tuple[int, int, int, Kind]]:
        """What an SPU holds or held by the bytes for what it takes of a resource: price, amount,
        bytes, kind. Kept until there is another kind."""
        held = self._held[spu]
        known = self._prices.get((spu, resource))
        if known is not None and known[0] == len(held):
            return known[1]
        found = []
        for kind in held:
            need = self._needs[kind.topic]
            amount = (need.leader if kind.is_leader else need.follower)[resource]
            if amount:
                found.append(((need.size << SHARE_BITS) // amount, amount, need.size, kind))
        found.sort()
        self._prices[spu, resource] = len(held), found
        return found

    def portions(self, spu: int, resource: int) -> tuple[int, list[tuple[Kind, Item]]]:
        """By how much of a resource an SPU is over its goal, and what of it its replicas take."""
        found = []
        for kind, rows in self._held[spu].items():
            need = self._needs[kind.topic]
            amount = (need.leader if kind.is_leader else need.follower)[resource]
            if amount and rows:
                found.append((kind, Item(amount, need.size, len(rows))))
        return self._used[spu][resource] - self._goals[spu][resource], found

    def offers(self, spu: int, rest: Rest) -> list[tuple[int, int, Kind, bool]]:
        """What an SPU that is over can give that helps, the best first.

        Of each: bytes that it and what has to follow come to at least, less what the SPU is nearer
        to its goal then, the kind, and whether it is the lead alone.
        """
        found = []
        self.looks += LOOKS_OF_OFFER * len(self._held[spu])
        excess = self.excess(spu)
        for kind, rows in self._held[spu].items():
            if not rows:
                continue
            need = self._needs[kind.topic]
            ways = [(need.leader if kind.is_leader else need.follower, need.size, False)]
            if kind.is_leader:
                more = [a - b for a, b in zip(need.leader, need.follower, strict=True)]
                ways.append((more, 0, True))
            for amounts, size, is_lead in ways:
                self._add(spu, amounts, -1)
                gain = excess - self.excess(spu)
                self._add(spu, amounts, 1)
                if gain > 0:
                    each, amount = rest.price
                    left = max(0, rest.size - each * amounts[rest.resource] // amount)
                    found.append((max(rest.size, size + left), -gain, kind, is_lead))
        found.sort()
        return found

    def way(self, spu: int, taker: int, kind: Kind, *, is_lead: bool) -> tuple[int, Step] | None:
        """The step by which an SPU gives such a replica, and by how much of a share the taker is
        over its ceiling then; None: there is no such step."""
        need = self._needs[kind.topic]
        amounts = need.leader if kind.is_leader else need.follower
        if is_lead:
            if taker in self._demoted:
                return None
            amounts = [a - b for a, b in zip(need.leader, need.follower, strict=True)]
        beyond = self._beyond(taker, amounts)
        if beyond is None:
            return None
        for row in self._held[spu][kind]:
            step = Step(row, spu, taker, is_lead)
            self.looks += 1
            if self._may(step):
                return beyond, step
        return None

    def fits(self, step: Step) -> bool:
        """Whether a step that was made elsewhere can be made here."""
        if step.is_lead:
            members = self._rows[step.row]
            if members[0] != step.giver or step.taker not in members:
                return False
        elif step.giver not in self._rows[step.row]:
            return False
        return self._may(step) and self._beyond(step.taker, self._amounts(step)) is not None

    def make(self, step: Step) -> None:
        """Make a step."""
        amounts = self._amounts(step)
        self._add(step.giver, amounts, -1)
        self._add(step.taker, amounts, 1)
        self._pass(step.row, step.giver, step.taker, is_lead=step.is_lead)
        if step.is_lead:
            self._led.add(step.row)
        else:
            self.size += self._needs[self._topics[step.row]].size
        self.steps.append(step)

    def undo(self, count: int) -> None:
        """Undo the steps after so many."""
        while len(self.steps) > count:
            step = self.steps.pop()
            self._pass(step.row, step.taker, step.giver, is_lead=step.is_lead)
            amounts = self._amounts(step)
            self._add(step.giver, amounts, 1)
            self._add(step.taker, amounts, -1)
            if step.is_lead:
                self._led.discard(step.row)
            else:
                self.size -= self._needs[self._topics[step.row]].size

    def open_racks(self, spu: int, kind: Kind) -> list[int]:
        """The racks whose SPUs the lists of such replicas may take instead."""
        found = {self.rack_of[spu]}
        for row in self._held[spu][kind][:ROWS]:
            racks, first = self._racks[row], self._first_racks[row]
            if self._ruled is not None and self._ruled.has(row):
                takers = self._ruled.takers(row, self._first[row].index(spu))
                found.update(map(int, np.unique(self._rack_array[takers])))
                continue
            found.update(
                rack
                for rack in self._all_racks
                if rack not in found and racks.count(rack) < max(1, first.count(rack))
            )
        return sorted(found)

    def leads_of(self, spu: int, kind: Kind) -> Iterator[int]:
        """Who could take one of these leads."""
        seen = {spu}
        for row in self._held[spu][kind]:
            for member in self._rows[row]:
                if member < self.spus and member not in seen:
                    seen.add(member)
                    yield member

    def _kind(self, row: int, at: int) -> Kind:
        need = self._needs[self._topics[row]]
        return Kind(self._topics[row], at == 0 and need.leader != need.follower)

    def _amounts(self, step: Step) -> Amounts:
        """What a step takes from the giver, as it stands before the step."""
        need = self._needs[self._topics[step.row]]
        if step.is_lead:
            return [a - b for a, b in zip(need.leader, need.follower, strict=True)]
        return need.leader if self._rows[step.row][0] == step.giver else need.follower

    def _add(self, spu: int, amounts: Amounts, sign: int) -> None:
        used = self._used[spu]
        for index, amount in enumerate(amounts):
            used[index] += sign * amount

    def _beyond(self, spu: int, amounts: Amounts) -> int | None:
        worst = 0
        for capacity, used, ceiling, amount in zip(
            self._capacities[spu], self._used[spu], self._ceilings[spu], amounts, strict=True
        ):
            if amount > 0 and used + amount > ceiling:
                if used + amount > capacity:
                    return None
                worst = max(worst, ((used + amount - ceiling) << SHARE_BITS) // capacity)
        return worst

    def _may(self, step: Step) -> bool:
        row, giver, taker, is_lead = step
        members = self._rows[row]
        if self._ruled is not None and self._ruled.has(row):
            return self._may_by_rules(step)
        if is_lead:
            return row not in self._led and taker in members
        if taker in members or taker in self._first[row]:
            return False
        if members[0] == giver and taker in self._demoted:
            return False
        if self._ruled is not None and self._ruled.closed[taker]:
            return False
        rack = self.rack_of[taker]
        if rack == self.rack_of[giver]:
            return True
        return bool(self._racks[row].count(rack) < max(1, self._first_racks[row].count(rack)))

    def _may_by_rules(self, step: Step) -> bool:
        """The rules are those of the list as it was: once its leader changed, nothing moves, and
        the reverse."""
        row, giver, taker, is_lead = step
        members, first = self._rows[row], self._first[row]
        if self._ruled is None or row in self._led:
            return False
        if is_lead:
            return members == first and taker in members and self._ruled.may_lead(row, taker)
        return giver in first and bool(self._ruled.takers(row, first.index(giver))[taker])

    def _pass(self, row: int, giver: int, taker: int, *, is_lead: bool) -> None:
        members, racks = self._rows[row], self._racks[row]
        at = members.index(giver)
        places = [at, members.index(taker)] if is_lead else [at]
        for place in places:
            self._enter(row, place, is_gone=True)
        if is_lead:
            for each in (members, racks):
                each[places[0]], each[places[1]] = each[places[1]], each[places[0]]
        else:
            members[at], racks[at] = taker, self.rack_of[taker]
        for place in places:
            self._enter(row, place, is_gone=False)

    def _enter(self, row: int, at: int, *, is_gone: bool) -> None:
        spu = self._rows[row][at]
        if spu in self._first[row]:
            rows = self._held[spu].setdefault(self._kind(row, at), [])
            if is_gone:
                rows.remove(row)
            else:
                insort(rows, row)
