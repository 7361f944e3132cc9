"""What the fields of an event take, coerce and refuse, whatever a caller without a type checker
gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core import (
    Assigner,
    AssignerError,
    Constraints,
    Event,
    InvalidEventError,
    LeaveMode,
    Policy,
    Record,
    ReplicaLists,
    SpreadLevel,
    SpuJoined,
    SpuLeft,
    Taint,
    TaintEffect,
    TopicAdopted,
    TopicCreate,
    TopicDemand,
    TopicGrow,
)

EVENTS: tuple[Any, ...] = get_args(Event)
# What each required field may be.
SOUND: Mapping[str, object] = {
    "event_id": "e",
    "cluster_id": "c",
    "topic": "t",
    "spu_id": 1,
    "partitions": 2,
    "replication_factor": 2,
    "max_moves": 3,
    "replicas": ((0, 1), (1, 0)),
    "demand": {"disk_bytes": 1},
    "constraints": Constraints(),
}


def event(cls: Any, **named: object) -> Any:
    required = {field.name for field in fields(cls) if field.default is MISSING}
    return cls(**{name: SOUND[name] for name in required} | named)


@pytest.mark.parametrize(
    ("cls", "named", "kept"),
    [
        (SpuLeft, {"mode": "decommission"}, LeaveMode.DECOMMISSION),
        (SpuLeft, {"spu_id": np.int64(7)}, 7),
        (SpuJoined, {"labels": {"zone": np.str_("a")}}, {"zone": "a"}),
        (
            SpuJoined,
            {"taints": [{"key": "k", "value": "v", "effect": "evict"}]},
            (Taint("k", "v", TaintEffect.EVICT),),
        ),
        (TopicCreate, {"policy": "kafka"}, Policy.KAFKA),
        (
            TopicCreate,
            {"constraints": {"require": ["a", "b"], "spread": [{"label": "zone", "max": 1}]}},
            Constraints(require=("a", "b"), spread=(SpreadLevel("zone", max=1),)),
        ),
        (TopicAdopted, {"replicas": [[0, 1], [1]]}, ((0, 1), (1,))),
        (TopicAdopted, {"replicas": ReplicaLists.of_lists([[0, 1], [1]])}, ((0, 1), (1,))),
    ],
    ids=str,
)
def test_what_json_can_say_of_a_field_is_coerced(
    cls: Any, named: dict[str, object], kept: object
) -> None:
    """A word of JSON compared by identity would be taken for another one without a word."""
    ((name, _),) = named.items()
    made = event(cls, **named)
    assert getattr(made, name) == kept
    assert made == event(cls, **{name: kept})
    assert type(getattr(made, name)) is type(kept)


@pytest.mark.parametrize(
    ("cls", "name", "value", "field", "expected"),
    [
        (SpuLeft, "mode", "bogus", "mode", "one of 'offline', 'decommission'"),
        (SpuLeft, "spu_id", "7", "spu_id", "a whole number"),
        (SpuLeft, "spu_id", True, "spu_id", "a whole number"),
        (SpuLeft, "event_id", "", "event_id", "1 to 256 characters"),
        (SpuLeft, "cluster_id", None, "cluster_id", "a text"),
        (SpuJoined, "labels", {"zone": 1}, "labels.zone", "a text"),
        (SpuJoined, "labels", [("zone", "a")], "labels", "a mapping"),
        (SpuJoined, "resources", {"disk_bytes": 1.5}, "resources.disk_bytes", "a whole number"),
        (SpuJoined, "taints", [("k", "v", "evict")], "taints[0]", "Taint, or a mapping"),
        (TopicCreate, "topic", "a b", "topic", "1 to 249 of"),
        (TopicCreate, "ignore_rack", "false", "ignore_rack", "True or False"),
        (TopicCreate, "constraints", {"must": ["a"]}, "constraints", "with the fields tolerations"),
        (
            TopicCreate,
            "constraints",
            {"spread": [{"label": "zone", "max": "1"}]},
            "constraints.spread[0].max",
            "a whole number",
        ),
        (TopicAdopted, "replicas", [[0, "1"]], "replicas[0][1]", "a whole number"),
    ],
    ids=str,
)
def test_what_a_field_cannot_hold_is_refused_by_name(
    cls: Any, name: str, value: object, field: str, expected: str
) -> None:
    with pytest.raises(InvalidEventError) as caught:
        event(cls, **{name: value})
    error = caught.value
    assert isinstance(error, AssignerError)
    assert error.field == field
    assert expected in error.expected
    assert str(error).startswith(f"{field} is ")
    assert str(error).endswith(f"; expected {error.expected}")


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Constraints(require="tier in (ssd)"), "require"),  # type: ignore[arg-type]
        (lambda: Constraints(spread=("zone",)), "spread[0]"),  # type: ignore[arg-type]
        (lambda: Taint("k", "v", "evicted"), "effect"),  # type: ignore[arg-type]
        (lambda: SpreadLevel("zone", max=True), "max"),
        (lambda: Assigner("bogus"), "default_policy"),  # type: ignore[arg-type]
    ],
)
def test_what_an_event_is_made_of_is_refused_alike(make: Callable[[], object], field: str) -> None:
    with pytest.raises(InvalidEventError) as caught:
        make()
    assert caught.value.field == field


@settings(max_examples=200)
@given(
    data=st.data(),
    cls=st.sampled_from(EVENTS),
    value=st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(),
        st.lists(st.one_of(st.integers(), st.text(), st.none())),
        st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.floats(), st.text())),
        st.sampled_from([object(), {1}, 1j, len, Policy, Policy.KAFKA, TopicCreate, np.zeros(2)]),
    ),
)
def test_an_event_holds_what_its_types_say_or_is_not_made(
    data: st.DataObject, cls: Any, value: object
) -> None:
    """Whatever is given for whatever field: no other exception, and what is made can be decided."""
    name = data.draw(st.sampled_from([field.name for field in fields(cls)]))
    try:
        made = event(cls, **{name: value})
    except InvalidEventError:
        return
    kept = getattr(made, name)
    hint = get_type_hints(cls)[name]
    if hint in (int, str, bool):
        assert type(kept) is hint
    assert event(cls, **{name: kept}) == made
    Assigner().apply(made)


def test_a_mapping_is_copied() -> None:
    demand = {"disk_bytes": 1}
    made = event(TopicDemand, demand=demand)
    demand["disk_bytes"] = 2
    assert made.demand == {"disk_bytes": 1}


GROW = TopicGrow(event_id="e1", cluster_id="c1", topic="t", partitions=3)


@pytest.mark.parametrize("cls", [*get_args(Event), *get_args(Record)])
def test_dataclasses_knows_the_fields_of_each(cls: type) -> None:
    """In the order of their keywords, base classes first; whoever embeds the core may read them."""
    assert is_dataclass(cls)
    assert [each.name for each in fields(cls)] == list(cls.__struct_fields__)  # type: ignore[attr-defined]


def test_a_replaced_event_is_checked_like_a_new_one() -> None:
    assert replace(GROW, partitions=4) == TopicGrow(
        event_id="e1", cluster_id="c1", topic="t", partitions=4
    )
    assert replace(SpuLeft(event_id="e", cluster_id="c", spu_id=1), mode="offline").mode is (  # type: ignore[arg-type]
        LeaveMode.OFFLINE
    )
    with pytest.raises(InvalidEventError, match="partitions"):
        replace(GROW, partitions="4")  # type: ignore[arg-type]
