"""Following a Kafka cluster: look, decide, and, as the leader, send.

Rules: everybody looks, so that a leader's successor knows since when a broker is missing; only the
leader reads what was announced, and sends. What goes wrong after the start is reported, and retried
at the next look from the beginning: take the id, read what was announced, decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Final

from spu_assigner.core.base.events import SpuJoined
from spu_assigner.core.base.resources import BYTES
from spu_assigner.stream.client.spu_description import Announcement
from spu_assigner.stream.clusters.follow.adoption import AdoptionOptions
from spu_assigner.stream.clusters.follow.decision import (
    FollowOptions,
    MembershipDecision,
    Sightings,
    Size,
    crowded,
    decide,
    declares,
)
from spu_assigner.stream.clusters.follow.followed_topics import FollowedEvent
from spu_assigner.stream.clusters.follow.kafka import (
    AnnouncedReader,
    ClusterSnapshot,
    FencedProducer,
    FollowError,
    OvertakenError,
    WatchedCluster,
    require_cluster,
    require_rights,
)
from spu_assigner.stream.clusters.follow.rendering import FollowOutput, brokers_text
from spu_assigner.stream.clusters.follow.sizes_file import SizesError, read_sizes
from spu_assigner.stream.clusters.follow.topic_following import PIECE_EVENTS, TopicFollowing
from spu_assigner.stream.clusters.plan.model import TargetError
from spu_assigner.stream.kafka.acls import Role, follower_name
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.connection_diagnosis import UnreachableError
from spu_assigner.stream.kafka.election import LeaderElection
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX, ClientError
from spu_assigner.stream.kafka.topics import ASSIGNER_COMMITS

POLL_SECONDS: Final = 0.2  # Ctrl-C is seen between polls
ELECTION_SECONDS_MAX: Final = 60.0  # the group answers within a dead leader's session
HELD_BACK: Final = 1  # exit status


def follow_cluster(
    events: Connection,
    watched: Connection,
    options: FollowOptions,
    output: FollowOutput,
    *,
    check: Callable[[], None],
) -> int:
    """Follow until `check` raises, or with `once` until nothing is left to do; the exit status.

    Raises:
        SizesError: the file of sizes is wrong at the start.
        UnreachableError: the watched cluster cannot be seen at the start, or with `once`.
        ClientError: the same of the cluster that the events go to.
        FollowError, ElectionError: it cannot go on.
    """
    with closing(_Follower(events, watched, options, output)) as follower:
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


class SizesOfLooks:
    """The options, with what the file of sizes says at each look; a wrong file changes nothing.

    Raises:
        SizesError: the file is wrong at the start.
    """

    def __init__(self, options: FollowOptions, output: FollowOutput) -> None:
        self._options = options
        self._output = output
        self._file = options.sizes_file
        self._sizes = (Size(), {}) if self._file is None else read_sizes(self._file)

    def now(self, kafka_cluster: str) -> FollowOptions:
        """The options for the watched cluster's own id."""
        wrong = None
        try:
            self._sizes = self._sizes if self._file is None else read_sizes(self._file)
        except SizesError as reason:
            wrong = f"{reason}; the sizes of before still hold"
        self._output.report("sizes", wrong)
        size = self._sizes[0].over(self._options.size)
        return replace(self._options, kafka_cluster=kafka_cluster, size=size, sizes=self._sizes[1])


