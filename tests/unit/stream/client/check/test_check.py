"""`simulate --check`: every fault with its line, field and code; forms and exit statuses."""

from __future__ import annotations

import json
import os
import re
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
from spu_assigner.schemas.errors import LineError, LineFault
from spu_assigner.schemas.json_lines.lines import event_from_json, event_to_json
from spu_assigner.stream.cli import cli
from spu_assigner.stream.client.assignment_file import AssignmentFileError, read_assignment
from spu_assigner.stream.client.check.codes import ADVICE, WARNINGS
from spu_assigner.stream.client.check.faults import KEPT_MAX, CheckFault
from spu_assigner.stream.client.check.file_check import FileCheck
from support.events.builders import Events
from support.project.case_share import share_of

PAGE = (Path(__file__).parents[5] / "docs" / "check.md").read_text(encoding="utf-8")


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
    return check.result()[0]


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


def test_a_wrong_label_and_a_wrong_number_are_reported() -> None:
    """Of one field the first fault."""
    line = (
        text_of(Events().join())
        .strip()
        .replace('"capacity":null', '"capacity":1e999,"labels":{"a":1,"b":"c","a.d":2}')
    )
    assert reported(line) == [
        (1, "WRONG_VALUE", "capacity"),
        (1, "WRONG_VALUE", "labels.a"),
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("nothing", "NO_JSON"),
        ('{"type":', "NO_JSON"),
        ("[]", "NO_JSON"),
        ("{}", "ABSENT_FIELD"),
        ('{"type":"spu_gone"}', "UNKNOWN_TYPE"),
        ("[" * 100_000, "TOO_DEEP"),
        ('{"x":' + "1" * 5000 + "}", "ABSENT_FIELD"),
    ],
)
def test_an_unreadable_line_is_reported(line: str, code: str) -> None:
    """With the reader's own reason."""
    assert checked(line)[0].code == code


# What the core refuses.


