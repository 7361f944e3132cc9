"""A random life of several clusters as messages, some of which are no events."""

from __future__ import annotations

import random

from spu_assigner.core import Event, LeaveMode, OnShortage, Policy
from spu_assigner.schemas.messages.codec import encode_event
from support.events.builders import Events
from support.job.streams import SPU_EVENTS, TOPIC_EVENTS, Outgoing

CLUSTERS = 10
REPEATABLE = 5_000  # messages that may be sent a second time; a soak sends without end


class Story:
    """Events of several clusters in a random order, some twice, and between them what is none."""

    def __init__(
        self,
        seed: int,
        *,
        clusters: int = CLUSTERS,
        topics: int = 12,
        partitions: int = 4,  # of the input topics
        room: int = 40,  # of an SPU
    ) -> None:
        self._random = random.Random(seed)
        self._events = [Events(f"c{number}") for number in range(clusters)]
        self._topics, self._partitions, self._room = topics, partitions, room
        self._sent: list[Outgoing] = []
        self._poisons = 0

    def beginning(self) -> list[Outgoing]:
        """Every cluster's first SPUs: some with racks, all with little room."""
        return [
            self._sending(number, event)
            for number, events in enumerate(self._events)
            for event in events.racks(
                {"a": [0, 1], "b": [2, 3]} if number % 2 else {}, capacity=self._room
            )
            or events.joins(0, 1, 2, 3, capacity=self._room)
        ]

    def part(self, count: int) -> list[Outgoing]:
        return [self._next() for _ in range(count)]

    def _next(self) -> Outgoing:
        draw = self._random
        number = draw.randrange(len(self._events))
        events, topic = self._events[number], f"t{draw.randrange(self._topics)}"
        policy = draw.choice([None, *_POLICIES])
        match draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]:
            case "create":
                event: Event = events.create(
                    topic,
                    draw.randint(1, 6),
                    draw.randint(1, 4),
                    policy=policy,
                    on_shortage=draw.choice(list(OnShortage)),
                )
            case "grow":
                event = events.grow(topic, draw.randint(2, 9))
            case "rebalance":
                event = events.rebalance(draw.randint(0, 20))
            case "delete":
                event = draw.choice([events.delete, events.delete, events.release])(topic)
            case "join":
                rack = draw.choice(["a", "b", "c"]) if number % 2 else None
                slots = draw.randint(self._room // 8, 3 * self._room // 2)
                event = events.join(draw.randrange(8), rack=rack, capacity=slots)
            case "leave":
                event = events.leave(draw.randrange(8), mode=draw.choice(list(LeaveMode)))
            case "again" if self._sent:
                return draw.choice(self._sent)
            case _:
                return self._poison(number)
        return self._sending(number, event)

    def _sending(self, number: int, event: Event) -> Outgoing:
        # One in three clusters has producers that choose partitions by other rules than the key.
        partition = self._random.randrange(self._partitions) if number % 3 == 2 else None
        self._sent.append(Outgoing.of_event(event, partition))
        if len(self._sent) > 2 * REPEATABLE:
            del self._sent[:REPEATABLE]
        return self._sent[-1]

    def _poison(self, number: int) -> Outgoing:
        kind = self._random.randrange(5)
        create = self._events[number].create("poisoned")
        key, value = create.cluster_id.encode(), encode_event(create)
        self._poisons += 1
        nobody = f"nobody-{self._poisons}".encode()
        found: tuple[str, bytes | None, bytes | None] = [
            (TOPIC_EVENTS, key, b"\xff" + value),  # undecodable
            (TOPIC_EVENTS, nobody, value),  # another key
            (TOPIC_EVENTS, None, value),
            (SPU_EVENTS, key, value),  # a wrong type
            (SPU_EVENTS, nobody, None),
        ][kind]
        topic, key_sent, value_sent = found
        return Outgoing(topic=topic, key=key_sent, value=value_sent)


_WEIGHTS = {
    "create": 10,
    "delete": 4,
    "grow": 2,
    "rebalance": 1,
    "join": 4,
    "leave": 2,
    "again": 2,
    "poison": 1,
}
_POLICIES = [Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA, Policy.BALANCED]
