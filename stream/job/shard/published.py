"""What the job has published of its state: the latest value of each key, and the clusters in them.

    published = read_published(connection)
    for cluster_id in published.cluster_ids: state = published.restored(cluster_id)

Both topics are written in the same transactions, so what is read of them at one time, while no job
writes, is one state. The values are kept as they came; they are decoded cluster by cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from confluent_kafka import Message
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.records import Entry, ReplicaMap
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.consistency_check import faults
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.stream.job.shard.clusters import map_key, output_key, state_key
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import ClusterUnknownError
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, REPLICA_MAP, topic_name

READS_MAX: Final = 5  # of a state that is of two batches, since the job writes
READ_SECONDS: Final = 0.2
_Record = TypeVar("_Record")


class PublishedError(AssignerError):
    """The outputs do not hold a whole state."""


class DamagedOutputError(PublishedError):
    """A message is none that the job has written."""

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        offset: int,
        key: bytes,
        fault: str,
        writer: str = "the job",
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key
        super().__init__(
            f"{topic} has under key {key!r} (partition {partition}, offset {offset}) {fault}; only "
            f"{writer} may write there. Write the former value under this key again, from a copy "
            f"of the topic, or a tombstone if the key was never that of {writer}"
        )


class UnsoundError(PublishedError):
    """What was published of a cluster contradicts itself."""

    def __init__(self, *, cluster_id: str, fault: str) -> None:
        self.cluster_id = cluster_id
        self.fault = fault
        super().__init__(
            f"{REPLICA_MAP} and {ASSIGNER_STATE} contradict each other about cluster "
            f"{cluster_id!r}: {fault}; restore what is missing in these topics from a copy of them"
        )


class PublishedState:
    """The latest values, by cluster and by their keys in a shard's state."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        # Topic, value, partition, offset.
        self._clusters: dict[str, dict[bytes, tuple[str, bytes, int, int]]] = {}
        self.messages = 0  # read, with those that later ones outdate

    @property
    def cluster_ids(self) -> list[str]:
        """In order."""
        return sorted(self._clusters)

    def take(self, topic: str, key: bytes, value: bytes | None, *, place: tuple[int, int]) -> None:
        """Take over a message, read after all earlier ones of its partition."""
        self.messages += 1
        name, slash, _ = key.partition(b"/")
        if not name or not slash or not name.isascii():
            raise DamagedOutputError(
                topic=topic_name(topic, prefix=self._prefix),
                partition=place[0],
                offset=place[1],
                key=key,
                fault="a key that is none of the job's",
            )
        cluster_id = name.decode()
        stored = map_key(key) if topic == REPLICA_MAP else state_key(key)
        if value is not None:
            self._clusters.setdefault(cluster_id, {})[stored] = (topic, value, *place)
        elif cluster_id in self._clusters:
            self._clusters[cluster_id].pop(stored, None)
            if not self._clusters[cluster_id]:
                del self._clusters[cluster_id]

    def take_message(self, topic: str, message: Message) -> None:
        """Likewise a message as it was read."""
        place = int(message.partition() or 0), int(message.offset() or 0)
        self.take(topic, message.key() or b"", message.value(), place=place)

    def entries(self, cluster_id: str) -> Iterator[tuple[bytes, bytes]]:
        """A cluster's entries as a shard's state has them."""
        for key, (_, value, _, _) in self._clusters[cluster_id].items():
            yield key, value

    def restored(self, cluster_id: str) -> ClusterState:
        """A cluster's state; raises UnsoundError if its values contradict each other."""
        state = self.unchecked(cluster_id)
        for fault in faults(state):
            raise UnsoundError(cluster_id=cluster_id, fault=fault)
        return state

    def unchecked(self, cluster_id: str) -> ClusterState:
        """A cluster's state as its values say, which may be of two batches if the job writes."""
        state = ClusterState(cluster_id)
        for stored, (topic, value, partition, offset) in self._clusters.get(cluster_id, {}).items():
            record = _record(
                value,
                ReplicaMap if topic == REPLICA_MAP else Entry,
                output_key,
                topic=topic_name(topic, prefix=self._prefix),
                partition=partition,
                offset=offset,
                key=stored[1:],
            )
            state.restore(record)
        return state


def read_published(connection: Connection, *, held_seconds: float | None = None) -> PublishedState:
    """All that is committed now.

    Open transactions may hide what is committed: they are waited for `held_seconds`; by default
    what is hidden is not read.
    """
    published = PublishedState(connection.prefix)
    with Reader(connection, [REPLICA_MAP, ASSIGNER_STATE], from_beginning=True) as reader:
        if held_seconds is not None:
            reader.require_settled(held_seconds)
        for topic, message in reader.drain_messages():
            published.take_message(topic, message)
    return published


def read_cluster_state(connection: Connection, cluster_id: str) -> ClusterState:
    """The state of one cluster; read again where the job was just writing it."""
    for _ in range(READS_MAX - 1):
        try:
            return _read_cluster(connection, cluster_id)
        except UnsoundError:
            time.sleep(READ_SECONDS)
    return _read_cluster(connection, cluster_id)


def _read_cluster(connection: Connection, cluster_id: str) -> ClusterState:
    published = PublishedState(connection.prefix)
    for topic, _, message in own_messages(connection, cluster_id):
        published.take_message(topic, message)
    return published.restored(cluster_id)


def own_messages(connection: Connection, cluster_id: str) -> Iterator[tuple[str, bytes, Message]]:
    """All messages of a cluster: topic, key, message."""
    own, is_known, others = f"{cluster_id}/".encode(), False, set[bytes]()
    with Reader(connection, [REPLICA_MAP, ASSIGNER_STATE], from_beginning=True) as reader:
        for topic, message in reader.drain_messages():
            key = message.key() or b""
            if key.startswith(own):
                is_known = True
                yield topic, key, message
            elif not is_known:
                others.add(key.partition(b"/")[0])
    if not is_known:
        where = topic_name(REPLICA_MAP, prefix=connection.prefix)
        raise ClusterUnknownError(cluster_id, where, others)


def checked_record(
    message: Message,
    kind: type[_Record],
    key_of: Callable[[_Record], bytes],
    *,
    writer: str = "the job",
) -> _Record | None:
    """The record of a message; None: a tombstone."""
    value = message.value()
    if value is None:
        return None
    record: _Record = _record(
        value,
        kind,
        key_of,
        topic=str(message.topic()),
        partition=int(message.partition() or 0),
        offset=int(message.offset() or 0),
        key=message.key() or b"",
        writer=writer,
    )
    return record


def _record(
    value: bytes, kind: Any, key_of: Callable[[Any], bytes], *, key: bytes, **place: Any
) -> Any:
    """The record that a value is, checked; `place` is what else a `DamagedOutputError` says."""
    try:
        record = decode_record(value)
    except DecodeError as reason:
        raise DamagedOutputError(key=key, fault=f"no record: {reason}", **place) from reason
    if not isinstance(record, kind):
        expected = getattr(kind, "__name__", "a map or an entry of the state")
        fault = f"a {type(record).__name__}; expected {expected}"
        raise DamagedOutputError(key=key, fault=fault, **place)
    if key_of(record) != key:
        fault = f"what belongs under {key_of(record)!r}"
        raise DamagedOutputError(key=key, fault=fault, **place)
    return record
