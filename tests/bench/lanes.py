"""What each fast lane of the placement gains over the general way, in one run, in turns.

    python tests/bench/lanes.py [--write]

With --write the figures go to `results/lanes.json`. A lane stays while it gains more than 1.5
times in a case that users have; CPU time, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
from spu_assigner.core.balanced import list_filling, policy, small_request, weighted_interleave
from spu_assigner.core.balanced.quotas import Takers, even_shares
from spu_assigner.core.balanced.rounds import RoundsAhead
from spu_assigner.core.balanced.small_quotas import Choice, SmallRequest
from spu_assigner.core.base.events import Policy, TopicCreate
from spu_assigner.core.decision.machine import step
from spu_assigner.core.rules import kafka
from spu_assigner.core.state.cluster_state import ClusterState

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`, as pytest does
from support.bench.figures import QUICK, keep, say, spread
from test_planner_bench import NO_RACKS, Shape

ROUNDS: Final = 3 if QUICK else 15
WARM_UP: Final = 2
NEVER: Final = 2**31
THREE_RACKS: Final = Shape(racks=(0, 1, 2))
NINE_RACKS: Final = Shape(racks=tuple(range(9)))
KINDS: Final = tuple(1_000_000 * times for times in (1, 2, 4, 8))

Patch = tuple[Any, str, Any]  # a module, a name in it, and what stands for the general way


def shares_of(request: SmallRequest) -> Choice:
    """What `choose_by_key` returns, from `quotas`."""
    layout, rule, lists = request.layout, request.rule, request.lists
    order = np.argsort(layout.racks, kind="stable")
    shares = even_shares(
        Takers(
            capacities=layout.capacities[order],
            held=request.held[order].astype(np.int64),
            limits=np.full(len(order), lists),
            groups=layout.racks[order],
            starts=np.array(layout.starts[:-1]),
            lower=np.array(rule.lower) * lists,
            upper=np.array(rule.upper) * lists,
            total=lists * request.replicas,
        )
    )
    tied = np.zeros(len(order), dtype=np.bool_)
    tied[order] = shares.tied
    some = np.flatnonzero(shares.sure)
    return Choice(
        sure=dict(zip(order[some].tolist(), shares.sure[some].tolist(), strict=True)),
        tied=tied,
        forced=shares.forced.tolist(),
        room=shares.room.tolist(),
        free=shares.free,
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """Creates of one size on one ring, and what takes the lane away."""

    lane: str
    ring: str
    shape: Shape = NO_RACKS
    spus: int = 1_000
    partitions: int = 16
    topics: int = 200  # of a round
    policy: Policy = Policy.BALANCED
    start_index: int | None = None
    without: Patch


NOT_SMALL: Final = (policy, "SMALL_REQUEST_CELLS_MAX", 0)
NO_ROUNDS: Final = (RoundsAhead, "lists", lambda *_, **__: None)
CASES: Final = (
    Case(lane="rounds", ring="64 SPUs", spus=64, without=NO_ROUNDS),
    Case(lane="rounds", ring="64 SPUs", spus=64, partitions=32, without=NO_ROUNDS),
    Case(lane="rounds", ring="1,000 SPUs", without=NO_ROUNDS),
    Case(lane="rounds", ring="63 SPUs, 3 racks", shape=THREE_RACKS, spus=63, without=NO_ROUNDS),
    Case(lane="rounds", ring="1,000 SPUs, 3 racks", shape=THREE_RACKS, without=NO_ROUNDS),
    Case(lane="rounds", ring="63 SPUs, 9 racks", shape=NINE_RACKS, spus=63, without=NO_ROUNDS),
    *[
        Case(lane=lane, ring=f"{spus:,} SPUs, {ring}", shape=shape, spus=spus, without=without)
        for lane, without in (
            ("small_request", NOT_SMALL),
            ("small_quotas", (small_request, "choose_by_key", shares_of)),
        )
        for ring, shape in (
            ("racks 4:3:2:1", Shape(racks=(0, 0, 0, 0, 1, 1, 1, 2, 2, 3))),
            ("4 capacities", Shape(capacities=KINDS)),
        )
        for spus in (64, 1_000)
    ],
    Case(
        lane="list_filling: dealt, not one by one",
        ring="1,000 SPUs, 10 racks",
        shape=Shape(racks=tuple(range(10))),
        partitions=10_000,
        topics=3,
        without=(list_filling, "DEALT_CELLS_MIN", NEVER),
    ),
    Case(
        lane="weighted_interleave: runs",
        ring="1,000 SPUs",
        partitions=100_000,
        topics=3,
        without=(weighted_interleave, "RUN_CELLS", NEVER),
    ),
    Case(
        lane="rules.kafka: few rows by hand",
        ring="1,000 SPUs, 10 racks, a start of its own",
        shape=Shape(racks=tuple(range(10))),
        policy=Policy.KAFKA,
        start_index=7,
        without=(kafka, "ROWS_BY_HAND_MAX", 0),
    ),
)


def seconds(state: ClusterState, case: Case, prefix: str) -> float:
    """CPU seconds of a round."""
    events = [
        TopicCreate(
            event_id=f"{prefix}-{number}",
            cluster_id="c",
            topic=f"{prefix}-{number}",
            partitions=case.partitions,
            replication_factor=3,
            policy=case.policy,
            start_index=case.start_index,
        )
        for number in range(case.topics)
    ]
    begun = time.thread_time()
    for event in events:
        step(state, event, default_policy=case.policy)
    return time.thread_time() - begun


def measured(case: Case) -> dict[str, dict[str, float]]:
    """The time of a create with and without the lane, and the ratio of the two in each round."""
    times: list[list[float]] = [[], []]
    ways: tuple[AbstractContextManager[object], ...] = (
        nullcontext(),
        mock.patch.object(*case.without),
    )
    states = [case.shape.cluster(case.spus) for _ in ways]
    for number in range(WARM_UP + ROUNDS):
        for own, state, way in zip(times, states, ways, strict=True):
            with way:
                own.append(seconds(state, case, f"t{number}") * 1e6 / case.topics)
    fast, slow = (own[WARM_UP:] for own in times)
    ratios = [without / with_it for with_it, without in zip(fast, slow, strict=True)]
    return {"us": spread(fast), "us_without": spread(slow), "gain": spread(ratios)}


def main() -> None:
    """Measure each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    figures = {}
    for case in CASES:
        name = f"{case.lane}: {case.ring}, {case.partitions:,} x 3"
        figures[name] = found = measured(case)
        say(f"{name}: {found['us']['median']:,.0f} us, gain {found['gain']['median']:.2f}")
    if options.write:
        keep("lanes", sizes={"rounds": ROUNDS, "replicas": 3}, figures=figures, show=False)


if __name__ == "__main__":
    main()
