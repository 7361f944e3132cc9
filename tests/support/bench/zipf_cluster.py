"""Topics of Zipf's sizes on SPUs of three sizes in three racks, and what bounds their placement.

Beside them rules for creates that come one by one. A topic has one replica of each partition on
each rack, so the smallest rack is a problem of its own: replicas of one size at a time, SPUs of
three sizes. A rule says to which SPU the next replica goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

import highspy
import numpy as np
from numpy.typing import NDArray
from spu_assigner.core import Assigner
from spu_assigner.core.base.events import (
    Policy,
    SpuJoined,
    TopicCreate,
    TopicDemand,
)
from spu_assigner.core.base.records import ReplicaMap

PARTITIONS: Final = 10
REPLICAS: Final = 3
LARGEST: Final = 10**9  # bytes of a replica of the largest topic
UNIT: Final = 10**6  # of bytes, for a solver whose tolerance is a millionth


class ZipfCluster:
    """Placed by a policy, with what each SPU uses."""

    def __init__(
        self,
        *,
        spus: int,
        topics: int,
        exponent: float,
        largest_first: bool = False,
        order: int | None = None,
    ) -> None:
        """`order`: the seed of another order of the topics."""
        random = Random(1)
        self.rack_of = ["abc"[(spu >= spus // 2) + (spu >= spus * 8 // 10)] for spu in range(spus)]
        self.factors = [random.choice([1, 2, 4]) for _ in range(spus)]
        self.sizes = [max(1, int(LARGEST / rank**exponent)) for rank in range(1, topics + 1)]
        if not largest_first:
            (random if order is None else Random(order)).shuffle(self.sizes)
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


Amounts = NDArray[np.float64]
# Used and capacities of the SPUs before the topic, size of its replicas, and of each SPU how many
# of them it has: who gets the next one.
Rule = Callable[[Amounts, Amounts, float, NDArray[Any]], int]


def smallest_share(used: Amounts, has: Amounts, size: float, given: NDArray[Any]) -> int:
    return int(((used + (given + 1) * size) / has).argmin())


def sum_of_squares(used: Amounts, has: Amounts, size: float, given: NDArray[Any]) -> int:
    """Least sum over SPUs of capacity x share squared."""
    now = used + given * size
    return int((((now + size) ** 2 - now**2) / has).argmin())


def sum_of_exponentials(used: Amounts, has: Amounts, size: float, given: NDArray[Any]) -> int:
    """Least sum over SPUs of capacity x e^(10 x share / mean share)."""
    mean = (used.sum() + (given.sum() + 1) * size) / has.sum()
    now = used + given * size
    after = 10 * (now + size) / has / mean
    more = after + np.log1p(-np.exp(-10 * size / has / mean))  # the logarithm of the difference
    return int((np.log(has) + more).argmin())


RULES: Final[Mapping[str, Rule]] = {
    "smallest share": smallest_share,
    "sum of squares": sum_of_squares,
    "sum of exponentials": sum_of_exponentials,
}


def ratio(rule: Rule, cluster: ZipfCluster) -> float:
    """The largest share, as a multiple of the mean of the smallest rack, once all topics of a
    cluster are there in their order."""
    last = max(cluster.rack_of)
    has = np.array(
        [c for c, rack in zip(cluster.capacities, cluster.rack_of, strict=True) if rack == last],
        dtype=np.float64,
    )
    used = np.zeros_like(has)
    for size in cluster.sizes:
        given = np.zeros(len(has), dtype=np.int64)
        for _ in range(PARTITIONS):
            given[rule(used, has, float(size), given)] += 1
        used += given * size
    return float((used / has).max() / (used.sum() / has.sum()))
