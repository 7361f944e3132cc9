"""Weighted rendezvous hashing in the plainest words: the formula as document 003 prints it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

HASH_MAX = 2**64


def hash_of(text: str) -> int:
    """BLAKE2b of 8 bytes, as a number."""
    return int(hashlib.blake2b(text.encode("utf-8"), digest_size=8).hexdigest(), 16)


def merged(key_hash: int, spu_hash: int) -> int:
    """The finalizer of SplitMix64, of the two together."""
    z = key_hash ^ spu_hash
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % HASH_MAX
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % HASH_MAX
    z ^= z >> 31
    return z or 1


def score(hash_value: int, weight: int) -> float:
    return -weight / math.log(hash_value / HASH_MAX)


def rendezvous_list(
    topic: str,
    partition: int,
    weights: Mapping[int, int],
    racks: Mapping[int, str],
    *,
    replicas: int,
) -> list[int]:
    """Replica after replica the best score, of the racks that the list has the fewest SPUs of."""
    key_hash = hash_of(f"{topic}/{partition}")
    scores = {i: score(merged(key_hash, hash_of(str(i))), weights[i]) for i in weights}
    chosen: list[int] = []
    while len(chosen) < replicas:
        left = [spu_id for spu_id in sorted(weights) if spu_id not in chosen]
        held = {i: sum(racks[other] == racks[i] for other in chosen) for i in left}
        open_ids = [i for i in left if held[i] == min(held.values())]
        chosen.append(max(open_ids, key=lambda i: (scores[i], -i)))
    return chosen
