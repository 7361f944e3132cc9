"""Evening out a cluster: the job is asked for a rebalance, and what is not as mapped is moved.

Rules: what is mapped and not moved yet is moved as well, so a run that was killed is repeated: the
job is asked again, and has nothing to add to what it was asked before. A limit of moves is for the
job, a limit of bytes for what this run copies. What a limit leaves to do is no fault, and is never
called even; a run that gets no further is one.
"""

from __future__ import annotations

import sys
import time
import uuid
from dataclasses import replace
from typing import Final

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import ClusterRebalance
from spu_assigner.core.base.limits import MOVES_MAX
from spu_assigner.core.base.records import TopicStatus
from spu_assigner.core.base.resources import BYTES
from spu_assigner.core.decision.rebalance import rebalance
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.drain.carrying import JobWait, MapChange
from spu_assigner.stream.clusters.follow.exchange import EventExchange
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.moves.reassigning import Reassigner
from spu_assigner.stream.clusters.moves.session import require_ready
from spu_assigner.stream.clusters.moves.status import BEYOND_LIMIT, MovesReport
from spu_assigner.stream.clusters.plan.model import TopicsPlan
from spu_assigner.stream.clusters.plan.rendering import load_lines, move_lines
from spu_assigner.stream.clusters.plan.sources import PlanRequest, plan_now, with_load
from spu_assigner.stream.common.printable import counted
from spu_assigner.stream.kafka.open_transactions import why_unanswered

MORE_TO_DO: Final = 3  # exit status: run it again
UNSIZED: Final = (
    f"replicas and leaders are evened out, and bytes were not weighed: no topic says its {BYTES} "
    f"(`spu-assigner adopt --resources {BYTES}=SIZE` has them say what brokers report)"
)
WIDTH: Final = 120  # of the table, where there is no terminal to ask
LOOK_SECONDS: Final = 0.5
SEEN_SECONDS_MAX: Final = 5.0  # from the end of the moves to what each broker shows: milliseconds


class RebalanceError(AssignerError):
    """A cluster cannot be evened out."""


class Rebalancing(MapChange):
    """One cluster that is to be evened out.

    Args:
        bytes_max: to be copied by this run; None: no limit.
        moves_max: replicas that the job may move elsewhere for this run; None: no limit.
        band_percent: of a rebalance by resources; None: the job's default.
        band: of a rebalance by numbers of replicas, likewise.
    """

    name = "rebalance"

    def __init__(
        self,
        request: PlanRequest,
        options: MoveOptions,
        *,
        bytes_max: int | None,
        moves_max: int | None,
        band_percent: int | None,
        band: int | None,
    ) -> None:
        super().__init__(request, options)
        self.bytes_max = bytes_max
        self._is_limited = moves_max is not None
        self._event = ClusterRebalance(
            event_id=f"rebalance/{uuid.uuid4()}",
            cluster_id=request.cluster_id,
            max_moves=MOVES_MAX if moves_max is None else moves_max,
            band_percent=band_percent,
            band=band,
        )
        self._load: TopicsPlan | None = None
        self._more = ""  # what limits have left to do

    def ask(self, kafka: Reassigner, wait: JobWait) -> None:
        """Have the job even out its maps, and wait for its answer."""
        with self.request.target() as target:
            plan, found = plan_now(self.request, target)
        unlike = [(each.topic, at) for each in plan.changes for at in (*each.moves, *each.moving)]
        require_ready(self.request.ledger_connection(), self.options, unlike)
        connection, event_id = self.request.connection, self._event.event_id
        with EventExchange(
            connection,
            seconds=wait.seconds,
            check=lambda: wait.tick("the answer of the job"),
        ) as exchange:
            is_answered = exchange.run([self._event])
        if not is_answered:
            raise RebalanceError(
                f"the job did not answer within {wait.seconds:g} s; {why_unanswered(connection)} "
                "Run this again; the job rebalances also when it starts later"
            )
        if event_id in exchange.rejected:
            raise RebalanceError(
                f"the job does not rebalance cluster {self.request.cluster_id!r}: "
                f"{exchange.rejected[event_id]}; fix that and run this again"
            )
        click.echo(f"mapped   {exchange.accepted[event_id]}")
        if not any(each.says_bytes for each in found.maps.topics.values()):
            click.echo(f"unsized  {UNSIZED}")
        if more := self._unasked():
            self._more = f"{counted(more, 'move')} not asked for"

    def moves(self, kafka: Reassigner) -> list[MovedPartition]:
        """Everything that is not as mapped."""
        with self.request.target() as target:
            plan, found = plan_now(self.request, target)
            self._load = with_load(plan, found, self.request, target)
        return plan.moved_partitions()

    def left(self, kafka: Reassigner, report: MovesReport) -> list[str]:
        """What was not moved, and which lists Kafka does not show as mapped."""
        beyond = report.left if report.stopped == BEYOND_LIMIT else 0
        if beyond:  # Then it is what was asked for.
            report.stopped = None
            counts = f"{counted(beyond, 'mapped partition')} not moved"
            self._more = f"{self._more} and {counts}" if self._more else counts
        left = [*move_lines(report)]
        if beyond and not (report.moved or left):
            left.append("--max-bytes permits none of the moves that are left; give more")
        deadline = time.monotonic() + SEEN_SECONDS_MAX
        while True:
            with self.request.target() as target:
                plan, found = plan_now(self.request, target)
            unlike = sum(len(each.moves) + len(each.moving) for each in plan.changes)
            if left or beyond or not unlike or time.monotonic() > deadline:
                break
            time.sleep(LOOK_SECONDS)
        is_late = unlike and not left and not beyond
        left += [f"{each.topic}: {each.reason}" for each in plan.refused]
        left += [
            f"{each.topic}: {each.reason}"
            for each in plan.waiting
            if each.topic in found.cluster.topics
        ]
        if is_late:
            are = "is" if unlike == 1 else "are"
            left.append(f"{counted(unlike, 'partition')} {are} not as mapped yet; run this again")
        if self._load is not None:
            width = None if sys.stdout.isatty() else WIDTH
            for line in load_lines(self._load.load.brokers, width=width):
                click.echo(line)
            for line in self._load.unseen.lines("counted above without leaders"):
                click.echo(line)
        return left

    def end(self) -> int:
        """Say that the cluster is even, or how much the limits have left."""
        if self._more:
            click.echo(f"more     {self._more} yet; run again for the rest")
            return MORE_TO_DO
        click.echo("even     Kafka shows every list as it is mapped")
        return 0

    def _unasked(self) -> int:
        """How many moves the limit of moves has left for later."""
        state = self.state() if self._is_limited else None
        if state is None:
            return 0
        answers = rebalance(state, replace(self._event, max_moves=MOVES_MAX))
        return sum(each.moves or 0 for each in answers if isinstance(each, TopicStatus))
