"""What makes a cluster's topics as a file desires them: events, as `produce` sends them.

Rules: the core answers what can be: each event is decided on the published state, after those
before it, and what it rejects is not sent. Nothing is ever deleted: a topic that is not in the file
is reported. A topic keeps its policy. A topic in Kafka without a map is not created under its name.
A replication factor is that of each list, so an adopted topic whose lists differ in length is not
as desired. A topic that the constraints of another name comes first.

An event's id is made of what the event asks and of a number: the lowest whose id the cluster does
not remember. So the same request sent again, by another run or another machine, is one event for
the job, and a request that was answered once and is needed again is a new one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

from spu_assigner.core.base.constraints import given_constraints
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    DEFAULT_POLICY,
    Event,
    TopicConstraints,
    TopicCreate,
    TopicGrow,
    TopicReplication,
)
from spu_assigner.core.base.records import Status, TopicStatus, Wait
from spu_assigner.core.decision.machine import decide, step
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.topic import Topic
from spu_assigner.schemas.json_lines.lines import event_to_json
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.common.rule_texts import rule_texts

ID_PREFIX: Final = "desired-"

Change = tuple[TopicCreate | TopicGrow | TopicReplication | TopicConstraints, str]  # and its text


@dataclass(slots=True, kw_only=True)
class DesiredEvents:
    """All that is between a file and a cluster."""

    changes: list[Change] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # topics that cannot be as desired: why
    waiting: dict[str, str] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)  # in the cluster and not in the file
    unchanged: int = 0
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of the file's topics

    @property
    def events(self) -> list[Event]:
        """What is to be sent, in order."""
        return [event for event, _ in self.changes]


def desired_events(
    topics: Sequence[TopicCreate],
    state: ClusterState,
    *,
    in_kafka: Collection[str] = (),
    reserved: frozenset[str] = frozenset(),
) -> DesiredEvents:
    """What makes the topics of a cluster as those of a file."""
    named = {topic.topic for topic in topics}
    extra = sorted((state.topics.keys() | state.waiting.keys()) - named)
    # Of names that differ by dots and underscores alone, Kafka permits one.
    others = {name.replace(".", "_"): name for name in sorted(in_kafka)}
    found = DesiredEvents(extra=extra)
    deciding = _Deciding(state, others, reserved, found)
    left, accepted = topics, -1
    # A topic whose constraints are rejected, as they name a topic that is not there yet, is tried
    # again behind the others, as long as one of these was granted.
    while left and accepted < len(found.changes):
        accepted, later = len(found.changes), []
        for topic in left:
            found.refused.pop(topic.topic, None)
            if deciding.take(topic) is Code.INVALID_CONSTRAINTS:
                later.append(topic)
        left = later
    return found


@dataclass(frozen=True, slots=True)
class _Deciding:
    """Topics are decided one after the other."""

    _state: ClusterState
    _in_kafka: Mapping[str, str]
    _reserved: frozenset[str]
    _found: DesiredEvents

    def take(self, topic: TopicCreate) -> Code | None:
        """Take over a topic; why the core rejects one of its changes."""
        name, found = topic.topic, self._found
        mapped, waits = self._state.topics.get(name), self._state.waiting.get(name)
        if mapped is None and waits is None:
            return self._ask(_create(topic))
        if waits is not None:
            what = "create" if waits.kind is Wait.CREATE else "repair"
            found.waiting[name] = f"its {what} waits for SPUs or slots"
        if mapped is None:
            return None
        if topic.policy not in (None, mapped.policy):
            found.refused[name] = f"has policy {mapped.policy}, which a topic keeps: write that"
            return None
        changes = [*_changes(topic, mapped)]
        found.unchanged += not changes and waits is None
        return next((code for each in changes if (code := self._ask(each))), None)

    def _ask(self, change: Change) -> Code | None:
        """Have the core decide a change; why it is rejected, None: it is to be sent."""
        event, about = change
        text = event_to_json(event)
        for number in count():
            digest = hashlib.sha256(f"{text}{number}".encode()).hexdigest()[:32]
            event = replace(event, event_id=f"{ID_PREFIX}{digest}")
            records = decide(
                self._state, event, default_policy=DEFAULT_POLICY, reserved_names=self._reserved
            )
            if records:  # Else the id was used.
                break
        own = (x for x in records if isinstance(x, TopicStatus) and x.cause == event.event_id)
        if (answer := next(own, None)) is not None and answer.status is Status.REJECTED:
            reason = f"{about}: rejected as the cluster is now: {answer.message}"
            self._found.refused[event.topic] = f"{reason} ({answer.code})"
            return answer.code
        if isinstance(event, TopicCreate) and (why := self._why_not_new(event)) is not None:
            self._found.refused[event.topic] = why
            return None
        step(self._state, event, default_policy=DEFAULT_POLICY, reserved_names=self._reserved)
        self._found.changes.append((event, about))
        return None

    def _why_not_new(self, asked: TopicCreate) -> str | None:
        """The topic without a map that Kafka has in the way of a new one."""
        other = self._in_kafka.get(asked.topic.replace(".", "_"))
        if other is None:
            return None
        if other == asked.topic:
            return (
                "is in Kafka and has no map; take it in first (`spu-assigner adopt --cluster "
                f"{asked.cluster_id} --topics {other}`), or choose another name"
            )
        return (
            f"differs from topic {other!r} in Kafka by dots and underscores alone, which Kafka "
            "refuses; choose another name"
        )


def _create(asked: TopicCreate) -> Change:
    policy = "" if asked.policy is None else f", policy {asked.policy}"
    rules = given_constraints(asked.constraints)
    about = f"{asked.partitions} partitions, replication factor {asked.replication_factor}{policy}"
    named = "" if rules is None else f", {'; '.join(map(printable, rule_texts(rules)))}"
    return replace(asked, constraints=rules), about + named


def _changes(asked: TopicCreate, mapped: Topic) -> Iterator[Change]:
    """What a known topic needs; constraints and factor first: new partitions are placed by them."""
    common: dict[str, Any] = {
        "event_id": asked.event_id,
        "cluster_id": asked.cluster_id,
        "topic": asked.topic,
    }
    rules = asked.constraints
    if rules is not None and given_constraints(rules) != mapped.constraints:
        texts = "; ".join(map(printable, rule_texts(rules))) or "none"
        yield TopicConstraints(**common, constraints=rules), f"other constraints, {texts}"
    factor, lengths = asked.replication_factor, mapped.wanted_lengths
    if lengths is not None or factor != mapped.replication_factor:
        was = f"{min(lengths)} to {max(lengths)}" if lengths else f"{mapped.replication_factor}"
        event = TopicReplication(**common, replication_factor=factor)
        yield event, f"replication factor {was} → {factor}"
    if asked.partitions != (partitions := len(mapped.replicas.lists())):
        about = f"{partitions} → {asked.partitions} partitions"
        yield TopicGrow(**common, partitions=asked.partitions), about
