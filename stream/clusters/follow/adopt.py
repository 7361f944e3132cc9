"""Adopting: look at Kafka, read the maps, decide, send, wait, look again, record.

Rules: what is sent is what the second look is compared with: a topic that others changed or deleted
meanwhile is reported, and the next run takes it as it is then. Topics that are as mapped in the end
are recorded in `applied-topics` as found, so that `plan` and `apply` know them: they grow with
their maps, moves are written for them, and no command deletes them. A run that was killed is
repeated: what it adopted is as mapped, and what was not answered is sent with the same id.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

from spu_assigner.core.base.events import SpuJoined, TopicAdopted, TopicRelease
from spu_assigner.core.base.resources import BYTES
from spu_assigner.stream.client.spu_description import Announced
from spu_assigner.stream.clusters.follow.adoption import (
    AdoptionDecision,
    AdoptionOptions,
    FoundTopic,
    decide_adoptions,
)
from spu_assigner.stream.clusters.follow.decision import (
    FollowOptions,
    Sightings,
    Size,
    crowded,
    decide,
    declares,
)
from spu_assigner.stream.clusters.follow.exchange import EventExchange
from spu_assigner.stream.clusters.follow.kafka import (
    AnnouncedReader,
    ClusterSnapshot,
    WatchedCluster,
    require_cluster,
)
from spu_assigner.stream.clusters.follow.kafka_topics import PublishedReader, WatchedTopics
from spu_assigner.stream.clusters.follow.rendering import Progress
from spu_assigner.stream.clusters.plan.applied import notes
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.clusters.plan.model import Maps, TopicReason, Wanted
from spu_assigner.stream.clusters.plan.topic_sizes import topic_bytes
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import GRANTING, AccessError, granting
from spu_assigner.stream.kafka.log_dirs import UnseenReplicas
from spu_assigner.stream.kafka.topics import APPLIED_TOPICS, TOPICS, topic_name


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptRequest:
    """What is to be adopted, and where it goes."""

    connection: Connection  # to the job's topics
    target_connection: Connection | None  # to another Kafka cluster, whose topics are adopted
    options: AdoptionOptions
    size: Size = field(default_factory=Size)  # of brokers that join
    accept_cluster: bool = False  # although the SPUs are another cluster's brokers
    dry_run: bool = False
    wait_seconds: float = 60.0  # for which nothing may be answered

    @property
    def target(self) -> Connection:
        """Where the topics are."""
        return self.target_connection or self.connection

    def ledger(self, *, is_there: bool) -> AppliedLedger:
        """What is recorded of the topics, beside them."""
        connection = self.connection.to_target(self.target_connection)
        return AppliedLedger(connection, self.options.cluster_id, is_there=is_there)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptReport:
    """What was decided, and what became of it."""

    kafka_cluster: str
    joins: tuple[SpuJoined, ...]
    crowded: Mapping[int, tuple[int, int]]  # joins with too little room: replicas, capacity
    decision: AdoptionDecision
    unmatched: tuple[str, ...] = ()  # globs that no topic matches
    unsized: tuple[str, ...] = ()  # topics whose bytes were asked for in vain
    unseen: UnseenReplicas = field(default_factory=UnseenReplicas)
    adopted: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    rejected: tuple[TopicReason, ...] = ()  # by the job
    changed: tuple[TopicReason, ...] = ()  # by others, while they were adopted
    unanswered: int = 0

    @property
    def is_nothing_to_do(self) -> bool:
        return not (self.joins or self.decision.events)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left that was asked for."""
        left = (self.decision.left, self.rejected, self.changed)
        return not any(left) and not self.unanswered


