"""`spu-assigner whatif`: what it reads, what it prints, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.schemas.json_lines.lines import event_to_json
from spu_assigner.stream.cli import cli
from support.events.builders import Events

ROOT = Path(__file__).parents[5]


def documents(capacity: int = 5) -> list[Event]:
    """The cluster of Fluvio's documents whose small racks may get overwhelmed."""
    events = Events()
    return [
        *events.racks({"a": [0], "b": [1, 2], "c": [3, 4, 5]}, capacity=capacity),
        events.create("t", 6, 3, policy=Policy.FLUVIO),
    ]


def lines_of(events: Sequence[Event]) -> str:
    return "".join(f"{event_to_json(event)}\n" for event in events)


def asked(lines: str, *arguments: str) -> Result:
    of = ["--cluster", "c1", "--events", "-"]
    return CliRunner().invoke(cli, ["whatif", *of, *arguments], input=lines)


def answered(lines: str, *arguments: str) -> dict[str, Any]:
    done = asked(lines, *arguments, "-o", "json")
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_page_shows_what_is_printed() -> None:
    """The documents' example can be tried as it stands."""
    page = (ROOT / "docs" / "whatif.md").read_text(encoding="utf-8")

    def fence(name: str) -> str:
        found = re.search(rf"<!-- {name} -->\n```\n(.*?)```\n<!-- /{name} -->", page, re.DOTALL)
        assert found is not None
        return found[1]

    done = asked(fence("whatif-events"), "--fail", "rack=c")
    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    shown = fence("whatif-answer").partition("\n")[2].replace("events.jsonl", "-")
    assert printed == shown.rstrip("\n")
    assert done.exit_code == 1


def test_a_rack_that_fails_is_reported_as_one_object() -> None:
    """With the numbers of the documents' example."""
    found = answered(lines_of(documents()), "--fail", "rack=c")
    spus, failure = found["failure"].pop("spus"), found.pop("failure")
    assert found.pop("before")["leaders"] == {"partitions": 6, "most": 1, "mean": 1.0}
    named = {"cluster_id": "c1", "source": "-", "fail": "rack=c"}
    assert found == {"format": 1, **named, "sweep": None}
    numbers = ("failed", "racks", "leaders_lost", "under_replicated", "lost")
    assert [failure[name] for name in numbers] == [[3, 4, 5], ["c"], 3, 6, 0]
    assert failure["recreate"] == {
        "replicas": 9,
        "free_slots": 6,
        "without_slot": 3,
        "spus_to_add": 1,
        "added_capacity": 5,
    }
    of_spu = ("rack", "capacity", "leaders_before", "leaders", "replicas", "share")
    assert [spus[2][name] for name in of_spu] == ["b", 5, 1, 3, 3, 0.6]
    assert [each["state"] for each in spus] == ["online"] * 3 + ["failed"] * 3


@pytest.mark.parametrize(
    ("capacity", "fail", "status"),
    [
        (6, "any-1-rack", 0),
        (5, "any-1-rack", 1),  # too few slots
        (5, "rack=a", 0),
        (6, "rack=b,c", 1),  # a partition is lost
        (6, "any-1-spu", 0),
        (6, "spu=0,1,2", 0),
    ],
)
def test_the_exit_status_says_whether_the_failure_is_survived(
    capacity: int, fail: str, status: int
) -> None:
    """Of all cases if all are asked."""
    assert asked(lines_of(documents(capacity)), "--fail", fail).exit_code == status


