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

from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    Event,
    LeaveMode,
    OnShortage,
    Policy,
    SpuDemote,
    SpuId,
    SpuJoined,
    SpuLeft,
    TopicAdopted,
    TopicCreate,
    TopicDelete,
    TopicDemand,
    TopicGrow,
    TopicReplication,
)
from spu_assigner.core.base.limits import MOVES_MAX, REBALANCE_MOVES_MAX
from spu_assigner.core.base.records import Status, TopicStatus
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import evolve

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench.figures import keep, parser_of, say, spread
from support.bench.large_clusters import Building, asked, rebalanced
from worst_rules import (
    by_rules,
    evicted_everywhere,
    long_selectors,
    new_value_for_all,
    of_many_kinds,
    relabelled,
    relabelled_for_all,
    ruled,
)

RESOURCES: Final = ("disk_bytes", "bytes_in_per_s", "bytes_out_per_s", "cores_milli")
RUNS: Final = 3


def scaled_out(partitions: int, max_moves: int = MOVES_MAX) -> Callable[[Building], Event]:
    def built(cluster: Building) -> Event:
        cluster.join(3)
        cluster.create(1, partitions, 3)
        cluster.join(3, first=3)
        return rebalanced(max_moves)

    return built


def half_more(cluster: Building) -> Event:
    cluster.join(1_000, racks=5)
    cluster.create(1_000, 333, 3)
    cluster.join(500, first=1_000, racks=5)
    return rebalanced(REBALANCE_MOVES_MAX)


def all_uneven(cluster: Building) -> Event:
    cluster.join(1_000, racks=5)
    for number in range(1_000):
        first = [number % 5 + 5 * (row % 200) for row in range(333)]
        lists = [[spu, (spu + 335) % 1_000, (spu + 670) % 1_000] for spu in first]
        cluster.do(TopicAdopted, topic=f"t{number}", replicas=lists)
    return rebalanced(REBALANCE_MOVES_MAX)


def leaders_alone(cluster: Building) -> Event:
    cluster.join(3)
    for number in range(3):
        cluster.do(TopicAdopted, topic=f"t{number}", replicas=[[0, 1, 2]] * 100_000)
    return rebalanced(0)


def by_resources(partitions: int) -> Callable[[Building], Event]:
    def built(cluster: Building) -> Event:
        random = Random(1)
        for spu_id in range(120):
            if spu_id == 100:
                for number in range(1_000):
                    cluster.do(
                        TopicCreate,
                        topic=f"t{number}",
                        partitions=partitions,
                        replication_factor=3,
                        demand={name: int(1_000 * random.paretovariate(1.2)) for name in RESOURCES},
                    )
            has = dict.fromkeys(RESOURCES, 10**10 * (1 + spu_id % 3))
            cluster.do(SpuJoined, spu_id=spu_id, rack=f"r{spu_id % 5}", resources=has)
        return rebalanced()

    return built


def one_holds_half(cluster: Building) -> Event:
    cluster.join(10_000, racks=5)
    lists = [[0, 1 + number % 9_999] for number in range(50_000)]
    for number in range(10):
        cluster.do(TopicAdopted, topic=f"t{number}", replicas=lists)
    return asked(SpuLeft, spu_id=0, mode=LeaveMode.DECOMMISSION)


def nobody_takes_over(cluster: Building) -> Event:
    cluster.join(3)
    cluster.create(3, 100_000, 3)
    return asked(SpuLeft, spu_id=0, mode=LeaveMode.DECOMMISSION)


def refilled(cluster: Building) -> Event:
    cluster.join(3)
    cluster.create(3, 100_000, 3)
    cluster.do(SpuLeft, spu_id=0, mode=LeaveMode.DECOMMISSION)
    return asked(SpuJoined, spu_id=3, capacity=10**6)


def tried_again(cluster: Building) -> Event:
    cluster.join(1_000, capacity=300)
    cluster.create(1, 100_000, 3)
    for number in range(10_000):
        cluster.do(
            TopicCreate,
            topic=f"w{number}",
            partitions=20_000 - number,
            replication_factor=2,
            on_shortage=OnShortage.WAIT,
        )
    return asked(SpuJoined, spu_id=1_001, capacity=10**8)


def more_replicas(partitions: int, factor: int) -> Callable[[Building], Event]:
    def built(cluster: Building) -> Event:
        cluster.join(100)
        cluster.create(1, partitions, 1)
        return asked(TopicReplication, topic="t0", replication_factor=factor)

    return built