def test_what_depends_on_earlier_lines_names_the_line() -> None:
    """The fault may be there."""
    events = Events()
    faults = checked(
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
    assert [(each.line, each.code) for each in faults] == [
        (2, "INSUFFICIENT_SPUS"),
        (3, "TOPIC_UNKNOWN"),
        (5, "TOPIC_EXISTS"),
        (7, "TOPIC_UNKNOWN"),
        (8, "TOPIC_UNKNOWN"),
        (9, "SPU_UNKNOWN"),
    ]
    messages = [each.message for each in faults]
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
    assert reported(*lines) == [(6, "INVALID_PARTITIONS", "partitions")]
    assert {line for line, _, _ in reported(*lines, events.join(0))} == {1, 2, 3, 4, 5, 6, 7}


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
            (1, "REPEATED_FIELD", "partitions"),
            (1, "ABSENT_FIELD", "cluster_id"),
            (1, "WRONG_VALUE", "partitions"),
            (1, "UNKNOWN_FIELD", "x"),
            (1, "ILLEGAL_NAME", "topic"),
        ],
    ),
    "numbers that are none": (
        ['{"type":"spu_left","event_id":"e","cluster_id":"c","spu_id":NaN}'],
        [(1, "WRONG_VALUE", "spu_id")],
    ),
    "all faults of manual lists, where the core names the first": (
        [*E.joins(0, 1), E.create("t", replicas={"partitions": BROKEN_LISTS})],
        [
            (3, "MANUAL_DUPLICATE_SPU", "replicas.partitions[0].replicas[1]"),
            (3, "MANUAL_UNKNOWN_SPU", "replicas.partitions[0].replicas[2]"),
            (3, "MANUAL_PARTITION_IDS", "replicas.partitions[1].id"),
            (3, "MANUAL_UNEVEN_LISTS", "replicas.partitions[1].replicas"),
            (3, "MANUAL_EMPTY_LIST", "replicas.partitions[2].replicas"),
            (3, "MANUAL_INVALID_SPU", "replicas.partitions[3].replicas[1]"),
            (3, "MANUAL_UNKNOWN_SPU", "replicas.partitions[3].replicas[2]"),
            (3, "MANUAL_MALFORMED", "replicas.partitions[4]"),
        ],
    ),
    "lists of a topic that exists: the core would name their faults next": (
        [E.join(0), E.create("t"), E.manual("t", [0, 0])],
        [(3, "TOPIC_EXISTS", "topic"), (3, "MANUAL_DUPLICATE_SPU", "replicas[0].replicas[1]")],
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
            (4, "STILL_WAITING", ""),
            (5, "MANUAL_SPU_FULL", "replicas[0].replicas[0]"),
            (5, "MANUAL_SPU_LEAVING", "replicas[0].replicas[1]"),
            (5, "MANUAL_SPU_LEAVING", "replicas[1].replicas[0]"),
            (5, "MANUAL_SPU_FULL", "replicas[1].replicas[1]"),
        ],
    ),
    "a grow to no more than there are": (
        GROWS,
        [(3, "INVALID_PARTITIONS", "partitions"), (4, "INVALID_PARTITIONS", "partitions")],
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
    "an event id that is no longer remembered": (
        [
            E.join(0, event_id="first"),
            *(E.join(0) for _ in range(300)),
            E.join(1, event_id="first"),
        ],
        [(302, "EVENT_ID_REUSED_LATE", "event_id")],
    ),
    "racks on most SPUs: one was forgotten": (RACKED, [(3, "RACKS_ON_SOME", "rack")]),
    "racks on few SPUs": (
        [*RACKED, *E.joins(3, 4)],
        [(line, "RACKS_ON_SOME", "rack") for line in (3, 4, 5)],
    ),
    "racks on all SPUs in the end": ([*RACKED, E.join(2, rack="b")], []),
    "a join that leaves out what was given": (
        [WHOLE_JOIN, BARE_JOIN],
        [(2, "FIELD_LOST", "")],
    ),
    "a join that leaves out a capacity of 0": (
        [E.join(5, capacity=0), {**BARE_JOIN, "spu_id": 5}],
        [(2, "FIELD_LOST", "")],
    ),
    "what still waits or leaves at the end": (
        SHORT,
        [(3, "STILL_WAITING", "topic"), (5, "STILL_WAITING", "")],
    ),
    "what waited and was served": ([*SHORT, *E.joins(2, 3, 4)], []),
    "counts beside manual lists, where they differ": (
        [
            *E.joins(0, 1),
            E.create("t", 3, 3, replicas=SAME_ROWS),
            E.create("u", 2, 2, replicas=SAME_ROWS),
        ],
        [(3, "UNREAD_COUNT", "partitions"), (3, "UNREAD_COUNT", "replication_factor")],
    ),
    "names that are one to Kafka": (
        [E.join(0), E.create("a.b"), E.create("a_b")],
        [(3, "TOPIC_COLLIDES", "topic")],
    ),
    "such names for a running cluster": (
        [E.create("a.b"), E.create("a_b")],
        [(2, "COLLIDING_NAMES", "topic")],
    ),
    "such a name after a delete": (
        [E.join(0), E.create("a.b"), E.delete("a.b"), E.create("a_b")],
        [],
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
            (2, "INVALID_TAINTS", "taints[0].key"),
            (3, "WRONG_VALUE", "taints[0].effect"),
            (4, "INVALID_CONSTRAINTS", "constraints.require[1]"),
            (5, "UNKNOWN_FIELD", "constraints"),
            (5, "WRONG_VALUE", "constraints.require[1]"),
            (5, "ABSENT_FIELD", "constraints.spread[0]"),
        ],
    ),
    "a shift out of its limits": (
        [E.create("t", policy=Policy.KAFKA, start_index=1, shift=-1, replication_factor=33)],
        [(1, "INVALID_REPLICATION_FACTOR", "replication_factor"), (1, "INVALID_SHIFT", "shift")],
    ),
    "constraints of another policy": (
        [E.join(0), E.create("t", policy=Policy.KAFKA, constraints=ON_SSD)],
        [(2, "INVALID_CONSTRAINTS", "constraints")],
    ),
    "constraints that name a topic that is not there": (
        [
            E.join(0, labels={"tier": "ssd"}),
            E.create("t", constraints=APART),
            E.create("u"),
            E.constraints("u", APART),
        ],
        [
            (2, "INVALID_CONSTRAINTS", "constraints.apart_from"),
            (4, "INVALID_CONSTRAINTS", "constraints.apart_from"),
        ],
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
    "constraints that contradict each other": (
        [
            E.join(0, labels={"zone": "a", "tier": "ssd"}),
            E.create("t", constraints=NEVER),
            E.create("u"),
            E.constraints("u", NEVER),
        ],
        [(2, "UNSATISFIABLE", "constraints"), (4, "RULES_BROKEN", "")],
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
            (4, "UNSATISFIABLE", "constraints"),
            (6, "RULES_BROKEN", ""),
            (8, "RULES_BROKEN", ""),
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
            (4, "RULES_BROKEN", ""),
            (7, "RULES_BROKEN", ""),
        ],
    ),
    "a join that leaves out taints": (
        [E.join(0, taints=(Taint("k", "v", TaintEffect.EVICT),)), BARE_JOIN],
        [(2, "FIELD_LOST", "")],
    ),
    "the demand of an adopted topic, and its lists": (
        [
            E.join(0, resources={"disk": 5}),
            E.adopt("t", [0, 0], [7], demand={"disk": -1}),
            E.adopt("u", [0], demand={"tape": 1}),
            E.adopt("v", [0], demand={"disk": 9}),
        ],
        [
            (2, "MANUAL_DUPLICATE_SPU", "replicas[0][1]"),
            (2, "MANUAL_UNKNOWN_SPU", "replicas[1][0]"),
            (2, "INVALID_DEMAND", "demand.disk"),
            (3, "UNKNOWN_RESOURCE", "demand"),
        ],
    ),
    "what leaders need, by the name of its field": (
        [
            E.join(0, resources={"disk": 5}),
            E.create("t", leader_demand={"disk": -1}),
            E.create("u", demand={"disk": 1}, leader_demand={"tape": 1}),
        ],
        [(2, "INVALID_DEMAND", "leader_demand.disk"), (3, "UNKNOWN_RESOURCE", "leader_demand")],
    ),
    "a file without events, but with a fault": (["nothing"], [(1, "NO_JSON", "")]),
}


