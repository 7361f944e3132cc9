"""What following brokers asks of Kafka: looks at a cluster, and one producer.

An election (`stream/kafka/election.py`) keeps two followers of a cluster apart. The leader writes
in transactions under one transactional id of the cluster's. Whoever is elected takes that id first,
which fences an older process and settles what it left open, and only then reads what was announced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from confluent_kafka import (
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
)
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import Event, SpuEvent
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.client.announced import AnnouncedOfCluster, EventPosition, position
from spu_assigner.stream.clusters.follow.decision import followed_clusters
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.kafka.acls import Role, follower_name
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection, address
from spu_assigner.stream.kafka.connection_diagnosis import (
    DiagnosedAdmin,
    UnreachableError,
    host_not_found,
)
from spu_assigner.stream.kafka.errors import (
    GRANTING,
    REQUEST_SECONDS_MAX,
    AccessError,
    ClientError,
    admin_result,
    error_text,
    is_denied,
)
from spu_assigner.stream.kafka.log_dirs import UnseenReplicas, replica_sizes, unseen_replicas
from spu_assigner.stream.kafka.retry import deliver, raise_fatal_cause, retry_until
from spu_assigner.stream.kafka.topic_admin import access_faults
from spu_assigner.stream.kafka.topics import (
    ASSIGNER_STATE,
    SPU_EVENTS,
    TOPIC_EVENTS,
    topic_name,
)

_Sent = TypeVar("_Sent", bound=Event)

LOOK_SECONDS_MAX: Final = 3.0  # of the first of two tries
TRANSACTION_SECONDS_MAX: Final = 15  # one that a dead leader left open holds back the job's reading
_FENCED: Final = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class FollowError(AssignerError):
    """Following cannot go on, and trying again would not help."""


class OvertakenError(AssignerError):
    """Another follower leads now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """What a cluster shows of itself: of fenced brokers nothing."""

    kafka_cluster: str
    racks: Mapping[int, str | None]


class WatchedCluster:
    """The cluster whose brokers are followed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._settings = connection.client()
        self._admin = DiagnosedAdmin(self._settings)

    def first_look(self) -> ClusterSnapshot:
        """As `look`, but a failure says what to do."""
        self._admin.metadata()
        return self.look()

    def look(self) -> ClusterSnapshot:
        """Ask, and once more by a new client.

        librdkafka asks the broker it took for the controller, and goes on asking it when it is
        down: only a new client looks for another one.

        Raises:
            UnreachableError: nothing can be seen.
        """
        cause = ""
        for seconds in (LOOK_SECONDS_MAX, REQUEST_SECONDS_MAX - LOOK_SECONDS_MAX):
            try:
                asked = self._admin.describe_cluster(request_timeout=seconds)
                found = asked.result(timeout=2 * seconds)
            except (KafkaException, TimeoutError) as reason:
                unknown = self._admin.unknown_hosts()
                cause = host_not_found(unknown) if unknown else error_text(reason)
                self._admin.close()
                self._admin = DiagnosedAdmin(self._settings)
            else:
                return ClusterSnapshot(
                    kafka_cluster=str(found.cluster_id or ""),
                    racks={int(node.id): node.rack or None for node in found.nodes},
                )
        raise UnreachableError(f"{address(self._settings)}: {cause}")

    def replicas_held(self) -> tuple[Counter[int], UnseenReplicas]:
        """How many replicas each broker holds; and which of them this user may not see.

        Raises:
            UnreachableError, ClientError: nothing can be seen.
        """
        found = self._admin.metadata()
        sizes = replica_sizes(self._connection, found.brokers)
        unseen = unseen_replicas(self._admin, sizes, found.brokers, found.topics)
        held = Counter(
            replica
            for topic in found.topics.values()
            for partition in topic.partitions.values()
            for replica in partition.replicas
        )
        held.update(broker for each in unseen.sizes.values() for broker in each)
        return held, unseen

    def close(self) -> None:
        self._admin.close()


class FencedProducer:
    """The leader's producer: what it sends together is there together, or not at all."""

    def __init__(self, connection: Connection, cluster_id: str) -> None:
        """Take the transactional id.

        Raises:
            FollowError: this user may not.
            ClientError: the broker does not answer.
        """
        self._prefix = connection.prefix
        self._topic = topic_name(SPU_EVENTS, prefix=self._prefix)  # that was written to last
        self._undelivered: KafkaError | None = None
        self._producer: Any = Producer(
            {
                **connection.client(),
                "transactional.id": follower_name(cluster_id, prefix=connection.prefix),
                "transaction.timeout.ms": TRANSACTION_SECONDS_MAX * 1000,
                "message.timeout.ms": TRANSACTION_SECONDS_MAX * 1000,
                "acks": "all",
                "linger.ms": 1,
                "log_level": 0,  # what goes wrong is raised
            }
        )
        with self._as_ours():
            retry_until(self._producer.init_transactions)

    def send(self, events: Sequence[_Sent]) -> list[tuple[_Sent, EventPosition]]:
        """Send events of one topic, in their order; where each lies then.

        Raises:
            OvertakenError: another follower has taken the id; nothing was sent.
            FollowError: this user may not.
            ClientError: it is not known whether they are there; who takes the id again can read it.
        """
        placed: list[tuple[_Sent, EventPosition]] = []
        self._undelivered = None
        with self._as_ours(), raise_fatal_cause(self._producer):
            self._producer.begin_transaction()
            for event in events:
                self._produce(event, placed)
            deliver(self._producer)
            retry_until(self._producer.commit_transaction)
        return placed

    def close(self) -> None:
        """Let go; what is open is aborted."""
        with suppress(KafkaException):
            self._producer.abort_transaction(0)

    def _produce(self, event: _Sent, placed: list[tuple[_Sent, EventPosition]]) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                placed.append((event, position(message)))
            elif self._undelivered is None and error.code() not in _PURGED:
                self._undelivered = error

        name = SPU_EVENTS if isinstance(event, SpuEvent) else TOPIC_EVENTS
        self._topic = topic_name(name, prefix=self._prefix)
        self._producer.produce(
            self._topic, encode_event(event), event.cluster_id.encode(), on_delivery=delivered
        )

    @contextmanager
    def _as_ours(self) -> Iterator[None]:
        """A client's error as ours."""
        try:
            yield
        except KafkaException as reason:
            error = self._undelivered or reason.args[0]
            if {error.code(), reason.args[0].code()} & _FENCED:
                raise OvertakenError(
                    "another follower has taken over; this one ends, one is enough"
                ) from reason
            kind = FollowError if is_denied(error) else ClientError
            raise kind(
                f"{self._topic} does not take events: {error_text(error)}; check that "
                "its brokers run and that this user may write to it"
            ) from reason


