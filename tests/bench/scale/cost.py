"""What a job costs its owner: idle, one create at a time, a steady rate, memory, a restart.

    python tests/bench/scale/cost.py [--write] [--minutes 5]

The job runs as a user starts it, with a broker of its own; the client is in this process, which is
not counted. First creates are asked for one at a time for some minutes, since a JVM compiles what
it does often; the last minute counts.

Afterwards, likewise, Spark alone: a query of PySpark that sends the same events on as they are,
without state, in the job's own session, with its JVM settings and its archive of classes. No job on
Spark's micro-batches can do with less. Restarts come last, in turn, and with them those of the same
query with a state: Spark's `dropDuplicates`.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench.figures import keep, parser_of, percentiles, say, spread
from support.bench.measured_job import MeasuredJob, Work, messages
from support.bench.processes import BROKER, MIB, cpu_seconds, sizes
from support.bench.workload import SIZES, creates, joins
from support.job.programs import session

BACKLOG: Final = 60_000
BACKLOGS: Final = 3
PAUSE_SECONDS: Final = 0.3
SETTLED_SECONDS: Final = 1.0  # before a kill: Spark has noted its last batch as done
FILES_OF: Final = 10  # creates; Spark keeps the files of its last 20 batches
PAUSED: Final = 100  # creates with a pause between
RATE: Final = 200  # creates a second
STEADY_SECONDS: Final = 20
IDLE_SECONDS: Final = 60
IDLE_TIMES: Final = 2
STEADY_TIMES: Final = 3  # the one in the middle counts
RESTARTS: Final = 5
INPUT_PARTITIONS: Final = 4  # as the job's own topics have
STEPS: Final = ("Spark_started", "query_started", "first_answer")  # since the process's start


class SparkAlone(MeasuredJob):
    """A query of Spark that sends on what comes."""

    source, target = "events", "maps"
    options: tuple[str, ...] = ()

    def make_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        names = self.source, self.target
        topics = [NewTopic(self.prefix + each, INPUT_PARTITIONS, 1) for each in names]
        for made in admin.create_topics(topics).values():
            made.result()

    def command(self) -> Sequence[str]:
        script = str(Path(__file__).parents[1] / "neighbours" / "spark_echo.py")
        servers = self.broker.bootstrap_servers
        return [sys.executable, script, servers, self.prefix, str(self.checkpoint), *self.options]

    def join(self, events: Sequence[Event]) -> float:
        """It knows no SPUs."""
        return 0.0


class SparkStateful(SparkAlone):
    """One that sends on what it has not seen before."""

    options = ("--unseen",)


class Cost:
    """One job, what it is asked for, and what that costs."""

    def __init__(self, job: MeasuredJob) -> None:
        self.job = job
        self._asked = 0

    def creates(self, count: int) -> list[Event]:
        """The next ones."""
        self._asked += count
        return creates(self._asked - count, count)

    def figures(self, minutes: float) -> dict[str, Any]:
        """All of it."""
        found: dict[str, Any] = {}
        job = self.job
        with job.started():
            job.join(joins())
            found["lone"] = self._lone(minutes)
            found["lone"]["files"] = self._files()
            found["backlog"] = self._backlog()
            found["paused_ms"] = percentiles(self._paused(PAUSED, PAUSE_SECONDS))
            steady = [self._steady() for _ in range(STEADY_TIMES)]
            found["steady"] = sorted(steady, key=itemgetter("cores"))[STEADY_TIMES // 2]
            found["after_idle_ms"] = spread(self._paused(IDLE_TIMES, IDLE_SECONDS))
            job.topics.close()  # Nobody asks for anything, and nobody reads.
            found["idle"] = cores(job.measured(0, lambda: time.sleep(IDLE_SECONDS)))
            held = sizes(job.process, job.broker)
            found["memory_mib"] = {role: round(size / MIB) for role, size in held.items()}
            job.topics = job.client()
            job.topics.take(self._asked)
            self._kill()
        for name, value in found.items():
            say(f"{name}: {value}")
        return found

    def _lone(self, minutes: float) -> dict[str, Any]:
        """One after the other, for some minutes; the last one counts."""
        for _ in range(max(1, round(minutes))):
            times: list[float] = []
            end = time.monotonic() + min(60.0, 60.0 * minutes)

            def asked(times: list[float] = times, end: float = end) -> None:
                while time.monotonic() < end:
                    times += self.job.ask_each(self.creates(1))

            before, parts = self._inside()
            work = self.job.measured(0, asked)
            say(f"one at a time: {percentiles(times)}")
        threads, parts_after = self._inside()
        threads.subtract(before)
        parts_after.subtract(parts)
        per_create = 1000 / len(times)
        return {
            "latency_ms": percentiles(times),
            "job_cpu_ms": round(work.job_cpu_s * per_create, 1),
            "broker_cpu_ms": round(work.cpu[BROKER] * per_create, 1),
            "cpu_ms_by_process": {who: round(s * per_create, 2) for who, s in work.cpu.items()},
            "jvm_cpu_ms_by_thread": {who: round(s * per_create, 2) for who, s in threads.items()},
            "ms_by_part": {what: round(s * per_create, 2) for what, s in parts_after.items()},
        }

    def _inside(self) -> tuple[Counter[str], Counter[str]]:
        """CPU seconds of the JVM's threads, and seconds of batches by part, of the job itself."""
        own = type(self.job) is MeasuredJob
        return self.job.threads(), self.job.parts() if own else Counter[str]()

    def _files(self) -> float:
        """How many files of its checkpoint one create makes."""
        begun = time.time()
        self.job.ask_each(self.creates(FILES_OF))
        made = 0
        for each in self.job.checkpoint.rglob("*"):
            with suppress(FileNotFoundError):  # Spark removes old ones meanwhile.
                made += each.is_file() and each.stat().st_ctime > begun
        return round(made / FILES_OF, 1)

    def _backlog(self) -> dict[str, Any]:
        """Many at once."""
        works = [self.job.answer(self.creates(BACKLOG)) for _ in range(BACKLOGS)]
        return {
            "creates_per_s": spread([each.per_s for each in works]),
            "cpu_s_per_100k": spread([each.cpu_s_per_unit for each in works]),
        }

    def _paused(self, count: int, seconds: float) -> list[float]:
        """One at a time, with a pause before each, as a person or another program asks: ms."""
        times = []
        for create in self.creates(count):
            time.sleep(seconds)
            times += self.job.ask_each([create])
        return times

    def _steady(self) -> dict[str, float]:
        """Evenly spread creates."""
        client = self.job.topics
        waiting = messages(self.creates(RATE * STEADY_SECONDS))

        def sent() -> None:
            begun = time.monotonic()
            for number, (key, value) in enumerate(waiting):
                client.producer.produce(client.source, key=key, value=value)
                client.producer.poll(0)
                time.sleep(max(0.0, begun + (number + 1) / RATE - time.monotonic()))
            client.producer.flush()
            client.take(len(waiting))

        return cores(self.job.measured(len(waiting), sent))

    def restart(self) -> dict[str, float]:
        """Seconds from a start after a kill to the answer of a create that waits, by steps."""
        self.job.topics.send(messages(self.creates(1)))
        with self.job.started():
            reached = self.job.first_answer()
            used = cpu_seconds(self.job.process, self.job.broker)
            reached["cpu"] = used.total() - used[BROKER]
            self._kill()
        return reached

    def _kill(self) -> None:
        """End it, and all that it has started, as a machine that loses its power would."""
        time.sleep(SETTLED_SECONDS)
        for pid in session(self.job.process):
            os.kill(pid, signal.SIGKILL)
        self.job.process.wait()


