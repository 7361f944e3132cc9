"""What each part of the two profiles is worth: the job with one more of them changed, in turns.

    python tests/bench/profile_settings.py [--latencies 80] [--backlog 40000] [--rounds 3]
        [--policy fluvio] [--write]

The first row is profile `throughput`, the last one `latency`; between them stand those that take
some of its values. All are up at once, each a job of its own on topics of its own, and are asked
for one create after the other in turn, so that whatever else the machine does falls on all of them
alike; then each is given a backlog while the others rest, in rounds, every second one backwards.
Every map is compared with the core's, byte for byte. Ratios are those to `throughput` of the same
turn. With --write the figures go to results/profiles.json.
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
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from spu_assigner.core.events import Policy
from spu_assigner.schemas.codec import encode_event
from spu_assigner.stream import profile as profiles
from spu_assigner.stream.broker import EmbeddedBroker
from spu_assigner.stream.profile import Profile
from spu_assigner.stream.topics import (
    REPLICA_MAP,
    RING_EVENTS,
    SPU_EVENTS,
    TOPIC_EVENTS,
    create_topics,
)
from support.figures import keep, percentiles, spread
from support.profile_table import table
from support.programs import cpu_seconds, running
from support.reading import committed
from support.same_answers import check, expected_maps
from support.workload import CLUSTERS, SIZES, SPUS, Client, creates, joins

BASE: Final = Profile.THROUGHPUT
WARM_UP_ASKS: Final = 20
REST_SECONDS: Final = 5.0
WARM_UP_PART: Final = 3  # of a backlog, before what is measured
CPU_UNIT: Final = 100_000  # creates
JOB: Final = "--job"  # how this program starts a job of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job between the two profiles."""

    name: str
    shown: str  # in README
    taken: tuple[str, ...]  # of profile latency; the rest is throughput's


ROWS: Final = (
    Row(name="throughput", shown="throughput", taken=()),
    Row(name="compiler", shown="the fast compiler alone", taken=("jvm",)),
    Row(name="shard", shown="one shard", taken=("shards_max",)),
    Row(
        name="task",
        shown="one shard, one task",
        taken=("shards_max", "in_one_task"),
    ),
    Row(name="latency", shown="all: latency", taken=("shards_max", "in_one_task", "jvm")),
)


@dataclass(slots=True, kw_only=True)
class Running:
    """A row's job, and what it has shown."""

    row: Row
    process: subprocess.Popen[bytes]
    asker: Client
    creates: Iterator[tuple[str, bytes]]
    idle_cores: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    cpu_ms_per_create: float = 0.0  # one at a time, without what it takes when it rests
    creates_per_s: list[float] = field(default_factory=list)
    cpu_s_per_100k: list[float] = field(default_factory=list)  # in the backlogs
    asked: int = 0

    def take(self, number: int) -> list[tuple[str, bytes]]:
        self.asked += number
        return list(islice(self.creates, number))

    def work_off(self, number: int) -> tuple[float, float]:
        """A backlog: seconds, and seconds of processor time."""
        backlog = self.take(number)
        cpu, begun = cpu_seconds(self.process), time.perf_counter()
        self.asker.send(backlog)
        self.asker.take(number)
        return time.perf_counter() - begun, cpu_seconds(self.process) - cpu


def start(
    rows: Sequence[Row], policy: Policy, bootstrap: str, folder: Path, stack: ExitStack
) -> list[Running]:
    """All jobs, each knowing the SPUs of all clusters."""
    started = []
    for row in rows:
        prefix = f"{row.name}."
        create_topics({"bootstrap.servers": bootstrap}, prefix=prefix)
        environ = {
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
            "SPU_ASSIGNER_TOPIC_PREFIX": prefix,
            "SPU_ASSIGNER_DEFAULT_POLICY": policy.value,
            "SPU_ASSIGNER_PROFILE": BASE.value,
            "SPU_ASSIGNER_CHECKPOINT": str(folder / row.name),
        }
        program = [sys.executable, __file__, JOB, ",".join(row.taken)]
        process = stack.enter_context(running(program, folder / f"{row.name}.log", environ))
        spus = Client(bootstrap, prefix + SPU_EVENTS, prefix + RING_EVENTS)
        spus.send([(event.cluster_id, encode_event(event)) for event in joins()])
        asker = Client(bootstrap, prefix + TOPIC_EVENTS, prefix + REPLICA_MAP)
        events = ((e.cluster_id, encode_event(e)) for n in count() for e in creates(n, 1))
        started.append((Running(row=row, process=process, asker=asker, creates=events), spus))
    for _, spus in started:
        spus.take(CLUSTERS * SPUS)
        spus.close()
    return [each for each, _ in started]


