"""One run of one contestant, on topics and in a process of its own."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import AdminClient
from contestants import TOPIC_SECONDS, Answers, Contestant, Place
from support.bench.measured_job import CPU_UNIT, messages
from support.bench.workload import CLUSTERS, SPUS, Client, creates, joins
from support.job.programs import cpu_seconds, running
from support.job.same_answers import check, expected_copies, expected_maps
from support.kafka.reading import committed

# Before what is measured: these run for months, and a JVM compiles for minutes what runs often.
WARM_UP_ASKS: Final = 500
WARM_UP_BACKLOGS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is asked for in a run."""

    backlog: int
    latencies: int
    backlogs: int = 2  # one after the other

    @property
    def warm_up(self) -> int:
        return self.backlog * WARM_UP_BACKLOGS

    @property
    def total(self) -> int:
        return WARM_UP_ASKS + self.warm_up + self.latencies + self.backlogs * self.backlog


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a run gave."""

    latencies_ms: list[float]
    events_per_s: list[float]  # of each backlog
    cpu_s: list[float]  # likewise, of the process and all that it started, for CPU_UNIT creates


class EndedError(Exception):
    """A contestant's process has ended by itself."""


def measure(contestant: Contestant, place: Place, sizes: Sizes) -> Measured:
    """Start it, warm it up, measure it, end it, and check every answer it gave.

    - Latency: one create at a time, from before it is produced until its answer is read.
    - Rate: backlogs, each from the start of sending it until its last answer is read.

    Raises:
        AssertionError, EndedError: it does not answer.
        WrongAnswerError: not as the core does.
    """
    contestant.make_topics(place)
    place.folder.mkdir(parents=True)
    log = place.folder / "log"
    try:
        with running(contestant.command(place), log, contestant.environ(place)) as process:
            measured = _measure(contestant, place, sizes, process)
        answers = committed(place.bootstrap, place.prefix + contestant.maps)
        if contestant.answers is Answers.COPIES:
            check(answers, expected_copies(sizes.total), by_value=True)
        else:
            reasons = contestant.answers is Answers.MAPS_WITH_REASONS
            expected = expected_maps(contestant.policy, sizes.total, reasons)
            check(answers, expected, by_value=False)
    finally:
        _remove_topics(place)
    return measured


def _measure(
    contestant: Contestant, place: Place, sizes: Sizes, process: subprocess.Popen[bytes]
) -> Measured:
    def look() -> None:
        if process.poll() is not None:
            raise EndedError(f"it ended with status {process.returncode}: {_last_line(place)}")

    def client(source: str, target: str) -> Client:
        return Client(place.bootstrap, place.prefix + source, place.prefix + target, look)

    spus = client(contestant.spu_events, contestant.joined or contestant.maps)
    asker = client(contestant.topic_events, contestant.maps)
    try:
        spus.send(messages(joins()))
        if contestant.joined is not None:
            spus.take(CLUSTERS * SPUS)
            if contestant.joined == contestant.maps:
                asker.take(CLUSTERS * SPUS)
        next_create = iter(creates(0, sizes.total))

        def take(count: int) -> list[tuple[str, bytes]]:
            return messages([next(next_create) for _ in range(count)])

        for key, value in take(WARM_UP_ASKS):
            asker.ask(key, value)
        asker.send(take(sizes.warm_up))
        asker.take(sizes.warm_up)
        latencies = [asker.ask(key, value) for key, value in take(sizes.latencies)]
        rates, cpu_s = [], []
        for _ in range(sizes.backlogs):
            backlog = take(sizes.backlog)
            cpu_before, begun = cpu_seconds(process), time.perf_counter()
            asker.send(backlog)
            asker.take(sizes.backlog)
            rates.append(sizes.backlog / (time.perf_counter() - begun))
            cpu_s.append((cpu_seconds(process) - cpu_before) * CPU_UNIT / sizes.backlog)
    finally:
        spus.close()
        asker.close()
    return Measured(latencies_ms=latencies, events_per_s=rates, cpu_s=cpu_s)


def _last_line(place: Place) -> str:
    lines = (place.folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _remove_topics(place: Place) -> None:
    """All that were made for this run, also by the contestant: the next finds the broker empty."""
    admin = AdminClient({"bootstrap.servers": place.bootstrap})
    there = admin.list_topics(timeout=TOPIC_SECONDS).topics
    names = [name for name in there if place.prefix in name]
    for future in admin.delete_topics(names).values() if names else ():
        future.result(TOPIC_SECONDS)
