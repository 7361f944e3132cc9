"""What growth costs: the job with a million topics in its state beside the same with a thousand.

    python tests/bench/scale/growth.py [--quick] [--write] [--topics 1000000] [--rounds 3]

Two jobs on one broker, never at once: 50 clusters of 64 SPUs, topics of 16 partitions × 3 replicas,
placed by `fluvio`. Each is filled, then started again in every round; what is measured there:

- restart: from the start of the process to the first answer, read committed;
- latency: one create at a time, from before it is produced until its answer is read;
- rate: a backlog of creates, then of deletes, so that each round finds as many topics as the last;
- memory: the most that all processes of the job hold together, PSS.

Every map is held against the core. With --write the figures go to results/growth.json. Exit status:
1 if a map is wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from spu_assigner.core.base.events import Event, TopicCreate, TopicDelete
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.bench.figures import keep, percentiles, spread
from support.bench.growing import Backlog, GrowingJob
from support.bench.loadrun import say
from support.bench.workload import SIZES, creates, joins

FEW: Final = 1_000
MANY: Final = 1_000_000
MANY_QUICK: Final = 20_000
FILL_PIECE: Final = 100_000
WARM_UP_ASKS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is asked for."""

    many: int
    rounds: int
    latencies: int
    backlog: int


@dataclass(slots=True)
class Side:
    """A job with so many topics, and what its rounds gave."""

    job: GrowingJob
    topics: int
    figures: dict[str, Any] = field(default_factory=dict)
    restarts: list[dict[str, float]] = field(default_factory=list)
    latencies: list[list[float]] = field(default_factory=list)
    backlogs: list[Backlog] = field(default_factory=list)
    deletions: list[Backlog] = field(default_factory=list)
    peaks: list[Mapping[str, int]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(0))

    def new(self, number: int) -> list[Event]:
        """So many creates of new topics."""
        first = next(self.numbers)
        for _ in range(number - 1):
            next(self.numbers)
        return creates(first, number)

    def summary(self) -> dict[str, Any]:
        """All figures."""
        steps = self.restarts[0]
        return {
            "topics": self.topics,
            **self.figures,
            "restart_s": {step: spread([each[step] for each in self.restarts]) for step in steps},
            "latency_ms": percentiles([ms for each in self.latencies for ms in each]),
            "latency_p50_ms": spread([median(each) for each in self.latencies]),
            "creates_per_s": spread([each.per_s for each in self.backlogs]),
            "cpu_s_per_100k_creates": spread([each.cpu_s_per_unit for each in self.backlogs]),
            "deletes_per_s": spread([each.per_s for each in self.deletions]),
            "peak_mb_after_restart": {
                role: max(each.get(role, 0) for each in self.peaks) for role in self.peaks[0]
            },
        }


def fill(side: Side) -> None:
    """Give it its SPUs and topics, and stop it."""
    job = side.job
    with job.started(), job.sampled() as peaks:
        job.join(joins())
        rates = {}
        for done in range(0, side.topics, FILL_PIECE):
            backlog = job.answer(side.new(min(FILL_PIECE, side.topics - done)))
            rates[done + backlog.events] = round(backlog.per_s)
            say(f"    {done + backlog.events:,} topics, {backlog.per_s:,.0f} creates/s")
    side.figures = {"filling_creates_per_s": rates, "peak_mb_while_filling": peaks}


def measure(side: Side, sizes: Sizes) -> None:
    """One round: start it, ask one by one, give it a backlog, take away what it got, stop it."""
    job = side.job
    with job.started():
        made = side.new(1)
        with job.sampled() as at_restart:
            side.restarts.append(job.first_answer(made[0]))
        warm_up, asked = side.new(WARM_UP_ASKS), side.new(sizes.latencies)
        job.ask_each(warm_up)
        side.latencies.append(job.ask_each(asked))
        first, backlog = side.new(sizes.backlog // 5), side.new(sizes.backlog)
        with job.sampled() as later:
            job.answer(first)
            side.backlogs.append(job.answer(backlog))
            made += [*warm_up, *asked, *first, *backlog]
            side.deletions.append(job.answer(deletes(made)))
        roles = at_restart.keys() | later.keys()
        side.peaks.append(
            {role: max(at_restart.get(role, 0), later.get(role, 0)) for role in sorted(roles)}
        )
    say(
        f"    {side.topics:,} topics: first answer after {side.restarts[-1]['first_answer']} s, "
        f"p50 {median(side.latencies[-1]):.1f} ms, {side.backlogs[-1].per_s:,.0f} creates/s, "
        f"{side.peaks[-1]['tree']} MB"
    )


def deletes(events: list[Event]) -> list[Event]:
    """Of the topics that these made."""
    return [
        TopicDelete(event_id=f"d-{event.topic}", cluster_id=event.cluster_id, topic=event.topic)
        for event in events
        if isinstance(event, TopicCreate)
    ]


def run(sizes: Sizes, folder: Path) -> tuple[dict[str, Any], int]:
    """All rounds: the figures, and how many maps are wrong."""
    with EmbeddedBroker(folder / "broker") as broker:
        bootstrap = broker.bootstrap_servers
        few = Side(GrowingJob(bootstrap, "few", folder), FEW)
        many = Side(GrowingJob(bootstrap, "many", folder), sizes.many)
        sides = [few, many]
        for side in sides:
            say(f"  filling: {side.topics:,} topics")
            fill(side)
        for number in range(sizes.rounds):
            say(f"  round {number + 1} of {sizes.rounds}")
            for side in sides if number % 2 == 0 else reversed(sides):
                measure(side, sizes)
        say("  comparing with the core")
        wrong = sum(side.job.wrong_answers() for side in sides)
        for side in sides:
            side.job.close()
    return {
        "few": few.summary(),
        "many": many.summary(),
        "many_of_few": {
            "latency_p50": ratio(many.latencies, few.latencies),
            "seconds_per_create": ratio(
                [[each.seconds] for each in many.backlogs],
                [[each.seconds] for each in few.backlogs],
            ),
        },
        "wrong_answers": wrong,
    }, wrong


def ratio(many: list[list[float]], few: list[list[float]]) -> dict[str, float]:
    """Medians, round by round."""
    return spread([median(a) / median(b) for a, b in zip(many, few, strict=True)])


def main() -> int:
    parser = argparse.ArgumentParser(description="What growth costs.")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    parser.add_argument("--write", action="store_true", help="keep results/growth.json")
    parser.add_argument("--topics", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=None)
    asked = parser.parse_args()
    sizes = Sizes(
        many=asked.topics or (MANY_QUICK if asked.quick else MANY),
        rounds=asked.rounds or (1 if asked.quick else 3),
        latencies=30 if asked.quick else 100,
        backlog=5_000 if asked.quick else 50_000,
    )
    folder = Path(tempfile.mkdtemp(prefix="spu-assigner-growth-"))
    try:
        figures, wrong = run(sizes, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for side in ("few", "many"):
        for figure, value in figures[side].items():
            say(f"  {side:<5} {figure:<28} {value}")
    say(f"  {figures['many_of_few']}  wrong answers: {wrong}")
    if asked.write:
        measured = {**SIZES, "few": FEW, "many": sizes.many, "backlog": sizes.backlog}
        keep("growth", sizes=measured, figures=figures, show=False)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
