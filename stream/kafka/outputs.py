"""What the job's topics say of one cluster: its state, and the maps of a topic.

Read once, from the beginnings to the committed ends: the maps and entries of a cluster are keyed by
its parts and so lie in all partitions.
"""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Message
from spu_assigner.core.base.records import (
    ChainEntry,
    EntryKind,
    ReplicaMap,
    SeenEntry,
    SpuChanged,
    Status,
    Waiting,
)
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.cloud_events import tombstone_is_release
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import ClusterUnknownError
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, REPLICA_MAP, topic_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOutputs:
    """One cluster as its outputs show it."""

    state: ClusterState
    maps: tuple[ReplicaMap, ...]  # of the topic asked about, those of its present life
    gone: Status | None  # DELETED or RELEASED: how the topic asked about went, if it did last


def read_cluster(connection: Connection, cluster_id: str, topic: str) -> ClusterOutputs:
    """Read a cluster, with all retained revisions of one topic.

    Raises:
        ClusterUnknownError: no message is of it.
        ClientError: Kafka cannot be reached, or topics are missing.
    """
    reading = _Reading(cluster_id, topic)
    with Reader(connection, [REPLICA_MAP, ASSIGNER_STATE], from_beginning=True) as reader:
        for name, message in reader.drain_messages():
            reading.take(name, message)
    return reading.done(topic_name(REPLICA_MAP, prefix=connection.prefix))


class _Reading:
    """Messages of the two topics become a cluster."""

    def __init__(self, cluster_id: str, topic: str) -> None:
        self._cluster_id = cluster_id
        self._own_key = cluster_id.encode()
        self._topic_key = f"{cluster_id}/{topic}".encode()
        self._latest: dict[tuple[str, bytes], bytes | None] = {}
        self._maps: list[ReplicaMap] = []
        self._gone: Status | None = None
        self._other_keys: set[bytes] = set()  # of other clusters, for a name that is misspelt

    def take(self, name: str, message: Message) -> None:
        key, value = message.key() or b"", message.value()
        if not key.startswith(self._own_key + b"/"):
            self._other_keys.add(key.partition(b"/")[0])
            return
        self._latest[name, key] = value
        if name != REPLICA_MAP or key != self._topic_key:
            return
        record = None if value is None else decode_record(value)
        self._gone = None
        if isinstance(record, ReplicaMap):
            self._maps.append(record)
        else:
            is_release = tombstone_is_release(message.headers())
            self._gone = Status.RELEASED if is_release else Status.DELETED
            self._maps.clear()

    def done(self, topic: str) -> ClusterOutputs:
        if not self._latest:
            raise ClusterUnknownError(self._cluster_id, topic, self._other_keys)
        state = ClusterState(self._cluster_id)
        for (name, key), value in self._latest.items():
            if value is None:
                _forget(state, name, key)
                continue
            record = decode_record(value)
            if isinstance(record, ReplicaMap | SpuChanged | Waiting | ChainEntry | SeenEntry):
                state.restore(record)
        return ClusterOutputs(state=state, maps=tuple(self._maps), gone=self._gone)


def _forget(state: ClusterState, name: str, key: bytes) -> None:
    """Apply a tombstone that is still there."""
    _, _, rest = key.decode().partition("/")
    if name == REPLICA_MAP:
        state.forget_topic(rest)
        return
    kind, _, entry = rest.partition("/")
    state.forget_entry(EntryKind(kind), entry)
