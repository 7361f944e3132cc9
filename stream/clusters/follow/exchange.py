"""Sends events, piece by piece, and gathers what the job answers to each.

    with EventExchange(connection, seconds=60, check=check) as exchange:
        ...  # what is read here of the job's outputs is older than the first answer seen
        exchange.run(events, progress.update)
        exchange.accepted, exchange.rejected

Rules: no more than PIECE_EVENTS + PIECE_EVENTS_OPEN events are without an answer at a time. The
time to wait starts again with each answer: a backlog of a job that works is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Self

from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, SpuJoined
from spu_assigner.core.base.records import RingChange, RingEvent, Status, TopicStatus
from spu_assigner.schemas.errors import EncodeError
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.kafka.client import Reader, Received, Sender, SentMessage
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.topics import DEAD_LETTER, RING_EVENTS, TOPIC_STATUS

PIECE_EVENTS: Final = 500  # sent together
PIECE_EVENTS_OPEN: Final = 2_000  # unanswered, and more are sent: what a batch of the job takes
OFF_BROKER: Final = (
    "an SPU that has left takes no topic: let it join again, or move the topic off its broker "
    "(`spu-assigner drain BROKER"
)
_JOINS: Final = frozenset({RingChange.JOINED, RingChange.UPDATED})


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

    def run(self, events: Sequence[Event], report: Callable[[int], None]) -> bool:
        """Send and wait; whether all were answered in time.

        Args:
            report: called with the number of answers that have come since it was called last.
        """
        for at in range(0, len(events), PIECE_EVENTS):
            for event in events[at : at + PIECE_EVENTS]:
                self._send(event)
            self._sender.flush()
            is_last = at + PIECE_EVENTS >= len(events)
            if not self._wait(0 if is_last else PIECE_EVENTS_OPEN, report):
                return False
        return True

    def _send(self, event: Event) -> None:
        self._open[event.event_id] = event
        try:
            self._sender.send(event)
        except EncodeError as reason:
            self._close(event.event_id, f"it fits into no event: {reason}")

    def _sent(self, sent: SentMessage) -> None:
        if sent.error is not None:
            self._close(sent.event_id or "", f"the event was not sent: {sent.error}")
        else:
            self._places[sent.topic, sent.partition, sent.offset] = sent.event_id or ""

    def _wait(self, open_max: int, report: Callable[[int], None]) -> bool:
        deadline = time.monotonic() + self._seconds
        while len(self._open) > open_max:
            before = len(self._open)
            for received in self._reader.poll():
                self._take(received)
            if answered := before - len(self._open):
                report(answered)
                deadline = time.monotonic() + self._seconds
            elif time.monotonic() > deadline:
                return False
            self._check()
        return True

    def _take(self, received: Received) -> None:
        match received.answer:
            case TopicStatus() as answer if answer.cause in self._open:
                is_no = answer.status is Status.REJECTED
                why = f"{answer.message} ({answer.code})" if is_no else None
                if answer.code is Code.MANUAL_UNKNOWN_SPU:
                    why = f"{why}; {OFF_BROKER} --foreign {answer.topic}`)"
                self._close(answer.cause, why, answer.message or "")
            case RingEvent() as answer if isinstance(self._open.get(answer.cause), SpuJoined):
                if answer.change in _JOINS or answer.change is RingChange.IGNORED:
                    is_no = answer.change is RingChange.IGNORED
                    why = f"{answer.message} ({answer.code})"
                    self._close(answer.cause, why if is_no else None)
            case DeadLetter() as letter:
                place = (letter.source_topic, letter.source_partition, letter.source_offset)
                if place in self._places:
                    self._close(
                        self._places[place],
                        f"the job does not understand the event ({letter.code}); a job of this "
                        "release does: upgrade it",
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
