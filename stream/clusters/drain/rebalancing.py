"""Evening out a cluster: ask the job, move, look.

Rules: what is mapped and not moved yet is moved as well, so a run that was killed is repeated: the
job is asked again, and has nothing to add to what it was asked before. With a limit of bytes the
job is asked for as many moves as copy no more; should something else change the maps meanwhile,
what would be more is not moved. What a limit leaves to do is no fault, and is never called even; a
run that gets no further is one.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import ClusterRebalance
from spu_assigner.core.base.limits import AMOUNT_MAX, MOVES_MAX
from spu_assigner.core.base.resources import BYTES
from spu_assigner.stream.clusters.drain.job_state import read_state
from spu_assigner.stream.clusters.drain.move_limit import MoveLimit, move_limit
from spu_assigner.stream.clusters.drain.wait_notice import WaitNotice
from spu_assigner.stream.clusters.follow.exchange import EventExchange
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.moves.session import moving, require_ready
from spu_assigner.stream.clusters.moves.status import BEYOND_LIMIT
from spu_assigner.stream.clusters.plan.model import BrokerLoad, PlanLoad, TopicsPlan
from spu_assigner.stream.clusters.plan.rendering import move_lines
from spu_assigner.stream.clusters.plan.sources import (
    PlanRequest,
    PlanSources,
    plan_now,
    with_load,
)
from spu_assigner.stream.clusters.plan.target_cluster import Target
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.common.quantities import bytes_text
from spu_assigner.stream.kafka.open_transactions import why_unanswered

UNSIZED: Final = (
    f"replicas and leaders are evened out, and bytes were not weighed: no topic says its {BYTES} "
    f"(`spu-assigner adopt --resources {BYTES}=SIZE` has them say what brokers report)"
)
LOOK_SECONDS: Final = 0.5
SEEN_SECONDS_MAX: Final = 5.0  # from the end of the moves to what each broker shows: milliseconds


class RebalanceError(AssignerError):
    """A cluster cannot be evened out."""


class Rebalancing:
    """One cluster that is to be evened out.

    Args:
        request: whose maps, and where the topics are.
        bytes_max: to be copied by this run; None: no limit.
        moves_max: replicas that the job may move elsewhere for this run; None: no limit.
        band_percent: of a rebalance by resources; None: the job's default.
        band: of a rebalance by numbers of replicas, likewise.
    """

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
        self._request = request
        self._options = options
        self._bytes_max = bytes_max
        self._moves_max = moves_max
        self._band_percent, self._band = band_percent, band
        self._before = PlanLoad()
        self._planned = PlanLoad()
        self._after: TopicsPlan | None = None
        self._weighs_bytes = False  # some topic says how many bytes it has
        self._limit = MoveLimit(moves=0, wanted=0)
        self._beyond = 0  # partitions that are mapped, and not moved since that would copy too much

    def ask(self, wait_seconds: float) -> None:
        """Have the job even out its maps, and wait until they are.

        Raises:
            RebalanceError: there is no answer in time, or it is no.
            UnhealthyError, SeatTakenError: nothing could be moved now; the job was not asked.
            ClientError, MapsError: Kafka does not answer, or cannot be asked.
        """
        cluster_id = self._request.cluster_id
        with self._request.target() as target:
            plan, found = plan_now(self._request, target)
            unlike = [
                (each.topic, at) for each in plan.changes for at in (*each.moves, *each.moving)
            ]
            require_ready(self._request.ledger_connection(), self._options, unlike)
            self._before = with_load(plan, found, self._request, target).load
            event = self._event(found, target)
            self._weighs_bytes = any(each.says_bytes for each in found.maps.topics.values())
        connection = self._request.connection
        notice, text = WaitNotice(), f"for the answer of the job, {wait_seconds:.0f} s at most"
        with EventExchange(
            connection, seconds=wait_seconds, check=lambda: notice.tick(text)
        ) as exchange:
            is_answered = exchange.run([event], lambda _: None)
        if not is_answered:
            raise RebalanceError(
                f"the job did not answer within {wait_seconds:g} s; {why_unanswered(connection)} "
                "Run this again; the job rebalances also when it starts later"
            )
        if event.event_id in exchange.rejected:
            raise RebalanceError(
                f"the job does not rebalance cluster {cluster_id!r}: "
                f"{exchange.rejected[event.event_id]}; fix that and run this again"
            )
        click.echo(f"mapped   {exchange.accepted[event.event_id]}")
        if not self._weighs_bytes:
            click.echo(f"unsized  {UNSIZED}")
        if self._limit.left:
            click.echo(f"limit    {self._limit_text()}; run again for the rest")

    def move(self) -> list[str]:
        """Move what is not as mapped; a line for each thing that is not so in the end.

        Raises:
            MovesError, ClientError, MapsError: Kafka does not answer, or cannot be asked.
        """
        request = self._request
        with moving(
            request.ledger_connection(), self._options, cluster_id=request.cluster_id
        ) as runner:
            with request.target() as target:
                plan, found = plan_now(request, target)
                self._planned = with_load(plan, found, request, target).load
            report = runner.carry_out(plan.moved_partitions(), bytes_max=self._bytes_max)
        if report.stopped == BEYOND_LIMIT:  # Then it is what was asked for.
            self._beyond, report.stopped = report.left, None
        left = [*move_lines(report)]
        if self.more_line() is not None and not (report.moved or left):
            left.append(
                "the limit permits none of the moves that are left; give more than "
                f"{self._limits_text()}"
            )
        deadline = time.monotonic() + SEEN_SECONDS_MAX
        while True:
            with request.target() as target:
                plan, found = plan_now(request, target)
                others = [*_others_lines(plan, found)]
                unmoved = unmoved_line(plan)
                if left or unmoved is None or self._beyond or time.monotonic() > deadline:
                    self._after = with_load(plan, found, request, target)
                    break
            time.sleep(LOOK_SECONDS)
        is_late = unmoved is not None and not left and not self._beyond
        return [*left, *others, *([unmoved] if unmoved and is_late else [])]

    def more_line(self) -> str | None:
        """What the limits of this run left to do; None: nothing."""
        parts = []
        if self._limit.left:
            parts.append(f"{self._limit.left:,} of {self._limit.wanted:,} moves are not asked for")
        if self._beyond:
            parts.append(f"{counted(self._beyond, 'mapped partition')} not moved")
        return f"{' and '.join(parts)} yet; run again for the rest" if parts else None

    def load(self) -> list[BrokerLoad]:
        """What each broker held before and holds now, and what was copied to and from it."""
        before = {each.broker: each for each in self._before.brokers}
        planned = {each.broker: each for each in self._planned.brokers}
        return [
            replace(
                planned.get(each.broker, each),
                replicas_before=before.get(each.broker, each).replicas_before,
                leaders_before=before.get(each.broker, each).leaders_before,
                bytes_before=before.get(each.broker, each).bytes_before,
                replicas_after=each.replicas_before,
                leaders_after=each.leaders_before,
                bytes_after=each.bytes_before,
            )
            for each in (self._after.load.brokers if self._after else ())
        ]

    def unseen_lines(self) -> Iterator[str]:
        """What of the load this user may not see."""
        if self._after is not None:
            yield from self._after.unseen.lines("counted above without leaders")

    def _limit_text(self) -> str:
        some = f"{self._limit.moves:,} of {self._limit.wanted:,} moves"
        if self._limit.moves == self._moves_max:
            return f"{some}, by --max-moves"
        return f"{some} copy no more than {bytes_text(self._bytes_max or 0)}"

    def _limits_text(self) -> str:
        given = {
            "--max-moves": None if self._moves_max is None else f"{self._moves_max:,}",
            "--max-bytes": None if self._bytes_max is None else bytes_text(self._bytes_max),
        }
        return " and ".join(f"{name} {value}" for name, value in given.items() if value)

    def _event(self, found: PlanSources, target: Target) -> ClusterRebalance:
        """What the job is sent; the limits of moves and bytes are in it.

        Raises:
            RebalanceError: what brokers hold is not known, and there is a limit of it.
        """
        event = ClusterRebalance(
            event_id=f"rebalance/{uuid.uuid4()}",
            cluster_id=self._request.cluster_id,
            max_moves=MOVES_MAX,
            band_percent=self._band_percent,
            band=self._band,
        )
        if self._bytes_max is None and self._moves_max is None:
            return event
        cluster = found.cluster
        asked = () if self._bytes_max is None else cluster.brokers
        sizes = target.replica_sizes(asked)
        if silent := sorted({*asked} - sizes.brokers):
            raise RebalanceError(
                f"--max-bytes needs the sizes of replicas, and brokers {listed(silent)} do not "
                "report them; check that they run, and that this user may Describe the cluster"
            )
        state = read_state(self._request.connection, found.maps.cluster_id)
        topics = {name: cluster.rows(name) or () for name in cluster.topics}
        largest = {at: max(each.values(), default=0) for at, each in sizes.sizes.items()}
        has_need = any(topic.need is not None for topic in state.topics.values())
        if has_need and self._bytes_max is not None:
            event = replace(event, max_bytes=min(self._bytes_max, AMOUNT_MAX))
        self._limit = move_limit(
            state,
            topics,
            largest,
            event,
            moves_max=self._moves_max,
            bytes_max=self._bytes_max,
        )
        return replace(event, max_moves=self._limit.moves)


def _others_lines(plan: TopicsPlan, found: PlanSources) -> Iterator[str]:
    """Topics that are not moved as mapped, and why."""
    for each in plan.refused:
        yield f"{each.topic}: {each.reason}"
    for each in plan.waiting:
        if each.topic in found.cluster.topics:
            yield f"{each.topic}: {each.reason}"


def unmoved_line(plan: TopicsPlan) -> str | None:
    """How many partitions are not as mapped; None: all are."""
    count = sum(len(each.moves) + len(each.moving) for each in plan.changes)
    if not count:
        return None
    are = "is" if count == 1 else "are"
    return f"{counted(count, 'partition')} {are} not as mapped yet; run this again"
