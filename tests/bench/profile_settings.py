"""What each part of the two profiles is worth: the job with one more of them changed, in turns.

    python tests/bench/profile_settings.py [--rounds 2] [--latencies 80] [--backlog 60000]
        [--policy fluvio] [--write]

The first row is profile `throughput`, the last one `latency`; between them stand those that take
some of its values. In each round every row is a job of its own, started anew on topics of its own,
one after the other on one broker; every second round goes backwards. Each is warmed up by a
backlog, rests, is asked for one create at a time, and works off two backlogs more. (All up at once
and asked in turn was tried: what four of them take while they rest falls on the fifth.) Every map
is compared with the core's, byte for byte. Ratios are those to `throughput` of the same round. With
--write the figures go to results/profiles.json.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
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
BACKLOGS: Final = 2  # besides one to warm up
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is asked for in a run."""

    latencies: int
    backlog: int

    @property
    def total(self) -> int:
        return WARM_UP_ASKS + self.latencies + (1 + BACKLOGS) * self.backlog


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a run of a row gave; processor time is that of the job and all that it started."""

    start_s: float  # from the process to the answer to the last join
    idle_cores: float
    latencies_ms: list[float]
    cpu_ms_per_create: float  # one at a time
    creates_per_s: float
    cpu_s_per_100k: float  # in the backlogs

    @property
    def latency_ms(self) -> float:
        return median(self.latencies_ms)


def measure(row: Row, policy: Policy, sizes: Sizes, bootstrap: str, prefix: str) -> Measured:
    """One job, started and ended, its answers compared."""
    create_topics({"bootstrap.servers": bootstrap}, prefix=prefix)
    environ = {
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
        "SPU_ASSIGNER_TOPIC_PREFIX": prefix,
        "SPU_ASSIGNER_DEFAULT_POLICY": policy.value,
        "SPU_ASSIGNER_PROFILE": BASE.value,
    }
    program = [sys.executable, __file__, JOB, ",".join(row.taken)]
    events = iter([(event.cluster_id, encode_event(event)) for event in creates(0, sizes.total)])
    with tempfile.TemporaryDirectory(prefix="spu-assigner-profiles-") as folder:
        environ["SPU_ASSIGNER_CHECKPOINT"] = f"{folder}/checkpoint"
        begun = time.perf_counter()
        with running(program, Path(folder, "log"), environ) as process:
            spus = Client(bootstrap, prefix + SPU_EVENTS, prefix + RING_EVENTS)
            spus.send([(event.cluster_id, encode_event(event)) for event in joins()])
            spus.take(CLUSTERS * SPUS)
            spus.close()
            start_s = time.perf_counter() - begun
            asker = Client(bootstrap, prefix + TOPIC_EVENTS, prefix + REPLICA_MAP)

            def work_off() -> tuple[float, float]:
                backlog = list(islice(events, sizes.backlog))
                cpu, begun = cpu_seconds(process), time.perf_counter()
                asker.send(backlog)
                asker.take(len(backlog))
                return time.perf_counter() - begun, cpu_seconds(process) - cpu

            work_off()
            for key, value in islice(events, WARM_UP_ASKS):
                asker.ask(key, value)
            cpu = cpu_seconds(process)
            time.sleep(REST_SECONDS)
            idle_cores = (cpu_seconds(process) - cpu) / REST_SECONDS
            cpu = cpu_seconds(process)
            latencies = [asker.ask(key, value) for key, value in islice(events, sizes.latencies)]
            cpu_asked = cpu_seconds(process) - cpu
            worked = [work_off() for _ in range(BACKLOGS)]
            seconds, cpu_s = sum(wall for wall, _ in worked), sum(used for _, used in worked)
            asker.close()
    expected = expected_maps(policy, sizes.total, reasons=True)
    check(committed(bootstrap, prefix + REPLICA_MAP), expected, by_value=False)
    return Measured(
        start_s=start_s,
        idle_cores=idle_cores,
        latencies_ms=latencies,
        cpu_ms_per_create=cpu_asked / sizes.latencies * 1000,
        creates_per_s=BACKLOGS * sizes.backlog / seconds,
        cpu_s_per_100k=cpu_s / (BACKLOGS * sizes.backlog) * CPU_UNIT,
    )


def figures_of(row: Row, runs: Sequence[Measured], base: Sequence[Measured]) -> dict[str, Any]:
    """What is kept of a row."""

    def all_of(name: str) -> list[float]:
        return [getattr(run, name) for run in runs]

    def ratios(name: str) -> dict[str, float]:
        its = [getattr(run, name) for run in base]
        return spread([a / b for a, b in zip(all_of(name), its, strict=True)])

    names = ("cpu_ms_per_create", "creates_per_s", "cpu_s_per_100k")
    return {
        "shown": row.shown,
        "of_latency": list(row.taken),
        "latency_ms": percentiles([ms for run in runs for ms in run.latencies_ms]),
        **{name: spread(all_of(name)) for name in (*names, "idle_cores", "start_s")},
        "of_throughput": {name: ratios(name) for name in ("latency_ms", *names)},
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
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--backlog", type=int, default=60_000)
    parser.add_argument("--latencies", type=int, default=80)
    parser.add_argument("--policy", type=Policy, default=Policy.FLUVIO)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    policy = options.policy
    sizes = Sizes(latencies=options.latencies, backlog=options.backlog)
    runs: dict[str, list[Measured]] = {row.name: [] for row in ROWS}
    folder = Path(tempfile.mkdtemp(prefix="spu-assigner-profiles-"))
    try:
        with EmbeddedBroker(folder / "broker") as broker:
            for number in range(options.rounds):
                for row in ROWS if number % 2 == 0 else reversed(ROWS):
                    prefix = f"r{number}-{row.name}."
                    found = measure(row, policy, sizes, broker.bootstrap_servers, prefix)
                    runs[row.name].append(found)
                    print(
                        f"round {number + 1}, {row.shown}: {found.latency_ms:.0f} ms, "
                        f"{found.creates_per_s:,.0f} creates/s",
                        flush=True,
                    )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures = {row.name: figures_of(row, runs[row.name], runs[BASE]) for row in ROWS}
    print(table(figures))
    if options.write:
        kept = {**SIZES, "backlog": sizes.backlog, "policy": policy.value}
        keep("profiles", sizes=kept, figures=figures, show=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
