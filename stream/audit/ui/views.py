"""What the templates show that neither the state nor the report holds as it is: pages of lists, the
ring, moves.

Rules: lists are cut into pages here, and never built whole, except names; a report on a cluster,
which goes through all its topics, is made again after a change at most a fifth of the time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from spu_assigner.core.base.records import Order
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.wire import MovesRun, MovesState
from spu_assigner.stream.audit.cluster_report import Report, cluster_report
from spu_assigner.stream.audit.ui.known import Known
from spu_assigner.stream.kafka.moves_record import is_silent

ROWS: Final = 50  # of a page
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


def sliced(
    items: Sequence[Any],
    page: int,
    *,
    size: int = ROWS,
    row: Callable[[Any], Any] = lambda item: item,
) -> Report:
    """One page, the last one where there are not so many; `row` makes what it shows of an item."""
    pages = max(1, -(-len(items) // size))
    page = min(page, pages)
    begin = (page - 1) * size
    return {
        "rows": [row(item) for item in items[begin : begin + size]],
        "page": page,  # from 1
        "pages": pages,
        "total": len(items),
        "first": begin + 1 if items else 0,  # row, from 1; 0: there is none
    }


def found(names: Sequence[str], search: str) -> Sequence[str]:
    """The names that contain what is searched for; case does not matter."""
    wanted = search.casefold()
    return [name for name in names if wanted in name.casefold()] if wanted else names


class Reports:
    """Reports on clusters, kept until the cluster changes, and a little longer where they cost."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[int, float, Report]] = {}

    def of(self, known: Known, cluster_id: str) -> Report:
        """Raises as `Known.state`."""
        version = known.cluster_version(cluster_id)
        kept = self._kept.get(cluster_id)
        if kept is not None and (kept[0] == version or self._clock() < kept[1]):
            return kept[2]
        begin = self._clock()
        report = cluster_report(known.state(cluster_id))
        end = self._clock()
        self._kept[cluster_id] = version, end + IDLE * (end - begin), report
        return report


def rack_colours(loads: Sequence[Report]) -> dict[str | None, int]:
    """The colour of each rack, in the order of names; -1: no rack."""
    racks = {load["rack"] for load in loads}
    colours = {None: -1} if None in racks else {}
    names = sorted(racks - {None})
    return colours | {name: number % RACK_COLOURS for number, name in enumerate(names)}


def ring_view(state: ClusterState, loads: Sequence[Report], order: Order | None = None) -> Report:
    """The ring in an order; in that which most assignments followed, if none is named."""
    orders = [each for each in Order if state.racked_count or each not in OVER_RACKS]
    chosen = order or max(orders, key=state.chain_index)
    by_id = {load["spu_id"]: load for load in loads}
    # An id that the maps name and no SPU was described for has no load yet.
    members = [by_id[each] for each in state.ring.order(chosen).tolist() if each in by_id]
    lead = state.chains[chosen].lead
    if lead is None and members:
        lead = members[0]["spu_id"]
    return {
        "order": chosen,
        "orders": orders,  # that can be asked for
        "chain_index": state.chain_index(chosen),
        "size": state.ring.size,
        "lead": lead,  # who leads next
        # In order; none: too many to be drawn one by one.
        "members": members if len(members) <= NODES_MAX else (),
        "rack_sizes": Counter(load["rack"] for load in members),
        "outside": [load for load in loads if load["state"] != "online"],
    }


def moves_view(run: MovesRun, *, now_ms: int) -> Report:
    """What the page shows of a run that moves partitions, or of the last one."""
    rates = (each.value for each in run.throttles if each.broker is not None)
    seconds = max(0, run.recorded_at - run.began_at) / 1000  # to its last record
    is_over = is_silent(run, now_ms=now_ms)
    says_speed = run.bytes_done and seconds >= SPEED_SECONDS_LEAST
    return {
        "run": run,
        "is_running": run.state is MovesState.RUNNING and not is_over,
        "is_silent": is_over,  # it has not ended, and records nothing any more
        "moves": run.moves_by_state(),  # pending, done, failed
        "bytes": run.bytes_by_state(),
        "throttle": next((int(rate) for rate in rates), None),  # bytes a second of a broker
        "seconds": seconds,
        "speed": run.bytes_done / seconds if says_speed else None,  # bytes a second
    }
