"""What the job's topics say of one cluster: its state, its ring events, the maps of a topic.

Read once, from the beginnings to the committed ends. The maps and entries of a cluster are keyed by
its parts and so lie in all partitions; its ring events lie in one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from confluent_kafka import Message
from spu_assigner.core.base.entries import ChainEntry, EntryKind, SeenEntry
from spu_assigner.core.base.records import ReplicaMap, RingEvent, SpuChanged, Status, Waiting
from spu_assigner.core.explain.decisions import KnownOutputs, RetainedMap
from spu_assigner.core.explain.ring_history import RingGroup
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.cloud_events import tombstone_is_release
from spu_assigner.stream.kafka.errors import ClusterUnknownError
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, REPLICA_MAP, RING_EVENTS, topic_name

ATTEMPTS_MAX: Final = 3  # topics are read one after the other, and the job may write in between


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOutputs:
    """One cluster as its outputs show it."""

    outputs: KnownOutputs
    maps: tuple[RetainedMap, ...]  # of the topic asked about, those of its present life
    gone: Status | None  # DELETED or RELEASED: how the topic asked about went, if it did last


def read_cluster(connection: Connection, cluster_id: str, topic: str) -> ClusterOutputs:
    """Read a cluster, with all retained revisions of one topic.

    Raises:
        ClusterUnknownError: no message is of it.
        ClientError: Kafka cannot be reached, or topics are missing.
    """
    for _ in range(ATTEMPTS_MAX):
        reading = _Reading(cluster_id, topic)
        names = [REPLICA_MAP, ASSIGNER_STATE, RING_EVENTS]
        keys = {RING_EVENTS: cluster_id.encode()}
        with Reader(connection, names, from_beginning=True, keys=keys) as reader:
            for name, message in reader.drain_messages():
                reading.take(name, message)
            begins = [
                begin for (name, _), (begin, _) in reader.spans().items() if name == RING_EVENTS
            ]
            found = reading.done(
                is_whole=not any(begins), topic=topic_name(REPLICA_MAP, prefix=connection.prefix)
            )
        groups = found.outputs.groups
        if not groups or groups[-1].events[-1].ring_size == found.outputs.state.ring.size:
            break
    return found


class _Reading:
    """Messages of the three topics become a cluster."""

    def __init__(self, cluster_id: str, topic: str) -> None:
        self._cluster_id = cluster_id
        self._own_key = cluster_id.encode()
        self._topic_key = f"{cluster_id}/{topic}".encode()
        self._latest: dict[tuple[str, bytes], bytes | None] = {}
        self._maps: list[RetainedMap] = []
        self._gone: Status | None = None
        self._other_keys: set[bytes] = set()  # of other clusters, for who misspelt the name
        self._ring: list[tuple[str, RingEvent]] = []  # with the event that each follows from

    def take(self, name: str, message: Message) -> None:
        key, value = message.key() or b"", message.value()
        if name == RING_EVENTS:
            record = None if key != self._own_key or value is None else decode_record(value)
            if isinstance(record, RingEvent) and record.resource is None:  # Else the ring stays.
                self._ring.append((_event_of(message, record.cause), record))
            return
        if not key.startswith(self._own_key + b"/"):
            self._other_keys.add(key.partition(b"/")[0])
            return
        self._latest[name, key] = value
        if name != REPLICA_MAP or key != self._topic_key:
            return
        record = None if value is None else decode_record(value)
        self._gone = None
        if isinstance(record, ReplicaMap):
            retained = RetainedMap(key=_event_of(message, record.cause), map=record)
            self._maps.append(retained)
        else:
            is_release = tombstone_is_release(message.headers())
            self._gone = Status.RELEASED if is_release else Status.DELETED
            self._maps.clear()

    def done(self, *, is_whole: bool, topic: str) -> ClusterOutputs:
        if not self._latest and not self._ring:
            raise ClusterUnknownError(self._cluster_id, topic, self._other_keys)
        state = ClusterState(self._cluster_id)
        for (name, key), value in self._latest.items():
            if value is None:
                _forget(state, name, key)
                continue
            record = decode_record(value)
            if isinstance(record, ReplicaMap | SpuChanged | Waiting | ChainEntry | SeenEntry):
                state.restore(record)
        groups = tuple(
            RingGroup(key=key, events=tuple(event for _, event in group))
            for key, group in groupby(self._ring, key=itemgetter(0))
        )
        return ClusterOutputs(
            outputs=KnownOutputs(state=state, groups=groups, is_whole=is_whole),
            maps=tuple(self._maps),
            gone=self._gone,
        )


def _forget(state: ClusterState, name: str, key: bytes) -> None:
    """Apply a tombstone that is still there."""
    _, _, rest = key.decode().partition("/")
    if name == REPLICA_MAP:
        state.forget_topic(rest)
        return
    kind, _, entry = rest.partition("/")
    state.forget_entry(EntryKind(kind), entry)


def _event_of(message: Message, cause: str) -> str:
    """A name for the event that a message follows from: its place in the input, out of `ce_id`.

    `cause` would not do: what waited keeps the cause of the event that asked.
    """
    for name, value in message.headers() or ():
        if name == "ce_id" and value is not None:
            place, _, _ = bytes(value).rpartition(b"/")
            return place.decode("utf-8", "replace")
    return f"cause {cause}"
