"""The Kafka cluster that is watched: its brokers with their racks, and its topics.

Kafka's topics are to be looked at before the maps are read: what `apply` made in between is then
mapped, or not seen yet. The other way round it would look like a topic that others made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from confluent_kafka import KafkaException
from spu_assigner.stream.clusters.follow.topic_facts import FoundTopic
from spu_assigner.stream.clusters.moves.reassigning import Reassigner
from spu_assigner.stream.clusters.plan.model import KafkaCluster
from spu_assigner.stream.clusters.plan.target_cluster import Target
from spu_assigner.stream.kafka.config.connection import Connection, address
from spu_assigner.stream.kafka.connection_diagnosis import (
    DiagnosedAdmin,
    UnreachableError,
    host_not_found,
)
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX, ClientError, error_text

LOOK_SECONDS_MAX: Final = 3.0  # of the first of two tries


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """What a cluster shows of its brokers: of fenced ones nothing."""

    kafka_cluster: str
    racks: Mapping[int, str | None]


class WatchedCluster:
    """Looks at a Kafka cluster."""

    def __init__(self, connection: Connection) -> None:
        self.cluster = KafkaCluster(kafka_id="", brokers=(), topics={})  # topics, as seen last
        self.connection = connection
        self._settings = connection.client()
        self._admin = DiagnosedAdmin(self._settings)
        self._opened = ExitStack()

    def first_look(self) -> ClusterSnapshot:
        """As `look`, but a failure says what to do."""
        self._admin.metadata()
        return self.look()

    def look(self) -> ClusterSnapshot:
        """The brokers as they are now.

        librdkafka asks the broker it took for the controller, and goes on asking it when it is
        down: only a new client looks for another one. UnreachableError if nothing can be seen.
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

    @cached_property
    def target(self) -> Target:
        """The same cluster, as `plan` and `apply` ask it."""
        return self._opened.enter_context(Target(self.connection))

    @cached_property
    def reassigner(self) -> Reassigner:
        """The same, as what moves partitions asks it."""
        return self._opened.enter_context(Reassigner(self.connection))

    def topics(self, is_meant: Callable[[str], bool]) -> dict[str, FoundTopic]:
        """All topics, by name; the id only of those that are meant."""
        ongoing = self.reassigner.ongoing()  # First: what ends meanwhile is seen at the next look.
        before, now = self.cluster, self.target.look(())
        # A topic whose lists have not changed has not changed its id: there may be thousands.
        known = {
            name: each for name, each in before.ids.items() if now.rows(name) == before.rows(name)
        }
        unknown = [name for name in now.topics if name not in known and is_meant(name)]
        self.cluster = replace(now, ids={**known, **self.target.ids(unknown)})
        reassigned: dict[str, list[int]] = {}
        for name, number in sorted(ongoing):
            reassigned.setdefault(name, []).append(number)
        return {
            name: FoundTopic(
                rows=tuple(each.replicas for each in partitions),
                topic_id=self.cluster.ids.get(name, ""),
                reassigned=tuple(reassigned.get(name, ())),
            )
            for name, partitions in self.cluster.topics.items()
            if name in self.cluster.ids or not is_meant(name)  # Else it was deleted meanwhile.
        }

    def untouched(self, topics: Sequence[str]) -> Collection[str] | None:
        """Those of the topics to which nothing was ever written; None: it is not known now."""
        try:
            return self.target.untouched(self.cluster, topics)
        except ClientError:  # One that was just made has no leader yet.
            return None

    def close(self) -> None:
        """End all clients."""
        self._admin.close()
        self._opened.close()
