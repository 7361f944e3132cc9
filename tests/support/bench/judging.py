"""What the load is judged by: nothing lost, nothing twice, all as the core decides it.

A `Tally` keeps of each message no more than a hash, so that millions fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Event
from spu_assigner.core.base.records import ReplicaMap, RingEvent, TopicStatus
from spu_assigner.schemas.messages.codec import encode_record

MAPS: Final = "replica-map"
STATUSES: Final = "topic-status"
RING_EVENTS: Final = "ring-events"
DEAD_LETTERS: Final = "dead-letter"
ANSWERS: Final = (MAPS, STATUSES, RING_EVENTS, DEAD_LETTERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is wrong with the answers; all zero: nothing."""

    lost: int  # messages of the input without an answer
    repeated: int  # answers that came a second time
    different: int  # keys whose answers are not the core's
    dead_letters: int
    first: str = ""  # of the keys that differ, to begin the search with

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.repeated or self.different or self.dead_letters)


class Tally:
    """Every answer that came, by output topic and key."""

    def __init__(self) -> None:
        self.answers = 0
        self.answered: set[bytes] = set()  # places in the input
        self.dead_letters = 0
        self._ids: set[bytes] = set()
        self._repeated = 0
        self._logs: dict[tuple[str, bytes], int] = {}  # a hash over all messages of the key
        self._maps: dict[bytes, int | None] = {}  # of the latest value

    def take(self, topic: str, key: bytes | None, value: bytes | None, ce_id: bytes) -> None:
        """Count one message, in the order of its partition."""
        self.answers += 1
        if ce_id in self._ids:
            self._repeated += 1
        self._ids.add(ce_id)
        self.answered.add(ce_id.rpartition(b"/")[0])
        if topic == DEAD_LETTERS:
            self.dead_letters += 1
            return
        key = key or b""
        if topic == MAPS:
            self._maps[key] = None if value is None else hash(value)
        else:
            place = (topic, key)
            self._logs[place] = hash((self._logs.get(place), value))

    def judge(self, events: Iterable[Event], *, sent: int) -> Verdict:
        """Compare with the core's answers to the events, which are in the order of applying.

        Args:
            events: each once.
            sent: how many messages went to the input topics.
        """
        assigner = Assigner()
        logs: dict[tuple[str, bytes], int] = {}
        maps: dict[bytes, int | None] = {}
        for event in events:
            for record in assigner.apply(event):
                match record:
                    case ReplicaMap():
                        key = f"{record.cluster_id}/{record.topic}".encode()
                        is_gone = record.replicas is None
                        maps[key] = None if is_gone else hash(encode_record(record))
                    case TopicStatus():
                        key = f"{record.cluster_id}/{record.topic}".encode()
                        value = encode_record(record)
                        logs[STATUSES, key] = hash((logs.get((STATUSES, key)), value))
                    case RingEvent():
                        place = (RING_EVENTS, record.cluster_id.encode())
                        logs[place] = hash((logs.get(place), encode_record(record)))
        different = [str(each) for each in _differing(self._maps, maps)]
        different += [str(each) for each in _differing(self._logs, logs)]
        return Verdict(
            lost=sent - len(self.answered),
            repeated=self._repeated,
            different=len(different),
            dead_letters=self.dead_letters,
            first=min(different, default=""),
        )


def _differing(found: dict, expected: dict) -> list[object]:  # type: ignore[type-arg]  # of either kind
    """Keys with another value, or on one side only; a tombstone may have been cleaned away."""
    keys = found.keys() | expected.keys()
    return [key for key in keys if found.get(key) != expected.get(key)]
