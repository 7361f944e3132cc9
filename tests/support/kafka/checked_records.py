"""Records of known content that are written all the while, and read back as they were written."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import count
from threading import Event
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

SIZE = 1_000  # bytes of a record
WRITES_S = 100
WAIT_SECONDS_MAX = 240.0  # for an acknowledgement, or the next records: a leader may be away
Place = tuple[str, int]


class CheckedRecords:
    """The records of topics: what each is follows from the seed, its partition and its number.

    The producer is idempotent: each record is there once, in order, though Kafka or a leader was
    asked again.

    Args:
        topics: how many partitions each has.
    """

    def __init__(self, client: Mapping[str, Any], topics: Mapping[str, int], seed: int) -> None:
        self._client = client
        self._places = [(topic, number) for topic, many in topics.items() for number in range(many)]
        self._seed = seed
        self._sent = Counter[Place]()
        self._refused: list[object] = []
        self.acknowledged = Counter[Place]()
        self._producer = Producer({**client, "enable.idempotence": True, "linger.ms": 5})

    def value(self, place: Place, number: int) -> bytes:
        """What a record is."""
        return random.Random(f"{self._seed}/{place}/{number}").randbytes(SIZE)

    def fill(self, each: int) -> None:
        """Write so many to each partition; back when all are acknowledged."""
        for _ in range(each):
            for place in self._places:
                self._write(place)
            self._producer.poll(0)
        self._flush()

    @contextmanager
    def written(self) -> Iterator[None]:
        """WRITES_S records a second are written to all partitions in turn while the block runs."""
        is_over = Event()

        def write() -> None:
            for number in count():
                if is_over.wait(1 / WRITES_S):
                    return
                self._write(self._places[number % len(self._places)])
                self._producer.poll(0)

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                yield
            finally:
                is_over.set()
            writing.result()
        self._flush()

    def checksums(self) -> dict[str, str]:
        """Of what each topic is to hold: all that was acknowledged, partition by partition."""
        return self._digests(
            lambda place: (self.value(place, each) for each in range(self.acknowledged[place]))
        )

    def read(self) -> dict[str, str]:
        """The same of what the topics hold."""
        found: dict[Place, list[bytes]] = {place: [] for place in self._places}
        settings = {"group.id": "checks", "enable.partition.eof": True, "enable.auto.commit": False}
        with closing(Consumer({**self._client, **settings})) as consumer:
            consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in self._places])
            left, deadline = set(self._places), time.monotonic() + WAIT_SECONDS_MAX
            while left:
                assert time.monotonic() < deadline, f"the end of {left} was not read"
                for message in consumer.consume(500, timeout=0.5):
                    place = message.topic() or "", message.partition() or 0
                    if message.error():
                        left.discard(place)
                    else:
                        found[place].append(message.value() or b"")
        assert {place: len(values) for place, values in found.items()} == self.acknowledged
        return self._digests(found.__getitem__)

    def _digests(self, values: Callable[[Place], Iterable[bytes]]) -> dict[str, str]:
        digests = {topic: hashlib.sha256() for topic, _ in self._places}
        for place in self._places:
            for value in values(place):
                digests[place[0]].update(value)
        return {topic: digest.hexdigest() for topic, digest in digests.items()}

    def _write(self, place: Place) -> None:
        topic, partition = place
        value = self.value(place, self._sent[place])
        self._producer.produce(topic, value, partition=partition, callback=self._note)
        self._sent[place] += 1

    def _note(self, error: object, message: Message) -> None:
        if error is None:
            self.acknowledged[message.topic() or "", message.partition() or 0] += 1
        else:
            self._refused.append(error)

    def _flush(self) -> None:
        assert self._producer.flush(WAIT_SECONDS_MAX) == 0
        assert self._refused == []
        assert self.acknowledged == self._sent