def adopt_topics(
    request: AdoptRequest,
    *,
    say: Callable[[str], None],
    progress: Progress,
    check: Callable[[], None],
) -> AdoptReport:
    """Adopt, or with `dry_run` only look; what became of it.

    Raises:
        FollowError: the SPUs are brokers of another Kafka cluster, or these of another cluster.
        TargetError, UnreachableError: the topics cannot be looked at.
        ClientError: the job's topics cannot be read, or do not take events or records.
    """
    with ExitStack() as stack:
        brokers = stack.enter_context(closing(WatchedCluster(request.target)))
        look = brokers.first_look()
        topics = stack.enter_context(closing(WatchedTopics(request.target)))
        run = _AdoptRun(request, look, topics)
        exchange = None
        if not request.dry_run:
            run.require_rights()
            exchange = stack.enter_context(
                EventExchange(request.connection, seconds=request.wait_seconds, check=check)
            )
        report = run.decided(brokers)
        for glob in report.unmatched:
            say(f"warning: no topic matches --topics {glob}; check it")
        if report.unsized:
            say(
                f"warning: the bytes of {counted(len(report.unsized), 'topic')} are not known "
                f"({listed(report.unsized)}): all brokers must run, and this user may Describe the "
                f"cluster (role {Role.ADOPTER}); what they need of {BYTES} stays as it is known"
            )
        for line in replace(report.unseen, sizes={}).lines("they are not adopted"):
            say(f"warning: {line}")
        if exchange is None or (report.is_nothing_to_do and not report.decision.equal):
            return report
        for broker, (count, capacity) in report.crowded.items():
            say(
                f"warning: broker {broker} holds {count:,} replicas in Kafka already, more than "
                f"half of the {capacity:,} slots that it joins with; set --capacity"
            )
        if report.decision.events or report.joins:
            report = run.sent(report, exchange, progress)
        run.record(report)
        return report


