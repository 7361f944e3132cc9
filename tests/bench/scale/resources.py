"""Dominant shares at creation, and what a rebalance moves: 1,000 SPUs, 30,000 replicas.

    python tests/bench/scale/resources.py [--write]

1,000 topics of 10 partitions with 3 replicas, whose sizes are Zipf's (the k-th largest has 1/k**s
of the largest), in a drawn order, on SPUs of three sizes in racks of 500, 300 and 200. A topic has
one replica of each partition on each rack. The bound is the optimum of the linear programme, in
which replicas may be divided, and of which SPUs alike are one; beside it stands what the largest
replica takes of the largest SPU of a rack, which no placement beats. For the rebalance a tenth of
the topics is measured again, at twice or half the size. Its bound are the bytes above the band, SPU
by SPU; beside it stand those of whole replicas, by HiGHS.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import highspy
from spu_assigner.core import Assigner
from spu_assigner.core.base.events import (
    ClusterRebalance,
    Policy,
    SpuJoined,
    TopicCreate,
    TopicDemand,
)
from spu_assigner.core.base.records import ReplicaMap

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench.figures import QUICK, keep, parser_of, say

SPUS: Final = 100 if QUICK else 1_000
TOPICS: Final = 100 if QUICK else 1_000
PARTITIONS: Final = 10
REPLICAS: Final = 3
BAND_PERCENT: Final = 5
EXPONENTS: Final = (0.5, 1.0)
PLACERS: Final = ("balanced", "counts", "kafka", "kraft")  # counts: `balanced` without the demand
LARGEST: Final = 10**9  # bytes of a replica of the largest topic
UNIT: Final = 10**6  # of bytes, for a solver whose tolerance is a millionth


class ZipfCluster:
    """Placed by a policy, with what each SPU uses."""

    def __init__(self, exponent: float) -> None:
        spus, topics = SPUS, TOPICS
        random = Random(1)
        self.rack_of = ["abc"[(spu >= spus // 2) + (spu >= spus * 8 // 10)] for spu in range(spus)]
        self.factors = [random.choice([1, 2, 4]) for _ in range(spus)]
        self.sizes = [max(1, int(LARGEST / rank**exponent)) for rank in range(1, topics + 1)]
        random.shuffle(self.sizes)
        unit = 40 * sum(self.sizes) * PARTITIONS * REPLICAS // spus // 10
        self.capacities = [max(unit, LARGEST) * factor for factor in self.factors]
        self.maps: dict[str, list[list[int]]] = {}
        self.assigner = Assigner()
        self.number = 0

    def say(self, cls: Any, **given: Any) -> None:
        self.number += 1
        event = cls(event_id=f"e{self.number}", cluster_id="c1", **given)
        for each in self.assigner.apply(event):
            if isinstance(each, ReplicaMap) and each.replicas is not None:
                self.maps[each.topic] = each.replicas.tolist()

    def place(self, placer: str) -> None:
        for spu, capacity in enumerate(self.capacities):
            self.say(
                SpuJoined,
                spu_id=spu,
                rack=self.rack_of[spu],
                capacity=1_000 * self.factors[spu],
                resources={"disk_bytes": capacity},
            )
        for number, size in enumerate(self.sizes):
            demand = {"disk_bytes": size} if placer == "balanced" else None
            self.say(
                TopicCreate,
                topic=f"t{number}",
                partitions=PARTITIONS,
                replication_factor=REPLICAS,
                policy=Policy("balanced" if placer == "counts" else placer),
                demand=demand,
            )

    def used(self) -> Counter[int]:
        used = Counter[int]()
        for number, size in enumerate(self.sizes):
            for row in self.maps[f"t{number}"]:
                used.update(dict.fromkeys(row, size))
        return used

    def largest(self) -> float:
        return max(size / self.capacities[spu] for spu, size in self.used().items())

    def is_diverse(self) -> bool:
        rows = (row for rows in self.maps.values() for row in rows)
        return all(len({self.rack_of[spu] for spu in row}) == REPLICAS for row in rows)

    def largest_replica(self) -> float:
        """The share that a replica of the largest topic takes at least: it has one on each rack."""
        most = dict.fromkeys(self.rack_of, 0)
        for rack, capacity in zip(self.rack_of, self.capacities, strict=True):
            most[rack] = max(most[rack], capacity)
        return max(self.sizes) / min(most.values())

    def bound(self) -> float:
        """Of the linear programme: replicas may be divided."""
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        level = highs.addVariable(lb=0, ub=highspy.kHighsInf, obj=1)
        kinds = Counter(zip(self.rack_of, self.capacities, strict=True))
        held: dict[tuple[str, int], list[Any]] = {kind: [] for kind in kinds}
        for size in self.sizes:
            for rack in "abc":
                parts = [highs.addVariable(lb=0) for each in kinds if each[0] == rack]
                highs.addConstr(sum(parts) == PARTITIONS)
                for kind, part in zip([k for k in kinds if k[0] == rack], parts, strict=True):
                    held[kind].append((size / LARGEST) * part)
        for kind, count in kinds.items():
            highs.addConstr(highs.qsum(held[kind]) <= level * (kind[1] / LARGEST * count))
        highs.run()
        assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return float(highs.getInfo().objective_function_value)

    def change_demands(self) -> None:
        random, count = Random(2), len(self.sizes)
        for number in random.sample(range(count), count // 10):
            self.sizes[number] = max(1, int(self.sizes[number] * random.choice([0.5, 2])))
            demand = {"disk_bytes": self.sizes[number]}
            self.say(TopicDemand, topic=f"t{number}", demand=demand)

    def bytes_beyond(self, level: float) -> tuple[float, int]:
        """What has to leave the SPUs so that no share is above a level: if replicas could be
        divided, and in whole replicas."""
        held: dict[int, list[int]] = {spu: [] for spu in range(len(self.capacities))}
        for number, size in enumerate(self.sizes):
            for row in self.maps[f"t{number}"]:
                for spu in row:
                    held[spu].append(size)
        divided, whole = 0.0, 0
        for spu, capacity in enumerate(self.capacities):
            beyond = sum(held[spu]) - level * capacity
            if beyond > 0:
                divided += beyond
                whole += least_whole(held[spu], beyond)
        return divided, whole


def least_whole(sizes: Sequence[int], beyond: float) -> int:
    """The least sum of some of these that is no less."""
    highs = highspy.Highs()
    for option, value in (("output_flag", False), ("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0)):
        highs.setOptionValue(option, value)
    takes = [highs.addBinary(obj=size / UNIT) for size in sizes]
    total = sum(size / UNIT * take for size, take in zip(sizes, takes, strict=True))
    highs.addConstr(total >= beyond / UNIT)
    highs.run()
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    found = highs.getSolution().col_value
    return sum(size for size, value in zip(sizes, found, strict=True) if value > 0.5)


def figures_of(exponent: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for placer in PLACERS:
        cluster = ZipfCluster(exponent)
        begin = time.perf_counter()
        cluster.place(placer)
        seconds = time.perf_counter() - begin
        bound = cluster.bound()
        replica = cluster.largest_replica()
        found[placer] = {
            "largest_share": cluster.largest(),
            "of_bound": cluster.largest() / bound,
            "bound": bound,
            "largest_replica": replica,
            "of_both": cluster.largest() / max(bound, replica),
            "rack_diverse": cluster.is_diverse(),
            "seconds": seconds,
        }
        if placer == "balanced":
            cluster.change_demands()
            found["rebalance"] = rebalanced(cluster)
    return found


def rebalanced(cluster: ZipfCluster) -> dict[str, Any]:
    bound, before = cluster.bound(), dict(cluster.maps)
    level = max(bound, cluster.largest_replica())
    share_before = cluster.largest()
    divided, whole = cluster.bytes_beyond(level * (100 + BAND_PERCENT) / 100)
    begin = time.perf_counter()
    cluster.say(ClusterRebalance, max_moves=2**31 - 1, band_percent=BAND_PERCENT)
    seconds = time.perf_counter() - begin
    moved = 0
    for number, size in enumerate(cluster.sizes):
        pairs = zip(before[f"t{number}"], cluster.maps[f"t{number}"], strict=True)
        moved += sum(size * len({*new} - {*old}) for old, new in pairs)
    return {
        "bound": bound,
        "share_before": share_before,
        "share_after": cluster.largest(),
        "of_bound_after": cluster.largest() / bound,
        "of_both_after": cluster.largest() / level,
        "bytes": moved,
        "bytes_held": sum(cluster.used().values()),
        "bytes_bound": int(divided),
        "of_bytes_bound": moved / divided if divided else None,
        "bytes_of_whole_replicas": whole,
        "of_whole_replicas": moved / whole if whole else None,
        "seconds": seconds,
    }


def main() -> None:
    options = parser_of(__doc__).parse_args()
    figures = {f"zipf_{exponent}": figures_of(exponent) for exponent in EXPONENTS}
    for name, found in figures.items():
        say(f"{name}: {found}")
    if options.write:
        sizes = {"spus": SPUS, "topics": TOPICS, "partitions": PARTITIONS, "replicas": REPLICAS}
        keep("resources", sizes=sizes, figures=figures, show=False)


if __name__ == "__main__":
    main()
