"""What makes a cluster's topics as a file desires them: pure functions.

    found = desired_changes("c1", topics, known, seen)
    events = [event_of(change, answered) for change in found.changes]

Rules: nothing is ever deleted: a topic that is not in the file is reported. Partitions are never
taken away, and a topic keeps its policy. A topic in Kafka without a map is not created under its
name; one that was in Kafka and is gone is not as desired. Settings of Kafka are compared, not
changed. A replication factor is that of each list, so an
adopted topic whose lists differ in length is not as desired. Lists that wait for SPUs are reported:
what they could not be given is not asked for again. A topic that the constraints of another name
comes first, since the assigner knows no topic of the future.

An event's id is made of what the event asks and of a number: the lowest whose id nobody has
answered. So the same request sent again, by another run or another machine, is one event for the
assigner, and a request that was answered once and is needed again (the topic was deleted, or SPUs
have come since it was rejected) is a new one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from spu_assigner.core.base.constraints import Constraints, given_constraints
from spu_assigner.core.base.events import (
    Event,
    Policy,
    TopicConstraints,
    TopicCreate,
    TopicGrow,
    TopicReplication,
)
from spu_assigner.core.base.limits import PRODUCT_NAMES
from spu_assigner.schemas.json_lines.lines import event_to_json
from spu_assigner.stream.clusters.desired.model import (
    DesiredTopic,
    KnownTopic,
    KnownTopics,
    SeenTopics,
    differs_in_constraints,
)
from spu_assigner.stream.common.printable import listed, printable
from spu_assigner.stream.common.rule_texts import rule_texts

DesiredEvent = TopicCreate | TopicGrow | TopicReplication | TopicConstraints

ID_PREFIX: Final = "desired-"
HIDDEN: Final = (
    "may be in Kafka, where this user may not see it: grant it Describe (`spu-assigner topics acls "
    "--role applier`)"
)
NO_ID: Final = "none-yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRefusal:
    """A topic that cannot be as desired, or waits, and why."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDifference:
    """A setting of Kafka's that is not as the file says."""

    topic: str
    setting: str
    found: str | None  # None: Kafka has no such setting
    desired: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredChange:
    """What is to be sent for one topic."""

    event: DesiredEvent  # without an id of its own yet
    about: str  # for people


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredChanges:
    """All that is between a file and a cluster."""

    changes: tuple[DesiredChange, ...] = ()
    refused: tuple[DesiredRefusal, ...] = ()
    waiting: tuple[DesiredRefusal, ...] = ()
    extra: tuple[str, ...] = ()  # in the cluster and not in the file
    unmapped: tuple[str, ...] = ()  # in Kafka, without a map and not in the file
    configs: tuple[ConfigDifference, ...] = ()
    behind: tuple[str, ...] = ()  # in the file and mapped; in Kafka not, or not with all partitions
    unchanged: int = 0


def desired_changes(
    cluster_id: str,
    topics: Sequence[DesiredTopic],
    known: KnownTopics,
    seen: SeenTopics | None,
    *,
    prefix: str = "",
) -> DesiredChanges:
    """What is between the topics of a file and those of a cluster; in the file's order.

    Args:
        seen: what Kafka has; None: it was not looked at.
        prefix: of the job's topics, whose names no topic may have.
    """
    reserved = reserved_names(prefix)
    there = SeenTopics() if seen is None else seen
    plain_names = {_plain(name): name for name in sorted(there.partitions)}
    changes: list[DesiredChange] = []
    refused: list[DesiredRefusal] = []
    waiting: list[DesiredRefusal] = []
    unchanged = 0
    for topic in topics:
        mapped, waits = known.mapped.get(topic.name), known.waiting.get(topic.name)
        before = len(changes), len(refused), len(waiting)
        if topic.name in reserved:
            refused.append(_refusal(topic, "is called like a topic of the product; rename it"))
        elif mapped is not None:
            changes += _constraints(cluster_id, topic, mapped)
            if not _waits_for_factor(topic, mapped):
                changes += _replication(cluster_id, topic, mapped)
                changes += _growth(cluster_id, topic, mapped)
            waiting += _short_lists(topic, mapped)
            refused += [*_faults(topic, mapped), *_sight_faults(cluster_id, topic, there)]
            unchanged += before == (len(changes), len(refused), len(waiting))
        elif waits is not None and _is_same(topic, waits):
            waiting.append(_refusal(topic, "its create waits for SPUs or slots"))
        elif waits is not None:
            refused.append(_refusal(topic, _other_create(topic, waits)))
        elif topic.name in there.partitions:
            refused.append(_refusal(topic, _unmapped_text(cluster_id, topic)))
        elif topic.name in there.hidden:
            refused.append(_refusal(topic, HIDDEN))
        elif (other := plain_names.get(_plain(topic.name))) is not None:
            refused.append(_refusal(topic, _collision_text(other)))
        else:
            changes.append(_create(cluster_id, topic))
    named = {topic.name for topic in topics}
    changes, unnamed = _in_order(changes, known)
    refused += unnamed
    return DesiredChanges(
        changes=tuple(changes),
        refused=tuple(refused),
        waiting=tuple(waiting),
        extra=tuple(sorted({*known.mapped, *known.waiting} - named)),
        unmapped=tuple(sorted({*there.partitions} - {*known.mapped, *known.waiting} - named)),
        configs=tuple(_differences(topics, there)),
        behind=() if seen is None else tuple(_behind(topics, known, seen)),
        unchanged=unchanged,
    )


