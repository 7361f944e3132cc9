"""What the page knows: the clusters as their outputs give them, and the last answers.

Rules:
- Clusters are kept as bytes until somebody looks at them. Of answers, ring events and dead letters
  only the last few are kept, so memory grows with what lives and not with what happens.
- A message that cannot be read affects nothing else: what was known under its key stays, and the
  fault is reported until a good message comes for this key.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field, replace
from typing import Final

from confluent_kafka import Message
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import is_legal_name
from spu_assigner.core.base.records import RingEvent, TopicStatus
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.job.shard.clusters import Clusters, map_key, state_key
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, DEAD_LETTER, REPLICA_MAP

ANSWERS_MAX: Final = 50  # answers of a cluster, and ring events, that are kept
DEAD_LETTERS_MAX: Final = 500  # that are kept
RAW_SHOWN_MAX: Final = 512  # bytes of a dead letter's value
STATE_TOPICS: Final = (REPLICA_MAP, ASSIGNER_STATE)


class ClusterDamagedError(AssignerError):
    """What was published of a cluster cannot be read."""

    def __init__(self, *, cluster_id: str, reason: str) -> None:
        self.cluster_id = cluster_id
        super().__init__(
            f"what was published of cluster {cluster_id!r} cannot be read: {reason}; "
            "`spu-assigner verify` reports where it is"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A record that is not part of a cluster's state, and when it was written under which key."""

    time_ms: int
    key: str
    record: TopicStatus | RingEvent | DeadLetter


class Tail:
    """The newest records by the broker's time, whatever the order in which partitions are read."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._records: list[Published] = []  # the oldest first; of one moment as they came

    def add(self, record: Published) -> None:
        insort(self._records, record, key=lambda each: each.time_ms)
        del self._records[: -self._count_max]

    def newest_first(self) -> list[Published]:
        return self._records[::-1]


@dataclass(slots=True)
class _Beside:
    """What is kept of a cluster besides its state."""

    version: int = 0
    statuses: Tail = field(default_factory=lambda: Tail(ANSWERS_MAX))
    ring: Tail = field(default_factory=lambda: Tail(ANSWERS_MAX))
    faults: dict[bytes, str] = field(default_factory=dict)  # by key


class Known:
    """Everything that was read so far. Not safe in several threads at once: `Live` has the lock."""

    def __init__(self, *, first_version: int = 0) -> None:
        self.version = first_version  # rises with each change
        self.foreign = 0  # messages under keys that are none of the job's
        self.last_ms = 0  # when the job wrote last, by the broker's clock; 0: nothing was read
        self._dead_letters = Tail(DEAD_LETTERS_MAX)
        self._clusters = Clusters()
        self._beside: dict[str, _Beside] = {}

    @property
    def cluster_ids(self) -> list[str]:
        """In order; those that have anything."""
        return sorted(self._clusters)

    def __contains__(self, cluster_id: str) -> bool:
        return cluster_id in self._clusters

    def state(self, cluster_id: str) -> ClusterState:
        """A cluster's state; not to be changed.

        Raises:
            KeyError: nothing was published of it.
            ClusterDamagedError: what was published cannot be read.
        """
        try:
            return self._clusters[cluster_id]
        except AssignerError as reason:
            raise ClusterDamagedError(cluster_id=cluster_id, reason=str(reason)) from reason

    def cluster_version(self, cluster_id: str) -> int:
        """Rises with each change of the cluster."""
        return self._of(cluster_id).version

    def statuses(self, cluster_id: str) -> list[Published]:
        """Its last answers, the newest first."""
        return self._of(cluster_id).statuses.newest_first()

    def ring_events(self, cluster_id: str) -> list[Published]:
        """Its last ring events, the newest first."""
        return self._of(cluster_id).ring.newest_first()

    def dead_letters(self) -> list[Published]:
        """The last of all clusters, the newest first."""
        return self._dead_letters.newest_first()

    def faults(self, cluster_id: str) -> list[str]:
        """Messages of the cluster that could not be read, each with its key."""
        faults = self._of(cluster_id).faults
        return [f"{key.decode('utf-8', 'replace')}: {reason}" for key, reason in faults.items()]

    def take(self, topic: str, message: Message, *, is_loaded: bool) -> None:
        """Take over one message, read after all earlier ones of its partition.

        Args:
            topic: without the prefix.
            message: committed.
            is_loaded: the state was read to its end once; from then on it is kept decoded.
        """
        self.version += 1
        self.last_ms = max(self.last_ms, int(message.timestamp()[1]))
        if topic in STATE_TOPICS:
            self._take_state(topic, message, is_loaded=is_loaded)
        elif message.value() is not None:
            self._take_published(topic, message)

    def _of(self, cluster_id: str) -> _Beside:
        return self._beside.get(cluster_id) or _Beside()

    def _changed(self, cluster_id: str) -> _Beside:
        beside = self._beside.setdefault(cluster_id, _Beside())
        beside.version = self.version
        return beside

    def _take_state(self, topic: str, message: Message, *, is_loaded: bool) -> None:
        key, value = message.key() or b"", message.value()
        cluster_id, slash, _ = key.partition(b"/")
        name = cluster_id.decode("ascii", "replace")
        if not slash or not is_legal_name(name):
            self.foreign += 1
            return
        faults = self._changed(name).faults
        try:
            if is_loaded:
                self._clusters.of(name)  # What comes is not put aside any more: it would pile up.
            self._clusters.restore(map_key(key) if topic == REPLICA_MAP else state_key(key), value)
        except (AssignerError, UnicodeDecodeError) as reason:
            faults[key] = str(reason)
        else:
            faults.pop(key, None)

    def _take_published(self, topic: str, message: Message) -> None:
        try:
            record = decode_record(message.value() or b"")
        except DecodeError:
            self.foreign += 1
            return
        if isinstance(record, DeadLetter) and topic == DEAD_LETTER:
            tail = self._dead_letters
            record = replace(record, raw=None if record.raw is None else record.raw[:RAW_SHOWN_MAX])
        elif isinstance(record, TopicStatus):
            tail = self._changed(record.cluster_id).statuses
            record = replace(record, replicas=None)  # It may be large, and is not shown.
        elif isinstance(record, RingEvent):
            tail = self._changed(record.cluster_id).ring
        else:
            self.foreign += 1
            return
        key = (message.key() or b"").decode("utf-8", "replace")
        tail.add(Published(time_ms=int(message.timestamp()[1]), key=key, record=record))
