"""What `plan` and `apply` record of topics that they find, and of creations that broke off.

Pure functions. Before it creates a topic `apply` records an INTENT under a key of its own; where
the run ended before the creation was recorded, the next one resolves it. The topic counts as
created only if it has exactly the intended lists, nothing was ever written to it, and the intent is
fresh: then no data can be concerned. Otherwise, with the intended lists, it counts as found.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.plan.applied import AppliedRecords, rows_digest
from spu_assigner.stream.plan.model import (
    ChangeKind,
    KafkaCluster,
    Maps,
    TopicsPlan,
    is_first_seen,
    reserved,
)

INTENT_SECONDS_MAX: Final = 3_600  # a run that broke off is repeated sooner, or it is no repetition


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What is to be recorded of topics besides those that are created or deleted now."""

    records: tuple[AppliedTopic, ...] = ()
    forgotten: tuple[str, ...] = ()  # mapped no more, and not in Kafka

    def __bool__(self) -> bool:
        return bool(self.records or self.forgotten)


def open_intents(applied: AppliedRecords, cluster: KafkaCluster) -> list[str]:
    """Topics that a run which broke off may have created: they are as it intended."""
    return [
        topic
        for topic, intent in applied.intents.items()
        if (rows := cluster.rows(topic)) is not None
        and rows_digest(rows) == intent.lists
        and topic in cluster.ids
        and not applied.is_recorded(topic, cluster.ids[topic])
    ]


def resolved(
    applied: AppliedRecords, cluster: KafkaCluster, *, untouched: Collection[str], now_ms: int
) -> tuple[AppliedRecords, tuple[AppliedTopic, ...]]:
    """What runs that broke off have created; with the records that say so, which are not written.

    Args:
        untouched: topics of `open_intents` to which nothing was ever written.
    """
    found = []
    for topic in open_intents(applied, cluster):
        intent = applied.intents[topic]
        is_fresh = abs(now_ms - intent.recorded_at) <= INTENT_SECONDS_MAX * 1000
        origin = Origin.CREATED if is_fresh and topic in untouched else Origin.FOUND
        found.append(
            replace(intent, origin=origin, topic_id=cluster.ids[topic], recorded_at=now_ms)
        )
    records = {**applied.records, **{each.topic: each for each in found}}
    return replace(applied, records=records), tuple(found)


def notes(maps: Maps, cluster: KafkaCluster, applied: AppliedRecords, *, now_ms: int) -> Notes:
    """What `apply` is to record of topics as they are before it changes anything.

    Topics whose id is not known in `cluster` are left out.
    """
    records = []
    forgotten = []
    for name, wanted in sorted(maps.topics.items()):
        topic_id = cluster.ids.get(name)
        if topic_id is None or (rows := cluster.rows(name)) is None:
            if wanted.replicas is None and name not in cluster.topics and _has(applied, name):
                forgotten.append(name)
            continue
        origin: Origin | None = None
        if reserved(name, cluster) is not None:
            continue
        if wanted.replicas is None:
            if wanted.is_released and applied.is_known(name, topic_id):
                origin = Origin.RELEASED
        elif applied.is_known(name, topic_id):
            record = applied.records[name]
            is_made = applied.is_made(name, topic_id, released_at=wanted.released_at)
            if record.origin is Origin.CREATED and not is_made:
                origin = Origin.FOUND  # It was released, and its name asked for again.
        elif is_first_seen(name, wanted, cluster):
            origin = Origin.FOUND
        if origin is not None:
            records.append(
                AppliedTopic(
                    cluster_id=maps.cluster_id,
                    topic=name,
                    topic_id=topic_id,
                    origin=origin,
                    recorded_at=now_ms,
                    lists=rows_digest(rows),
                )
            )
    return Notes(records=tuple(records), forgotten=tuple(forgotten))


def adopted(plan: TopicsPlan, applied: AppliedRecords, *, now_ms: int) -> tuple[AppliedTopic, ...]:
    """Of topics that are changed by an explicit word, that apply knows them from now on."""
    return tuple(
        AppliedTopic(
            cluster_id=plan.cluster_id,
            topic=change.topic,
            topic_id=change.topic_id,
            origin=Origin.FOUND,
            recorded_at=now_ms,
            lists=rows_digest(change.before),
        )
        for change in plan.of(ChangeKind.CHANGE)
        if not applied.is_known(change.topic, change.topic_id)
    )


def seen(found: Notes, applied: AppliedRecords) -> Notes:
    """What `plan` records: topics that are as mapped and of which nothing is recorded yet.

    It gives no right to change them; it makes known that they were there.
    """
    return Notes(
        records=tuple(
            replace(record, origin=Origin.SEEN)
            for record in found.records
            if record.origin is Origin.FOUND and not _has(applied, record.topic)
        )
    )


def _has(applied: AppliedRecords, topic: str) -> bool:
    return topic in applied.records or topic in applied.intents
