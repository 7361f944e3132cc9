"""What the worst event of each kind costs in the core, at the limits of the contract.

    python tests/bench/decisions/worst_events.py [--only NAME] [--runs 3] [--write]

Clusters of up to 10,000 SPUs and 1,000,000 replicas, requests of up to 100,000 partitions: for each
kind of event those that were found to take the longest. What is beyond a limit of one event is
rejected with a code; that is measured too. CPU time of one `step`, each run in a process of its
own, since an event changes the state. With `--write` it goes to `results/worst_events.json`.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

from spu_assigner.core.base.constraints import Constraints, SpreadLevel, Taint, TaintEffect
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    ClusterRebalance,
    Event,
    LeaveMode,
    Policy,
    SpuDemote,
    SpuId,
    SpuJoined,
    SpuLeft,
    TopicAdopted,
    TopicConstraints,
    TopicCreate,
    TopicDelete,
    TopicDemand,
    TopicGrow,
    TopicReplication,
)
from spu_assigner.core.base.limits import MOVES_MAX, REBALANCE_MOVES_MAX
from spu_assigner.core.base.records import Mode, Status, TopicStatus
from spu_assigner.core.decision.machine import step
from spu_assigner.core.decision.ring_changes import revised
from spu_assigner.core.state.cluster_state import ClusterState, evolve

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench.figures import keep, parser_of, say, spread

RESOURCES: Final = ("disk_bytes", "bytes_in_per_s", "bytes_out_per_s", "cores_milli")
RUNS: Final = 3
CLUSTER: Final = "c"


class Building:
    """A cluster on its way to the event."""

    def __init__(self) -> None:
        self.state = ClusterState(CLUSTER)
        self._events = 0

    def do(self, kind: type[Any], **fields: Any) -> None:
        self._events += 1
        event = kind(event_id=f"e{self._events}", cluster_id=CLUSTER, **fields)
        step(self.state, event, default_policy=Policy.BALANCED)

    def join(self, count: int, *, first: int = 0, racks: int = 0, capacity: int = 10**6) -> None:
        for spu_id in range(first, first + count):
            rack = f"r{spu_id % racks}" if racks else None
            self.do(SpuJoined, spu_id=spu_id, rack=rack, capacity=capacity)

    def join_labelled(self, count: int, **more: Callable[[int], str]) -> None:
        """With labels `zone` and `tier`, and others by id."""
        for spu_id in range(count):
            labels = {"zone": f"z{spu_id % 7}", "tier": "ssd"}
            labels |= {name: value(spu_id) for name, value in more.items()}
            capacity = 10**6 + spu_id * bool(more)
            rack = f"r{spu_id % 5}"
            self.do(SpuJoined, spu_id=spu_id, rack=rack, capacity=capacity, labels=labels)

    def constrain(self, name: str, *levels: SpreadLevel, require: tuple[str, ...] = ()) -> None:
        """Rules that bind a topic, without a look at its lists."""
        rules = Constraints(require=("tier=ssd", *require), spread=levels)
        lists = {name: self.state.topics[name].replicas.lists()}
        for record in revised(self.state, name, Mode.CONSTRAINTS, lists, constraints=rules):
            evolve(self.state, record)

    def adopt(self, replicas: int) -> None:
        """A topic t0 of 100,000 lists on 10,000 SPUs, each of which holds as many replicas."""
        self.do(TopicAdopted, topic="t0", replicas=large_topic(replicas))

    def create(self, topics: int, partitions: int, replicas: int, **fields: Any) -> None:
        for number in range(topics):
            shape = {"partitions": partitions, "replication_factor": replicas}
            self.do(TopicCreate, topic=f"t{number}", **shape, **fields)


Case = Callable[[Building], Event]


def asked(kind: type[Any], **fields: Any) -> Event:
    event: Event = kind(event_id="asked", cluster_id=CLUSTER, **fields)
    return event


def decommissioned(spu_id: int = 0) -> Event:
    return asked(SpuLeft, spu_id=spu_id, mode=LeaveMode.DECOMMISSION)


def large_topic(replicas: int) -> list[list[int]]:
    return [[(row + 31 * at) % 10_000 for at in range(replicas)] for row in range(100_000)]


def half_more(cluster: Building) -> Event:
    cluster.join(1_000, racks=5)
    cluster.create(1_000, 333, 3)
    cluster.join(500, first=1_000, racks=5)
    return asked(ClusterRebalance, max_moves=REBALANCE_MOVES_MAX)


def all_uneven(cluster: Building) -> Event:
    cluster.join(1_000, racks=5)
    for number in range(1_000):
        first = [number % 5 + 5 * (row % 200) for row in range(333)]
        lists = [[spu, (spu + 335) % 1_000, (spu + 670) % 1_000] for spu in first]
        cluster.do(TopicAdopted, topic=f"t{number}", replicas=lists)
    return asked(ClusterRebalance, max_moves=REBALANCE_MOVES_MAX)


def by_resources(cluster: Building) -> Event:
    random = Random(1)
    for spu_id in range(120):
        if spu_id == 100:
            for number in range(1_000):
                demand = {name: int(1_000 * random.paretovariate(1.2)) for name in RESOURCES}
                shape = {"partitions": 16, "replication_factor": 3}
                cluster.do(TopicCreate, topic=f"t{number}", **shape, demand=demand)
        has = dict.fromkeys(RESOURCES, 10**10 * (1 + spu_id % 3))
        cluster.do(SpuJoined, spu_id=spu_id, rack=f"r{spu_id % 5}", resources=has)
    return asked(ClusterRebalance, max_moves=MOVES_MAX)


def by_rules(cluster: Building) -> Event:
    rules = Constraints(require=("tier=ssd",), spread=(SpreadLevel("zone"),))
    for spu_id in range(25):
        if spu_id == 20:
            cluster.create(10, 1_000, 3, constraints=rules)
        labels = {"zone": f"z{spu_id % 7}", "tier": "ssd"}
        cluster.do(SpuJoined, spu_id=spu_id, rack=f"r{spu_id % 3}", capacity=10**6, labels=labels)
    return asked(ClusterRebalance, max_moves=MOVES_MAX)


def more_replicas(cluster: Building) -> Event:
    cluster.join(100)
    cluster.create(1, 100_000, 1)
    return asked(TopicReplication, topic="t0", replication_factor=3)


def one_holds_half(cluster: Building) -> Event:
    cluster.join(10_000, racks=5)
    lists = [[0, 1 + number % 9_999] for number in range(50_000)]
    for number in range(10):
        cluster.do(TopicAdopted, topic=f"t{number}", replicas=lists)
    return decommissioned()


def needing_resources(cluster: Building) -> Event:
    has = dict.fromkeys(RESOURCES, 10**9)
    for spu_id in range(10_000):
        cluster.do(SpuJoined, spu_id=spu_id, rack=f"r{spu_id % 5}", capacity=10**6, resources=has)
    lists = [[0, 1 + number % 9_999] for number in range(50_000)]
    for number in range(10):
        demand = dict.fromkeys(RESOURCES, 10)
        cluster.do(TopicAdopted, topic=f"t{number}", replicas=lists, demand=demand)
    return decommissioned()


def of_many_topics(cluster: Building) -> Event:
    cluster.join(4)
    cluster.create(150_000, 1, 3)
    return decommissioned()


def of_many_kinds(cluster: Building) -> Event:
    cluster.join_labelled(
        10_000, cell=lambda spu: f"c{spu // 3}", row=lambda spu: f"w{spu * spu % 5_000}"
    )
    starts = [1 + number * 13 % 9_000 for number in range(20_000)]
    lists = [[0, *range(start, start + 900, 100)] for start in starts]
    cluster.do(TopicAdopted, topic="t", replicas=lists)
    levels = SpreadLevel("cell", max=1), SpreadLevel("zone"), SpreadLevel("row", max=1)
    cluster.constrain("t", *levels)
    return decommissioned()


def refilled_topics(cluster: Building) -> Event:
    cluster.join(3)
    cluster.create(100_000, 1, 3)
    cluster.do(SpuLeft, spu_id=0, mode=LeaveMode.DECOMMISSION)
    return asked(SpuJoined, spu_id=3, capacity=10**6)


def ruled_differently(cluster: Building, spread: SpreadLevel) -> None:
    """2,000 topics of one list, each with rules of its own, described as they are."""
    for number in range(2_000):
        name = f"t{number}"
        cluster.do(TopicAdopted, topic=name, replicas=[[0, 1 + number % 9_000, 2 + number % 9_000]])
        cluster.constrain(name, spread, require=(f"not_for!={name}",))


def relabelled(cluster: Building) -> Event:
    cluster.join_labelled(10_000)
    ruled_differently(cluster, SpreadLevel("zone", max=2))
    return asked(SpuJoined, spu_id=0, capacity=10**6, labels={"zone": "z1"})


def new_value(cluster: Building) -> Event:
    cluster.join_labelled(9_999)
    ruled_differently(cluster, SpreadLevel("zone", min=1))
    labels = {"zone": "new", "tier": "ssd"}
    return asked(SpuJoined, spu_id=9_999, capacity=10**6, labels=labels)


def evicted_everywhere(cluster: Building) -> Event:
    taints = tuple(Taint(f"k{number}", "v", TaintEffect.EVICT) for number in range(16))
    cluster.join(10_000)
    for number in range(10_000):
        cluster.do(TopicAdopted, topic=f"t{number}", replicas=[[0, 1 + number % 9_999]])
    for spu_id in range(1, 10_000):
        evolve(cluster.state, replace(cluster.state.spus[SpuId(spu_id)], taints=taints))
    return asked(SpuJoined, spu_id=0, capacity=10**6, taints=taints)


def demoted(cluster: Building) -> Event:
    cluster.join(3)
    for number in range(100_000):
        cluster.do(TopicAdopted, topic=f"t{number}", replicas=[[0, 1, 2]])
    return asked(SpuDemote, spu_id=0)


def ruled(cluster: Building) -> Event:
    cluster.join_labelled(10_000)
    cluster.adopt(10)
    levels = SpreadLevel("zone", max=2, min=1), SpreadLevel("rack", max=1)
    rules = Constraints(require=("tier=ssd",), spread=levels)
    return asked(TopicConstraints, topic="t0", constraints=rules)


def needing_more(cluster: Building) -> Event:
    for spu_id in range(10_000):
        has = dict.fromkeys(RESOURCES, 10**9)
        cluster.do(SpuJoined, spu_id=spu_id, capacity=10**6, resources=has)
    cluster.adopt(10)
    return asked(TopicDemand, topic="t0", demand=dict.fromkeys(RESOURCES, 10))


def created(policy: Policy, replicas: int, capacity: int) -> Case:
    def built(cluster: Building) -> Event:
        for spu_id in range(10_000):
            rack = f"r{spu_id % 5}"
            cluster.do(SpuJoined, spu_id=spu_id, rack=rack, capacity=capacity + spu_id % 10)
        shape = {"partitions": 100_000, "replication_factor": replicas}
        return asked(TopicCreate, topic="t", policy=policy, **shape)

    return built


def grown(cluster: Building) -> Event:
    cluster.join(10_000, racks=5)
    cluster.create(1, 1, 10)
    return asked(TopicGrow, topic="t0", partitions=100_000)


def deleted(cluster: Building) -> Event:
    cluster.join(10_000, racks=5, capacity=100)
    cluster.adopt(10)
    return asked(TopicDelete, topic="t0")


def adopted_on_leaving(cluster: Building) -> Event:
    cluster.join(10_000, racks=5)
    for spu_id in range(5_000):
        spu = cluster.state.spus[SpuId(spu_id)]
        evolve(cluster.state, replace(spu, online=False, leaving=True))
    return asked(TopicAdopted, topic="t", replicas=large_topic(10))


CASES: Final[dict[str, Case]] = {
    "ClusterRebalance, 1,000 to 1,500 SPUs, 1,000,000 replicas, 50,000 moves": half_more,
    "ClusterRebalance, 1,000 SPUs, 1,000,000 replicas, each list on one of 5 racks": all_uneven,
    "ClusterRebalance by resources, 100 to 120 SPUs, 1,000 topics of 16 x 3": by_resources,
    "ClusterRebalance under constraints, 20 to 25 SPUs, 10,000 x 3": by_rules,
    "TopicReplication 1 to 3, 100,000 lists, 100 SPUs": more_replicas,
    "SpuLeft, decommission of one of 10,000 SPUs that is in 500,000 lists": one_holds_half,
    "SpuLeft, the same with 4 resources, 500,000 lists": needing_resources,
    "SpuLeft, decommission of one of 4 SPUs, 150,000 topics of 1 x 3": of_many_topics,
    "SpuLeft, decommission, 20,000 lists under constraints, 10,000 kinds of SPUs": of_many_kinds,
    "SpuJoined, 100,000 topics with a short list": refilled_topics,
    "SpuJoined, other labels, 2,000 topics of different constraints, 10,000 SPUs": relabelled,
    "SpuJoined, a new value for `min` of 2,000 topics of different constraints": new_value,
    "SpuJoined, taints that evict 10,000 topics that nobody may take": evicted_everywhere,
    "SpuDemote, leader of 100,000 topics": demoted,
    "TopicConstraints, 100,000 x 10, 10,000 SPUs": ruled,
    "TopicDemand, 100,000 x 10, 10,000 SPUs": needing_more,
    "TopicCreate by kafka, 100,000 x 3, 10,000 SPUs that fill up": created(Policy.KAFKA, 3, 30),
    "TopicCreate by balanced, 100,000 x 10, 10,000 SPUs": created(Policy.BALANCED, 10, 10**6),
    "TopicGrow, 1 to 100,000 x 10, 10,000 SPUs": grown,
    "TopicDelete, 100,000 x 10, 10,000 saturated SPUs": deleted,
    "TopicAdopted, 100,000 x 10, 10,000 SPUs, 5,000 of them leaving": adopted_on_leaving,
}


def measured(name: str) -> tuple[float, str]:
    """Seconds of CPU time, and what the event was answered."""
    cluster = Building()
    event = CASES[name](cluster)
    gc.collect()
    begun = time.process_time()
    records = step(cluster.state, event, default_policy=Policy.BALANCED)
    seconds = time.process_time() - begun
    for record in records:
        if isinstance(record, TopicStatus) and record.status is Status.REJECTED:
            return seconds, f"rejected, {'' if record.code is None else record.code.value}"
    unchecked = sum(getattr(record, "code", None) is Code.TOO_COMPLEX for record in records)
    if unchecked:
        return seconds, f"done, {unchecked:,} topics not checked"
    return seconds, "done" if cluster.state.retries is None else "goes on with the next events"


def main() -> None:
    """Measure each case."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(measured(options.once)))
        return
    figures: dict[str, Any] = {}
    for name in [options.only] if options.only else CASES:
        seconds, answer = [], ""
        for _ in range(options.runs):
            command = [sys.executable, __file__, "--once", name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            each, answer = json.loads(done.stdout)
            seconds.append(each)
        figures[name] = {"seconds": spread(seconds), "answer": answer}
        say(f"{name}: {figures[name]['seconds']['median']} s, {answer}")
    if options.write:
        sizes = {"spus_max": 10_000, "replicas_max": 1_000_000, "partitions_max": 100_000}
        keep("worst_events", sizes=sizes, figures=figures, show=False)


if __name__ == "__main__":
    main()
