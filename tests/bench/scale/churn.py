"""A steady life of many clusters for half an hour: does anything grow, slow down or get lost?

    python tests/bench/scale/churn.py [--write] [--minutes 30] [--rate 300]

SPUs join and leave, topics come, grow and go; how many of them live stays the same. Sampled are the
memory of each process, the checkpoint's size and files, and the latency of each answer. Judged is
the median of the last fifth of the time beside that of the second fifth (`ALLOWANCES`); every
answer is held against the core on the applied order. Ends with status 1 if any of it is wrong.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from spu_assigner.core.base.events import (
    ClusterRebalance,
    Event,
    LeaveMode,
    SpuJoined,
    SpuLeft,
    TopicCreate,
    TopicDelete,
    TopicGrow,
)
from spu_assigner.schemas.messages.codec import EventKind, decode_event

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.bench.figures import keep, percentiles
from support.bench.judging import Allowance, Flatness, flatness
from support.bench.loadrun import JobOptions, RunningLoad, broker_for_load, job_for_load, say

MB: Final = 1_000_000
CLUSTERS: Final = 50
SPUS: Final = 12
LIVING: Final = 40  # topics of a cluster
SEED: Final = 7
TICK_SECONDS: Final = 0.02  # also what the bench may add to a latency
WEIGHTS: Final = {"topic": 80, "grow": 10, "return": 6, "replace": 2, "rebalance": 2}

# A Python process has no collector's teeth: a leak of 1 MB a minute is 18 MB between the fifths of
# 30 minutes. The JVM's heap grows to what it may have before it is collected whole.
ALLOWANCES: Final = {
    "keeper": Allowance(slack=12 * MB),
    "driver": Allowance(slack=12 * MB),
    "workers": Allowance(factor=1.1, slack=50 * MB),  # how many there are changes
    "jvm": Allowance(factor=1.1, slack=50 * MB),
    "tree": Allowance(factor=1.1, slack=50 * MB),
}
CHECKPOINT: Final = Allowance(factor=1.2, slack=5 * MB)
# How many files lie there follows the rate of batches, which Spark clears away now and then. What
# it does not clear away grows old.
FILES: Final = Allowance(factor=1.2, slack=50)
LATENCY: Final = Allowance(factor=1.5, slack=100)  # of the minutes' p50, in ms


class Cluster:
    """Draws a cluster's next events; what lives stays the same in number."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self._name = name
        self._chance = chance
        self._events = 0
        self._topics = 0
        self._living: deque[str] = deque()
        self._spus = list(range(SPUS))
        self._spu_next = SPUS

    def beginning(self) -> Iterator[Event]:
        """Its SPUs, and then its topics."""
        for spu_id in self._spus:
            yield self._join(spu_id)
        for _ in range(LIVING):
            yield self._create()

    def next(self) -> list[Event]:
        """One change, of one event or two."""
        chance = self._chance
        common = self._common
        match chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]:
            case "topic":
                gone = TopicDelete(**common(), topic=self._living.popleft())
                return [gone, self._create()]
            case "grow":
                topic = self._living[-1]
                return [TopicGrow(**common(), topic=topic, partitions=chance.randint(17, 24))]
            case "return":
                spu_id = chance.choice(self._spus)
                return [SpuLeft(**common(), spu_id=spu_id), self._join(spu_id)]
            case "replace":
                gone_id = self._spus.pop(chance.randrange(SPUS))
                self._spus.append(self._spu_next)
                self._spu_next += 1
                left = SpuLeft(**common(), spu_id=gone_id, mode=LeaveMode.DECOMMISSION)
                return [self._join(self._spus[-1]), left]
            case _:
                return [ClusterRebalance(**common(), max_moves=50)]

    def _create(self) -> TopicCreate:
        self._topics += 1
        self._living.append(f"t{self._topics}")
        return TopicCreate(
            **self._common(), topic=self._living[-1], partitions=16, replication_factor=3
        )

    def _join(self, spu_id: int) -> SpuJoined:
        return SpuJoined(**self._common(), spu_id=spu_id, rack=f"r{spu_id % 4}", capacity=10**6)

    def _common(self) -> dict[str, Any]:
        self._events += 1
        return {"event_id": f"{self._name}-{self._events}", "cluster_id": self._name}


class Watch:
    """The checkpoint's size, files and old files over time."""

    def __init__(self, run: RunningLoad) -> None:
        self.sizes: list[tuple[float, float]] = []
        self.files: list[tuple[float, float]] = []
        self.lingering: list[tuple[float, float]] = []
        self._run = run

    def look(self) -> None:
        found = self._run.load.checkpoint_size()
        now = self._run.sampler.seconds()
        self.sizes.append((now, found.bytes_))
        self.files.append((now, found.files))
        self.lingering.append((now, found.lingering))


