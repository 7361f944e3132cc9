"""What each part of the two profiles is worth: a job with some of them changed, beside one without.

    python tests/bench/profile_settings.py [--latencies 80] [--backlog 100000] [--rounds 2]
        [--policy fluvio] [--write]

The first row of the table is profile `throughput`; then come jobs that take some or all of the
values of `latency`, and jobs without one of the levers that both profiles have. Each of these is up
together with a job of profile `throughput`, on
topics of its own: both are warmed up by backlogs, then asked for one create after the other in
turn, so that whatever else the machine does falls on both alike, then given backlogs in turn while
the other rests. Ratios are those to the partner. (Jobs measured one after the other differed by
more than what was to be measured; all five up at once, what four take at rest falls on the fifth.)
Every map is compared with the core's, byte for byte. With --write the figures go to
results/profiles.json.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from itertools import count, islice
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from spu_assigner.core.base.events import Policy
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.broker.embedded import EmbeddedBroker
from spu_assigner.stream.config import profile as profiles
from spu_assigner.stream.config.profile import Profile
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.kafka.topics import REPLICA_MAP, RING_EVENTS, SPU_EVENTS, TOPIC_EVENTS
from support.bench.figures import keep, percentiles, spread
from support.bench.tables.profile_table import table
from support.bench.workload import CLUSTERS, SIZES, SPUS, Client, creates, joins
from support.job.programs import cpu_seconds, running
from support.job.same_answers import check, expected_maps
from support.kafka.reading import committed

BASE: Final = Profile.THROUGHPUT
WARM_UP_ASKS: Final = 20
CPU_UNIT: Final = 100_000  # creates
CHILD: Final = "--job"  # how this program starts a job of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job between the two profiles, or one without a lever that both have."""

    name: str
    shown: str  # in the documentation
    taken: tuple[str, ...] = ()  # of profile latency; the rest is throughput's


