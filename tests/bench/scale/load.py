"""The job under load: rates, peak memory by process, and every answer held against the core.

    python tests/bench/scale/load.py [--write] [--scale 0.1] [scenario …]

Each scenario has a broker and a job of its own. Nothing may be lost, repeated or different, else it
ends with status 1. With --write the figures are kept in results/load.json.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from spu_assigner.core.base.events import Event, SpuJoined, TopicCreate, TopicDelete, TopicGrow

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.bench.figures import keep
from support.bench.judging import Verdict
from support.bench.loadrun import (
    CLIENT_ID,
    JobOptions,
    RunningLoad,
    broker_for_load,
    job_for_load,
    say,
)
from support.placers.kafka_reassign import UNLIMITED, throttle

CAPACITY: Final = 2**31 - 1
RACKS: Final = 20
THROTTLED_RATE: Final = 20_000
Figures = dict[str, Any]


def join(cluster: str, spu_id: int, rack: str | None = None) -> SpuJoined:
    return SpuJoined(
        event_id=f"{cluster}-j{spu_id}",
        cluster_id=cluster,
        spu_id=spu_id,
        rack=rack,
        capacity=CAPACITY,
    )


def create(cluster: str, topic: str, partitions: int, replicas: int) -> TopicCreate:
    return TopicCreate(
        event_id=f"{cluster}-{topic}",
        cluster_id=cluster,
        topic=topic,
        partitions=partitions,
        replication_factor=replicas,
    )


def judged(run: RunningLoad, events: list[Event], figures: Figures) -> Figures:
    """The figures with what is wrong, and with the peaks of memory."""
    run.load.collect_the_rest()
    say("    comparing with the core")
    verdict = run.load.tally.judge(events, sent=run.load.sent)
    markers = run.load.markers()
    sizes = [sum(p.count for parts in m.offsets.values() for p in parts) for m in markers]
    return {
        "events": run.load.sent,
        "answers": run.load.tally.answers,
        **figures,
        **_figures(verdict),
        "batches": len(markers),
        "events_in_the_largest_batch": max(sizes),
        "checkpoint_mb": round(run.load.checkpoint_size() / 1e6, 1),
        "peak_mb": run.sampler.peaks_mb(),
    }


def _figures(verdict: Verdict) -> Figures:
    reported: Figures = {
        "lost": verdict.lost,
        "repeated": verdict.repeated,
        "different_from_the_core": verdict.different,
        "dead_letters": verdict.dead_letters,
    }
    if verdict.first:
        reported["first_difference"] = verdict.first
    return reported


def timed(run: RunningLoad, events: list[Event]) -> float:
    """Send a backlog and have it answered: seconds."""
    begun = time.perf_counter()
    run.load.send(events)
    run.wait()
    return time.perf_counter() - begun


def million_creates(folder: Path, scale: float) -> Figures:
    """Many small topics in many small clusters; all of them live at the end."""
    clusters, spus = max(2, round(1_000 * scale)), 6
    count = round(1_000_000 * scale)
    joins: list[Event] = [join(f"c{c}", s) for c in range(clusters) for s in range(spus)]
    creates: list[Event] = [create(f"c{n % clusters}", f"t{n}", 4, 2) for n in range(count)]
    with broker_for_load(folder) as load, job_for_load(load, JobOptions()) as run:
        timed(run, joins)
        seconds = timed(run, creates)
        figures = {"clusters": clusters, "creates": count, "creates_per_s": round(count / seconds)}
        return judged(run, joins + creates, figures)


def ten_thousand_spus(folder: Path, scale: float) -> Figures:
    """One cluster as large as one may be."""
    spus, count = max(20, round(10_000 * scale)), round(10_000 * scale)
    joins: list[Event] = [join("c", s, f"rack-{s % RACKS}") for s in range(spus)]
    small: list[Event] = [create("c", f"t{n}", 16, 3) for n in range(count)]
    large: list[Event] = [create("c", f"large-{n}", 100_000, 3) for n in range(3)]
    with broker_for_load(folder) as load, job_for_load(load, JobOptions()) as run:
        timed(run, [join("warm", 0)])
        join_seconds = timed(run, joins)
        small_seconds = timed(run, small)
        large_seconds = timed(run, large)
        figures = {
            "spus": spus,
            "joins_per_s": round(spus / join_seconds),
            "creates_of_16x3_per_s": round(count / small_seconds),
            "three_creates_of_100000x3_s": round(large_seconds, 2),
        }
        return judged(run, [join("warm", 0), *joins, *small, *large], figures)


def hundred_thousand_partitions(folder: Path, scale: float) -> Figures:
    """One topic as large as one may be: created, grown to that, deleted, created again."""
    rounds, partitions = 5, max(1_000, round(100_000 * scale))
    joins: list[Event] = [join("c", s, f"rack-{s % 3}") for s in range(100)]
    seconds: dict[str, list[float]] = {"create": [], "grow": [], "delete": []}
    all_events: list[Event] = list(joins)
    with broker_for_load(folder) as load, job_for_load(load, JobOptions()) as run:
        timed(run, joins)
        for number in range(rounds):
            named = {"cluster_id": "c", "topic": f"t{number % 2}"}
            steps: dict[str, Event] = {
                "create": TopicCreate(
                    event_id=f"c{number}", partitions=partitions, replication_factor=3, **named
                ),
                "delete": TopicDelete(event_id=f"d{number}", **named),
                "halved": TopicCreate(
                    event_id=f"h{number}",
                    partitions=partitions // 2,
                    replication_factor=3,
                    **named,
                ),
                "grow": TopicGrow(event_id=f"g{number}", partitions=partitions, **named),
                "deleted": TopicDelete(event_id=f"e{number}", **named),
            }
            for name, event in steps.items():
                took = timed(run, [event])
                if name in seconds:
                    seconds[name].append(took)
            all_events += steps.values()
        figures: Figures = {"partitions": partitions, "replicas": 3, "rounds": rounds}
        for name, values in seconds.items():
            figures[f"{name}_s"] = {"first": round(values[0], 2), "least": round(min(values), 2)}
        return judged(run, all_events, figures)


def maximal_creates(folder: Path, scale: float) -> Figures:
    """A batch many times larger than its events: 200 maps of 100,000 partitions × 3."""
    return _maximal(folder, round(200 * scale), replicas=3, first_spu=0)


def largest_maps(folder: Path, scale: float) -> Figures:
    """The same with maps of 8.2 MB, as large as a message may be: 16 ids of five bytes a list."""
    return _maximal(folder, round(200 * scale), replicas=16, first_spu=2**28)


def _maximal(folder: Path, count: int, *, replicas: int, first_spu: int) -> Figures:
    joins: list[Event] = [join("c", first_spu + s, f"rack-{s % 20}") for s in range(40)]
    creates: list[Event] = [create("c", f"t{n}", 100_000, replicas) for n in range(count)]
    options = JobOptions(driver_memory="2g")
    with broker_for_load(folder) as load:
        load.send(joins)
        load.send(creates)  # All are there before the job is: its first batch holds all.
        begun = time.perf_counter()
        with job_for_load(load, options) as run:
            run.wait()
            seconds = time.perf_counter() - begun
            figures = {
                "maximal_creates": count,
                "partitions": 100_000,
                "replicas": replicas,
                "heap": options.driver_memory,
                "seconds_with_the_start": round(seconds, 1),
            }
            return judged(run, joins + creates, figures)


def throttled_broker(folder: Path, scale: float) -> Figures:
    """A broker that gives the job 20 kB/s: lag grows, memory does not; then all is answered."""
    clusters, count, seconds = 50, round(100_000 * scale), 120.0
    joins: list[Event] = [join(f"c{c}", s) for c in range(clusters) for s in range(8)]
    warm: list[Event] = [create(f"c{n % clusters}", f"w{n}", 16, 3) for n in range(count)]
    creates: list[Event] = [create(f"c{n % clusters}", f"t{n}", 16, 3) for n in range(count)]
    with (
        broker_for_load(folder) as load,
        job_for_load(load, JobOptions()) as run,
    ):
        timed(run, joins)
        free_seconds = timed(run, warm)
        before = run.sampler.peaks_mb()
        answered = len(load.tally.answered)
        throttle(load.bootstrap, CLIENT_ID, UNLIMITED)
        throttle(load.bootstrap, None, THROTTLED_RATE)
        begun = run.sampler.seconds()
        load.send(creates)
        run.wait(lambda: run.is_all_answered() or run.sampler.seconds() - begun > seconds)
        lag = load.sent - len(load.tally.answered)
        during = run.sampler.peaks_mb(since=begun)
        throttle(load.bootstrap, None, None)
        lifted = time.perf_counter()
        run.wait()
        rest_seconds = time.perf_counter() - lifted
        figures = {
            "bytes_per_s_of_each_client": THROTTLED_RATE,
            "creates_per_s_before": round(count / free_seconds),
            "creates_per_s_throttled": round((count - lag) / (run.sampler.seconds() - begun)),
            "answered_before": answered,
            "lag_when_lifted": lag,
            "seconds_to_catch_up": round(rest_seconds, 1),
            "peak_mb_before": before,
            "peak_mb_throttled": during,
        }
        return judged(run, joins + warm + creates, figures)


SCENARIOS: Final[dict[str, Callable[[Path, float], Figures]]] = {
    "million_creates": million_creates,
    "ten_thousand_spus": ten_thousand_spus,
    "hundred_thousand_partitions": hundred_thousand_partitions,
    "maximal_creates": maximal_creates,
    "largest_maps": largest_maps,
    "throttled_broker": throttled_broker,
}


def is_good(figures: Figures) -> bool:
    """Nothing lost, repeated, different or undecodable."""
    wrong = ("lost", "repeated", "different_from_the_core", "dead_letters")
    return not any(figures[name] for name in wrong)


def table(found: dict[str, Figures]) -> Iterator[str]:
    for name, figures in found.items():
        yield f"\n{name}{'' if is_good(figures) else '   FAILED'}"
        for figure, value in figures.items():
            yield f"  {figure:<32} {value}"


def main() -> int:
    parser = argparse.ArgumentParser(description="The job under load.")
    parser.add_argument("--write", action="store_true", help="keep results/load.json")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of events")
    parser.add_argument("--keep", action="store_true", help="leave the folders for a look")
    parser.add_argument("scenario", nargs="*", choices=[[], *SCENARIOS], default=[])
    asked = parser.parse_args()
    found: dict[str, Figures] = {}
    for name in asked.scenario or SCENARIOS:
        say(f"{name}: {(SCENARIOS[name].__doc__ or '').splitlines()[0]}")
        folder = Path(tempfile.mkdtemp(prefix=f"spu-assigner-load-{name}-"))
        try:
            found[name] = SCENARIOS[name](folder, asked.scale)
        finally:
            if asked.keep:
                say(f"    left in {folder}")
            else:
                shutil.rmtree(folder, ignore_errors=True)
    say("\n".join(table(found)))
    if asked.write:
        keep("load", sizes={"scale": asked.scale}, figures=found, show=False)
    return 0 if all(map(is_good, found.values())) else 1


if __name__ == "__main__":
    sys.exit(main())
