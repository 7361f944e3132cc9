"""What the job has published of a cluster's topics, and what Kafka has, for `plan --desired`."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource
from spu_assigner.core.base.limits import KAFKA_OWN
from spu_assigner.core.base.records import TopicStatus, Wait
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.topic import Topic
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.stream.clusters.desired.model import (
    DesiredTopic,
    KnownTopic,
    KnownTopics,
    SeenTopics,
)
from spu_assigner.stream.job.shard.published import read_published_cluster
from spu_assigner.stream.kafka.access import hidden
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX
from spu_assigner.stream.kafka.topics import TOPIC_STATUS

TOPICS_OF_A_REQUEST: Final = 200  # whose settings, or rights, are asked for
LOOKS_MAX: Final = 3  # at topics that are recorded and not seen
LOOK_SECONDS: Final = 0.2


def read_state(connection: Connection, cluster_id: str) -> ClusterState:
    """What the job has published, as far as it is committed now; of two batches if it writes.

    Raises:
        ClientError: Kafka cannot be reached, or topics are missing.
        DamagedOutputError: a value is none that the job has written.
        ClusterUnknownError: there is nothing of this cluster.
    """
    return read_published_cluster(connection, cluster_id).unchecked(cluster_id)


def known_topics(state: ClusterState) -> KnownTopics:
    """What a file of desired topics is compared with."""
    return KnownTopics(
        mapped={name: _mapped(topic) for name, topic in state.topics.items()},
        waiting={
            each.topic: KnownTopic(
                partitions=each.partitions,
                replication_factor=each.replication_factor,
                policy=each.policy,
                constraints=each.constraints,
            )
            for each in state.waiting.values()
            if each.kind is Wait.CREATE
        },
    )


def _mapped(topic: Topic) -> KnownTopic:
    rows = topic.replicas.lists().tolist()
    pairs = enumerate(zip(rows, topic.lengths_wanted(len(rows)), strict=True))
    return KnownTopic(
        partitions=len(rows),
        replication_factor=topic.replication_factor,
        policy=topic.policy,
        lengths=None if topic.wanted_lengths is None else tuple(topic.wanted_lengths),
        constraints=topic.constraints,
        short={number: len(row) for number, (row, length) in pairs if len(row) < length},
    )


def read_answered(connection: Connection, cluster_id: str, topics: Collection[str]) -> set[str]:
    """The ids of the events about these topics that were answered, as far as answers are kept.

    An answer that cannot be read is passed over: it answers none of ours.
    """
    keys = {f"{cluster_id}/{topic}".encode() for topic in topics}
    answered: set[str] = set()
    if not keys:
        return answered
    with Reader(connection, [TOPIC_STATUS], from_beginning=True) as reader:
        for _, message in reader.drain_messages():
            value = message.value()
            if message.key() not in keys or value is None:
                continue
            try:
                record = decode_record(value)
            except DecodeError:
                continue
            if isinstance(record, TopicStatus):
                answered.add(record.cause)
    return answered


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLook:
    """A Kafka cluster that holds the topics."""

    connection: Connection
    own: frozenset[str]  # the product's topics there
    was_there: Collection[str] = ()  # mapped topics that were in it when `apply` last looked


def read_seen(look: KafkaLook, topics: Sequence[DesiredTopic]) -> SeenTopics:
    """What Kafka has; of the topics of the file also their settings, and which of them are gone.

    Settings that this user may not see are left out.

    Raises:
        UnreachableError: no broker answers.
        ClientError: it does not answer what this user may see.
    """
    names = [topic.name for topic in topics]
    with DiagnosedAdmin(look.connection.client()) as admin:
        partitions = _partitions(admin, look)
        for _ in range(LOOKS_MAX):  # Another run may just make what is recorded and not seen.
            if partitions.keys() >= {name for name in names if name in look.was_there}:
                break
            time.sleep(LOOK_SECONDS)
            partitions = _partitions(admin, look)
        missing = [name for name in names if name not in partitions]
        unseen: set[str] = set()
        for first in range(0, len(missing), TOPICS_OF_A_REQUEST):
            unseen.update(hidden(admin, missing[first : first + TOPICS_OF_A_REQUEST]))
        configured = [topic.name for topic in topics if topic.config and topic.name in partitions]
        configs: dict[str, Mapping[str, str]] = {}
        for first in range(0, len(configured), TOPICS_OF_A_REQUEST):
            configs |= _configs(admin, configured[first : first + TOPICS_OF_A_REQUEST])
    return SeenTopics(
        partitions=partitions,
        configs=configs,
        hidden=frozenset(unseen),
        gone=frozenset(name for name in missing if name in look.was_there and name not in unseen),
    )


def _partitions(admin: DiagnosedAdmin, look: KafkaLook) -> dict[str, int]:
    return {
        name: len(topic.partitions)
        for name, topic in admin.metadata().topics.items()
        if topic.partitions and name not in look.own and not name.startswith(KAFKA_OWN)
    }


def _configs(admin: DiagnosedAdmin, names: Collection[str]) -> dict[str, Mapping[str, str]]:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    futures = admin.describe_configs(resources, request_timeout=REQUEST_SECONDS_MAX)
    found: dict[str, Mapping[str, str]] = {}
    for resource, future in futures.items():
        try:
            entries = future.result()
        except KafkaException:
            continue
        found[resource.name] = {key: str(entry.value) for key, entry in entries.items()}
    return found
