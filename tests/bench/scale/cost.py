"""What a job costs its owner: idle, one create at a time, a steady rate, memory, a restart.

    python tests/bench/scale/cost.py [--write] [--minutes 10] [--earlier PROGRAM]

The job runs as a user starts it, with a broker of its own; the client is in this process, which is
not counted. First creates are asked for one at a time for some minutes, since a JVM compiles what
it does often; the last minute counts.

Afterwards, in the same way and on the same machine, Spark alone: a query of PySpark that sends the
same events on as they are, without state, in the job's own session, with its JVM settings and its
archive of classes. What it takes, no job on Spark's micro-batches can do without. Then PROGRAM, the
`spu-assigner` of another checkout.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench.figures import commit_of, keep, parser_of, percentiles, say, spread
from support.bench.measured_job import PROGRAM, MeasuredJob, Work, messages
from support.bench.processes import BROKER, MIB, TREE, sizes
from support.bench.workload import SIZES, creates, joins
from support.job.programs import session

BACKLOG: Final = 60_000
BACKLOGS: Final = 3
PAUSE_SECONDS: Final = 0.3
PAUSED: Final = 100  # creates with a pause between
RATE: Final = 200  # creates a second
STEADY_SECONDS: Final = 30
IDLE_SECONDS: Final = 60
IDLE_TIMES: Final = 2
RESTARTS: Final = 3
INPUT_PARTITIONS: Final = 4  # as the job's own topics have


class SparkAlone(MeasuredJob):
    """A query of Spark that sends on what comes."""

    source, target = "events", "maps"

    def make_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        names = [self.prefix + each for each in (self.source, self.target)]
        topics = [NewTopic(name, INPUT_PARTITIONS, 1) for name in names]
        for made in admin.create_topics(topics).values():
            made.result()

    def command(self) -> Sequence[str]:
        script = str(Path(__file__).parents[1] / "neighbours" / "spark_echo.py")
        servers = self.broker.bootstrap_servers
        return [sys.executable, script, servers, self.prefix, str(self.checkpoint)]

    def join(self, events: Sequence[Event]) -> float:
        """It knows no SPUs."""
        return 0.0


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
            found["backlog"] = self._backlog()
            found["paused_ms"] = self._paused()
            found["steady"] = self._steady()
            found["after_idle_ms"] = self._after_idle()
            job.topics.close()  # Nobody asks for anything, and nobody reads.
            found["idle"] = cores(job.measured(0, lambda: time.sleep(IDLE_SECONDS)))
            found["memory_mib"] = round(sizes(job.process, job.broker)[TREE] / MIB)
            job.topics = job.client()
            job.topics.take(self._asked)
            self._kill()
        found["restart_s"] = spread([self._restart() for _ in range(RESTARTS)])
        for name, value in found.items():
            say(f"{name}: {value}")
        job.close()
        return found

    def _lone(self, minutes: float) -> dict[str, Any]:
        """One after the other, for some minutes; the last one counts."""
        for _ in range(max(1, round(minutes))):
            times: list[float] = []
            end = time.monotonic() + min(60.0, 60.0 * minutes)

            def asked(times: list[float] = times, end: float = end) -> None:
                while time.monotonic() < end:
                    times += self.job.ask_each(self.creates(1))

            work = self.job.measured(0, asked)
            say(f"one at a time: {percentiles(times)}")
        return {
            "latency_ms": percentiles(times),
            "job_cpu_ms": round(1000 * work.job_cpu_s / len(times), 1),
            "jvm_cpu_ms": round(1000 * work.cpu["jvm"] / len(times), 1),
            "broker_cpu_ms": round(1000 * work.cpu[BROKER] / len(times), 1),
        }

    def _backlog(self) -> dict[str, Any]:
        """Many at once."""
        works = [self.job.answer(self.creates(BACKLOG)) for _ in range(BACKLOGS)]
        return {
            "creates_per_s": spread([each.per_s for each in works]),
            "cpu_s_per_100k": spread([each.cpu_s_per_unit for each in works]),
        }

    def _paused(self) -> dict[str, float]:
        """With a pause between, as a person or a program that does other things asks."""
        times = []
        for create in self.creates(PAUSED):
            times += self.job.ask_each([create])
            time.sleep(PAUSE_SECONDS)
        return percentiles(times)

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

    def _after_idle(self) -> dict[str, float]:
        """The first create after a minute without one."""
        times = []
        for create in self.creates(IDLE_TIMES):
            time.sleep(IDLE_SECONDS)
            times += self.job.ask_each([create])
        return spread(times)

    def _restart(self) -> float:
        """Seconds from a start after a kill to the answer of a create that waits."""
        self.job.topics.send(messages(self.creates(1)))
        begun = time.monotonic()
        with self.job.started():
            self.job.topics.take(1)
            seconds = time.monotonic() - begun
            self._kill()
        return seconds

    def _kill(self) -> None:
        """End it, and all that it has started, as a machine that loses its power would."""
        for pid in session(self.job.process):
            os.kill(pid, signal.SIGKILL)
        self.job.process.wait()


def cores(work: Work) -> dict[str, float]:
    """How many cores a job and its broker kept busy."""
    return {
        "job_cores": round(work.job_cpu_s / work.seconds, 3),
        "broker_cores": round(work.cpu[BROKER] / work.seconds, 3),
    }


def measure(
    minutes: float, kind: type[MeasuredJob] = MeasuredJob, program: Sequence[str] = PROGRAM
) -> dict[str, Any]:
    """One program."""
    with (
        tempfile.TemporaryDirectory(prefix="spu-assigner-cost-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        job = kind(broker, "cost", Path(folder), policy=Policy.BALANCED, program=program)
        return Cost(job).figures(minutes)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--earlier", metavar="PROGRAM")
    given = parser.parse_args()
    figures = {"this": measure(given.minutes)}
    say("Spark alone")
    figures["spark_alone"] = measure(given.minutes, SparkAlone)
    used = {**SIZES, "policy": Policy.BALANCED, "minutes": given.minutes}
    if given.earlier is not None:
        say(given.earlier)
        figures["earlier"] = measure(given.minutes, program=[given.earlier])
        used["earlier"] = commit_of(Path(given.earlier).parent) or None
    if given.write:
        keep("cost", sizes=used, figures=figures, show=False)


if __name__ == "__main__":
    main()
