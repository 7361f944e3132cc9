"""Following the brokers of a cluster: look, decide, and, as the leader, send.

Rules: everybody looks, so that a leader's successor knows since when a broker is missing; only the
leader reads what was announced, and sends. What goes wrong after the start is told, and tried again
at the next look from the beginning: take the id, read what was announced, decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from spu_assigner.core.base.events import SpuJoined
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.follow.decision import (
    Announcement,
    MembershipDecision,
    Rules,
    Sightings,
    crowded,
    decide,
    followed_clusters,
)
from spu_assigner.stream.follow.kafka import (
    AnnouncedReader,
    ClusterSnapshot,
    FencedProducer,
    FollowError,
    LeaderElection,
    OvertakenError,
    WatchedCluster,
    require_rights,
)
from spu_assigner.stream.follow.rendering import Teller
from spu_assigner.stream.kafka.connection_diagnosis import UnreachableError
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX, ClientError

POLL_SECONDS: Final = 0.2  # Ctrl-C is seen between polls
ELECTION_SECONDS_MAX: Final = 60.0  # the group answers within a dead leader's session
HELD_BACK: Final = 1  # exit status


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """What the command was asked for."""

    cluster_id: str
    rules: Callable[[str], Rules]  # for the watched cluster's own id; asked at each look
    interval_seconds: float
    once: bool = False
    dry_run: bool = False
    accepts_cluster: bool = False  # although the SPUs were said to be another cluster's brokers


def follow(
    events: Connection,
    watched: Connection,
    options: FollowOptions,
    teller: Teller,
    *,
    check: Callable[[], None],
) -> int:
    """Follow until `check` raises, or with `once` until nothing is left to do; the exit status.

    Raises:
        UnreachableError: the watched cluster cannot be seen at the start, or with `once`.
        ClientError: the same of the cluster that the events go to.
        FollowError: it cannot go on.
    """
    with ExitStack() as stack:
        follower = _Follower(events, WatchedCluster(watched), options, teller)
        stack.callback(follower.close)
        follower.begin()
        while True:
            began = time.monotonic()
            status = follower.turn()
            if status is not None:
                return status
            while (left := began + options.interval_seconds - time.monotonic()) > 0:
                check()
                follower.rest(min(left, POLL_SECONDS))
            check()


@dataclass(slots=True)
class _Session:
    """What the leader has, from winning the election to losing it."""

    reader: AnnouncedReader
    producer: FencedProducer | None  # None: nothing is to be sent
    announced: set[str] = field(default_factory=set)  # ids of what a dry run has told

    def close(self) -> None:
        self.reader.close()
        if self.producer is not None:
            self.producer.close()


class _Follower:
    """One process that follows."""

    def __init__(
        self, events: Connection, watched: WatchedCluster, options: FollowOptions, teller: Teller
    ) -> None:
        self._events = events
        self._watched = watched
        self._options = options
        self._teller = teller
        self._sight = Sightings()
        self._kafka_cluster = ""
        self._election: LeaderElection | None = None
        self._session: _Session | None = None
        self._counted: set[str] = set()  # ids of the joins that the warning was considered for

    def begin(self) -> None:
        """The first look, and joining the election."""
        look = self._watched.first_look()
        self._kafka_cluster = look.kafka_cluster
        self._teller.watches(look, self._options.cluster_id)
        self._see(look)
        if self._options.dry_run:
            return
        require_rights(self._events)
        self._election = LeaderElection(self._events, self._options.cluster_id)
        if self._options.once:
            deadline = time.monotonic() + ELECTION_SECONDS_MAX
            while self._election.is_mine is None:
                self._election.poll(POLL_SECONDS)
                if time.monotonic() > deadline:
                    raise ClientError(
                        f"the group of the followers of cluster {self._options.cluster_id!r} did "
                        f"not answer within {ELECTION_SECONDS_MAX:.0f} s; check the brokers"
                    )

    def turn(self) -> int | None:
        """Look and act; the exit status if this was all."""
        self._look()
        if self._election is not None:
            self._election.poll(0)
            if not self._election.is_mine:
                self._end_session()
                self._teller.stands_by(self._election.is_mine)
                return 0 if self._options.once else None
        try:
            decision = self._act()
        except OvertakenError as reason:
            self._end_session()
            self._teller.trouble(f"{reason}; queues again")
            if self._election is not None:
                self._election.leave()
            return 0 if self._options.once else None
        except ClientError as reason:
            self._end_session()
            if self._options.once:
                raise
            self._teller.trouble(f"{reason}; tries again")
            return None
        self._teller.trouble(None)
        if not self._options.once or decision.awaited or not self._sight.is_clear:
            return None
        return HELD_BACK if decision.held else 0

    def rest(self, seconds: float) -> None:
        """Wait, and hear what the group says."""
        if self._election is None:
            time.sleep(seconds)
        else:
            self._election.poll(seconds)

    def close(self) -> None:
        """Let another lead."""
        self._end_session()
        if self._election is not None:
            self._election.close()
        self._watched.close()

    def _look(self) -> None:
        try:
            self._see(self._watched.look())
        except UnreachableError as reason:
            if self._options.once:
                raise
            self._see(None)
            self._teller.blind(str(reason))

    def _see(self, look: ClusterSnapshot | None) -> None:
        if look is not None and look.kafka_cluster != self._kafka_cluster:
            raise FollowError(
                f"the watched cluster was {self._kafka_cluster} and is {look.kafka_cluster} now; "
                "start again once you know which is meant"
            )
        racks: Mapping[int, str | None] | None = None if look is None else look.racks
        if racks:
            self._teller.sees()
        gap = 3 * self._options.interval_seconds + REQUEST_SECONDS_MAX
        self._sight = self._sight.after(racks, now=time.monotonic(), gap=gap)

    def _act(self) -> MembershipDecision:
        """Decide, and send what follows."""
        session = self._session
        if session is None:
            session = self._session = self._begin_session()
        else:
            session.reader.catch_up()
        announced = session.reader.announced.by_spu()
        rules = self._options.rules(self._kafka_cluster)
        decision = decide(
            announced,
            self._sight,
            rules,
            origin=session.reader.origin,
            occurred_at=time.time_ns() // 1_000_000,
        )
        self._teller.decided(decision, self._sight)
        self._warn_of_crowded(decision.events)
        if session.producer is not None:
            if decision.events:
                for event, place in session.producer.say(decision.events):
                    session.reader.announced.take(event, place)
                    self._tell(event)
            return decision
        for event in decision.events:
            if event.event_id not in session.announced:
                session.announced.add(event.event_id)
                self._tell(event)
        return decision

    def _warn_of_crowded(self, events: Sequence[Announcement]) -> None:
        """Before a broker joins with a capacity that Kafka has half used: once for each broker."""
        joins = [event for event in events if isinstance(event, SpuJoined)]
        if all(join.event_id in self._counted for join in joins):
            return
        try:
            held = self._watched.replicas_held()
        except UnreachableError as reason:
            self._teller.uncounted(str(reason))
            return
        self._counted.update(join.event_id for join in joins)
        for broker, (count, capacity) in crowded(joins, held).items():
            self._teller.crowded(broker, held=count, capacity=capacity)

    def _tell(self, event: Announcement) -> None:
        self._teller.event(event, missing_for=self._sight.missing_for(event.spu_id))

    def _begin_session(self) -> _Session:
        with ExitStack() as stack:
            producer = None
            # First the id: what an older leader left open is settled.
            if not self._options.dry_run:
                producer = FencedProducer(self._events, self._options.cluster_id)
                stack.callback(producer.close)
            reader = AnnouncedReader(self._events, self._options.cluster_id)
            stack.callback(reader.close)
            announced = reader.announced.by_spu()
            self._check_cluster(followed_clusters(announced))
            stack.pop_all()
        self._teller.leads(announced, dry_run=self._options.dry_run)
        return _Session(reader=reader, producer=producer)

    def _check_cluster(self, followed: Sequence[str]) -> None:
        others = [each for each in followed if each != self._kafka_cluster]
        if others and not self._options.accepts_cluster:
            raise FollowError(
                f"SPUs of cluster {self._options.cluster_id!r} are brokers of Kafka cluster "
                f"{others[0]}, and this is {self._kafka_cluster}; check --watch-bootstrap-servers, "
                "or say --accept-cluster if the brokers are to be those of this one now"
            )

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
