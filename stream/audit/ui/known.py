"""What the page knows: the clusters as their outputs give them, and the last answers.

Rules:
- Of answers, ring events and dead letters only the last few are kept, so memory grows with what
  lives and not with what happens.
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
from spu_assigner.stream.audit.cluster_report import Report, cluster_report
from spu_assigner.stream.job.shard.clusters import Clusters, map_key, state_key
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, DEAD_LETTER, REPLICA_MAP

ANSWERS_MAX: Final = 50  # answers of a cluster, and ring events, that are kept
DEAD_LETTERS_MAX: Final = 500  # that are kept
RAW_SHOWN_MAX: Final = 512  # bytes of a dead letter's value
STATE_TOPICS: Final = (REPLICA_MAP, ASSIGNER_STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A record that is not part of a cluster's state, and when it was written under which key."""

    time_ms: int
    key: str
    record: TopicStatus | RingEvent | DeadLetter


@dataclass(slots=True)
class KnownCluster:
    """What is kept of a cluster besides its state."""

    version: int = 0  # rises with each change
    statuses: list[Published] = field(default_factory=list)  # the last, the oldest first
    ring_events: list[Published] = field(default_factory=list)  # likewise
    faults: dict[bytes, str] = field(default_factory=dict)  # by the key of what cannot be read
    report: Report | None = None  # of the cluster as it is


class Known:
    """Everything that was read so far. Not safe in several threads at once: `Live` has the lock."""

    def __init__(self, *, first_version: int = 0) -> None:
        self.version = first_version  # rises with each change
        self.foreign = 0  # messages under keys that are none of the job's
        self.last_ms = 0  # when the job wrote last, by the broker's clock; 0: nothing was read
        self.dead_letters: list[Published] = []  # the last, the oldest first
        self._states = Clusters()
        self._clusters: dict[str, KnownCluster] = {}

    @property
    def cluster_ids(self) -> list[str]:
        """In order; those that have anything."""
        return sorted(self._states)

    def __contains__(self, cluster_id: str) -> bool:
        return cluster_id in self._states

    def state(self, cluster_id: str) -> ClusterState:
        """The state of a known cluster; not to be changed."""
        return self._states[cluster_id]

    def cluster(self, cluster_id: str) -> KnownCluster:
        """What is known of the cluster; nothing, if no message named it."""
        return self._clusters.get(cluster_id) or KnownCluster()

    def report(self, cluster_id: str) -> Report:
        """The report of a known cluster, kept until it changes: it goes through all topics."""
        cluster = self._clusters[cluster_id]
        if cluster.report is None:
            cluster.report = cluster_report(self.state(cluster_id))
        return cluster.report

    def take(self, topic: str, message: Message) -> None:
        """Take over a committed message of a topic (without the prefix), in their order."""
        self.version += 1
        self.last_ms = max(self.last_ms, int(message.timestamp()[1]))
        if topic in STATE_TOPICS:
            self._take_state(topic, message.key() or b"", message.value())
        elif message.value() is not None:
            self._take_published(topic, message)

    def _changed(self, cluster_id: str) -> KnownCluster:
        cluster = self._clusters.setdefault(cluster_id, KnownCluster())
        cluster.version, cluster.report = self.version, None
        return cluster

    def _take_state(self, topic: str, key: bytes, value: bytes | None) -> None:
        cluster_id, slash, _ = key.partition(b"/")
        name = cluster_id.decode("ascii", "replace")
        if not slash or not is_legal_name(name):
            self.foreign += 1
            return
        faults = self._changed(name).faults
        try:
            if value is not None:
                self._states.of(name)  # Decoded from the beginning: a fault shows at its message.
            self._states.restore(map_key(key) if topic == REPLICA_MAP else state_key(key), value)
        except (AssignerError, UnicodeDecodeError) as reason:
            faults[key] = str(reason)
        else:
            faults.pop(key, None)
            if value is None:
                self._states.forget_empty([name])

    def _take_published(self, topic: str, message: Message) -> None:
        try:
            record = decode_record(message.value() or b"")
        except DecodeError:
            self.foreign += 1
            return
        count_max = ANSWERS_MAX
        if isinstance(record, DeadLetter) and topic == DEAD_LETTER:
            tail, count_max = self.dead_letters, DEAD_LETTERS_MAX
            record = replace(record, raw=None if record.raw is None else record.raw[:RAW_SHOWN_MAX])
        elif isinstance(record, TopicStatus):
            tail = self._changed(record.cluster_id).statuses
            record = replace(record, replicas=None)  # It may be large, and is not shown.
        elif isinstance(record, RingEvent):
            tail = self._changed(record.cluster_id).ring_events
        else:
            self.foreign += 1
            return
        key = (message.key() or b"").decode("utf-8", "replace")
        published = Published(time_ms=int(message.timestamp()[1]), key=key, record=record)
        # By the broker's time, in whatever order partitions are read.
        insort(tail, published, key=lambda each: each.time_ms)
        del tail[:-count_max]
