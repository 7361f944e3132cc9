"""Kafka 4's rule: racks in turn, the brokers of each rack in turn, from places that are drawn.

Each rack has two wheels of SPUs by id: online ones, and offline ones, which Kafka calls fenced. A
wheel begins at a drawn place; each partition turns it one further before it first asks, and then
takes its SPUs in turn until it has given all. The leader is the first online SPU that a rack gives,
from the rack on whose turn it is; a follower is what the next rack gives, online SPUs first. The
leader's rack is passed over once. The turn goes on by one rack with each partition; after as many
partitions as SPUs are online, racks and wheels are shuffled.

SPUs 0 … 3, of which 3 is offline, racks a (0, 1), b (2) and c (3), nothing drawn but 0: the lists
of three are [0, 2, 3], [2, 3, 1] and [0, 3, 2]. The third is rack c's turn, which cannot lead.

Draws are those of `java.util.Random`: Kafka's own class, given the same seed, gives the same lists.

Source: Kafka 4.2.1, StripedReplicaPlacer, in place of document 004's older rule; java.util.Random
and java.util.Collections.shuffle, Java SE 17 API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

_MULTIPLIER: Final = 0x5DEECE66D
_MASK: Final = 2**48 - 1


class SeededDraws:
    """The generator that Java's documentation gives `java.util.Random`: 48 bits, linear."""

    def __init__(self, seed: int) -> None:
        self._bits = (seed ^ _MULTIPLIER) & _MASK

    def _next(self) -> int:
        self._bits = (self._bits * _MULTIPLIER + 0xB) & _MASK
        return self._bits >> 17  # 31 bits

    def below(self, bound: int) -> int:
        """A number from 0 to bound - 1, all alike in probability."""
        if bound & -bound == bound:
            return bound * self._next() >> 31
        while True:
            bits = self._next()
            if bits - bits % bound + bound <= 2**31:  # Else the last numbers would be too rare.
                return bits % bound


def shuffle(items: list[Any], draws: SeededDraws) -> None:
    """Put the items in a drawn order, from the last to the second."""
    for last in range(len(items) - 1, 0, -1):
        other = draws.below(last + 1)
        items[last], items[other] = items[other], items[last]


class _Wheel:
    """SPUs of one rack that are given in turn."""

    __slots__ = ("given", "ids", "place", "round")

    def __init__(self, ids: Iterable[int], draws: SeededDraws) -> None:
        self.ids = sorted(ids)
        self.place = draws.below(len(self.ids)) if self.ids else 0
        self.given = 0  # in the round
        self.round = 0

    def next(self, round_: int) -> int | None:
        """The next SPU of this round; None: it has given all.

        As Kafka's, one that is asked in round 0 alone goes on when the rounds begin again.
        """
        if self.round != round_:
            self.round, self.given = round_, 0
            if self.ids:
                self.place = (self.place + 1) % len(self.ids)
        if self.given >= len(self.ids):
            return None
        self.given += 1
        return self.ids[(self.given - 1 + self.place) % len(self.ids)]


class Stripes:
    """The lists of one request, one after the other."""

    def __init__(
        self, online: Mapping[int, str], offline: Mapping[int, str], draws: SeededDraws
    ) -> None:
        """SPUs are given with their racks, "" for none; at least one is online."""
        by_rack: dict[str, tuple[list[int], list[int]]] = {}
        for number, racks in enumerate((online, offline)):
            for spu_id, rack in racks.items():
                by_rack.setdefault(rack, ([], []))[number].append(spu_id)
        self._draws = draws
        # In the order of their names; each wheel of a rack draws, that of offline SPUs first.
        self._wheels: list[tuple[_Wheel, _Wheel]] = []
        for _, (ids, offline_ids) in sorted(by_rack.items()):
            last = _Wheel(offline_ids, draws)
            self._wheels.append((_Wheel(ids, draws), last))
        self._racks = list(self._wheels)  # in the order of their turns
        self._rounds = len(online)
        self._turn = draws.below(len(self._racks))
        self._round = 0

    def next(self, replicas: int) -> list[int]:
        """The next list; there are so many SPUs."""
        if self._round == self._rounds > 1:
            shuffle(self._racks, self._draws)
            for first, last in self._wheels:
                shuffle(last.ids, self._draws)
                shuffle(first.ids, self._draws)
            self._round = 0
        racks, round_ = self._racks, self._round
        count = len(racks)
        turn = leading = self._turn % count
        while (leader := racks[leading][0].next(round_)) is None:
            leading = (leading + 1) % count
        row, is_passed = [leader], False
        while len(row) < replicas:
            if turn == leading and not is_passed:
                is_passed = True
            else:
                first, last = racks[turn]
                taken = first.next(round_)
                taken = last.next(round_) if taken is None else taken
                if taken is not None:
                    row.append(taken)
            turn = (turn + 1) % count
        self._round += 1
        self._turn = self._turn % count + 1
        return row
