"""The picture of loads: complete, well-formed, and in proportion for few and for many SPUs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from spu_assigner.stream.audit.cluster_report import Report
from spu_assigner.stream.audit.ui import app
from spu_assigner.stream.audit.ui.plot import BAR_HEIGHT, PITCH_MIN, WIDTH, chart
from support.pages.ui_pages import Still, known_of

TEMPLATES = app.make_app(Still(known_of([])).as_live()).jinja_env
SVG = "{http://www.w3.org/2000/svg}"


def load(spu_id: int, rack: str | None = "a", state: str = "online", **given: int) -> Report:
    capacity, replicas = given.get("capacity", 60), given.get("replicas", 30)
    has_share = state in ("online", "saturated", "cordoned")
    return {
        "spu_id": spu_id,
        "rack": rack,
        "state": state,
        "capacity": capacity,
        "replicas": replicas,
        "share_used": replicas / capacity if capacity else None,
        "fair_share": float(given.get("fair", 30)) if has_share else None,
        "leaders": given.get("leaders", 10),
        "resources": {},
        "resources_used": {},
    }


def bars(loads: Sequence[Report]) -> str:
    return TEMPLATES.get_template("bars.svg").render(chart=chart(loads))


def drawn(loads: Sequence[Report]) -> ET.Element:
    return ET.fromstring(bars(loads))


def bars_of(root: ET.Element) -> list[ET.Element]:
    return [each for each in root.iter(f"{SVG}g") if (each.get("class") or "").startswith("spu")]


def heights(bar: ET.Element) -> dict[str, float]:
    return {
        str(rect.get("class")): float(rect.get("height") or 0) for rect in bar.iter(f"{SVG}rect")
    }


@pytest.mark.parametrize("count", [0, 1, 3, 40, 1_000, 10_000])
def test_every_spu_has_a_bar_inside_the_picture(count: int) -> None:
    """Few are wide, many flow into rows; none is left out or drawn over the edge."""
    loads = [load(number, f"rack{number * 7 // max(count, 1)}") for number in range(count)]
    root = drawn(loads)
    found = bars_of(root)
    assert len(found) == count
    for bar in found:
        for rect in bar.iter(f"{SVG}rect"):
            assert float(rect.get("x") or -1) >= 0
            assert float(rect.get("x") or 0) + float(rect.get("width") or 0) <= WIDTH
            assert float(rect.get("width") or 0) >= PITCH_MIN / 2


def test_bars_stand_to_capacity_as_the_numbers_do() -> None:
    """A bar's picture is its numbers."""
    [bar] = bars_of(drawn([load(0, capacity=60, replicas=30, leaders=10)]))
    assert heights(bar) == {
        "free": pytest.approx(BAR_HEIGHT),
        "held": pytest.approx(BAR_HEIGHT / 2),
        "led": pytest.approx(BAR_HEIGHT / 6, abs=0.01),
    }


def test_a_capacity_far_above_the_load_leaves_the_scale() -> None:
    """With the usual 6,998 slots a bar of thirty replicas would be a hair's breadth."""
    root = drawn([load(0, capacity=6998, replicas=30, leaders=10)])
    assert heights(bars_of(root)[0])["held"] > BAR_HEIGHT / 2
    assert "beyond the scale" in "".join(root.itertext())


def test_hovering_shows_the_numbers() -> None:
    """Where bars are narrow, it is the only way to read one."""
    title = bars_of(drawn([load(7, replicas=12, leaders=4, fair=13)]))[0].find(f"{SVG}title")
    assert title is not None
    assert title.text == (
        "SPU 7, rack a, online\n12 of 60 replicas (20.0%)\n4 leaders\nfair share 13.0"
    )


def test_states_are_marked_and_in_the_legend() -> None:
    """A legend that names what is not there is read for nothing."""
    root = drawn(
        [load(0), load(1, state="saturated"), load(2, state="leaving"), load(3, state="cordoned")]
    )
    classes = ["spu", "spu saturated", "spu leaving", "spu cordoned"]
    assert [bar.get("class") for bar in bars_of(root)] == classes
    texts = [text.text for text in root.iter(f"{SVG}tspan")]
    assert "saturated" in texts
    assert "offline" not in texts


def test_a_fair_share_is_a_line_on_online_spus_only() -> None:
    """The others are not to take their share."""
    root = drawn([load(0), load(1, state="offline")])
    assert [len(list(bar.iter(f"{SVG}path"))) for bar in bars_of(root)] == [1, 0]


def test_an_spu_without_capacity_or_load_can_still_be_hovered() -> None:
    """Nothing to see is not nothing there."""
    [bar] = bars_of(drawn([load(0, capacity=0, replicas=0, leaders=0, fair=0)]))
    assert heights(bar) == {"free": 2.0}


def test_any_text_in_a_rack_is_only_text() -> None:
    """A rack's name is the producer's; it must not become a script."""
    evil = '</title><script>alert("1")</script>\x00\x1b'
    assert list(drawn([load(0, evil)]).iter(f"{SVG}script")) == []


def test_a_picture_and_its_style_need_nothing_from_elsewhere() -> None:
    """The page loads nothing from other hosts."""
    style = Path(app.__file__).parent / "static/plot.css"
    text = bars([load(0)]) + style.read_text("utf-8")
    assert "<link" not in text
    assert "src=" not in text
    assert text.count("http") == 1  # SVG's own name
    assert "prefers-color-scheme:dark" in text


def test_the_same_state_gives_the_same_picture() -> None:
    """The page is not drawn again for nothing."""
    loads = [load(number, "ab"[number % 2]) for number in range(30)]
    assert bars(loads) == bars(list(reversed(loads)))
