"""Taints and constraints as messages and as lines: their forms, their versions, their faults."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from spu_assigner.core.base.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    Preference,
    SpreadLevel,
    Taint,
    TaintEffect,
    Toleration,
)
from spu_assigner.core.base.events import (
    Event,
    SpuJoined,
    TopicConstraints,
    TopicCreate,
)
from spu_assigner.schemas.avro.registry import Registry
from spu_assigner.schemas.errors import DeadLetterCode, DecodeError, EncodeError
from spu_assigner.schemas.json_lines.lines import event_from_json, event_to_json
from spu_assigner.schemas.messages.codec import (
    decode_event,
    encode_event,
)
from support.events.builders import Events

REGISTRY = Registry.load()
WHOLE = Constraints(
    tolerations=(Toleration("k", "v"), Toleration("k")),
    require=("tier in (ssd,nvme)", "!spot"),
    forbid=("zone in (c)",),
    prefer=(Preference("tier in (nvme)", 10),),
    spread=(SpreadLevel("zone", 1), SpreadLevel("rack")),
    apart_from=("t2",),
    together_with=("t3",),
    leaders=("zone in (a)", "zone in (b)"),
)
DEMANDING = replace(WHOLE, spread=(SpreadLevel("zone", 2, 1), SpreadLevel("rack", min=1)))
WHOLE_JSON = (
    '{"tolerations":[{"key":"k","value":"v"},{"key":"k"}],"require":["tier in (ssd,nvme)","!spot"],'
    '"forbid":["zone in (c)"],"prefer":[{"select":"tier in (nvme)","weight":10}],'
    '"spread":[{"label":"zone","max":1},{"label":"rack"}],"apart_from":["t2"],'
    '"together_with":["t3"],"leaders":["zone in (a)","zone in (b)"]}'
)
TAINT = Taint("k", "v", TaintEffect.NO_NEW_REPLICAS)
COMMON = {"event_id": "e1", "cluster_id": "c1"}

CONTRACT: list[tuple[str, Event]] = [
    (
        '{"type":"spu_joined","event_id":"e1","cluster_id":"c1","spu_id":0,"rack":null,"cores":1,'
        '"capacity":null,"labels":{"zone":"a"},'
        '"taints":[{"key":"k","value":"v","effect":"no_new_replicas"}]}',
        SpuJoined(**COMMON, spu_id=0, labels={"zone": "a"}, taints=(TAINT,)),
    ),
    (
        '{"type":"topic_create","event_id":"e1","cluster_id":"c1","topic":"t","partitions":1,'
        '"replication_factor":1,"policy":null,"ignore_rack":false,"start_index":null,'
        '"shift":null,"replicas":null,"validate_only":false,"on_shortage":"reject",'
        f'"constraints":{WHOLE_JSON}}}',
        TopicCreate(**COMMON, topic="t", constraints=WHOLE),
    ),
    (
        '{"type":"topic_constraints","event_id":"e1","cluster_id":"c1","topic":"t",'
        f'"constraints":{WHOLE_JSON}}}',
        TopicConstraints(**COMMON, topic="t", constraints=WHOLE),
    ),
    (
        '{"type":"topic_constraints","event_id":"e1","cluster_id":"c1","topic":"t","constraints":{}}',
        TopicConstraints(**COMMON, topic="t", constraints=NO_CONSTRAINTS),
    ),
]


@pytest.mark.parametrize(("line", "event"), CONTRACT, ids=lambda value: type(value).__name__)
def test_a_line_of_the_contract_is_read_and_written_as_it_stands(line: str, event: Event) -> None:
    """Names, spelling and order are promised."""
    assert event_from_json(line) == event
    assert event_to_json(event) == line


def line_of(**members: Any) -> str:
    """A create, or a join if it has taints."""
    event = {"spu_id": 0} if "taints" in members else {"topic": "t"}
    type_ = "spu_joined" if "taints" in members else "topic_create"
    return json.dumps({"type": type_, **COMMON, **event, **members})


@pytest.mark.parametrize("taints", [None, []])
def test_no_taints_may_be_null_or_empty(taints: object) -> None:
    """Null and absent mean none, as for labels."""
    assert event_from_json(line_of(taints=taints)) == SpuJoined(**COMMON, spu_id=0)


def test_rules_that_are_null_or_absent_are_none() -> None:
    asked = event_from_json(line_of(constraints={"require": None, "spread": [{"label": "zone"}]}))
    assert asked == TopicCreate(
        **COMMON, topic="t", constraints=Constraints(spread=(SpreadLevel("zone"),))
    )
    assert event_from_json(line_of(constraints=None)) == TopicCreate(**COMMON, topic="t")


def test_both_limits_of_a_level_are_read_and_written() -> None:
    text = '{"spread":[{"label":"zone","max":2,"min":1},{"label":"rack","min":1}]}'
    asked = event_from_json(line_of(constraints=json.loads(text)))
    spread = (SpreadLevel("zone", 2, 1), SpreadLevel("rack", min=1))
    assert asked == TopicCreate(**COMMON, topic="t", constraints=Constraints(spread=spread))
    assert f'"constraints":{text}' in event_to_json(asked)


BROKEN: list[tuple[dict[str, Any], str]] = [
    (
        {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        'taints[0].effect is "NoSchedule"; expected one of no_new_replicas, no_leaders, evict',
    ),
    ({"taints": [{"key": "k", "effect": "evict"}]}, "taints[0].value is absent"),
    ({"taints": [{"key": 1, "value": "", "effect": "evict"}]}, "taints[0].key is 1; expected a"),
    ({"taints": ["k=v:evict"]}, 'taints[0] is "k=v:evict"; expected an object'),
    ({"taints": {}}, "taints is an object; expected a list of objects with key, value, effect"),
    ({"constraints": []}, "constraints is a list; expected an object that may have tolerations"),
    ({"constraints": {"requires": []}}, 'constraints has an unknown field "requires"'),
    ({"constraints": {"require": "a"}}, 'constraints.require is "a"; expected a list of texts'),
    ({"constraints": {"require": [["a"]]}}, "constraints.require[0] is a list; expected a text"),
    ({"constraints": {"require": ["\ud800"]}}, "half a surrogate pair is none"),
    ({"constraints": {"prefer": [{"select": "a"}]}}, "constraints.prefer[0].weight is absent"),
    (
        {"constraints": {"prefer": [{"select": "a", "weight": 1.5}]}},
        "constraints.prefer[0].weight is 1.5; expected a whole number",
    ),
    (
        {"constraints": {"prefer": [{"select": "a", "weight": True}]}},
        "constraints.prefer[0].weight is true; expected a whole number",
    ),
    ({"constraints": {"spread": [{"label": "a", "max": "1"}]}}, 'spread[0].max is "1"; expected'),
    ({"constraints": {"spread": [{"label": "a", "min": 1.5}]}}, "spread[0].min is 1.5; expected"),
    ({"constraints": {"spread": ["zone"]}}, 'constraints.spread[0] is "zone"; expected an object'),
    ({"constraints": {"tolerations": [{}]}}, "constraints.tolerations[0].key is absent"),
]


@pytest.mark.parametrize(("members", "says"), BROKEN)
def test_what_is_no_rule_or_taint_is_refused_with_its_place(
    members: dict[str, Any], says: str
) -> None:
    """One clear dead letter."""
    with pytest.raises(DecodeError) as caught:
        event_from_json(line_of(**members))
    assert caught.value.code is DeadLetterCode.BAD_EVENT
    assert says in caught.value.message


def test_a_topics_constraints_must_be_there() -> None:
    """What replaces the rules of a living topic is said, be it nothing."""
    line = json.dumps({"type": "topic_constraints", **COMMON, "topic": "t"})
    with pytest.raises(DecodeError, match="constraints is absent; a topic_constraints needs"):
        event_from_json(line)
    with pytest.raises(DecodeError, match="constraints is null; expected an object"):
        event_from_json(line[:-1] + ',"constraints":null}')


# Messages.


events = Events()


def test_an_effect_of_tomorrow_is_refused() -> None:
    """It would keep away nobody knows what."""
    data = encode_event(events.join(taints=(TAINT,)))
    assert data.endswith(b"\x02k\x02v\x00\x00")  # the effect, and the end of the taints
    with pytest.raises(DecodeError, match="an enum's index is 3; expected 0 to 2"):
        decode_event(data[:-2] + b"\x06\x00", kind="spu")


def test_a_number_that_no_message_can_hold_is_not_sent() -> None:
    asked = events.create(constraints=Constraints(prefer=(Preference("a", 2**31),)))
    with pytest.raises(EncodeError, match="2147483648"):
        encode_event(asked)
