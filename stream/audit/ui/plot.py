"""The load of each SPU as a picture: SVG inside a page.

A bar an SPU, grouped by rack: what it may hold, what it holds, how many lists it leads; a line
across each bar is its fair share. Bars get narrower down to a limit, then flow into more rows, so
that ten thousand can be drawn. Hovering shows the numbers. Colours follow the reader's light or
dark scheme; they differ in lightness too, and states have marks of their own.

Where everything stands is computed here; `templates/` draw it and escape what is foreign.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from jinja2 import Environment, PackageLoader
from spu_assigner.stream.audit.cluster_report import SpuLoad
from spu_assigner.stream.common.printable import printable

LEFT: Final = 64  # for the numbers of the axis
WIDTH: Final = 1160  # of the picture; this and the next two stand in the templates too
BAR_HEIGHT: Final = 170  # of a bar that is as high as the axis
ROW_HEIGHT: Final = 228  # with the rack's name above and the ids below
RIGHT: Final = WIDTH - 16
PITCH_MAX: Final = 44.0  # between bars
PITCH_MIN: Final = 6.0  # below, a bar cannot be hit
RACK_GAP: Final = 22.0  # between racks
RACK_LABEL_MIN: Final = 18.0  # width for a rack's name
CHARACTER_WIDTH: Final = 8.0  # of a rack's name, or of an id
OPEN_RATIO: Final = 4  # capacities this many times higher than the highest bar leave the axis
TICKS_MAX: Final = 5  # lines that can be distinguished
_OUTSIDE: Final = (
    "saturated",
    "cordoned",
    "leaving",
    "offline",
)  # states of who is not in the ring
STUB_BARS: Final = 8  # fewer of a rack at the end of a row are hard to read


@dataclass(frozen=True, slots=True, kw_only=True)
class RackBars:
    """SPUs of one rack that stand side by side in one row."""

    name: str
    label: str  # the name, or as much of its end as there is room for
    left: float
    loads: list[SpuLoad]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The bars of one cluster."""

    top: float  # replicas at the upper end of the axis
    ticks: range
    pitch: float
    rows: list[list[RackBars]]
    ids_every: int  # bars, of which one has its id below it
    legend: list[tuple[str, str, str]]  # state, part of a bar, label
    row_height: int = ROW_HEIGHT

    @property
    def height(self) -> int:
        """Of all rows."""
        return ROW_HEIGHT * len(self.rows)

    def bar(self, replicas: float) -> float:
        """How high so many replicas are."""
        return BAR_HEIGHT * min(replicas / self.top, 1.0)


def foreign(value: Any) -> Any:
    """Foreign text without control characters; markup of our own as it is."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


_TEMPLATES: Final = Environment(
    loader=PackageLoader("spu_assigner.stream.audit.ui"),
    autoescape=True,
    finalize=foreign,
    trim_blocks=True,
    lstrip_blocks=True,
)


def bars(loads: Sequence[SpuLoad]) -> str:
    """The bars of one cluster as SVG, for a page that has `style()` and names the cluster."""
    return _TEMPLATES.get_template("bars.svg").render(chart=chart(loads))


def style() -> str:
    """The style sheet of the bars."""
    return _TEMPLATES.get_template("load.css").render()


def chart(loads: Sequence[SpuLoad]) -> Chart:
    """Where the bars of a cluster stand."""
    held = max((max(float(each.replicas), each.fair_share or 0.0) for each in loads), default=0.0)
    capacity = max((each.capacity for each in loads), default=0)
    top = max(1.25 * held if capacity > OPEN_RATIO * held else max(held, capacity), 1.0)
    steps = (factor * 10**power for power in range(10) for factor in (1, 2, 5))
    step = next(step for step in steps if top / step <= TICKS_MAX)
    racks = [
        (rack, list(members))
        for rack, members in groupby(sorted(loads, key=_place), key=lambda each: each.rack)
    ]
    room = RIGHT - LEFT - RACK_GAP * (len(racks) - 1)
    pitch = min(PITCH_MAX, max(PITCH_MIN, room / max(len(loads), 1)))
    id_width = CHARACTER_WIDTH * (1 + max((len(str(each.spu_id)) for each in loads), default=0))
    states = Counter(each.state for each in loads)
    beyond = " (beyond the scale)" if capacity > top else ""
    return Chart(
        top=top,
        ticks=range(0, int(top) + 1, step),
        pitch=pitch,
        rows=_rows(racks, pitch),
        ids_every=math.ceil(id_width / pitch),
        legend=[
            ("", "led", "leaders"),
            ("", "held", "other replicas"),
            ("", "free", f"capacity{beyond}"),
            *((each, "held", each) for each in _OUTSIDE if states[each]),
        ],
    )


def _place(load: SpuLoad) -> tuple[bool, str, int]:
    return load.rack is not None, load.rack or "", load.spu_id


def _rows(racks: Sequence[tuple[str | None, list[SpuLoad]]], pitch: float) -> list[list[RackBars]]:
    rows: list[list[RackBars]] = []
    left = float(RIGHT)  # the first rack begins a row
    for rack, members in racks:
        name = "no rack" if rack is None else printable(rack)
        rest = members
        while rest:
            fitting = int((RIGHT - left + 1e-6) / pitch)
            if fitting < min(len(rest), STUB_BARS):
                rows.append([])
                left, fitting = float(LEFT), int((RIGHT - LEFT) / pitch)
            width = pitch * min(fitting, len(rest))
            letters = max(int(min(width + RACK_GAP, WIDTH - left) / CHARACTER_WIDTH), 2)
            # The end distinguishes racks of a region; hovering shows all.
            label = name if len(name) <= letters else f"…{name[1 - letters :]}"
            rows[-1].append(RackBars(name=name, label=label, left=left, loads=rest[:fitting]))
            rest = rest[fitting:]
            left += max(width, RACK_LABEL_MIN) + RACK_GAP
    return rows
