"""The load of each SPU as a picture: SVG, alone or inside a page of HTML that needs nothing else.

A bar an SPU, grouped by rack: what it may hold, what it holds, how many lists it leads; a line
across each bar is its fair share. Bars get narrower down to a limit, then flow into more rows, so
that ten thousand can be drawn. Hovering tells the numbers. Colours follow the reader's light or
dark scheme; they differ in lightness too, and states have marks of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Final

from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.inspect.report import SpuLoad

WIDTH: Final = 1160  # of the picture
LEFT: Final = 64  # for the numbers of the axis
RIGHT: Final = 16
BAR_HEIGHT: Final = 170  # of a bar that is as high as the axis
PITCH_MAX: Final = 44.0  # between bars
PITCH_MIN: Final = 6.0  # below, a bar cannot be hit
RACK_GAP: Final = 22.0  # between racks
RACK_LABEL_MIN: Final = 18.0  # width for a rack's name
ID_WIDTH: Final = 7.5  # of a digit
CHARACTER_WIDTH: Final = 6.8
BOLD_WIDTH: Final = 8.0  # likewise, of a rack's name
HEAD: Final = 66  # of a cluster: its name and the legend
ROW_TOP: Final = 24  # above bars: the rack's name
ROW_BOTTOM: Final = 34  # below bars: ids
OPEN_RATIO: Final = 4  # capacities this many times higher than the highest bar leave the axis

STYLE: Final = """
svg{background:#ffffff}
text{font-family:system-ui,"Segoe UI",Helvetica,Arial,"DejaVu Sans",sans-serif;font-size:12px}
text.name{font-size:16px}.name{font-weight:600;fill:#1a1d21}
.text{fill:#43484e}.faint{fill:#6b7178}.rack{fill:#1a1d21;font-weight:600}
.grid{stroke:#d9dce0;stroke-width:1;fill:none}
.free{fill:#e6eaef}.held{fill:#6aa5d8}.led{fill:#1f5f99}
.full .held{fill:#e0913a}.full .led{fill:#9c5309}
.leaving .held{fill:#b58ad0}.leaving .led{fill:#6c3b8f}
.offline .held{fill:#a9aeb5}.offline .led{fill:#6d737b}
.fair{stroke:#c2185b;stroke-width:2;fill:none}
.spu:hover .free{stroke:#1a1d21;stroke-width:1}
@media (prefers-color-scheme:dark){
svg{background:#15181c}
.name,.rack{fill:#eef0f2}.text{fill:#c3c8ce}.faint{fill:#989fa7}
.grid{stroke:#343a41}
.free{fill:#2a3037}.held{fill:#3d7fb8}.led{fill:#9fd0f7}
.full .held{fill:#a8641a}.full .led{fill:#ffc889}
.leaving .held{fill:#7d4fa0}.leaving .led{fill:#dcb9f2}
.offline .held{fill:#5b626a}.offline .led{fill:#aab1b9}
.fair{stroke:#ff6fa3}
.spu:hover .free{stroke:#eef0f2}
}
"""
_CLASSES: Final = {"online": "", "saturated": " full", "leaving": " leaving", "offline": " offline"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """How replicas become heights."""

    top: float  # replicas at the upper end

    def height(self, replicas: float) -> float:
        return BAR_HEIGHT * min(replicas / self.top, 1.0)


@dataclass(slots=True, kw_only=True)
class _Piece:
    """SPUs of one rack that stand side by side in one row."""

    rack: str | None
    is_continued: bool
    left: float
    loads: list[SpuLoad]


def page(clusters: Mapping[str, Sequence[SpuLoad]], *, subtitle: str) -> str:
    """A page of HTML with the picture in it, complete in one file."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<meta name="color-scheme" content="light dark">'
        "<title>Load of each SPU</title>"
        "<style>body{margin:16px;background:#fff}svg{max-width:100%;height:auto}"
        "@media (prefers-color-scheme:dark){body{background:#15181c}}</style></head>\n"
        f"<body>{picture(clusters, subtitle=subtitle)}</body></html>\n"
    )


def picture(clusters: Mapping[str, Sequence[SpuLoad]], *, subtitle: str) -> str:
    """The picture as SVG: clusters below each other."""
    y = 8.0
    parts = []
    for cluster_id, loads in clusters.items():
        drawn, height = _cluster(cluster_id, loads, subtitle)
        parts.append(f'<g transform="translate(0 {_n(y)})">{drawn}</g>')
        y += height + 24
    if not clusters:
        parts.append(f'<text class="text" x="16" y="30">No cluster yet, {_e(subtitle)}</text>')
        y = 60
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{_n(y)}" '
        f'viewBox="0 0 {WIDTH} {_n(y)}" role="img" aria-label="Load of each SPU, {_e(subtitle)}">'
        f"<style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )


def bars(loads: Sequence[SpuLoad]) -> str:
    """The bars of one cluster alone as SVG, for a page that has STYLE and names the cluster."""
    y = float(ROW_TOP)
    drawn, height = _bars(loads, y)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {_n(height)}" role="img" '
        f'aria-label="Load of each SPU">'
        f'<g transform="translate(0 -40)">{"".join(_legend(loads, is_open=_axis(loads)[1]))}</g>'
        f"{drawn}</svg>\n"
    )


def _cluster(cluster_id: str, loads: Sequence[SpuLoad], subtitle: str) -> tuple[str, float]:
    """Its drawing and the height of it."""
    drawn, height = _bars(loads, float(HEAD))
    parts = [
        f'<text class="name" x="16" y="18">{_e(cluster_id)}</text>',
        f'<text class="faint" x="16" y="36">{_e(_sum(loads))}; {_e(subtitle)}</text>',
        *_legend(loads, is_open=_axis(loads)[1]),
        drawn,
    ]
    return "".join(parts), height


def _bars(loads: Sequence[SpuLoad], y: float) -> tuple[str, float]:
    """All bars from a height on, and the height behind them."""
    axis, _ = _axis(loads)
    pitch, rows = _rows(loads)
    parts: list[str] = []
    for row in rows:
        parts.append(f'<g transform="translate(0 {_n(y + ROW_TOP)})">')
        parts += _grid(axis, right=row[-1].left + pitch * len(row[-1].loads))
        for piece in row:
            parts += _piece(piece, axis, pitch)
        parts.append("</g>")
        y += ROW_TOP + BAR_HEIGHT + ROW_BOTTOM
    return "".join(parts), y


def _axis(loads: Sequence[SpuLoad]) -> tuple[_Axis, bool]:
    """The axis, and whether capacities reach beyond it."""
    held = max((max(float(each.replicas), each.fair_share or 0.0) for each in loads), default=0.0)
    capacity = max((each.capacity for each in loads), default=0)
    if capacity > OPEN_RATIO * held:
        return _Axis(top=max(1.25 * held, 1.0)), capacity > max(1.25 * held, 1.0)
    return _Axis(top=max(held, capacity, 1.0)), False


def _rows(loads: Sequence[SpuLoad]) -> tuple[float, list[list[_Piece]]]:
    """The distance between bars, and the racks' pieces row by row."""
    ordered = sorted(loads, key=lambda each: (each.rack is not None, each.rack or "", each.spu_id))
    racks = [(rack, list(members)) for rack, members in groupby(ordered, lambda each: each.rack)]
    width = WIDTH - LEFT - RIGHT
    room = width - RACK_GAP * max(len(racks) - 1, 0)
    pitch = min(PITCH_MAX, max(PITCH_MIN, room / max(len(loads), 1)))
    rows: list[list[_Piece]] = []
    x = float(width)  # the first piece begins a row
    for rack, members in racks:
        rest = members
        while rest:
            fitting = int((width - x + 1e-6) / pitch)
            if fitting < min(len(rest), 8) or not rows:  # a stub of a rack is hard to read
                rows.append([])
                x, fitting = 0.0, int(width / pitch)
            piece = _Piece(
                rack=rack, is_continued=rest is not members, left=LEFT + x, loads=rest[:fitting]
            )
            rows[-1].append(piece)
            rest = rest[fitting:]
            x += max(pitch * len(piece.loads), RACK_LABEL_MIN) + RACK_GAP
    return pitch, rows


def _grid(axis: _Axis, *, right: float) -> Iterator[str]:
    step = _step(axis.top)
    for number in range(int(axis.top / step + 1e-9) + 1):
        y = _n(BAR_HEIGHT - axis.height(number * step))
        yield f'<path class="grid" d="M{LEFT - 6} {y}H{_n(right)}"/>'
        yield (
            f'<text class="faint" x="{LEFT - 10}" y="{y}" dy="4" text-anchor="end">'
            f"{number * step:,}</text>"
        )


def _step(top: float) -> int:
    """A round number of which three to five fit."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if top / (step * factor) <= 5:  # lines that can be told apart
                return step * factor
        step *= 10


def _piece(piece: _Piece, axis: _Axis, pitch: float) -> Iterator[str]:
    width = pitch * len(piece.loads)
    rack = "no rack" if piece.rack is None else printable(piece.rack)
    name = rack if rack.lower().startswith(("no rack", "rack")) else f"rack {rack}"
    if piece.is_continued:
        name += " (continued)"
    room = int(min(width + RACK_GAP, WIDTH - piece.left) / BOLD_WIDTH)
    shown = next((each for each in (name, rack) if len(each) <= room), None)
    if shown is None:  # the end tells racks of a region apart; hovering tells all
        shown = "…" + rack[len(rack) - max(room - 1, 1) :]
    yield (
        f'<text class="rack" x="{_n(piece.left)}" y="-9"><title>{_e(name)}</title>{_e(shown)}'
        "</text>"
    )
    longest = max(len(str(each.spu_id)) for each in piece.loads)
    every = max(1, -(-int(longest * ID_WIDTH + 8) // max(int(pitch), 1)))
    bar = max(pitch - max(1.0, pitch * 0.22), 1.0)
    for index, load in enumerate(piece.loads):
        x = piece.left + index * pitch
        yield from _bar(load, axis, x=x, width=bar)
        if index % every == 0:
            yield (
                f'<text class="faint" x="{_n(x + bar / 2)}" y="{BAR_HEIGHT + 16}" '
                f'text-anchor="middle">{load.spu_id}</text>'
            )


def _bar(load: SpuLoad, axis: _Axis, *, x: float, width: float) -> Iterator[str]:
    yield f'<g class="spu{_CLASSES[load.state]}"><title>{_e(_hover_text(load))}</title>'
    for name, replicas in (("free", load.capacity), ("held", load.replicas), ("led", load.leaders)):
        height = axis.height(replicas)
        if name == "free":
            height = max(height, axis.height(load.replicas), 2.0)  # something to hover over
        if height > 0:
            yield (
                f'<rect class="{name}" x="{_n(x)}" y="{_n(BAR_HEIGHT - height)}" '
                f'width="{_n(width)}" height="{_n(height)}"/>'
            )
    if load.fair_share is not None:
        y = BAR_HEIGHT - axis.height(load.fair_share)
        yield f'<path class="fair" d="M{_n(x)} {_n(y)}h{_n(width)}"/>'
    yield "</g>"


def _hover_text(load: SpuLoad) -> str:
    """What hovering tells."""
    share = "" if load.share_used is None else f" ({load.share_used:.1%})"
    fair = "" if load.fair_share is None else f"\nfair share {load.fair_share:.1f}"
    rack = "" if load.rack is None else f", rack {load.rack}"
    return (
        f"SPU {load.spu_id}{rack}, {load.state}\n"
        f"{load.replicas} of {load.capacity} replicas{share}\n{load.leaders} leaders{fair}"
    )


def _sum(loads: Sequence[SpuLoad]) -> str:
    states = [each.state for each in loads]
    counts = {state: states.count(state) for state in _CLASSES}
    told = [f"{count:,} {state}" for state, count in counts.items() if count]
    replicas = sum(each.replicas for each in loads)
    return f"{len(loads):,} SPUs ({', '.join(told) or 'none'}), {replicas:,} replicas"


def _legend(loads: Sequence[SpuLoad], *, is_open: bool) -> Iterator[str]:
    """Only what the picture has."""
    states = {each.state for each in loads}
    beyond = "capacity (beyond the scale)" if is_open else "capacity"
    items = [("", "led", "leaders"), ("", "held", "other replicas"), ("", "free", beyond)]
    for state in ("saturated", "leaving", "offline"):
        if state in states:
            items.append((_CLASSES[state].strip(), "held", state))
    x = 16.0
    for group, name, label in items:
        yield (
            f'<g class="{group}"><rect class="{name}" x="{_n(x)}" y="46" width="12" height="12"/>'
            f'</g><text class="text" x="{_n(x + 17)}" y="56">{label}</text>'
        )
        x += 17 + len(label) * CHARACTER_WIDTH + 18
    yield (
        f'<path class="fair" d="M{_n(x)} 52h14"/>'
        f'<text class="text" x="{_n(x + 19)}" y="56">fair share by capacity</text>'
    )


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _e(text: str) -> str:
    """For XML; a line break in a title stays one."""
    return escape("\n".join(map(printable, text.split("\n"))))
