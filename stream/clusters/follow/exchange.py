"""Sends events, and gathers what the job answers to each.

    with EventExchange(connection, seconds=60, check=check) as exchange:
        exchange.run(events)
        exchange.accepted, exchange.rejected

The time to wait starts again with each answer: a backlog of a job that works is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Self

from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event
from spu_assigner.core.base.records import RingChange, RingEvent, Status, TopicStatus
from spu_assigner.schemas.errors import EncodeError
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.kafka.client import Reader, Received, Sender, SentMessage
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.topics import DEAD_LETTER, RING_EVENTS, TOPIC_STATUS

OFF_BROKER: Final = (
    "an SPU that has left takes no topic: let it join again, or move the topic off its broker "
    "(`spu-assigner drain BROKER"
)
_ANSWERS: Final = frozenset({RingChange.JOINED, RingChange.UPDATED, RingChange.IGNORED})  # to joins


class EventExchange:
    """Events by id until each is answered.

    Args:
        seconds: for how long nothing may be answered.
        check: called between looks; may raise to end the wait.
    """

    def __init__(
        self, connection: Connection, *, seconds: float, check: Callable[[], None]
    ) -> None:
        self.accepted: dict[str, str] = {}  # by event id, what the answer says
        self.rejected: dict[str, str] = {}  # by event id, why
        self._open: dict[str, Event] = {}
        self._places: dict[tuple[str, int, int], str] = {}
        self._seconds = seconds
        self._check = check
        self._sender = Sender(connection, self._sent)
        # Made before anything is sent, so that it sees every answer.
        self._reader = Reader(connection, [RING_EVENTS, TOPIC_STATUS, DEAD_LETTER])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.__exit__(None, None, None)

    def run(self, events: Sequence[Event]) -> bool:
        """Send and wait; whether all were answered in time."""
        self._open = {event.event_id: event for event in events}
        for event in events:
            try:
                self._sender.send(event)
            except EncodeError as reason:
                self._close(event.event_id, f"it fits into no event: {reason}")
        self._sender.flush()
        deadline = time.monotonic() + self._seconds
        while self._open:
            before = len(self._open)
            for received in self._reader.poll():
                self._take(received)
            if len(self._open) < before:
                deadline = time.monotonic() + self._seconds
            elif time.monotonic() > deadline:
                return False
            self._check()
        return True

    def _sent(self, sent: SentMessage) -> None:
        if sent.error is not None:
            self._close(sent.event_id or "", f"the event was not sent: {sent.error}")
        else:
            self._places[sent.topic, sent.partition, sent.offset] = sent.event_id or ""

    def _take(self, received: Received) -> None:
        match received.answer:
            case TopicStatus(cause=cause) as answer if cause in self._open:
                why = f"{answer.message} ({answer.code})"
                if answer.code is Code.MANUAL_UNKNOWN_SPU:
                    why = f"{why}; {OFF_BROKER} --foreign {answer.topic}`)"
                is_no = answer.status is Status.REJECTED
                self._close(cause, why if is_no else None, answer.message or "")
            case RingEvent(cause=cause, change=change) as answer if change in _ANSWERS:
                is_no = change is RingChange.IGNORED
                self._close(cause, f"{answer.message} ({answer.code})" if is_no else None)
            case DeadLetter() as letter:
                place = (letter.source_topic, letter.source_partition, letter.source_offset)
                why = f"the job does not understand the event ({letter.code})"
                self._close(
                    self._places.get(place, ""), f"{why}; a job of this release does: upgrade it"
                )
            case _:
                pass

    def _close(self, event_id: str, fault: str | None, message: str = "") -> None:
        if self._open.pop(event_id, None) is None:
            return
        if fault is None:
            self.accepted[event_id] = message
        else:
            self.rejected[event_id] = fault
