"""What brokers hold on their disks, whoever may see the topics, by DescribeLogDirs.

    held = replica_sizes(connection, brokers)
    unseen = unseen_replicas(admin, held, brokers, visible)

Metadata leave out the topics that a user may not see. A broker reports every replica that it holds
to a user who may Describe the cluster, if it is asked without a filter. confluent-kafka has no
DescribeLogDirs: kafka-python asks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka.admin import AdminClient
from spu_assigner.core.base.structs import FrozenStruct
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.kafka.access import hidden
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX

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
        """A line for what is known to be left out, one for what is not known.

        Args:
            consequence: as "they are not counted".
        """
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
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.sizes})

    @property
    def summary(self) -> UnseenTopics:
        replicas = sum(map(len, self.sizes.values()))
        topics = tuple(self.topics)
        return UnseenTopics(topics=topics, replicas=replicas, silent_brokers=self.silent)

    def of(self, is_meant: Callable[[str], bool]) -> UnseenReplicas:
        """Those of some topics."""
        sizes = {place: each for place, each in self.sizes.items() if is_meant(place[0])}
        return UnseenReplicas(sizes=sizes, silent=self.silent)

    def lines(self, consequence: str) -> Iterator[str]:
        """As those of the summary."""
        return self.summary.lines(consequence)


def replica_sizes(connection: Connection, brokers: Collection[int]) -> ReplicaSizes:
    """The bytes of every replica on these brokers, as far as they report them.

    A broker reports its own, to a user who may Describe the cluster; one of which a disk has failed
    does not. Cost: one request for each.
    """
    answers: list[Mapping[str, Any]] = []
    with _asking(connection) as client:
        for broker in sorted(brokers) if client is not None else ():
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
            for topic, number, size in replicas_of(answer):
                sizes.setdefault((topic, number), {})[broker] = size
    return ReplicaSizes(brokers=frozenset(brokers), sizes=sizes)


def unseen_replicas(
    admin: AdminClient, held: ReplicaSizes, brokers: Collection[int], visible: Collection[str]
) -> UnseenReplicas:
    """Those of `held` whose topics this user may not see.

    A topic that is not visible because it was just created or deleted is none of them.

    Args:
        brokers: those that were asked.
        visible: topics that metadata show.
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
    Describe the cluster. If a broker does not answer, all are left out.

    Args:
        topics: the number of partitions of each.
    """
    partitions = {topic: list(range(count)) for topic, count in topics.items()}
    sizes: dict[Partition, int] = {}
    for answer in topic_logs(connection, partitions):
        for topic, number, size in replicas_of(answer):
            sizes[topic, number] = max(sizes.get((topic, number), 0), size)
    return {
        topic: sum(sizes[topic, number] for number in numbers)
        for topic, numbers in partitions.items()
        if all((topic, number) in sizes for number in numbers)
    }


def topic_logs(
    connection: Connection, partitions: Mapping[str, Sequence[int]]
) -> list[Mapping[str, Any]]:
    """What all brokers report of these partitions; nothing if one of them does not answer."""
    with _asking(connection) as client, _unless_silent():
        if client is not None:
            found: list[Mapping[str, Any]] = client.describe_log_dirs(topic_partitions=partitions)
            return found
    return []


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


def admin_client(connection: Connection) -> KafkaAdminClient:
    """An open client of kafka-python's."""
    from kafka.admin import KafkaAdminClient

    milliseconds = int(REQUEST_SECONDS_MAX * 1000)
    return KafkaAdminClient(
        request_timeout_ms=milliseconds,
        bootstrap_timeout_ms=milliseconds,
        **connection.kafka_python(),
    )


@contextmanager
def _asking(connection: Connection) -> Iterator[KafkaAdminClient | None]:
    """A client; None: no broker answers."""
    client = None
    with _unless_silent():
        client = admin_client(connection)
    try:
        yield client
    finally:
        if client is not None:
            client.close()


def _unless_silent() -> suppress:
    """A broker that does not answer is left out."""
    from kafka.errors import KafkaError

    return suppress(KafkaError, OSError)


def replicas_of(answer: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Topic, partition and bytes of each replica; not of a copy that is moved between disks."""
    for folder in answer["log_dirs"]:
        for topic in folder["topics"]:
            for partition in topic["partitions"]:
                if not partition["is_future_key"]:
                    yield topic["name"], partition["partition_index"], partition["partition_size"]
