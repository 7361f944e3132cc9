"""The JSON Lines of `simulate`: names, defaults, refusals."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    Preference,
    SpreadLevel,
    Taint,
    TaintEffect,
    Toleration,
)
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, LeaveMode, Policy, TopicCreate, TopicGrow
from spu_assigner.core.base.limits import MESSAGE_SIZE_MAX
from spu_assigner.core.base.records import Answer, Mode, Move, Reason, RecordedRing, RingChange
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.schemas.errors import DeadLetterCode, DecodeError
from spu_assigner.schemas.json_lines.lines import (
    answer_to_json,
    dead_letter_json,
    event_from_json,
    event_to_json,
)
from support.events import event_codecs
from support.events.builders import Events
from support.events.event_codecs import RING, events

WHOLE = Constraints(
    tolerations=(Toleration("k", "v"), Toleration("k")),
    require=("tier in (ssd,nvme)", "!spot"),
    forbid=("zone in (c)",),
    prefer=(Preference("tier in (nvme)", 10),),
    spread=(SpreadLevel("zone", 2, 1), SpreadLevel("rack")),
    apart_from=("t2",),
    together_with=("t3",),
    leaders=("zone in (a)", "zone in (b)"),
)
WHOLE_JSON = (
    '{"tolerations":[{"key":"k","value":"v"},{"key":"k"}],"require":["tier in (ssd,nvme)","!spot"],'
    '"forbid":["zone in (c)"],"prefer":[{"select":"tier in (nvme)","weight":10}],'
    '"spread":[{"label":"zone","max":2,"min":1},{"label":"rack"}],"apart_from":["t2"],'
    '"together_with":["t3"],"leaders":["zone in (a)","zone in (b)"]}'
)
TAINT = Taint("k", "v", TaintEffect.NO_NEW_REPLICAS)
CREATED = (
    '"topic":"t","partitions":3,"replication_factor":2,"policy":"fluvio","ignore_rack":false,'
    '"start_index":null,"shift":null,"replicas":null,"validate_only":false,"on_shortage":"reject"'
)


def new() -> Events:
    """Each event here is e1 of c1."""
    return Events()


CONTRACT: list[tuple[str, str, Event]] = [
    (
        "spu_joined",
        '"spu_id":0,"rack":"a","cores":2,"capacity":100,"labels":{"zone":"a"},'
        '"taints":[{"key":"k","value":"v","effect":"no_new_replicas"}]',
        new().join(0, rack="a", cores=2, capacity=100, labels={"zone": "a"}, taints=(TAINT,)),
    ),
    ("spu_left", '"spu_id":0,"mode":"offline"', new().leave(0, mode=LeaveMode.OFFLINE)),
    ("spu_cordon", '"spu_id":0', new().cordon()),
    ("spu_undemote", '"spu_id":0', new().undemote()),
    ("topic_create", CREATED, new().create("t", 3, 2, policy=Policy.FLUVIO)),
    (
        "topic_create",
        f'{CREATED},"demand":{{"x":1}},"leader_demand":{{"x":2}},"constraints":{WHOLE_JSON}',
        new().create(
            *("t", 3, 2),
            policy=Policy.FLUVIO,
            demand={"x": 1},
            leader_demand={"x": 2},
            constraints=WHOLE,
        ),
    ),
    ("topic_constraints", '"topic":"t","constraints":{}', new().constraints("t", NO_CONSTRAINTS)),
    ("topic_delete", '"topic":"t"', new().delete("t")),
    ("topic_release", '"topic":"t"', new().release("t")),
    ("topic_grow", '"topic":"t","partitions":6', new().grow("t", 6)),
    ("topic_replication", '"topic":"t","replication_factor":3', new().replication("t", 3)),
    (
        "topic_adopted",
        '"topic":"t","replicas":[[0,1],[1]],"policy":null,"pinned":false,"demand":{"x":12}',
        new().adopt("t", [0, 1], [1], demand={"x": 12}),
    ),
    ("topic_demand", '"topic":"t","demand":{"x":12}', new().demand("t", demand={"x": 12})),
    ("cluster_rebalance", '"max_moves":100', new().rebalance(100)),
]


@pytest.mark.parametrize(("kind", "fields", "event"), CONTRACT)
def test_a_line_of_the_contract_is_read_and_written_as_it_stands(
    kind: str, fields: str, event: Event
) -> None:
    line = f'{{"type":"{kind}","event_id":"e1","cluster_id":"c1",{fields}}}'
    assert event_from_json(line) == event
    assert event_from_json(line.encode()) == event
    assert event_to_json(event) == line


@given(events())
def test_an_event_survives_its_line(event: Event) -> None:
    """`produce` reads what others wrote with `event_to_json`."""
    assert event_from_json(event_to_json(event)) == event


def line_of(**changes: Any) -> str:
    fields = {"type": "topic_create", "event_id": "e", "cluster_id": "c", "topic": "t"}
    return json.dumps(fields | changes)


def join_of(**changes: Any) -> str:
    return json.dumps(
        {"type": "spu_joined", "event_id": "e", "cluster_id": "c", "spu_id": 0, **changes}
    )


def rules_of(**rules: Any) -> str:
    return line_of(constraints=rules)


def test_what_is_absent_or_null_has_its_default() -> None:
    """A producer names only what matters to it."""
    plain = TopicCreate(event_id="e", cluster_id="c", topic="t")
    assert event_from_json(line_of()) == event_from_json(line_of(constraints=None)) == plain
    ruled = replace(plain, constraints=Constraints(spread=(SpreadLevel("zone"),)))
    assert event_from_json(rules_of(require=None, spread=[{"label": "zone"}])) == ruled


def test_a_number_out_of_range_is_an_event() -> None:
    """The asker gets a status with a code for it."""
    line = '{"type":"topic_grow","event_id":"e","cluster_id":"c","topic":"t","partitions":-9e0}'
    with pytest.raises(DecodeError, match=r"partitions is -9\.0; expected a whole number"):
        event_from_json(line)
    event = event_from_json(line.replace("-9e0", str(-(10**30))))
    assert isinstance(event, TopicGrow)
    assert event.partitions == -(10**30)


# What every reader of JSON must refuse is among the poisons.
REFUSED: list[tuple[str, str]] = [
    ("", "expected one JSON object"),
    ("hello", "no JSON at character 0"),
    ("[]", "the line is a list; expected one JSON object"),
    ('{"event_id":"e"}', "type is absent; expected one of spu_joined"),
    (line_of(type="TOPIC_CREATE"), 'type is "TOPIC_CREATE"; expected one of'),
    ('{"type":"topic_delete","cluster_id":"c","topic":"t"}', "event_id is absent"),
    (line_of(topic=None), "topic is null; expected a text"),
    (line_of(partition=3), 'unknown field "partition"; a topic_create has'),
    (line_of(policy="FLUVIO"), 'policy is "FLUVIO"; expected one of fluvio'),
    (line_of(replicas="0,1"), 'replicas is "0,1"; expected a list of'),
    (line_of()[:-1] + f',"replicas":{"[" * 300}{"]" * 300}}}', "more than 8 deep"),
    (line_of() + " " * MESSAGE_SIZE_MAX, "at most 65536 without replicas"),
    (join_of(labels={"a": 1}), "labels.a is 1; expected a text"),
    (join_of(taints=[{"key": "k", "effect": "evict"}]), "taints[0].value is absent"),
    (join_of(taints={}), "taints is an object; expected a list of objects with key, value, effect"),
    (line_of(constraints=[]), "constraints is a list; expected an object that may have tol"),
    (line_of(type="topic_constraints"), "constraints is absent; a topic_constraints needs"),
    (rules_of(requires=[]), 'constraints has an unknown field "requires"'),
    (rules_of(require="a"), 'constraints.require is "a"; expected a list of texts'),
    (rules_of(prefer=[{"select": "a"}]), "constraints.prefer[0].weight is absent"),
]


@pytest.mark.parametrize(("line", "says"), REFUSED, ids=lambda each: each[:40])
def test_what_is_no_event_is_refused_with_its_reason(line: str, says: str) -> None:
    with pytest.raises(DecodeError) as caught:
        event_from_json(line)
    assert caught.value.code is DeadLetterCode.BAD_EVENT
    assert says in caught.value.message
    assert len(caught.value.message) <= 500


@given(st.one_of(st.text(), st.binary(), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["type", "event_id", "cluster_id", "topic", "replicas", "spu_id"]), inner
    ),
).map(json.dumps)))  # fmt: skip
def test_no_line_raises_anything_but_a_decode_error(line: str | bytes) -> None:
    with contextlib.suppress(DecodeError):
        event_from_json(line)


REASON = Reason(
    mode=Mode.REPAIR,
    ring=RecordedRing(members="0,2", offline="1"),
    moves=(Move(partition=0, gone=1, taken=2), Move(partition=1, gone=1, taken=None)),
)
MAP = replace(event_codecs.MAP, own_events=(1, 2), reason=REASON)
STATUS = event_codecs.STATUS
LISTS = ReplicaLists.of_lists([[2, 1]])
ANSWERS: list[tuple[Answer, str]] = [
    (
        MAP,
        '{"type":"replica_map","cluster_id":"c1","topic":"t","revision":1,"policy":"kafka",'
        '"replicas":[[1]],"cores":null,"chain_index":1,"cause":"e5"}',
    ),
    (
        replace(MAP, replicas=None, cores=LISTS, chain_index=None),
        '{"type":"replica_map","cluster_id":"c1","topic":"t","revision":1,"policy":"kafka",'
        '"replicas":null,"cores":[[2,1]],"chain_index":null,"cause":"e5"}',
    ),
    (
        STATUS,
        '{"type":"topic_status","cluster_id":"c1","topic":"t","status":"validated","code":null,'
        '"message":null,"replicas":null,"cause":"e5"}',
    ),
    (
        replace(STATUS, code=Code.INSUFFICIENT_SPUS, message='1 more: "é"', replicas=LISTS),
        '{"type":"topic_status","cluster_id":"c1","topic":"t","status":"validated",'
        '"code":"INSUFFICIENT_SPUS","message":"1 more: \\"\\u00e9\\"",'
        '"replicas":[[2,1]],"cause":"e5"}',
    ),
    (  # Of a rebalance; no other status has moves. 0 is an answer, too.
        replace(STATUS, topic="", moves=0),
        '{"type":"topic_status","cluster_id":"c1","topic":"","status":"validated","code":null,'
        '"message":null,"replicas":null,"cause":"e5","moves":0}',
    ),
    (
        replace(RING, message="not shown"),
        '{"type":"ring_event","cluster_id":"c1","spu_id":0,"change":"saturated","code":null,'
        '"ring_size":1,"cause":"e3"}',
    ),
    (  # What a join dropped.
        replace(RING, change=RingChange.UPDATED, message="no longer has rack 'r'"),
        '{"type":"ring_event","cluster_id":"c1","spu_id":0,"change":"updated","code":null,'
        '"ring_size":1,"cause":"e3","message":"no longer has rack \'r\'"}',
    ),
    (  # The same with a resource that is used up.
        replace(RING, resource="disk_bytes"),
        '{"type":"ring_event","cluster_id":"c1","spu_id":0,"change":"saturated","code":null,'
        '"ring_size":1,"cause":"e3","resource":"disk_bytes"}',
    ),
]


@pytest.mark.parametrize(("answer", "line"), ANSWERS)
def test_an_answer_has_the_keys_of_the_contract_in_its_order(answer: Answer, line: str) -> None:
    assert answer_to_json(answer) == line


def test_a_map_is_explained_when_that_is_asked_for() -> None:
    line = answer_to_json(MAP)
    assert answer_to_json(MAP, explain=True) == line[:-1] + (
        ',"reason":{"mode":"repair","first_partition":0,"start_index":null,"shift":null,'
        '"is_named":false,"ring":{"members":"0,2","offline":"1","saturated":"","cordoned":"",'
        '"fenced":""},"filled":"",'
        '"moves":[{"partition":0,"gone":1,"taken":2},{"partition":1,"gone":1,"taken":null}]}}'
    )
    unexplained = replace(MAP, reason=None)
    assert answer_to_json(unexplained, explain=True) == line[:-1] + ',"reason":null}'


def test_a_dead_letter_shows_the_line_and_keeps_64_kib_of_it() -> None:
    letter = dead_letter_json(7, DeadLetterCode.BAD_EVENT, "why", b"\xff" + b"x" * 70_000)
    assert list(json.loads(letter)) == ["type", "line", "code", "message", "raw"]
    assert json.loads(letter) == {
        "type": "dead_letter",
        "line": 7,
        "code": "BAD_EVENT",
        "message": "why",
        "raw": "\ufffd" + "x" * 65_535,
    }
