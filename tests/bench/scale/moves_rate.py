"""What Kafka copies under a throttle, and what governs that, on four real brokers.

    python tests/bench/scale/moves_rate.py --part defaults [--write]

Broker 4 receives a second replica of each partition, from brokers 1 to 3, all at once, under the
throttle that `apply --moves` sets. Ten times a second two counters of it are read: the bytes that
its process has received, and those in its logs. Kafka's quota counts the first: a fetch ends at
`replica.fetch.max.bytes`, within a batch, and the part of a batch is thrown away and fetched again.

Held against the rate are both between 12 s after the first byte, when the 11 s of Kafka's quota are
full, and 93 % of all bytes, before the first partitions end; and the most that was received in any
11 s. With --write the figures of this part go to results/moves_rate.json, beside those of the
others.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.moves.throttle import wave_values
from support.bench.figures import RESULTS, keep, say
from support.job.kafka_operator import Operator
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.moving import Mover

MB: Final = 1_000_000
WINDOW_SECONDS: Final = 11  # of Kafka's quota: 11 samples of a second
FULL_SECONDS: Final = 12.0  # from the first byte until Kafka's window is full
ENDS_AT: Final = 0.93  # of all bytes
QUIET_SECONDS: Final = 12.0  # between runs: Kafka's window is empty
WRITES_S: Final = 20  # of records that are not throttled


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What is copied at once."""

    batch_kib: int
    partitions: int
    rate: int = 10 * MB
    seconds: int = 30  # that all of it takes at the rate
    is_live: bool = False  # the same brokers also copy what is not throttled, all the while

    @property
    def size(self) -> int:
        return self.rate * self.seconds


