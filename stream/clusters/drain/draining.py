"""Emptying a broker: leave, wait for maps, move, look.

Rules: what is done already is seen to be done, so that a run which was killed is repeated. The SPU
is not decommissioned while nothing could be moved, what has no map has nowhere to go, or a topic of
others has no map: it cannot be adopted once the SPU has left. Nothing is moved before the maps no
longer use the broker, as it would come back, but for topics that the job cannot take off it: they
are named, and nobody waits for them. Topics of others without a map are touched only where
`--foreign` names them; else they are named.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import LeaveMode, SpuLeft
from spu_assigner.core.base.limits import KAFKA_OWN
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.drain.emptied_lists import emptied_lists
from spu_assigner.stream.clusters.drain.held_topics import held_topics
from spu_assigner.stream.clusters.drain.job_state import read_state
from spu_assigner.stream.clusters.drain.staying import staying_lines
from spu_assigner.stream.clusters.drain.wait_notice import WaitNotice
from spu_assigner.stream.clusters.follow.kafka import AnnouncedReader
from spu_assigner.stream.clusters.moves.machine import MovesMachine
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.moves.reassigning import (
    PartitionShape,
    Reassigner,
    Replicas,
)
from spu_assigner.stream.clusters.moves.session import moving, require_ready
from spu_assigner.stream.clusters.moves.status import MovesReport
from spu_assigner.stream.clusters.plan.model import Maps
from spu_assigner.stream.clusters.plan.rendering import move_lines
from spu_assigner.stream.clusters.plan.sources import PlanRequest, plan_now
from spu_assigner.stream.clusters.plan.wanted_maps import matcher, read_maps
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.job.shard.published import UnsoundError
from spu_assigner.stream.kafka.client import Sender, SentMessage
from spu_assigner.stream.kafka.errors import ClientError
from spu_assigner.stream.kafka.log_dirs import TOPICS_NAMED_MAX, Partition, read_unseen
from spu_assigner.stream.kafka.topics import SPU_EVENTS

LOOK_SECONDS: Final = 1.0  # between looks at the maps
UNSEEN_FIX: Final = (
    "grant this user Describe on them, or have who may see them move them off the broker, and run "
    "this again"
)
GONE_SECONDS_MAX: Final = 60.0  # a broker deletes the files of replicas after they are moved

Shapes = Mapping[Partition, PartitionShape]


class DrainError(AssignerError):
    """A broker cannot be emptied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unmapped:
    """Topics on the broker without a map."""

    moved: frozenset[str]  # Kafka's own, the product's, and those that `--foreign` names
    left: tuple[str, ...]  # the others


