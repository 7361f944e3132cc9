"""The Kafka cluster that `plan` looks at and `apply` works on.

Rules: nothing is asked for by name that asking could make. A topic that the user may not see is an
error: it would look as if it were not there. A topic is deleted only while it has the Kafka id that
it had when that was decided.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import NewPartitions, NewTopic, OffsetSpec
from spu_assigner.stream.clusters.plan.model import (
    ChangeKind,
    Configs,
    KafkaCluster,
    Partition,
    Rows,
    TopicChange,
    TopicFailure,
)
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.kafka.config.connection import Connection, address
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.errors import GRANTING, ClientError, error_text
from spu_assigner.stream.kafka.log_dirs import (
    ReplicaSizes,
    UnseenReplicas,
    replica_sizes,
    topic_bytes,
    unseen_replicas,
)
from spu_assigner.stream.kafka.retry import list_offsets

if TYPE_CHECKING:
    from concurrent.futures import Future


REQUEST_SECONDS_MAX: Final = 60.0  # a controller makes some thousand partitions in a second
OFFSET_SECONDS_MAX: Final = 10.0  # leaders at hand answer in milliseconds
TOPICS_MAX: Final = 200  # of a request that only asks
POLL_SECONDS: Final = 0.02
_TIMES: Final = {
    "operation_timeout": REQUEST_SECONDS_MAX / 2,
    "request_timeout": REQUEST_SECONDS_MAX,
}
_OVERTAKEN: Final = (
    KafkaError.TOPIC_ALREADY_EXISTS,  # of a creation
    KafkaError.INVALID_PARTITIONS,  # of a growth: it has as many already
    KafkaError.UNKNOWN_TOPIC_OR_PART,  # of a deletion,
    KafkaError.UNKNOWN_TOPIC_ID,  # or of one that came first while this one was on its way
)
_LOST: Final = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.REQUEST_TIMED_OUT,  # the controller may go on with it
)


class Target:
    """A Kafka cluster, through one admin client, which is closed at the end of a `with`.

    All that ask raise ClientError where Kafka does not answer, or this user may not: of a request
    that changes something, it may have been made. Topics are created with these settings.
    """

    def __init__(self, connection: Connection, configs: Configs | None = None) -> None:
        self._connection = connection
        self._configs = configs or {}
        self._client = connection.client()
        self._admin = DiagnosedAdmin(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    def look(self, topics: Iterable[str], *, deleted: Iterable[str] = ()) -> KafkaCluster:
        """What is there; an error if one of `topics` is hidden from this user.

        Of those `deleted` it is none: rights to what is gone may be gone as well.
        """
        topics = list(topics)
        found = self._admin.metadata()
        there = {
            name: tuple(
                Partition(
                    replicas=tuple(each.partitions[number].replicas),
                    in_sync=frozenset(each.partitions[number].isrs),
                    leader=each.partitions[number].leader,
                )
                for number in sorted(each.partitions)
            )
            for name, each in found.topics.items()
            if each.partitions
        }
        ids: dict[str, str] = {}
        hidden: set[str] = set()
        for name, described in self._described([*topics, *deleted]):
            if not isinstance(described, KafkaException):
                ids[name] = str(described.topic_id)
            elif described.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                hidden.add(name)
        if denied := [name for name in topics if name in hidden]:
            raise ClientError(
                f"this user may not Describe {listed(denied)} at {address(self._client)}; "
                f"{GRANTING}"
            )
        return KafkaCluster(
            kafka_id=str(found.cluster_id),
            brokers=tuple(sorted(found.brokers)),
            topics=there,
            ids=ids,
            hidden=frozenset(hidden),
        )

    def ids(self, names: Sequence[str]) -> dict[str, str]:
        """Kafka's ids of those of the topics that are there."""
        found = self._described(names)
        return {
            name: str(each.topic_id) for name, each in found if not isinstance(each, KafkaException)
        }

    def kafka_id(self) -> str:
        """Kafka's own id of the cluster."""
        return str(self._admin.metadata().cluster_id)

    def sized(self, changes: Sequence[TopicChange]) -> list[TopicChange]:
        """Deletions with how much data they concern; one that others have deleted has none left."""
        counts = {change.topic: len(change.before) for change in changes}
        try:
            ends = self._offsets(counts, OffsetSpec.latest())
            begins = self._offsets(counts, OffsetSpec.earliest())
        except ClientError:
            there = self._admin.metadata().topics
            left = [change for change in changes if change.topic in there]
            if len(left) == len(changes):
                raise
            gone = [replace(each, records=0) for each in changes if each.topic not in there]
            return [*gone, *self.sized(left)]
        sizes = topic_bytes(self._connection, counts) if counts else {}
        records = Counter[str]()
        for at, end in ends.items():
            records[at[0]] += end - begins[at]
        return [
            replace(each, records=records[each.topic], size_bytes=sizes.get(each.topic))
            for each in changes
        ]

    def untouched(self, cluster: KafkaCluster, names: Sequence[str]) -> set[str]:
        """Those of the topics to which nothing was ever written."""
        counts = {name: len(cluster.topics[name]) for name in names}
        ends = self._offsets(counts, OffsetSpec.latest())
        return {*names} - {topic for (topic, _), end in ends.items() if end}

    def _offsets(self, counts: Mapping[str, int], spec: OffsetSpec) -> dict[tuple[str, int], int]:
        """Of all partitions of topics with so many."""
        places = [(name, n) for name, count in counts.items() for n in range(count)]
        try:
            return list_offsets(self._admin, places, spec, seconds=OFFSET_SECONDS_MAX)
        except KafkaException as reason:
            raise ClientError(
                f"how much data {listed(list(counts))} hold is not known: {error_text(reason)}; "
                "check that all brokers run, and run this again"
            ) from reason

    def held(self, cluster: KafkaCluster) -> tuple[ReplicaSizes, UnseenReplicas]:
        """What its brokers report: all replicas, and those that `cluster` hides from this user."""
        held = replica_sizes(self._connection, cluster.brokers)
        return held, unseen_replicas(self._admin, held, cluster.brokers, cluster.topics)

    def done(self, changes: Sequence[TopicChange], seconds: float) -> dict[str, str]:
        """Topics that are as planned, as one broker shows them, with their ids; "" if deleted.
        Those that are not so within so many seconds are left out."""
        pending = {change.topic: change for change in changes}
        found: dict[str, str] = {}
        deadline = time.monotonic() + seconds
        while pending:
            with suppress(ClientError):  # Its answer is looked for again in the end.
                for name, described in self._described(list(pending)):
                    if (topic_id := _id_if_done(pending[name], described)) is not None:
                        found[name] = topic_id
                        del pending[name]
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        return found

    def send(self, changes: Sequence[TopicChange]) -> list[TopicFailure]:
        """Make changes of one kind, in one request, but their moves; what fails. Of topics that are
        to be deleted those that are gone are no failure."""
        others = []
        if changes[0].kind is ChangeKind.DELETE:
            # Kafka's clients for Python delete by name alone: ids are asked for at the last moment.
            ids = self.ids([change.topic for change in changes])
            reason = "it was deleted and made again meanwhile"
            others = [
                TopicFailure(topic=each.topic, kind=each.kind, reason=reason)
                for each in changes
                if ids.get(each.topic) not in (None, each.topic_id)
            ]
            changes = [each for each in changes if ids.get(each.topic) == each.topic_id]
        failures = _failures(changes, self._requested(changes)) if changes else []
        return [*others, *failures]

    def _requested(self, changes: Sequence[TopicChange]) -> Mapping[str, Future[None]]:
        futures: Mapping[str, Future[None]]
        lists = {each.topic: [list(row) for row in each.added] for each in changes}
        match changes[0].kind:
            case ChangeKind.CREATE:
                new = [
                    NewTopic(n, len(x), replica_assignment=x, config=dict(self._configs.get(n, {})))
                    for n, x in lists.items()
                ]
                futures = self._admin.create_topics(new, **_TIMES)
            case ChangeKind.CHANGE:
                grown = [
                    NewPartitions(each.topic, len(each.after), replica_assignment=lists[each.topic])
                    for each in changes
                ]
                futures = self._admin.create_partitions(grown, **_TIMES)
            case ChangeKind.DELETE:
                futures = self._admin.delete_topics(list(lists), **_TIMES)
        return futures

    def _described(self, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """What Kafka says of topics, or its refusal, each."""
        for begin in range(0, len(names), TOPICS_MAX):
            futures = self._admin.describe_topics(
                TopicCollection(names[begin : begin + TOPICS_MAX]),
                request_timeout=REQUEST_SECONDS_MAX,
            )
            for name, future in futures.items():
                try:
                    yield name, future.result()
                except KafkaException as reason:
                    if reason.args[0].code() in _LOST:
                        raise ClientError(
                            f"Kafka at {address(self._client)} does not describe its topics: "
                            f"{error_text(reason)}; check that all of its brokers run"
                        ) from reason
                    yield name, reason


def _failures(
    changes: Sequence[TopicChange], futures: Mapping[str, Future[None]]
) -> list[TopicFailure]:
    failures = []
    for change in changes:
        try:
            futures[change.topic].result()
        except KafkaException as reason:
            code = reason.args[0].code()
            if code in _LOST:
                raise ClientError(
                    f"Kafka does not answer whether topic {change.topic} was made as mapped: "
                    f"{error_text(reason)}; check that its brokers run, and run this again"
                ) from reason
            failures.append(
                TopicFailure(
                    topic=change.topic,
                    kind=change.kind,
                    reason=error_text(reason),
                    is_overtaken=code in _OVERTAKEN,
                )
            )
    return failures


def _id_if_done(change: TopicChange, described: Any) -> str | None:
    """The id of a topic that a broker shows as planned, "" if deleted; None: it is not so yet."""
    is_deletion = change.kind is ChangeKind.DELETE
    if isinstance(described, KafkaException):
        is_gone = described.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        return "" if is_gone and is_deletion else None
    topic_id = str(described.topic_id)
    if is_deletion:
        return "" if topic_id != change.topic_id else None
    rows: Rows = tuple(tuple(node.id for node in each.replicas) for each in described.partitions)
    # One that is gone may be shown for a moment more by a broker that lags behind.
    return topic_id if change.is_done(rows) and topic_id != change.gone_id else None