class _Session:
    """What the leader has, from winning the election to losing it."""

    def __init__(self, events: Connection, watched: Connection, options: FollowOptions) -> None:
        self.topics: TopicFollowing | None = None  # None: they are not followed
        self.producer: FencedProducer | None = None  # None: nothing is to be sent
        self.shown: set[str] = set()  # ids of what a dry run has shown
        with ExitStack() as unless_whole:
            # First the id: what an older leader left open is settled.
            if not options.dry_run:
                self.producer = FencedProducer(events, options.cluster_id)
                unless_whole.callback(self.producer.close)
            self.reader = AnnouncedReader(events, options.cluster_id)
            unless_whole.callback(self.reader.close)
            if options.topics:
                followed = AdoptionOptions(
                    cluster_id=options.cluster_id,
                    globs=options.topics,
                    excluded=options.excluded_topics,
                )
                self.topics = TopicFollowing(
                    events,
                    watched,
                    followed,
                    place_new=options.place_new,
                    dry_run=options.dry_run,
                )
            unless_whole.pop_all()

    def send(self, events: Sequence[Announcement]) -> Sequence[Announcement]:
        """Send events, and take over what was sent; of a dry run, what is new."""
        if self.producer is None:
            new = [event for event in events if event.event_id not in self.shown]
            self.shown.update(event.event_id for event in new)
            return new
        for event, place in self.producer.send(events) if events else ():
            self.reader.announced.take(event, place)
        return events

    def send_of_topics(self, events: Sequence[FollowedEvent]) -> None:
        """Send events about topics, some at a time: a transaction is not to last."""
        if self.producer is not None:
            for at in range(0, len(events), PIECE_EVENTS):
                self.producer.send(events[at : at + PIECE_EVENTS])

    def close(self) -> None:
        self.reader.close()
        if self.topics is not None:
            self.topics.close()
        if self.producer is not None:
            self.producer.close()


