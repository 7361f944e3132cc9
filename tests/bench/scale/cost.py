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

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.core.base.events import Event
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench.cpu_time import Spent, measured, processes_of
from support.bench.figures import commit_of, keep, percentiles, say, spread
from support.bench.memory import BROKER, MIB, proportional_size
from support.bench.workload import CLUSTERS, SIZES, SPUS, Client, creates, joins
from support.job.programs import running, session

BACKLOG: Final = 60_000
BACKLOGS: Final = 3
PAUSE_SECONDS: Final = 0.3
PAUSED: Final = 100  # creates with a pause between
RATE: Final = 200  # creates a second
STEADY_SECONDS: Final = 30
IDLE_SECONDS: Final = 60
IDLE_TIMES: Final = 2
RESTARTS: Final = 3
ALONE: Final = "alone-"  # prefix of the topics of Spark alone
INPUT_PARTITIONS: Final = 4  # as the job's own topics have

Message = tuple[str, bytes]


class Job:
    """One job, its broker, and the creates that it is asked for."""

    def __init__(self, program: str, folder: Path, policy: str, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self._program = program
        self._folder = folder
        self._environ = {
            "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "SPU_ASSIGNER_DEFAULT_POLICY": policy,
        }
        self._first = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.make_topics()

    def make_topics(self) -> None:
        command = [self._program, "topics", "create"]
        environ = {**os.environ, **self._environ}
        subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)

    def command(self, checkpoint: str) -> list[str]:
        return [self._program, "run", "--checkpoint", checkpoint]

    def begin(self) -> None:
        """What comes before the first create: SPUs."""
        spus = Client(self.broker.bootstrap_servers, "spu-events", "ring-events")
        spus.send(messages(joins()))
        spus.take(CLUSTERS * SPUS)
        spus.close()

    def client(self) -> Client:
        return Client(self.broker.bootstrap_servers, "topic-events", "replica-map")

    @contextmanager
    def run(self) -> Iterator[None]:
        command = self.command(str(self._folder / "checkpoint"))
        with running(command, self._folder / "log", self._environ) as self.process:
            yield

    def creates(self, count: int) -> list[Message]:
        """The next ones."""
        self._first += count
        return messages(creates(self._first - count, count))

    def processes(self) -> dict[int, str]:
        assert self.process is not None
        return processes_of(self.process, self.broker)

    def spent(self, run: Callable[[], object]) -> Spent:
        return measured(self.processes, run)

    def kill(self) -> None:
        """End it, and all that it has started, as a machine that loses its power would."""
        assert self.process is not None
        for pid in session(self.process):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


class SparkAlone(Job):
    """A query of Spark that sends on what comes."""

    def make_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        topics = [
            NewTopic(name, INPUT_PARTITIONS, 1) for name in (f"{ALONE}events", f"{ALONE}maps")
        ]
        for made in admin.create_topics(topics).values():
            made.result()

    def command(self, checkpoint: str) -> list[str]:
        script = str(Path(__file__).parents[1] / "neighbours" / "spark_echo.py")
        return [sys.executable, script, self.broker.bootstrap_servers, ALONE, checkpoint]

    def begin(self) -> None:
        """It knows no SPUs."""

    def client(self) -> Client:
        return Client(self.broker.bootstrap_servers, f"{ALONE}events", f"{ALONE}maps")


def messages(events: Sequence[Event]) -> list[Message]:
    return [(event.cluster_id, encode_event(event)) for event in events]


def cores(spent: Spent) -> dict[str, float]:
    """How many cores a job and its broker kept busy."""
    roles = _roles(spent)
    broker = roles.pop(BROKER, 0.0)
    return {
        "job_cores": round(roles.total() / spent.seconds, 3),
        "broker_cores": round(broker / spent.seconds, 3),
    }


def _roles(spent: Spent) -> Counter[str]:
    roles = Counter[str]()
    for (role, _), seconds in spent.cpu.items():
        roles[role] += seconds
    return roles


def lone(job: Job, client: Client, minutes: float) -> dict[str, Any]:
    """One after the other, for some minutes; the last one counts."""
    times: list[float] = []
    found: dict[str, Any] = {}
    for minute in range(max(1, round(minutes))):
        times.clear()
        end = time.monotonic() + min(60.0, 60.0 * minutes)

        def asked(end: float = end) -> None:
            while time.monotonic() < end:
                times.extend(client.ask(key, value) for key, value in job.creates(1))

        spent = job.spent(asked)
        roles = _roles(spent)
        broker = roles.pop(BROKER, 0.0)
        found = {
            "latency_ms": percentiles(times),
            "job_cpu_ms": round(1000 * roles.total() / len(times), 1),
            "jvm_cpu_ms": round(1000 * roles["jvm"] / len(times), 1),
            "broker_cpu_ms": round(1000 * broker / len(times), 1),
        }
        say(f"minute {minute + 1}: {found}")
    return found


