"""The Kafka cluster that `plan` looks at and `apply` works on.

    with Target(connection) as target:
        cluster = target.look(topics, own=…)

Rules: nothing is asked for by name that asking could make. A topic that the user may not see is an
error: it would look as if it were not there. After a failure of the whole connection nothing more
is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from spu_assigner.core.errors import AssignerError
from spu_assigner.stream.connection import Connection, address
from spu_assigner.stream.plan_model import Change, KafkaCluster, Partition
from spu_assigner.stream.reach import Complaints, UnreachableError, ask_topics
from spu_assigner.stream.topics import GRANTING, TOPICS, topic_name

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import ClusterMetadata

REQUEST_SECONDS_MAX: Final = 60.0  # a controller makes some thousand partitions in a second
TOPICS_MAX: Final = 200  # of a request
PARTITIONS_MAX: Final = 2_000  # of a request; Kafka's controller refuses 10,000 records at once
BROKERS_ASKED_MAX: Final = 16  # one by one, each through a client of its own
TRIES_MAX: Final = 20  # to have a broker's own answer
BY_ADDRESS: Final = -1  # stands for the broker that a client was given, until its id is known
NAMES_TOLD_MAX: Final = 5

_DENIED: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_LOST: Final = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


class TargetError(AssignerError):
    """The Kafka cluster whose topics are to be as mapped cannot be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What Kafka said to one request for one topic."""

    topic: str
    reason: str
    is_denied: bool = False  # a right is missing
    is_lost: bool = False  # Kafka did not answer


Request = Callable[[Sequence[Change]], Mapping[str, "Future[Any]"]]


class Target:
    """A Kafka cluster, through one admin client, which is closed at the end of a `with`.

    Args:
        connection: how it is reached.
        broker: the id of the one whose own answers alone count; None: any's.
    """

    def __init__(self, connection: Connection, broker: int | None = None) -> None:
        self._connection = connection
        self._broker = broker
        self._client = connection.client()
        self._complaints = Complaints()
        self._admin = self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admin.__exit__(None, None, None)

    def _connect(self) -> AdminClient:
        settings = {"log_level": 0, "error_cb": self._complaints.note, **self._client}
        try:
            return AdminClient(settings)
        except (KafkaException, TypeError) as reason:
            raise TargetError(f"Kafka's client refuses its settings: {_words(reason)}") from reason

    def look(
        self,
        topics: Iterable[str],
        *,
        deleted: Iterable[str] = (),
        own: frozenset[str] = frozenset(),
    ) -> KafkaCluster:
        """What is there.

        Args:
            topics: those that are asked about: an error if one is hidden from this user.
            deleted: those whose Kafka ids are wanted.
            own: topics of the product, if they are in this cluster.

        Raises:
            TargetError: this user may not see all of them.
            UnreachableError: no broker answers.
        """
        found = self._told()
        there = {
            name: tuple(
                Partition(
                    replicas=tuple(each.partitions[number].replicas),
                    in_sync=frozenset(each.partitions[number].isrs),
                )
                for number in sorted(each.partitions)
            )
            for name, each in found.topics.items()
            if each.partitions
        }
        self._require_sight([name for name in topics if name not in there])
        return KafkaCluster(
            kafka_id=str(found.cluster_id),
            brokers=tuple(sorted(found.brokers)),
            topics=there,
            ids=self._ids([name for name in deleted if name in there]),
            own=own,
        )

    def kafka_id(self) -> str:
        """Kafka's own id of the cluster."""
        return str(self._told().cluster_id)

    def _told(self) -> ClusterMetadata:
        """The topics that this user may see, and the brokers."""
        for _ in range(TRIES_MAX):
            found = ask_topics(self._admin, self._client, self._complaints)
            if self._broker is None or found.orig_broker_id in (BY_ADDRESS, self._broker):
                return found
            # A client soon knows of all brokers and asks any: about every second new one does not.
            self._admin.__exit__(None, None, None)
            self._admin = self._connect()
        raise UnreachableError(f"broker {self._broker} does not answer for itself")

    def each_broker(self) -> Iterator[Target]:
        """The same cluster as its brokers tell of it, each by itself, of many some.

        Each is closed when the next one is asked for.

        The controller's answer reaches one broker before another.

        Raises:
            UnreachableError: no broker answers.
        """
        brokers = sorted(self._told().brokers.values(), key=lambda broker: broker.id)
        addresses = {
            broker.id: f"[{broker.host}]:{broker.port}"
            if ":" in broker.host
            else f"{broker.host}:{broker.port}"
            for broker in brokers[:BROKERS_ASKED_MAX]
        }
        for broker, server in addresses.items():
            connection = replace(self._connection, bootstrap_servers=server)
            with Target(connection, broker) as target:
                yield target

    def create(self, changes: Sequence[Change], *, dry: bool) -> Iterator[list[Failure]]:
        """Make topics, or only ask whether Kafka would; failures batch by batch."""

        def request(batch: Sequence[Change]) -> Mapping[str, Future[Any]]:
            topics = [
                NewTopic(
                    change.topic,
                    num_partitions=len(change.after),
                    replica_assignment=[list(row) for row in change.after],
                )
                for change in batch
            ]
            futures: Mapping[str, Future[Any]] = self._admin.create_topics(
                topics, validate_only=dry, **_TIMES
            )
            return futures

        return self._batches(changes, request)

    def grow(self, changes: Sequence[Change], *, dry: bool) -> Iterator[list[Failure]]:
        """Make the partitions that are missing, or only ask whether Kafka would."""

        def request(batch: Sequence[Change]) -> Mapping[str, Future[Any]]:
            grown = [
                NewPartitions(
                    change.topic,
                    len(change.after),
                    replica_assignment=[list(row) for row in change.added],
                )
                for change in batch
            ]
            futures: Mapping[str, Future[Any]] = self._admin.create_partitions(
                grown, validate_only=dry, **_TIMES
            )
            return futures

        return self._batches(changes, request)

    def delete(self, changes: Sequence[Change]) -> Iterator[list[Failure]]:
        """Delete topics."""

        def request(batch: Sequence[Change]) -> Mapping[str, Future[Any]]:
            names = [change.topic for change in batch]
            futures: Mapping[str, Future[Any]] = self._admin.delete_topics(names, **_TIMES)
            return futures

        return self._batches(changes, request)

    def _batches(self, changes: Sequence[Change], request: Request) -> Iterator[list[Failure]]:
        is_lost = False
        for batch in _batched(changes):
            if is_lost:
                yield [_lost(change.topic) for change in batch]
                continue
            failures = _failures(request(batch))
            is_lost = len(failures) == len(batch) and all(each.is_lost for each in failures)
            yield failures

    def _require_sight(self, names: Sequence[str]) -> None:
        denied = [
            name
            for name, reason in self._described(names)
            if isinstance(reason, KafkaException)
            and reason.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        ]
        if denied:
            raise TargetError(
                f"this user may not Describe {listed(denied)} at {address(self._client)}; "
                f"{GRANTING}"
            )

    def _ids(self, names: Sequence[str]) -> dict[str, str]:
        return {
            name: str(found.topic_id)
            for name, found in self._described(names)
            if not isinstance(found, KafkaException)
        }

    def _described(self, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """What Kafka tells of topics, or its refusal."""
        for batch in _pieces(names, TOPICS_MAX):
            futures = self._admin.describe_topics(
                TopicCollection(batch), request_timeout=REQUEST_SECONDS_MAX
            )
            for name, future in futures.items():
                try:
                    yield name, future.result()
                except KafkaException as reason:
                    if reason.args[0].code() in _LOST:
                        raise TargetError(
                            f"Kafka at {address(self._client)} does not describe its topics: "
                            f"{_words(reason)}"
                        ) from reason
                    yield name, reason


_TIMES: Final = {
    "operation_timeout": REQUEST_SECONDS_MAX / 2,
    "request_timeout": REQUEST_SECONDS_MAX,
}


def own_topics(prefix: str) -> frozenset[str]:
    """The product's own topics, by their names in Kafka."""
    return frozenset(topic_name(spec.name, prefix=prefix) for spec in TOPICS)


def listed(names: Sequence[str]) -> str:
    """Some names, for a message."""
    more = len(names) - NAMES_TOLD_MAX
    told = ", ".join(names[:NAMES_TOLD_MAX])
    return f"{told} and {more} more" if more > 0 else told


def _batched(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Pieces that the controller takes at once."""
    batch: list[Change] = []
    count = 0
    for change in changes:
        size = len(change.added)
        if batch and (len(batch) >= TOPICS_MAX or count + size > PARTITIONS_MAX):
            yield batch
            batch, count = [], 0
        batch.append(change)
        count += size
    if batch:
        yield batch


def _pieces(names: Sequence[str], size: int) -> Iterator[list[str]]:
    rest = iter(names)
    while piece := list(islice(rest, size)):
        yield piece


def _failures(futures: Mapping[str, Future[Any]]) -> list[Failure]:
    failures = []
    for topic, future in futures.items():
        try:
            future.result()
        except KafkaException as reason:
            error = reason.args[0]
            failures.append(
                Failure(
                    topic=topic,
                    reason=str(error.str()),
                    is_denied=error.code() in _DENIED,
                    is_lost=error.code() in _LOST,
                )
            )
    return failures


def _lost(topic: str) -> Failure:
    return Failure(topic=topic, reason="Kafka does not answer any more", is_lost=True)


def _words(reason: Exception) -> str:
    """librdkafka's own sentence, without its wrapping."""
    first = reason.args[0] if reason.args else reason
    return str(first.str()) if hasattr(first, "str") else str(first)