def fewer_replicas(cluster: Building) -> Event:
    cluster.join(1_000, racks=5)
    cluster.create(1, 100_000, 3)
    return asked(TopicReplication, topic="t0", replication_factor=1)


def created(policy: Policy, replicas: int, capacity: int) -> Callable[[Building], Event]:
    def built(cluster: Building) -> Event:
        for spu_id in range(10_000):
            rack = f"r{spu_id % 5}"
            cluster.do(SpuJoined, spu_id=spu_id, rack=rack, capacity=capacity + spu_id % 10)
        return asked(
            TopicCreate,
            topic="t",
            partitions=100_000,
            replication_factor=replicas,
            policy=policy,
        )

    return built


def grown(cluster: Building) -> Event:
    cluster.join(10_000, racks=5)
    cluster.create(1, 1, 10)
    return asked(TopicGrow, topic="t0", partitions=100_000)


def deleted(cluster: Building) -> Event:
    cluster.join(10_000, racks=5, capacity=100)
    cluster.adopt(10)
    return asked(TopicDelete, topic="t0")


def adopted(cluster: Building) -> Event:
    cluster.join(10_000, racks=5, capacity=50)
    lists = [[(row + 31 * at) % 10_000 for at in range(10)] for row in range(100_000)]
    return asked(TopicAdopted, topic="t", replicas=lists)


def needing_resources(cluster: Building) -> Event:
    has = dict.fromkeys(RESOURCES, 10**9)
    for spu_id in range(10_000):
        cluster.do(SpuJoined, spu_id=spu_id, rack=f"r{spu_id % 5}", capacity=10**6, resources=has)
    lists = [[0, 1 + number % 9_999] for number in range(50_000)]
    for number in range(10):
        demand = dict.fromkeys(RESOURCES, 10)
        cluster.do(TopicAdopted, topic=f"t{number}", replicas=lists, demand=demand)
    return asked(SpuLeft, spu_id=0, mode=LeaveMode.DECOMMISSION)


def of_many_topics(cluster: Building) -> Event:
    cluster.join(4)
    cluster.create(150_000, 1, 3)
    return asked(SpuLeft, spu_id=0, mode=LeaveMode.DECOMMISSION)


def nobody_has_room(cluster: Building) -> Event:
    cluster.join(10_000, capacity=1)
    cluster.do(SpuJoined, spu_id=0, capacity=10**6)
    for number in range(1_000):
        cluster.do(TopicAdopted, topic=f"t{number}", replicas=[[0]])
    cluster.do(TopicAdopted, topic="full", replicas=[[each] for each in range(1, 10_000)])
    return asked(SpuLeft, spu_id=0, mode=LeaveMode.DECOMMISSION)


def refilled_topics(cluster: Building) -> Event:
    cluster.join(3)
    cluster.create(100_000, 1, 3)
    cluster.do(SpuLeft, spu_id=0, mode=LeaveMode.DECOMMISSION)
    return asked(SpuJoined, spu_id=3, capacity=10**6)


def demoted(topics: int, partitions: int) -> Callable[[Building], Event]:
    def built(cluster: Building) -> Event:
        cluster.join(3)
        for number in range(topics):
            cluster.do(TopicAdopted, topic=f"t{number}", replicas=[[0, 1, 2]] * partitions)
        return asked(SpuDemote, spu_id=0)

    return built


def adopted_on_leaving(cluster: Building) -> Event:
    cluster.join(10_000, racks=5)
    for spu_id in range(5_000):
        spu = cluster.state.spus[SpuId(spu_id)]
        evolve(cluster.state, replace(spu, online=False, leaving=True))
    lists = [[(row + 31 * at) % 10_000 for at in range(10)] for row in range(100_000)]
    return asked(TopicAdopted, topic="t", replicas=lists)


def needing_more(cluster: Building) -> Event:
    for spu_id in range(10_000):
        has = dict.fromkeys(RESOURCES, 10**9)
        cluster.do(SpuJoined, spu_id=spu_id, capacity=10**6, resources=has)
    cluster.adopt(10)
    return asked(TopicDemand, topic="t0", demand=dict.fromkeys(RESOURCES, 10))