def measure(jobs: Sequence[Running], *, latencies: int, backlog: int, rounds: int) -> None:
    """Warm up, then one create at a time, then backlogs; all in turns."""
    for job in jobs:
        job.work_off(backlog // WARM_UP_PART)
    before = [cpu_seconds(job.process) for job in jobs]
    time.sleep(REST_SECONDS)
    for job, cpu in zip(jobs, before, strict=True):
        job.idle_cores = (cpu_seconds(job.process) - cpu) / REST_SECONDS
    _ask_in_turn(jobs, WARM_UP_ASKS)
    for job in jobs:
        job.latencies_ms.clear()
    before, begun = [cpu_seconds(job.process) for job in jobs], time.perf_counter()
    _ask_in_turn(jobs, latencies)
    seconds = time.perf_counter() - begun
    for job, cpu in zip(jobs, before, strict=True):
        used = cpu_seconds(job.process) - cpu - job.idle_cores * seconds
        job.cpu_ms_per_create = used / latencies * 1000
    for number in range(rounds):
        for job in jobs if number % 2 == 0 else reversed(jobs):
            seconds, cpu_s = job.work_off(backlog)
            job.creates_per_s.append(backlog / seconds)
            job.cpu_s_per_100k.append(cpu_s / backlog * CPU_UNIT)


def _ask_in_turn(jobs: Sequence[Running], number: int) -> None:
    for _ in range(number):
        for job in jobs:
            [(key, value)] = job.take(1)
            job.latencies_ms.append(job.asker.ask(key, value))


def figures_of(job: Running, base: Running) -> dict[str, Any]:
    """What is kept of a row."""

    def ratios(own: Sequence[float], its: Sequence[float]) -> dict[str, float]:
        return spread([a / b for a, b in zip(own, its, strict=True)])

    return {
        "shown": job.row.shown,
        "of_latency": list(job.row.taken),
        "latency_ms": percentiles(job.latencies_ms),
        "cpu_ms_per_create": round(job.cpu_ms_per_create, 1),
        "idle_cores": round(job.idle_cores, 3),
        "creates_per_s": spread(job.creates_per_s),
        "cpu_s_per_100k": spread(job.cpu_s_per_100k),
        "of_throughput": {
            "latency": ratios(job.latencies_ms, base.latencies_ms),
            "creates_per_s": ratios(job.creates_per_s, base.creates_per_s),
            "cpu_s_per_100k": ratios(job.cpu_s_per_100k, base.cpu_s_per_100k),
        },
    }


def run_job(taken: Sequence[str]) -> int:
    """The job in profile throughput with these values of latency; until it is ended."""
    from spu_assigner.stream.job import main as job

    latency = profiles.TUNINGS[Profile.LATENCY]
    values = {name: getattr(latency, name) for name in taken}
    changed = replace(profiles.TUNINGS[BASE], **values)
    profiles.TUNINGS = {**profiles.TUNINGS, BASE: changed}  # type: ignore[misc]
    return job()


def main() -> int:
    """The command; its exit status."""
    if sys.argv[1:2] == [JOB]:
        return run_job([name for name in sys.argv[2].split(",") if name])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backlog", type=int, default=40_000)
    parser.add_argument("--latencies", type=int, default=80)
    parser.add_argument("--policy", type=Policy, default=Policy.FLUVIO)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    policy, figures = options.policy, {}
    folder = Path(tempfile.mkdtemp(prefix="spu-assigner-profiles-"))
    try:
        with EmbeddedBroker(folder / "broker") as broker:
            bootstrap = broker.bootstrap_servers
            with ExitStack() as stack:
                jobs = start(ROWS, policy, bootstrap, folder, stack)
                measure(
                    jobs,
                    latencies=options.latencies,
                    backlog=options.backlog,
                    rounds=options.rounds,
                )
            for job in jobs:
                job.asker.close()
                print(f"{job.row.shown}: comparing {job.asked} maps", flush=True)
                answers = committed(bootstrap, f"{job.row.name}.{REPLICA_MAP}")
                check(answers, expected_maps(policy, job.asked, reasons=True), by_value=False)
                figures[job.row.name] = figures_of(job, jobs[0])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(figures))
    if options.write:
        sizes = {**SIZES, "backlog": options.backlog, "policy": policy.value}
        keep("profiles", sizes=sizes, figures=figures, show=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
