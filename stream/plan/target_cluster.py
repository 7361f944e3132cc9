"""The Kafka cluster that `plan` looks at and `apply` works on.

    with Target(connection) as target:
        cluster = target.look(topics, own=…)

Rules: nothing is asked for by name that asking could make. A topic that the user may not see is an
error: it would look as if it were not there. After a failure of the whole connection nothing more
is sent. A topic is deleted only while it has the Kafka id that it had when that was decided.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import NewPartitions, NewTopic
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.config.connection import Connection, address
from spu_assigner.stream.kafka.access import may_write
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin, UnreachableError
from spu_assigner.stream.kafka.errors import GRANTING, ClientError, error_text
from spu_assigner.stream.kafka.topics import APPLIED_TOPICS, TOPICS, topic_name
from spu_assigner.stream.plan.model import (
    ChangeKind,
    KafkaCluster,
    Partition,
    Rows,
    TopicChange,
    TopicSize,
)
from spu_assigner.stream.plan.requests import (
    LOST,
    BatchOutcome,
    Failure,
    batched,
    failures_of,
    lost,
)
from spu_assigner.stream.plan.topic_sizes import topic_sizes, untouched

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import ClusterMetadata

REQUEST_SECONDS_MAX: Final = 60.0  # a controller makes some thousand partitions in a second
TOPICS_MAX: Final = 200  # of a request that only asks
BROKERS_ASKED_MAX: Final = 16  # one by one, each through a client of its own
TRIES_MAX: Final = 20  # to have a broker's own answer
DONE_SECONDS_MAX: Final = 5.0  # from the controller's answer to what one broker shows: milliseconds
POLL_SECONDS: Final = 0.02
BY_ADDRESS: Final = -1  # stands for the broker that a client was given, until its id is known
NAMES_REPORTED_MAX: Final = 5


class TargetError(AssignerError):
    """The Kafka cluster whose topics are to be as mapped cannot be looked at."""


Request = Callable[[Sequence[TopicChange]], Mapping[str, "Future[Any]"]]


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
        self._admin = DiagnosedAdmin(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admin.close()

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
            deleted: those that are deleted: no error if they are hidden.
            own: topics of the product, if they are in this cluster.

        Raises:
            TargetError: this user may not see all of them.
            UnreachableError: no broker answers.
        """
        topics = list(topics)
        found = self._metadata()
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
            ids=self._ids([name for name in (*topics, *deleted) if name in there]),
            own=own,
        )

    def kafka_id(self) -> str:
        """Kafka's own id of the cluster."""
        return str(self._metadata().cluster_id)

    def _metadata(self) -> ClusterMetadata:
        """The topics that this user may see, and the brokers."""
        for _ in range(TRIES_MAX):
            found = self._admin.metadata()
            if self._broker is None or found.orig_broker_id in (BY_ADDRESS, self._broker):
                return found
            # A client soon knows of all brokers and asks any: about every second new one does not.
            self._admin.close()
            self._admin = DiagnosedAdmin(self._client)
        raise UnreachableError(f"broker {self._broker} does not answer for itself")

    def each_broker(self) -> Iterator[Target]:
        """The same cluster as its brokers tell of it, each by itself, of many some.

        Each is closed when the next one is asked for.

        The controller's answer reaches one broker before another.

        Raises:
            UnreachableError: no broker answers.
        """
        brokers = sorted(self._metadata().brokers.values(), key=lambda broker: broker.id)
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

    def sizes(self, changes: Sequence[TopicChange]) -> dict[str, TopicSize]:
        """How much data topics hold that are there.

        Raises:
            TargetError: Kafka does not tell.
        """
        counts = {change.topic: len(change.before) for change in changes}
        with self._telling(list(counts)):
            return topic_sizes(self._admin, self._connection, counts)

    def untouched(self, cluster: KafkaCluster, names: Sequence[str]) -> set[str]:
        """Those of the topics to which nothing was ever written.

        Raises:
            TargetError: Kafka does not tell.
        """
        with self._telling(names):
            return untouched(self._admin, {name: len(cluster.topics[name]) for name in names})

    @contextmanager
    def _telling(self, names: Sequence[str]) -> Iterator[None]:
        try:
            yield
        except KafkaException as reason:
            raise TargetError(
                f"how much data {listed(names)} hold is not known: {error_text(reason)}"
            ) from reason

    def may_write(self, topic: str) -> bool:
        """Whether this user may write to a topic; no, where Kafka does not tell."""
        try:
            return bool(may_write(self._admin, topic))
        except ClientError:
            return False

    def done(self, changes: Sequence[TopicChange]) -> dict[str, str]:
        """Topics that are as planned, as one broker shows them, with their ids; "" if deleted.

        Those that are not so within DONE_SECONDS_MAX are left out.
        """
        pending = {change.topic: change for change in changes}
        found: dict[str, str] = {}
        deadline = time.monotonic() + DONE_SECONDS_MAX
        while True:
            with suppress(TargetError):  # Its answer is looked for again in the end.
                for name, told in self._described(list(pending)):
                    topic_id = _id_if_done(pending[name], told)
                    if topic_id is not None:
                        found[name] = topic_id
            pending = {name: change for name, change in pending.items() if name not in found}
            if not pending or time.monotonic() > deadline:
                return found
            time.sleep(POLL_SECONDS)

    def create(
        self,
        changes: Sequence[TopicChange],
        *,
        dry: bool,
        before: Callable[[Sequence[TopicChange]], None] = lambda changes: None,
    ) -> Iterator[BatchOutcome]:
        """Make topics, or only ask whether Kafka would, batch by batch.

        Args:
            before: called with each batch before it is sent.
        """

        def request(batch: Sequence[TopicChange]) -> Mapping[str, Future[Any]]:
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

        return self._batches(changes, request, before)

    def grow(self, changes: Sequence[TopicChange], *, dry: bool) -> Iterator[BatchOutcome]:
        """Make the partitions that are missing, or only ask whether Kafka would."""

        def request(batch: Sequence[TopicChange]) -> Mapping[str, Future[Any]]:
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

    def delete(self, changes: Sequence[TopicChange]) -> Iterator[BatchOutcome]:
        """Delete topics that still have the ids of the changes; what is gone is left out."""

        def request(batch: Sequence[TopicChange]) -> Mapping[str, Future[Any]]:
            names = [change.topic for change in batch]
            futures: Mapping[str, Future[Any]] = self._admin.delete_topics(names, **_TIMES)
            return futures

        for piece in batched(changes):
            # Kafka's clients for Python delete by name alone: ids are asked for at the last moment.
            try:
                ids = self._ids([change.topic for change in piece])
            except TargetError:
                yield BatchOutcome(changes=piece, failures=[lost(change.topic) for change in piece])
                continue
            others = [each for each in piece if ids.get(each.topic) not in (None, each.topic_id)]
            if others:
                reason = "it was deleted and made again meanwhile"
                failures = [Failure(topic=each.topic, reason=reason) for each in others]
                yield BatchOutcome(changes=others, failures=failures)
            same = [each for each in piece if ids.get(each.topic) == each.topic_id]
            yield from self._batches(same, request)

    def _batches(
        self,
        changes: Sequence[TopicChange],
        request: Request,
        before: Callable[[Sequence[TopicChange]], None] = lambda changes: None,
    ) -> Iterator[BatchOutcome]:
        is_lost = False
        for batch in batched(changes):
            if is_lost:
                yield BatchOutcome(changes=batch, failures=[lost(change.topic) for change in batch])
                continue
            before(batch)
            failures = failures_of(request(batch))
            is_lost = len(failures) == len(batch) and all(each.is_lost for each in failures)
            yield BatchOutcome(changes=batch, failures=failures)

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
                    if reason.args[0].code() in LOST:
                        raise TargetError(
                            f"Kafka at {address(self._client)} does not describe its topics: "
                            f"{error_text(reason)}"
                        ) from reason
                    yield name, reason


