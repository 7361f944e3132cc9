"""A random life of several clusters as messages, some of which are no events."""

from __future__ import annotations

import random

from spu_assigner.core import Event, LeaveMode, OnShortage, Policy
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import EventKind, decode_event, encode_event
from support.events.builders import Events
from support.job.streams import SPU_EVENTS, TOPIC_EVENTS, Outgoing, Read

CLUSTERS = 10
REPEATABLE = 5_000  # messages that may be sent a second time; a soak sends without end
KINDS: dict[str, EventKind] = {SPU_EVENTS: "spu", TOPIC_EVENTS: "topic"}


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
        self.poison: dict[tuple[bytes | None, bytes | None], str] = {}  # key and value: the code

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
        nobody = f"nobody-{len(self.poison)}".encode()
        found: tuple[str, str, bytes | None, bytes | None] = [
            ("UNDECODABLE", TOPIC_EVENTS, key, b"\xff" + value),
            ("KEY_MISMATCH", TOPIC_EVENTS, nobody, value),
            ("KEY_MISSING", TOPIC_EVENTS, None, value),
            ("WRONG_TYPE", SPU_EVENTS, key, value),
            ("NULL_VALUE", SPU_EVENTS, nobody, None),
        ][kind]
        code, topic, key_sent, value_sent = found
        self.poison[key_sent, value_sent] = code
        return Outgoing(topic=topic, key=key_sent, value=value_sent)


def ending() -> list[list[Event]]:
    """A life in which nothing is left to chance: each part is applied before the next is sent."""
    events = Events("last")
    hot = {"policy": Policy.FLUVIO, "start_index": 0}
    return [
        [*events.joins(0, 1, 2)],
        [
            events.create("whole", 2, 3, policy=Policy.BALANCED),
            events.create("later", 1, 4, on_shortage=OnShortage.WAIT),
            *[events.create(f"hot-{number}", **hot) for number in range(9)],
        ],
        [events.leave(2, mode=LeaveMode.DECOMMISSION)],  # leaves the lists of "whole" short
        [*events.joins(7, 8, 9)],
        [events.rebalance(20)],
    ]


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


def event_of(read: Read) -> Event | None:
    """The event of an input message; None if it is none."""
    try:
        event = decode_event(read.value, kind=KINDS[read.topic])
    except DecodeError:
        return None
    return event if event.cluster_id.encode() == read.key else None
