"""The load of each SPU as a picture: where everything stands in the SVG that `bars.svg` draws.

A bar an SPU, grouped by rack: what it may hold, what it holds, how many lists it leads; a line
across each bar is its fair share. Bars get narrower down to a limit, then flow into more rows, so
that ten thousand can be drawn. Hovering shows the numbers. Colours follow the reader's light or
dark scheme; they differ in lightness too, and states have marks of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from spu_assigner.stream.audit.cluster_report import Report
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
STUB_BARS: Final = 8  # fewer of a rack at the end of a row are hard to read
_OUTSIDE: Final = ("saturated", "cordoned", "leaving", "offline")  # of who is not in the ring


def chart(loads: Sequence[Report]) -> Report:
    """Where the bars of a cluster stand."""
    held = max((max(each["replicas"], each["fair_share"] or 0.0) for each in loads), default=0.0)
    capacity = max((each["capacity"] for each in loads), default=0)
    top = max(1.25 * held if capacity > OPEN_RATIO * held else max(held, capacity), 1.0)
    steps = (factor * 10**power for power in range(10) for factor in (1, 2, 5))
    step = next(step for step in steps if top / step <= TICKS_MAX)
    racks = [
        (rack, list(members))
        for rack, members in groupby(sorted(loads, key=_place), key=lambda each: each["rack"])
    ]
    room = RIGHT - LEFT - RACK_GAP * (len(racks) - 1)
    pitch = min(PITCH_MAX, max(PITCH_MIN, room / max(len(loads), 1)))
    id_width = CHARACTER_WIDTH * (1 + max((len(str(each["spu_id"])) for each in loads), default=0))
    states = {each["state"] for each in loads}
    beyond = " (beyond the scale)" if capacity > top else ""
    rows = _rows(racks, pitch)
    return {
        "ticks": range(0, int(top) + 1, step),
        "pitch": pitch,
        "rows": rows,
        "row_height": ROW_HEIGHT,
        "height": ROW_HEIGHT * len(rows),
        "bar": lambda replicas: BAR_HEIGHT * min(replicas / top, 1.0),  # how high so many are
        "ids_every": math.ceil(id_width / pitch),  # bars, of which one has its id below it
        "legend": [  # state, part of a bar, label
            ("", "led", "leaders"),
            ("", "held", "other replicas"),
            ("", "free", f"capacity{beyond}"),
            *((each, "held", each) for each in _OUTSIDE if each in states),
        ],
    }


def _place(load: Report) -> tuple[bool, str, int]:
    return load["rack"] is not None, load["rack"] or "", load["spu_id"]


def _rows(racks: Sequence[tuple[str | None, list[Report]]], pitch: float) -> list[list[Report]]:
    """Of each row the racks, or parts of one, whose bars stand side by side."""
    rows: list[list[Report]] = []
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
            rows[-1].append({"name": name, "label": label, "left": left, "loads": rest[:fitting]})
            rest = rest[fitting:]
            left += max(width, RACK_LABEL_MIN) + RACK_GAP
    return rows
