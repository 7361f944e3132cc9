"""`simulate --check` says what `simulate` does: its errors are the lines that are rejected."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.core.base.records import Answer, RingChange, RingEvent, Status, TopicStatus
from spu_assigner.schemas.errors import DecodeError, LineFault
from spu_assigner.schemas.json_lines.lines import event_to_json
from spu_assigner.stream.client.check import WARNINGS, CheckFault, FileCheck
from spu_assigner.stream.common.json_line_reading import event_of_line
from support.events.builders import Events
from support.events.poisons import LINES, Line
from support.events.random_lives import as_json, life_of
from support.project.case_share import ALL, share_of

UNREADABLE = {fault.name for fault in LineFault}
# `test_poison` sends all of them through the core, in `make test` too.
LARGE = {"half a million names: quadratic if compared", "8 MiB of lists: much memory"}
POISONS = [poison for poison in LINES if ALL or poison.name not in LARGE]
GARBAGE = [b"{", b"[1]", b"7", b"\xff", b'{"type":"spu_joined"}', b"", b" \r", b"\xef\xbb\xbf{}"]
# What a field may be given instead: something of any field, or of these something near to right.
ANYTHING: list[Any] = [
    *(None, True, 0, -1, 1, 1.5, 33, 1_001, 100_001, 2**31, 2**53, 10**30),
    *("", "x", "a b", "..", "t0", "e0", "c2", "manual", "redpanda", "wait", "\ud800", "x" * 257),
    *([], {}, {"a": 1, "b": 2}, {"a": "b"}, [[[[[[[[[]]]]]]]]]),
]
NEARLY: dict[str, list[Any]] = {
    "taints": [
        [{"key": "k", "value": "v", "effect": "evict"}, {"key": "k", "value": "w", "effect": "no"}],
        [{"key": "", "value": "", "effect": "evict"}],
        [{"key": "k", "value": "v", "effect": "no_new_replicas"}],
    ],
    "constraints": [
        {"x": 1},
        {"require": ["a b"], "spread": [{"label": "", "max": "1"}]},
        {"require": ["spu_id notin (1)"], "forbid": ["spu_id in (1, 2), !zone"]},
        {"require": ["tier"], "forbid": ["tier"]},
        {"require": ["!zone"], "spread": [{"label": "zone", "max": 1}]},
        {"apart_from": ["t0"], "together_with": ["t0"]},
        {"apart_from": ["t1", "nowhere"]},
    ],
    "type": ["spu_gone", "topic_delete"],
    "replicas": [
        {"partitions": []},
        [{"id": 0, "replicas": [0, 0]}],
        [{"id": 1, "replicas": [0]}],
        [{"id": 0, "replicas": [0, 1]}, {"id": 1, "replicas": [99]}],
        [{"id": 0, "replicas": [True, "x"]}],
        [[0, 0], [0, 1]],
        [[0, -1], []],
        [[0, 99]],
    ],
}
OPTIONAL = ["taints", "constraints", "replicas", "start_index", "shift", "max_bytes", "band", "new"]


def lines_of(seed: int) -> list[bytes]:
    """A random life, some of its lines spoilt."""
    random = Random(seed)
    life = life_of(seed)
    lines = []
    for event in life.events:
        members = as_json(event)
        for _ in range(random.choice([0, 0, 0, 0, 1, 1, 2])):
            name = random.choice([*(members if random.random() < 0.8 else OPTIONAL)])
            is_near = name in NEARLY and random.random() < 0.7
            members[name] = random.choice(NEARLY[name] if is_near else ANYTHING)
            if random.random() < 0.1:
                del members[name]
        lines.append(json.dumps(members).encode())
        if random.random() < 0.05:
            lines.append(random.choice(GARBAGE))
        if random.random() < 0.05:
            lines.append(lines[-1].replace(b"{", b'{"type":"x",', 1))
    return lines


def errors_of(lines: list[bytes], policy: Policy) -> tuple[list[CheckFault], list[str]]:
    """The errors, and the clusters that are taken to be running."""
    check = FileCheck(policy)
    for number, line in enumerate(lines, start=1):
        check.take(number, line)
    return [fault for fault in check.faults() if fault.code not in WARNINGS], check.running


def code_of(answers: tuple[Answer, ...], event: Event) -> str | None:
    """Why the event that was answered so is refused."""
    for answer in answers:
        match answer:
            case TopicStatus(status=Status.REJECTED, cause=event.event_id):
                return str(answer.code)
            case RingEvent(change=RingChange.IGNORED, cause=event.event_id):
                return str(answer.code)
    return None


def refused(lines: list[bytes], policy: Policy) -> dict[int, str]:
    """What `simulate` does not do, by line: the code, or why there is none."""
    assigner = Assigner(policy)
    first: dict[tuple[str, str], Event] = {}
    outcome: dict[int, str] = {}
    for number, line in enumerate(lines, start=1):
        try:
            event = event_of_line(line)
        except DecodeError:
            outcome[number] = "dead letter"
            continue
        if event is None:
            continue
        answers = assigner.apply(event)
        key = event.cluster_id, event.event_id
        if not answers:
            earlier = replace(first[key], occurred_at=event.occurred_at)
            outcome[number] = "copy" if earlier == event else "passed over"
            continue
        first[key] = event
        code = code_of(answers, event)
        if code is not None:
            outcome[number] = code
    return outcome


@settings(max_examples=share_of(400), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_errors_are_exactly_the_lines_that_the_core_does_not_do(seed: int) -> None:
    """No event is said to be rejected that the core takes, and none is skipped in silence."""
    lines, policy = (
        [event_to_json(Events().join(0)).encode(), *lines_of(seed)],
        life_of(seed).default_policy,
    )
    expected = {number: why for number, why in refused(lines, policy).items() if why != "copy"}
    reported: dict[int, set[str]] = {}
    errors, running = errors_of(lines, policy)
    for fault in errors:
        reported.setdefault(fault.line, set()).add(fault.code)
    unchecked = {number for number, line in enumerate(lines, 1) if is_of(line, running)}
    assert reported.keys() - unchecked == expected.keys() - unchecked
    for number, outcome in expected.items():
        if number in unchecked:
            continue
        codes = reported[number]
        if outcome == "dead letter":
            assert codes <= UNREADABLE, (number, codes)
        else:
            assert ("EVENT_ID_REUSED" if outcome == "passed over" else outcome) in codes, (
                number,
                outcome,
                codes,
            )


def is_of(line: bytes, clusters: list[str]) -> bool:
    """Whether a line is an event of one of these clusters."""
    try:
        event = event_of_line(line)
    except DecodeError:
        return False
    return event is not None and event.cluster_id in clusters


@settings(max_examples=share_of(300), deadline=None)
@given(seed=st.integers(0, 2**32), share=st.floats(0, 1))
def test_for_a_running_cluster_no_error_is_reported_that_may_be_none(
    seed: int, share: float
) -> None:
    """A file without joins goes on with running clusters: whatever these have had before, the core
    rejects what is called an error."""
    lines, policy = lines_of(seed), life_of(seed).default_policy
    cut = int(share * len(lines))
    rest = [b"" if b"spu_joined" in line else line for line in lines[cut:]]
    whole = refused([*lines[:cut], *rest], policy)
    errors, _ = errors_of(rest, policy)
    for fault in errors:
        assert fault.line + cut in whole, fault


@pytest.mark.parametrize("poison", POISONS, ids=lambda poison: poison.name)
def test_a_poisoned_line_is_an_error_where_it_is_refused(poison: Line) -> None:
    """What is hostile to `simulate` is so to its check."""
    line = poison.make()
    expected = refused([line], Policy.BALANCED)
    errors, running = errors_of([line], Policy.BALANCED)
    assert running or {fault.line for fault in errors} == expected.keys()
