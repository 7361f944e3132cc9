"""What adopting asks of Kafka: the topics as they are there, and their maps as the job published.

Kafka's topics are to be looked at before the maps are read: what `apply` made in between is then
mapped, or not seen yet. The other way round it would look like a topic that others made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Message
from spu_assigner.core.base.records import ReplicaMap, SeenEntry
from spu_assigner.stream.clusters.follow.adoption import FoundTopic, PublishedMaps
from spu_assigner.stream.clusters.plan.model import KafkaCluster
from spu_assigner.stream.clusters.plan.target_cluster import Target
from spu_assigner.stream.job.shard.clusters import output_key
from spu_assigner.stream.job.shard.published import checked_record
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import GRANTING, AccessError, ClientError
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, REPLICA_MAP

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

REQUEST_MS_MAX: Final = 5_000  # the controller answers in milliseconds
BOOTSTRAP_MS_MAX: Final = 30_000
TRIES_MAX: Final = 3


class WatchedTopics:
    """The topics of a Kafka cluster.

    Args:
        connection: how it is reached.
        trusts_lists: the id of a topic whose lists have not changed is not asked for again.
    """

    def __init__(self, connection: Connection, *, trusts_lists: bool = False) -> None:
        self.target = Target(connection)
        self.cluster = KafkaCluster(kafka_id="", brokers=(), topics={})  # as it was seen last
        self._connection = connection
        self._trusts_lists = trusts_lists
        self._admin: KafkaAdminClient | None = None  # librdkafka cannot list reassignments

    def look(self, is_meant: Callable[[str], bool]) -> dict[str, FoundTopic]:
        """All topics, by name; the id only of those that are meant.

        Raises:
            TargetError, ClientError: Kafka does not show them.
            AccessError: this user may not see what is being reassigned.
            UnreachableError: no broker answers.
        """
        reassigned = self._reassigned()  # First: one that ends meanwhile is seen at the next look.
        before, now = self.cluster, self.target.look(())
        known = {
            name: topic_id
            for name, topic_id in before.ids.items()
            if self._trusts_lists and now.rows(name) == before.rows(name)
        }
        unknown = [name for name in now.topics if name not in known and is_meant(name)]
        self.cluster = replace(now, ids={**known, **self.target.ids(unknown)})
        return {
            name: FoundTopic(
                rows=tuple(each.replicas for each in partitions),
                topic_id=self.cluster.ids.get(name, ""),
                reassigned=tuple(sorted(reassigned.get(name, ()))),
            )
            for name, partitions in self.cluster.topics.items()
            if name in self.cluster.ids or not is_meant(name)  # Else it was deleted meanwhile.
        }

    def require_sight(self, topics: Sequence[str]) -> None:
        """Return if topics that are not shown are not there.

        Raises:
            TargetError: some are hidden from this user.
        """
        self.target.look(topics)

    def close(self) -> None:
        self.target.__exit__()
        self._close_admin()

    def _reassigned(self) -> dict[str, list[int]]:
        """By topic, the partitions that Kafka is moving.

        Asked again by a new client: one goes on asking the broker that it took for the
        controller, for as long as that is down.
        """
        from kafka.admin import KafkaAdminClient
        from kafka.errors import ClusterAuthorizationFailedError, KafkaError

        cause: Exception | None = None
        for _ in range(TRIES_MAX):
            try:
                if self._admin is None:
                    self._admin = KafkaAdminClient(
                        request_timeout_ms=REQUEST_MS_MAX,
                        bootstrap_timeout_ms=BOOTSTRAP_MS_MAX,
                        **self._connection.kafka_python(),
                    )
                found: dict[str, list[int]] = {}
                for place in self._admin.list_partition_reassignments():
                    found.setdefault(place.topic, []).append(place.partition)
            except ClusterAuthorizationFailedError as reason:
                raise AccessError(
                    f"this user may not see what Kafka reassigns (Describe the cluster); {GRANTING}"
                ) from reason
            except (KafkaError, OSError, RuntimeError) as reason:  # The last: no controller.
                cause = reason
                self._close_admin()
            else:
                return found
        raise ClientError(
            f"Kafka at {self._connection.bootstrap_servers} does not say which partitions it "
            f"reassigns: {cause}; check that all of its brokers run"
        ) from cause

    def _close_admin(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            with suppress(Exception):  # It is not needed any more, whatever has become of it.
                admin.close()


class PublishedReader:
    """Reads what the job has published of a cluster's topics, and goes on reading."""

    def __init__(self, connection: Connection, cluster_id: str) -> None:
        """Read all that there is.

        Raises:
            ClientError: the broker does not answer, or topics are missing.
            DamagedOutputError: a value is none that the job has written.
        """
        own = f"{cluster_id}/"
        self._begins = {REPLICA_MAP: own.encode(), ASSIGNER_STATE: f"{own}seen/".encode()}
        self._maps: dict[str, ReplicaMap] = {}
        self._seen: dict[int, tuple[int, ...]] = {}  # hashes of event ids, by block
        self._reader = Reader(connection, list(self._begins), from_beginning=True)
        try:
            self.catch_up()
        except BaseException:
            self.close()
            raise

    def catch_up(self) -> bool:
        """Read what has come since; whether there was anything."""
        latest: dict[tuple[str, bytes], Message] = {}
        for name, message in self._reader.drain_messages():
            key = message.key() or b""
            if key.startswith(self._begins[name]):
                latest[name, key] = message
        for (name, key), message in latest.items():
            record: Any = checked_record(message, _KINDS[name], output_key)
            if isinstance(record, SeenEntry):
                self._seen[record.block] = record.hashes
            elif isinstance(record, ReplicaMap) and record.replicas is not None:
                self._maps[record.topic] = record
            else:
                self._maps.pop(key.removeprefix(self._begins[name]).decode(), None)
        return bool(latest)

    def now(self) -> PublishedMaps:
        """All that was read so far."""
        remembered = frozenset(each for hashes in self._seen.values() for each in hashes)
        return PublishedMaps(maps=self._maps, remembered=remembered)

    def close(self) -> None:
        self._reader.__exit__(None, None, None)


_KINDS: Final[dict[str, type[ReplicaMap] | type[SeenEntry]]] = {
    REPLICA_MAP: ReplicaMap,
    ASSIGNER_STATE: SeenEntry,
}
