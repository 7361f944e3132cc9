"""`spu-assigner lint`: every fault at its line and field, codes, forms and exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import Constraints, SpreadLevel, Taint, TaintEffect
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
from spu_assigner.core.base.limits import MANUAL_FILE_SIZE_MAX
from spu_assigner.schemas.errors import LineError, LineFault
from spu_assigner.schemas.json_lines.lines import event_from_json, event_to_json
from spu_assigner.stream.cli import cli
from spu_assigner.stream.client.assignment_file import AssignmentFileError, read_assignment
from spu_assigner.stream.client.lint import event_file
from spu_assigner.stream.client.lint.event_file import EventLinter
from spu_assigner.stream.client.lint.findings import FINDINGS_MAX, LintReport
from spu_assigner.stream.client.lint.replica_list_file import lint_lists
from spu_assigner.stream.client.lint.rules import describe, name_of, rule_of, rules
from support.events.builders import Events
from support.events.poisons import FILES, File
from support.project.case_share import share_of

PACKAGE = Path(event_file.__file__).parent
PAGE = (Path(__file__).parents[5] / "docs" / "lint.md").read_text(encoding="utf-8")


def call(*arguments: str | Path, given: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["lint", *map(str, arguments)], input=given)


def text_of(*events: Event | dict[str, Any] | str) -> str:
    """A file of these lines."""
    lines = [
        each
        if isinstance(each, str)
        else json.dumps(each)
        if isinstance(each, dict)
        else event_to_json(each)
        for each in events
    ]
    return "".join(f"{line}\n" for line in lines)


def linted(*events: Event | dict[str, Any] | str, whole: bool | None = None) -> LintReport:
    linter = EventLinter("file", default_policy=Policy.BALANCED, whole=whole)
    for number, line in enumerate(text_of(*events).encode().splitlines(), start=1):
        linter.take(number, line)
    return linter.result()


def found(report: LintReport) -> list[tuple[int, str, str]]:
    """Line, code and field of each."""
    return [(each.line, each.rule.code, each.field) for each in report.findings]


def reported(*events: Event | dict[str, Any] | str, whole: bool | None = None) -> list[Any]:
    return found(linted(*events, whole=whole))


def lists(text: str, **given: Any) -> LintReport:
    return lint_lists("file", text.encode(), **{"is_link": False, "joined": None, **given})


# Every fault at once.

GOOD: Final = {
    "create": {
        "type": "topic_create",
        "partitions": 2,
        "replication_factor": 2,
        "policy": "kafka",
        "start_index": 1,
        "shift": 1,
        "validate_only": False,
    },
    "join": {"type": "spu_joined", "rack": "a", "cores": 2, "capacity": 9, "labels": {"x": "y"}},
}
FAULTS: Final[dict[str, list[tuple[str, Any, str]]]] = {  # field, value, code
    "create": [
        ("partitions", 0, "E201"),
        ("partitions", "x", "E108"),
        ("replication_factor", 33, "E202"),
        ("replication_factor", 1.5, "E108"),
        ("start_index", -1, "E203"),
        ("shift", -1, "E204"),
        ("validate_only", 1, "E108"),
        ("policy", "best", "E108"),
        ("topic", "a b", "E109"),
        ("topic", 7, "E108"),
        ("event_id", "", "E109"),
        ("partitons", 3, "E106"),
    ],
    "join": [
        ("spu_id", 2**31, "E206"),
        ("cores", 0, "E207"),
        ("capacity", -1, "E208"),
        ("rack", "", "E209"),
        ("rack", 1, "E108"),
        ("labels", 1, "E108"),
        ("cluster_id", "a/b", "E109"),
        ("event_id", 5, "E108"),
        ("core", 3, "E106"),
    ],
}
UNREADABLE: Final = ("E1",)  # a line with such a fault is not decided on


@st.composite
def seeded(draw: st.DrawFn) -> tuple[list[str], set[tuple[int, str, str]]]:
    """A good file with faults on some lines, and what they are: line, code, field."""
    lines = [event_to_json(event) for event in Events("c").joins(*range(4), rack="a")]
    faults = set()
    for number in range(len(lines) + 1, len(lines) + draw(st.integers(1, 8)) + 1):
        kind = draw(st.sampled_from(["create", "join"]))
        members: dict[str, Any] = {"event_id": f"x{number}", "cluster_id": "c", **GOOD[kind]}
        members |= {"topic": f"t{number}"} if kind == "create" else {"spu_id": number}
        wrong = draw(
            st.lists(st.sampled_from(FAULTS[kind]), max_size=4, unique_by=lambda fault: fault[0])
        )
        if any(code.startswith(UNREADABLE) for _, _, code in wrong):
            wrong = [fault for fault in wrong if fault[2].startswith(UNREADABLE)]
        for field, value, code in wrong:
            members[field] = value
            faults.add((number, code, field))
        lines.append(json.dumps(members))
    return lines, faults


@settings(max_examples=share_of(300), deadline=None)
@given(file=seeded())
def test_every_seeded_fault_is_found_at_its_line_and_field_at_once(
    file: tuple[list[str], set[tuple[int, str, str]]],
) -> None:
    """Who corrects a file runs the linter twice: to see the faults, and to see none."""
    lines, faults = file
    report = linted(*lines)
    errors = [each for each in report.findings if each.rule.is_error]
    assert {(each.line, each.rule.code, each.field) for each in errors} == faults
    assert len(errors) == report.errors == len(faults)
    for each in errors:
        assert each.column is not None
        assert lines[each.line - 1][each.column - 1 :].startswith(f'"{each.field}"')


def test_every_wrong_label_and_number_is_reported() -> None:
    """Also where they lie deeper."""
    line = (
        text_of(Events().join())
        .strip()
        .replace('"capacity":null', '"capacity":1e999,"labels":{"a":1,"b":"c","a.d":2}')
    )
    assert reported(line) == [
        (1, "E108", "capacity"),
        (1, "E108", "labels.a"),
        (1, "E108", "labels.a.d"),
    ]
    places = [each.column for each in linted(line).findings]
    assert [line[place - 1 :][:3] for place in places if place] == ["1e9", '"a"', '"a.']


@pytest.mark.parametrize(
    ("line", "code", "column"),
    [
        ("nothing", "E101", 1),
        ('{"type":', "E101", 9),
        ("[]", "E101", 1),
        ("{}", "E105", 1),
        ('{"type":"spu_gone"}', "E104", 2),
        ("[" * 100_000, "E103", 1),
        ('{"x":' + "1" * 5000 + "}", "E105", 1),
    ],
)
def test_an_unreadable_line_is_reported_with_its_column(line: str, code: str, column: int) -> None:
    """An editor goes there."""
    finding = linted(line).findings[0]
    assert (finding.rule.code, finding.column) == (code, column)


def test_a_column_counts_characters_not_bytes() -> None:
    """As editors do."""
    assert linted('{"ä":1,"type":"x"}').findings[0].column == 8
    linter = EventLinter("file", default_policy=Policy.BALANCED)
    linter.take(1, '{"ä":"'.encode() + b"\xff")
    assert linter.result().findings[0].column == 7


# What the core refuses.


def test_a_message_beside_its_field_is_a_sentence() -> None:
    """As "shift: found for policy" is none."""
    report = linted(Events().create("t", 0, shift=1))
    assert [each.message for each in report.findings] == [
        "found 0; expected 1 to 100000",
        "shift is for policy 'kafka' with a start_index only; leave it out",
    ]
    [absent] = linted('{"type":"spu_left","event_id":"e","cluster_id":"c"}').findings
    assert absent.message == "absent; a spu_left needs event_id, cluster_id, spu_id"


def test_what_depends_on_earlier_lines_names_the_line() -> None:
    """The fault may be there."""
    events = Events()
    report = linted(
        events.join(0),
        events.create("t", replication_factor=2),
        events.grow("t", 3),
        events.create("u"),
        events.create("u"),
        events.delete("u"),
        events.delete("u"),
        events.grow("u", 0),
        events.leave(3),
    )
    assert [(line, code) for line, code, _ in found(report)] == [
        (2, "E405"),
        (3, "E402"),
        (5, "E401"),
        (7, "E402"),
        (8, "E402"),
        (8, "E201"),
        (9, "E404"),
    ]
    messages = [each.message for each in report.findings]
    assert messages[1].endswith("(line 2 requests it and is rejected)")
    assert messages[2].endswith("(line 4 requests it)")
    assert messages[3].endswith("(line 6 deletes it)")


# Clusters whose beginning is not in the file.


def test_nothing_is_said_of_what_a_file_cannot_know() -> None:
    """The SPUs and topics of a running cluster are not in it."""
    events = Events()
    lines = [
        events.create("t", 3, 3),
        events.grow("u", 9),
        events.delete("v"),
        events.leave(4),
        events.manual("w", [7, 8]),
        events.create("x", 0),
        events.leave(-1),
    ]
    assert reported(*GROWS, whole=False) == [(4, "E201", "partitions")]
    report = linted(*lines)
    assert found(report) == [(6, "E201", "partitions"), (7, "E206", "spu_id")]
    assert report.unchecked == ["c1"]
    assert {line for line, _, _ in reported(*lines, whole=True)} == {1, 2, 3, 4, 5, 6, 7}


# Each kind of fault.

E: Final = Events()
RACKED: Final = [*E.joins(0, 1, rack="a"), E.join(2)]
SAME_ROWS: Final = [{"id": 0, "replicas": [0, 1]}, {"id": 1, "replicas": [1, 0]}]
GROWS: Final = [E.join(0), E.create("t", 5), E.grow("t", 3), E.grow("t", 0)]
SHORT: Final = [
    *E.joins(0, 1),
    E.create("t", 1, 3, on_shortage=OnShortage.WAIT),
    E.create("u", 1, 2),
    E.leave(1, mode=LeaveMode.DECOMMISSION),
]
WHOLE_JOIN: Final = E.join(0, rack="a", cores=4, capacity=50, labels={"x": "y"})
BARE_JOIN: Final = {"type": "spu_joined", "event_id": "e2", "cluster_id": "c1", "spu_id": 0}
CREATE: Final = {"type": "topic_create", "event_id": "x", "cluster_id": "c1", "topic": "t"}
ON_SSD: Final = Constraints(require=("tier = ssd",))
APART: Final = Constraints(apart_from=("gone",))
EVERY_ZONE: Final = Constraints(spread=(SpreadLevel("zone", min=1),))
NEVER: Final = Constraints(require=("zone", "tier in (ssd)"), forbid=("tier = ssd",))
BROKEN_LISTS: Final = [
    {"id": 0, "replicas": [0, 0, 7]},
    {"id": 2, "replicas": [1]},
    {"id": 3, "replicas": []},
    {"id": 4, "replicas": [0, -1, 9]},
    {"id": 5},
]
CASES: Final[dict[str, tuple[list[Any], list[tuple[int, str, str]]]]] = {
    "a line with absent, unknown, repeated and wrong fields": (
        [
            '{"type":"topic_grow","event_id":"e","topic":"a b","partitions":1,"x":NaN,'
            '"partitions":2.5}'
        ],
        [
            (1, "E105", "cluster_id"),
            (1, "E109", "topic"),
            (1, "E106", "x"),
            (1, "E108", "x"),
            (1, "E107", "partitions"),
            (1, "E108", "partitions"),
        ],
    ),
    "all faults of manual lists, where the core names the first": (
        [*E.joins(0, 1), E.create("t", replicas={"partitions": BROKEN_LISTS})],
        [
            (3, "E305", "replicas.partitions[0].replicas[1]"),
            (3, "E307", "replicas.partitions[0].replicas[2]"),
            (3, "E302", "replicas.partitions[1].id"),
            (3, "E304", "replicas.partitions[1].replicas"),
            (3, "E303", "replicas.partitions[2].replicas"),
            (3, "E306", "replicas.partitions[3].replicas[1]"),
            (3, "E307", "replicas.partitions[3].replicas[2]"),
            (3, "E301", "replicas.partitions[4]"),
        ],
    ),
    "lists of a topic that exists: the core would name their faults next": (
        [E.join(0), E.create("t"), E.manual("t", [0, 0])],
        [(3, "E401", "topic"), (3, "E305", "replicas[0].replicas[1]")],
    ),
    "lists that name SPUs that are leaving or full": (
        [
            E.join(0),
            E.join(1, capacity=0),
            E.manual("a", [0]),
            E.leave(0, mode=LeaveMode.DECOMMISSION),
            E.manual("b", [1, 0], [0, 1]),
        ],
        [
            (4, "W505", "spu_id"),
            (5, "E309", "replicas[0].replicas[0]"),
            (5, "E308", "replicas[0].replicas[1]"),
            (5, "E308", "replicas[1].replicas[0]"),
            (5, "E309", "replicas[1].replicas[1]"),
        ],
    ),
    "a grow to no more than there are": (
        GROWS,
        [(3, "E411", "partitions"), (4, "E201", "partitions")],
    ),
    "an event id with other content is an error, a copy a warning": (
        [
            E.join(0, event_id="j", occurred_at=1),
            E.join(0, event_id="j", occurred_at=2),
            E.join(1, event_id="j"),
            Events("d").join(0, event_id="j"),
        ],
        [(2, "W501", "event_id"), (3, "E410", "event_id")],
    ),
    "an event id that is no longer remembered": (
        [
            E.join(0, event_id="first"),
            *(E.join(0) for _ in range(300)),
            E.join(1, event_id="first"),
        ],
        [(302, "W502", "event_id")],
    ),
    "what a file for a running cluster says itself: no topic twice, none that was deleted": (
        [
            E.create("t"),
            E.create("t"),
            E.delete("t"),
            E.delete("t"),
            E.grow("t", 4),
            E.create("t"),
            E.create("u", 0),
            E.create("u"),
        ],
        [
            (2, "W509", "topic"),
            (4, "W510", "topic"),
            (5, "W510", "topic"),
            (7, "E201", "partitions"),
        ],
    ),
    "racks on most SPUs: one was forgotten": (RACKED, [(3, "W503", "rack")]),
    "racks on few SPUs": (
        [*RACKED, *E.joins(3, 4)],
        [(1, "W503", "rack"), (2, "W503", "rack")],
    ),
    "racks on all SPUs in the end": ([*RACKED, E.join(2, rack="b")], []),
    "a join that leaves out what was given": (
        [WHOLE_JOIN, BARE_JOIN],
        [(2, "W506", field) for field in ("rack", "cores", "capacity", "labels")],
    ),
    "a join that leaves out a capacity of 0": (
        [E.join(5, capacity=0), {**BARE_JOIN, "spu_id": 5}],
        [(2, "W506", "capacity")],
    ),
    "a join that removes what was given": (
        [WHOLE_JOIN, {**BARE_JOIN, "rack": None, "capacity": None, "labels": None, "cores": 1}],
        [],
    ),
    "what still waits or leaves at the end": (SHORT, [(3, "W504", "topic"), (5, "W505", "spu_id")]),
    "what waited and was served": ([*SHORT, *E.joins(2, 3, 4)], []),
    "counts beside manual lists, where they differ": (
        [
            *E.joins(0, 1),
            E.create("t", 3, 3, replicas=SAME_ROWS),
            E.create("u", 2, 2, replicas=SAME_ROWS),
        ],
        [(3, "W507", "partitions"), (3, "W507", "replication_factor")],
    ),
    "names that are one to Kafka": (
        [E.join(0), E.create("a.b"), E.create("a_b")],
        [(3, "E418", "topic")],
    ),
    "such a name after a delete": (
        [E.join(0), E.create("a.b"), E.delete("a.b"), E.create("a_b")],
        [],
    ),
    "what no message can hold": (
        [
            E.join(0, occurred_at=2**63),
            E.create("t", 2**40, replicas=[{"id": n, "replicas": [0]} for n in range(2)]),
            E.join(1, occurred_at=2**63 - 1),
        ],
        [(1, "W511", "occurred_at"), (2, "W507", "partitions"), (2, "W511", "partitions")],
    ),
    "taints and rules that are none, where they are": (
        [
            E.join(1),
            {**BARE_JOIN, "taints": [{"key": "", "value": "", "effect": "evict"}]},
            {**BARE_JOIN, "taints": [{"key": "k", "value": "", "effect": "NoExecute"}]},
            {**CREATE, "constraints": {"require": ["a", "b c"]}},
            {**CREATE, "constraints": {"require": ["a", 7], "x": 1, "spread": [{}]}},
        ],
        [
            (2, "E218", "taints[0].key"),
            (3, "E108", "taints[0].effect"),
            (4, "E219", "constraints.require[1]"),
            (5, "E106", "constraints"),
            (5, "E108", "constraints.require[1]"),
            (5, "E105", "constraints.spread[0]"),
        ],
    ),
    "constraints of another policy": (
        [E.join(0), E.create("t", policy=Policy.KAFKA, constraints=ON_SSD)],
        [(2, "E219", "constraints")],
    ),
    "constraints that name a topic that is not there": (
        [
            E.join(0, labels={"tier": "ssd"}),
            E.create("t", constraints=APART),
            E.create("u"),
            E.constraints("u", APART),
        ],
        [(2, "E415", "constraints.apart_from"), (4, "E415", "constraints.apart_from")],
    ),
    "a grow that constraints do not permit": (
        [
            E.join(0, labels={"tier": "ssd"}, capacity=9),
            E.create("t", constraints=ON_SSD),
            E.join(0),
            E.grow("t", 2),
        ],
        [(3, "W506", "labels"), (4, "E414", "constraints")],
    ),
    "constraints that contradict each other, whatever the cluster has": (
        [
            E.create("t", constraints=NEVER),
            E.constraints("u", NEVER),
        ],
        [(1, "E220", "constraints.forbid[0]"), (2, "W515", "constraints.forbid[0]")],
    ),
    "a level that demands more replicas than lists have": (
        [
            *(E.join(spu_id, labels={"zone": f"z{spu_id}"}) for spu_id in range(3)),
            E.create("t", 1, 2, constraints=EVERY_ZONE),
            E.create("t", 1, 2),
            E.constraints("t", EVERY_ZONE),
            E.create("u", 1, 3, constraints=EVERY_ZONE),
            E.constraints("u", Constraints(spread=(SpreadLevel("zone", min=4),))),
        ],
        [
            (4, "E414", "constraints"),
            (6, "W515", "constraints.spread[0]"),
            (8, "W515", "constraints.spread[0]"),
        ],
    ),
    "constraints that contradict those of the topics that they name": (
        [
            E.join(0),
            E.create("u"),
            E.create("v", constraints=Constraints(together_with=("u",))),
            E.constraints("v", Constraints(apart_from=("u",), together_with=("u",))),
            E.constraints("v", Constraints(together_with=("u",))),
            E.create("w"),
            E.constraints("w", Constraints(apart_from=("u",), together_with=("v",))),
        ],
        [
            (4, "W515", "constraints.together_with[0]"),
            (7, "W515", "constraints.together_with"),
        ],
    ),
    "a join that leaves out taints": (
        [E.join(0, taints=(Taint("k", "v", TaintEffect.EVICT),)), BARE_JOIN],
        [(2, "W506", "taints")],
    ),
    "the demand of an adopted topic, and its lists": (
        [
            E.join(0, resources={"disk": 5}),
            E.adopt("t", [0, 0], [7], demand={"disk": -1}),
            E.adopt("u", [0], demand={"tape": 1}),
            E.adopt("v", [0], demand={"disk": 9}),
        ],
        [
            (2, "E305", "replicas[0][1]"),
            (2, "E307", "replicas[1][0]"),
            (2, "E215", "demand.disk"),
            (3, "E413", "demand"),
        ],
    ),
    "what leaders need, by the name of its field": (
        [
            E.join(0, resources={"disk": 5}),
            E.create("t", leader_demand={"disk": -1}),
            E.create("u", demand={"disk": 1}, leader_demand={"tape": 1}),
        ],
        [(2, "E215", "leader_demand.disk"), (3, "E413", "leader_demand")],
    ),
    "a file without events": (["", "  "], [(1, "W512", "")]),
    "a file without events, but with a fault": (["nothing"], [(1, "E101", "")]),
}


@pytest.mark.parametrize("case", CASES)
def test_exactly_these_faults_are_found(case: str) -> None:
    """By line, code and field."""
    lines, expected = CASES[case]
    assert reported(*lines) == expected


# Files of replica lists.


def test_all_faults_of_a_file_of_lists_are_reported_with_line_and_column() -> None:
    """As an operator wrote it, over several lines."""
    report = lists(
        '{"partitions": [\n'
        '  {"id": 0, "replicas": [0, 1]},\n'
        '  {"id": 1, "replicas": [2, 2, 1]},\n'
        '  {"id": 7, "replicas": []},\n'
        '  {"id": 8, "replicas": [NaN, 1], "id": 8}\n'
        "]}\n"
    )
    assert [(each.line, each.column, each.rule.code, each.field) for each in report.findings] == [
        (3, 13, "E304", "partitions[1].replicas"),
        (3, 29, "E305", "partitions[1].replicas[1]"),
        (4, 4, "E302", "partitions[2].id"),
        (4, 13, "E303", "partitions[2].replicas"),
        (5, 26, "E108", "partitions[3].replicas[0]"),
        (5, 26, "E306", "partitions[3].replicas[0]"),
        (5, 35, "E107", "partitions[3].id"),
    ]
    assert report.lists == 4


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("[\n{]", "E101", (2, 2)),
        ("", "E101", (1, 1)),
        ("7", "E301", (1, 1)),
        ('{"lists": []}', "E301", (1, 1)),
        ("[]", "E201", (1, 1)),
        ("[" * 100_000, "E103", (1, 1)),
        (" " * (MANUAL_FILE_SIZE_MAX + 1), "E102", (1, None)),
        ('[{"type": "spu_joined"}]', "E101", (1, 1)),
    ],
    ids=range(8),
)
def test_a_file_without_lists_is_one_fault(
    text: str, code: str, place: tuple[int, int | None]
) -> None:
    """The first reason is reason enough."""
    [finding] = lists(text).findings
    assert (finding.rule.code, (finding.line, finding.column)) == (code, place)


REASSIGNMENT = (
    '{"version":1,"partitions":[{"topic":"t","partition":3,"replicas":[4,1,1],"log_dirs":["any"]}]}'
)


@pytest.mark.parametrize("text", [REASSIGNMENT, json.dumps(json.loads(REASSIGNMENT), indent=2)])
@pytest.mark.parametrize("options", [(), ("--kind", "lists")])
def test_a_reassignment_of_kafkas_is_called_so(text: str, options: tuple[str, ...]) -> None:
    """Also what is wrong with its lists; the command that takes it says that late."""
    result = call(*options, "-", given=text.encode())
    assert result.exit_code == 1
    kind, duplicate, _ = result.stdout.splitlines()
    assert kind.startswith("<stdin>:1:1: E101 the file is a reassignment in Kafka's form, ")
    assert kind.endswith("; `kafka-reassign-partitions --reassignment-json-file` takes it")
    assert "E305 partitions[0].replicas[2]: an SPU that this list names before" in duplicate


def test_a_reassignment_is_neither_an_event_nor_a_manual_assignment(tmp_path: Path) -> None:
    """Wherever it is given instead of one."""
    (finding,) = linted(REASSIGNMENT).findings
    assert finding.message.startswith("the line is a reassignment in Kafka's form, ")
    with pytest.raises(LineError, match="is a reassignment in Kafka's form"):
        event_from_json(REASSIGNMENT)
    file = tmp_path / "moves.json"
    file.write_text(REASSIGNMENT, "utf-8")
    with pytest.raises(AssignmentFileError, match="is a reassignment in Kafka's form"):
        read_assignment(file)


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("[[4,1,1],[4,-1]]", ["E301", "E301"]),
        ('{"more":1,"partitions":[{"id":0,"replicas":[4,1,1]}]}', ["E301", "E305"]),
        ('[{"replicas":[4,1,1]},{"id":1,"replicas":[4,1,1]}]', ["E301", "E305"]),
        ('[{"id":1,"replicas":[4,1,1]}]', ["E302", "E305"]),
    ],
)
def test_what_has_the_form_is_looked_at_beside_what_has_not(text: str, codes: list[str]) -> None:
    """Faults of an entry in another form show once its form is right."""
    assert [finding.rule.code for finding in lists(text).findings] == codes


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a b", ": character 2 is ' '"),
        ("straße", ": character 5 is 'ß'"),
        ("a/b", ": character 2 is '/'"),
        ("x" * 250, ": it has 250 characters"),
        ("..", "'.' or '..'"),
    ],
)
def test_an_illegal_name_says_which_character(name: str, says: str) -> None:
    """Of a topic and of a cluster."""
    for field in ("topic", "cluster_id"):
        line = {"type": "topic_delete", "event_id": "e", "cluster_id": "c", "topic": "t"}
        (finding,) = linted({**line, field: name}).findings
        assert (finding.rule.code, finding.field) == ("E109", field)
        assert finding.message.endswith(says)


@pytest.mark.parametrize("poison", FILES, ids=lambda poison: poison.name)
def test_a_poisoned_file_of_lists_is_an_error(tmp_path: Path, poison: File) -> None:
    """What `produce` refuses, lint does not pass."""
    path = poison.make(tmp_path)
    with pytest.raises(AssignmentFileError) as refusal:
        read_assignment(path)
    if "not a regular file" in str(refusal.value):
        return  # A pipe may be linted, as a shell's <(…) is one.
    result = call("--strict", "--kind", "lists", path)
    assert result.exit_code in {1, 2}
    assert (result.exit_code == 2) == bool(result.stderr)


def test_lists_are_held_against_the_spus_of_the_event_files(tmp_path: Path) -> None:
    """Whatever the order of the arguments."""
    events, assignment = tmp_path / "events.jsonl", tmp_path / "lists.json"
    events.write_text(text_of(*Events().joins(0, 1)), encoding="utf-8")
    assignment.write_text('[{"id": 0, "replicas": [0, 5]}]', encoding="utf-8")
    assert call(assignment).exit_code == 0
    result = call("--strict", assignment, events)
    assert result.exit_code == 1
    assert f"{assignment}:1:28: W514 [0].replicas[1]: SPU 5 joins in none" in result.stdout


def test_a_link_to_lists_is_reported(tmp_path: Path) -> None:
    """`produce` does not follow it."""
    assignment, link = tmp_path / "lists.json", tmp_path / "link"
    assignment.write_text('[{"id": 0, "replicas": [0]}]', encoding="utf-8")
    link.symlink_to(assignment)
    assert " W513 " in call(link).stdout
    assert call(assignment).stdout == "nothing found: 1 list, 1 file\n"


# The command.


def test_faults_are_lines_for_people_and_set_the_status(tmp_path: Path) -> None:
    """Editors and CI read them."""
    file = tmp_path / "events.jsonl"
    events = Events()
    file.write_text(text_of(events.join(0), events.create("t", 0)), encoding="utf-8")
    result = call(file)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{file}:2:70: E201 partitions: found 0; expected 1 to 100000",
        "1 error, 0 warnings: 2 events, 1 file",
    ]


def test_a_clean_file_is_status_0_and_says_what_was_seen() -> None:
    """Silence would not distinguish a clean file from one that was not read."""
    result = call("-", given=text_of(*Events().joins(0, 1)).encode())
    assert (result.exit_code, result.stdout) == (0, "nothing found: 2 events, 1 file\n")


def test_warnings_count_only_if_strict() -> None:
    """In CI one may want none."""
    given = text_of(Events().join(0), Events().join(0)).encode()
    assert call("-", given=given).exit_code == 0
    result = call("--strict", "-", given=given)
    assert result.exit_code == 1
    assert result.stdout.startswith("<stdin>:2:22: W501 event_id: the same event as on line 1\n")


def test_json_is_one_object_a_fault_and_a_summary() -> None:
    """For programs: names and order are fixed."""
    result = call("--output", "json", "-", given=text_of(Events().create("t", 0)).encode())
    fault, summary = map(json.loads, result.stdout.splitlines())
    assert fault == {
        "type": "fault",
        "file": "<stdin>",
        "line": 1,
        "column": 70,
        "code": "E201",
        "name": "invalid-partitions",
        "severity": "error",
        "cluster_id": "c1",
        "field": "partitions",
        "message": "found 0; expected 1 to 100000",
        "mend": fault["mend"],
    }
    assert summary == {
        "type": "summary",
        "files": 1,
        "events": 1,
        "lists": 0,
        "errors": 1,
        "warnings": 0,
        "not_shown": 0,
        "unchecked": {"<stdin>": ["c1"]},
    }


def test_what_is_not_checked_is_reported_with_the_option_that_checks_it() -> None:
    """A file for a running cluster is the usual one for `produce`."""
    given = text_of(Events().create("t", 1, 3)).encode()
    result = call("-", given=given)
    assert result.exit_code == 0
    assert "note: no SPU joins c1:" in result.stdout
    assert "--whole" in result.stdout
    assert call("--whole", "-", given=given).exit_code == 1
    assert "note:" not in call("--part", "-", given=given).stdout


def test_a_file_that_cannot_be_read_is_status_2_and_the_others_are_linted(tmp_path: Path) -> None:
    """All faults of all files at once."""
    file = tmp_path / "events.jsonl"
    file.write_text("nothing\n", encoding="utf-8")
    result = call(tmp_path / "none.jsonl", file, tmp_path)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 2
    assert f"{file}:1:1: E101" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing argument 'FILE...'"),
        (["--explain", "E999"], "'E999' is no code"),
        (["--output", "xml", "-"], "'xml' is not one of 'text', 'json'"),
    ],
)
def test_wrong_usage_is_status_2(arguments: list[str], said: str) -> None:
    """In one line."""
    result = call(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_code_is_explained_by_code_or_name() -> None:
    """What it means and what to do."""
    by_code = call("--explain", "e201")
    assert by_code.exit_code == 0
    assert by_code.stdout.startswith("E201 invalid-partitions: ")
    assert call("--explain", "invalid-partitions").stdout == by_code.stdout


def test_the_kind_of_a_file_can_be_given() -> None:
    """Where a file begins as the other kind does."""
    event = b'{"partitions":2,"type":"topic_grow","event_id":"e","cluster_id":"c","topic":"t"}\n'
    assert "1 event," in call("-", given=event).stdout
    assert "E301" in call("--kind", "lists", "-", given=event).stdout
    assert "E101" in call("--kind", "events", "-", given=b"[]\n").stdout
    assert "E201" in call("-", given=b"\xef\xbb\xbf\n []\n").stdout


def test_control_characters_do_not_reach_the_terminal() -> None:
    """A name may hold anything."""
    result = call("-", given=b'{"type":"topic_grow","\\u001b[31m":1}\n')
    assert "\x1b" not in result.stdout


def test_a_file_of_faults_is_reported_in_bounded_memory() -> None:
    """The first are shown, and all are counted."""
    linter = EventLinter("file", default_policy=Policy.BALANCED)
    for number in range(1, FINDINGS_MAX + 6):
        linter.take(number, b"x")
    report = linter.result()
    assert (len(report.findings), report.errors) == (FINDINGS_MAX, FINDINGS_MAX + 5)


def test_it_loads_neither_spark_nor_avro_nor_kafka_and_starts_no_thread() -> None:
    """A linter is run in hooks and editors."""
    code = (
        "import os, sys, runpy\n"
        "sys.argv = ['spu-assigner', 'lint', '-']\n"
        "try:\n"
        "    runpy.run_module('spu_assigner.stream.cli', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0, end.code\n"
        "heavy = {'pyspark', 'pandas', 'pyarrow', 'fastavro', 'confluent_kafka', 'rich'}\n"
        "print(sorted((heavy | {'numpy.ma'}) & set(sys.modules)))\n"
        "print(len(os.listdir('/proc/self/task')), 'thread')\n"
    )
    events = Events()
    given = text_of(*events.joins(0, 1), events.create("t", 2, 2), events.manual("u", [0, 1]))
    environ = {name: value for name, value in os.environ.items() if "THREADS" not in name}
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=given.encode(),
        capture_output=True,
        check=True,
        env=environ,
    )
    said = [b"nothing found: 4 events, 1 file", b"[]", b"1 thread"]
    assert done.stdout.splitlines() == said


# The codes.


def test_every_refusal_and_every_fault_of_a_line_has_a_code_of_its_own() -> None:
    """A new one of the core is a new one here."""
    found = [rules()[name_of(each)] for each in (*Code, *LineFault)]
    assert len({rule.code for rule in found}) == len(found)
    assert all(rule.is_error for rule in found)
    assert all(rule_of(rule.code) is rule_of(rule.name) is rule for rule in found)


def test_every_rule_is_reported_somewhere() -> None:
    """The table and the checks are apart."""
    code = "".join(path.read_text("utf-8") for path in PACKAGE.glob("*.py"))
    of_core = {*map(name_of, (*Code, *LineFault))}
    assert [name for name in rules() if name not in of_core and f'"{name}"' not in code] == []


def test_the_docs_list_the_codes() -> None:
    """One table, made by the code."""
    assert PAGE.partition("<!-- faults -->\n")[2].partition("\n<!-- /faults -->")[0] == describe()