def reserved_names(prefix: str) -> frozenset[str]:
    """The product's topics, whose names no topic may have."""
    return frozenset(f"{prefix}{name}" for name in PRODUCT_NAMES)


def _create(cluster_id: str, topic: DesiredTopic) -> DesiredChange:
    policy = "" if topic.policy is None else f", policy {topic.policy}"
    return DesiredChange(
        event=TopicCreate(
            event_id=NO_ID,
            cluster_id=cluster_id,
            topic=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            policy=topic.policy,
            constraints=given_constraints(topic.constraints),
        ),
        about=f"{topic.partitions} partitions, replication factor {topic.replication_factor}"
        f"{policy}{_rules(topic.constraints)}",
    )


def _constraints(
    cluster_id: str, topic: DesiredTopic, mapped: KnownTopic
) -> Iterator[DesiredChange]:
    """Before all else, so that new replicas are placed by them."""
    rules = topic.constraints
    if rules is None or not differs_in_constraints(topic, mapped) or not _may_have_rules(mapped):
        return
    yield DesiredChange(
        event=TopicConstraints(
            event_id=NO_ID, cluster_id=cluster_id, topic=topic.name, constraints=rules
        ),
        about=f"other constraints{_rules(rules) or ', none'}",
    )


def _may_have_rules(mapped: KnownTopic) -> bool:
    return mapped.policy is Policy.BALANCED


def _rules(constraints: Constraints | None) -> str:
    texts = () if constraints is None else tuple(rule_texts(constraints))
    return f", {'; '.join(map(printable, texts))}" if texts else ""


def _in_order(
    changes: Sequence[DesiredChange], known: KnownTopics
) -> tuple[list[DesiredChange], list[DesiredRefusal]]:
    """The changes, those of a topic behind the creates of the topics that they name; and what is
    said of topics for which there is no such place.
    """
    there = set(known.mapped)
    ordered: list[DesiredChange] = []
    left: Sequence[DesiredChange] = changes
    while left:
        later: list[DesiredChange] = []
        held: set[str] = set()
        for change in left:
            topic = change.event.topic
            if topic in held or not _named_topics(change.event) <= there:
                held.add(topic)
                later.append(change)
            else:
                there.add(topic)
                ordered.append(change)
        if len(later) == len(left):
            break
        left = later
    events = [change.event for change in left]
    return ordered, [_unnamed(each, there) for each in events if not _named_topics(each) <= there]


def _unnamed(event: DesiredEvent, there: Collection[str]) -> DesiredRefusal:
    """Of a change that names topics that do not come before it."""
    names = listed(sorted(_named_topics(event).difference(there)))
    text = (
        f"its constraints name {names}, which the cluster has not, and the file does not add before"
        " it; add that topic, or let only one of two topics name the other"
    )
    return DesiredRefusal(topic=event.topic, reason=text)


def _named_topics(event: DesiredEvent) -> set[str]:
    rules = event.constraints if isinstance(event, TopicCreate | TopicConstraints) else None
    return set() if rules is None else {*rules.apart_from, *rules.together_with}


def _replication(
    cluster_id: str, topic: DesiredTopic, mapped: KnownTopic
) -> Iterator[DesiredChange]:
    """Before a growth, so that new partitions are placed with the new factor."""
    if _differs_in_factor(topic, mapped):
        lengths = mapped.lengths or (mapped.replication_factor,)
        found = f"{min(lengths)} to {max(lengths)}" if len(lengths) > 1 else f"{lengths[0]}"
        yield DesiredChange(
            event=TopicReplication(
                event_id=NO_ID,
                cluster_id=cluster_id,
                topic=topic.name,
                replication_factor=topic.replication_factor,
            ),
            about=f"replication factor {found} → {topic.replication_factor}",
        )


def _growth(cluster_id: str, topic: DesiredTopic, mapped: KnownTopic) -> Iterator[DesiredChange]:
    if topic.partitions > mapped.partitions:
        yield DesiredChange(
            event=TopicGrow(
                event_id=NO_ID,
                cluster_id=cluster_id,
                topic=topic.name,
                partitions=topic.partitions,
            ),
            about=f"{mapped.partitions} → {topic.partitions} partitions",
        )


def _differs_in_factor(topic: DesiredTopic, mapped: KnownTopic) -> bool:
    return mapped.lengths is not None or topic.replication_factor != mapped.replication_factor