SETTINGS: Final[dict[str, dict[str, str]]] = {  # of the brokers
    "defaults": {},
    "low": {},
    "backoff": {"replica.fetch.backoff.ms": "100"},
    "fetch": {"replica.fetch.max.bytes": str(8 << 20)},
}
COPIES: Final = {
    "defaults": (
        Copy(batch_kib=16, partitions=1),
        Copy(batch_kib=16, partitions=5),
        Copy(batch_kib=16, partitions=5, is_live=True),
        Copy(batch_kib=16, partitions=30, seconds=40),
        Copy(batch_kib=256, partitions=5),
    ),
    "low": (
        Copy(batch_kib=16, partitions=1, rate=MB, seconds=40),
        Copy(batch_kib=16, partitions=5, rate=MB, seconds=60),
        Copy(batch_kib=16, partitions=30, rate=MB, seconds=150),
    ),
    "backoff": (
        Copy(batch_kib=16, partitions=1),
        Copy(batch_kib=256, partitions=5),
    ),
    "fetch": (Copy(batch_kib=256, partitions=5),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What broker 4 has received and kept since the start."""

    at: float
    received: int
    kept: int


class Bench:
    """Brokers, and what is copied between them."""

    def __init__(self, operator: Operator, mover: Mover) -> None:
        self._operator = operator
        self._mover = mover
        cluster = operator.cluster
        self._logs = cluster.log_path(4).parent / "data"
        self._io = Path(f"/proc/{cluster.pid(4)}/io")

    def rates(self, number: int, copy: Copy) -> dict[str, float]:
        """Bytes received and kept, of the rate."""
        name = self._operator.name(f"t{number}")
        before = [[1 + each % 3] for each in range(copy.partitions)]
        self._operator.make(f"t{number}", before)
        self._fill(name, copy)
        moves = [
            MovedPartition(
                topic=name,
                topic_id="",
                partition=partition,
                before=(leader,),
                after=(leader, 4),
                size_bytes=copy.size // copy.partitions,
            )
            for partition, [leader] in enumerate(before)
        ]
        time.sleep(QUIET_SECONDS)
        values = wave_values(moves, copy.rate)
        with self._mover.kafka() as kafka, self._live() if copy.is_live else nullcontext():
            if kafka.change(values):
                raise SystemExit("Kafka refuses the throttle")
            kafka.reassign({(name, each.partition): each.after for each in moves})
            samples = [self._sample(name)]
            while kafka.ongoing():
                for _ in range(10):
                    time.sleep(0.1)
                    samples.append(self._sample(name))
            kafka.change(dict.fromkeys(values))
        return steady(samples, rate=copy.rate)

    def _fill(self, name: str, copy: Copy) -> None:
        """Batches of one record each, as large as a producer makes them."""
        settings = {"acks": "1", "batch.num.messages": 1, "message.max.bytes": 2 * MB}
        producer = Producer({**self._operator.cluster.client, **settings})
        value = os.urandom(copy.batch_kib << 10)
        for number in range(copy.size // len(value)):
            producer.produce(name, value, partition=number % copy.partitions)
            while len(producer) > 1_000:
                producer.poll(0.1)
        if producer.flush(120):
            raise SystemExit("records were not acknowledged")

    @contextmanager
    def _live(self) -> Iterator[None]:
        """Inside, broker 4 also follows partitions that are written to and not throttled."""
        self._operator.make("live", [[1, 4], [2, 4], [3, 4]])
        ends = threading.Event()

        def write() -> None:
            producer, number = Producer(self._operator.cluster.client), 0
            while not ends.wait(1 / WRITES_S):
                producer.produce(self._operator.name("live"), b"live", partition=number % 3)
                producer.poll(0)
                number += 1
            producer.flush(60)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def _sample(self, name: str) -> Sample:
        received = int(self._io.read_text("utf-8").split()[1])  # rchar: of sockets and files
        kept = sum(each.stat().st_size for each in self._logs.glob(f"{name}-*/*.log"))
        return Sample(at=time.monotonic(), received=received, kept=kept)


def steady(samples: list[Sample], *, rate: int) -> dict[str, float]:
    """Bytes ÷ seconds ÷ rate between two samples, and the most of any 11 seconds."""
    first = max(each.at for each in samples if not each.kept)
    total = samples[-1].kept
    begin = min((each for each in samples if each.at >= first + FULL_SECONDS), key=_time)
    end = min((each for each in samples if each.kept >= ENDS_AT * total), key=_time)
    seconds = end.at - begin.at
    return {
        "received_to_throttle": round((end.received - begin.received) / seconds / rate, 3),
        "kept_to_throttle": round((end.kept - begin.kept) / seconds / rate, 3),
        "most_to_throttle": round(most_received(samples) / rate, 3),
        "steady_seconds": round(seconds, 1),
    }


def most_received(samples: list[Sample]) -> float:
    """Bytes a second: the most of any 11 seconds."""
    return max(
        (last.received - first.received) / (last.at - first.at)
        for number, first in enumerate(samples)
        for last in samples[number:]
        if WINDOW_SECONDS <= last.at - first.at < WINDOW_SECONDS + 0.5
    )


def _time(sample: Sample) -> float:
    return sample.at


def main() -> None:
    """Copy, measure, keep."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=[*COPIES], required=True)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    found: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaCluster(["a", "b", "c", "d"], settings=SETTINGS[given.part]) as cluster,
        AdminClient(cluster.client) as admin,
    ):
        operator = Operator(cluster, "job.", admin)
        bench = Bench(operator, Mover(operator, Path(folder)))
        for number, copy in enumerate(COPIES[given.part]):
            what = {
                "batch_kib": copy.batch_kib,
                "partitions": copy.partitions,
                "rate": copy.rate,
                "is_live": copy.is_live,
            }
            found.append(what | bench.rates(number, copy))
            say(f"  {given.part}: {found[-1]}")
    if given.write:
        stored = RESULTS / "moves_rate.json"
        others = json.loads(stored.read_text("utf-8"))["figures"] if stored.exists() else {}
        figures = {name: found if name == given.part else others.get(name) for name in COPIES}
        sizes = {"brokers": 4, "settings": SETTINGS}
        keep(
            "moves_rate",
            sizes=sizes,
            figures={name: each for name, each in figures.items() if each},
            show=False,
        )


if __name__ == "__main__":
    main()