ROWS: Final = (
    Row(name="throughput", shown="throughput"),
    Row(name="batches", shown="batches of 20,000", taken=("topic_events_per_batch",)),
    Row(name="shard", shown="one shard", taken=("shards_max",)),
    Row(name="task", shown="one shard, one task", taken=("shards_max", "in_one_task")),
    Row(name="latency", shown="all: latency", taken=tuple(f.name for f in fields(profiles.Tuning))),
    Row(name="compiler", shown="the fast compiler of the JVM alone"),
    Row(name="fetches", shown="fetches held back for 10 ms"),
    Row(name="buffers", shown="buffers of 4 MiB for broadcasts"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is asked of a job."""

    latencies: int
    backlog: int
    rounds: int

    @property
    def total(self) -> int:
        return WARM_UP_ASKS + self.latencies + (1 + self.rounds) * self.backlog


@dataclass(slots=True, kw_only=True)
class Job:
    """A row's job, and what it has shown; processor time is that of all that it started, too."""

    prefix: str
    process: subprocess.Popen[bytes]
    asker: Client
    creates: Iterator[tuple[str, bytes]]
    latencies_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)  # of each create that was asked for alone
    creates_per_s: list[float] = field(default_factory=list)
    cpu_s_per_100k: list[float] = field(default_factory=list)  # in the backlogs

    def ask(self) -> None:
        key, value = next(self.creates)
        cpu = cpu_seconds(self.process)
        self.latencies_ms.append(self.asker.ask(key, value))
        self.cpu_ms.append((cpu_seconds(self.process) - cpu) * 1000)

    def work_off(self, number: int) -> None:
        backlog = list(islice(self.creates, number))
        cpu, begun = cpu_seconds(self.process), time.perf_counter()
        self.asker.send(backlog)
        self.asker.take(number)
        self.creates_per_s.append(number / (time.perf_counter() - begun))
        self.cpu_s_per_100k.append((cpu_seconds(self.process) - cpu) / number * CPU_UNIT)

    def forget(self) -> None:
        """What was measured while it was warmed up."""
        for values in (self.latencies_ms, self.cpu_ms, self.creates_per_s, self.cpu_s_per_100k):
            values.clear()


def started(row: Row, policy: Policy, bootstrap: str, folder: Path, stack: ExitStack) -> Job:
    """A job that knows the SPUs of all clusters."""
    prefix = f"{folder.name}."
    create_topics({"bootstrap.servers": bootstrap}, prefix=prefix)
    environ = {
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
        "SPU_ASSIGNER_TOPIC_PREFIX": prefix,
        "SPU_ASSIGNER_DEFAULT_POLICY": policy.value,
        "SPU_ASSIGNER_PROFILE": BASE.value,
        "SPU_ASSIGNER_CHECKPOINT": f"{folder}/checkpoint",
    }
    folder.mkdir()
    program = [sys.executable, __file__, CHILD, row.name]
    process = stack.enter_context(running(program, folder / "log", environ))
    spus = Client(bootstrap, prefix + SPU_EVENTS, prefix + RING_EVENTS)
    spus.send([(event.cluster_id, encode_event(event)) for event in joins()])
    spus.take(CLUSTERS * SPUS)
    spus.close()
    asker = Client(bootstrap, prefix + TOPIC_EVENTS, prefix + REPLICA_MAP)
    asked = ((e.cluster_id, encode_event(e)) for number in count() for e in creates(number, 1))
    return Job(prefix=prefix, process=process, asker=asker, creates=asked)


def measure(
    row: Row, policy: Policy, sizes: Sizes, bootstrap: str, folder: Path
) -> tuple[Job, Job]:
    """The row's job and its partner of profile throughput, both ended, their answers compared."""
    with ExitStack() as stack:
        pair = [
            started(each, policy, bootstrap, folder / f"{row.name}-{each.name}", stack)
            for each in (row, ROWS[0])
        ]
        for job in pair:
            job.work_off(sizes.backlog)
        for _ in range(WARM_UP_ASKS):
            for job in pair:
                job.ask()
        for job in pair:
            job.forget()
        for _ in range(sizes.latencies):
            for job in pair:
                job.ask()
        for number in range(sizes.rounds):
            for job in pair if number % 2 == 0 else reversed(pair):
                job.work_off(sizes.backlog)
    for job in pair:
        job.asker.close()
        expected = expected_maps(policy, sizes.total, reasons=True)
        check(committed(bootstrap, job.prefix + REPLICA_MAP), expected, by_value=False)
    return pair[0], pair[1]


def figures_of(row: Row, jobs: Sequence[Job]) -> dict[str, Any]:
    """What is kept of a row."""
    latencies = [ms for job in jobs for ms in job.latencies_ms]
    cpu_ms = [fmean(job.cpu_ms) for job in jobs]  # ticks are coarse, so a mean
    return {
        "shown": row.shown,
        "of_latency": list(row.taken),
        "latency_ms": percentiles(latencies),
        "cpu_ms_per_create": spread(cpu_ms),
        "creates_per_s": spread([rate for job in jobs for rate in job.creates_per_s]),
        "cpu_s_per_100k": spread([each for job in jobs for each in job.cpu_s_per_100k]),
    }


def ratios(own: Job, its: Job) -> dict[str, Any]:
    """A job's figures to those of its partner."""

    def of(name: str) -> dict[str, float]:
        pairs = zip(getattr(own, name), getattr(its, name), strict=True)
        return spread([a / b for a, b in pairs])

    return {
        "latency_ms": of("latencies_ms"),
        "cpu_ms_per_create": round(fmean(own.cpu_ms) / fmean(its.cpu_ms), 3),
        "creates_per_s": of("creates_per_s"),
        "cpu_s_per_100k": of("cpu_s_per_100k"),
    }


def run_job(row: Row) -> int:
    """The row's job; until it is ended."""
    from spu_assigner.stream.job import lifecycle as job
    from spu_assigner.stream.job import session, source

    latency = profiles.TUNINGS[Profile.LATENCY]
    values = {name: getattr(latency, name) for name in row.taken}
    changed = replace(profiles.TUNINGS[BASE], **values)
    profiles.TUNINGS = {**profiles.TUNINGS, BASE: changed}  # type: ignore[misc]
    match row.name:
        case "compiler":
            session.JVM = (*session.JVM, session.SHORT_LIVED)  # type: ignore[misc,assignment]
        case "fetches":
            source.FETCH_WAIT_MS_MAX = 10  # type: ignore[misc]
        case "buffers":
            chosen = session.session_options
            session.session_options = lambda settings: {
                **chosen(settings),
                session.BROADCAST_BUFFER: "4m",
            }
    return job.main()


def main() -> int:
    """The command; its exit status."""
    if sys.argv[1:2] == [CHILD]:
        return run_job(next(row for row in ROWS if row.name == sys.argv[2]))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--backlog", type=int, default=100_000)
    parser.add_argument("--latencies", type=int, default=80)
    parser.add_argument("--policy", type=Policy, default=Policy.FLUVIO)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    sizes = Sizes(latencies=options.latencies, backlog=options.backlog, rounds=options.rounds)
    folder = Path(tempfile.mkdtemp(prefix="spu-assigner-profiles-"))
    pairs: dict[str, tuple[Job, Job]] = {}
    try:
        with EmbeddedBroker(folder / "broker") as broker:
            for row in ROWS[1:]:
                found = measure(row, options.policy, sizes, broker.bootstrap_servers, folder)
                pairs[row.name] = found
                own, its = (median(job.latencies_ms) for job in found)
                print(f"{row.shown}: {own:.0f} ms beside {its:.0f} ms", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures = {ROWS[0].name: figures_of(ROWS[0], [its for _, its in pairs.values()])}
    for row in ROWS[1:]:
        own, its = pairs[row.name]
        figures[row.name] = {**figures_of(row, [own]), "of_throughput": ratios(own, its)}
    print(table(figures))
    if options.write:
        kept = {**SIZES, "backlog": sizes.backlog, "policy": options.policy.value}
        keep("profiles", sizes=kept, figures=figures, show=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