def require_rights(connection: Connection) -> None:
    """Return if this user may do with the topics what a follower does.

    Raises:
        AccessError: the user may not.
        ClientError: the broker does not answer.
    """
    with DiagnosedAdmin(connection.client()) as admin:
        admin.metadata()  # reports best why nobody answers
        faults = access_faults(admin, Role.FOLLOWER, prefix=connection.prefix)
    if faults:
        text = "; ".join(map(str, faults))
        raise AccessError(f"this user may not do what the follower does: {text}; {GRANTING}")


def require_cluster(known: AnnouncedOfCluster, kafka_cluster: str, *, address: str) -> None:
    """Return if the cluster's SPUs are, or may become, brokers of this Kafka cluster.

    Args:
        address: the option that names the Kafka cluster.

    Raises:
        FollowError: they are another one's; or there are none, and another cluster has these.
    """
    announced, mine = known.by_spu(), known.cluster_id
    others = [each for each in followed_clusters(announced) if each != kafka_cluster]
    if others:
        raise FollowError(
            f"SPUs of cluster {mine!r} are brokers of Kafka cluster {others[0]}, and this is "
            f"{kafka_cluster}; check {address}, or say --accept-cluster if they are to be those of "
            "this one now"
        )
    if not announced and (of := known.clusters_of(kafka_cluster)):
        raise FollowError(
            f"cluster {mine!r} has no SPUs, and the brokers of Kafka cluster {kafka_cluster} are "
            f"SPUs of cluster {listed([repr(each) for each in of])}; check --cluster, or say "
            "--accept-cluster if they are to be SPUs of both"
        )


class AnnouncedReader:
    """Reads what was announced of a cluster's SPUs, and goes on reading."""

    def __init__(self, connection: Connection, cluster_id: str) -> None:
        """Read all that there is.

        Raises:
            ClientError: the broker does not answer, or topics are missing.
        """
        self._events = Reader(connection, [SPU_EVENTS], from_beginning=True)
        try:
            begins = sum(begin for begin, _ in self._events.spans().values())
            self.origin = f"{_topic_id(connection)}.begin-{begins}"
            self.announced = AnnouncedOfCluster(cluster_id, origin=self.origin)
            with Reader(connection, [ASSIGNER_STATE], from_beginning=True) as state:
                for _, message in state.drain_messages():
                    self.announced.take_state(message)
            self.catch_up()
        except BaseException:
            self.close()
            raise

    def catch_up(self) -> None:
        """Read what has come since."""
        for _, message in self._events.drain_messages():
            self.announced.take_event(message)

    def close(self) -> None:
        self._events.__exit__(None, None, None)


def _topic_id(connection: Connection) -> str:
    """The beginning of the input topic's own id: one that is made again has another."""
    name = topic_name(SPU_EVENTS, prefix=connection.prefix)
    with DiagnosedAdmin(connection.client()) as admin:
        asked = admin.describe_topics(TopicCollection([name]), request_timeout=REQUEST_SECONDS_MAX)
        return str(admin_result(asked[name], f"{name} could not be described").topic_id)[:8]
