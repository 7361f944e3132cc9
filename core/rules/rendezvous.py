"""Weighted rendezvous hashing: each partition asks every SPU for a score, the best have it.

    score = -weight / ln(hash / 2**64), weight: the SPU's capacity, the highest score first
    hash = mix(key ^ spu), 0 counts as 1
    key: BLAKE2b with a digest of 8 bytes, big-endian, of "topic/partition" in UTF-8
    spu: the same of the SPU's id in decimal
    mix: the finalizer of SplitMix64

An SPU leads as many partitions as its weight says, and a newcomer takes only what it wins. Over
racks the list is filled in rounds: each takes the best SPU left of each rack, by score.

Three SPUs 0 … 2 of the weights 1, 1 and 2, topic "orders": for partition 0 they score 33.7, 0.417
and 6.97, for partition 1 0.817, 0.639 and 2.14; so the lists of two are [0, 2] and [2, 0].

Scores are compared as real numbers, on any machine alike: two that differ by less than `CLOSE` are
computed with `EXACT_DIGITS` digits; those that agree in `TIED_DIGITS` go by id.

Source: Redpanda's RFC 20191020_partition_allocator, "What other designs have been considered";
the method: Schindelhauer and Schomaker, "Weighted Distributed Hash Tables" (2005); the finalizer:
Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014).
"""

from __future__ import annotations

from decimal import Context, Decimal
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.limits import SPUS_MAX
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix

HashArray = NDArray[np.uint64]

CELLS_AT_ONCE: Final = 2**18  # partitions times SPUs, some 2 MB an array
CLOSE: Final = 2.0**-40  # relative; numpy's logarithms are right to some 2**-50
EXACT_DIGITS: Final = 100  # hash / 2**64 has at most 64
TIED_DIGITS: Final = 80

_HALF: Final = np.uint64(2**63)
_EXACT: Final = Context(prec=EXACT_DIGITS)
_TIED: Final = Context(prec=TIED_DIGITS)


def text_hash(text: str) -> int:
    """64 bits that stand for a text, the same for ever and everywhere."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


@lru_cache(maxsize=2 * SPUS_MAX)
def spu_hash(spu_id: int) -> int:
    """64 bits that stand for an SPU."""
    return text_hash(str(spu_id))


def pair_hashes(topic: str, start: int, count: int, ids: IdArray) -> HashArray:
    """For each of the partitions from `start` on, a row: its hash with each SPU, from 1."""
    keys = [text_hash(f"{topic}/{partition}") for partition in range(start, start + count)]
    spus = [spu_hash(spu_id) for spu_id in ids.tolist()]
    mixed: HashArray = np.array(keys, dtype=np.uint64)[:, None] ^ np.array(spus, dtype=np.uint64)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    mixed[mixed == 0] = 1
    return mixed


def scores(hashes: HashArray, weights: NDArray[np.int64]) -> NDArray[np.float64]:
    """The score of each hash, right to some 2**-50; weights are 1 or more."""
    is_low = hashes < _HALF  # Else a float does not hold the hash, but its distance to 2**64.
    part = np.where(is_low, hashes, np.uint64(0) - hashes).astype(np.float64) * 2.0**-64
    return weights / -np.where(is_low, np.log(part), np.log1p(-part))


def by_score(hashes: HashArray, weights: NDArray[np.int64]) -> NDArray[np.intp]:
    """For each row the columns by score, the highest first; tied ones in ascending order."""
    found = scores(hashes, weights)
    order = np.argsort(-found, axis=1, kind="stable")
    ranked = np.take_along_axis(found, order, axis=1)
    close = ranked[:, :-1] - ranked[:, 1:] <= CLOSE * ranked[:, :-1]
    for row in np.flatnonzero(close.any(axis=1)).tolist():
        _sort_exactly(order[row], close[row], hashes[row], weights)
    return order


def _sort_exactly(
    order: NDArray[np.intp], close: NDArray[np.bool_], hashes: HashArray, weights: Any
) -> None:
    """In place: sort each run of columns of which each is `close` to the next."""
    run_starts = np.flatnonzero(np.r_[True, ~close])
    for begin, end in zip(run_starts, [*run_starts[1:], len(order)], strict=True):
        if end - begin > 1:
            costs: dict[int, Decimal] = {}  # the reciprocals of the scores
            for column in order[begin:end].tolist():
                part = _EXACT.divide(Decimal(int(hashes[column])), Decimal(2**64))
                logarithm = _EXACT.ln(part).copy_negate()  # `-` would round it
                costs[column] = _TIED.divide(logarithm, Decimal(int(weights[column])))
            order[begin:end] = sorted(costs, key=lambda column: (costs[column], column))


def scored(
    ids: IdArray,
    *,
    weights: NDArray[np.int64],
    racks: IdArray | None = None,
    topic: str,
    start: int,
    partitions: int,
    replicas: int,
) -> IdMatrix:
    """Place the partitions of a topic from number `start` on, each for itself: no period.

    `racks` numbers the rack of each SPU from 0, without gaps; None: racks do not matter. Cost:
    O(partitions * N * log N).
    """
    placed: IdMatrix = np.empty((partitions, replicas), dtype=np.int32)
    rows = max(1, CELLS_AT_ONCE // len(ids))
    for begin in range(0, partitions, rows):
        count = min(rows, partitions - begin)
        order = by_score(pair_hashes(topic, start + begin, count, ids), weights)
        if racks is not None:
            order = np.take_along_axis(order, _in_rounds(racks[order], replicas), axis=1)
        placed[begin : begin + count] = ids[order[:, :replicas]]
    return placed


def _in_rounds(racks: IdMatrix, replicas: int) -> NDArray[np.intp]:
    """For each row the places of its replicas, as they are taken.

    `racks` has in each row the rack of each SPU, the best first: the same racks in every row.
    """
    sizes = np.bincount(racks[0])
    # Of each rack one block, in which its SPUs stand as in the row: their places in it count.
    by_rack = np.argsort(racks.astype(np.int16), axis=1, kind="stable")  # SPUS_MAX racks at most
    round_in_block = np.concatenate([np.arange(size, dtype=np.int16) for size in sizes])
    rounds = np.empty(racks.shape, dtype=np.int16)
    np.put_along_axis(rounds, by_rack, round_in_block[np.newaxis], axis=1)
    return np.argsort(rounds, axis=1, kind="stable")[:, :replicas]