def backlog(job: Job, client: Client) -> dict[str, Any]:
    """Many at once."""
    rates, cpu = [], []
    for _ in range(BACKLOGS):
        waiting = job.creates(BACKLOG)

        def answered(waiting: list[Message] = waiting) -> None:
            client.send(waiting)
            client.take(len(waiting))

        spent = job.spent(answered)
        roles = _roles(spent)
        del roles[BROKER]
        rates.append(BACKLOG / spent.seconds)
        cpu.append(roles.total() * 100_000 / BACKLOG)
    return {"creates_per_s": spread(rates), "cpu_s_per_100k": spread(cpu)}


def paused(job: Job, client: Client) -> dict[str, float]:
    """With a pause between, as a person or a program that does other things asks."""
    times = []
    for key, value in job.creates(PAUSED):
        times.append(client.ask(key, value))
        time.sleep(PAUSE_SECONDS)
    return percentiles(times)


def steady(job: Job, client: Client) -> dict[str, float]:
    """Evenly spread creates."""
    backlog = job.creates(RATE * STEADY_SECONDS)

    def sent() -> None:
        begun = time.monotonic()
        for number, (key, value) in enumerate(backlog):
            client.producer.produce(client.source, key=key, value=value)
            client.producer.poll(0)
            time.sleep(max(0.0, begun + (number + 1) / RATE - time.monotonic()))
        client.producer.flush()
        client.take(len(backlog))

    return cores(job.spent(sent))


def idle(job: Job) -> dict[str, float]:
    """Nobody asks for anything, and nobody reads."""
    return cores(job.spent(lambda: time.sleep(IDLE_SECONDS)))


def after_idle(job: Job, client: Client) -> dict[str, float]:
    """The first create after a minute without one."""
    times = []
    for key, value in job.creates(IDLE_TIMES):
        time.sleep(IDLE_SECONDS)
        times.append(client.ask(key, value))
    return spread(times)


def memory_mib(job: Job) -> int:
    """Of all processes of the job, of shared pages each its part."""
    assert job.process is not None
    return round(sum(map(proportional_size, session(job.process))) / MIB)


def restart(job: Job, client: Client) -> float:
    """Seconds from a start after a kill to the answer of a create that waits."""
    [(key, value)] = job.creates(1)
    client.producer.produce(client.source, key=key, value=value)
    client.producer.flush()
    begun = time.monotonic()
    with job.run():
        client.take(1)
        seconds = time.monotonic() - begun
        job.kill()
    return seconds


def measure(program: str, policy: str, minutes: float, kind: type[Job] = Job) -> dict[str, Any]:
    """All of it, of one program."""
    found: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="spu-assigner-cost-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        job = kind(program, Path(folder), policy, broker)
        with job.run():
            job.begin()
            client = job.client()
            found["lone"] = lone(job, client, minutes)
            found["backlog"] = backlog(job, client)
            say(f"backlog: {found['backlog']}")
            found["paused_ms"] = paused(job, client)
            say(f"with a pause of {PAUSE_SECONDS} s: {found['paused_ms']}")
            found["steady"] = steady(job, client)
            say(f"{RATE} creates/s: {found['steady']}")
            found["after_idle_ms"] = after_idle(job, client)
            say(f"first after {IDLE_SECONDS} s: {found['after_idle_ms']}")
            client.close()
            found["idle"] = idle(job)
            found["memory_mib"] = memory_mib(job)
            say(f"idle: {found['idle']}, {found['memory_mib']} MiB")
            client = job.client()
            client.take(job._first)
            job.kill()
        found["restart_s"] = spread([restart(job, client) for _ in range(RESTARTS)])
        say(f"restart: {found['restart_s']}")
        client.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--policy", default="balanced")
    parser.add_argument("--earlier", metavar="PROGRAM")
    given = parser.parse_args()
    here = str(Path(sys.executable).with_name("spu-assigner"))
    figures = {"this": measure(here, given.policy, given.minutes)}
    say("Spark alone")
    figures["spark_alone"] = measure(here, given.policy, given.minutes, SparkAlone)
    if given.earlier is not None:
        say(given.earlier)
        figures["earlier"] = measure(given.earlier, given.policy, given.minutes)
    if given.write:
        sizes = {**SIZES, "policy": given.policy, "minutes": given.minutes}
        if given.earlier is not None:
            sizes["earlier"] = commit_of(Path(given.earlier).parent) or None
        keep("cost", sizes=sizes, figures=figures, show=False)


if __name__ == "__main__":
    main()
