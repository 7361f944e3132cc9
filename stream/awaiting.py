"""Which answers are still to come for the events that were sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from spu_assigner.core.events import Event, TopicDelete
from spu_assigner.core.records import ReplicaMap, RingChange, RingEvent, Status, TopicStatus
from spu_assigner.schemas.wire import DeadLetter
from spu_assigner.stream.client import Reader, Received, Sent
from spu_assigner.stream.topics import DEAD_LETTER, REPLICA_MAP, RING_EVENTS, TOPIC_STATUS

ANSWER_TOPICS: Final = (RING_EVENTS, REPLICA_MAP, TOPIC_STATUS, DEAD_LETTER)


class Awaited:
    """Events by id until each is answered: by a status, a ring event, or a dead letter.

    Everything else that an event brings (its map, SPUs that it saturated) is in the same
    transaction: once the answer was read, it can be read as well.
    """

    def __init__(self) -> None:
        self._events: set[str] = set()
        self._open: dict[str, None] = {}  # in the order of sending
        self._places: dict[tuple[str, int, int], str | None] = {}
        self._deleted: set[str] = set()
        self.refused = 0

    @property
    def unanswered(self) -> list[str]:
        """The event ids that nothing was heard of, in the order of sending."""
        return list(self._open)

    def expect(self, event: Event) -> None:
        """Await the answer to an event that is going to be sent."""
        self.expect_id(event.event_id)
        if isinstance(event, TopicDelete):
            self._deleted.add(f"{event.cluster_id}/{event.topic}")

    def expect_id(self, event_id: str) -> None:
        """Await something to be heard of what is going to be sent under this name."""
        self._events.add(event_id)
        self._open[event_id] = None

    def give_up(self, event_id: str) -> None:
        """Await an event no longer: it was not sent."""
        self._open.pop(event_id, None)

    def sent(self, sent: Sent) -> None:
        """Take note where it went, or that it did not."""
        if sent.error is not None:
            self.give_up(sent.event_id or "")
        else:
            self._places[sent.topic, sent.partition, sent.offset] = sent.event_id

    def take(self, received: Received) -> bool:
        """Whether a message belongs to what was sent; if it answers an event, that is closed."""
        answer = received.answer
        match answer:
            case DeadLetter():
                place = (answer.source_topic, answer.source_partition, answer.source_offset)
                if place not in self._places:
                    return False
                self._close(self._places[place] or "", refused=True)
                return True
            case TopicStatus():
                return self._answered(answer.cause, refused=answer.status is Status.REJECTED)
            case RingEvent():
                return self._answered(answer.cause, refused=answer.change is RingChange.IGNORED)
            case ReplicaMap():
                return answer.cause in self._events
            case _:
                return received.topic == REPLICA_MAP and received.key in self._deleted

    def wait(
        self,
        reader: Reader,
        *,
        seconds: float,
        tell: Callable[[Received], None],
        check: Callable[[], None] = lambda: None,
    ) -> bool:
        """Read until every event is answered; whether all were within `seconds`.

        `tell` is called for each message that belongs to what was sent; `check` between looks, and
        may raise to end the wait.
        """
        deadline = time.monotonic() + seconds
        while self._open and time.monotonic() < deadline:
            for received in reader.poll():
                if self.take(received):
                    tell(received)
            check()
        for received in reader.drain():
            if self.take(received):
                tell(received)
        return not self._open

    def _answered(self, cause: str, *, refused: bool) -> bool:
        if cause not in self._events:
            return False
        self._close(cause, refused=refused)
        return True

    def _close(self, event_id: str, *, refused: bool) -> None:
        if event_id in self._open:
            del self._open[event_id]
            self.refused += refused
