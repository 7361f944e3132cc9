"""Both sides of a command that follows: it looks, decides, and records what is as mapped.

What was adopted is recorded in `applied-topics` as found, so that `plan` and `apply` know it: it
grows with its map, moves are written for it, and no command deletes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from spu_assigner.core.base.events import SpuJoined, TopicAdopted
from spu_assigner.core.base.records import Status, TopicStatus
from spu_assigner.core.base.resources import BYTES
from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.clusters.follow.brokers import (
    MembershipDecision,
    Sightings,
    crowded,
    decide_brokers,
    declares,
)
from spu_assigner.stream.clusters.follow.kafka import AnnouncedReader, require_cluster
from spu_assigner.stream.clusters.follow.new_topic_moves import NewTopicMoves
from spu_assigner.stream.clusters.follow.options import FollowOptions
from spu_assigner.stream.clusters.follow.report import FollowOutput
from spu_assigner.stream.clusters.follow.topic_facts import FoundTopic, TopicFacts, TopicMemory
from spu_assigner.stream.clusters.follow.topics import TopicsDecision, decide_topics, with_sizes
from spu_assigner.stream.clusters.follow.watched import WatchedCluster
from spu_assigner.stream.clusters.plan.applied import AppliedRecords
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.clusters.plan.model import TopicReason, rows_digest
from spu_assigner.stream.clusters.plan.topic_sizes import topic_bytes
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.connection_diagnosis import UnreachableError
from spu_assigner.stream.kafka.errors import ClientError, granting
from spu_assigner.stream.kafka.topics import APPLIED_TOPICS, TOPIC_STATUS, topic_name


class FollowSession:
    """What a command has, of a follower from winning the election to losing it.

    Args:
        events: where the job's topics are.
        watched: the Kafka cluster that is followed.
        target: how that cluster is reached.
    """

    def __init__(
        self,
        events: Connection,
        watched: WatchedCluster,
        target: Connection,
        options: FollowOptions,
        output: FollowOutput,
    ) -> None:
        self._watched = watched
        self._target = events.to_target(target)
        self._records = topic_name(APPLIED_TOPICS, prefix=events.prefix)
        self._options = options
        self._output = output
        self._memory = TopicMemory()
        self._found: Mapping[str, FoundTopic] = {}  # at the last look
        self._applied = AppliedRecords()
        self._version = -1  # of the maps when the records were read
        self._spus: frozenset[int] = frozenset()  # that were announced at the last look
        self.moves = NewTopicMoves(self._target, options.cluster_id)
        self._statuses: Reader | None = None
        with ExitStack() as unless_whole:
            has_topics = bool(options.globs)
            self.reader = AnnouncedReader(events, options.cluster_id, has_topics=has_topics)
            unless_whole.callback(self.reader.close)
            if not options.accept_cluster:
                require_cluster(self.reader.announced, options.kafka_cluster)
            if has_topics and not options.is_adopt:  # `adopt` waits for the answers.
                self._statuses = Reader(events, [TOPIC_STATUS])
            unless_whole.pop_all()

    def close(self) -> None:
        """End the clients."""
        self.reader.close()
        if self._statuses is not None:
            self._statuses.__exit__(None, None, None)

    def decide_brokers(self, sight: Sightings) -> MembershipDecision:
        """Which brokers join and leave."""
        self.reader.catch_up()
        decision = decide_brokers(
            self.reader.announced.by_spu(),
            sight,
            self._options,
            origin=self.reader.origin,
            occurred_at=_now_ms(),
        )
        if joins := [event for event in decision.events if isinstance(event, SpuJoined)]:
            self._warn_of_crowded(joins)
        return decision

    def decide_topics(self, joins: Sequence[SpuJoined] = ()) -> TopicsDecision:
        """Look at topics, and decide what is sent about them.

        Args:
            joins: of brokers, that are about to be sent.

        Raises:
            TargetError, ClientError, UnreachableError: something cannot be read.
        """
        options, occurred_at = self._options, _now_ms()
        moving = self.moves.under_way  # Before the look: what ends meanwhile is in it.
        before, self._found = self._found, self._watched.topics(options.is_meant)
        self.reader.catch_up()
        # What `apply` made is known before its map may be deleted: it must not be adopted then.
        if self.reader.version != self._version or self._found != before:
            self._version, self._applied = self.reader.version, self._ledger().read()
        self._take_statuses()
        announced, published = self.reader.announced.by_spu(), self.reader.published()
        spus = {*announced, *(join.spu_id for join in joins)}
        facts = TopicFacts(
            found=self._found, published=published, applied=self._applied, spus=frozenset(spus)
        )
        if not spus <= self._spus:
            self._memory.retry()
        self._spus = frozenset(spus)
        decision = decide_topics(
            facts,
            options,
            self._memory,
            occurred_at=occurred_at,
            untouched=self._watched.untouched,
            moving=moving,
        )
        lost = decision.gone if options.is_adopt else [each.topic for each in decision.released]
        if lost:
            self._watched.target.look(lost)  # Raises if this user may not see them.
        has_disks = any(BYTES in (join.resources or {}) for join in joins)
        if has_disks or declares(announced, BYTES):
            sizes = self._sizes(decision)
            decision = with_sizes(decision, sizes, facts, options, occurred_at=occurred_at)
        return replace(decision, events=self._memory.numbered(decision.events, published))

    def hidden(self) -> list[TopicReason]:
        """The topics on brokers that this user may not see, so that they are not adopted."""
        _, unseen = self._watched.replicas_held()
        for line in replace(unseen, sizes={}).lines("they are not adopted"):
            self._output.say(f"warning: {line}")
        maps = self.reader.published().maps
        for glob in self._options.unmatched((*self._found, *maps, *unseen.topics)):
            self._output.say(f"warning: no topic matches --topics {glob}; check it")
        why = f"is on brokers, and you may not see it; {granting(Role.ADOPTER)}"
        return [
            TopicReason(topic=name, reason=why)
            for name in unseen.topics
            if self._options.is_meant(name)
        ]

    def changed(self, adopted: Iterable[TopicAdopted]) -> list[TopicReason]:
        """Look again; the topics that others have changed since they were adopted."""
        self._found = self._watched.topics(self._options.is_meant)
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

    def followed(self, decision: TopicsDecision) -> tuple[list[str], list[str]]:
        """Topics that were adopted, and topics that were released, for `record`.

        What was adopted on a leaving SPU is mapped otherwise by now, and known all the same.
        """
        maps, memory = self.reader.published().maps, self._memory
        adopted = [each.topic for each in decision.pending if each.topic in memory.adopted]
        return [*decision.equal, *adopted], [each for each in memory.released if each not in maps]

    def record(self, found: Iterable[str], released: Iterable[str]) -> None:
        """Record these topics as found, and forget those that were released."""
        applied, cluster = self._applied, self._watched.cluster
        new = [each for each in found if not applied.is_known(each, cluster.ids.get(each))]
        new = [each for each in new if each in cluster.ids and each not in applied.intents]
        gone = [each for each in released if each in applied.records]
        gone = [each for each in gone if each not in cluster.topics]
        if not (new or gone):
            return
        ledger = self._ledger()
        applied = ledger.read()  # Again: an `apply` that runs now records what it makes itself.
        ledger.record(
            [
                AppliedTopic(
                    cluster_id=self._options.cluster_id,
                    topic=name,
                    topic_id=cluster.ids[name],
                    origin=Origin.FOUND,
                    recorded_at=_now_ms(),
                    lists=rows_digest(cluster.rows(name)),
                )
                for name in new
                if name not in applied.intents
                and not applied.is_known(name, cluster.ids[name])
                and not self._options.is_reserved(name)
            ]
        )
        ledger.forget(gone)
        self._applied = ledger.read()

    def _ledger(self) -> AppliedLedger:
        is_there = self._records in self._watched.cluster.topics
        return AppliedLedger(self._target, self._options.cluster_id, is_there=is_there)

    def _sizes(self, decision: TopicsDecision) -> Mapping[str, int]:
        """The bytes of topics that are adopted, by `adopt` also of those that are as mapped."""
        asked = {event.topic: len(event.replicas) for event in decision.adopted}
        if self._options.is_adopt:
            asked |= {name: len(self._found[name].rows) for name in decision.equal}
        sizes = topic_bytes(self._target, asked) if asked else {}
        if self._options.is_adopt and (unsized := sorted(asked.keys() - sizes)):
            self._output.say(
                f"warning: the bytes of {counted(len(unsized), 'topic')} are not known "
                f"({listed(unsized)}): all brokers must run, and this user may Describe the "
                f"cluster (role {Role.ADOPTER}); what they need of {BYTES} stays as it is known"
            )
        return sizes

    def _take_statuses(self) -> None:
        for received in self._statuses.drain() if self._statuses is not None else ():
            answer = received.answer
            if isinstance(answer, TopicStatus) and answer.status is Status.REJECTED:
                self._memory.reject(answer.cause, f"{answer.message} ({answer.code})")

    def _warn_of_crowded(self, joins: Sequence[SpuJoined]) -> None:
        """Before a broker joins with a capacity that Kafka has half used."""
        try:
            held, _ = self._watched.replicas_held()
        except (UnreachableError, ClientError) as reason:
            text = f"cannot count the replicas that brokers hold: {reason}"
            self._output.report("count", text)
            return
        self._output.report("count", None)
        for broker, (count, capacity) in crowded(joins, held).items():
            self._output.report(
                f"capacity of {broker}",
                f"warning: broker {broker} holds {count:,} replicas in Kafka already, more than "
                f"half of the {capacity:,} slots that it joins with, and it takes no new ones once "
                "they are assigned; set --capacity",
            )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
