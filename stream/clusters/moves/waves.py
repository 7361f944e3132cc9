"""Which partitions are moved together: a pure function.

    wave = next_wave(in_order(moves), concurrency=5)

Rule: what copies nothing comes first, all at once: a new order of the same replicas, or replicas
that only go. Then the smallest first, by the bytes that are copied, ties by name: partitions of a
wave are of much the same size, so that a wave does not wait long for its last one. A wave takes a
move while each of its brokers has fewer than `concurrency` of them: those that receive a replica,
those that give one up, and the preferred leader, from which the copy is read.

    1: t-0 [1, 2] → [3, 2]   10 MB
    2: t-1 [2, 1] → [3, 1]   20 MB     concurrency 1: broker 3 has t-0, so t-1 is in wave 2
    3: t-2 [1, 2] → [2, 1]    0 MB     a new order: before both
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from spu_assigner.schemas.messages.wire import MovedPartition

CONCURRENCY: Final = 5  # moves of a broker at once: what Cruise Control takes by default
FETCH_SIZE: Final = 1 << 20  # of a partition at once: Kafka's default for replica.fetch.max.bytes
QUOTA_SECONDS: Final = 11  # Kafka's default for replication.quota.window.num, of a second each
FREE_MAX: Final = 1_000  # moves of a request that copy nothing; a controller refuses 10,000 records


def concurrency_under(rate: int | None) -> int:
    """Moves of a broker at once under so many bytes a second (None: no throttle), unless given.

    Kafka looks at its quota, an average over QUOTA_SECONDS, before a fetch and not within it. All
    partitions may fetch FETCH_SIZE at once; that is to exceed the rate by no more than a tenth.
    Under a rate below 1 MB/s one partition alone exceeds it by more.
    """
    if rate is None:
        return CONCURRENCY
    return max(1, min(CONCURRENCY, rate * QUOTA_SECONDS // (10 * FETCH_SIZE)))


def adding(move: MovedPartition) -> tuple[int, ...]:
    """The brokers that receive a replica."""
    return tuple(broker for broker in move.after if broker not in move.before)


def removing(move: MovedPartition) -> tuple[int, ...]:
    """The brokers that give one up."""
    return tuple(broker for broker in move.before if broker not in move.after)


def copied_bytes(move: MovedPartition) -> int:
    """What goes over the network."""
    return move.size_bytes * len(adding(move))


def busy(move: MovedPartition) -> frozenset[int]:
    """The brokers that a move keeps busy; none, if it copies nothing."""
    if not (received := adding(move)):
        return frozenset()
    return frozenset((*received, *removing(move), move.before[0]))


def in_order(moves: Iterable[MovedPartition]) -> list[MovedPartition]:
    """What copies nothing first, then the smallest."""
    return sorted(
        moves, key=lambda each: (bool(adding(each)), copied_bytes(each), each.topic, each.partition)
    )


def first_within(moves: Sequence[MovedPartition], bytes_max: int) -> list[MovedPartition]:
    """As many of the first moves as copy no more than that together."""
    copied = accumulate(map(copied_bytes, moves))
    return [each for each, size in zip(moves, copied, strict=True) if size <= bytes_max]


def next_wave(moves: Sequence[MovedPartition], *, concurrency: int) -> list[MovedPartition]:
    """The moves that go together next, of moves in order; none only if there are none.

    Args:
        concurrency: moves of a broker at once, 1 or more.

    Cost: O(moves).
    """
    if moves and not adding(moves[0]):
        return [each for each in moves[:FREE_MAX] if not adding(each)]
    wave: list[MovedPartition] = []
    load: Counter[int] = Counter()
    for move in moves:
        brokers = busy(move)
        if all(load[broker] < concurrency for broker in brokers):
            wave.append(move)
            load.update(brokers)
    return wave


def waves(moves: Iterable[MovedPartition], *, concurrency: int) -> Iterator[list[MovedPartition]]:
    """All waves, as they are if nothing changes."""
    left = in_order(moves)
    while wave := next_wave(left, concurrency=concurrency):
        taken = {(each.topic, each.partition) for each in wave}
        left = [each for each in left if (each.topic, each.partition) not in taken]
        yield wave
