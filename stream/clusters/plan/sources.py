"""What a plan is made of: maps, topics, records of them; and a plan, made now or saved before."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from spu_assigner.stream.clusters.plan.applied import (
    AppliedRecords,
    Notes,
    notes,
    open_intents,
    resolved,
)
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.clusters.plan.decision import make_plan, remaining
from spu_assigner.stream.clusters.plan.model import (
    ChangeKind,
    KafkaCluster,
    Maps,
    TopicsPlan,
    Wanted,
)
from spu_assigner.stream.clusters.plan.outlook import (
    PlanOutlook,
    out_of_sync,
    plan_outlook,
    reassigned_topics,
    unmapped_topics,
    unmatched_globs,
)
from spu_assigner.stream.clusters.plan.plan_file import require_fresh
from spu_assigner.stream.clusters.plan.target_cluster import Target
from spu_assigner.stream.clusters.plan.wanted_maps import maps_of_file, matcher, read_maps
from spu_assigner.stream.kafka.config.command_options import reading
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.topics import APPLIED_TOPICS, TOPICS, topic_name

LOOKS_MAX: Final = 3  # at topics that are recorded and not seen: another run may just make them
LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What is to be planned."""

    connection: Connection  # to the job's topics
    target_connection: Connection | None  # to another Kafka cluster
    cluster_id: str
    file: Path | None  # of maps, instead of the job's
    globs: tuple[str, ...] = ()
    delete: bool = False
    recreate: bool = False
    foreign: tuple[str, ...] = ()  # globs

    def target(self) -> Target:
        """The Kafka cluster whose topics are to be as mapped."""
        return Target(self.target_connection or self.connection)

    def ledger_connection(self) -> Connection:
        """To the Kafka cluster of the mapped topics, with the prefix of the job's topics."""
        return self.connection.to_target(self.target_connection)

    def own_topics(self, kafka_id: str) -> frozenset[str]:
        """The product's topics in the target; the job's may be there where that is not known."""
        is_elsewhere = False
        if self.target_connection is not None and self.file is None:
            with Target(self.connection) as mine:
                is_elsewhere = mine.kafka_id() != kafka_id
        names = [APPLIED_TOPICS] if is_elsewhere else [spec.name for spec in TOPICS]
        return frozenset(topic_name(name, prefix=self.connection.prefix) for name in names)

    def maps(self) -> Maps:
        """The maps as they are now."""
        if self.file is None:
            return read_maps(self.connection, self.cluster_id, matcher(self.globs))
        with reading(self.file) as source:
            return maps_of_file(source, self.file, self.cluster_id, matcher(self.globs))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSources:
    """What a plan is made of besides the maps, and what is recorded of it."""

    cluster: KafkaCluster
    maps: Maps
    applied: AppliedRecords  # with what runs that broke off have created
    ledger: AppliedLedger
    notes: Notes  # what apply records before it does anything


def plan_now(request: PlanRequest, target: Target) -> tuple[TopicsPlan, PlanSources]:
    """A plan of the maps and the topics as they are now.

    Raises:
        MapsError, ClientError, TargetError, UnreachableError: one of them cannot be read.
    """
    maps = request.maps()
    found = find(request, target, maps, maps.topics)
    plan = make_plan(
        maps,
        found.cluster,
        applied=found.applied,
        delete=request.delete,
        recreate=request.recreate,
        is_foreign=matcher(request.foreign) if request.foreign else lambda _: False,
    )
    return sized(plan, target), found


def outlook_now(
    plan: TopicsPlan,
    found: PlanSources,
    request: PlanRequest,
    target: Target,
    *,
    throttle: int | None = None,
    with_load: bool = True,
) -> PlanOutlook:
    """What a plan means for the brokers.

    Args:
        throttle: bytes per second to and from each broker.
        with_load: whether the load of brokers is counted; else no `brokers` are there, and of what
            this user may not see only topics that could be mapped.
    """
    outlook = PlanOutlook(
        throttle=throttle,
        unmapped=unmapped_topics(found.maps, found.cluster, matcher(request.globs)),
    )
    cluster = found.cluster
    sizes = target.replica_sizes(cluster.brokers)
    unseen = target.unseen(cluster, sizes)
    if with_load:
        outlook = plan_outlook(
            plan, cluster, sizes, unmapped=outlook.unmapped, throttle=throttle, unseen=unseen
        )
    else:
        is_meant = matcher(request.globs)
        unseen = unseen.of(lambda name: is_meant(name) and cluster.reserved(name) is None)
        outlook = replace(outlook, unseen=unseen)
    return replace(
        outlook,
        unmatched=unmatched_globs(request.globs, found.maps, found.cluster),
        reassigned=reassigned_topics(plan, found.maps),
        out_of_sync=out_of_sync(found.maps, found.cluster),
    )


def saved_plan(
    plan: TopicsPlan, request: PlanRequest, target: Target
) -> tuple[TopicsPlan, PlanSources]:
    """What is still to be done of a plan that was kept.

    Raises:
        StalePlanError: something that it speaks of has changed.
    """
    planned = {
        **{name: Wanted(replicas=rows) for name, rows in plan.unchanged.items()},
        **{change.topic: Wanted(replicas=change.after or None) for change in plan.changes},
    }
    maps = request.maps() if plan.is_live else Maps(cluster_id=plan.cluster_id, topics=planned)
    found = find(request, target, maps, plan.maps)
    require_fresh(plan, found.cluster, maps if plan.is_live else None, found.applied)
    return sized(remaining(plan, found.cluster), target), found


def find(request: PlanRequest, target: Target, maps: Maps, names: Collection[str]) -> PlanSources:
    """These topics as they are, and what is recorded of them.

    The topics are looked at before the records are read: what another run makes meanwhile is then
    recorded, or not seen yet.
    """
    connection = request.ledger_connection()
    records = topic_name(APPLIED_TOPICS, prefix=connection.prefix)
    mapped = {name for name, wanted in maps.topics.items() if wanted.replicas is not None}
    topics = [name for name in names if name in mapped]
    deleted = [name for name in names if name not in mapped]

    def look() -> KafkaCluster:
        return target.look([*topics, records], deleted=deleted)

    cluster = look()
    ledger = AppliedLedger(connection, maps.cluster_id, is_there=records in cluster.topics)
    applied = ledger.read()
    for _ in range(LOOKS_MAX):
        if all(name in cluster.topics or not applied.gone_id(name) for name in topics):
            break
        time.sleep(LOOK_SECONDS)
        cluster = look()
    cluster = replace(cluster, own=request.own_topics(cluster.kafka_id))
    now_ms = int(time.time() * 1000)
    untouched = target.untouched(cluster, open_intents(applied, cluster))
    applied, settled = resolved(applied, cluster, untouched=untouched, now_ms=now_ms)
    noted = notes(maps, cluster, applied, now_ms=now_ms)
    noted = replace(noted, records=(*settled, *noted.records))
    return PlanSources(cluster=cluster, maps=maps, applied=applied, ledger=ledger, notes=noted)


def sized(plan: TopicsPlan, target: Target) -> TopicsPlan:
    """The plan with how much data its deletions concern, as it is now."""
    deletes = plan.of(ChangeKind.DELETE)
    sizes = target.sizes(deletes)
    changes = (replace(change, size=sizes.get(change.topic)) for change in plan.changes)
    return replace(plan, changes=tuple(changes))
