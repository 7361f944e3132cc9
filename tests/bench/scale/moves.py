"""How `apply --moves` keeps its throttle, on four real brokers with 2 GB of data.

    python tests/bench/scale/moves.py [--values 2560] [--write]

Broker 3 of four is replaced by broker 4, while an idempotent producer writes numbers and a consumer
reads them: once by `apply --moves`, once by Kafka's own tool, under the same throttle. Each half
second the size of what broker 4 holds is read. Held against the rate are its bytes ÷ seconds, from
the first byte to the last, and the most of any 11 seconds, over which Kafka's quota is an average.

After each: every list is as mapped, no throttle is set, all checksums are those of before, the
numbers are whole and in order, and Kafka's `--list` and `--verify` agree.
It ends with an error if not. With --write the figures go to results/moves.json.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.clusters.moves.reassigning import MovesError
from spu_assigner.stream.kafka.log_dirs import Partition
from support.bench.figures import keep, parser_of, say
from support.job.kafka_operator import Lists, Operator
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.moving import Mover
from support.placers.kafka_reassign import run_tool

MB: Final = 1_000_000
RATE: Final = 20 * MB  # of `work`: it binds well below what two cores can copy
TOPICS: Final = 4
BEFORE: Final[Lists] = [[1, 3], [3, 2], [2, 3], [3, 1], [1, 3], [3, 2]]
AFTER: Final[Lists] = [[4 if broker == 3 else broker for broker in row] for row in BEFORE]
LIVE: Final = "live"  # the topic that is written all the while
WINDOW_SECONDS: Final = 11  # of Kafka's quota: 11 samples of a second
WRITES_S: Final = 200
STEPS: Final = {"apply": 1, "tool": 4}  # of a person
VALUE_SIZE: Final = 16 * 1024  # of `work`: what a Java producer takes by default


@contextmanager
def traffic(operator: Operator, partitions: int) -> Iterator[Counter[int]]:
    """Numbers are written by an idempotent producer and read by a consumer while the block runs.
    Gives how many were written to each partition; at the end all must be read, in order."""
    written, read, ends = Counter[int](), Counter[int](), threading.Event()
    name = operator.name(LIVE)

    def acked(error: object, message: Any) -> None:
        assert error is None, error
        written[message.partition()] += 1

    def write() -> None:
        settings = {"enable.idempotence": True, "delivery.timeout.ms": 120_000}
        producer = Producer({**operator.cluster.client, **settings})
        for number in count():
            if ends.wait(1 / WRITES_S):
                break
            value, partition = divmod(number, partitions)
            producer.produce(name, str(value).encode(), partition=partition, callback=acked)
            producer.poll(0)
        assert producer.flush(120) == 0

    def consume() -> None:
        settings = {"group.id": "bench", "enable.auto.commit": False}
        consumer = Consumer({**operator.cluster.client, **settings})
        places = [TopicPartition(name, number, OFFSET_BEGINNING) for number in range(partitions)]
        consumer.assign(places)
        while not (writing.done() and read == written):
            messages = consumer.consume(500, timeout=60 if writing.done() else 0.5)
            assert messages or not writing.done(), f"{read} of {written} read"
            for message in messages:
                if not message.error():  # Else the client tries again.
                    partition = message.partition() or 0
                    assert int(message.value() or b"") == read[partition]
                    read[partition] += 1
        consumer.close()

    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(write)
        reading = pool.submit(consume)
        try:
            yield written
        finally:
            ends.set()
        writing.result()
        reading.result()


class Watch:
    """What Kafka has under way, and how much broker 4 or 3 holds, over time."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._ends = threading.Event()
        self.begun: Counter[Partition] = Counter()  # how often a partition was seen to be begun
        self.at_once = 0
        self.sizes: list[tuple[float, int]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()

    def _watch(self) -> None:
        before: set[Partition] = set()
        with self._bench.mover.kafka() as kafka:
            while not self._ends.wait(0.2):
                try:
                    now = set(kafka.ongoing())
                    self.begun.update(now - before)
                    self.at_once = max(self.at_once, len(now))
                    before = now
                    if not self.sizes or time.monotonic() > self.sizes[-1][0] + 0.5:
                        sizes = kafka.sizes([4])
                        held = sum(sizes.get(at, {}).get(4, 0) for at in self._bench.partitions)
                        self.sizes.append((time.monotonic(), held))
                except MovesError:  # A broker or the controller is away.
                    continue

    def most(self) -> float:
        """Bytes a second: the most of any 11 seconds or more that were read."""
        return max(
            (after - before) / (to - since)
            for number, (since, before) in enumerate(self.sizes)
            for to, after in self.sizes[number:]
            if WINDOW_SECONDS <= to - since < WINDOW_SECONDS + 1
        )

    def speed(self) -> tuple[int, float]:
        """Bytes that broker 4 received, and seconds from the first to the last of them."""
        total = self.sizes[-1][1]
        first = max(at for at, held in self.sizes if held == 0)
        last = min(at for at, held in self.sizes if held >= 0.995 * total)
        return total, last - first


class Bench:
    """Brokers, data, maps; and what is to be so after each part."""

    def __init__(self, operator: Operator, folder: Path, values: int) -> None:
        self.operator = operator
        self.mover = Mover(operator, folder)
        self.folder = folder
        self.topics = [f"t{number}" for number in range(TOPICS)]
        self.partitions = [
            (operator.name(topic), number) for topic in self.topics for number in range(len(BEFORE))
        ]
        for topic in [*self.topics, LIVE]:
            operator.make(topic, BEFORE)
        begun = time.monotonic()
        for topic in self.topics:
            self.mover.fill(topic, len(BEFORE), values, value_size=VALUE_SIZE)
        self.bytes_moved = values * VALUE_SIZE * len(self.partitions)
        say(f"{2 * self.bytes_moved / MB:,.0f} MB written in {time.monotonic() - begun:.0f} s")
        self._checksums = self._sums()

    def _sums(self) -> list[list[str]]:
        with ThreadPoolExecutor(TOPICS) as pool:
            return list(
                pool.map(lambda topic: self.mover.checksums(topic, len(BEFORE)), self.topics)
            )

    def map(self, lists: Lists) -> Path:
        """From now on the lists are to be these; a file of them for Kafka's tool."""
        maps = dict.fromkeys([*self.topics, LIVE], lists)
        self.mover.map(maps)
        moves = [
            {"topic": self.operator.name(topic), "partition": number, "replicas": row}
            for topic in maps
            for number, row in enumerate(lists)
        ]
        file = self.folder / "moves.json"
        file.write_text(json.dumps({"version": 1, "partitions": moves}), "utf-8")
        return file

    def tool(self, *options: object) -> str:
        return run_tool(self.operator.cluster.bootstrap_servers, *options)

    def apply(self, *options: object) -> None:
        status, lines, errors = self.mover.move(*options)
        say("\n".join(lines))
        assert status == 0, errors

    def require_whole(self, lists: Lists, file: Path) -> None:
        """All is as mapped, nothing else was changed, nothing is left behind."""
        for topic in [*self.topics, LIVE]:
            self.operator.until(topic, lists)
        left = self.mover.throttles(*self.topics, LIVE)
        listing = self.tool("--list")
        output = self.tool("--verify", "--preserve-throttles", "--reassignment-json-file", file)
        count = len(lists) * (TOPICS + 1)
        if left or "No partition reassignments found." not in listing:
            raise SystemExit(f"left behind: {left}; {listing}")
        if output.count("is completed") != count:
            raise SystemExit(f"Kafka does not verify {count} moves: {output}")
        if self._sums() != self._checksums:
            raise SystemExit("records were lost or changed")


def work(bench: Bench) -> dict[str, Any]:
    """The same moves by the command and by Kafka's tool, each with its throttle."""
    found: dict[str, Any] = {}
    for who in ("apply", "tool"):
        file = bench.map(AFTER)
        watch = Watch(bench)
        begun = time.monotonic()
        with watch.watching():
            if who == "apply":
                bench.apply("--throttle", RATE)
            else:
                with_tool(bench, file)
            seconds = time.monotonic() - begun
            time.sleep(1.0)
        bench.require_whole(AFTER, file)
        received, copying = watch.speed()
        found[who] = {
            "steps_of_a_person": STEPS[who],
            "seconds": round(seconds, 1),
            "bytes": received,
            "bytes_per_byte_to_move": round(received / bench.bytes_moved, 3),
            "rate_to_throttle": round(received / copying / RATE, 3),
            "most_to_throttle": round(watch.most() / RATE, 3),
            "moves_at_once": watch.at_once,
            "begun_twice": sum(count > 1 for count in watch.begun.values()),
        }
        say(f"  {who}: {found[who]}")
        if who == "apply":
            bench.map(BEFORE)
            bench.apply()
    ours, tool = found["apply"], found["tool"]
    return {
        **found,
        "seconds_to_kafkas_tool": round(ours["seconds"] / tool["seconds"], 2),
        "bytes_to_kafkas_tool": round(ours["bytes"] / tool["bytes"], 3),
    }


def with_tool(bench: Bench, file: Path) -> None:
    """The file of lists, `--execute`, `--verify` until all is done, which removes the throttle.
    Preferred leaders are elected by another tool, a person's fourth step, which is not run here."""
    bench.tool("--execute", "--throttle", RATE, "--reassignment-json-file", file)
    while "still in progress" in bench.tool("--verify", "--reassignment-json-file", file):
        time.sleep(1.0)


def main() -> None:
    """Set up, measure, keep."""
    parser = parser_of(__doc__)
    parser.add_argument("--values", type=int, default=2560, help="of 16 KiB in a partition")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        KafkaCluster(["a", "b", "c", "d"]) as cluster,
        AdminClient(cluster.client) as admin,
    ):
        bench = Bench(Operator(cluster, "job.", admin), Path(name), given.values)
        with traffic(bench.operator, len(BEFORE)) as written:
            figures = work(bench)
    figures["numbers_in_order"] = written.total()
    say(json.dumps(figures))
    if given.write:
        sizes = {"brokers": 4, "rate": RATE, "mb": 2 * bench.bytes_moved // MB}
        keep("moves", sizes=sizes, figures=figures, show=False)


if __name__ == "__main__":
    main()
