"""What growth costs: the job with a million topics in its state beside the same with a thousand.

    python tests/bench/scale/growth.py [--write]

Two jobs on one broker, never at once: 50 clusters of 64 SPUs, topics of 16 partitions × 3 replicas,
placed by `fluvio`. Each is filled, then started again in every round; what is measured there:

- restart: from the start of the process to the first answer, read committed;
- latency: one create at a time, from before it is produced until its answer is read;
- rate: a backlog of creates, then of deletes, so that each round finds as many topics as the last;
- memory: the most that all processes of the job hold together, PSS.

At the end `verify` compares all that was written with the core.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from spu_assigner.core.base.events import Event, TopicDelete
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.bench.figures import QUICK, keep, parser_of, percentiles, say, spread
from support.bench.measured_job import PIECE, MeasuredJob, Work, messages
from support.bench.workload import SIZES, creates, joins

FEW: Final = 1_000
MANY: Final = 20_000 if QUICK else 1_000_000
ROUNDS: Final = 1 if QUICK else 3
WARM_UP_ASKS: Final = 30
LATENCIES: Final = 30 if QUICK else 100
BACKLOG: Final = 5_000 if QUICK else 50_000


class Side:
    """A job with so many topics, and what its rounds gave."""

    def __init__(self, job: MeasuredJob, topics: int) -> None:
        self.job = job
        self.topics = topics
        self.filled: dict[str, Any] = {}
        self.restarts: list[dict[str, float]] = []
        self.latencies: list[list[float]] = []
        self.backlogs: list[Work] = []
        self.deletions: list[Work] = []
        self.peaks: Counter[str] = Counter()  # of all rounds
        self._made = 0

    def new(self, count: int) -> list[Event]:
        """So many creates of new topics."""
        self._made += count
        return creates(self._made - count, count)

    def fill(self) -> None:
        """Give it its SPUs and topics, and stop it."""
        with self.job.started(), self.job.sampled() as peaks:
            self.job.join(joins())
            rates = {}
            for done in range(0, self.topics, PIECE):
                work = self.job.answer(self.new(min(PIECE, self.topics - done)))
                rates[done + work.events] = round(work.per_s)
                say(f"    {done + work.events:,} topics, {work.per_s:,.0f} creates/s")
        self.filled = {"filling_creates_per_s": rates, "peak_mb_while_filling": peaks}

    def measure(self) -> None:
        """One round: start it, ask one by one, a backlog, take away what it got, stop it."""
        job = self.job
        with job.started(), job.sampled() as peaks:
            first = self.new(1)
            job.topics.send(messages(first))
            self.restarts.append(job.first_answer())
            warm_up, asked = self.new(WARM_UP_ASKS), self.new(LATENCIES)
            job.ask_each(warm_up)
            self.latencies.append(job.ask_each(asked))
            before, backlog = self.new(BACKLOG // 5), self.new(BACKLOG)
            job.answer(before)
            self.backlogs.append(job.answer(backlog))
            made = [*first, *warm_up, *asked, *before, *backlog]
            self.deletions.append(job.answer([deletion(each) for each in made]))
        self.peaks |= Counter(peaks)
        say(
            f"    {self.topics:,} topics: first answer after {self.restarts[-1]['first_answer']} s"
            f", p50 {median(self.latencies[-1]):.1f} ms, {self.backlogs[-1].per_s:,.0f} creates/s"
            f", {peaks['tree']} MB"
        )

    def summary(self) -> dict[str, Any]:
        """All figures."""
        steps = self.restarts[0]
        return {
            "topics": self.topics,
            **self.filled,
            "restart_s": {step: spread([each[step] for each in self.restarts]) for step in steps},
            "latency_ms": percentiles([ms for each in self.latencies for ms in each]),
            "latency_p50_ms": spread([median(each) for each in self.latencies]),
            "creates_per_s": spread([each.per_s for each in self.backlogs]),
            "cpu_s_per_100k_creates": spread([each.cpu_s_per_unit for each in self.backlogs]),
            "deletes_per_s": spread([each.per_s for each in self.deletions]),
            "peak_mb_after_restart": dict(self.peaks),
            "verified": self.job.verified(),
        }


def deletion(event: Any) -> TopicDelete:
    """Of the topic that a create made."""
    name = event.topic
    return TopicDelete(event_id=f"d-{name}", cluster_id=event.cluster_id, topic=name)


def run(folder: Path) -> Mapping[str, Any]:
    """All rounds."""
    with EmbeddedBroker(folder / "broker") as broker:
        few = Side(MeasuredJob(broker, "few", folder), FEW)
        many = Side(MeasuredJob(broker, "many", folder), MANY)
        sides = [few, many]
        for side in sides:
            say(f"  filling: {side.topics:,} topics")
            side.fill()
        for number in range(ROUNDS):
            say(f"  round {number + 1} of {ROUNDS}")
            for side in sides if number % 2 == 0 else reversed(sides):
                side.measure()
        say("  comparing with the core")
        figures = {"few": few.summary(), "many": many.summary()}
        for side in sides:
            side.job.close()
    pairs = list(zip(many.latencies, few.latencies, strict=True))
    works = list(zip(many.backlogs, few.backlogs, strict=True))
    return figures | {
        "many_of_few": {  # round by round
            "latency_p50": spread([median(a) / median(b) for a, b in pairs]),
            "seconds_per_create": spread([a.seconds / b.seconds for a, b in works]),
        }
    }


def main() -> None:
    options = parser_of(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="spu-assigner-growth-") as folder:
        figures = dict(run(Path(folder)))
    for name, found in figures.items():
        for figure, value in found.items():
            say(f"  {name:<11} {figure:<28} {value}")
    if options.write:
        keep(
            "growth",
            sizes={**SIZES, "few": FEW, "many": MANY, "backlog": BACKLOG},
            figures=figures,
            show=False,
        )


if __name__ == "__main__":
    main()
