"""A Kafka cluster whose topics are adopted, and a job that answers, both without Kafka."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Event
from spu_assigner.core.base.records import ReplicaMap, TopicStatus
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.clusters.follow.adoption import (
    AdoptionDecision,
    AdoptionOptions,
    FoundTopic,
    PublishedMaps,
    decide_adoptions,
    rows_of,
)
from spu_assigner.stream.clusters.plan.applied import AppliedRecords
from spu_assigner.stream.clusters.plan.model import Rows
from support.events.builders import Events
from support.job.plans import record, recorded

OPTIONS = AdoptionOptions(cluster_id="c1", own=frozenset({"spu-events"}))
Lists = list[list[int]]


def rows(lists: Lists) -> Rows:
    return tuple(map(tuple, lists))


class Installation:
    """A Kafka cluster, a job without Kafka, and the records; SPUs 1 to 4 have joined."""

    def __init__(self, options: AdoptionOptions = OPTIONS) -> None:
        self.options = options
        self.events = Events()
        self.found: dict[str, FoundTopic] = {}
        self.bytes: dict[str, int] = {}  # of one copy of topics
        self.applied = AppliedRecords()
        self.assigner = Assigner()
        self.published: dict[str, ReplicaMap] = {}
        self.statuses: list[TopicStatus] = []
        self.answer(*self.events.joins(1, 2, 3, 4))

    def answer(self, *events: Event) -> None:
        """What the job makes of these."""
        for event in events:
            for answer in self.assigner.apply(event):
                if isinstance(answer, TopicStatus):
                    self.statuses.append(answer)
                elif isinstance(answer, ReplicaMap) and answer.replicas is None:
                    self.published.pop(answer.topic)
                elif isinstance(answer, ReplicaMap):
                    self.published[answer.topic] = answer

    def kafka(self, topic: str, lists: Lists, *, topic_id: str | None = None) -> None:
        """A topic is made or changed by others."""
        self.found[topic] = FoundTopic(rows=rows(lists), topic_id=topic_id or f"id-of-{topic}")

    def decide(self, **changed: Any) -> AdoptionDecision:
        memory = self.assigner.clusters["c1"].memory.known
        remembered = frozenset(each for each in memory if each is not None)
        return decide_adoptions(
            self.found,
            PublishedMaps(maps=self.published, remembered=remembered),
            self.applied,
            replace(self.options, **changed),
            spus=self.assigner.clusters["c1"].spus.keys(),
            occurred_at=0,
            topic_bytes=self.bytes,
        )

    def adopt(self, **changed: Any) -> AdoptionDecision:
        """Decide, and have the job answer."""
        decision = self.decide(**changed)
        self.statuses.clear()
        self.answer(*decision.events)
        return decision

    def maps(self) -> dict[str, Rows]:
        return {name: rows_of(each) for name, each in self.published.items()}

    def note(self, origin: Origin, *topics: str) -> None:
        """As `apply` or `adopt` records it."""
        made = (record(each, origin, topic_id=self.found[each].topic_id) for each in topics)
        self.applied = recorded(*made)
