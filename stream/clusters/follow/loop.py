"""`follow` and `adopt`: look, decide, send; the one again and again, the other once.

Rules of `follow`: everybody looks, so that a leader's successor knows since when a broker is
missing; only the leader reads what was announced, and sends. What goes wrong after the start is
reported, and retried at the next look from the beginning: take the id, read, decide.

Rules of `adopt`: it waits for the answers and looks again: a topic that others changed or deleted
meanwhile is reported, and the next run takes it as it is then. A run that was killed is repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Final

from confluent_kafka import Message
from spu_assigner.core.base.events import Event, SpuJoined, TopicAdopted, TopicRelease
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.client.announced import EventPosition, position
from spu_assigner.stream.client.pending_answers import exchange
from spu_assigner.stream.clusters.follow.brokers import MembershipDecision, Sightings
from spu_assigner.stream.clusters.follow.options import FollowOptions
from spu_assigner.stream.clusters.follow.report import AdoptReport, FollowOutput, brokers_text
from spu_assigner.stream.clusters.follow.session import FollowError, FollowSession
from spu_assigner.stream.clusters.follow.watched import WatchedCluster
from spu_assigner.stream.common.printable import counted
from spu_assigner.stream.common.quantities import now_ms
from spu_assigner.stream.kafka.acls import Role, follower_name
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin, UnreachableError
from spu_assigner.stream.kafka.election import LeaderElection
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX, ClientError
from spu_assigner.stream.kafka.fenced_producer import FencedProducer, OvertakenError
from spu_assigner.stream.kafka.topic_admin import require_access
from spu_assigner.stream.kafka.topics import (
    ASSIGNER_COMMITS,
    SPU_EVENTS,
    TOPIC_EVENTS,
    TOPICS,
    topic_name,
)

POLL_SECONDS: Final = 0.2  # Ctrl-C is seen between polls
ELECTION_SECONDS_MAX: Final = 60.0  # the group answers within a dead leader's session
HELD_BACK: Final = 1  # exit status


def adopt_topics(
    events: Connection,
    target: Connection,
    options: FollowOptions,
    output: FollowOutput,
    *,
    check: Callable[[], None],
) -> AdoptReport:
    """Adopt, or with `dry_run` only look; what became of it."""
    with ExitStack() as stack:
        watched = stack.enter_context(closing(WatchedCluster(target)))
        look = watched.first_look()
        options = options.of(look.kafka_cluster, _own_topics(events))
        session = FollowSession(events, watched, options, output)
        stack.enter_context(closing(session))
        brokers = session.decide_brokers(Sightings().after(look.racks, now=0.0, gap=0.0))
        joins = tuple(event for event in brokers.events if isinstance(event, SpuJoined))
        topics = session.decide_topics(joins)
        left = sorted((*topics.left, *session.hidden()), key=lambda each: each.topic)
        topics = replace(topics, left=tuple(left))
        report = AdoptReport(joins=joins, topics=topics)
        if options.dry_run:
            return report
        if count := len(report.events):
            output.say(f"sends {counted(count, 'event')} and waits for answers")
            answers = exchange(events, report.events, seconds=options.wait_seconds, check=check)
            report = report.answered(answers.accepted, answers.rejected)
            adopted = [each for each in report.accepted if isinstance(each, TopicAdopted)]
            report = replace(report, changed=tuple(session.changed(adopted)))
        changed = {each.topic for each in report.changed}
        found = {*topics.equal, *report.topics_of(TopicAdopted)} - changed
        session.record(sorted(found), report.topics_of(TopicRelease))
        return report


def follow_cluster(
    events: Connection,
    target: Connection,
    options: FollowOptions,
    output: FollowOutput,
    *,
    check: Callable[[], None],
) -> int:
    """Follow until `check` raises, or with `once` until nothing is left to do; the exit status."""
    with closing(_Follower(events, target, options, output)) as follower:
        follower.begin()
        while True:
            began = time.monotonic()
            status = follower.round()
            if status is not None:
                return status
            while (left := began + options.interval_seconds - time.monotonic()) > 0:
                check()
                follower.rest(min(left, POLL_SECONDS))
            check()


class _Follower:
    """One process that follows."""

    def __init__(
        self, events: Connection, target: Connection, options: FollowOptions, output: FollowOutput
    ) -> None:
        self._events = events
        self._options = options
        self._output = output
        self._leader_name = follower_name(options.cluster_id, prefix=events.prefix)
        self._watched = WatchedCluster(target)
        self._sight = Sightings()
        self._election: LeaderElection | None = None
        self._producer: FencedProducer | None = None  # None: nothing is to be sent
        self._session: FollowSession | None = None  # None: it does not lead

    def begin(self) -> None:
        """The first look, and joining the election."""
        look = self._watched.first_look()
        options = self._options = self._options.of(look.kafka_cluster, _own_topics(self._events))
        self._output.say(
            f"watches Kafka cluster {look.kafka_cluster}, {brokers_text(sorted(look.racks))}, for "
            f"cluster {options.cluster_id}"
        )
        if options.dry_run:
            return
        with DiagnosedAdmin(self._events.client()) as admin:
            admin.metadata()  # reports best why nobody answers
            require_access(admin, Role.FOLLOWER, prefix=self._events.prefix)
        self._election = LeaderElection(
            self._events,
            group=self._leader_name,
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

    def round(self) -> int | None:
        """Look and act; the exit status if this was all."""
        once = self._options.once
        self._look()
        if self._election is not None:
            self._election.poll(0)
            if not self._election.is_mine:
                self._end_session()
                is_known = self._election.is_mine is False
                known = "another follower leads" if is_known else "waits for the group"
                self._output.report("election", f"stands by: {known}")
                return 0 if once else None
        try:
            session = self._session = self._session or self._begun_session()
            decision = self._follow_brokers(session)
            has_topics_left = self._follow_topics(session)
        except OvertakenError as reason:
            self._end_session()
            self._output.report("trouble", f"{reason}; queues again")
            if self._election is not None:
                self._election.leave()
            return 0 if once else None
        except ClientError as reason:
            self._end_session()
            if once:
                raise
            self._output.report("trouble", f"{reason}; retries")
            return None
        self._output.report("trouble")
        if self._election is not None and not once and self._sight.racks:
            self._election.commit_look(session.partitions_ahead())
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

    def _look(self) -> None:
        """See who is there; with `once` a cluster that cannot be seen is an error."""
        racks: Mapping[int, str | None] = {}
        try:
            look = self._watched.look()
        except UnreachableError as reason:
            if self._options.once:
                raise
            self._output.blind(str(reason))
        else:
            if look.kafka_cluster != self._options.kafka_cluster:
                raise FollowError(
                    f"the watched cluster was {self._options.kafka_cluster} and is "
                    f"{look.kafka_cluster} now; start again once you know which is meant"
                )
            racks = look.racks
            if racks:
                self._output.sees()
        gap = 3 * self._options.interval_seconds + REQUEST_SECONDS_MAX
        self._sight = self._sight.after(racks, now=time.monotonic(), gap=gap)

    def _follow_brokers(self, session: FollowSession) -> MembershipDecision:
        """Decide about brokers, and send what follows."""
        decision = session.decide_brokers(self._sight)
        self._output.brokers(decision, self._sight)
        places = [EventPosition(-1, now_ms(), now_ms()) for _ in decision.events]
        if not self._options.dry_run:
            places = [*map(position, self._send(SPU_EVENTS, decision.events))]
        for event, place in zip(decision.events, places, strict=True):
            session.reader.announced.take(event, place)  # In a dry run as if it were sent.
        for event in decision.events:
            seconds = self._sight.missing_for(event.spu_id)
            self._output.event(event, "" if seconds is None else f": missing for {seconds:.0f} s")
        return decision

    def _follow_topics(self, session: FollowSession) -> bool:
        """Decide about topics, and send what follows; whether there is more to look for."""
        if not self._options.globs or not self._sight.is_clear:
            return False
        decision = session.decide_topics()
        self._output.topics(decision)
        if not self._options.dry_run:
            session.record_followed(decision)
            self._send(TOPIC_EVENTS, decision.events)
        for event in decision.events:
            self._output.event(event)
        if not self._options.dry_run:
            session.move(decision)
        return decision.is_awaited or bool(decision.events)

    def _send(self, topic: str, events: Sequence[Event]) -> list[Message]:
        """Send events as the leader; the messages, in order."""
        encoded = [(event.cluster_id, encode_event(event)) for event in events]
        return self._producer.send(topic, encoded) if self._producer and encoded else []

    def _begun_session(self) -> FollowSession:
        options = self._options
        # First the id: what an older leader left open is settled.
        if not options.dry_run:
            self._producer = FencedProducer(self._events, self._leader_name, Role.FOLLOWER)
        session = FollowSession(self._events, self._watched, options, self._output)
        announced = session.reader.announced.by_spu()
        online = [known.is_own for known in announced.values() if known.online]
        what = "dry run, nothing is sent" if options.dry_run else "leads"
        counts = (
            f"{online.count(True)} SPUs joined by this command, {online.count(False)} by others"
        )
        self._output.report("election", f"{what}; {counts}")
        return session

    def _end_session(self) -> None:
        for ended in (self._session, self._producer):
            if ended is not None:
                ended.close()
        self._session = self._producer = None


def _own_topics(connection: Connection) -> list[str]:
    return [topic_name(spec.name, prefix=connection.prefix) for spec in TOPICS]
