"""The soak: a job under a steady stream of random events is killed a hundred times, its broker
twenty times; at the end `spu-assigner verify` compares every message it has written with the core.

    python tests/soak/soak.py --kills 100 --broker-kills 20 [--seed N]

Drivers die at a failpoint or at a random moment after their start; brokers by SIGKILL, every fifth
stands still for longer than a transaction may. As under a supervisor, a job that has ended by
itself is started again. Exit status: 0 when nothing was wrong, else 1. The result is kept as JSON.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka import KafkaException
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from spu_assigner.stream.local.jvm.java import ensure_java
from support.bench import figures
from support.job import short_transactions
from support.job.trial import BROKER_SETTINGS, IN_A_BATCH, JOB, Trial

PREFIX: Final = "soak."
RESULTS: Final = Path(__file__).with_name("results")
SHORT: Final = (sys.executable, short_transactions.__file__)
AHEAD: Final = 4  # batches to a failpoint: what was left is done, and a little more
PIECE: Final = 10  # events that are sent at once …
PIECES_PER_SECOND: Final = 4.0
MOMENT_SECONDS: Final = 8.0  # a random moment lies in a start or shortly after it
STOPPED_SECONDS: Final = 2.5 * short_transactions.TRANSACTION_SECONDS
STOP_EVERY: Final = 5  # one broker of so many is stopped, not killed
PATIENCE_SECONDS: Final = 240.0  # of one step
LEAVE_SECONDS: Final = 20.0  # for shard servers to see that their job is gone

RANDOM: Final = "random moment"
BROKER: Final = "broker killed"
STOP: Final = "broker stopped"
KINDS: Final = (RANDOM, *IN_A_BATCH[:2], RANDOM, *IN_A_BATCH[2:])  # of driver kills, in turn


class SoakError(Exception):
    """The run cannot go on: what must happen did not."""


class Soak:
    """One run, and what it counts."""

    def __init__(self, trial: Trial, broker: EmbeddedBroker, draw: random.Random) -> None:
        self.killed: Counter[str] = Counter()
        self.ended = 0  # jobs by themselves, with an error that says what to do
        self.recoveries: list[float] = []  # seconds from a start, or a broker's, to a new batch
        self.repeated: set[int] = set()  # batches in Kafka that the next job computed again
        self.is_over = threading.Event()
        self._trial = trial
        self._broker = broker
        self._draw = draw
        self._sender = ThreadPoolExecutor(1).submit(self._send)

    def _send(self) -> None:
        """A steady stream, from a thread of its own."""
        while not self.is_over.wait(1 / PIECES_PER_SECOND):
            self._trial.send(PIECE)

    def run(self, plan: list[str]) -> None:
        """Everything that is planned, then the end of the stream and the last look."""
        begun, judge = time.monotonic(), self._trial.judge
        for number, kind in enumerate(plan, start=1):
            if kind in (BROKER, STOP):
                self._strike_broker(kind)
            else:
                self._strike_driver(kind)
            self.killed[kind] += 1
            print(
                f"{time.monotonic() - begun:6.0f} s  {number:3} of {len(plan)}  {kind:<20} "
                f"batch {judge.batch}, {judge.counts['faults']} faults",
                flush=True,
            )
        self.is_over.set()
        self._sender.result()
        if not self._is_alive():
            self._start()
        self._until(self._trial.is_applied, "to apply all that was sent")
        self._trial.kill()
        judge.settle()

    def _strike_driver(self, kind: str) -> None:
        trial = self._trial
        if kind == RANDOM:
            if not self._is_alive():
                trial.start()
            moment = time.monotonic() + self._draw.uniform(0.0, MOMENT_SECONDS)
            self._until(lambda: time.monotonic() > moment, "to live on", is_looking=False)
            trial.kill()
        else:
            self._end()
            self._start(kind)
            self._until(self._was_killed, f"to die {kind}")
        if trial.sent_and_not_noted():
            self.repeated.add(trial.judge.batch)

    def _strike_broker(self, kind: str) -> None:
        self._end()
        self._start(command=SHORT if kind == STOP else JOB)
        time.sleep(self._draw.uniform(0.0, 2.0))
        if kind == BROKER:
            self._broker.kill()
            time.sleep(self._draw.uniform(0.0, 3.0))
            self._broker.start()
        elif self._broker.pid is not None:
            os.kill(self._broker.pid, signal.SIGSTOP)
            time.sleep(STOPPED_SECONDS)
            os.kill(self._broker.pid, signal.SIGCONT)
        self._await_new_batch("to go on with the broker")

    def _end(self) -> None:
        if self._is_alive():
            self._trial.kill()

    def _start(self, failpoint: str | None = None, command: tuple[str, ...] = JOB) -> None:
        """A new job, waited for until it has committed something new."""
        self._trial.start(failpoint, command, ahead=AHEAD)
        self._await_new_batch("to recover")

    def _await_new_batch(self, what: str) -> None:
        begun, before = time.monotonic(), self._trial.judge.batch
        self._until(lambda: self._trial.judge.batch > before or self._was_killed(), what)
        self.recoveries.append(time.monotonic() - begun)

    def _is_alive(self) -> bool:
        return self._trial.job is not None and self._trial.job.poll() is None

    def _was_killed(self) -> bool:
        job = self._trial.job
        return job is not None and job.poll() == -signal.SIGKILL

    def _until(self, is_so: Callable[[], bool], what: str, *, is_looking: bool = True) -> None:
        """Look on until it is so; a job that ends by itself is started again."""
        trial, deadline = self._trial, time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            if self._sender.done():
                self._sender.result()
            if is_looking:
                trial.judge.look()
            if not self._is_alive() and not self._was_killed():
                if "start the job again" not in trial.log_end():
                    raise SoakError(f"{what}: the job ended: {trial.log_end()}")
                self.ended += 1
                trial.start_again()
            if time.monotonic() > deadline:
                raise SoakError(f"{what}: not within {PATIENCE_SECONDS:.0f} s: {trial.log_end()}")
            time.sleep(0.1)

    def figures(self, left: dict[int, str], seconds: float) -> dict[str, Any]:
        judge, recoveries = self._trial.judge, self.recoveries or [0.0]
        return {
            **{f"{kind}": count for kind, count in sorted(self.killed.items())},
            "jobs that ended by themselves, by name": self.ended,
            "events sent": self._trial.sent,
            "events applied": judge.applied,
            "batches": judge.batch + 1,
            "batches repeated by Spark, not sent again": len(self.repeated),
            "messages checked": judge.counts["messages"],
            "duplicates": judge.counts["duplicates"] + judge.counts["second markers"],
            "gaps": judge.counts["gaps"],
            "faults": judge.counts["faults"],
            "processes left behind": len(left),
            "seconds to recover, p50": round(statistics.median(recoveries), 1),
            "seconds to recover, max": round(max(recoveries), 1),
            "seconds in all": round(seconds),
        }


def plan_of(kills: int, broker_kills: int, draw: random.Random) -> list[str]:
    """What is done in which order: a broker's end comes before the random moment of a driver's."""
    drivers = list(islice(cycle(KINDS), kills))
    brokers = [STOP if n % STOP_EVERY == STOP_EVERY - 1 else BROKER for n in range(broker_kills)]
    parts = [[kind] for kind in drivers if kind != RANDOM]
    parts += [[*([brokers.pop()] if brokers else []), RANDOM] for _ in range(drivers.count(RANDOM))]
    parts += [[kind] for kind in brokers]
    draw.shuffle(parts)
    return [kind for part in parts for kind in part]


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a job and its broker again and again.")
    parser.add_argument("--kills", type=int, default=100, help="of drivers")
    parser.add_argument("--broker-kills", type=int, default=20, help="of brokers")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args()
    draw = random.Random(given.seed)
    plan = plan_of(given.kills, given.broker_kills, draw)
    print(f"seed {given.seed}: {len(plan)} kills", flush=True)
    os.environ |= {"JAVA_HOME": str(ensure_java().home), "PYSPARK_PYTHON": sys.executable}
    begun, faults, left = time.monotonic(), list[str](), dict[int, str]()
    with (
        tempfile.TemporaryDirectory(prefix="spu-assigner-soak-") as folder,
        EmbeddedBroker(settings=BROKER_SETTINGS) as broker,
    ):
        trial = Trial(broker, PREFIX, Path(folder), given.seed)
        soak = Soak(trial, broker, draw)
        try:
            soak.run(plan)
            left = trial.left(LEAVE_SECONDS)
        except (SoakError, AssertionError, KafkaException, subprocess.SubprocessError) as reason:
            faults.append(str(reason) or repr(reason))
        finally:
            soak.is_over.set()
            trial.close()
    names = ("right", "messages", "batches", "checked", "not_checked", "finding_count", "findings")
    kept = {name: trial.judge.report.get(name) for name in names}
    figures.keep("verify", sizes={}, figures=kept, show=False, folder=RESULTS)
    sizes = {"kills": given.kills, "broker kills": given.broker_kills, "seed": given.seed}
    found = soak.figures(left, time.monotonic() - begun)
    figures.keep("soak", sizes=sizes, figures=found, folder=RESULTS)
    faults += [*trial.judge.faults, *left.values()]
    for fault in faults:
        print(f"fault: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
