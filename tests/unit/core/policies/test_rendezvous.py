"""Weighted rendezvous hashing: the published hash, the order by score and what a join moves."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from math import sqrt
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from spu_assigner.core.rules import rendezvous

CLUSTERS = 10_000
HASHES = st.one_of(
    st.integers(1, 2**64 - 1),
    st.integers(1, 2**20).map(lambda distance: 2**64 - distance),  # where floats say 1.0
    st.integers(1, 2**20),
)


def scored(
    weights: dict[int, int],
    racks: dict[int, str] | None = None,
    *,
    topic: str = "orders",
    start: int = 0,
    partitions: int,
    replicas: int,
) -> list[list[int]]:
    ids = np.array(sorted(weights), dtype=np.int32)
    numbers = None
    if racks is not None:
        names = sorted({*racks.values()})
        numbers = np.array([names.index(racks[i]) for i in ids.tolist()], dtype=np.int32)
    placed = rendezvous.scored(
        ids,
        weights=np.array([weights[i] for i in ids.tolist()], dtype=np.int64),
        racks=numbers,
        topic=topic,
        start=start,
        partitions=partitions,
        replicas=replicas,
    )
    found: list[list[int]] = placed.tolist()
    return found


def test_the_hash_is_the_published_one() -> None:
    """The test vectors of docs/policies.md: who computes a place elsewhere can check the hash."""
    assert rendezvous.text_hash("orders/0") == 0x52764D0AF027E39D
    assert rendezvous.spu_hash(0) == 0x842B7D9D43CDDF75
    ids = np.arange(3, dtype=np.int32)
    hashes = rendezvous.pair_hashes("orders", 0, 2, ids)
    assert [[f"{each:016x}" for each in row] for row in hashes.tolist()] == [
        ["f88219071569d550", "17417423898ca967", "c01cb2436fd21f33"],
        ["4b4ef9efd833e538", "358b1654c3e045be", "6476c47d6d06b005"],
    ]
    scores = rendezvous.scores(hashes, np.array([1, 1, 2]))
    assert [[f"{each:.6g}" for each in row] for row in scores.tolist()] == [
        ["33.6682", "0.416905", "6.96625"],
        ["0.817271", "0.639106", "2.13817"],
    ]
    assert scored({0: 1, 1: 1, 2: 2}, partitions=2, replicas=2) == [[0, 2], [2, 0]]


@pytest.mark.thorough
def test_10_000_random_clusters_are_placed_as_the_printed_formula_says() -> None:
    """An independent version in plain Python: its own hash, float scores, racks one by one."""
    random = Random(3)
    for number in range(CLUSTERS):
        size = random.randint(1, 9)
        ids = random.sample(range(10_000), size)
        weights = {i: random.choice([1, 2, 3, 6_998, 6_998, 2**31 - 1]) for i in ids}
        racks = {i: random.choice("abc") for i in ids} if random.random() < 0.5 else None
        replicas, start = random.randint(1, size), random.choice([0, 0, 5, 99_990])
        topic = f"t{number}"
        expected = [
            rendezvous_list(
                topic, start + p, weights, racks or dict.fromkeys(ids, ""), replicas=replicas
            )
            for p in range(2)
        ]
        found = scored(weights, racks, topic=topic, start=start, partitions=2, replicas=replicas)
        assert found == expected, (number, weights, racks)


@given(high=HASHES, slip=st.integers(-1, 1), is_first=st.booleans())
@example(high=2**63, slip=0, is_first=True)
@example(high=2**63, slip=0, is_first=False)
@example(high=2**64 - 1, slip=0, is_first=True)
@example(high=2**57 - 832, slip=0, is_first=False)  # apart in the 29th digit
def test_close_scores_are_compared_as_real_numbers(high: int, slip: int, is_first: bool) -> None:
    """Of the weights 1 and 2 the second wins where its hash exceeds the square of the first's. That
    is decided here in whole numbers; the last bit of a logarithm must not decide it."""
    low = min(max(high * high // 2**64 + slip, 1), 2**64 - 1)
    hashes, weights = [high, low], [1, 2]
    light_is_better = high * high - low * 2**64  # above 0: the SPU of weight 1
    expected = [0, 1] if light_is_better >= 0 else [1, 0]
    if not is_first:
        hashes.reverse()
        weights.reverse()
        expected = [1, 0] if light_is_better > 0 else [0, 1]
    found = rendezvous.by_score(np.array([hashes], dtype=np.uint64), np.array(weights))
    assert found.tolist() == [expected]


def within_3_sigma(found: int, *, share: float, of: int) -> bool:
    return abs(found - share * of) <= 3 * sqrt(of * share * (1 - share))


@pytest.mark.parametrize("capacity", [3_499, 6_998, 20_994])
def test_a_join_moves_only_what_the_newcomer_wins(capacity: int) -> None:
    """A list changes where the newcomer comes in, there one SPU goes; the leads it wins are its
    share of all weights, within 3 sigma."""
    weights = dict.fromkeys(range(20), 6_998)
    before = scored(weights, partitions=20_000, replicas=3)
    after = scored({**weights, 20: capacity}, partitions=20_000, replicas=3)
    for old, new in zip(before, after, strict=True):
        assert [spu_id for spu_id in new if spu_id != 20] == old[: 2 if 20 in new else 3]
    share = capacity / (20 * 6_998 + capacity)
    assert within_3_sigma(sum(row[0] == 20 for row in after), share=share, of=20_000)
    if capacity == 6_998:
        assert within_3_sigma(sum(20 in row for row in after), share=3 / 21, of=20_000)


@given(
    racks=st.lists(st.sampled_from("abcd"), min_size=2, max_size=9),
    replicas=st.integers(1, 8),
    weights=st.lists(st.integers(1, 5), min_size=9, max_size=9),
)
def test_over_racks_a_join_brings_in_nobody_else(
    racks: list[str], replicas: int, weights: list[int]
) -> None:
    """At most one SPU goes for it; lists are as even over racks as they can be."""
    newcomer = len(racks) - 1
    replicas = min(replicas, newcomer)
    rack_of = dict(enumerate(racks))
    weight_of = {i: weights[i] for i in rack_of}
    after = scored(weight_of, rack_of, partitions=8, replicas=replicas)
    del weight_of[newcomer], rack_of[newcomer]
    before = scored(weight_of, rack_of, partitions=8, replicas=replicas)
    for old, new in zip(before, after, strict=True):
        assert set(new) - set(old) <= {newcomer}
        held = Counter(racks[i] for i in new)
        rooms = [held[rack] for i, rack in enumerate(racks) if i not in new]  # with a free SPU
        assert max(held.values()) - min(rooms, default=max(held.values())) <= 1


# The formula in the plainest words, as document 003 prints it.

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
