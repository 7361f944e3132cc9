"""A random life of several clusters as messages, some of which are no events."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from spu_assigner.core import Event
from spu_assigner.schemas.messages.codec import encode_event
from support.events.builders import Events
from support.events.random_lives import life_of
from support.job.streams import SPU_EVENTS, TOPIC_EVENTS, Outgoing

CLUSTERS = 10
POISONS = 0.04  # share of messages that are no events


class Story:
    """Events of several clusters in a random order, some twice, and between them what is none."""

    def __init__(
        self,
        seed: int,
        *,
        clusters: int = CLUSTERS,
        partitions: int = 4,  # of the input topics
    ) -> None:
        self._random = random.Random(seed)
        self._lives = [_lives(f"c{number}", 1_000 * seed + number) for number in range(clusters)]
        self._partitions = partitions
        self._poisons = 0

    def beginning(self) -> list[Outgoing]:
        """Every cluster's first SPU."""
        return [self._sending(number) for number in range(len(self._lives))]

    def part(self, size: int) -> list[Outgoing]:
        return [
            self._poison()
            if self._random.random() < POISONS
            else self._sending(self._random.randrange(len(self._lives)))
            for _ in range(size)
        ]

    def _sending(self, number: int) -> Outgoing:
        # One in three clusters has producers that choose partitions by other rules than the key.
        partition = self._random.randrange(self._partitions) if number % 3 == 2 else None
        return Outgoing.of_event(next(self._lives[number]), partition)

    def _poison(self) -> Outgoing:
        create = Events("c0").create("poisoned")
        key, value = create.cluster_id.encode(), encode_event(create)
        self._poisons += 1
        nobody = f"nobody-{self._poisons}".encode()
        found: list[tuple[str, bytes | None, bytes | None]] = [
            (TOPIC_EVENTS, key, b"\xff" + value),  # undecodable
            (TOPIC_EVENTS, nobody, value),  # another key
            (TOPIC_EVENTS, None, value),
            (SPU_EVENTS, key, value),  # a wrong type
            (SPU_EVENTS, nobody, None),
        ]
        topic, key_sent, value_sent = self._random.choice(found)
        return Outgoing(topic=topic, key=key_sent, value=value_sent)


def _lives(cluster_id: str, first: int) -> Iterator[Event]:
    """One life after the other, of the same cluster."""
    for seed in count(first, 100):
        for event in life_of(seed).events:
            yield replace(event, cluster_id=cluster_id, event_id=f"{seed}-{event.event_id}")
