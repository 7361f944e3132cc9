"""Placing by constraints: held against exact solutions, and what it costs in the core.

    python tests/bench/decisions/constraints.py [--cases 118000] [--min-cases 40000]
        [--solver-cases 5000] [--write]

Random cases of up to 8 SPUs and 6 rules: what the core answers, beside all ways to place them, and
for the first of them beside HiGHS too; likewise others in which levels have a `min`. Then creates
of 16 partitions × 3 replicas through `machine.step`: with a rule on a label and a spread over
zones, with and without a demand of four resources, beside creates without either. With `--write`
it goes to `results/constraints.json`.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Iterable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from by_rules import RESOURCES, RULES, cluster
from spu_assigner.core.base.events import Policy, TopicCreate
from spu_assigner.core.decision.machine import step

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench.figures import keep, say
from support.events.constrained_cases import random_case
from support.model.constrained_oracle import Oracle, answered
from support.model.exact_constraints import least_scores

PROCESSES: Final = 2
AT_ONCE: Final = 500
TOPICS: Final = 50
ROUNDS: Final = 6


def agreement(seeds: range, *, by_solver: bool = False, with_min: bool = False) -> Counter[str]:
    """How the core's answers compare with the best there are, in words."""
    found: Counter[str] = Counter()
    for seed in seeds:
        case = random_case(seed, with_min=with_min)
        if not case.constraints:
            continue
        oracle = Oracle(case)
        rows, _ = answered(case)
        if by_solver:
            best = least_scores(case)
        else:
            best = oracle.least_scores() if oracle.is_possible() else None
        room = "room for all" if oracle.is_ample else "slots are scarce"
        if rows is None or best is None:
            verdict = "refused, impossible" if rows is None and best is None else "DISAGREE"
        elif not oracle.is_valid(rows):
            verdict = "A HARD RULE IS BROKEN"
        else:
            scores = tuple(map(sum, zip(*map(oracle.score, rows), strict=True)))
            verdict = f"{room}: " + ("best score" if scores == best else "a worse score")
        found[verdict] += 1
    return found


def _agreement(task: tuple[int, int, bool, bool]) -> Counter[str]:
    first, past, by_solver, with_min = task
    return agreement(range(first, past), by_solver=by_solver, with_min=with_min)


def agreements(cases: int, *, by_solver: bool, with_min: bool = False) -> dict[str, int]:
    """Of so many cases, over processes."""
    tasks = [
        (first, min(first + AT_ONCE, cases), by_solver, with_min)
        for first in range(0, cases, AT_ONCE)
    ]
    total: Counter[str] = Counter()
    with get_context("fork").Pool(PROCESSES) as pool:
        for done in pool.imap(_agreement, tasks):
            total += done
    return dict(sorted(total.items()))


def cost(spus: int, kind: str) -> float:
    """The least µs a create, of some rounds."""
    state, best = cluster(spus), float("inf")
    for number in range(ROUNDS):
        events = [
            TopicCreate(
                event_id=f"{number}-{at}",
                cluster_id="c",
                topic=f"t{number}-{at}",
                partitions=16,
                replication_factor=3,
                demand=dict.fromkeys(RESOURCES, 3 + at) if "resources" in kind else None,
                constraints=RULES if "rules" in kind else None,
            )
            for at in range(TOPICS)
        ]
        gc.collect()
        gc.disable()
        begun = time.thread_time()
        for event in events:
            step(state, event, default_policy=Policy.BALANCED)
        if number:
            best = min(best, (time.thread_time() - begun) * 1e6 / TOPICS)
        gc.enable()
    return round(best, 1)


def main(arguments: Iterable[str] | None = None) -> None:
    """Compare, then measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=118_000)
    parser.add_argument("--min-cases", type=int, default=40_000)
    parser.add_argument("--solver-cases", type=int, default=5_000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(None if arguments is None else list(arguments))
    figures: dict[str, Any] = {
        "beside all ways to place": agreements(options.cases, by_solver=False),
        "beside HiGHS": agreements(options.solver_cases, by_solver=True),
        "with min, beside all ways to place": agreements(
            options.min_cases, by_solver=False, with_min=True
        ),
        "with min, beside HiGHS": agreements(
            options.solver_cases // 5, by_solver=True, with_min=True
        ),
    }
    for kind in ("neither", "2 rules", "4 resources", "4 resources and 2 rules"):
        for spus in (64, 1_000):
            figures[f"us a create on {spus:,} SPUs, {kind}"] = cost(spus, kind)
    for name, value in figures.items():
        say(f"{name}: {value}")
    if options.write:
        sizes = {
            "cases": options.cases,
            "min_cases": options.min_cases,
            "solver_cases": options.solver_cases,
        }
        keep("constraints", sizes=sizes, figures=figures, show=False)


if __name__ == "__main__":
    main()
