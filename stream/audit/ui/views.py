"""What the templates show that the state does not hold as it is: pages of lists, reports, the ring,
moves.

Rules: lists are cut into pages here, and never built whole, except names; a report on a cluster,
which goes through all its topics, is made again after a change at most a fifth of the time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.records import Order
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.wire import MovesRun, MovesState
from spu_assigner.stream.audit.cluster_report import ClusterReport, SpuLoad, cluster_report
from spu_assigner.stream.audit.ui.known import Known
from spu_assigner.stream.kafka.moves_record import is_silent

ROWS: Final = 50  # of a page
REPORTS_MAX: Final = 1_000  # that are kept
IDLE: Final = 5.0  # times what a report costs, until the next is made
NODES_MAX: Final = 120  # members of a ring that are drawn one by one; above, racks are
RACK_COLOURS: Final = 8  # in the style sheet; a ninth rack has the first colour again
SPEED_SECONDS_LEAST: Final = 2.0  # before that it says nothing
OVER_RACKS: Final = (Order.DIAGONAL, Order.ALTERNATION)
ORDER_NAMES: Final = {
    Order.ID: "by id",
    Order.DIAGONAL: "Fluvio's diagonal over racks",
    Order.ALTERNATION: "Kafka's alternation over racks",
    Order.REGISTRATION: "by registration (Redpanda)",
    Order.BALANCED: "balanced",
}


class NotFoundError(AssignerError):
    """There is no such thing to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One page of a list."""

    rows: Sequence[Any]
    page: int  # from 1
    pages: int
    total: int
    first: int  # row, from 1; 0: there is none


def sliced(
    items: Sequence[Any],
    page: int,
    *,
    size: int = ROWS,
    row: Callable[[Any], Any] = lambda item: item,
) -> Slice:
    """One page, the last one where there are not so many; `row` makes what it shows of an item."""
    pages = max(1, -(-len(items) // size))
    page = min(page, pages)
    begin = (page - 1) * size
    return Slice(
        rows=[row(item) for item in items[begin : begin + size]],
        page=page,
        pages=pages,
        total=len(items),
        first=begin + 1 if items else 0,
    )


def found(names: Sequence[str], search: str) -> Sequence[str]:
    """The names that contain what is searched for; case does not matter."""
    wanted = search.casefold()
    return [name for name in names if wanted in name.casefold()] if wanted else names


class Reports:
    """Reports on clusters, kept until the cluster changes, and a little longer where they cost."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[int, float, ClusterReport]] = {}

    def of(self, known: Known, cluster_id: str) -> ClusterReport:
        """Raises as `Known.state`."""
        version = known.cluster_version(cluster_id)
        kept = self._kept.get(cluster_id)
        if kept is not None and (kept[0] == version or self._clock() < kept[1]):
            return kept[2]
        begin = self._clock()
        report = cluster_report(known.state(cluster_id))
        end = self._clock()
        while len(self._kept) >= REPORTS_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[cluster_id] = version, end + IDLE * (end - begin), report
        return report


def rack_colours(loads: Sequence[SpuLoad]) -> dict[str | None, int]:
    """The colour of each rack, in the order of names; -1: no rack."""
    names = sorted({load.rack for load in loads if load.rack is not None})
    colours: dict[str | None, int] = {}
    if any(load.rack is None for load in loads):
        colours[None] = -1
    return colours | {name: number % RACK_COLOURS for number, name in enumerate(names)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RingView:
    """The ring in one order; a template draws it."""

    order: Order
    orders: Sequence[Order]  # that can be asked for
    chain_index: int
    size: int
    lead: int | None  # who leads next
    members: Sequence[SpuLoad]  # in order; none: too many to be drawn one by one
    rack_sizes: Mapping[str | None, int]  # members of each rack
    outside: Sequence[SpuLoad]  # not in the ring


def ring_view(
    state: ClusterState, loads: Sequence[SpuLoad], order: Order | None = None
) -> RingView:
    """The ring in an order; in that which most assignments followed, if none is named."""
    orders = [each for each in Order if state.racked_count or each not in OVER_RACKS]
    chosen = order or max(orders, key=state.chain_index)
    by_id = {load.spu_id: load for load in loads}
    # An id that the maps name and no SPU was described for has no load yet.
    members = [by_id[each] for each in state.ring.order(chosen).tolist() if each in by_id]
    lead = state.chains[chosen].lead
    if lead is None and members:
        lead = members[0].spu_id
    return RingView(
        order=chosen,
        orders=orders,
        chain_index=state.chain_index(chosen),
        size=state.ring.size,
        lead=lead,
        members=members if len(members) <= NODES_MAX else (),
        rack_sizes=Counter(load.rack for load in members),
        outside=[load for load in loads if load.state != "online"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesView:
    """The run that moves partitions, or the last one."""

    run: MovesRun
    is_running: bool  # and it records how far it is
    is_silent: bool  # it has not ended, and records nothing any more
    moves: Mapping[str, int]  # pending, done, failed
    bytes: Mapping[str, int]  # likewise
    throttle: int | None  # bytes a second of a broker; None: there is none now
    seconds: float  # from its beginning to its last record
    speed: float | None  # bytes a second; None: it says nothing yet


def moves_view(run: MovesRun, *, now_ms: int) -> MovesView:
    """What the page shows of a run."""
    rates = (each.value for each in run.throttles if each.broker is not None)
    seconds = max(0, run.recorded_at - run.began_at) / 1000
    return MovesView(
        run=run,
        is_running=run.state is MovesState.RUNNING and not is_silent(run, now_ms=now_ms),
        is_silent=is_silent(run, now_ms=now_ms),
        moves=run.moves_by_state(),
        bytes=run.bytes_by_state(),
        throttle=next((int(rate) for rate in rates), None),
        seconds=seconds,
        speed=run.bytes_done / seconds
        if run.bytes_done and seconds >= SPEED_SECONDS_LEAST
        else None,
    )
