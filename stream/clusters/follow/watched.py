"""The Kafka cluster that is watched: its brokers with their racks, and its topics.

Kafka's topics are to be looked at before the maps are read: what `apply` made in between is then
mapped, or not seen yet. The other way round it would look like a topic that others made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException
from spu_assigner.stream.clusters.follow.topic_facts import FoundTopic
from spu_assigner.stream.clusters.plan.model import KafkaCluster, TargetError
from spu_assigner.stream.clusters.plan.target_cluster import Target
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
    error_text,
)
from spu_assigner.stream.kafka.log_dirs import UnseenReplicas, replica_sizes, unseen_replicas

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

LOOK_SECONDS_MAX: Final = 3.0  # of the first of two tries
REQUEST_MS_MAX: Final = 5_000  # the controller answers in milliseconds
BOOTSTRAP_MS_MAX: Final = 30_000
TRIES_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """What a cluster shows of its brokers: of fenced ones nothing."""

    kafka_cluster: str
    racks: Mapping[int, str | None]


class WatchedCluster:
    """Looks at a Kafka cluster.

    Args:
        trusts_lists: the id of a topic whose lists have not changed is not asked for again.
    """

    def __init__(self, connection: Connection, *, trusts_lists: bool = False) -> None:
        self.cluster = KafkaCluster(kafka_id="", brokers=(), topics={})  # topics, as seen last
        self._connection = connection
        self._trusts_lists = trusts_lists
        self._settings = connection.client()
        self._admin = DiagnosedAdmin(self._settings)
        self._target: Target | None = None
        self._python_admin: KafkaAdminClient | None = None  # librdkafka lists no reassignments

    def first_look(self) -> ClusterSnapshot:
        """As `look`, but a failure says what to do."""
        self._admin.metadata()
        return self.look()

    def look(self) -> ClusterSnapshot:
        """The brokers as they are now.

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

    @property
    def target(self) -> Target:
        """The same cluster, as `plan` and `apply` ask it."""
        if self._target is None:
            self._target = Target(self._connection)
        return self._target

    def topics(self, is_meant: Callable[[str], bool]) -> dict[str, FoundTopic]:
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

    def untouched(self, topics: Sequence[str]) -> Collection[str] | None:
        """Those of the topics to which nothing was ever written; None: it is not known now."""
        try:
            return self.target.untouched(self.cluster, topics)
        except TargetError:  # One that was just made has no leader yet.
            return None

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
        """End all clients."""
        self._admin.close()
        if self._target is not None:
            self._target.__exit__()
        self._close_python_admin()

    def _reassigned(self) -> dict[str, list[int]]:
        """By topic, the partitions that Kafka is moving; asked again by a new client, as `look`."""
        from kafka.admin import KafkaAdminClient
        from kafka.errors import ClusterAuthorizationFailedError, KafkaError

        cause: Exception | None = None
        for _ in range(TRIES_MAX):
            try:
                if self._python_admin is None:
                    self._python_admin = KafkaAdminClient(
                        request_timeout_ms=REQUEST_MS_MAX,
                        bootstrap_timeout_ms=BOOTSTRAP_MS_MAX,
                        **self._connection.kafka_python(),
                    )
                found: dict[str, list[int]] = {}
                for place in self._python_admin.list_partition_reassignments():
                    found.setdefault(place.topic, []).append(place.partition)
            except ClusterAuthorizationFailedError as reason:
                raise AccessError(
                    f"this user may not see what Kafka reassigns (Describe the cluster); {GRANTING}"
                ) from reason
            except (KafkaError, OSError, RuntimeError) as reason:  # The last: no controller.
                cause = reason
                self._close_python_admin()
            else:
                return found
        raise ClientError(
            f"Kafka at {self._connection.bootstrap_servers} does not say which partitions it "
            f"reassigns: {cause}; check that all of its brokers run"
        ) from cause

    def _close_python_admin(self) -> None:
        admin, self._python_admin = self._python_admin, None
        if admin is not None:
            with suppress(Exception):  # It is not needed any more, whatever has become of it.
                admin.close()
