"""What a create by four resources and two rules costs in the core, beside an earlier commit.

    python tests/bench/decisions/by_rules.py --beside OTHER_PYTHON [--write]

Creates of 16 partitions × 3 replicas through `step`, with a demand of four resources, a rule on a
label and a spread over zones. OTHER_PYTHON is the interpreter of another checkout. Where the goal
of 150 µs was measured, on a quiet machine, commit 1f8505c took 180 µs on 64 SPUs. Other machines
take other times, but every one executes the same instructions: they are counted by valgrind. The
times of both are measured too, in turns. With `--write` it goes to `results/by_rules.json`.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from spu_assigner.core.base.constraints import Constraints, SpreadLevel
from spu_assigner.core.base.events import Policy, SpuJoined, TopicCreate
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench import instructions
from support.bench.figures import keep, say, spread

RESOURCES: Final = ("disk_bytes", "bytes_in_per_s", "bytes_out_per_s", "cores_milli")
RULES: Final = Constraints(require=("tier=ssd",), spread=(SpreadLevel("zone"),))
SPUS: Final = (64, 1_000)
FEW: Final = 50  # creates
MANY: Final = 150
PROCESSES: Final = 3


def cluster(spus: int) -> ClusterState:
    state = ClusterState("c")
    for spu_id in range(spus):
        joined = SpuJoined(
            event_id=f"j{spu_id}",
            cluster_id="c",
            spu_id=spu_id,
            rack=f"r{spu_id % 4}",
            capacity=10**6,
            labels={"zone": f"z{spu_id % 4 // 2}", "tier": "ssd" if spu_id % 8 < 5 else "hdd"},
            resources=dict.fromkeys(RESOURCES, 10**9),
        )
        step(state, joined, default_policy=Policy.BALANCED)
    return state


def decided(spus: int, creates: int) -> float:
    """Decide so many creates; µs of one, but for the first `FEW`."""
    state = cluster(spus)
    events = [
        TopicCreate(
            event_id=f"e{at}",
            cluster_id="c",
            topic=f"t{at}",
            partitions=16,
            replication_factor=3,
            demand=dict.fromkeys(RESOURCES, 3 + at % FEW),
            constraints=RULES,
        )
        for at in range(creates)
    ]
    gc.collect()
    gc.disable()
    begun = 0.0
    for at, event in enumerate(events):
        if at == FEW:
            begun = time.thread_time()
        step(state, event, default_policy=Policy.BALANCED)
    return (time.thread_time() - begun) * 1e6 / max(creates - FEW, 1)


def command(python: str, spus: int, creates: int) -> list[str]:
    return [python, __file__, "--decide", str(spus), str(creates)]


def microseconds(python: str, spus: int) -> float:
    """Of one create, in a process of its own."""
    done = subprocess.run(command(python, spus, MANY), capture_output=True, text=True, check=True)
    return float(done.stdout)


def counted(python: str, spus: int) -> int:
    """Instructions of one create."""
    each = instructions.each(lambda count: command(python, spus, count), few=FEW, many=MANY)
    return round(each)


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--beside", metavar="OTHER_PYTHON")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--decide", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.decide:
        print(decided(*options.decide))
        return
    if options.beside is None:
        parser.error("--beside OTHER_PYTHON is missing: the interpreter of another checkout")
    pythons = (sys.executable, options.beside)
    figures: dict[str, Any] = {}
    for spus in SPUS:
        times = [[microseconds(python, spus) for python in pythons] for _ in range(PROCESSES)]
        ours, theirs = zip(*times, strict=True)
        with ThreadPoolExecutor(2) as both:
            our, their = both.map(counted, pythons, (spus, spus))
        figures[f"{spus:,} SPUs"] = found = {
            "us": spread(ours),
            "us_beside": spread(theirs),
            "instructions": our,
            "instructions_beside": their,
        }
        say(f"{spus:,} SPUs: {found}")
    if options.write:
        keep(
            "by_rules",
            sizes={"partitions": 16, "replicas": 3, "resources": len(RESOURCES), "rules": 2},
            figures=figures,
            show=False,
        )


if __name__ == "__main__":
    main()
