"""`simulate --check`: every fault with its line, field and code; forms and exit statuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
from spu_assigner.schemas.errors import LineFault
from spu_assigner.schemas.json_lines.lines import event_to_json
from spu_assigner.stream.cli import cli
from spu_assigner.stream.client.check import ADVICE, FAULTS_MAX, WARNINGS, CheckFault, FileCheck
from spu_assigner.stream.client.produce_options import AssignmentFileError, read_assignment
from support.events.builders import Events
from support.project.case_share import share_of

PAGE = (Path(__file__).parents[4] / "docs" / "check.md").read_text(encoding="utf-8")


def call(*arguments: str | Path, given: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["simulate", "--check", *map(str, arguments)], input=given)


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


def checked(*events: Event | dict[str, Any] | str) -> list[CheckFault]:
    check = FileCheck(Policy.BALANCED)
    for number, line in enumerate(text_of(*events).encode().splitlines(), start=1):
        check.take(number, line)
    return check.faults()


def reported(*events: Event | dict[str, Any] | str) -> list[tuple[int, str, str]]:
    """Line, code and field of each."""
    return [(each.line, each.code, each.field) for each in checked(*events)]


# Every fault at once.

GOOD: Final = {
    "create": {
        "type": "topic_create",
        "partitions": 2,
        "replication_factor": 2,
        "policy": "kafka",
        "start_index": 1,
        "validate_only": False,
    },
    "join": {"type": "spu_joined", "rack": "a", "cores": 2, "capacity": 9, "labels": {"x": "y"}},
}
FAULTS: Final[dict[str, list[tuple[str, Any, str]]]] = {  # field, value, code
    "create": [
        ("partitions", 0, "INVALID_PARTITIONS"),
        ("partitions", "x", "WRONG_VALUE"),
        ("replication_factor", 33, "INVALID_REPLICATION_FACTOR"),
        ("replication_factor", 1.5, "WRONG_VALUE"),
        ("start_index", -1, "INVALID_START_INDEX"),
        ("validate_only", 1, "WRONG_VALUE"),
        ("policy", "best", "WRONG_VALUE"),
        ("topic", "a b", "ILLEGAL_NAME"),
        ("topic", 7, "WRONG_VALUE"),
        ("event_id", "", "ILLEGAL_NAME"),
        ("partitons", 3, "UNKNOWN_FIELD"),
    ],
    "join": [
        ("spu_id", 2**31, "INVALID_SPU_ID"),
        ("cores", 0, "INVALID_CORES"),
        ("capacity", -1, "INVALID_CAPACITY"),
        ("rack", "", "INVALID_RACK"),
        ("rack", 1, "WRONG_VALUE"),
        ("labels", 1, "WRONG_VALUE"),
        ("cluster_id", "a/b", "ILLEGAL_NAME"),
        ("event_id", 5, "WRONG_VALUE"),
        ("core", 3, "UNKNOWN_FIELD"),
    ],
}
UNREADABLE: Final = {fault.name for fault in LineFault}  # a line with one is not decided on


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
        if any(code in UNREADABLE for _, _, code in wrong):
            wrong = [fault for fault in wrong if fault[2] in UNREADABLE]
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
    """Whoever corrects a file checks it twice: to see the faults, and to see none."""
    lines, faults = file
    errors = [each for each in reported(*lines) if each[1] not in WARNINGS]
    assert sorted(errors) == sorted(faults)


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
    assert reported(*lines) == [(6, "INVALID_PARTITIONS", "partitions")]
    assert {line for line, _, _ in reported(*lines, events.join(0))} == {1, 2, 3, 4, 5, 6, 7}


# Each kind of fault.

E: Final = Events()
SHORT: Final = [
    *E.joins(0, 1),
    E.create("t", 1, 3, on_shortage=OnShortage.WAIT),
    E.create("u", 1, 2),
    E.leave(1, mode=LeaveMode.DECOMMISSION),
]
BARE_JOIN: Final = {"type": "spu_joined", "event_id": "e2", "cluster_id": "c1", "spu_id": 0}
CREATE: Final = {"type": "topic_create", "event_id": "x", "cluster_id": "c1", "topic": "t"}
ON_SSD: Final = Constraints(require=("tier = ssd",))
APART: Final = Constraints(apart_from=("gone",))
CASES: Final[dict[str, tuple[list[Any], list[tuple[int, str, str]]]]] = {
    "a line that is no event": (
        ["nothing", "[]", "{}", '{"type":"spu_gone"}', "[" * 100_000],
        [
            (1, "NO_JSON", ""),
            (2, "NO_JSON", ""),
            (3, "ABSENT_FIELD", "type"),
            (4, "UNKNOWN_TYPE", "type"),
            (5, "TOO_DEEP", ""),
        ],
    ),
    "a line with absent, unknown, repeated and wrong fields": (
        [
            '{"type":"topic_grow","event_id":"e","topic":"a b","partitions":1,"x":NaN,'
            '"partitions":2.5}'
        ],
        [
            (1, "REPEATED_FIELD", "partitions"),
            (1, "ABSENT_FIELD", "cluster_id"),
            (1, "WRONG_VALUE", "partitions"),
            (1, "UNKNOWN_FIELD", "x"),
            (1, "ILLEGAL_NAME", "topic"),
        ],
    ),
    "wrong values deeper in a field": (
        [
            {**BARE_JOIN, "capacity": 1e999, "labels": {"b": "c", "a.d": 2}},
            {**BARE_JOIN, "taints": [{"key": "", "value": "", "effect": "evict"}]},
            {**BARE_JOIN, "taints": [{"key": "k", "value": "", "effect": "NoExecute"}]},
            {**CREATE, "constraints": {"require": ["a", "b c"]}},
            {**CREATE, "constraints": {"require": ["a", 7], "x": 1, "spread": [{}]}},
            E.join(1),
        ],
        [
            (1, "WRONG_VALUE", "capacity"),
            (1, "WRONG_VALUE", "labels.a.d"),
            (2, "INVALID_TAINTS", "taints[0].key"),
            (3, "WRONG_VALUE", "taints[0].effect"),
            (4, "INVALID_CONSTRAINTS", "constraints.require[1]"),
            (5, "UNKNOWN_FIELD", "constraints"),
            (5, "WRONG_VALUE", "constraints.require[1]"),
            (5, "ABSENT_FIELD", "constraints.spread[0]"),
        ],
    ),
    "what depends on earlier lines": (
        [E.join(0), E.create("t", 1, 2), E.grow("t", 3), E.create("u"), E.create("u"), E.leave(3)],
        [
            (2, "INSUFFICIENT_SPUS", "replication_factor"),
            (3, "TOPIC_UNKNOWN", "topic"),
            (5, "TOPIC_EXISTS", "topic"),
            (6, "SPU_UNKNOWN", "spu_id"),
        ],
    ),
    "lists of a topic that exists: the core would name their fault next": (
        [E.join(0), E.create("t"), E.manual("t", [0, 0])],
        [(3, "TOPIC_EXISTS", "topic"), (3, "MANUAL_DUPLICATE_SPU", "replicas")],
    ),
    "lists that name an SPU that is leaving": (
        [
            E.join(0),
            E.manual("a", [0]),
            E.leave(0, mode=LeaveMode.DECOMMISSION),
            E.manual("b", [0]),
        ],
        [(3, "STILL_WAITING", ""), (4, "MANUAL_SPU_LEAVING", "replicas")],
    ),
    "an event id with other content is an error, a copy a warning": (
        [
            E.join(0, event_id="j", occurred_at=1),
            E.join(0, event_id="j", occurred_at=2),
            E.join(1, event_id="j"),
            Events("d").join(0, event_id="j"),
        ],
        [(2, "REPEATED_EVENT", "event_id"), (3, "EVENT_ID_REUSED", "event_id")],
    ),
    "a join that leaves out what was given": (
        [E.join(0, rack="a", labels={"x": "y"}), BARE_JOIN],
        [(2, "FIELD_LOST", "")],
    ),
    "what still waits or leaves at the end": (
        SHORT,
        [(3, "STILL_WAITING", "topic"), (5, "STILL_WAITING", "")],
    ),
    "what waited and was served": ([*SHORT, *E.joins(2, 3, 4)], []),
    "two faults of numbers": (
        [E.create("t", policy=Policy.KAFKA, start_index=1, shift=-1, replication_factor=33)],
        [(1, "INVALID_REPLICATION_FACTOR", "replication_factor"), (1, "INVALID_SHIFT", "shift")],
    ),
    "constraints that name a topic that is not there": (
        [E.join(0), E.create("t", constraints=APART)],
        [(2, "INVALID_CONSTRAINTS", "constraints.apart_from")],
    ),
    "a grow that constraints do not permit": (
        [
            E.join(0, labels={"tier": "ssd"}, capacity=9),
            E.create("t", constraints=ON_SSD),
            E.join(0),
            E.grow("t", 2),
        ],
        [(3, "FIELD_LOST", ""), (3, "RULES_BROKEN", ""), (4, "UNSATISFIABLE", "constraints")],
    ),
    "the demand of an adopted topic, and its lists": (
        [
            E.join(0, resources={"disk": 5}),
            E.adopt("t", [0, 0], demand={"disk": -1}),
            E.adopt("u", [0], demand={"tape": 1}),
            E.create("v", leader_demand={"disk": -1}),
        ],
        [
            (2, "MANUAL_DUPLICATE_SPU", "replicas"),
            (2, "INVALID_DEMAND", "demand.disk"),
            (3, "UNKNOWN_RESOURCE", "demand"),
            (4, "INVALID_DEMAND", "leader_demand.disk"),
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_exactly_these_faults_are_found(case: str) -> None:
    """By line, code and field."""
    lines, expected = CASES[case]
    assert sorted(reported(*lines)) == sorted(expected)


def test_a_reassignment_is_neither_an_event_nor_a_manual_assignment(tmp_path: Path) -> None:
    """Wherever it is given instead of one, Kafka's form is named."""
    moves = '{"version":1,"partitions":[{"topic":"t","partition":3,"replicas":[4,1]}]}'
    (fault,) = checked(moves)
    assert fault.message.startswith("the line is a reassignment in Kafka's form, ")
    file = tmp_path / "moves.json"
    file.write_text(moves, "utf-8")
    with pytest.raises(AssignmentFileError, match="is a reassignment in Kafka's form"):
        read_assignment(file)


