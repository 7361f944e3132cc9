"""What following asks of the Kafka cluster that events go to: what was announced; one producer.

An election (`stream/kafka/election.py`) keeps two followers of a cluster apart. The leader writes
in transactions under one transactional id of the cluster's. Whoever is elected takes that id first,
which fences an older process and settles what it left open, and only then reads what was announced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import Event, SpuEvent
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.client.announced import AnnouncedOfCluster, EventPosition, position
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
    AccessError,
    ClientError,
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
    """The leader's producer: what it sends together is there together, or not at all.

    Raises:
        OvertakenError: another follower has taken the id; nothing was sent.
        FollowError: this user may not.
        ClientError: it is not known whether they are there; who takes the id again can read it.
    """

    def __init__(self, connection: Connection, cluster_id: str) -> None:
        """Take the transactional id."""
        self._prefix = connection.prefix
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
        with _as_ours(topic_name(SPU_EVENTS, prefix=self._prefix), []):
            retry_until(self._producer.init_transactions)

    def send(self, events: Sequence[_Sent]) -> list[tuple[_Sent, EventPosition]]:
        """Send events of one topic, in their order; where each lies then."""
        is_of_spus = isinstance(events[0], SpuEvent)
        topic = topic_name(SPU_EVENTS if is_of_spus else TOPIC_EVENTS, prefix=self._prefix)
        placed: list[tuple[_Sent, EventPosition]] = []
        undelivered: list[KafkaError] = []
        with _as_ours(topic, undelivered), raise_fatal_cause(self._producer):
            self._producer.begin_transaction()
            for event in events:

                def delivered(
                    error: KafkaError | None, message: Message, event: _Sent = event
                ) -> None:
                    if error is None:
                        placed.append((event, position(message)))
                    elif error.code() not in _PURGED:
                        undelivered.append(error)

                key = event.cluster_id.encode()
                self._producer.produce(topic, encode_event(event), key, on_delivery=delivered)
            deliver(self._producer)
            retry_until(self._producer.commit_transaction)
        return placed

    def close(self) -> None:
        """Let go; what is open is aborted."""
        with suppress(KafkaException):
            self._producer.abort_transaction(0)


@contextmanager
def _as_ours(topic: str, undelivered: Sequence[KafkaError]) -> Iterator[None]:
    """A client's error as ours: that of the first message that was not delivered says most."""
    try:
        yield
    except KafkaException as reason:
        error = undelivered[0] if undelivered else reason.args[0]
        if {error.code(), reason.args[0].code()} & _FENCED:
            raise OvertakenError(
                "another follower has taken over; this one ends, one is enough"
            ) from reason
        kind = FollowError if is_denied(error) else ClientError
        raise kind(
            f"{topic} does not take events: {error_text(error)}; check that "
            "its brokers run and that this user may write to it"
        ) from reason


def require_rights(connection: Connection) -> None:
    """Raise AccessError if this user may not do with the topics what a follower does."""
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
    followed = {each.kafka_cluster for each in announced.values() if each.kafka_cluster}
    if others := sorted(followed - {kafka_cluster}):
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
        has_topics: whether the maps of topics are read as well.
    """

    def __init__(
        self, connection: Connection, cluster_id: str, *, has_topics: bool = False
    ) -> None:
        """Read all that there is."""
        self.maps: dict[str, ReplicaMap] = {}  # of living topics
        self.version = 0  # rises when maps have changed
        self._own = f"{cluster_id}/".encode()
        with ExitStack() as opened:
            self._events = opened.enter_context(
                Reader(connection, [SPU_EVENTS], from_beginning=True)
            )
            self._map_messages = None
            if has_topics:
                self._map_messages = opened.enter_context(
                    Reader(connection, [REPLICA_MAP], from_beginning=True)
                )
            self.announced = AnnouncedOfCluster(cluster_id)
            # Once: what becomes of SPUs later is in their events.
            with Reader(connection, [ASSIGNER_STATE], from_beginning=True) as state:
                for _, message in state.drain_messages():
                    self.announced.take_state(message)
            self.catch_up()
            self._opened = opened.pop_all()

    def catch_up(self) -> None:
        """Read what has come since."""
        for _, message in self._events.drain_messages():
            self.announced.take_event(message)
        latest: dict[bytes, Message] = {}
        for _, message in () if self._map_messages is None else self._map_messages.drain_messages():
            key = message.key() or b""
            if key.startswith(self._own):
                latest[key] = message
        for key, message in latest.items():
            record = checked_record(message, ReplicaMap, output_key)
            self.maps.pop(key.removeprefix(self._own).decode(), None)
            if record is not None and record.replicas is not None:
                self.maps[record.topic] = record
        self.version += bool(latest)

    def close(self) -> None:
        """End the clients."""
        self._opened.close()