def cores(work: Work) -> dict[str, float]:
    """How many cores a job and its broker kept busy."""
    return {
        "job_cores": round(work.job_cpu_s / work.seconds, 3),
        "broker_cores": round(work.cpu[BROKER] / work.seconds, 3),
        "cores": round(work.cpu.total() / work.seconds, 3),
    }


@contextmanager
def prepared(kind: type[MeasuredJob]) -> Iterator[Cost]:
    """One program, with a broker of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="spu-assigner-cost-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        job = kind(broker, "cost", Path(folder), policy=Policy.BALANCED)
        yield Cost(job)
        job.close()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    given = parser.parse_args()
    programs, figures = {}, dict[str, Any](spark_stateful={})
    with ExitStack() as brokers:
        for name, kind in (("this", MeasuredJob), ("spark_alone", SparkAlone)):
            say(name)
            programs[name] = brokers.enter_context(prepared(kind))
            figures[name] = programs[name].figures(given.minutes)
        programs["spark_stateful"] = brokers.enter_context(prepared(SparkStateful))
        programs["spark_stateful"].restart()  # leaves a checkpoint
        restarts = [{name: programs[name].restart() for name in programs} for _ in range(RESTARTS)]
    for name, found in figures.items():
        own = [each[name] for each in restarts]
        found["restart_s"] = {step: spread([each[step] for each in own]) for step in STEPS}
        found["restart_cpu_s"] = spread([each["cpu"] for each in own])
    if given.write:
        used = {**SIZES, "policy": Policy.BALANCED, "minutes": given.minutes}
        keep("cost", sizes=used, figures=figures, show=False)


if __name__ == "__main__":
    main()
