"""Which answers are still to come for the events that were sent, and what those that came say."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from spu_assigner.core.base.events import (
    Event,
    LeaveMode,
    SpuJoined,
    SpuLeft,
    TopicDelete,
    TopicRelease,
)
from spu_assigner.core.base.records import ReplicaMap, RingChange, RingEvent, Status, TopicStatus
from spu_assigner.schemas.errors import EncodeError
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.kafka.client import Reader, Received, Sender, SentMessage
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.topics import DEAD_LETTER, REPLICA_MAP, RING_EVENTS, TOPIC_STATUS

ANSWER_TOPICS: Final = (RING_EVENTS, REPLICA_MAP, TOPIC_STATUS, DEAD_LETTER)
_EFFECTS: Final = frozenset({RingChange.SATURATED, RingChange.RESTORED})  # beside an answer


class Awaited:
    """Events by id until each is answered: by a status, a ring event, or a dead letter.

    Everything else that an event brings (its map, SPUs that it saturated) is in the same
    transaction, whose end reaches one partition before another: what was written is read too.
    Where something waits for SPUs or slots, a create or a leave's short lists, it is awaited.

    Args:
        awaits_room: False: what waits for SPUs or slots is answered.
    """

    def __init__(self, *, awaits_room: bool = True) -> None:
        self.accepted: dict[str, str] = {}  # by event id, what the answer says
        self.rejected: dict[str, str] = {}  # by event id, why
        self._awaits_room = awaits_room
        self._events: set[str] = set()
        self._open: dict[str, None] = {}  # in the order of sending
        self._places: dict[tuple[str, int, int], str] = {}  # where each event was written
        self._forgotten: set[str] = set()  # topics that are to be deleted or released
        self._waiting: dict[str, set[str]] = {}  # by event id: the topics that wait for its sake
        self._decommissions: dict[tuple[str, int], str] = {}  # the event, by cluster and SPU

    @property
    def unanswered(self) -> list[str]:
        """The event ids that nothing was heard of, in the order of sending."""
        return list(self._open)

    @property
    def waiting(self) -> list[str]:
        """The topics, with their clusters, that still wait for SPUs or slots."""
        return sorted({topic for topics in self._waiting.values() for topic in topics})

    @property
    def drained(self) -> dict[str, list[int]]:
        """By cluster: the SPUs that replica maps no longer use, by a decommission that was sent.

        The assignment alone is known here: a storage node keeps its replicas until they are moved.
        """
        found: dict[str, list[int]] = {}
        for (cluster_id, spu_id), event_id in sorted(self._decommissions.items()):
            if event_id not in {*self._open, *self._waiting, *self.rejected}:
                found.setdefault(cluster_id, []).append(spu_id)
        return found

    def expect(self, event: Event) -> None:
        """Await the answer to an event that is going to be sent."""
        self.expect_id(event.event_id)
        match event:
            case TopicDelete() | TopicRelease():
                self._forgotten.add(f"{event.cluster_id}/{event.topic}")
            case SpuLeft(mode=LeaveMode.DECOMMISSION):
                self._decommissions[event.cluster_id, event.spu_id] = event.event_id
            case SpuJoined():  # It is back: the decommission has ended.
                self._decommissions.pop((event.cluster_id, event.spu_id), None)
            case _:
                pass

    def expect_id(self, event_id: str) -> None:
        """Await something to be heard of what is going to be sent under this name."""
        self._events.add(event_id)
        self._open[event_id] = None

    def sent(self, sent: SentMessage) -> None:
        """Take note where it went, or that it did not."""
        if sent.error is not None:
            self.close(sent.event_id or "", f"the event was not sent: {sent.error}")
        else:
            self._places[sent.topic, sent.partition, sent.offset] = sent.event_id or ""

    def take(self, received: Received) -> bool:
        """Whether a message belongs to what was sent; if it answers an event, that is closed."""
        answer = received.answer
        match answer:
            case DeadLetter():
                place = (answer.source_topic, answer.source_partition, answer.source_offset)
                said = f"the job does not understand the event ({answer.code})"
                self.close(
                    self._places.get(place, ""), f"{said}; a job of this release does: upgrade it"
                )
                return place in self._places
            case TopicStatus():
                self._note_waiting(answer)
                self._settle(answer, is_no=answer.status is Status.REJECTED)
                return answer.cause in self._events
            case RingEvent():
                if answer.change not in _EFFECTS:
                    self._settle(answer, is_no=answer.change is RingChange.IGNORED)
                return answer.cause in self._events
            case ReplicaMap():
                return answer.cause in self._events
            case _:
                return received.topic == REPLICA_MAP and received.key in self._forgotten

    def wait(
        self,
        reader: Reader,
        *,
        seconds: float,
        report: Callable[[Received], None] = lambda _: None,
        check: Callable[[], None] = lambda: None,
    ) -> bool:
        """Read until every event is answered; whether none was waited for longer than `seconds`.

        The time starts again with each answer: a backlog of a job that works is waited for.
        `report` is called for each message that belongs to what was sent; `check` between looks,
        and may raise to end the wait.
        """
        deadline, due = time.monotonic() + seconds, len(self._open)
        while True:
            ends = not self._is_due() or time.monotonic() >= deadline
            if not self._is_due():  # What came with the last answer may say that something waits.
                reader.settle()
            for received in reader.drain() if ends else reader.poll():
                if self.take(received):
                    report(received)
            if len(self._open) < due:
                deadline, due = time.monotonic() + seconds, len(self._open)
            if ends and (not self._is_due() or time.monotonic() >= deadline):
                return not self._is_due()
            check()

    def _is_due(self) -> bool:
        return bool(self._open or self._waiting)

    def _note_waiting(self, answer: TopicStatus) -> None:
        topic = f"{answer.cluster_id}/{answer.topic}"
        if answer.status is Status.VIOLATED or not self._awaits_room:
            return  # A violation is no answer to what waits.
        if answer.status is Status.WAITING and answer.cause in self._events:
            self._waiting.setdefault(answer.cause, set()).add(topic)
            return
        if answer.status is Status.REJECTED and topic in self._waiting.get(answer.cause, ()):
            # It had waited: its topic was adopted meanwhile.
            self.accepted.pop(answer.cause, None)
            self.rejected[answer.cause] = f"{answer.message} ({answer.code})"
        for cause in [answer.cause] if answer.status is Status.ASSIGNED else list(self._waiting):
            topics = self._waiting.get(cause, set())
            topics.discard(topic)
            if not topics:
                self._waiting.pop(cause, None)

    def _settle(self, answer: TopicStatus | RingEvent, *, is_no: bool) -> None:
        why = f"{answer.message} ({answer.code})" if is_no else None
        self.close(answer.cause, why, answer.message or "")

    def close(self, event_id: str, fault: str | None, message: str = "") -> None:
        """Await an event no longer: it is answered, or was not sent."""
        if event_id in self._open:
            del self._open[event_id]
            if fault is None:
                self.accepted[event_id] = message
            else:
                self.rejected[event_id] = fault


def exchange(
    connection: Connection, events: Iterable[Event], *, seconds: float, check: Callable[[], None]
) -> Awaited:
    """Send events, and gather what the job answers to each."""
    awaited = Awaited(awaits_room=False)
    # Made before anything is sent, so that it sees every answer.
    with Reader(connection, [RING_EVENTS, TOPIC_STATUS, DEAD_LETTER]) as reader:
        sender = Sender(connection, awaited.sent)
        for event in events:
            awaited.expect(event)
            try:
                sender.send(event)
            except EncodeError as reason:
                awaited.close(event.event_id, f"it fits into no event: {reason}")
        sender.flush()
        awaited.wait(reader, seconds=seconds, check=check)
    return awaited