@pytest.mark.parametrize("case", CASES)
def test_exactly_these_faults_are_found(case: str) -> None:
    """By line, code and field."""
    lines, expected = CASES[case]
    assert sorted(reported(*lines)) == sorted(expected)


# Files that hold something else.

REASSIGNMENT = (
    '{"version":1,"partitions":[{"topic":"t","partition":3,"replicas":[4,1,1],"log_dirs":["any"]}]}'
)


@pytest.mark.parametrize("text", [REASSIGNMENT, json.dumps(json.loads(REASSIGNMENT), indent=2)])
def test_a_reassignment_of_kafkas_is_called_so(text: str) -> None:
    """Also what is wrong with its lists; the command that takes it says that late."""
    result = call("-", given=text.encode())
    assert result.exit_code == 1
    kind, _, duplicate, *_ = result.stdout.splitlines()
    assert kind.startswith("<stdin>:1: NO_JSON the file is a reassignment in Kafka's form, ")
    assert "; `kafka-reassign-partitions --reassignment-json-file` takes it" in kind
    assert "MANUAL_DUPLICATE_SPU partitions[0].replicas[2]: SPU 1, which this" in duplicate


@pytest.mark.parametrize(
    ("text", "said", "more"),
    [
        ('[\n{"id": 0, "replicas": [4, 1, 1]}\n]', "`produce topic-create --replica-assi", 1),
        ('{"partitions": [{"id": 0, "replicas": [4, 1]}]}', "`produce topic-create --repl", 0),
        ('[\n{"type": "spu_joined"}\n]', "jq -c '.[]'", 0),
    ],
)
def test_a_file_that_is_one_value_is_one_fault(text: str, said: str, more: int) -> None:
    """Which says where it belongs; and a list that names an SPU twice is shown."""
    result = call("-", given=text.encode())
    faults = [line for line in result.stdout.splitlines() if line.startswith("<stdin>")]
    assert (said in faults[0], len(faults)) == (True, 1 + more)