# The command.


def test_faults_are_lines_for_people_and_set_the_status(tmp_path: Path) -> None:
    """Editors and CI read them; a fix that the message has is not repeated."""
    file = tmp_path / "events.jsonl"
    events = Events()
    bad = [events.create("t", 0), events.create("t"), events.create("t")]
    file.write_text(text_of(events.join(0), *bad), encoding="utf-8")
    result = call(file)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{file}:2: INVALID_PARTITIONS partitions is 0; expected 1 to 100000",
        "  fix: name 1 to 100,000; of a grow more than there are",
        f"{file}:4: TOPIC_EXISTS topic 't' exists in cluster 'c1'; delete it first, or choose "
        "another name",
        "2 errors, 0 warnings: 4 events",
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Events().joins(0, 1), "nothing found: 2 events\n"),
        ([Events().join(0), Events().join(0)], "<stdin>:2: REPEATED_EVENT event_id: the same even"),
        ([Events().create("t", 1, 3)], "note: no SPU joins c1: what depends on SPUs and earlier"),
    ],
    ids=["clean", "warnings alone", "a running cluster"],
)
def test_a_file_without_errors_is_status_0(given: list[Event], said: str) -> None:
    """Silence would not distinguish a clean file from one that was not read."""
    result = call("-", given=text_of(*given).encode())
    assert result.exit_code == 0
    assert result.stdout.startswith(said)


