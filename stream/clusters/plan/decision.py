"""What is between replica maps and the topics of a Kafka cluster, and its cost: pure functions.

Rules: an SPU's id is a broker's id. Only the assignment of replicas is looked at, never a topic's
configuration, and no topic but those that maps name. Kafka's own topics and the product's are never
touched. A topic is deleted only if a tombstone says that it had a map, if `apply` made it (by
Kafka's id of the topic), and only when that was asked for. A topic that `apply` neither made nor
found as mapped is not changed without `--foreign`. A topic that was in Kafka and is gone is created
again only on request. A list that waits for a replica changes nothing: what is there stays until
the list is whole. A partition is never taken away. Order is by name.

A saved plan is decided again when it is applied, of the topics that it speaks of: what is done
already is left out, and anything that was not planned is an error.

What a plan costs: load is that of all topics in Kafka, mapped or not; of those that this user may
not see, only replicas and bytes are known, as brokers report them. A broker leads the partitions
whose lists begin with it: the preferred leaders, which do not change with a restart. A replica that
comes is copied whole; its bytes are those of the largest replica. Of one that Kafka is copying
already only the rest counts. A replica that goes frees its own bytes. What no broker reports is not
known, and never counted as nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain
from typing import Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.clusters.plan.applied import AppliedRecords
from spu_assigner.stream.clusters.plan.model import (
    BrokerLoad,
    ChangeKind,
    KafkaCluster,
    Maps,
    Partition,
    PlanLoad,
    Row,
    Rows,
    TopicChange,
    TopicReason,
    TopicsPlan,
    Wanted,
)
from spu_assigner.stream.common.printable import listed, printable
from spu_assigner.stream.kafka.log_dirs import ReplicaSizes, UnseenReplicas

GONE: Final = (
    "was in Kafka before; its data are gone: give --recreate to create it again, empty, or delete "
    "its map (`spu-assigner produce topic-delete`)"
)
NOT_OURS: Final = "is mapped no more; apply did not make it, so it stays"
HIDDEN: Final = "is mapped no more; whether it is in Kafka you may not see"
RELEASED: Final = "was released; it stays in Kafka"
FAULTS_REPORTED_MAX: Final = 3


class StalePlanError(AssignerError):
    """Something has changed since the plan was made."""

    def __init__(self, faults: list[str]) -> None:
        text = listed(faults, FAULTS_REPORTED_MAX)
        super().__init__(f"not as when it was planned: {text}; nothing was done, plan again")


def make_plan(
    maps: Maps,
    cluster: KafkaCluster,
    *,
    applied: AppliedRecords,
    delete: bool = False,
    recreate: bool = False,
    is_foreign: Callable[[str], bool] = lambda topic: False,  # may be changed all the same
    globs: Collection[str] = (),  # which topics are asked about; all where none is given
) -> TopicsPlan:
    """What makes the topics of `cluster` as `maps` say."""
    changes: list[TopicChange] = []
    refused: list[TopicReason] = []
    waiting = [TopicReason(topic=name, reason=why) for name, why in maps.waiting.items()]
    deletable: list[str] = []
    staying: list[TopicReason] = []
    unchanged: dict[str, Rows] = {}
    for name, wanted in sorted(maps.topics.items()):
        rows, topic_id = cluster.rows(name), cluster.ids.get(name)
        if wanted.short:
            after = "it is created with all" if rows is None else "what is in Kafka stays"
            partitions = listed(sorted(wanted.short))
            why = f"the lists of partitions {partitions} wait for a replica; {after}"
            waiting.append(TopicReason(topic=name, reason=why))
        if wanted.replicas is None:
            match _deletion(name, wanted, cluster, applied):
                case TopicReason() as reason:
                    staying.append(reason)
                case TopicChange() as deletion if delete:
                    changes.append(deletion)
                case TopicChange():
                    deletable.append(name)
                case None:
                    pass
        elif (change := _change(name, wanted.replicas, wanted.short, cluster)) is not None:
            gone_id = applied.gone_id(name) if rows is None else None
            change = replace(change, topic_id=topic_id, gone_id=gone_id)
            is_ours = applied.is_known(name, topic_id) or is_foreign(name)
            refusal = _refusal(change, cluster, is_ours=is_ours)
            if refusal is None and gone_id is not None and not recreate:
                refusal = GONE
            if refusal is None:
                changes.append(change)
            else:
                refused.append(TopicReason(topic=name, reason=refusal))
        elif rows is not None:
            unchanged[name] = rows
    names = {*maps.topics, *maps.waiting, *cluster.topics}
    return TopicsPlan(
        cluster_id=maps.cluster_id,
        kafka_id=cluster.kafka_id,
        brokers=cluster.brokers,
        maps_from="kafka" if maps.is_live else "file",
        recreate=recreate,
        changes=tuple(changes),
        refused=tuple(refused),
        waiting=tuple(sorted(waiting, key=lambda each: each.topic)),
        deletable=tuple(deletable),
        staying=tuple(staying),
        unchanged=unchanged,
        first_seen=tuple(
            name
            for name in unchanged
            if not applied.is_known(name, cluster.ids.get(name))
            and cluster.is_as_mapped(name, maps.topics[name])
        ),
        unmapped=tuple(  # Of one whose create waits it is known.
            name
            for name in sorted(cluster.topics.keys() - maps.lists().keys() - maps.waiting.keys())
            if not globs or any(fnmatchcase(name, glob) for glob in globs)
            if cluster.reserved(name) is None
        ),
        unmatched=tuple(glob for glob in globs if not any(fnmatchcase(n, glob) for n in names)),
        # Their maps are as they were adopted, so it is Kafka that has changed.
        reassigned=tuple(
            each.topic for each in changes if each.moves and maps.topics[each.topic].is_adopted
        ),
    )


def _deletion(
    name: str, wanted: Wanted, cluster: KafkaCluster, applied: AppliedRecords
) -> TopicChange | TopicReason | None:
    """The deletion of a topic that is mapped no more, or why it stays; None: it is not there."""
    rows, topic_id = cluster.rows(name), cluster.ids.get(name)
    if cluster.reserved(name) is not None:
        return None
    if rows is None:
        return TopicReason(topic=name, reason=HIDDEN) if name in cluster.hidden else None
    if wanted.was_released or applied.origin(name, topic_id) is not Origin.CREATED:
        return TopicReason(topic=name, reason=RELEASED if wanted.is_released else NOT_OURS)
    return TopicChange(topic=name, kind=ChangeKind.DELETE, before=rows, topic_id=topic_id)


def rest_of(saved: TopicsPlan, now: TopicsPlan, cluster: KafkaCluster) -> TopicsPlan:
    """What is still to be done of a saved plan, with what it leaves alone. StalePlanError: that was
    not planned, or what was planned is neither done nor to be done."""
    if saved.kafka_id != now.kafka_id:
        of = f"it is for Kafka cluster {printable(saved.kafka_id)}, this is {now.kafka_id}"
        raise StalePlanError([of])
    faults = []
    if saved.brokers != now.brokers:
        faults.append(f"brokers were {list(saved.brokers)} and are {list(now.brokers)}")
    planned = {change.topic: change for change in saved.changes}
    left = {change.topic: change for change in now.changes}
    for topic in sorted(planned.keys() | left.keys() | saved.unchanged.keys()):
        was, change = planned.get(topic), left.get(topic)
        if change is not None:
            is_same = was is not None and _is_rest(change, was)
        else:  # A deletion has no lists after it.
            after = saved.unchanged[topic] if was is None else was.after or None
            is_same = cluster.rows(topic) == after
        if not is_same:
            faults.append(f"topic {topic} needs something else now")
    if faults:
        raise StalePlanError(faults)
    return replace(
        now,
        refused=saved.refused,
        waiting=saved.waiting,
        deletable=saved.deletable,
        staying=saved.staying,
    )


def _is_rest(change: TopicChange, planned: TopicChange) -> bool:
    """Whether a change is the planned one, or what is still to be done of it."""
    same = ("kind", "after", "topic_id", "gone_id")
    if any(getattr(change, name) != getattr(planned, name) for name in same):
        return False
    for number, row in enumerate(change.before):
        lists = (*planned.before[number : number + 1], *planned.after[number : number + 1])
        if row not in lists and number not in change.moving:
            return False
    return True


def _change(
    name: str, rows: Rows, short: frozenset[int], cluster: KafkaCluster
) -> TopicChange | None:
    """What a mapped topic needs as far as its lists are whole; None: nothing now."""
    before = cluster.rows(name)
    if before is None:
        return None if short else TopicChange(topic=name, kind=ChangeKind.CREATE, after=rows)
    after = tuple(
        old if number in short else row
        for number, (old, row) in enumerate(zip(before, rows, strict=False))
    )
    if max(short, default=-1) < len(before):  # All new partitions come at once.
        after += rows[len(before) :]
    if after == before:
        return None
    moving = tuple(
        number
        for number, (partition, row) in enumerate(zip(cluster.topics[name], after, strict=False))
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


def _refusal(change: TopicChange, cluster: KafkaCluster, *, is_ours: bool) -> str | None:
    """Why a change is not made; None: it is, unless the topic is gone or Kafka refuses it."""
    if (reason := cluster.reserved(change.topic)) is not None:
        return reason
    before, after = len(change.before), len(change.after)
    if after < before:
        return (
            f"has {before} partitions in Kafka and {after} in its map; Kafka takes none away: take "
            "it over as it is (`spu-assigner adopt`), or grow the map (`spu-assigner produce "
            f"topic-grow --partitions {before}`) and move the new ones"
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
    if is_ours or change.kind is ChangeKind.CREATE:
        return None
    return (
        "exists in Kafka, was not made by apply, and is not as mapped; it is left alone. Release "
        "the request (`spu-assigner produce topic-release`) and choose another name, or give "
        f"`--foreign {change.topic}` to have this topic changed"
    )


def plan_load(
    plan: TopicsPlan, cluster: KafkaCluster, sizes: ReplicaSizes, unseen: UnseenReplicas
) -> PlanLoad:
    """What a plan costs."""
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)  # by field of BrokerLoad
    before = {topic: cluster.rows(topic) or () for topic in cluster.topics}
    after = {**before, **{change.topic: change.after for change in plan.changes}}
    for when, topics in (("before", before), ("after", after)):
        for row in chain.from_iterable(topics.values()):
            counts[f"replicas_{when}"].update(row)
            counts[f"leaders_{when}"][row[0]] += 1
        for held in unseen.sizes.values():
            counts[f"replicas_{when}"].update(held.keys())
    deleted = {change.topic for change in plan.of(ChangeKind.DELETE)}
    freed: Counter[int] = Counter()
    for (topic, number), held in {**sizes.sizes, **unseen.sizes}.items():
        if topic in before or (topic, number) in unseen.sizes:
            counts["bytes_before"].update(held)
            freed.update(held if topic in deleted else {})
    copies = unsized = 0
    for change in plan.of(ChangeKind.CHANGE):
        for number, partition in enumerate(cluster.topics[change.topic]):
            holders, coming = {*partition.replicas}, {*change.after[number]}
            held = sizes.sizes.get((change.topic, number), {})
            whole = max(held.values(), default=None)
            copied = holders & partition.in_sync if number in change.moving else holders
            for broker in coming - copied:
                copies += 1
                unsized += whole is None
                counts["bytes_in"][broker] += (whole or 0) - held.get(broker, 0)
            for broker in holders - coming:
                counts["bytes_out"][broker] += held.get(broker, 0)
    is_known = not copies or unsized < copies

    def load(broker: int) -> BrokerLoad:
        numbers = {name: count[broker] for name, count in counts.items()}
        size = numbers.pop("bytes_before", 0)
        came, gone = numbers.get("bytes_in", 0), numbers.get("bytes_out", 0) + freed[broker]
        is_reported = broker in sizes.brokers
        return BrokerLoad(
            broker=broker,
            bytes_before=size if is_reported else None,
            bytes_after=size + came - gone if is_reported else None,
            **numbers,
        )

    brokers = {*cluster.brokers, *counts["replicas_before"], *counts["replicas_after"]}
    return PlanLoad(
        replicas_to_copy=copies,
        replicas_unsized=unsized,
        bytes_to_copy=counts["bytes_in"].total() if is_known else None,
        brokers=tuple(map(load, sorted(brokers))),
    )
