"""What the page knows: the clusters as their outputs tell of them, and what was answered of late.

Rules:
- Clusters are kept as bytes until somebody looks at them. Of answers, ring events and dead letters
  only the last few are kept, so memory grows with what lives and not with what happens.
- A message that cannot be read takes nothing else along: what was known under its key stays, and
  the fault is told until a good message comes for this key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
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
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, DEAD_LETTER, REPLICA_MAP
from spu_assigner.stream.shard.clusters import Clusters, map_key, state_key

HEARD_MAX: Final = 50  # answers of a cluster, and ring events, that are kept
DEAD_LETTERS_MAX: Final = 500  # that are kept
RAW_SHOWN_MAX: Final = 512  # bytes of a dead letter's value
STATE_TOPICS: Final = (REPLICA_MAP, ASSIGNER_STATE)


class ClusterDamagedError(AssignerError):
    """What was published of a cluster cannot be read."""

    def __init__(self, *, cluster_id: str, reason: str) -> None:
        self.cluster_id = cluster_id
        super().__init__(
            f"what was published of cluster {cluster_id!r} cannot be read: {reason}; "
            "`spu-assigner verify` tells where it lies"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """An answer or a ring event, and when it was written."""

    time_ms: int
    told: TopicStatus | RingEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Buried:
    """A dead letter, and the key that its message had."""

    time_ms: int
    key: str
    letter: DeadLetter


@dataclass(slots=True)
class _Beside:
    """What is kept of a cluster besides its state."""

    version: int = 0
    statuses: deque[Heard] = field(default_factory=lambda: deque(maxlen=HEARD_MAX))
    ring: deque[Heard] = field(default_factory=lambda: deque(maxlen=HEARD_MAX))
    faults: dict[bytes, str] = field(default_factory=dict)  # by key


class Known:
    """Everything that was read so far. Not safe in several threads at once: `Live` has the lock."""

    def __init__(self, *, first_version: int = 0) -> None:
        self.version = first_version  # rises with each change
        self.foreign = 0  # messages under keys that are none of the job's
        self.dead_letters: deque[Buried] = deque(maxlen=DEAD_LETTERS_MAX)
        self.dead_letter_version = first_version
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
            KeyError: nothing was heard of it.
            ClusterDamagedError: nothing can be told of it.
        """
        try:
            return self._clusters[cluster_id]
        except AssignerError as reason:
            raise ClusterDamagedError(cluster_id=cluster_id, reason=str(reason)) from reason

    def cluster_version(self, cluster_id: str) -> int:
        """Rises with each change of the cluster."""
        beside = self._beside.get(cluster_id)
        return 0 if beside is None else beside.version

    def statuses(self, cluster_id: str) -> list[Heard]:
        """Its last answers, the newest first."""
        return self._newest(cluster_id, "statuses")

    def ring_events(self, cluster_id: str) -> list[Heard]:
        """Its last ring events, the newest first."""
        return self._newest(cluster_id, "ring")

    def faults(self, cluster_id: str) -> list[str]:
        """Messages of the cluster that could not be read, each told with its key."""
        beside = self._beside.get(cluster_id)
        return [] if beside is None else list(self._faults_told(beside))

    def take(self, topic: str, message: Message, *, is_loaded: bool) -> None:
        """Take over one message, read after all earlier ones of its partition.

        Args:
            topic: without the prefix.
            message: committed.
            is_loaded: the state was read to its end once; from then on it is kept decoded.
        """
        self.version += 1
        if topic in STATE_TOPICS:
            self._take_state(topic, message, is_loaded=is_loaded)
        else:
            self._take_told(topic, message)

    def _newest(self, cluster_id: str, name: str) -> list[Heard]:
        beside = self._beside.get(cluster_id)
        # They come out of several partitions; the sort leaves those of one moment as they came.
        kept = () if beside is None else reversed(getattr(beside, name))
        return sorted(kept, key=lambda heard: -heard.time_ms)

    def _faults_told(self, beside: _Beside) -> Iterator[str]:
        for key, reason in beside.faults.items():
            yield f"{key.decode('utf-8', 'replace')}: {reason}"

    def _touched(self, cluster_id: str) -> _Beside:
        beside = self._beside.get(cluster_id)
        if beside is None:
            beside = self._beside[cluster_id] = _Beside()
        beside.version = self.version
        return beside

    def _take_state(self, topic: str, message: Message, *, is_loaded: bool) -> None:
        key, value = message.key() or b"", message.value()
        cluster_id, slash, _ = key.partition(b"/")
        name = cluster_id.decode("ascii", "replace")
        if not slash or not is_legal_name(name):
            self.foreign += 1
            return
        beside = self._touched(name)
        try:
            if is_loaded:
                self._clusters.of(name)  # What comes is not put aside any more: it would pile up.
            self._clusters.restore(map_key(key) if topic == REPLICA_MAP else state_key(key), value)
        except (AssignerError, UnicodeDecodeError) as reason:
            beside.faults[key] = str(reason)
        else:
            beside.faults.pop(key, None)

    def _take_told(self, topic: str, message: Message) -> None:
        value = message.value()
        if value is None:
            return
        try:
            record = decode_record(value)
        except DecodeError:
            self.foreign += 1
            return
        time_ms = int(message.timestamp()[1])
        if topic == DEAD_LETTER and isinstance(record, DeadLetter):
            self.dead_letter_version = self.version
            raw = None if record.raw is None else record.raw[:RAW_SHOWN_MAX]
            key = (message.key() or b"").decode("utf-8", "replace")
            letter = replace(record, raw=raw)
            self.dead_letters.append(Buried(time_ms=time_ms, key=key, letter=letter))
        elif isinstance(record, TopicStatus):
            # A validated map may be large, and is not shown.
            heard = Heard(time_ms=time_ms, told=replace(record, replicas=None))
            self._touched(record.cluster_id).statuses.append(heard)
        elif isinstance(record, RingEvent):
            heard = Heard(time_ms=time_ms, told=record)
            self._touched(record.cluster_id).ring.append(heard)
        else:
            self.foreign += 1