def live(run: RunningLoad, clusters: list[Cluster], *, minutes: float, rate: int) -> Watch:
    """Send at a fixed rate, whether the job keeps up or not, and take the answers."""
    chance = random.Random(SEED)
    watch = Watch(run)
    begun = reported = time.monotonic()
    sent = 0
    while (passed := time.monotonic() - begun) < minutes * 60:
        due: list[Event] = []
        while sent + len(due) < passed * rate:
            due += chance.choice(clusters).next()
        sent += len(due)
        run.load.send(due)
        run.load.collect(TICK_SECONDS)
        if run.process.poll() is not None:
            raise RuntimeError(f"the job ended with status {run.process.returncode}")
        if time.monotonic() - reported >= 5:
            reported = time.monotonic()
            watch.look()
            if len(watch.sizes) % 6 == 0:
                size, files = watch.sizes[-1][1] / MB, watch.files[-1][1]
                say(f"    {passed:5.0f} s  {run.standing()}; checkpoint {size:.1f}, {files} files")
    return watch


def applied(run: RunningLoad) -> Iterator[Event]:
    """The events in the order in which the job applied them."""
    for read in run.load.applied():
        kind: EventKind = "spu" if read.topic == "spu-events" else "topic"
        yield decode_event(read.value, kind=kind)


def judged(run: RunningLoad, watch: Watch, *, since: float, moment: float) -> dict[str, Any]:
    """All figures, with a verdict on each that is to be flat."""
    samples = [sample for sample in run.sampler.samples if since <= sample.seconds]
    roles = sorted({role for sample in samples for role in sample.sizes} - {"broker", "other"})
    found: dict[str, Flatness] = {
        f"memory of {role}": flatness(
            run.sampler.series(role, since=since), ALLOWANCES[role.split()[0]]
        )
        for role in roles
    }
    found["checkpoint's size"] = flatness(watch.sizes, CHECKPOINT)
    found["checkpoint's old files"] = flatness(watch.lingering, FILES)
    minutes: dict[int, list[float]] = {}
    for when, latency_ms in run.load.latencies:
        if when >= moment:
            minutes.setdefault(int((when - moment) / 60), []).append(latency_ms)
    by_minute = [percentiles(minutes[minute]) for minute in sorted(minutes)]
    if len(by_minute) >= 5:
        medians = [(float(number), each["p50"]) for number, each in enumerate(by_minute)]
        found["latency's p50"] = flatness(medians, LATENCY)
    verdict = run.load.tally.judge(applied(run), sent=run.load.sent)
    return {
        "events": run.load.sent,
        "answers": run.load.tally.answers,
        **asdict(verdict),
        "is_nothing_lost": verdict.is_good,
        "is_flat": {what: each.is_flat for what, each in found.items()},
        "second_and_last_fifth": {
            what: [round(each.early), round(each.late)] for what, each in found.items()
        },
        "peak_mb": run.sampler.peaks_mb(),
        "peak_of_the_checkpoint": {
            "mb": round(max(size for _, size in watch.sizes) / MB, 1),
            "files": round(max(files for _, files in watch.files)),
        },
        "latency_ms_by_minute": by_minute,
    }


def churn(folder: Path, *, minutes: float, rate: int) -> dict[str, Any]:
    """The whole life."""
    chance = random.Random(SEED)
    clusters = [Cluster(f"c{number}", chance) for number in range(CLUSTERS)]
    with broker_for_load(folder) as load, job_for_load(load, JobOptions()) as run:
        load.send(event for cluster in clusters for event in cluster.beginning())
        run.wait()
        since, moment = run.sampler.seconds(), time.time()
        watch = live(run, clusters, minutes=minutes, rate=rate)
        lag = load.sent - len(load.tally.answered)
        run.wait()
        load.collect_the_rest()
        return {"lag_at_the_end": lag, **judged(run, watch, since=since, moment=moment)}


def main() -> int:
    parser = argparse.ArgumentParser(description="A steady life of many clusters.")
    parser.add_argument("--write", action="store_true", help="keep results/churn.json")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=300, help="events a second")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="spu-assigner-churn-"))
    try:
        figures = churn(folder, minutes=asked.minutes, rate=asked.rate)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for figure, value in figures.items():
        say(f"  {figure:<24} {value}")
    if asked.write:
        sizes = {"minutes": asked.minutes, "events_per_s": asked.rate, "clusters": CLUSTERS}
        sizes |= {"spus_of_a_cluster": SPUS, "topics_of_a_cluster": LIVING}
        keep("churn", sizes=sizes, figures=figures, show=False)
    return 0 if figures["is_nothing_lost"] and all(figures["is_flat"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