class _AdoptRun:
    """One run."""

    def __init__(self, request: AdoptRequest, look: ClusterSnapshot, topics: WatchedTopics) -> None:
        names = {topic_name(spec.name, prefix=request.connection.prefix) for spec in TOPICS}
        self._request = request
        self._options = replace(request.options, own=frozenset(names))
        self._look = look
        self._topics = topics
        self._found: Mapping[str, FoundTopic] = topics.look(self._options.is_meant)
        self._records = topic_name(APPLIED_TOPICS, prefix=request.connection.prefix)
        self._ledger = request.ledger(is_there=self._records in self._found)
        self._applied = self._ledger.read()

    def require_rights(self) -> None:
        """Return if what is adopted can be recorded.

        Raises:
            AccessError: this user may not write there.
        """
        if self._ledger.is_there and not self._topics.target.may_write(self._records):
            raise AccessError(
                f"this user may not Write {self._records}; {GRANTING} (role {Role.ADOPTER})"
            )

    def decided(self, brokers: WatchedCluster) -> AdoptReport:
        """What is to be sent."""
        cluster_id = self._options.cluster_id
        with closing(PublishedReader(self._request.connection, cluster_id)) as maps:
            published = maps.now()
        with closing(AnnouncedReader(self._request.connection, cluster_id)) as reader:
            announced, origin = reader.announced.by_spu(), reader.origin
            if not self._request.accept_cluster:
                kafka_cluster = self._look.kafka_cluster
                require_cluster(
                    reader.announced, kafka_cluster, address="SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS"
                )
        joins = new_joins(self._request, self._look, announced, origin=origin)
        meant = {
            name: len(topic.rows)
            for name, topic in self._found.items()
            if self._options.is_meant(name) and not self._options.is_reserved(name)
        }
        has_disks = declares(announced, BYTES) or any(BYTES in (j.resources or {}) for j in joins)
        asks_bytes = bool(meant) and has_disks
        sizes = topic_bytes(self._request.target, meant) if asks_bytes else {}
        decision = decide_adoptions(
            self._found,
            published,
            self._applied,
            self._options,
            spus=(*announced, *(join.spu_id for join in joins)),
            occurred_at=time.time_ns() // 1_000_000,
            topic_bytes=sizes,
        )
        if decision.gone:
            self._topics.require_sight(decision.gone)
        held, unseen = brokers.replicas_held()
        hidden = [each for each in unseen.topics if self._options.is_meant(each)]
        decision = replace(decision, left=_with_hidden(decision.left, hidden))
        return AdoptReport(
            kafka_cluster=self._look.kafka_cluster,
            joins=joins,
            crowded=crowded(joins, held),
            decision=decision,
            unmatched=self._options.unmatched((*self._found, *published.maps, *unseen.topics)),
            unseen=unseen,
            unsized=tuple(sorted(meant.keys() - sizes)) if asks_bytes else (),
        )

    def sent(self, report: AdoptReport, exchange: EventExchange, progress: Progress) -> AdoptReport:
        """Send what was decided, wait for the answers, and look again."""
        events = report.decision.events
        with progress.shown(len(report.joins) + len(events)):
            if exchange.run(report.joins, progress.add):
                exchange.run(events, progress.add)
        accepted = [event for event in events if event.event_id in exchange.accepted]
        rejected = [
            TopicReason(topic=event.topic, reason=exchange.rejected[event.event_id])
            for event in events
            if event.event_id in exchange.rejected
        ]
        rejected += [
            TopicReason(topic=f"SPU {join.spu_id}", reason=exchange.rejected[join.event_id])
            for join in report.joins
            if join.event_id in exchange.rejected
        ]
        self._found = self._topics.look(self._options.is_meant)
        return replace(
            report,
            adopted=tuple(each.topic for each in accepted if isinstance(each, TopicAdopted)),
            released=tuple(each.topic for each in accepted if isinstance(each, TopicRelease)),
            rejected=tuple(rejected),
            changed=tuple(self._changed([e for e in accepted if isinstance(e, TopicAdopted)])),
            unanswered=len(report.joins)
            + len(events)
            - len(exchange.accepted)
            - len(exchange.rejected),
        )

    def record(self, report: AdoptReport) -> None:
        """Record what is as it was adopted, or as mapped, as found; forget what was released.

        What was adopted on a leaving SPU is mapped otherwise by now, and known all the same.
        """
        changed = {each.topic for each in report.changed}
        maps = {
            name: Wanted(replicas=self._found[name].rows)
            for name in (*report.decision.equal, *report.adopted)
            if name in self._found
            and name not in changed
            and name not in self._applied.intents  # An `apply` that runs records it itself.
        }
        wanted = Maps(cluster_id=self._options.cluster_id, topics=maps)
        now_ms = int(time.time() * 1000)
        noted = notes(wanted, self._topics.cluster, self._applied, now_ms=now_ms)
        self._ledger.record(noted.records)
        self._ledger.forget(name for name in report.released if name in self._applied.records)

    def _changed(self, adopted: Sequence[TopicAdopted]) -> list[TopicReason]:
        """Topics that are not as they were adopted any more."""
        changed = []
        for event in adopted:
            now = self._found.get(event.topic)
            if now is None:
                why = "was deleted while it was adopted; run this again with --forget-gone"
            elif now.reassigned or now.rows != event.replicas:
                why = "was changed by others while it was adopted; run this again"
            else:
                continue
            changed.append(TopicReason(topic=event.topic, reason=why))
        return changed


def _with_hidden(left: Sequence[TopicReason], hidden: Sequence[str]) -> tuple[TopicReason, ...]:
    """What cannot be adopted, with topics that are on brokers and that this user may not see."""
    why = f"is on brokers, and you may not see it; {granting(Role.ADOPTER)}"
    found = [*left, *(TopicReason(topic=each, reason=why) for each in hidden)]
    return tuple(sorted(found, key=lambda each: each.topic))


def new_joins(
    request: AdoptRequest,
    look: ClusterSnapshot,
    announced: Mapping[int, Announced],
    *,
    origin: str,
) -> tuple[SpuJoined, ...]:
    """The brokers that were never announced join, by the ids that a follower would use."""
    options = FollowOptions(
        cluster_id=request.options.cluster_id,
        kafka_cluster=look.kafka_cluster,
        grace_seconds=math.inf,
        size=request.size,
    )
    decision = decide(
        announced,
        Sightings().after(look.racks, now=0.0, gap=0.0),
        options,
        origin=origin,
        occurred_at=time.time_ns() // 1_000_000,
    )
    return tuple(
        event
        for event in decision.events
        if isinstance(event, SpuJoined) and event.spu_id not in announced
    )
