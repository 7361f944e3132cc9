"""Which partitions are moved together: a pure function.

Rule: the smallest go first, by the bytes that are copied, ties by name; what copies nothing (a new
order of the same replicas, or replicas that only go) is the smallest of all. A wave takes a move
while none of its brokers has more than `bytes_max` to copy: those that receive a replica, those
that give one up, and the preferred leader, from which the copy is read. One move of a broker is
always permitted, however large. So small moves go together.
A low rate makes waves longer, not smaller: it bounds the load; waves, what a cancel loses.

    1: t-2 [1, 2] → [2, 1]    0 MB
       t-0 [1, 2] → [3, 2]   10 MB
    2: t-1 [2, 1] → [3, 1]   20 MB     bytes_max 25 MB: broker 3 has t-0, so t-1 is in wave 2
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from spu_assigner.schemas.messages.wire import MovedPartition

WAVE_SECONDS: Final = 60  # of copying at full rate, or at that of a faster throttle
FULL_RATE: Final = 200_000_000  # bytes a second that a broker copies without a throttle
MOVES_MAX: Final = 500  # of a wave: with their throttle they fit in a message of Kafka's


def wave_bytes(rate: int | None) -> int:
    """What a broker copies in one wave, under so many bytes a second; None: no throttle."""
    return WAVE_SECONDS * max(rate or 0, FULL_RATE)


def adding(move: MovedPartition) -> tuple[int, ...]:
    """The brokers that receive a replica."""
    return tuple(broker for broker in move.after if broker not in move.before)


def copied_bytes(move: MovedPartition) -> int:
    """What goes over the network."""
    return move.size_bytes * len(adding(move))


def busy(move: MovedPartition) -> frozenset[int]:
    """The brokers that a move keeps busy; none, if it copies nothing."""
    if not adding(move):
        return frozenset()
    return frozenset({*move.before} ^ {*move.after} | {move.before[0]})


def in_order(moves: Iterable[MovedPartition]) -> list[MovedPartition]:
    """What copies nothing first, then the smallest."""
    return sorted(
        moves, key=lambda each: (bool(adding(each)), copied_bytes(each), each.topic, each.partition)
    )


def first_within(moves: Sequence[MovedPartition], bytes_max: int) -> list[MovedPartition]:
    """As many of the first moves as copy no more than that together."""
    copied = accumulate(map(copied_bytes, moves))
    return [each for each, size in zip(moves, copied, strict=True) if size <= bytes_max]


def waves(moves: Iterable[MovedPartition], *, bytes_max: int) -> list[list[MovedPartition]]:
    """All moves, those that go together in one list; a broker copies `bytes_max` in each."""
    found: list[list[MovedPartition]] = []
    left = in_order(moves)
    while left:
        wave: list[MovedPartition] = []
        later: list[MovedPartition] = []
        load: Counter[int] = Counter()
        for move in left:
            brokers = busy(move)
            most = max((load[broker] for broker in brokers), default=0)
            has_room = not most or most + move.size_bytes <= bytes_max
            if has_room and len(wave) < MOVES_MAX:
                wave.append(move)
                load.update(dict.fromkeys(brokers, move.size_bytes))
            else:
                later.append(move)
        found.append(wave)
        left = later
    return found