def test_a_reassignment_is_neither_an_event_nor_a_manual_assignment(tmp_path: Path) -> None:
    """Wherever it is given instead of one."""
    (fault,) = checked(REASSIGNMENT)
    assert fault.message.startswith("the line is a reassignment in Kafka's form, ")
    with pytest.raises(LineError, match="is a reassignment in Kafka's form"):
        event_from_json(REASSIGNMENT)
    file = tmp_path / "moves.json"
    file.write_text(REASSIGNMENT, "utf-8")
    with pytest.raises(AssignmentFileError, match="is a reassignment in Kafka's form"):
        read_assignment(file)


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
        (fault,) = checked({**line, field: name})
        assert (fault.code, fault.field) == ("ILLEGAL_NAME", field)
        assert fault.message.endswith(says)


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
        "another name (line 3 requests it)",
        "2 errors, 0 warnings: 4 events",
    ]


def test_a_clean_file_is_status_0_and_says_what_was_seen() -> None:
    """Silence would not distinguish a clean file from one that was not read."""
    result = call("-", given=text_of(*Events().joins(0, 1)).encode())
    assert (result.exit_code, result.stdout) == (0, "nothing found: 2 events\n")


def test_warnings_alone_are_status_0() -> None:
    """What they are about is accepted."""
    given = text_of(Events().join(0), Events().join(0)).encode()
    result = call("-", given=given)
    assert result.exit_code == 0
    assert result.stdout.startswith("<stdin>:2: REPEATED_EVENT event_id: the same event as on ")


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
            "events": 1,
            "errors": 1,
            "warnings": 0,
            "not_shown": 0,
            "unchecked": ["c1"],
        },
    ]


def test_what_is_not_checked_is_reported() -> None:
    """A file for a running cluster is the usual one for `produce`."""
    result = call("-", given=text_of(Events().create("t", 1, 3)).encode())
    assert result.exit_code == 0
    assert "note: no SPU joins c1:" in result.stdout


def test_a_file_that_cannot_be_read_is_status_2(tmp_path: Path) -> None:
    """As without --check."""
    assert call(tmp_path / "none.jsonl").exit_code == 2


def test_control_characters_do_not_reach_the_terminal() -> None:
    """A name may hold anything."""
    result = call("-", given=b'{"type":"topic_grow","\\u001b[31m":1}\n')
    assert "\x1b" not in result.stdout


def test_a_file_of_faults_is_reported_in_bounded_memory() -> None:
    """The first are shown, and all are counted."""
    check = FileCheck(Policy.BALANCED)
    for number in range(1, KEPT_MAX + 6):
        check.take(number, b"x")
    faults, errors, _, _ = check.result()
    assert (len(faults), errors) == (KEPT_MAX, KEPT_MAX + 5)


def test_it_loads_neither_spark_nor_avro_nor_kafka_and_starts_no_thread() -> None:
    """A check is run in hooks and editors."""
    code = (
        "import os, sys, runpy\n"
        "sys.argv = ['spu-assigner', 'simulate', '--check', '-']\n"
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
    said = [b"nothing found: 4 events", b"[]", b"1 thread"]
    assert done.stdout.splitlines() == said


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