_TIMES: Final = {
    "operation_timeout": REQUEST_SECONDS_MAX / 2,
    "request_timeout": REQUEST_SECONDS_MAX,
}


def own_topics(prefix: str, *, is_elsewhere: bool) -> frozenset[str]:
    """The product's own topics in the Kafka cluster, by their names there.

    Args:
        is_elsewhere: whether the job's are in another one; that of `apply` is in each.
    """
    specs = [spec for spec in TOPICS if spec.name == APPLIED_TOPICS or not is_elsewhere]
    return frozenset(topic_name(spec.name, prefix=prefix) for spec in specs)


def listed(names: Sequence[str]) -> str:
    """Some names, for a message."""
    more = len(names) - NAMES_REPORTED_MAX
    told = ", ".join(names[:NAMES_REPORTED_MAX])
    return f"{told} and {more} more" if more > 0 else told


def _pieces(names: Sequence[str], size: int) -> Iterator[list[str]]:
    rest = iter(names)
    while piece := list(islice(rest, size)):
        yield piece


def _id_if_done(change: TopicChange, told: Any) -> str | None:
    """The id of a topic that a broker shows as planned; None: it is not so yet."""
    if isinstance(told, KafkaException):
        is_gone = told.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        return "" if is_gone and change.kind is ChangeKind.DELETE else None
    rows: Rows = tuple(tuple(node.id for node in each.replicas) for each in told.partitions)
    topic_id = str(told.topic_id)
    match change.kind:
        case ChangeKind.CREATE:
            # One that is gone may be shown for a moment more by a broker that lags behind.
            is_done = rows == change.after and topic_id != change.gone_id
        case ChangeKind.CHANGE:
            is_done = rows[len(change.before) :] == change.added
        case ChangeKind.DELETE:
            return "" if topic_id != change.topic_id else None
    return topic_id if is_done else None
