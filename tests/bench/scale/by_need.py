"""What a create costs in the core that names four resources, and one that names none.

    python tests/bench/scale/by_need.py [--beside OTHER_PYTHON] [--write]

Creates of 16 partitions × 3 replicas through `machine.step`, on SPUs of one kind or of three,
without racks or on three of them. What a partition needs is drawn for each topic, Pareto-
distributed, so most topics are small beside the differences that the large ones have left.

With `--beside`, the interpreter of another checkout, each case is measured there too, in turns, a
process each; the figures say how many times longer it takes there. CPU time of the thread; the
least of some rounds of 100 creates in each process. With `--write` the figures go to
`results/by_need.json`.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Final

from spu_assigner.core.base.events import Policy, SpuJoined, TopicCreate
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench.figures import QUICK, keep, say, spread

RESOURCES: Final = ("disk_bytes", "bytes_in_per_s", "bytes_out_per_s", "cores_milli")
ROUNDS: Final = 3 if QUICK else 5
TOPICS: Final = 100
PROCESSES: Final = 1 if QUICK else 3
CASES: Final = [
    (spus, racks, kinds, demand)
    for demand in ("demand", "leaders need more", "none")
    for spus in (64, 1_000)
    for racks in (1, 3)
    for kinds in (1, 3)
]
Case = tuple[int, int, int, str]


def name_of(case: Case) -> str:
    spus, racks, kinds, demand = case
    racked = f", {racks} racks" if racks > 1 else ""
    return f"{spus:,} SPUs{racked}, {kinds} kind{'s' if kinds > 1 else ''}; {demand}"


def cluster(spus: int, racks: int, kinds: int) -> ClusterState:
    """SPUs of these kinds, each with twice of what the kind before it has."""
    state = ClusterState("c")
    for spu_id in range(spus):
        size = 2 ** (spu_id * 7 % kinds)
        joined = SpuJoined(
            event_id=f"j{spu_id}",
            cluster_id="c",
            spu_id=spu_id,
            rack=f"r{spu_id % racks}" if racks > 1 else None,
            capacity=10**6 * size,
            resources={name: 10**10 * size * (at + 1) for at, name in enumerate(RESOURCES)},
        )
        step(state, joined, default_policy=Policy.BALANCED)
    return state


def creates(number: int, demand: str) -> list[TopicCreate]:
    random = Random(number)
    events = []
    for at in range(TOPICS):
        needed = {name: int(1_000 * random.paretovariate(1.2)) for name in RESOURCES}
        leaders = {"bytes_out_per_s": 3 * needed["bytes_out_per_s"]}
        events.append(
            TopicCreate(
                event_id=f"e{number}-{at}",
                cluster_id="c",
                topic=f"t{number}-{at}",
                partitions=16,
                replication_factor=3,
                demand=None if demand == "none" else needed,
                leader_demand=leaders if demand == "leaders need more" else None,
            )
        )
    return events


def measured(case: Case) -> float:
    """The least µs a create, of some rounds."""
    *size, demand = case
    state = cluster(*size)
    best = float("inf")
    for number in range(2 + ROUNDS):
        events = creates(number, demand)
        gc.collect()
        gc.disable()
        begun = time.thread_time()
        for event in events:
            step(state, event, default_policy=Policy.BALANCED)
        if number > 1:
            best = min(best, (time.thread_time() - begun) * 1e6 / TOPICS)
        gc.enable()
    return best


def elsewhere(python: str, case: Case) -> float:
    """The same in a process of its own."""
    command = [python, __file__, "--once", json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Measure each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--beside")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(measured(tuple(json.loads(options.once))))
        return
    figures = {}
    for case in CASES:
        ours, theirs = [], []
        for _ in range(PROCESSES):
            ours.append(elsewhere(sys.executable, case))
            if options.beside:
                theirs.append(elsewhere(options.beside, case))
        figures[name_of(case)] = found = {"us": spread(ours)}
        if theirs:
            found["us_beside"] = spread(theirs)
            ratios = [their / our for our, their in zip(ours, theirs, strict=True)]
            found["times_longer_beside"] = spread(ratios)
        say(f"{name_of(case)}: " + ", ".join(f"{k} {v['median']}" for k, v in found.items()))
    if options.write:
        sizes = {"partitions": 16, "replicas": 3, "resources": len(RESOURCES), "topics": TOPICS}
        keep("by_need", sizes=sizes, figures=figures, show=False)


if __name__ == "__main__":
    main()
