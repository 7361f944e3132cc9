"""What following reads of the Kafka cluster that events go to: what was announced, and maps."""

from __future__ import annotations

from contextlib import ExitStack

from confluent_kafka import Message
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.stream.client.announced import AnnouncedOfCluster
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.job.shard.clusters import output_key
from spu_assigner.stream.job.shard.published import checked_record
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.config.settings import TARGET_SERVERS_VARIABLE
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, REPLICA_MAP, SPU_EVENTS


class FollowError(AssignerError):
    """Following cannot go on, and trying again would not help."""


def require_cluster(known: AnnouncedOfCluster, kafka_cluster: str) -> None:
    """Return if the cluster's SPUs are, or may become, brokers of this Kafka cluster."""
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
    """Reads what was announced of a cluster's SPUs, and goes on reading."""

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