def test_json_is_one_object_a_fault_and_a_summary() -> None:
    """For programs: names and order are fixed."""
    given = text_of(Events().create("t", 0)).encode()
    result = call("--output", "json", "-", given=given)
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {
            "type": "fault",
            "line": 1,
            "severity": "error",
            "code": "INVALID_PARTITIONS",
            "cluster_id": "c1",
            "field": "partitions",
            "message": "partitions is 0; expected 1 to 100000",
            "fix": ADVICE["INVALID_PARTITIONS"].fix,
        },
        {
            "type": "summary",
            "lines": 1,
            "events": 1,
            "errors": 1,
            "warnings": 0,
            "unchecked": ["c1"],
        },
    ]


def test_control_characters_do_not_reach_the_terminal() -> None:
    """A name may hold anything."""
    result = call("-", given=b'{"type":"topic_grow","\\u001b[31m":1}\n')
    assert "\x1b" not in result.stdout


def test_a_file_of_faults_is_read_as_far_as_anyone_reads() -> None:
    """In bounded memory; the end says so."""
    result = call("-", given=b"x\n" * (FAULTS_MAX + 5))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-2:] == [
        f"note: stopped after line {FAULTS_MAX}: too many faults",
        "10,000 errors, 0 warnings: 0 events",
    ]


# The codes.


def test_every_rejection_and_every_fault_of_a_line_has_a_fix() -> None:
    """A new one of the core is a new one here."""
    assert {*(code.value for code in Code), *(fault.name for fault in LineFault)} <= ADVICE.keys()


def test_the_docs_list_the_codes_that_no_answer_has() -> None:
    """docs/errors.md has those of answers."""
    table = PAGE.partition("<!-- codes -->")[2].partition("<!-- /codes -->")[0]
    found = dict(re.findall(r"^\| `(\w+)` \| (a warning)?", table, re.MULTILINE))
    assert [*found] == [code for code in ADVICE if code not in Code.__members__]
    assert {code for code, said in found.items() if said} == WARNINGS.keys()
