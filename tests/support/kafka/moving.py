"""Who moves partitions on a real cluster: maps as files, checksums, what Kafka shows."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from spu_assigner.core.base.events import TopicAdopted
from spu_assigner.schemas.messages.wire import MovesRun
from spu_assigner.stream.clusters.moves.reassigning import Place, Reassigner
from spu_assigner.stream.clusters.moves.throttle import FOLLOWERS, LEADERS, RATES
from spu_assigner.stream.kafka.moves_record import latest_run
from support.events.builders import Events
from support.failpoints import dying_at
from support.job.kafka_operator import Lists, Operator, simulated

COMMAND = (sys.executable, "-m", "spu_assigner.stream.cli")
VALUE_SIZE = 256 * 1024
_T = TypeVar("_T")
SECONDS_MAX = 240.0  # until something is seen: milliseconds, or the seconds of a slow machine


class Mover:
    """The commands that move partitions, on topics that others have made.

    Args:
        folder: for files.
    """

    def __init__(self, operator: Operator, folder: Path) -> None:
        self.operator = operator
        self.file = folder / "events.jsonl"
        self._connection = operator.settings().connection()

    def map(self, lists: Mapping[str, Lists]) -> None:
        """From now on the maps are these."""
        spus = sorted({spu for rows in lists.values() for row in rows for spu in row})
        adopted = [
            TopicAdopted(
                event_id=topic,
                cluster_id="c1",
                topic=self.operator.name(topic),
                replicas=tuple(map(tuple, rows)),
            )
            for topic, rows in lists.items()
        ]
        simulated(self.file, [*Events().joins(*spus), *adopted])

    def arguments(self, *options: object) -> list[str]:
        fixed = ("apply", "--cluster", "c1", "--maps", self.file, "--foreign", "*", "--moves")
        return [str(each) for each in (*fixed, *options)]

    def move(self, *options: object) -> tuple[int, list[str], list[str]]:
        """`apply --moves`: its status and its lines."""
        done = self.operator(*self.arguments(*options))
        return done.exit_code, done.stdout.splitlines(), done.stderr.splitlines()

    def killed(self, failpoint: str, *options: object) -> None:
        """`apply --moves` in a process of its own, which dies there."""
        done = subprocess.run(
            [*COMMAND, *self.arguments(*options)],
            env={**os.environ, **self.operator.environ, **dying_at(failpoint)},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
            start_new_session=True,  # it kills its process group
        )
        assert done.returncode == -9, done.stdout + done.stderr

    @contextmanager
    def running(self, *options: object) -> Iterator[subprocess.Popen[str]]:
        """`apply --moves` in a process of its own, while it moves something."""
        process = subprocess.Popen(
            [*COMMAND, *self.arguments(*options)],
            env={**os.environ, **self.operator.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            with self.kafka() as kafka:
                until(lambda: bool(kafka.ongoing()) or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.kill()
            process.communicate()

    def kafka(self) -> Reassigner:
        return Reassigner(self._connection)

    def throttles(self, *topics: str) -> dict[Place, str]:
        """What is set on the brokers and on these topics, or all."""
        places: list[Place] = [(id_, name) for id_ in self.operator.cluster.ids for name in RATES]
        with self.kafka() as kafka:
            names = {self.operator.name(each) for each in topics} or {
                at for at, _ in kafka.shapes()
            }
            places += [(topic, name) for topic in names for name in (LEADERS, FOLLOWERS)]
            return {at: value for at, value in kafka.settings(places).items() if value is not None}

    def record(self) -> MovesRun | None:
        """What is recorded of the last run."""
        return latest_run(self._connection)

    def fill(
        self, topic: str, partitions: int, values: int, *, value_size: int = VALUE_SIZE
    ) -> None:
        """Write so many values to each partition, each a batch of its own."""
        settings = {"acks": "all", "batch.num.messages": 1}
        producer = Producer({**self.operator.cluster.client, **settings})
        for partition in range(partitions):
            for _ in range(values):
                producer.produce(
                    self.operator.name(topic), os.urandom(value_size), partition=partition
                )
                producer.poll(0)
        assert producer.flush(120) == 0

    def checksums(self, topic: str, partitions: int) -> list[str]:
        """Of all records of each partition, in their order."""
        settings = {
            **self.operator.cluster.client,
            "group.id": "checksums",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 4 * VALUE_SIZE,
        }
        found = []
        for number in range(partitions):
            digest, ended = hashlib.sha256(), False
            consumer = Consumer(settings)
            consumer.assign([TopicPartition(self.operator.name(topic), number, OFFSET_BEGINNING)])
            deadline = time.monotonic() + SECONDS_MAX
            while not ended:
                assert time.monotonic() < deadline
                for message in consumer.consume(100, timeout=0.2):
                    ended = ended or message.error() is not None
                    digest.update(b"" if message.error() else message.value() or b"")
            consumer.close()
            found.append(digest.hexdigest())
        return found

    def leaders(self, topic: str) -> list[int | None]:
        """Who leads each partition, now."""
        with self.kafka() as kafka:
            found = kafka.shapes([self.operator.name(topic)])
        return [found[at].leader for at in sorted(found)]


def use_a_group(operator: Operator, topic: str) -> None:
    """Kafka makes its topic of offsets."""
    settings = {"group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({**operator.cluster.client, **settings})
    consumer.subscribe([operator.name(topic)])
    until(lambda: consumer.poll(1.0) is not None)
    consumer.commit(asynchronous=False)
    consumer.close()


def until(look: Callable[[], _T | None]) -> _T:
    """What it gives, once that is something."""
    deadline = time.monotonic() + SECONDS_MAX
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found
