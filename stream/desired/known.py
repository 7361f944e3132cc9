"""What the job has published of a cluster's topics, and what Kafka has, for `plan --desired`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import ConfigResource
from spu_assigner.core.base.records import (
    ReplicaMap,
    TopicStatus,
    Wait,
    Waiting,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.reserved import KAFKA_OWN
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.desired.model import KnownTopic, KnownTopics, SeenTopics
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX
from spu_assigner.stream.kafka.topics import (
    ASSIGNER_STATE,
    REPLICA_MAP,
    TOPIC_STATUS,
)
from spu_assigner.stream.recover.published import checked_record, cluster_messages
from spu_assigner.stream.shard.clusters import output_key

TOPICS_OF_A_REQUEST: Final = 200  # whose settings are asked for


def read_known(connection: Connection, cluster_id: str) -> KnownTopics:
    """What the job has published, as far as it is committed now.

    Raises:
        ClientError: Kafka cannot be reached, or topics are missing.
        DamagedOutputError: a value is none that the job has written.
        ClusterUnknownError: there is nothing of this cluster.
    """
    latest: dict[str, dict[str, Message]] = {REPLICA_MAP: {}, ASSIGNER_STATE: {}}
    for name, topic, message in cluster_messages(connection, cluster_id):
        latest[name][topic] = message
    maps = (checked_record(each, ReplicaMap, output_key) for each in latest[REPLICA_MAP].values())
    waiting = latest[ASSIGNER_STATE].values()
    entries = (checked_record(each, Waiting, output_key) for each in waiting)
    return KnownTopics(
        mapped={
            each.topic: _mapped(each, each.replicas)
            for each in maps
            if each is not None and each.replicas is not None
        },
        waiting={
            each.topic: KnownTopic(
                partitions=each.partitions,
                replication_factor=each.replication_factor,
                policy=each.policy,
                constraints=each.constraints,
            )
            for each in entries
            if each is not None and each.kind is Wait.CREATE
        },
    )


def _mapped(found: ReplicaMap, replicas: ReplicaLists) -> KnownTopic:
    wanted = found.wanted_lengths or (found.replication_factor,) * len(replicas)
    pairs = enumerate(zip(replicas.tolist(), wanted, strict=True))
    return KnownTopic(
        partitions=len(replicas),
        replication_factor=found.replication_factor,
        policy=found.policy,
        lengths=found.wanted_lengths,
        constraints=found.constraints,
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


def read_seen(look: KafkaLook, configured: Collection[str]) -> SeenTopics:
    """What Kafka has, and the settings of those of the topics in `configured` that are there.

    Settings that this user may not see are left out.

    Raises:
        UnreachableError: no broker answers.
    """
    with DiagnosedAdmin(look.connection.client()) as admin:
        found = admin.metadata().topics
        partitions = {
            name: len(topic.partitions)
            for name, topic in found.items()
            if topic.partitions and name not in look.own and not name.startswith(KAFKA_OWN)
        }
        names = [name for name in configured if name in partitions]
        configs: dict[str, Mapping[str, str]] = {}
        for first in range(0, len(names), TOPICS_OF_A_REQUEST):
            configs |= _configs(admin, names[first : first + TOPICS_OF_A_REQUEST])
    return SeenTopics(partitions=partitions, configs=configs)


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