CASES: Final[dict[str, Callable[[Building], Event]]] = {
    "ClusterRebalance, 3 to 6 SPUs, 10,000 x 3": scaled_out(10_000),
    "ClusterRebalance, 3 to 6 SPUs, 30,000 x 3": scaled_out(30_000),
    "ClusterRebalance, the same, 10 moves": scaled_out(30_000, 10),
    "ClusterRebalance, 3 to 6 SPUs, 100,000 x 3": scaled_out(100_000),
    "ClusterRebalance, 1,000 to 1,500 SPUs, 1,000,000 replicas, 50,000 moves": half_more,
    "ClusterRebalance, 1,000 SPUs, 1,000,000 replicas, each list on one of 5 racks": all_uneven,
    "ClusterRebalance, leaders of 300,000 lists": leaders_alone,
    "ClusterRebalance by resources, 100 to 120 SPUs, 1,000 topics of 16 x 3": by_resources(16),
    "ClusterRebalance by resources, the same, 1,000 topics of 333 x 3": by_resources(333),
    "ClusterRebalance under constraints, 20 to 25 SPUs, 10,000 x 3": by_rules(1_000),
    "ClusterRebalance under constraints, the same, 30,000 x 3": by_rules(3_000),
    "TopicReplication 1 to 32, 5,000 lists, 100 SPUs": more_replicas(5_000, 32),
    "TopicReplication 1 to 32, 100,000 lists, 100 SPUs": more_replicas(100_000, 32),
    "TopicReplication 1 to 3, 100,000 lists, 100 SPUs": more_replicas(100_000, 3),
    "TopicReplication 3 to 1, 100,000 lists, 1,000 SPUs": fewer_replicas,
    "SpuLeft, decommission of one of 10,000 SPUs that is in 500,000 lists": one_holds_half,
    "SpuLeft, decommission, 300,000 lists and no SPU to take over": nobody_takes_over,
    "SpuLeft, the same with 4 resources, 500,000 lists": needing_resources,
    "SpuLeft, decommission of one of 4 SPUs, 150,000 topics of 1 x 3": of_many_topics,
    "SpuLeft, decommission, 1,000 topics and 9,999 full SPUs": nobody_has_room,
    "SpuJoined, 300,000 short lists": refilled,
    "SpuJoined, 100,000 topics with a short list": refilled_topics,
    "SpuJoined, other labels, constraints on 3 topics of 100,000 x 3": relabelled(3, 100_000),
    "SpuJoined, other labels, constraints on 10,000 topics of 1 x 3": relabelled(10_000, 1),
    "SpuJoined, other labels, 2,000 topics of different constraints, 10,000 SPUs": (
        relabelled_for_all(2_000)
    ),
    "SpuJoined, other labels, the same, 20,000 topics": relabelled_for_all(20_000),
    "SpuJoined, a new value for `min` of 2,000 topics of different constraints": (
        new_value_for_all(2_000)
    ),
    "SpuJoined, taints that evict 10,000 topics that nobody may take": evicted_everywhere,
    "SpuLeft, decommission, 20,000 lists under constraints, 10,000 kinds of SPUs": of_many_kinds,
    "SpuDemote, leaders of 300,000 lists": demoted(3, 100_000),
    "SpuDemote, leader of 100,000 topics": demoted(100_000, 1),
    "TopicConstraints, 100,000 x 10, 10,000 SPUs": ruled,
    "TopicDemand, 100,000 x 10, 10,000 SPUs": needing_more,
    "SpuJoined, 10,000 waiting creates for which there is no room": tried_again,
    "TopicCreate by fluvio, 100,000 x 10, 10,000 SPUs": created(Policy.FLUVIO, 10, 10**6),
    "TopicCreate by kafka, 100,000 x 3, 10,000 SPUs that fill up": created(Policy.KAFKA, 3, 30),
    "TopicCreate by rendezvous, 100,000 x 3, 10,000 SPUs": created(Policy.RENDEZVOUS, 3, 10**6),
    "TopicCreate by balanced, 100,000 x 10, 10,000 SPUs": created(Policy.BALANCED, 10, 10**6),
    "TopicGrow, 1 to 100,000 x 10, 10,000 SPUs": grown,
    "TopicDelete, 100,000 x 10, 10,000 saturated SPUs": deleted,
    "TopicCreate, 16 selectors of 171 conditions, 10,000 SPUs": long_selectors,
    "TopicAdopted, 100,000 x 10, 10,000 SPUs": adopted,
    "TopicAdopted, the same, 5,000 of the SPUs are leaving": adopted_on_leaving,
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
