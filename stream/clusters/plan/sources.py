"""What a plan is made of: maps, topics, records of them; and a plan, made now or saved before."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from spu_assigner.stream.clusters.plan.applied import (
    AppliedRecords,
    Notes,
    notes,
    resolved,
    seen,
)
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.clusters.plan.decision import make_plan, rest_of
from spu_assigner.stream.clusters.plan.load import plan_load
from spu_assigner.stream.clusters.plan.model import (
    ChangeKind,
    KafkaCluster,
    Maps,
    TopicsPlan,
    Wanted,
)
from spu_assigner.stream.clusters.plan.target_cluster import Target
from spu_assigner.stream.clusters.plan.wanted_maps import maps_of_events, matcher, read_maps
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import ClientError
from spu_assigner.stream.kafka.topics import APPLIED_TOPICS, TOPICS, topic_name

LOOKS_MAX: Final = 3  # at topics that are recorded and not seen: another run may just make them
LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What is to be planned."""

    connection: Connection  # to the job's topics
    target_connection: Connection | None  # to another Kafka cluster
    cluster_id: str
    file: Path | None = None  # of events, whose maps are meant instead of the job's
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

    def is_foreign(self, topic: str) -> bool:
        """Whether a topic may be changed though `apply` did not make it."""
        return bool(self.foreign) and matcher(self.foreign)(topic)

    def maps(self, saved: TopicsPlan | None = None) -> Maps:
        """The maps as they are now; of a saved plan those that it speaks of."""
        if saved is not None:
            lists = {**saved.unchanged, **{each.topic: each.after for each in saved.changes}}
            if saved.maps_from == "kafka":
                return read_maps(self.connection, saved.cluster_id, lists.__contains__)
            topics = {name: Wanted(replicas=rows or None) for name, rows in lists.items()}
            return Maps(cluster_id=saved.cluster_id, topics=topics, is_live=False)
        if self.file is None:
            return read_maps(self.connection, self.cluster_id, matcher(self.globs))
        return maps_of_events(self.file, self.cluster_id, matcher(self.globs))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSources:
    """What a plan is made of besides the maps, and what is recorded of it."""

    cluster: KafkaCluster
    maps: Maps
    applied: AppliedRecords  # with what runs that broke off have created
    ledger: AppliedLedger
    notes: Notes  # what apply records before it does anything


def plan_now(
    request: PlanRequest, target: Target, saved: TopicsPlan | None = None
) -> tuple[TopicsPlan, PlanSources]:
    """A plan of the maps and the topics as they are now.

    The topics are looked at before the records are read: what another run makes meanwhile is then
    recorded, or not seen yet.
    """
    maps, connection = request.maps(saved), request.ledger_connection()
    records = topic_name(APPLIED_TOPICS, prefix=connection.prefix)
    topics = [name for name, wanted in maps.topics.items() if wanted.replicas is not None]
    deleted = maps.topics.keys() - {*topics}
    cluster = target.look([*topics, records], deleted=deleted)
    ledger = AppliedLedger(connection, maps.cluster_id, is_there=records in cluster.topics)
    applied = ledger.read()
    for _ in range(LOOKS_MAX):
        if all(name in cluster.topics or not applied.gone_id(name) for name in topics):
            break
        time.sleep(LOOK_SECONDS)
        cluster = target.look([*topics, records], deleted=deleted)
    cluster = replace(cluster, own=request.own_topics(cluster.kafka_id))
    now_ms = int(time.time() * 1000)
    untouched = partial(target.untouched, cluster)
    applied, settled = resolved(applied, cluster, untouched, now_ms=now_ms)
    noted = notes(maps, cluster, applied, now_ms=now_ms)
    noted = replace(noted, records=(*settled, *noted.records))
    foreign = {change.topic for change in saved.changes} if saved is not None else set()
    plan = make_plan(
        maps,
        cluster,
        applied=applied,
        delete=request.delete or saved is not None,
        recreate=request.recreate if saved is None else saved.recreate,
        is_foreign=lambda topic: topic in foreign or request.is_foreign(topic),
        globs=request.globs,
    )
    if saved is not None:
        plan = rest_of(saved, plan, cluster)
    found = PlanSources(cluster=cluster, maps=maps, applied=applied, ledger=ledger, notes=noted)
    return sized(plan, target), found


def costed_plan(request: PlanRequest) -> TopicsPlan:
    """A plan with what it costs; topics that are as mapped are recorded as seen."""
    with request.target() as target:
        plan, found = plan_now(request, target)
        if found.ledger.is_there:
            with suppress(ClientError):  # A plan is as good without it.
                found.ledger.record(seen(found.notes, found.applied))
        return with_load(plan, found, request, target)


def with_load(
    plan: TopicsPlan, found: PlanSources, request: PlanRequest, target: Target
) -> TopicsPlan:
    """The plan with what it costs, and what this user may not see."""
    cluster = found.cluster
    sizes, unseen = target.held(cluster)
    load = plan_load(plan, cluster, sizes, unseen)
    if not plan.changes:  # Then only topics that could be mapped are of concern.
        is_meant = matcher(request.globs)
        meant = {
            at: each
            for at, each in unseen.sizes.items()
            if is_meant(at[0]) and cluster.reserved(at[0]) is None
        }
        unseen = replace(unseen, sizes=meant)
    return replace(plan, load=load, unseen=unseen.summary)


def sized(plan: TopicsPlan, target: Target) -> TopicsPlan:
    """The plan with how much data its deletions concern, as it is now."""
    deletes = {change.topic: change for change in target.sized(plan.of(ChangeKind.DELETE))}
    return replace(plan, changes=tuple(deletes.get(each.topic, each) for each in plan.changes))