def _waits_for_factor(topic: DesiredTopic, mapped: KnownTopic) -> bool:
    """Whether the factor differs, and lists wait for SPUs that it needs: it would be rejected."""
    is_in_need = any(found < topic.replication_factor for found in mapped.short.values())
    return is_in_need and _differs_in_factor(topic, mapped)


def _short_lists(topic: DesiredTopic, mapped: KnownTopic) -> Iterator[DesiredRefusal]:
    """What a known topic waits for, unless it is changed so that it waits no more."""
    if any(found < topic.replication_factor for found in mapped.short.values()):
        text = f"the lists of partitions {listed(sorted(mapped.short))} wait for SPUs or slots"
        if _differs_in_factor(topic, mapped):
            text += f"; replication factor {topic.replication_factor} is asked for after that"
        yield _refusal(topic, text)


def _faults(topic: DesiredTopic, mapped: KnownTopic) -> Iterator[DesiredRefusal]:
    """Why a known topic cannot be as desired."""
    if topic.partitions < mapped.partitions:
        yield _refusal(
            topic,
            f"has {mapped.partitions} partitions, and the file says {topic.partitions}; partitions "
            f"are never taken away: write {mapped.partitions}, or delete the topic",
        )
    if topic.policy not in (None, mapped.policy):
        yield _refusal(
            topic,
            f"has policy {mapped.policy}, and the file says {topic.policy}; a topic keeps its "
            f"policy: write {mapped.policy}, or leave it out",
        )
    if differs_in_constraints(topic, mapped) and not _may_have_rules(mapped):
        yield _refusal(
            topic,
            f"has policy {mapped.policy}, and the file names constraints; they are for policy "
            f"{Policy.BALANCED}: leave them out",
        )


def _sight_faults(
    cluster_id: str, topic: DesiredTopic, seen: SeenTopics
) -> Iterator[DesiredRefusal]:
    """Why a mapped topic is not in Kafka as it is to be, and will not be by itself."""
    if topic.name in seen.gone:
        yield _refusal(
            topic,
            "was in Kafka before; its data are gone: create it again, empty (`spu-assigner apply "
            f"--cluster {cluster_id} --recreate`), or delete its map (`spu-assigner produce "
            f"topic-delete --cluster {cluster_id} --topic {topic.name}`)",
        )
    if topic.name in seen.hidden:
        yield _refusal(topic, HIDDEN)


def _behind(topics: Sequence[DesiredTopic], known: KnownTopics, seen: SeenTopics) -> Iterator[str]:
    """Mapped topics that Kafka has not, or not with all their partitions: `apply` is still due."""
    for topic in topics:
        mapped = known.mapped.get(topic.name)
        if mapped is None or topic.name in seen.gone or topic.name in seen.hidden:
            continue
        if seen.partitions.get(topic.name) != mapped.partitions:
            yield topic.name


def _is_same(topic: DesiredTopic, waits: KnownTopic) -> bool:
    return (
        topic.partitions == waits.partitions
        and topic.replication_factor == waits.replication_factor
        and topic.policy in (None, waits.policy)
        and not differs_in_constraints(topic, waits)
    )


def _other_create(topic: DesiredTopic, waits: KnownTopic) -> str:
    rules = " and other constraints" if differs_in_constraints(topic, waits) else ""
    return (
        f"waits as {waits.partitions} partitions of {waits.replication_factor} replicas, and the "
        f"file says {topic.partitions} of {topic.replication_factor}{rules}; withdraw that request "
        f"(`spu-assigner produce topic-delete --topic {topic.name}`) and run this again"
    )


def _unmapped_text(cluster_id: str, topic: DesiredTopic) -> str:
    return (
        "is in Kafka and has no map; take it in first (`spu-assigner adopt --cluster "
        f"{cluster_id} --topics {topic.name}`), or choose another name"
    )


def _plain(topic: str) -> str:
    """Kafka permits no two topics for which this is the same."""
    return topic.replace(".", "_")


def _collision_text(other: str) -> str:
    return (
        f"differs from topic {other!r} in Kafka by dots and underscores alone, which Kafka "
        "refuses; choose another name"
    )


def _refusal(topic: DesiredTopic, reason: str) -> DesiredRefusal:
    return DesiredRefusal(topic=topic.name, reason=reason)


def _differences(topics: Sequence[DesiredTopic], seen: SeenTopics) -> Iterator[ConfigDifference]:
    for topic in topics:
        if (found := seen.configs.get(topic.name)) is None:
            continue
        for setting, desired in sorted(topic.config.items()):
            if found.get(setting) != desired:
                yield ConfigDifference(
                    topic=topic.name, setting=setting, found=found.get(setting), desired=desired
                )


def event_of(change: DesiredChange, answered: Collection[str]) -> Event:
    """The event of a change, under the first of its ids that was not answered yet."""
    ids = (_event_id(change.event, number) for number in count())
    return replace(change.event, event_id=next(each for each in ids if each not in answered))


def _event_id(event: Event, attempt: int) -> str:
    text = f"{event_to_json(event)}{attempt}"
    return f"{ID_PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:32]}"
