"""What a join takes over of an SPU that is known: `produce spu-joined --keep`, and `follow`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from spu_assigner.core.base.constraints import Taint, TaintEffect
from spu_assigner.core.base.limits import default_capacity
from spu_assigner.stream.client.announced import (
    Changes,
    Described,
    described_over,
    entries_of,
    entry_text,
)

NO_LEADERS = Taint("pool", "pay", TaintEffect.NO_LEADERS)
EVICT = Taint("pool", "pay", TaintEffect.EVICT)
BEFORE = Described(
    rack="a",
    cores=2,
    capacity=50,
    labels={"zone": "a", "tier": "ssd"},
    resources={"disk_bytes": 9, "net": 1},
    taints=(NO_LEADERS,),
)


def over(before: Described | None, **named: Any) -> Described:
    changes: Changes = entries_of(named.pop("labels", {}), named.pop("taints", ()))
    changes = {**changes, **named.pop("changes", {})}
    return described_over(before, changes, **named)


@pytest.mark.parametrize(
    ("named", "changed"),
    [
        ({}, {}),
        ({"rack": "b"}, {"rack": "b"}),
        ({"capacity": 0}, {"capacity": 0}),
        ({"cores": 2}, {}),
        ({"cores": 3}, {"cores": 3, "capacity": default_capacity(3)}),
        ({"cores": 3, "capacity": 7}, {"cores": 3, "capacity": 7}),
        ({"labels": {"zone": "b"}}, {"labels": {"zone": "b", "tier": "ssd"}}),
        ({"changes": {"zone": None, "no": None}}, {"labels": {"tier": "ssd"}}),
        ({"changes": {("pool", TaintEffect.NO_LEADERS): None}}, {"taints": ()}),
        ({"changes": {("pool", TaintEffect.EVICT): None}}, {}),
        ({"resources": {"cpu": 4}}, {"resources": {"disk_bytes": 9, "net": 1, "cpu": 4}}),
        ({"taints": (EVICT,)}, {"taints": (EVICT, NO_LEADERS)}),
        (
            {"taints": (Taint("pool", "x", TaintEffect.NO_LEADERS),)},
            {"taints": (Taint("pool", "x", TaintEffect.NO_LEADERS),)},
        ),
    ],
)
def test_what_is_not_named_stays(named: dict[str, Any], changed: dict[str, Any]) -> None:
    """A taint is replaced by one of the same key and effect."""
    assert over(BEFORE, **named) == replace(BEFORE, **changed)


def test_a_label_and_a_taint_are_shown_as_kubectl_writes_them() -> None:
    """What is shown can be given again."""
    entries = entries_of({"tier": "ssd", "a": ""}, (EVICT, Taint("k", "", TaintEffect.NO_LEADERS)))
    shown = [entry_text(*each) for each in entries.items()]
    assert shown == ["tier=ssd", "a=", "pool=pay:evict", "k:no_leaders"]


def test_an_spu_that_is_not_known_has_what_is_named_alone() -> None:
    """One core unless more are named, as in any join."""
    assert over(None) == Described(rack=None, cores=1, capacity=default_capacity(1), labels={})
    assert over(None, rack="a", labels={"x": "y"}).labels == {"x": "y"}
