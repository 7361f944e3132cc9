"""Random clusters with rules on where a topic may be, and a request for it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from spu_assigner.core.base.constraints import TaintEffect
from spu_assigner.core.base.events import SpuJoined
from support.events.builders import Events

List = tuple[int, ...]


@dataclass(frozen=True)
class ConstrainedCase:
    joins: tuple[SpuJoined, ...]
    others: tuple[tuple[str, List], ...]  # topics of one list
    constraints: dict[str, Any]
    partitions: int
    replicas: int


def random_case(seed: int, *, with_min: bool = False) -> ConstrainedCase:
    """Up to 8 SPUs and 6 rules; about half of them can be met.

    `with_min`: the same, and some level demands replicas of each value.
    """
    case, chance = _random_case(seed), random.Random(f"min {seed}")
    if not with_min:
        return case
    levels = [dict(each) for each in case.constraints.get("spread", ())]
    levels = levels or [{"label": chance.choice(("zone", "tier", "power", "rack"))}]
    demanding = chance.sample(levels, chance.choice((1, 1, 2)) if len(levels) > 1 else 1)
    for level in demanding:
        level["min"] = min(chance.choice((1, 1, 1, 2)), level.get("max", 2))
    replicas = min(case.replicas + chance.choice((0, 0, 1)), 4)
    constraints = {**case.constraints, "spread": levels}
    return replace(case, constraints=constraints, replicas=replicas)


def _random_case(seed: int) -> ConstrainedCase:
    chance = random.Random(seed)
    count = chance.randint(2, 8)
    scarce = chance.random() < 0.5
    events = Events()
    joins = [_random_join(chance, events, spu_id, scarce) for spu_id in range(count)]
    others = []
    evicting = {join.spu_id for join in joins for t in join.taints if t.effect is TaintEffect.EVICT}
    free = [join.spu_id for join in joins if join.spu_id not in evicting]
    for name in ("t2", "t3") if len(free) > 1 else ():
        others.append((name, tuple(chance.sample(free, chance.randint(1, 2)))))
    names = [name for name, _ in others]
    constraints: dict[str, Any] = {}
    for _ in range(chance.randint(0, 6)):
        _add_rule(chance, constraints, names)
    return ConstrainedCase(
        joins=tuple(joins),
        others=tuple(others),
        constraints=constraints,
        partitions=chance.randint(1, 3),
        replicas=chance.randint(1, 4),
    )


def _random_join(chance: random.Random, events: Events, spu_id: int, scarce: bool) -> SpuJoined:
    labels = {
        key: chance.choice(values)
        for key, values in (("zone", "abc"), ("tier", ("ssd", "hdd")), ("power", "xy"))
        if chance.random() < 0.85
    }
    taints = []
    for key, effect in (("pool", "no_new_replicas"), ("weak", "no_leaders"), ("old", "evict")):
        if chance.random() < 0.15:
            taints.append({"key": key, "value": chance.choice("uv"), "effect": effect})
    rack = chance.choice(("r1", "r2", "r3"))
    capacity = chance.randint(2, 4) if scarce else 9
    return events.join(spu_id, rack=rack, capacity=capacity, labels=labels, taints=taints)


def _random_selector(chance: random.Random) -> str:
    key, values = chance.choice((("zone", "abc"), ("tier", ("ssd", "hdd")), ("power", "xy")))
    some = ", ".join(chance.sample(list(values), chance.randint(1, 2)))
    forms = (
        *(key, f"!{key}", f"{key}={values[0]}", f"{key} != {values[1]}"),
        *(f"{key} in ({some})", f"{key} notin ({some})"),
        *("spu_id notin (0, 3)", "rack != r1", f"{key},{key}!={values[0]}"),
    )
    return chance.choice(forms)


def _add_rule(chance: random.Random, constraints: dict[str, Any], names: Sequence[str]) -> None:
    kind = chance.choice(
        ("tolerations", "require", "forbid", "prefer", "spread", "spread", "leaders")
        + (("apart_from", "together_with") if names else ())
    )
    rules = constraints.setdefault(kind, [])
    match kind:
        case "tolerations":
            rule: Any = {"key": chance.choice(("pool", "weak", "old"))}
            if chance.random() < 0.5:
                rule["value"] = chance.choice("uv")
        case "prefer":
            rule = {"select": _random_selector(chance), "weight": chance.choice((-5, 1, 2, 10))}
        case "spread":
            label = chance.choice(("zone", "tier", "power", "rack"))
            rule = {"label": label}
            if chance.random() < 0.6:
                rule["max"] = chance.randint(1, 2)
            if any(known["label"] == label for known in rules):
                return
        case "apart_from" | "together_with":
            rule = chance.choice(names)
        case _:
            rule = _random_selector(chance)
    rules.append(rule)
