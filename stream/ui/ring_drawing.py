"""The ring as a drawing: where its members stand, who leads next, and who is not in it.

Only numbers and names come from here; a template writes the SVG, and escapes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spu_assigner.core.base.records import Order
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.inspect.report import SpuLoad

SIZE: Final = 560  # of the drawing, both ways
CENTRE: Final = SIZE / 2
RADIUS: Final = 222.0  # of the circle that the members stand on
NODE_MAX: Final = 21.0  # radius of a member's disc,
NODE_MIN: Final = 5.0
LABEL_MIN: Final = 10.5  # radius from which on a disc has room for an id
NODES_MAX: Final = 120  # members that are drawn one by one; above, racks are
OUTSIDE_MAX: Final = 24  # SPUs not in the ring that are drawn
OUTSIDE_COLUMNS: Final = 6
OUTSIDE_PITCH: Final = 46.0
RACK_COLOURS: Final = 8  # in the style sheet; a ninth rack has the first colour again
ORDER_NAMES: Final = {
    Order.ID: "by id",
    Order.DIAGONAL: "Fluvio's diagonal over racks",
    Order.ALTERNATION: "Kafka's alternation over racks",
    Order.REGISTRATION: "by registration (Redpanda)",
    Order.BALANCED: "balanced",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An SPU in the drawing."""

    load: SpuLoad
    x: float
    y: float
    radius: float
    colour: int  # of its rack, from 0; -1: no rack
    leads_next: bool = False

    @property
    def used(self) -> float:
        """The share of its capacity, from 0 to 100."""
        return round(min(self.load.share_used or 0.0, 1.0) * 100, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc:
    """The members of one rack together."""

    rack: str | None
    colour: int
    members: int
    spus: int
    path: str
    label_x: float
    label_y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RingDrawing:
    """The whole drawing."""

    order: str
    order_name: str
    chain_index: int
    size: int  # members
    nodes: tuple[Node, ...]  # in the ring; none: `arcs` stand for them
    arcs: tuple[Arc, ...]
    outside: tuple[Node, ...]  # not in the ring
    outside_more: int  # that are not drawn
    racks: tuple[tuple[str | None, int], ...]  # with their colours, by name
    has_labels: bool
    orders: tuple[tuple[str, str], ...]  # that can be asked for


def ring_drawing(
    state: ClusterState, loads: Sequence[SpuLoad], order: Order | None = None
) -> RingDrawing:
    """Draw the ring in an order; in that which assignments follow, if none is named."""
    ring = state.ring
    chosen = order or _usual_order(state)
    by_id = {load.spu_id: load for load in loads}
    names = sorted({load.rack for load in loads}, key=lambda rack: (rack is not None, rack or ""))
    colours = {rack: number % RACK_COLOURS for number, rack in enumerate(filter(_is_named, names))}
    # An id that the maps name and no SPU was described for has no load yet.
    members = [by_id[spu_id] for spu_id in ring.order(chosen).tolist() if spu_id in by_id]
    outside = [load for load in loads if load.state != "online"]
    lead = state.chains[chosen].lead
    index = state.chain_index(chosen)
    is_single = len(members) <= NODES_MAX
    radius = _node_radius(len(members))
    return RingDrawing(
        order=chosen.value,
        order_name=ORDER_NAMES[chosen],
        chain_index=index,
        size=ring.size,
        nodes=tuple(_nodes(members, radius, colours, lead)) if is_single else (),
        arcs=() if is_single else tuple(_arcs(members, loads, colours)),
        outside=tuple(_outside(outside[:OUTSIDE_MAX], colours)),
        outside_more=max(len(outside) - OUTSIDE_MAX, 0),
        racks=tuple((rack, colours.get(rack, -1)) for rack in names),
        has_labels=radius >= LABEL_MIN,
        orders=tuple((each.value, ORDER_NAMES[each]) for each in _orders(state)),
    )


def _is_named(rack: str | None) -> bool:
    return rack is not None


def _orders(state: ClusterState) -> list[Order]:
    """Orders that make sense: over racks only where there are some."""
    over_racks = (Order.DIAGONAL, Order.ALTERNATION)
    return [order for order in Order if state.racked_count or order not in over_racks]


def _usual_order(state: ClusterState) -> Order:
    """That whose chain went furthest, so that most assignments followed it."""
    orders = _orders(state)
    return max(orders, key=lambda order: (state.chain_index(order), -orders.index(order)))


def _node_radius(count: int) -> float:
    half_gap = math.pi * RADIUS / max(count, 1)
    return max(NODE_MIN, min(NODE_MAX, half_gap * 0.78))


def _at(turn: float, radius: float) -> tuple[float, float]:
    """A point of a circle; turn 0 is at the top, 1 is once round, clockwise."""
    angle = 2 * math.pi * turn - math.pi / 2
    x, y = CENTRE + radius * math.cos(angle), CENTRE + radius * math.sin(angle)
    return round(x, 2), round(y, 2)


def _nodes(
    members: Sequence[SpuLoad], radius: float, colours: dict[str | None, int], lead: int | None
) -> list[Node]:
    nodes = []
    first = members[0].spu_id if members else None
    for number, load in enumerate(members):
        x, y = _at(number / len(members), RADIUS)
        nodes.append(
            Node(
                load=load,
                x=x,
                y=y,
                radius=round(radius, 2),
                colour=colours.get(load.rack, -1),
                leads_next=load.spu_id == (first if lead is None else lead),
            )
        )
    return nodes


def _outside(loads: Sequence[SpuLoad], colours: dict[str | None, int]) -> list[Node]:
    """In rows in the middle."""
    rows = -(-len(loads) // OUTSIDE_COLUMNS)
    nodes = []
    for number, load in enumerate(loads):
        row, column = divmod(number, OUTSIDE_COLUMNS)
        in_row = min(OUTSIDE_COLUMNS, len(loads) - row * OUTSIDE_COLUMNS)
        nodes.append(
            Node(
                load=load,
                x=round(CENTRE + (column - (in_row - 1) / 2) * OUTSIDE_PITCH, 2),
                y=round(CENTRE + 52 + (row - (rows - 1) / 4) * OUTSIDE_PITCH, 2),
                radius=16.0,
                colour=colours.get(load.rack, -1),
            )
        )
    return nodes


def _arcs(
    members: Sequence[SpuLoad], loads: Sequence[SpuLoad], colours: dict[str | None, int]
) -> list[Arc]:
    counts: dict[str | None, int] = {}
    for load in members:
        counts[load.rack] = counts.get(load.rack, 0) + 1
    arcs = []
    begin = 0.0
    for rack, count in sorted(
        counts.items(), key=lambda pair: (pair[0] is not None, pair[0] or "")
    ):
        share = count / len(members)
        gap = min(0.004, share / 4) if len(counts) > 1 else 0.0
        x, y = _at(begin + share / 2, RADIUS)
        arcs.append(
            Arc(
                rack=rack,
                colour=colours.get(rack, -1),
                members=count,
                spus=sum(load.rack == rack for load in loads),
                path=_arc_path(begin + gap / 2, begin + share - gap / 2),
                label_x=x,
                label_y=y,
            )
        )
        begin += share
    return arcs


def _arc_path(begin: float, end: float) -> str:
    """A stroke along the circle; a whole circle takes two."""
    middle = (begin + end) / 2
    (x0, y0), (x1, y1), (x2, y2) = (_at(turn, RADIUS) for turn in (begin, middle, end))
    arc = f"A{RADIUS} {RADIUS} 0 0 1"
    return f"M{x0} {y0}{arc} {x1} {y1}{arc} {x2} {y2}"
