"""What is recorded of topics, what follows from it, and what is to be recorded: pure functions.

Rules: a topic is known by Kafka's id of it, never by its name alone: one that was made again by
others is another topic. Whatever is not certain is *not ours*: at worst a topic stays that could
have been deleted. Only CREATED permits a deletion, and a release revokes it.

Before it creates a topic `apply` records an INTENT under a key of its own; where the run ended
before the creation was recorded, the next one resolves it. The topic counts as created only if it
has exactly the intended lists, nothing was ever written to it, and the intent is fresh: then no
data can be concerned. Otherwise, with the intended lists, it counts as found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.clusters.plan.model import (
    ChangeKind,
    KafkaCluster,
    Maps,
    Row,
    Rows,
    TopicsPlan,
    Wanted,
    rows_digest,
)

INTENT_MS_MAX: Final = 3_600_000  # a run that broke off is repeated sooner, or it is no repetition
_IN_KAFKA: Final = (Origin.CREATED, Origin.FOUND, Origin.SEEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedRecords:
    """The records of one cluster's topics, by topic."""

    records: Mapping[str, AppliedTopic] = field(default_factory=dict)
    intents: Mapping[str, AppliedTopic] = field(default_factory=dict)

    def origin(self, topic: str, topic_id: str | None) -> Origin | None:
        """What is recorded of this very topic."""
        record = self.records.get(topic)
        is_same = record is not None and topic_id is not None and record.topic_id == topic_id
        return record.origin if record is not None and is_same else None

    def is_known(self, topic: str, topic_id: str | None) -> bool:
        """Whether `apply` made this topic, or has found it as mapped."""
        return self.origin(topic, topic_id) in (Origin.CREATED, Origin.FOUND)

    def gone_id(self, topic: str) -> str | None:
        """Kafka's id of a topic that was there when it was last looked; None: none is known."""
        record = self.records.get(topic)
        return record.topic_id if record is not None and record.origin in _IN_KAFKA else None


def fold(records: Iterable[tuple[str, AppliedTopic | None]]) -> AppliedRecords:
    """The latest values of keys `<topic>` and `<topic>/intent`, without the cluster."""
    found = [record for record in dict(records).values() if record is not None]
    return AppliedRecords(
        records={each.topic: each for each in found if each.origin is not Origin.INTENT},
        intents={each.topic: each for each in found if each.origin is Origin.INTENT},
    )


def record_of(
    cluster_id: str, topic: str, origin: Origin, *, topic_id: str | None, rows: Rows
) -> AppliedTopic:
    """A record of a topic that has these lists, or is to have them; the ledger sets its time."""
    return AppliedTopic(
        cluster_id=cluster_id,
        topic=topic,
        topic_id=topic_id,
        origin=origin,
        recorded_at=0,
        lists=rows_digest(rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What is to be recorded of topics besides those that are created or deleted now."""

    records: tuple[AppliedTopic, ...] = ()
    forgotten: tuple[str, ...] = ()  # mapped no more, and not in Kafka

    def topics(self, origin: Origin) -> tuple[str, ...]:
        """Those that are recorded so."""
        return tuple(each.topic for each in self.records if each.origin is origin)


def resolved(
    applied: AppliedRecords,
    cluster: KafkaCluster,
    untouched: Callable[[list[str]], Collection[str]],
    *,
    now_ms: int,
) -> tuple[AppliedRecords, tuple[AppliedTopic, ...]]:
    """What runs that broke off have created; with the records of it, which are not yet written."""
    intended = {
        topic: intent
        for topic, intent in applied.intents.items()
        if topic in cluster.ids
        and rows_digest(cluster.rows(topic)) == intent.lists
        and applied.origin(topic, cluster.ids[topic]) is None
    }
    empty = untouched([*intended])
    found = {}
    for topic, intent in intended.items():
        is_fresh = abs(now_ms - intent.recorded_at) <= INTENT_MS_MAX
        origin = Origin.CREATED if is_fresh and topic in empty else Origin.FOUND
        topic_id = cluster.ids[topic]
        found[topic] = replace(intent, origin=origin, topic_id=topic_id)
    return replace(applied, records={**applied.records, **found}), tuple(found.values())


def notes(maps: Maps, cluster: KafkaCluster, applied: AppliedRecords) -> Notes:
    """What `apply` is to record of topics as they are before it changes anything. Topics whose id
    is not known in `cluster` are left out."""
    records: list[AppliedTopic] = []
    forgotten: list[str] = []
    for name, wanted in sorted(maps.topics.items()):
        topic_id, rows = cluster.ids.get(name), cluster.rows(name)
        if rows is None:
            is_gone = wanted.replicas is None and name not in cluster.hidden
            forgotten += [name] if is_gone and _has(applied, name) else []
        elif topic_id is not None and cluster.reserved(name) is None:
            origin = _noted(name, wanted, cluster, applied)
            if origin is not None:
                records.append(
                    record_of(maps.cluster_id, name, origin, topic_id=topic_id, rows=rows)
                )
    return Notes(records=tuple(records), forgotten=tuple(forgotten))


def _noted(
    name: str, wanted: Wanted, cluster: KafkaCluster, applied: AppliedRecords
) -> Origin | None:
    """What is to be recorded of a topic that is there; None: nothing new."""
    topic_id = cluster.ids[name]
    if wanted.replicas is None:
        is_known = applied.is_known(name, topic_id)
        return Origin.RELEASED if wanted.is_released and is_known else None
    match applied.origin(name, topic_id):
        case Origin.CREATED:  # Of a name that was released it may be one that was given away.
            return Origin.FOUND if wanted.was_released else None
        case Origin.FOUND:
            return None
        case _:
            return Origin.FOUND if cluster.is_as_mapped(name, wanted) else None


def adopted(plan: TopicsPlan, applied: AppliedRecords) -> tuple[AppliedTopic, ...]:
    """What is to be recorded of topics before they are changed.

    Those that `--foreign` permits to change are known to apply from now on. Of those that grow
    while other partitions are yet to move, the lists of these are recorded: their maps no longer
    say that they were changed here, and `adopt` is to leave them to `apply --moves`.
    """
    found = []
    for change in plan.of(ChangeKind.CHANGE):
        topic, topic_id, before = change.topic, change.topic_id, change.before
        known = applied.records[topic] if applied.is_known(topic, topic_id) else None
        record = known or record_of(
            plan.cluster_id, topic, Origin.FOUND, topic_id=topic_id, rows=before
        )
        if change.added and change.moves:
            unmoved = (_unmoved(number, row) for number, (row, _) in change.moves.items())
            record = replace(record, lists=" ".join([rows_digest(before), *unmoved]))
        if record != known:
            found.append(record)
    return tuple(found)


def is_unmoved(record: AppliedTopic, number: int, row: Row) -> bool:
    """Whether a partition had this list, and was yet to move, when its topic grew."""
    return _unmoved(number, row) in record.lists.split()


def _unmoved(number: int, row: Row) -> str:
    return f"{number}:{rows_digest((row,))}"


def seen(found: Notes, applied: AppliedRecords) -> tuple[AppliedTopic, ...]:
    """What `plan` records: topics that are as mapped and of which nothing is recorded yet. It gives
    no right to change them; it makes known that they were there."""
    return tuple(
        replace(record, origin=Origin.SEEN)
        for record in found.records
        if record.origin is Origin.FOUND and not _has(applied, record.topic)
    )


def _has(applied: AppliedRecords, topic: str) -> bool:
    return topic in applied.records or topic in applied.intents
