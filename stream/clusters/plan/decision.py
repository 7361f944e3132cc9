"""What is between the replica maps of a cluster and the topics of a Kafka cluster: a pure function.

    make_plan(maps, cluster, applied=…, delete=False) -> TopicsPlan

Rules: an SPU's id is a broker's id. Only the assignment of replicas is looked at, never a topic's
configuration, and no topic but those that maps name. Kafka's own topics and the product's are never
touched. A topic is deleted only if a tombstone says that it had a map, if `apply` made it (by
Kafka's id of the topic), and only when that was asked for. A topic that `apply` neither made nor
found as mapped is not changed without `--foreign`. A topic that was in Kafka and is gone is created
again only on request. A list that waits for a replica changes nothing: what is there stays until
the list is whole. A partition is never taken away. Order is by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from spu_assigner.stream.clusters.plan.applied import AppliedRecords
from spu_assigner.stream.clusters.plan.model import (
    ChangeKind,
    KafkaCluster,
    Maps,
    Partition,
    Row,
    Rows,
    TopicChange,
    TopicReason,
    TopicsPlan,
    Wanted,
    rows_digest,
)
from spu_assigner.stream.common.printable import listed

GONE_FACT: Final = "was in Kafka before; its data are gone"
GONE_FIX: Final = (
    "give --recreate to create it again, empty, or delete its map (`spu-assigner produce "
    "topic-delete`)"
)
GONE: Final = f"{GONE_FACT}; {GONE_FIX}"
NOT_OURS: Final = "is mapped no more; apply did not make it, so it stays"
HIDDEN: Final = "is mapped no more; whether it is in Kafka you may not see"
RELEASED: Final = "was released; it stays in Kafka"


def make_plan(
    maps: Maps,
    cluster: KafkaCluster,
    *,
    applied: AppliedRecords,
    delete: bool = False,
    recreate: bool = False,
    is_foreign: Callable[[str], bool] = lambda topic: False,
) -> TopicsPlan:
    """What makes the topics of `cluster` as `maps` say.

    Args:
        applied: what `apply` has recorded of topics.
        delete: also delete topics that are there though their maps are deleted.
        recreate: also create topics again that were there and are gone.
        is_foreign: whether a topic may be changed though `apply` did not make it.
    """
    collisions = _collisions(maps, cluster)
    changes: list[TopicChange] = []
    refused: list[TopicReason] = []
    waiting = [TopicReason(topic=name, reason=why) for name, why in maps.waiting.items()]
    deletable: list[str] = []
    staying: list[TopicReason] = []
    unchanged: dict[str, Rows] = {}
    for name, wanted in sorted(maps.topics.items()):
        there = cluster.topics.get(name)
        topic_id = cluster.ids.get(name)
        if wanted.short:
            reason = _short_text(wanted.short, is_there=there is not None)
            waiting.append(TopicReason(topic=name, reason=reason))
        if wanted.replicas is None:
            before, is_hidden = cluster.rows(name) or (), name in cluster.hidden
            if not (before or is_hidden) or cluster.reserved(name) is not None:
                continue
            stays = HIDDEN if is_hidden else _why_it_stays(name, wanted, topic_id, applied)
            if stays is not None:
                staying.append(TopicReason(topic=name, reason=stays))
            elif delete:
                deletion = ChangeKind.DELETE
                changes.append(
                    TopicChange(topic=name, kind=deletion, before=before, topic_id=topic_id)
                )
            else:
                deletable.append(name)
        elif (change := _change(name, wanted.replicas, wanted.short, there)) is not None:
            gone_id = applied.gone_id(name) if there is None else None
            change = replace(change, topic_id=topic_id, gone_id=gone_id)
            is_ours = applied.is_known(name, topic_id) or is_foreign(name)
            refusal = _refusal(change, cluster, collisions.get(name), is_ours=is_ours)
            if refusal is None and gone_id is not None and not recreate:
                refusal = GONE
            if refusal is None:
                changes.append(change)
            else:
                refused.append(TopicReason(topic=name, reason=refusal))
        elif there is not None:
            unchanged[name] = tuple(each.replicas for each in there)
    planned = {*unchanged, *(change.topic for change in changes)}
    return TopicsPlan(
        cluster_id=maps.cluster_id,
        kafka_id=cluster.kafka_id,
        brokers=cluster.brokers,
        changes=tuple(changes),
        refused=tuple(refused),
        waiting=tuple(sorted(waiting, key=lambda each: each.topic)),
        deletable=tuple(deletable),
        staying=tuple(staying),
        first_seen=tuple(
            name
            for name in unchanged
            if not applied.is_known(name, cluster.ids.get(name))
            and cluster.is_as_mapped(name, maps.topics[name])
        ),
        unchanged=unchanged,
        recreate=recreate,
        is_live=maps.is_live,
        maps=map_digests(maps, planned),
    )


def remaining(plan: TopicsPlan, cluster: KafkaCluster) -> TopicsPlan:
    """What of a plan is still to be done, of one that speaks of what is there."""
    changes: list[TopicChange] = []
    unchanged = dict(plan.unchanged)
    for change in plan.changes:
        there = cluster.topics.get(change.topic)
        if change.kind is ChangeKind.DELETE:
            changes += [] if there is None else [change]
        elif (found := _change(change.topic, change.after, frozenset(), there)) is None:
            unchanged[change.topic] = change.after
        else:
            changes.append(replace(found, topic_id=change.topic_id, gone_id=change.gone_id))
    return replace(plan, changes=tuple(changes), unchanged=unchanged)


def map_digests(maps: Maps, topics: Collection[str]) -> dict[str, str]:
    """Fingerprints of the maps of these topics, in order."""
    return {
        topic: rows_digest(wanted.replicas)
        for topic, wanted in sorted(maps.topics.items())
        if topic in topics
    }


def _why_it_stays(
    name: str, wanted: Wanted, topic_id: str | None, applied: AppliedRecords
) -> str | None:
    """Why a topic whose map was deleted is never deleted; None: it may be."""
    if wanted.is_released:
        return RELEASED
    is_made = applied.is_made(name, topic_id, released_at=wanted.released_at)
    return None if is_made else NOT_OURS


def _change(
    name: str, rows: Rows, short: frozenset[int], there: tuple[Partition, ...] | None
) -> TopicChange | None:
    """What a mapped topic needs as far as its lists are whole; None: nothing now."""
    if there is None:
        return None if short else TopicChange(topic=name, kind=ChangeKind.CREATE, after=rows)
    before = tuple(each.replicas for each in there)
    after = tuple(
        before[number] if number in short else row for number, row in enumerate(rows[: len(before)])
    )
    if not any(number >= len(before) for number in short):  # All new partitions come at once.
        after += rows[len(before) :]
    if after == before:
        return None
    moving = frozenset(
        number
        for number, (partition, row) in enumerate(zip(there, after, strict=False))
        if _is_moving(partition, row)
    )
    return TopicChange(
        topic=name, kind=ChangeKind.CHANGE, before=before, after=after, moving=moving
    )


def _is_moving(partition: Partition, target: Row) -> bool:
    """Whether Kafka is moving a partition to these replicas.

    While it does, it lists them first, then those that are given up, until all of them have caught
    up; Kafka's clients for Python cannot ask for more.
    """
    replicas = partition.replicas
    is_ahead = len(replicas) > len(target) and replicas[: len(target)] == target
    return is_ahead and not partition.in_sync >= frozenset(target)


def _refusal(
    change: TopicChange, cluster: KafkaCluster, collision: str | None, *, is_ours: bool
) -> str | None:
    """Why a change is not made; None: it is, unless the topic is gone.

    Args:
        collision: a name that Kafka cannot distinguish from that of the new topic.
    """
    if (reason := cluster.reserved(change.topic)) is not None:
        return reason
    before, after = len(change.before), len(change.after)
    if after < before:
        return (
            f"has {before} partitions in Kafka and {after} in its map; Kafka takes none away: take "
            "it over as it is (`spu-assigner adopt`), or grow the map (`spu-assigner produce "
            f"topic-grow --partitions {before}`) and move the new ones"
        )
    if collision is not None:
        return (
            f"differs from topic {collision!r} by dots and underscores alone, which Kafka refuses; "
            "create it under another name"
        )
    coming = {broker for row in change.added for broker in row}
    for old, new in change.moves.values():
        coming |= set(new) - set(old)
    if absent := sorted(coming - set(cluster.brokers)):
        return (
            f"its map names SPUs {listed(absent)}, and Kafka's live brokers are "
            f"{listed(cluster.brokers)}; start them, or decommission these SPUs (`spu-assigner "
            "produce spu-left --mode decommission`)"
        )
    lengths = sorted({len(row) for row in change.after})
    if change.kind is ChangeKind.CREATE and len(lengths) > 1:
        return f"has lists of {listed(lengths)} replicas; Kafka creates topics of one number"
    return None if is_ours or change.kind is ChangeKind.CREATE else _clash(change)


def _clash(change: TopicChange) -> str:
    """A topic at first contact that is not as mapped: another's, under the same name."""
    if len(change.before) != len(change.after):
        differs = f"has {len(change.before)} partitions in Kafka and {len(change.after)} in its map"
    else:
        pairs = enumerate(zip(change.before, change.after, strict=True))
        number, (before, after) = next(pair for pair in pairs if pair[1][0] != pair[1][1])
        differs = f"has partition {number} on {list(before)}, mapped to {list(after)}"
    return (
        f"exists in Kafka, was not made by apply, and {differs}; it is left alone. Release the "
        "request (`spu-assigner produce topic-release`) and choose another name, or give "
        f"`--foreign {change.topic}` to have this topic changed"
    )


def _collisions(maps: Maps, cluster: KafkaCluster) -> dict[str, str]:
    """The new names that collide with another one in Kafka's metrics, each with that one."""
    first = {name.replace(".", "_"): name for name in sorted(cluster.topics)}
    found: dict[str, str] = {}
    for name, wanted in sorted(maps.topics.items()):
        if wanted.replicas is not None and name not in cluster.topics:
            other = first.setdefault(name.replace(".", "_"), name)
            if other != name:
                found[name] = other
    return found


def _short_text(short: frozenset[int], *, is_there: bool) -> str:
    what = f"the lists of partitions {listed(sorted(short))} wait for a replica"
    return f"{what}; what is in Kafka stays" if is_there else f"{what}; it is created with all"
