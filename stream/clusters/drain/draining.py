"""Emptying a broker: its SPU is decommissioned, and what it holds is moved.

What is done already is seen to be done, so a run that was killed is repeated.

Rules: the SPU is not decommissioned while what has no map has nowhere to go, or a topic of others
has no map: it cannot be adopted once the SPU has left. Nothing is moved before the maps no longer
use the broker, as it would come back, but for topics that the job cannot take off it: they are
named, and not waited for. Topics of others without a map are touched only where `--foreign` names
them; else they are named.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import click
from spu_assigner.core.base.events import LeaveMode, SpuLeft
from spu_assigner.core.base.limits import KAFKA_OWN
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.client.announced import Announced, read_announced
from spu_assigner.stream.client.pending_answers import exchange
from spu_assigner.stream.clusters.drain.emptied_lists import emptied_lists
from spu_assigner.stream.clusters.drain.job_wait import DrainError, JobWait, job_state
from spu_assigner.stream.clusters.drain.preview import confirm, preview_lines, state_after
from spu_assigner.stream.clusters.drain.staying import held_topics, staying_lines
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.moves.reassigning import Reassigner
from spu_assigner.stream.clusters.moves.runner import moving, require_ready
from spu_assigner.stream.clusters.moves.status import new_move, place_of
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.clusters.plan.model import Maps, TopicsPlan
from spu_assigner.stream.clusters.plan.rendering import move_lines
from spu_assigner.stream.clusters.plan.sources import (
    PlanRequest,
    maps_of_state,
    plan_now,
    read_maps,
)
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.kafka.log_dirs import TOPICS_NAMED_MAX, Partition, read_unseen
from spu_assigner.stream.kafka.moves_record import is_there

LOOK_SECONDS: Final = 1.0  # between looks at the maps
_STAYS: Final = "stays    "
GONE_SECONDS_MAX: Final = 60.0  # a broker deletes the files of replicas after they are moved
UNSEEN_FIX: Final = (
    "grant this user Describe on them, or have who may see them move them off the broker, and run "
    "this again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holding:
    """What the broker holds, and what becomes of that which no map says anything of."""

    unmapped: Sequence[str]  # a line, if topics without a map are left where they are
    # Of Kafka's own topics, the product's, and those that `--foreign` names.
    emptied: Sequence[MovedPartition]
    stuck: Sequence[str]  # a line, if some of these cannot leave
    mapped: Sequence[Partition]  # all others
    unseen: Sequence[str]  # a line, if this user may not see everything


class Draining:
    """One broker that is to be emptied."""

    def __init__(self, request: PlanRequest, broker: int, options: MoveOptions) -> None:
        self._request = request
        self._broker = broker
        self._options = options

    def dry_run(self) -> int:
        """Show what a run would move; the exit status: 1 if something would stay."""
        with Reassigner(self._request.ledger_connection()) as kafka:
            lines = [*self._preview(kafka)]
        for line in lines:
            click.echo(line)
        return int(any(line.startswith(_STAYS) for line in lines))

    def run(self, wait: JobWait, *, yes: bool) -> int:
        """Do it, if that is possible now; the exit status. What was done stays done."""
        connection, cluster = self._request.ledger_connection(), self._request.cluster_id
        with Reassigner(connection) as kafka:
            confirm(self._preview(kafka), yes=yes)
            self._change_maps(kafka, wait)
            with moving(connection, self._options, cluster_id=cluster) as runner:
                moves, left = self._planned(kafka)
                report = runner.carry_out(moves)
            left += move_lines(report)
            deadline = time.monotonic() + GONE_SECONDS_MAX
            while not left and (held := self._held(kafka)):
                left = held if time.monotonic() > deadline else []
                time.sleep(LOOK_SECONDS)
            for line in left:
                click.echo(f"drain: {line}", err=True)
            if not left:
                click.echo(self._done(kafka))
        return int(bool(left))

    def _done(self, kafka: Reassigner) -> str:
        state = "holds nothing; it may be switched off"
        if self._broker not in kafka.brokers():
            state = "is in no list in Kafka; it is not alive, and was not asked what it holds"
        return f"empty    broker {self._broker} {state}"

    def _preview(self, kafka: Reassigner) -> Iterator[str]:
        """What would move, and what would stay and why."""
        request = self._request
        self._announced()  # raises where there is no such SPU
        state = state_after(request, self._leave())
        with request.target() as target:
            plan, found = plan_now(request, target, maps=maps_of_state(state))
            moves, stays = self._moves(kafka, plan, found.maps, state)
            shown = (kafka, target, moves, plan, found)
            yield from preview_lines(*shown, request=request, options=self._options)
        yield from (f"{_STAYS}{line}" for line in stays)

    def _announced(self) -> Announced:
        """What was announced last of the SPU."""
        broker, cluster = self._broker, self._request.cluster_id
        known = read_announced(self._request.connection, cluster).by_spu().get(broker)
        if known is None:
            raise DrainError(
                f"broker {broker} is no SPU of cluster {cluster!r}: nobody has announced it; check "
                "the id and --cluster, or let it join (`spu-assigner adopt`, `spu-assigner follow`)"
            )
        return known

    def _ledger(self) -> AppliedLedger:
        connection = self._request.ledger_connection()
        return AppliedLedger(connection, self._request.cluster_id, is_there=is_there(connection))

    def _record(
        self, kafka: Reassigner, planned: Sequence[MovedPartition], maps: Maps, *, is_new: bool
    ) -> None:
        """Record what maps have on the broker, and what is planned to move, so that it can return.

        Of a partition the first list of before stays: a drain that is run again finds its own.
        """
        ids = {at: each.topic_id for at, each in kafka.shapes().items()}
        rows = (((t, n), row) for t, rows in maps.lists().items() for n, row in enumerate(rows))
        taken = [new_move(at, ids.get(at, ""), row, ()) for at, row in rows if self._broker in row]
        taken += () if is_new else self._ledger().drained(self._broker) or ()
        new = {place_of(each): each for each in planned}
        found = new | {place_of(each): each for each in taken}
        taken = [replace(each, after=new.get(at, each).after) for at, each in found.items()]
        self._ledger().record_drained(self._broker, taken)

    def _change_maps(self, kafka: Reassigner, wait: JobWait) -> None:
        self._decommission(kafka)
        self._await_maps(wait)

    def _decommission(self, kafka: Reassigner) -> None:
        """Decommission the SPU, unless that is done, if what it holds could leave it now."""
        broker, cluster = self._broker, self._request.cluster_id
        if self._announced().is_decommissioned:
            click.echo(f"leaves   SPU {broker} of cluster {cluster} was decommissioned before")
            return
        # Also one that is offline: its maps wait for it to come back.
        planned = [at for at, each in kafka.shapes().items() if broker in each.replicas]
        require_ready(self._request.ledger_connection(), self._options, planned)
        with self._request.target() as target:
            holding = self._holding(kafka, maps := self._maps(), target.kafka_id())
        if not self._options.force:
            for fault in (*holding.unseen, *holding.stuck, *holding.unmapped):
                raise DrainError(f"{fault}; the SPU was not decommissioned")
        self._record(kafka, holding.emptied, maps, is_new=True)
        sent = exchange(self._request.connection, [self._leave()], seconds=0, check=lambda: None)
        for why in sent.rejected.values():
            raise DrainError(f"SPU {broker} was not decommissioned: {why}; run this again")
        click.echo(f"leaves   SPU {broker} of cluster {cluster} is decommissioned")

    def _planned(self, kafka: Reassigner) -> tuple[list[MovedPartition], list[str]]:
        """What maps say, and the new lists of what has none; a line for each thing that stays."""
        with self._request.target() as target:
            plan, sources = plan_now(self._request, target)
        moves, stays = self._moves(kafka, plan, sources.maps)
        self._record(kafka, moves, sources.maps, is_new=False)
        if moves:  # Said before hours of copying, too: it may be reason enough to stop.
            for line in stays:
                click.echo(f"{_STAYS}{line}", err=True)
        return moves, stays

    def _moves(
        self, kafka: Reassigner, plan: TopicsPlan, maps: Maps, state: ClusterState | None = None
    ) -> tuple[list[MovedPartition], list[str]]:
        """What leaves the broker by a plan of these maps; a line for each thing that stays."""
        mapped = [each for each in plan.moved_partitions() if self._broker in each.before]
        holding = self._holding(kafka, maps, plan.kafka_id)
        taken = {place_of(each) for each in mapped}
        staying = [at for at in holding.mapped if at not in taken]
        lines = staying_lines(plan, staying, self._held_topics(state) if staying else {})
        return [*mapped, *holding.emptied], [*holding.stuck, *lines, *holding.unseen]

    def _held(self, kafka: Reassigner) -> list[str]:
        """A line with what Kafka shows on the broker; or none."""
        held = {at for at, each in kafka.shapes().items() if self._broker in each.replicas}
        if self._broker in kafka.brokers():
            held |= kafka.sizes([self._broker]).keys()
        names = [f"{topic}-{number}" for topic, number in sorted(held)]
        line = (
            f"broker {self._broker} holds {counted(len(held), 'replica')} "
            f"({listed(names, TOPICS_NAMED_MAX)}); do not switch it off, run this again"
        )
        return [line] if held else []

    def _maps(self) -> Maps:
        return read_maps(self._request.connection, self._request.cluster_id, lambda _: True)

    def _holding(self, kafka: Reassigner, maps: Maps, kafka_id: str) -> _Holding:
        shapes, alive = kafka.shapes(), kafka.brokers()
        request, own = self._request, self._request.own_topics(kafka_id)
        held = [at for at, each in shapes.items() if self._broker in each.replicas]
        topics = {topic for topic, _ in held} - maps.lists().keys() - maps.waiting.keys()
        moved = {
            topic
            for topic in topics
            if topic.startswith(KAFKA_OWN) or topic in own or request.is_foreign(topic)
        }
        rows = {at: each.replicas for at, each in shapes.items()}
        emptied, stuck = emptied_lists(rows, moved, brokers=alive, leaving=self._broker)
        names = listed(sorted({topic for topic, _ in stuck}), TOPICS_NAMED_MAX)
        cannot_leave = (
            f"{counted(len(stuck), 'partition')} of {names} cannot leave broker {self._broker}: no "
            "other broker is free for a replica; start one more, or give these topics fewer "
            "replicas (kafka-reassign-partitions), and run this again"
        )
        left = sorted(topics - moved)
        unmapped = (
            f"{counted(len(left), 'topic')} on broker {self._broker} "
            f"{'has' if len(left) == 1 else 'have'} no map ({listed(left, TOPICS_NAMED_MAX)}); "
            f"adopt what is to have one (`spu-assigner adopt --cluster {request.cluster_id}`), "
            "which is rejected once the SPU has left, give --foreign GLOB for what is only to be "
            "moved off the broker, and run this again"
        )
        return _Holding(
            unmapped=[unmapped] if left else [],
            emptied=[
                new_move(at, shapes[at].topic_id, shapes[at].replicas, row)
                for at, row in emptied.items()
            ],
            stuck=[cannot_leave] if stuck else [],
            mapped=[at for at in held if at[0] not in moved],
            unseen=self._unseen_lines({*alive}),
        )

    def _unseen_lines(self, alive: set[int]) -> list[str]:
        """What the broker holds, or may hold, of topics that this user may not see: one line.

        A broker that is not alive cannot be asked: its topics are looked for on the others.
        """
        asked, holds = [self._broker], "holds"
        if self._broker not in alive:
            asked, holds = [*alive], "is not alive, and may hold"
        unseen = read_unseen(self._request.ledger_connection(), asked)
        if places := [f"{topic}-{number}" for topic, number in sorted(unseen.sizes)]:
            return [
                f"broker {self._broker} {holds} {counted(len(places), 'replica')} that you may not "
                f"see ({listed(places, TOPICS_NAMED_MAX)}); {UNSEEN_FIX}"
            ]
        return [*unseen.summary.lines(f"what broker {self._broker} holds is not known")][:1]

    def _leave(self) -> SpuLeft:
        return SpuLeft(
            event_id=f"drain/{uuid.uuid4()}",
            cluster_id=self._request.cluster_id,
            spu_id=self._broker,
            mode=LeaveMode.DECOMMISSION,
        )

    def _await_maps(self, wait: JobWait) -> None:
        """Return once no map uses the broker but those that the job cannot take off it."""
        while True:
            users = [
                topic
                for topic, rows in sorted(self._maps().lists().items())
                if any(self._broker in row for row in rows)
            ]
            if not users or self._held_topics().keys() >= {*users}:
                return
            if wait.is_over:
                raise DrainError(
                    f"after {wait.seconds:.0f} s {counted(len(users), 'topic')} still "
                    f"{'has' if len(users) == 1 else 'have'} SPU {self._broker} in the map "
                    f"({listed(users, TOPICS_NAMED_MAX)}); check that the job runs and that other "
                    "SPUs have room (`spu-assigner inspect`), and run this again"
                )
            wait.tick(
                f"the job to take SPU {self._broker} out of the maps of "
                f"{counted(len(users), 'topic')}"
            )
            time.sleep(min(LOOK_SECONDS, wait.seconds))

    def _held_topics(self, state: ClusterState | None = None) -> dict[str, str]:
        """What the job cannot take off the broker, and why, in this state or as it is now."""
        state = state or job_state(self._request)
        return {} if state is None else held_topics(state, self._broker)
