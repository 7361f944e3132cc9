"""What following asks of the Kafka cluster that events go to: what was announced; one producer.

An election (`stream/kafka/election.py`) keeps two followers of a cluster apart. The leader writes
in transactions under one transactional id of the cluster's. Whoever is elected takes that id first,
which fences an older process and settles what it left open, and only then reads what was announced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
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
from spu_assigner.core.base.records import ReplicaMap, SeenEntry
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.client.announced import AnnouncedOfCluster, EventPosition, position
from spu_assigner.stream.clusters.follow.brokers import followed_clusters
from spu_assigner.stream.clusters.follow.topic_facts import PublishedMaps
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.job.shard.clusters import output_key
from spu_assigner.stream.job.shard.published import checked_record
from spu_assigner.stream.kafka.acls import Role, follower_name
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.config.settings import TARGET_SERVERS_VARIABLE
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.errors import (
    GRANTING,
    REQUEST_SECONDS_MAX,
    AccessError,
    ClientError,
    admin_result,
    error_text,
    is_denied,
)
from spu_assigner.stream.kafka.retry import deliver, raise_fatal_cause, retry_until
from spu_assigner.stream.kafka.topic_admin import access_faults
from spu_assigner.stream.kafka.topics import (
    ASSIGNER_STATE,
    REPLICA_MAP,
    SPU_EVENTS,
    TOPIC_EVENTS,
    topic_name,
)

_Sent = TypeVar("_Sent", bound=Event)

TRANSACTION_SECONDS_MAX: Final = 15  # one that a dead leader left open holds back the job's reading
_FENCED: Final = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class FollowError(AssignerError):
    """Following cannot go on, and trying again would not help."""


class OvertakenError(AssignerError):
    """Another follower leads now."""


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


def require_cluster(known: AnnouncedOfCluster, kafka_cluster: str) -> None:
    """Return if the cluster's SPUs are, or may become, brokers of this Kafka cluster.

    Raises:
        FollowError: they are another one's; or there are none, and another cluster has these.
    """
    announced, mine = known.by_spu(), known.cluster_id
    others = [each for each in followed_clusters(announced) if each != kafka_cluster]
    if others:
        raise FollowError(
            f"SPUs of cluster {mine!r} are brokers of Kafka cluster {others[0]}, and this is "
            f"{kafka_cluster}; check its address ({TARGET_SERVERS_VARIABLE}), or say "
            "--accept-cluster if they are to be those of this one now"
        )
    if not announced and (of := known.clusters_of(kafka_cluster)):
        raise FollowError(
            f"cluster {mine!r} has no SPUs, and the brokers of Kafka cluster {kafka_cluster} are "
            f"SPUs of cluster {listed([repr(each) for each in of])}; check --cluster, or say "
            "--accept-cluster if they are to be SPUs of both"
        )


class AnnouncedReader:
    """Reads what was announced of a cluster's SPUs, and goes on reading.

    Args:
        has_topics: whether the maps of topics, and what the job remembers, are read as well.
    """

    def __init__(
        self, connection: Connection, cluster_id: str, *, has_topics: bool = False
    ) -> None:
        """Read all that there is.

        Raises:
            ClientError: the broker does not answer, or topics are missing.
            DamagedOutputError: a value is none that the job has written.
        """
        self._kinds = {REPLICA_MAP: ReplicaMap, ASSIGNER_STATE: SeenEntry} if has_topics else {}
        own = f"{cluster_id}/"
        self._begins = {REPLICA_MAP: own.encode(), ASSIGNER_STATE: f"{own}seen/".encode()}
        self._maps: dict[str, ReplicaMap] = {}
        self._seen: dict[int, tuple[int, ...]] = {}  # hashes of event ids, by block
        self.version = 0  # rises when maps, or what the job remembers, have changed
        with ExitStack() as unless_whole:
            self._events = Reader(connection, [SPU_EVENTS], from_beginning=True)
            unless_whole.push(self._events)
            names = [*self._kinds] or [ASSIGNER_STATE]
            self._state = Reader(connection, names, from_beginning=True)
            unless_whole.push(self._state)
            begins = sum(begin for begin, _ in self._events.spans().values())
            self.origin = f"{_topic_id(connection)}.begin-{begins}"
            self.announced = AnnouncedOfCluster(cluster_id, origin=self.origin)
            self._read_state(is_first=True)
            self._read_events()
            unless_whole.pop_all()

    def catch_up(self) -> None:
        """Read what has come since."""
        self._read_events()
        if self._kinds:
            self._read_state()

    def published(self) -> PublishedMaps:
        """The maps, and what the job remembers, as read so far."""
        remembered = frozenset(each for hashes in self._seen.values() for each in hashes)
        return PublishedMaps(maps=self._maps, remembered=remembered)

    def close(self) -> None:
        """End the clients."""
        self._events.__exit__(None, None, None)
        self._state.__exit__(None, None, None)

    def _read_events(self) -> None:
        for _, message in self._events.drain_messages():
            self.announced.take_event(message)

    def _read_state(self, *, is_first: bool = False) -> None:
        """Of SPUs only at first: what becomes of them later is in their events."""
        latest: dict[tuple[str, bytes], Message] = {}
        for name, message in self._state.drain_messages():
            key = message.key() or b""
            if is_first and name == ASSIGNER_STATE:
                self.announced.take_state(message)
            if key.startswith(self._begins[name]):
                latest[name, key] = message
        for (name, key), message in latest.items() if self._kinds else ():
            record: Any = checked_record(message, self._kinds[name], output_key)
            if isinstance(record, SeenEntry):
                self._seen[record.block] = record.hashes
            elif isinstance(record, ReplicaMap) and record.replicas is not None:
                self._maps[record.topic] = record
            else:
                self._maps.pop(key.removeprefix(self._begins[name]).decode(), None)
        self.version += bool(latest)


def _topic_id(connection: Connection) -> str:
    """The beginning of the input topic's own id: one that is made again has another."""
    name = topic_name(SPU_EVENTS, prefix=connection.prefix)
    with DiagnosedAdmin(connection.client()) as admin:
        asked = admin.describe_topics(TopicCollection([name]), request_timeout=REQUEST_SECONDS_MAX)
        return str(admin_result(asked[name], f"{name} could not be described").topic_id)[:8]
