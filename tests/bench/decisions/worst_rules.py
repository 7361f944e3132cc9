"""The worst events under constraints: of `worst_events`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spu_assigner.core.base.constraints import Constraints, SpreadLevel, Taint, TaintEffect
from spu_assigner.core.base.events import (
    Event,
    LeaveMode,
    SpuId,
    SpuJoined,
    SpuLeft,
    TopicAdopted,
    TopicConstraints,
    TopicCreate,
)
from spu_assigner.core.state.cluster_state import evolve
from support.bench.large_clusters import Building, asked, rebalanced


def by_rules(partitions: int) -> Callable[[Building], Event]:
    def built(cluster: Building) -> Event:
        rules = Constraints(require=("tier=ssd",), spread=(SpreadLevel("zone"),))
        for spu_id in range(25):
            if spu_id == 20:
                cluster.create(10, partitions, 3, constraints=rules)
            labels = {"zone": f"z{spu_id % 7}", "tier": "ssd"}
            cluster.do(
                SpuJoined, spu_id=spu_id, rack=f"r{spu_id % 3}", capacity=10**6, labels=labels
            )
        return rebalanced()

    return built


def ruled(cluster: Building) -> Event:
    for spu_id in range(10_000):
        labels = {"zone": f"z{spu_id % 7}", "tier": "ssd"}
        cluster.do(SpuJoined, spu_id=spu_id, rack=f"r{spu_id % 5}", capacity=10**6, labels=labels)
    cluster.adopt(10)
    levels = SpreadLevel("zone", max=2, min=1), SpreadLevel("rack", max=1)
    rules = Constraints(require=("tier=ssd",), spread=levels)
    return asked(TopicConstraints, topic="t0", constraints=rules)


def relabelled(topics: int, partitions: int) -> Callable[[Building], Event]:
    def built(cluster: Building) -> Event:
        rules = Constraints(require=("tier=ssd",), spread=(SpreadLevel("zone", min=1),))
        for spu_id in range(20):
            labels = {"zone": f"z{spu_id % 3}", "tier": "ssd"}
            cluster.do(SpuJoined, spu_id=spu_id, capacity=10**6, labels=labels)
        cluster.create(topics, partitions, 3, constraints=rules)
        return asked(SpuJoined, spu_id=0, capacity=10**6, labels={"zone": "z0"})

    return built


def ruled_differently(cluster: Building, count: int, *, spu_id: int, spread: SpreadLevel) -> None:
    """Topics of one list, each with rules of its own, described as they are."""
    for number in range(count):
        name = f"t{number}"
        lists = [[spu_id, 1 + number % 9_000, 2 + number % 9_000]]
        cluster.do(TopicAdopted, topic=name, replicas=lists)
        rules = Constraints(require=("tier=ssd", f"not_for!={name}"), spread=(spread,))
        cluster.constrain(name, rules)


def labelled(cluster: Building, count: int, *, kinds: bool = False) -> None:
    for spu_id in range(count):
        labels = {"zone": f"z{spu_id % 7}", "tier": "ssd"}
        if kinds:
            labels |= {"cell": f"c{spu_id // 3}", "row": f"w{spu_id * spu_id % 5_000}"}
        cluster.do(
            SpuJoined,
            spu_id=spu_id,
            rack=f"r{spu_id % 5}",
            capacity=10**6 + kinds * spu_id,
            labels=labels,
        )


def relabelled_for_all(topics: int) -> Callable[[Building], Event]:
    def built(cluster: Building) -> Event:
        labelled(cluster, 10_000)
        ruled_differently(cluster, topics, spu_id=0, spread=SpreadLevel("zone", max=2))
        return asked(SpuJoined, spu_id=0, capacity=10**6, labels={"zone": "z1"})

    return built


def new_value_for_all(topics: int) -> Callable[[Building], Event]:
    def built(cluster: Building) -> Event:
        labelled(cluster, 9_999)
        ruled_differently(cluster, topics, spu_id=0, spread=SpreadLevel("zone", min=1))
        labels = {"zone": "new", "tier": "ssd"}
        return asked(SpuJoined, spu_id=9_999, capacity=10**6, labels=labels)

    return built


def long_selectors(cluster: Building) -> Event:
    labelled(cluster, 10_000)
    text = ",".join(f"!k{number:03d}" for number in range(170))
    rules = Constraints(require=tuple(f"!r{number},{text}" for number in range(16)))
    return asked(TopicCreate, topic="t", partitions=1, replication_factor=3, constraints=rules)


def of_many_kinds(cluster: Building) -> Event:
    labelled(cluster, 10_000, kinds=True)
    starts = [1 + number * 13 % 9_000 for number in range(20_000)]
    lists = [[0, *range(start, start + 900, 100)] for start in starts]
    cluster.do(TopicAdopted, topic="t", replicas=lists)
    levels = SpreadLevel("cell", max=1), SpreadLevel("zone"), SpreadLevel("row", max=1)
    cluster.constrain("t", Constraints(require=("tier=ssd",), spread=levels))
    return asked(SpuLeft, spu_id=0, mode=LeaveMode.DECOMMISSION)


def evicted_everywhere(cluster: Building) -> Event:
    taints = tuple(Taint(f"k{number}", "v", TaintEffect.EVICT) for number in range(16))
    cluster.join(10_000)
    for number in range(10_000):
        cluster.do(TopicAdopted, topic=f"t{number}", replicas=[[0, 1 + number % 9_999]])
    for spu_id in range(1, 10_000):
        evolve(cluster.state, replace(cluster.state.spus[SpuId(spu_id)], taints=taints))
    return asked(SpuJoined, spu_id=0, capacity=10**6, taints=taints)