def test_new_leaders_can_need_more_of_a_resource_than_there_is() -> None:
    """SPUs 0 and 3 are in all lists, and without 1 and 2 they lead twice as many; slots suffice."""
    events, has = Events(), {"cores_milli": 4000, "disk_bytes": 1000}
    need = {"cores_milli": 200, "disk_bytes": 100}
    given = [
        *events.racks({"a": [0], "b": [1, 2], "c": [3]}, capacity=50, resources=has),
        events.create("t", 8, 3, demand=need, leader_demand={"cores_milli": 1000}),
    ]
    lines = lines_of(given)
    assert asked(lines, "--fail", "any-1-spu").exit_code == 0
    found = answered(lines, "--fail", "rack=b")["failure"]
    assert found["resources"] == [
        {
            "resource": "cores_milli",
            "over": [0, 3],
            "needed": 3200,  # 8 followers of 200, and twice 800 of those who are over
            "free": 0,
            "spus_to_add": 1,
            "added_capacity": 4000,
        },
        {
            "resource": "disk_bytes",
            "over": [],
            "needed": 800,
            "free": 400,
            "spus_to_add": 1,
            "added_capacity": 1000,
        },
    ]
    shares = ("dominant_before", "dominant", "dominant_resource")
    assert [found["spus"][0][name] for name in shares] == [0.8, 1.2, "cores_milli"]
    done = asked(lines, "--fail", "any-1-rack")
    assert "over capacity      SPUs 0, 3 of cores_milli\n" in done.stdout
    assert "80.0% → 120.0% cores_milli   cores_milli" in done.stdout


def test_all_cases_are_counted_and_the_worst_is_shown() -> None:
    """Of three racks two hold all that is left of a manual topic."""
    events = Events()
    given = [
        *events.racks({"a": [0, 1], "b": [2, 3], "c": [4, 5]}, capacity=9),
        events.manual("orders", [0, 1], [1, 0], [2, 5], [4, 5], policy=Policy.MANUAL),
    ]
    found = answered(lines_of(given), "--fail", "any-1-rack")
    counts = {"cases": 3, "losing": 2, "over_capacity": 0, "over_resources": 0}
    assert found["sweep"] == {**counts, "failed": [0, 1]}
    done = asked(lines_of(given), "--fail", "any-1-rack")
    assert "3 (any-1-rack): 2 lose partitions, 0 leave replicas without a slot" in done.stdout
    assert "lost               2 partitions: orders/0, orders/1" in done.stdout
    one = answered(lines_of(given), "--fail", "any-1-spu")
    assert (one["sweep"]["cases"], one["sweep"]["losing"]) == (6, 0)


DOCUMENTS = lines_of(documents())
GONE = [Events().join(0, rack="a"), Events(first=9).leave(0)]


@pytest.mark.parametrize(
    ("lines", "arguments", "said"),
    [
        (DOCUMENTS, "rack=z", "no rack 'z' in cluster 'c1'; it has racks 'a', 'b', 'c'"),
        (DOCUMENTS, "spu=3,9", "no SPU 9 in cluster 'c1'; it has SPUs 0, 1, 2, 3, 4, 5"),
        (DOCUMENTS, "spu=x", "'spu=x' is no failure; expected rack=NAME[,…], spu=ID[,…]"),
        (DOCUMENTS, "spu=", "'spu=' is no failure"),
        (DOCUMENTS, "spu=99999999999999999999", "is no failure"),
        (DOCUMENTS, "rack=", "'rack=' is no failure"),
        (DOCUMENTS, "any-2-spus", "any-1-rack or any-1-spu"),
        (DOCUMENTS, "spu=1 --cluster c2", "- has no cluster 'c2'; it has c1"),
        ("", "spu=1", "- has no cluster 'c1'; it has none"),
        ("{}\n", "spu=1", "line 1 of - is not an event: "),
        ('\n{"type":"ring_event"}\n', "spu=1", "line 2 of - is not an event: "),
        # An answer of no case would look like a good one.
        (lines_of(GONE), "any-1-spu", "finds no online SPU in cluster 'c1'; it has 1 that are"),
        (lines_of(GONE), "any-1-rack", "finds no rack with an online SPU in cluster 'c1'; it has"),
        (lines_of(Events().joins(0, 1)), "any-1-rack", "it has no racks: name SPUs with spu="),
    ],
)
def test_what_cannot_be_answered_is_status_2_and_says_what_to_do(
    lines: str, arguments: str, said: str
) -> None:
    """One line, with what was found and what is expected."""
    done = asked(lines, "--fail", *arguments.split())
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
