"""`follow --topics`: what others make, grow, reassign and delete in Kafka enters the state.

Rules: only the leader looks at topics and sends. What it has sent is not sent again while the job
has not answered, and what the job rejected not before a broker joins or the topic changes. A topic
is released once it was gone in two looks, unless more than half of those that were adopted are gone
at once: that is rather a fault of the view. What was adopted is recorded in `applied-topics` as
found, unless an `apply` is just about to record it. New topics that the job has placed are moved
beside the looks: a move waits for the seat of moves, and for brokers that stop in between.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import TopicRelease
from spu_assigner.core.base.records import Status, TopicStatus
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.follow.adoption import (
    AdoptionDecision,
    AdoptionOptions,
    FoundTopic,
    PublishedMaps,
)
from spu_assigner.stream.clusters.follow.followed_topics import (
    FollowedTopics,
    TopicsTurn,
    is_followed,
)
from spu_assigner.stream.clusters.follow.kafka_topics import PublishedReader, WatchedTopics
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.moves.session import moving
from spu_assigner.stream.clusters.plan.applied import AppliedRecords, notes
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.clusters.plan.model import Maps, TargetError, Wanted
from spu_assigner.stream.clusters.plan.target_cluster import Target
from spu_assigner.stream.clusters.plan.topic_sizes import topic_bytes
from spu_assigner.stream.common.daemon_threads import DaemonThread
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.topics import APPLIED_TOPICS, TOPIC_STATUS, TOPICS, topic_name

PIECE_EVENTS: Final = 1_000  # of a transaction, which is not to last
MOVES_AT_ONCE: Final = 1_000  # of a broker: what is empty costs nothing


class NewTopicMoves:
    """Moves partitions of new topics that are still empty, in a thread.

    A process that ends in between leaves what it has begun to the next one.
    """

    def __init__(self, connection: Connection, cluster_id: str) -> None:
        self._connection = connection
        self._cluster_id = cluster_id
        self._thread: DaemonThread | None = None
        self._topics: frozenset[str] = frozenset()  # of the moves that were begun last
        self._moved: list[str] = []
        self._trouble: str | None = None

    def start(self, moves: Sequence[MovedPartition]) -> None:
        """Begin, unless earlier ones are under way."""
        if moves and not self.is_running:
            self._topics = frozenset(each.topic for each in moves)
            self._thread = DaemonThread(lambda: self._run(moves), name="new-topics")
            self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def under_way(self) -> frozenset[str]:
        """The topics that are being moved."""
        return self._topics if self.is_running else frozenset()

    def take(self) -> tuple[list[str], str | None]:
        """Topics that were moved since this was called last; and why others were not."""
        moved, self._moved = self._moved, []
        return moved, self._trouble

    def _run(self, moves: Sequence[MovedPartition]) -> None:
        options = MoveOptions(concurrency=MOVES_AT_ONCE)
        connection, cluster_id = self._connection, self._cluster_id
        try:
            with (
                Target(connection) as target,
                moving(
                    connection, options, cluster_id=cluster_id, is_quiet=True, may_copy=False
                ) as runner,
            ):
                cluster = target.look(())
                names = {each.topic for each in moves}
                empty = target.untouched(cluster, sorted(names & cluster.topics.keys()))
                report = runner.carry_out([each for each in moves if each.topic in empty])
        except AssignerError as reason:
            self._trouble = str(reason)
        else:
            self._moved += dict.fromkeys(topic for topic, _ in report.moved)
            self._trouble = report.stopped or next(iter(report.failed.values()), None)


class TopicFollowing:
    """Looks, and decides, from winning the election to losing it.

    Args:
        events: where the job's topics are.
        watched: the Kafka cluster whose topics are followed.
        options: which topics, and for which cluster.
        place_new: new topics that are empty are placed by the job, and moved there.
    """

    def __init__(
        self,
        events: Connection,
        watched: Connection,
        options: AdoptionOptions,
        *,
        place_new: bool,
        dry_run: bool,
    ) -> None:
        own = frozenset(topic_name(spec.name, prefix=events.prefix) for spec in TOPICS)
        self._options = replace(options, own=own)
        self._ledger_connection = replace(watched, prefix=events.prefix)
        self._records = topic_name(APPLIED_TOPICS, prefix=events.prefix)
        self._dry_run = dry_run
        self._found: Mapping[str, FoundTopic] = {}  # at the last look
        self.moves = NewTopicMoves(self._ledger_connection, options.cluster_id)
        self._applied = AppliedRecords()  # read when something has changed
        self._followed = FollowedTopics(self._options, place_new=place_new)
        with ExitStack() as unless_whole:
            self._topics = WatchedTopics(watched, trusts_lists=True)
            unless_whole.callback(self._topics.close)
            self._published = PublishedReader(events, options.cluster_id)
            unless_whole.callback(self._published.close)
            self._statuses = Reader(events, [TOPIC_STATUS])
            unless_whole.pop_all()

    def close(self) -> None:
        """End all clients."""
        self._topics.close()
        self._published.close()
        self._statuses.__exit__(None, None, None)

    def turn(self, spus: Collection[int], *, has_new_spus: bool, asks_bytes: bool) -> TopicsTurn:
        """Look, and decide what is to be sent.

        Args:
            spus: the ids that were announced.
            has_new_spus: what the job rejected may be accepted now.
            asks_bytes: adoptions say how large the topics are.

        Raises:
            TargetError, ClientError, UnreachableError: something cannot be read.
        """
        moving = self.moves.under_way  # Before the look: what ends meanwhile is in it.
        before, self._found = self._found, self._topics.look(self._options.is_meant)
        # What `apply` made is known before its map may be deleted: it must not be adopted then.
        if self._published.catch_up() or self._found != before:
            self._applied = self._ledger().read()
        self._take_statuses()
        if has_new_spus:
            self._followed.retry()
        published = self._published.now()
        turn = self._followed.turn(
            self._found,
            published,
            self._applied,
            spus=spus,
            occurred_at=_now_ms(),
            untouched=self._untouched,
            topic_bytes=self._topic_bytes if asks_bytes else lambda _: {},
            moving=moving,
        )
        lost = [event.topic for event in turn.events if isinstance(event, TopicRelease)]
        if lost:
            self._topics.require_sight(lost)
        if not self._dry_run:
            self._record(turn.decision, published)
        return turn

    def _untouched(self, topics: Sequence[str]) -> Collection[str] | None:
        try:
            return self._topics.target.untouched(self._topics.cluster, topics)
        except TargetError:  # One that was just made has no leader yet.
            return None

    def _topic_bytes(self, topics: Mapping[str, int]) -> Mapping[str, int]:
        return topic_bytes(self._ledger_connection, topics)

    def _take_statuses(self) -> None:
        for received in self._statuses.drain():
            match received.answer:
                case TopicStatus(status=Status.REJECTED) as answer:
                    self._followed.reject(answer.cause, f"{answer.message} ({answer.code})")
                case _:
                    pass

    def _record(self, decision: AdoptionDecision, published: PublishedMaps) -> None:
        """Record what was adopted and is as mapped now; forget what was released.

        The records are read again: `apply` may have written some.
        """
        applied, ids = self._applied, self._topics.cluster.ids
        adopted = [
            name
            for name in (*decision.equal, *(each.topic for each in decision.pending))
            if name in published.maps
            and (name in self._followed.adopted or is_followed(published.maps[name]))
            and not applied.is_known(name, ids.get(name))
        ]
        there = self._topics.cluster.topics
        released = [
            name
            for name in self._followed.released
            if name not in published.maps and name in applied.records and name not in there
        ]
        if not (adopted or released):
            return
        ledger = self._ledger()
        applied = ledger.read()
        maps = {
            name: Wanted(replicas=self._topics.cluster.rows(name))
            for name in adopted
            if name not in applied.intents
        }
        wanted = Maps(cluster_id=self._options.cluster_id, topics=maps)
        noted = notes(wanted, self._topics.cluster, applied, now_ms=_now_ms())
        ledger.record(noted.records)
        ledger.forget(released)
        self._applied = ledger.read()

    def _ledger(self) -> AppliedLedger:
        is_there = self._records in self._topics.cluster.topics
        cluster_id = self._options.cluster_id
        return AppliedLedger(self._ledger_connection, cluster_id, is_there=is_there)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
