"""Replica maps, topics in Kafka and records of them, and a job that answers, without Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Event
from spu_assigner.core.base.records import ReplicaMap, Status, TopicStatus
from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.clusters.follow.options import FollowOptions
from spu_assigner.stream.clusters.follow.topic_facts import (
    FoundTopic,
    TopicFacts,
    TopicMemory,
    rows_of,
)
from spu_assigner.stream.clusters.follow.topics import TopicsDecision, decide_topics
from spu_assigner.stream.clusters.plan.applied import AppliedRecords
from spu_assigner.stream.clusters.plan.model import KafkaCluster, Maps, Partition, Rows, Wanted
from support.events.builders import Events

Lists = Sequence[Sequence[int]]
Topics = Mapping[str, Lists | tuple[Partition, ...]]


def wanted(lists: Lists | None, *short: int, factor: int = 0) -> Wanted:
    """With the partitions whose lists wait for a replica: those named, or shorter than `factor`."""
    rows = None if lists is None else tuple(map(tuple, lists))
    lost = {number for number, row in enumerate(rows or ()) if len(row) < factor}
    return Wanted(replicas=rows, short=frozenset(short) | lost)


def maps(topics: Mapping[str, Wanted | Lists | None], **waiting: str) -> Maps:
    found = {
        name: each if isinstance(each, Wanted) else wanted(each) for name, each in topics.items()
    }
    return Maps(cluster_id="c1", topics=found, waiting=waiting)


def there(lists: Lists, in_sync: Lists | None = None) -> tuple[Partition, ...]:
    return tuple(
        Partition(replicas=tuple(row), in_sync=frozenset(seen))
        for row, seen in zip(lists, in_sync or lists, strict=True)
    )


def kafka(topics: Topics) -> KafkaCluster:
    """Three live brokers with these topics, the job's own topic `replica-map` among them or not."""
    return KafkaCluster(
        kafka_id="k",
        brokers=(1, 2, 3),
        topics={
            name: each if isinstance(each, tuple) else there(each) for name, each in topics.items()
        },
        ids={name: f"id-of-{name}" for name in topics},
        own=frozenset({"replica-map"}),
    )


def record(topic: str, origin: Origin, topic_id: str | None = None, at: int = 1) -> AppliedTopic:
    """Of the topic that `kafka` has, unless an id is given."""
    return AppliedTopic(
        cluster_id="c1",
        topic=topic,
        topic_id=topic_id or f"id-of-{topic}",
        origin=origin,
        recorded_at=at,
        lists="",
    )


def recorded(*records: AppliedTopic) -> AppliedRecords:
    return AppliedRecords(records={each.topic: each for each in records})


ADOPT = FollowOptions(cluster_id="c1", is_adopt=True, globs=("*",), own=frozenset({"spu-events"}))


def rows(lists: Lists) -> Rows:
    return tuple(map(tuple, lists))


class Installation:
    """A Kafka cluster, a job without Kafka, and the records; SPUs 1 to 4 have joined."""

    def __init__(self, options: FollowOptions = ADOPT) -> None:
        self.options = options
        self.events = Events()
        self.found: dict[str, FoundTopic] = {}
        self.bytes: dict[str, int] = {}  # of one copy of topics
        self.written: set[str] | None = set()  # topics that hold data; None: it is not known
        self.now = 0  # no look has the time of another
        self.announced: set[int] = set()  # SPUs that the job does not know yet
        self.applied = AppliedRecords()
        self.memory = TopicMemory()
        self.assigner = Assigner()
        self.published: dict[str, ReplicaMap] = {}
        self.statuses: list[TopicStatus] = []
        self.inbox: list[Event] = []  # what the job has not read yet
        self.answer(*self.events.joins(1, 2, 3, 4))

    def answer(self, *events: Event) -> None:
        self.statuses.clear()
        for event in events:
            for answer in self.assigner.apply(event):
                if isinstance(answer, TopicStatus):
                    self.statuses.append(answer)
                elif isinstance(answer, ReplicaMap) and answer.replicas is None:
                    self.published.pop(answer.topic)
                elif isinstance(answer, ReplicaMap):
                    self.published[answer.topic] = answer

    def kafka(self, topic: str, lists: Lists, *, topic_id: str | None = None) -> None:
        self.found[topic] = FoundTopic(rows=rows(lists), topic_id=topic_id or f"id-of-{topic}")

    def decide(self, **changed: Any) -> TopicsDecision:
        """What the options, or changed ones, come to now; by a process that has just begun."""
        self.memory = TopicMemory()
        return self._decide(replace(self.options, **changed))

    def adopt(self, **changed: Any) -> TopicsDecision:
        """Decide, and have the job answer."""
        decision = self.decide(**changed)
        self.answer(*decision.events)
        return decision

    def look(self, *, job_runs: bool = True) -> TopicsDecision:
        """The next look of a process that follows."""
        decision = self._decide(self.options)
        self.inbox += decision.events
        if job_runs:
            self.answer(*self.inbox)
            self.inbox.clear()
            for status in self.statuses:
                if status.status is Status.REJECTED:
                    self.memory.reject(status.cause, str(status.message))
        return decision

    def _decide(self, options: FollowOptions) -> TopicsDecision:
        facts = TopicFacts(
            found=self.found,
            maps=dict(self.published),
            applied=self.applied,
            spus=frozenset({*self.assigner.clusters["c1"].spus, *self.announced}),
        )
        self.now += 1
        return decide_topics(
            facts,
            options,
            self.memory,
            occurred_at=self.now,
            untouched=lambda names: None if self.written is None else {*names} - self.written,
            bytes_of=lambda names: {x: self.bytes[x] for x in names if x in self.bytes},
        )

    def maps(self) -> dict[str, Rows]:
        return {name: rows_of(each) for name, each in self.published.items()}

    def note(self, origin: Origin, *topics: str) -> None:
        made = (record(each, origin, topic_id=self.found[each].topic_id) for each in topics)
        self.applied = recorded(*made)