class Draining:
    """One broker that is to be emptied.

    Args:
        request: whose maps, and where the topics are.
    """

    def __init__(self, request: PlanRequest, broker: int, options: MoveOptions) -> None:
        self._request = request
        self._broker = broker
        self._options = options
        self._is_alive = True  # the broker, when it was looked at last

    def leave(self, wait_seconds: float) -> None:
        """Decommission the SPU, unless that is done, and wait until no map uses it.

        Raises:
            DrainError: it is no SPU of the cluster, or the time is up.
            UnhealthyError, SeatTakenError, DrainError: it could not be emptied now; nothing was
                changed.
            MovesError, ClientError: Kafka does not answer, or a right is missing.
        """
        broker, cluster = self._broker, self._request.cluster_id
        with closing(AnnouncedReader(self._request.connection, cluster)) as reader:
            known = reader.announced.by_spu().get(broker)
        if known is None:
            raise DrainError(
                f"broker {broker} is no SPU of cluster {cluster!r}: nobody has announced it; check "
                "the id and --cluster, or let it join (`spu-assigner adopt`, `spu-assigner follow`)"
            )
        if known.is_decommissioned:
            click.echo(f"leaves   SPU {broker} of cluster {cluster} was decommissioned before")
        else:  # Also of one that is offline: its maps wait for it to come back.
            self._require_ready()
            self._send_leave()
            click.echo(f"leaves   SPU {broker} of cluster {cluster} is decommissioned")
        self._await_maps(wait_seconds)

    def move(self) -> list[str]:
        """Move what the broker holds; a line for each thing that it still holds.

        Raises:
            MovesError, ClientError, MapsError: Kafka does not answer, or cannot be asked.
        """
        connection = self._request.ledger_connection()
        cluster_id = self._request.cluster_id
        with (
            Reassigner(connection) as kafka,
            moving(connection, self._options, cluster_id=cluster_id) as runner,
        ):
            left, report = self._moved(kafka, runner)
            left += move_lines(report)
            return left or self._held(kafka)

    def empty_line(self) -> str:
        """What is to be said once nothing is left."""
        if self._is_alive:
            return f"empty    broker {self._broker} holds nothing; it may be switched off"
        return (
            f"empty    broker {self._broker} is in no list in Kafka; it is not alive, and was not "
            "asked what it holds"
        )

    def _require_ready(self) -> None:
        """Return if the broker could be emptied now, as far as that is known before the maps.

        Raises:
            UnhealthyError, SeatTakenError, DrainError: it could not.
            MovesError, ClientError: Kafka does not answer, or a right is missing.
        """
        connection = self._request.ledger_connection()
        with Reassigner(connection) as kafka:
            shapes, brokers = kafka.shapes(), kafka.brokers()
            unseen = self._unseen_line(brokers)
        require_ready(connection, self._options, self._holding(shapes))
        maps = read_maps(self._request.connection, self._request.cluster_id, lambda _: True)
        with self._request.target() as target:
            own = self._request.own_topics(target.kafka_id())
        found = self._unmapped(shapes, maps, own)
        if self._options.force:
            return
        if unseen is not None:
            raise DrainError(f"{unseen}; the SPU was not decommissioned")
        stuck = emptied_lists(
            _rows(shapes), found.moved, brokers=brokers, leaving=self._broker
        ).stuck
        if stuck:
            topics = sorted({topic for topic, _ in stuck})
            raise DrainError(
                f"{counted(len(stuck), 'partition')} of {listed(topics, TOPICS_NAMED_MAX)} cannot "
                f"leave broker {self._broker}: no other broker is free for a replica; start one "
                "more, or give these topics fewer replicas (kafka-reassign-partitions), and run "
                "this again; the SPU was not decommissioned"
            )
        if found.left:
            cluster = self._request.cluster_id
            raise DrainError(
                f"{counted(len(found.left), 'topic')} on broker {self._broker} "
                f"{'has' if len(found.left) == 1 else 'have'} no map "
                f"({listed(found.left, TOPICS_NAMED_MAX)}); adopt what is to have one "
                f"(`spu-assigner adopt --cluster {cluster}`), which is rejected once the SPU has "
                "left, give --foreign GLOB for what is only to be moved off the broker, and run "
                "this again; the SPU was not decommissioned"
            )

    def _unseen_line(self, alive: Collection[int]) -> str | None:
        """What the broker holds, or may hold, of topics that this user may not see; None: nothing.

        A broker that is not alive cannot be asked: its topics are looked for on the others.
        """
        broker, is_alive = self._broker, self._broker in alive
        unseen = read_unseen(self._request.ledger_connection(), [broker] if is_alive else alive)
        places = [f"{topic}-{number}" for topic, number in sorted(unseen.sizes)]
        if places and is_alive:
            return (
                f"broker {broker} holds {counted(len(places), 'replica')} that you may not see "
                f"({listed(places, TOPICS_NAMED_MAX)}); {UNSEEN_FIX}"
            )
        if places:
            return (
                f"broker {broker} is not alive, and may hold replicas of topics that you may not "
                f"see ({listed(unseen.topics, TOPICS_NAMED_MAX)}); {UNSEEN_FIX}"
            )
        return next(unseen.lines(f"what broker {broker} holds is not known"), None)

    def _holding(self, shapes: Shapes) -> list[Partition]:
        return [at for at, each in shapes.items() if self._broker in each.replicas]

    def _unmapped(self, shapes: Shapes, maps: Maps, own: Collection[str]) -> _Unmapped:
        """Topics on the broker that have no map, and wait for none."""
        mapped = {topic for topic, wanted in maps.topics.items() if wanted.replicas is not None}
        topics = {topic for topic, _ in self._holding(shapes)} - mapped - maps.waiting.keys()
        given = self._request.foreign
        is_given = matcher(given) if given else lambda _: False
        moved = {
            topic
            for topic in topics
            if topic.startswith(KAFKA_OWN) or topic in own or is_given(topic)
        }
        return _Unmapped(moved=frozenset(moved), left=tuple(sorted(topics - moved)))

    def _send_leave(self) -> None:
        errors: list[str] = []

        def sent(message: SentMessage) -> None:
            errors.extend([message.error] if message.error else ())

        sender = Sender(self._request.connection, sent, [SPU_EVENTS])
        sender.send(
            SpuLeft(
                event_id=f"drain/{uuid.uuid4()}",
                cluster_id=self._request.cluster_id,
                spu_id=self._broker,
                mode=LeaveMode.DECOMMISSION,
            )
        )
        sender.flush()
        if errors:
            raise ClientError(f"the decommission could not be sent: {errors[0]}; run this again")

    def _await_maps(self, seconds: float) -> None:
        """Return once no map uses the broker but those that the job cannot take off it.

        Raises:
            DrainError: the time is up.
        """
        deadline, notice = time.monotonic() + seconds, WaitNotice()
        while True:
            maps = read_maps(self._request.connection, self._request.cluster_id, lambda _: True)
            users = _users(maps, self._broker)
            if not users or self._held_topics().keys() >= {*users}:
                return
            if time.monotonic() > deadline:
                raise DrainError(
                    f"after {seconds:.0f} s {counted(len(users), 'topic')} still "
                    f"{'has' if len(users) == 1 else 'have'} SPU {self._broker} in the map "
                    f"({listed(users, TOPICS_NAMED_MAX)}); check that the job runs and that other "
                    "SPUs have room (`spu-assigner inspect`), and run this again"
                )
            notice.tick(
                f"for the job to take SPU {self._broker} out of the maps of "
                f"{counted(len(users), 'topic')}, {seconds:.0f} s at most"
            )
            time.sleep(min(LOOK_SECONDS, max(0.0, deadline - time.monotonic())))

    def _held_topics(self) -> dict[str, str]:
        """What the job cannot take off the broker now, and why."""
        try:
            state = read_state(self._request.connection, self._request.cluster_id)
        except UnsoundError:  # It writes just now, and is asked again.
            return {}
        return held_topics(state, self._broker)

    def _moved(self, kafka: Reassigner, runner: MovesMachine) -> tuple[list[str], MovesReport]:
        """Move everything; what could not be planned, and what became of the rest."""
        shapes = kafka.shapes()
        with self._request.target() as target:
            plan, sources = plan_now(self._request, target)
            own = self._request.own_topics(plan.kafka_id)
        mapped = [each for each in plan.moved_partitions() if self._broker in each.before]
        unmapped = self._unmapped(shapes, sources.maps, own).moved
        found = emptied_lists(
            _rows(shapes), unmapped, brokers=kafka.brokers(), leaving=self._broker
        )
        left = [
            f"{topic}-{number}: there is no other broker for its replica; start one more, and run "
            "again"
            for topic, number in found.stuck
        ]
        taken = {(each.topic, each.partition) for each in mapped}
        others = [at for at in self._holding(shapes) if at[0] not in unmapped]
        staying = [at for at in others if at not in taken]
        left += staying_lines(plan, staying, self._held_topics() if staying else {})
        unseen = self._unseen_line(kafka.brokers())
        left += [] if unseen is None else [unseen]
        moves = [
            MovedPartition(
                topic=at[0],
                topic_id=shapes[at].topic_id,
                partition=at[1],
                before=shapes[at].replicas,
                after=row,
                size_bytes=0,
            )
            for at, row in found.lists.items()
        ]
        if mapped or moves:  # Said before hours of copying, too: it may be reason enough to stop.
            for line in left:
                click.echo(f"stays    {line}", err=True)
        return left, runner.carry_out([*mapped, *moves])

    def _held(self, kafka: Reassigner) -> list[str]:
        """What Kafka shows on the broker, once it has had time to delete; a line at most."""
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while True:
            held = {*self._holding(kafka.shapes())}
            self._is_alive = self._broker in kafka.brokers()
            if self._is_alive:
                held |= kafka.sizes([self._broker]).keys()
            if not held:
                return []
            if time.monotonic() > deadline:
                names = [f"{topic}-{number}" for topic, number in sorted(held)]
                return [
                    f"broker {self._broker} holds {counted(len(held), 'replica')} "
                    f"({listed(names, TOPICS_NAMED_MAX)}); do not switch it off, run this again"
                ]
            time.sleep(LOOK_SECONDS)


def _rows(shapes: Shapes) -> dict[Partition, Replicas]:
    return {at: each.replicas for at, each in shapes.items()}


def _users(maps: Maps, broker: int) -> list[str]:
    """Topics whose map has the SPU."""
    return [
        topic
        for topic, wanted in sorted(maps.topics.items())
        if any(broker in row for row in wanted.replicas or ())
    ]