class _Follower:
    """One process that follows."""

    def __init__(
        self,
        events: Connection,
        watched: Connection,
        options: FollowOptions,
        output: FollowOutput,
    ) -> None:
        self._events = events
        self._options = options
        self._output = output
        self._sizes = SizesOfLooks(options, output)
        self._watched_connection = watched
        self._watched = WatchedCluster(watched)
        self._sight = Sightings()
        self._kafka_cluster = ""
        self._election: LeaderElection | None = None
        self._session: _Session | None = None
        self._spus: frozenset[int] = frozenset()  # that were announced when topics were looked at

    def begin(self) -> None:
        """The first look, and joining the election."""
        options = self._options
        look = self._watched.first_look()
        self._kafka_cluster = look.kafka_cluster
        self._output.say(
            f"watches Kafka cluster {look.kafka_cluster}, {brokers_text(sorted(look.racks))}, for "
            f"cluster {options.cluster_id}"
        )
        self._see(look)
        if options.dry_run:
            return
        require_rights(self._events)
        self._election = LeaderElection(
            self._events,
            group=follower_name(options.cluster_id, prefix=self._events.prefix),
            topic=ASSIGNER_COMMITS,  # has one partition, and always will
            role=Role.FOLLOWER,
        )
        deadline = time.monotonic() + ELECTION_SECONDS_MAX
        while options.once and self._election.is_mine is None:
            self._election.poll(POLL_SECONDS)
            if time.monotonic() > deadline:
                raise ClientError(
                    f"the group of the followers of cluster {options.cluster_id!r} did not answer "
                    f"within {ELECTION_SECONDS_MAX:.0f} s; check the brokers"
                )

    def turn(self) -> int | None:
        """Look and act; the exit status if this was all."""
        once = self._options.once
        try:
            self._see(self._watched.look())
        except UnreachableError as reason:
            if once:
                raise
            self._see(None)
            self._output.blind(str(reason))
        if self._election is not None:
            self._election.poll(0)
            if not self._election.is_mine:
                self._end_session()
                is_known = self._election.is_mine is False
                known = "another follower leads" if is_known else "waits for the group"
                self._output.report("election", f"stands by: {known}")
                return 0 if once else None
        try:
            decision = self._act()
            has_topics_left = self._follow_topics()
        except OvertakenError as reason:
            self._end_session()
            self._output.report("trouble", f"{reason}; queues again")
            if self._election is not None:
                self._election.leave()
            return 0 if once else None
        except (ClientError, TargetError) as reason:
            self._end_session()
            if once:
                raise
            self._output.report("trouble", f"{reason}; retries")
            return None
        self._output.report("trouble", None)
        if not once or decision.awaited or has_topics_left or not self._sight.is_clear:
            return None
        return HELD_BACK if decision.held else 0

    def rest(self, seconds: float) -> None:
        """Wait, and take over what the group says."""
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

    def _see(self, look: ClusterSnapshot | None) -> None:
        if look is not None and look.kafka_cluster != self._kafka_cluster:
            raise FollowError(
                f"the watched cluster was {self._kafka_cluster} and is {look.kafka_cluster} now; "
                "start again once you know which is meant"
            )
        racks: Mapping[int, str | None] = {} if look is None else look.racks
        if racks:
            self._output.sees()
        gap = 3 * self._options.interval_seconds + REQUEST_SECONDS_MAX
        self._sight = self._sight.after(racks, now=time.monotonic(), gap=gap)

    def _act(self) -> MembershipDecision:
        """Decide, and send what follows."""
        if self._session is None:
            self._session = self._begun_session()
        session = self._session
        session.reader.catch_up()
        decision = decide(
            session.reader.announced.by_spu(),
            self._sight,
            self._sizes.now(self._kafka_cluster),
            origin=session.reader.origin,
            occurred_at=time.time_ns() // 1_000_000,
        )
        self._output.decided(decision, self._sight)
        self._warn_of_crowded(decision.events)
        for event in session.send(decision.events):
            self._output.event(event, missing_for=self._sight.missing_for(event.spu_id))
        return decision

    def _follow_topics(self) -> bool:
        """Look at topics and send what follows; whether there is more to look for."""
        session = self._session
        if session is None or session.topics is None or not self._sight.is_clear:
            return False
        announced = session.reader.announced.by_spu()
        spus = announced.keys()
        has_new_spus, self._spus = not spus <= self._spus, frozenset(spus)
        turn = session.topics.turn(
            spus, has_new_spus=has_new_spus, asks_bytes=declares(announced, BYTES)
        )
        self._output.topics(turn)
        session.send_of_topics(turn.events)
        for event in turn.events:
            self._output.event(event)
        moves = session.topics.moves
        moved, trouble = moves.take()
        for name in moved:
            self._output.say(f"has moved topic {name} to where the job placed it")
        text = f"new topics are not moved now: {trouble}; retries"
        self._output.report("moves", None if trouble is None else text)
        if not self._options.dry_run:
            moves.start(turn.moves)
        return turn.is_awaited or bool(turn.events)

    def _warn_of_crowded(self, events: Sequence[Announcement]) -> None:
        """Before a broker joins with a capacity that Kafka has half used."""
        joins = [event for event in events if isinstance(event, SpuJoined)]
        if not joins:
            return
        try:
            held, unseen = self._watched.replicas_held()
        except (UnreachableError, ClientError) as reason:
            text = f"cannot count the replicas that brokers hold: {reason}"
            self._output.report("count", text)
            return
        silent = replace(unseen, sizes={}).lines("not counted where brokers join")
        self._output.report("count", next(silent, None))
        for broker, (count, capacity) in crowded(joins, held).items():
            self._output.report(
                f"capacity of {broker}",
                f"warning: broker {broker} holds {count:,} replicas in Kafka already, more than "
                f"half of the {capacity:,} slots that it joins with, and it takes no new ones once "
                "they are assigned; set --capacity, or --sizes for single brokers",
            )

    def _begun_session(self) -> _Session:
        options = self._options
        session = _Session(self._events, self._watched_connection, options)
        if not options.accept_cluster:
            try:
                require_cluster(
                    session.reader.announced,
                    self._kafka_cluster,
                    address="--watch-bootstrap-servers",
                )
            except FollowError:
                session.close()
                raise
        announced = session.reader.announced.by_spu()
        online = [known.is_own for known in announced.values() if known.online]
        what = "dry run, nothing is sent" if options.dry_run else "leads"
        counts = (
            f"{online.count(True)} SPUs joined by this command, {online.count(False)} by others"
        )
        self._output.report("election", f"{what}; {counts}")
        return session

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
