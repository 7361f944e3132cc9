"""What the job's topics say of one cluster: its state, and the maps of a topic."""

from __future__ import annotations

from dataclasses import dataclass

from spu_assigner.core.base.records import ReplicaMap, Status
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.job.shard.clusters import output_key
from spu_assigner.stream.job.shard.published import PublishedState, checked_record, own_messages
from spu_assigner.stream.kafka.cloud_events import tombstone_is_release
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.topics import REPLICA_MAP


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
        DamagedOutputError: a message is none of the job's.
        ClientError: Kafka cannot be reached, or topics are missing.
    """
    published, topic_key = PublishedState(connection.prefix), f"{cluster_id}/{topic}".encode()
    maps: list[ReplicaMap] = []
    gone: Status | None = None
    for name, key, message in own_messages(connection, cluster_id):
        place = int(message.partition() or 0), int(message.offset() or 0)
        published.take(name, key, message.value(), place=place)
        if name != REPLICA_MAP or key != topic_key:
            continue
        if (found := checked_record(message, ReplicaMap, output_key)) is not None:
            maps.append(found)
            gone = None
        else:
            is_release = tombstone_is_release(message.headers())
            gone = Status.RELEASED if is_release else Status.DELETED
            maps.clear()
    state = published.unchecked(cluster_id)
    return ClusterOutputs(state=state, maps=tuple(maps), gone=gone)
