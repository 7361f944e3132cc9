"""Dominant shares at creation, and what a rebalance moves: 1,000 SPUs, 30,000 replicas.

1,000 topics of 10 partitions with 3 replicas, whose sizes are Zipf's (the k-th largest has 1/k**s
of the largest), in a drawn order, on SPUs of three sizes in racks of 500, 300 and 200. The bound is
the optimum of the linear programme, in which replicas may be divided, and of which SPUs alike are
one; beside it stands what the largest replica takes of the largest SPU, which no placement beats.
For the rebalance a tenth of the topics is measured again, at twice or half the size.
"""

from __future__ import annotations

import time
from collections import Counter
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
from support.bench.figures import QUICK, keep

SPUS: Final = 100 if QUICK else 1_000
TOPICS: Final = 100 if QUICK else 1_000
PARTITIONS: Final = 10
REPLICAS: Final = 3
LARGEST: Final = 10**9  # bytes of a replica of the largest topic
EXPONENTS: Final = (0.5, 1.0)
PLACERS: Final = ("balanced", "counts", "kafka", "kraft")  # counts: `balanced` without the demand


class Cluster:
    """Placed by a policy, with what each SPU uses."""

    def __init__(self, exponent: float) -> None:
        random = Random(1)
        self.rack_of = ["abc"[(spu >= SPUS // 2) + (spu >= SPUS * 8 // 10)] for spu in range(SPUS)]
        self.factors = [random.choice([1, 2, 4]) for _ in range(SPUS)]
        self.sizes = [max(1, int(LARGEST / rank**exponent)) for rank in range(1, TOPICS + 1)]
        random.shuffle(self.sizes)
        unit = 40 * sum(self.sizes) * PARTITIONS * REPLICAS // SPUS // 10
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

    def bound(self) -> float:
        """Of the linear programme."""
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
        random = Random(2)
        for number in random.sample(range(TOPICS), TOPICS // 10):
            self.sizes[number] = max(1, int(self.sizes[number] * random.choice([0.5, 2])))
            demand = {"disk_bytes": self.sizes[number]}
            self.say(TopicDemand, topic=f"t{number}", demand=demand)


def figures_of(exponent: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for placer in PLACERS:
        cluster = Cluster(exponent)
        begin = time.perf_counter()
        cluster.place(placer)
        seconds = time.perf_counter() - begin
        bound = cluster.bound()
        replica = LARGEST / max(cluster.capacities)
        found[placer] = {
            "largest_share": cluster.largest(),
            "of_bound": cluster.largest() / bound,
            "bound": bound,
            "largest_replica": replica,
            "rack_diverse": cluster.is_diverse(),
            "seconds": seconds,
        }
        if placer == "balanced":
            found["rebalance"] = rebalanced(cluster)
    return found


def rebalanced(cluster: Cluster) -> dict[str, Any]:
    cluster.change_demands()
    bound, before, used = cluster.bound(), dict(cluster.maps), cluster.used()
    share_before = cluster.largest()
    ceilings = [max(bound, 0) * 1.05 * capacity for capacity in cluster.capacities]
    must = sum(max(0.0, used[spu] - ceiling) for spu, ceiling in enumerate(ceilings))
    begin = time.perf_counter()
    cluster.say(ClusterRebalance, max_moves=2**31 - 1)
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
        "bytes": moved,
        "bytes_bound": int(must),
        "of_bytes_bound": moved / must if must else None,
        "seconds": seconds,
    }


def test_shares_and_bytes_beside_the_bounds() -> None:
    figures = {f"zipf_{exponent}": figures_of(exponent) for exponent in EXPONENTS}
    sizes = {"spus": SPUS, "topics": TOPICS, "partitions": PARTITIONS, "replicas": REPLICAS}
    keep("resources", sizes=sizes, figures=figures)
