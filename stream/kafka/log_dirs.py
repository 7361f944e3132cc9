"""What brokers hold on their disks, whoever may see the topics, by DescribeLogDirs.

Metadata leave out the topics that a user may not see. A broker reports every replica that it holds
to a user who may Describe the cluster, if it is asked without a filter. confluent-kafka has no
DescribeLogDirs: kafka-python asks.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka.admin import AdminClient
from spu_assigner.core.base.structs import FrozenStruct
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX
from spu_assigner.stream.kafka.topic_admin import hidden

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

TOPICS_NAMED_MAX: Final = 3
_LOGGER: Final = logging.getLogger("kafka")
_LOGGER.addHandler(logging.NullHandler())  # What goes wrong is raised, or left out.
_LOGGER.propagate = False

Partition = tuple[str, int]  # a topic's name and the partition's number
Sizes = Mapping[Partition, Mapping[int, int]]  # bytes, by broker


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSizes:
    """The bytes of replicas, as the brokers that hold them report them."""

    brokers: frozenset[int] = frozenset()  # that report
    sizes: Sizes = field(default_factory=dict)


class UnseenTopics(FrozenStruct, frozen=True, kw_only=True):
    """What brokers hold of topics that this user may not see."""

    topics: tuple[str, ...] = ()
    replicas: int = 0
    silent_brokers: tuple[int, ...] = ()
    """They do not report what they hold."""

    def lines(self, consequence: str) -> Iterator[str]:
        """A line for what is known to be left out, one for what is not known."""
        if topics := self.topics:
            yield (
                f"{counted(self.replicas, 'replica')} of {counted(len(topics), 'topic')} that you "
                f"may not see ({listed(topics, TOPICS_NAMED_MAX)}): {consequence}"
            )
        if silent := self.silent_brokers:
            brokers, do = ("broker", "does") if len(silent) == 1 else ("brokers", "do")
            yield (
                f"{brokers} {listed(silent)} {do} not report what topics that you may not see hold "
                f"there; brokers do to users who may Describe the cluster: {consequence}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenReplicas:
    """The replicas, on the brokers that were asked, of topics that this user may not see."""

    sizes: Sizes = field(default_factory=dict)
    silent: tuple[int, ...] = ()  # brokers that do not report what they hold

    @property
    def summary(self) -> UnseenTopics:
        """The topics and the number of replicas, without their sizes."""
        topics = sorted({topic for topic, _ in self.sizes})
        replicas = sum(map(len, self.sizes.values()))
        return UnseenTopics(topics=tuple(topics), replicas=replicas, silent_brokers=self.silent)


def replica_sizes(connection: Connection, brokers: Collection[int] | None = None) -> ReplicaSizes:
    """The bytes of every replica on these brokers, or on all, as far as they report them.

    A broker reports its own, to a user who may Describe the cluster; one of which a disk has failed
    does not. Cost: one request for each.
    """
    answers: list[Mapping[str, Any]] = []
    with _unless_silent(), closing(admin_client(connection)) as client:
        for broker in sorted(alive_brokers(client) if brokers is None else brokers):
            with _unless_silent():
                answers.append(all_logs(client, broker))
    return sizes_in(answers)


def sizes_in(answers: Iterable[Mapping[str, Any]]) -> ReplicaSizes:
    """What brokers have answered; without one that shows no disk, or of which a disk has failed."""
    brokers: set[int] = set()
    sizes: dict[Partition, dict[int, int]] = {}
    for answer in answers:
        folders, broker = answer["log_dirs"], answer["broker"]
        if folders and not any(each["error_code"] for each in folders):
            brokers.add(broker)
            for topic in chain.from_iterable(each["topics"] for each in folders):
                for found in topic["partitions"]:
                    if not found["is_future_key"]:  # Else a copy that is moved between disks.
                        place = topic["name"], found["partition_index"]
                        sizes.setdefault(place, {})[broker] = found["partition_size"]
    return ReplicaSizes(brokers=frozenset(brokers), sizes=sizes)


def unseen_replicas(
    admin: AdminClient, held: ReplicaSizes, brokers: Collection[int], visible: Collection[str]
) -> UnseenReplicas:
    """Those of `held` whose topics this user may not see.

    A topic that is not visible because it was just created or deleted is none of them.
    """
    denied = {*hidden(admin, sorted({topic for topic, _ in held.sizes} - {*visible}))}
    return UnseenReplicas(
        sizes={place: each for place, each in held.sizes.items() if place[0] in denied},
        silent=tuple(sorted({*brokers} - held.brokers)),
    )


def read_unseen(connection: Connection, brokers: Collection[int] | None = None) -> UnseenReplicas:
    """The replicas on these brokers, or on all that are alive, of topics this user may not see."""
    with DiagnosedAdmin(connection.client()) as admin:
        found = admin.metadata()
        asked = found.brokers.keys() if brokers is None else brokers
        return unseen_replicas(admin, replica_sizes(connection, asked), asked, found.topics)


def topic_bytes(connection: Connection, topics: Mapping[str, int]) -> dict[str, int]:
    """Of topics, the bytes of one replica of each partition: of the largest, as they may differ.

    Left out is a topic of which some partition is reported by no broker: that needs the right to
    Describe the cluster.
    """
    held = replica_sizes(connection).sizes
    sizes = {
        topic: [held.get((topic, number), {}) for number in range(count)]
        for topic, count in topics.items()
    }
    return {
        topic: sum(max(each.values()) for each in replicas)
        for topic, replicas in sizes.items()
        if all(replicas)
    }


def all_logs(client: KafkaAdminClient, broker: int) -> Mapping[str, Any]:
    """What a broker reports of all its replicas; no disk at all to a user who may not ask.

    kafka-python's method asks for the topics that this user may see in place of all.

    Raises:
        KafkaError, OSError: it does not answer.
    """
    from kafka.protocol.admin import DescribeLogDirsRequest

    async def answer() -> Any:
        return await client._manager.send(DescribeLogDirsRequest(topics=None), node_id=broker)

    response = client._manager.run(answer)
    return {"broker": broker, "log_dirs": [each.to_dict() for each in response.results]}


def alive_brokers(client: KafkaAdminClient) -> dict[int, str | None]:
    """The brokers that are alive, with their racks."""
    return {
        int(each["broker_id"]): each["rack"]
        for each in client.describe_cluster()["brokers"]
        if not each.get("is_fenced")
    }


def admin_client(connection: Connection) -> KafkaAdminClient:
    """An open client of kafka-python's."""
    from kafka.admin import KafkaAdminClient

    milliseconds = int(REQUEST_SECONDS_MAX * 1000)
    return KafkaAdminClient(
        request_timeout_ms=milliseconds,
        bootstrap_timeout_ms=milliseconds,
        **connection.kafka_python(),
    )


def _unless_silent() -> suppress:
    """A broker that does not answer is left out."""
    from kafka.errors import KafkaError

    return suppress(KafkaError, OSError)
