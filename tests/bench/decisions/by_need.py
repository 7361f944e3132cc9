"""What a create costs in the core that names four resources, and one that names none.

    python tests/bench/decisions/by_need.py [--plain] [--beside OTHER_PYTHON] [--write]

Creates of 16 partitions × 3 replicas through `step`, on SPUs of one kind or of three, without racks
or on three of them. What a partition needs is drawn for each topic, Pareto-distributed, so most
topics are small beside the differences that the large ones have left.

With `--plain` only creates that name no need, of more sizes and by `fluvio` too, on SPUs that name
no resources: what all others pay for them. What a create takes is so little that a shared machine's
clock cannot tell it from another checkout's. So, with `--beside` and where valgrind is found, the
instructions of a create are counted too: they are the same in each run.

With `--beside`, the interpreter of another checkout, each case is measured there too, in turns, a
process each; the figures say how many times longer it takes there. CPU time of the thread; the
least of some rounds of 100 creates in each process; by `fluvio` 1,000, since 100 take less than
half a millisecond. With `--write` the figures go to `results/by_need.json`, or
`results/no_need.json`.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from spu_assigner.core import ClusterState, Policy, SpuJoined, TopicCreate, step

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench import instructions as instructions_of
from support.bench.figures import QUICK, keep, say, spread

RESOURCES: Final = ("disk_bytes", "bytes_in_per_s", "bytes_out_per_s", "cores_milli")
ROUNDS: Final = 3 if QUICK else 5
TOPICS: Final = 100
FLUVIO_TOPICS: Final = 1_000
PROCESSES: Final = 1 if QUICK else 3
REPLICAS: Final = 3
CELLS: Final = TOPICS * 16 * REPLICAS  # of a round; fewer topics where they are large


class Case(NamedTuple):
    """On which cluster what is asked for."""

    spus: int
    racks: int
    kinds: int
    demand: str = "none"
    partitions: int = 16
    policy: str = "balanced"

    def name(self) -> str:
        racked = f", {self.racks} racks" if self.racks > 1 else ""
        kinds = f"{self.kinds} kind{'s' if self.kinds > 1 else ''}"
        size = "" if self.partitions == 16 else f"; {self.partitions:,} x {REPLICAS}"
        policy = "" if self.policy == "balanced" else f"; {self.policy}"
        return f"{self.spus:,} SPUs{racked}, {kinds}; {self.demand}{size}{policy}"


CASES: Final = [
    Case(spus, racks, kinds, demand)
    for demand in ("demand", "leaders need more", "none")
    for spus in (64, 1_000)
    for racks in (1, 3)
    for kinds in (1, 3)
]
PLAIN_CASES: Final = [
    *[case for case in CASES if case.demand == "none"],
    Case(6, 3, 1),
    Case(63, 3, 1),
    Case(63, 9, 1),
    *[
        Case(63, racks, 1, partitions=partitions)
        for partitions in (1, 100, 1_000, 100_000)
        for racks in (1, 3)
    ],
    Case(64, 1, 1, policy="fluvio"),
    Case(64, 3, 1, policy="fluvio"),
]


def cluster(case: Case) -> ClusterState:
    """SPUs of these kinds, each with twice of what the kind before it has."""
    state = ClusterState("c")
    for spu_id in range(case.spus):
        size = 2 ** (spu_id * 7 % case.kinds)
        has: dict[str, Any] = {"capacity": 10**8 * size}
        if case.demand != "none":
            has["resources"] = {name: 10**10 * size * at for at, name in enumerate(RESOURCES, 1)}
        joined = SpuJoined(
            event_id=f"j{spu_id}",
            cluster_id="c",
            spu_id=spu_id,
            rack=f"r{spu_id % case.racks}" if case.racks > 1 else None,
            **has,
        )
        step(state, joined, default_policy=Policy(case.policy))
    return state


def creates(number: int, case: Case) -> list[TopicCreate]:
    random = Random(number)
    events = []
    topics = FLUVIO_TOPICS if case.policy == "fluvio" else TOPICS
    for at in range(min(topics, max(CELLS * topics // TOPICS // (case.partitions * REPLICAS), 1))):
        needs: dict[str, Any] = {}
        if case.demand != "none":
            demand = {name: int(1_000 * random.paretovariate(1.2)) for name in RESOURCES}
            needs["demand"] = demand
            if case.demand == "leaders need more":
                needs["leader_demand"] = {"bytes_out_per_s": 3 * demand["bytes_out_per_s"]}
        events.append(
            TopicCreate(
                event_id=f"e{number}-{at}",
                cluster_id="c",
                topic=f"t{number}-{at}",
                partitions=case.partitions,
                replication_factor=REPLICAS,
                **needs,
            )
        )
    return events


def measured(case: Case) -> float:
    """The least µs a create, of some rounds."""
    state, policy, best = cluster(case), Policy(case.policy), float("inf")
    for number in range(2 + ROUNDS):
        events = creates(number, case)
        gc.collect()
        gc.disable()
        begun = time.thread_time()
        for event in events:
            step(state, event, default_policy=policy)
        if number > 1:
            best = min(best, (time.thread_time() - begun) * 1e6 / len(events))
        gc.enable()
    return best


def elsewhere(python: str, case: Case) -> float:
    """The same in a process of its own."""
    command = [python, __file__, "--once", json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def decided(case: Case, topics: int) -> None:
    """Decide so many creates, for a count of instructions."""
    state, policy, events = cluster(case), Policy(case.policy), creates(0, case)
    gc.collect()
    gc.disable()
    for event in events[:topics]:
        step(state, event, default_policy=policy)


def instructions(python: str, case: Case) -> float:
    """Of one create."""
    many = len(creates(0, case))
    return instructions_of.each(
        lambda topics: [python, __file__, "--decide", str(topics), json.dumps(case)],
        few=many // 5,
        many=many,
    )


def main() -> None:
    """Measure each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--beside")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    parser.add_argument("--decide", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.decide:
        decided(Case(*json.loads(options.decide[1])), int(options.decide[0]))
        return
    if options.once:
        print(measured(Case(*json.loads(options.once))))
        return
    figures = {}
    for case in PLAIN_CASES if options.plain else CASES:
        ours, theirs = [], []
        for _ in range(PROCESSES):
            ours.append(elsewhere(sys.executable, case))
            if options.beside:
                theirs.append(elsewhere(options.beside, case))
        figures[case.name()] = found = {"us": spread(ours)}
        if theirs:
            found["us_beside"] = spread(theirs)
            ratios = [their / our for our, their in zip(ours, theirs, strict=True)]
            found["times_longer_beside"] = spread(ratios)
        if theirs and options.plain and instructions_of.VALGRIND is not None:
            with ThreadPoolExecutor(2) as both:
                pythons = (sys.executable, options.beside)
                our, their = both.map(instructions, pythons, (case, case))
            found["instructions"] = {"one create": round(our), "beside": round(their)}
            found["instructions"]["times_more_beside"] = round(their / our, 3)
        times = ", ".join(f"{k} {v['median']}" for k, v in found.items() if "median" in v)
        say(f"{case.name()}: {times}; instructions {found.get('instructions', 'not counted')}")
    if options.write:
        sizes: dict[str, Any] = {"partitions": 16, "replicas": REPLICAS, "topics": TOPICS}
        if not options.plain:
            sizes["resources"] = len(RESOURCES)
        name = "no_need" if options.plain else "by_need"
        keep(name, sizes=sizes, figures=figures, show=False)


if __name__ == "__main__":
    main()
