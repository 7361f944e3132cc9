"""What `apply` has recorded of topics, and what may be concluded from it: pure functions.

Rules: a topic is known by Kafka's id of it, never by its name alone: one that was made again by
others is another topic. Whatever is not certain is *not ours*: at worst a topic stays that could
have been deleted. Only CREATED permits a deletion, and a release revokes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from spu_assigner.schemas.messages.wire import AppliedTopic, Origin

CLOCK_SECONDS_MAX: Final = 3_600  # by which the clocks of the job's and of apply's machine differ

_IN_KAFKA: Final = (Origin.CREATED, Origin.FOUND, Origin.SEEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedRecords:
    """The records of one cluster's topics, by topic."""

    records: Mapping[str, AppliedTopic] = field(default_factory=dict)
    intents: Mapping[str, AppliedTopic] = field(default_factory=dict)

    def is_known(self, topic: str, topic_id: str | None) -> bool:
        """Whether `apply` made this topic, or has found it as mapped."""
        return self._is(topic, topic_id, (Origin.CREATED, Origin.FOUND))

    def is_made(self, topic: str, topic_id: str | None, *, released_at: int | None = None) -> bool:
        """Whether `apply` made this topic, and it was not released since."""
        if not self._is(topic, topic_id, (Origin.CREATED,)):
            return False
        since = CLOCK_SECONDS_MAX * 1000
        return released_at is None or (
            released_at > 0 and self.records[topic].recorded_at > released_at + since
        )

    def is_recorded(self, topic: str, topic_id: str | None) -> bool:
        """Whether something is recorded of this very topic."""
        return self._is(topic, topic_id, tuple(Origin))

    def gone_id(self, topic: str) -> str | None:
        """Kafka's id of a topic that was there when it was last looked; None: none is known."""
        record = self.records.get(topic)
        return record.topic_id if record is not None and record.origin in _IN_KAFKA else None

    def _is(self, topic: str, topic_id: str | None, origins: Collection[Origin]) -> bool:
        record = self.records.get(topic)
        return (
            record is not None
            and topic_id is not None
            and record.topic_id == topic_id
            and record.origin in origins
        )


def fold(records: Iterable[tuple[str, AppliedTopic | None]]) -> AppliedRecords:
    """The latest values of keys `<topic>` and `<topic>/intent`, without the cluster."""
    latest: dict[str, AppliedTopic] = {}
    for key, record in records:
        if record is None:
            latest.pop(key, None)
        else:
            latest[key] = record
    return AppliedRecords(
        records={key: each for key, each in latest.items() if each.origin is not Origin.INTENT},
        intents={each.topic: each for each in latest.values() if each.origin is Origin.INTENT},
    )


def rows_digest(rows: tuple[tuple[int, ...], ...]) -> str:
    """A fingerprint of replica lists."""
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
