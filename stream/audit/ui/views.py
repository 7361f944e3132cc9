"""What the templates show that neither the state nor the report holds as it is: pages of lists, the
ring, moves. Lists are cut into pages here, and never built whole, except names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from spu_assigner.core.base.records import Order
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import OVER_RACKS
from spu_assigner.schemas.messages.wire import MovesRun, MovesState
from spu_assigner.stream.audit.cluster_report import Report
from spu_assigner.stream.client.announced import LABEL
from spu_assigner.stream.clusters.plan.model import KafkaCluster
from spu_assigner.stream.kafka.moves_record import is_silent

ROWS: Final = 50  # of a page
NODES_MAX: Final = 120  # members of a ring that are drawn one by one; above, racks are
RACK_COLOURS: Final = 8  # in the style sheet; a ninth rack has the first colour again
HEADROOM: Final = 1.25  # of a bar's scale over the highest load, where capacities are far above it
SORTED: Final = ("topic", "policy", "partitions", "replicas", "revision", "short_lists")  # topics
# Which topics are shown, by what is asked for.
TOPIC_STATES: Final[Mapping[str, Callable[[Report], bool]]] = {
    "whole": lambda each: not (each["short_lists"] or each["is_waiting"]),
    "repair": lambda each: bool(each["short_lists"] or each["is_waiting"]),
    "pinned": itemgetter("pinned"),
}
SPEED_SECONDS_LEAST: Final = 2.0  # before that it says nothing


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
    return [name for name in names if search.casefold() in name.casefold()]


def rack_colours(loads: Sequence[Report]) -> dict[str | None, int]:
    """The colour of each rack, in the order of names; -1: no rack."""
    racks = {load["rack"] for load in loads}
    colours = {None: -1} if None in racks else {}
    names = sorted(racks - {None})
    return colours | {name: number % RACK_COLOURS for number, name in enumerate(names)}


def bar_scale(loads: Sequence[Report]) -> float:
    """How many replicas a whole bar is, the same for all SPUs of a cluster.

    The usual capacity is thousands of slots: on its scale a bar of thirty replicas is not seen.
    """
    held = max((max(each["replicas"], each["fair_share"] or 0.0) for each in loads), default=0.0)
    capacity = max((each["capacity"] for each in loads), default=0)
    return max(held, min(capacity, HEADROOM * held))


def ring_view(state: ClusterState, loads: Sequence[Report]) -> Report:
    """The ring in the order that most assignments followed."""
    orders = [each for each in Order if state.racked_count or each not in OVER_RACKS]
    order = max(orders, key=state.chain_index)
    by_id = {load["spu_id"]: load for load in loads}
    # An id that the maps name and no SPU was described for has no load yet.
    members = [by_id[each] for each in state.ring.order(order).tolist() if each in by_id]
    lead = state.chains[order].lead
    if lead is None and members:
        lead = members[0]["spu_id"]
    return {
        "order": order,
        "chain_index": state.chain_index(order),
        "size": state.ring.size,
        "lead": lead,  # who leads next
        # In order; none: too many to be drawn one by one.
        "members": members if len(members) <= NODES_MAX else (),
        "rack_sizes": Counter(load["rack"] for load in members),
        "outside": [load for load in loads if load["state"] != "online"],
    }


def kafka_of(state: ClusterState, kafka: KafkaCluster | None) -> KafkaCluster | None:
    """The Kafka cluster whose brokers the SPUs are; None: they are none, or it is not seen."""
    ids = {dict(spu.labels).get(LABEL) for spu in state.spus.values()}
    return kafka if kafka is not None and kafka.kafka_id in ids else None


def spu_topics(state: ClusterState, spu_id: int, kafka: KafkaCluster | None) -> list[Report]:
    """What an SPU holds of each topic, as mapped, and as Kafka shows it."""
    found, rows = kafka.topics if kafka else {}, list[Report]()
    for name in sorted({*state.topics, *found}, key=lambda name: (name not in state.topics, name)):
        topic = state.topics.get(name)
        is_held = topic is not None and topic.replicas.holds(spu_id)
        lists = topic.replicas.lists().tolist() if topic and is_held else []
        there = [each for each in found.get(name, ()) if spu_id in each.replicas]
        if is_held or there:
            mapped = [row for row in lists if spu_id in row]
            row = {"topic": name, "is_mapped": topic is not None, "replicas": len(mapped)}
            row["leaders"] = sum(row[0] == spu_id for row in mapped)
            row["there"], row["leads"] = len(there), sum(x.leader == spu_id for x in there)
            rows.append(row | {"in_sync": sum(spu_id in x.in_sync for x in there)})
    return rows


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
