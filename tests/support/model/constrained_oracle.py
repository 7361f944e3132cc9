"""Which lists constraints permit, and which are best: by trying all, from the rules' definitions.

Independent of the product: it parses selectors by itself and knows no table, tree or search.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spu_assigner.core.base.constraints import Constraints, TaintEffect, untolerated
from spu_assigner.core.base.events import Event, Policy, SpuId, SpuJoined
from spu_assigner.core.base.records import Record, ReplicaMap, TopicStatus, plain_records
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.json_lines.lines import event_from_json
from support.events.builders import Events

List = tuple[int, ...]


@dataclass(frozen=True)
class ConstrainedCase:
    """SPUs, topics that are there, and a request."""

    joins: tuple[SpuJoined, ...]
    others: tuple[tuple[str, List], ...]  # topics of one list
    constraints: dict[str, Any]
    partitions: int
    replicas: int


def random_case(seed: int) -> ConstrainedCase:
    """Up to 8 SPUs and 6 rules; about half of them can be met."""
    chance = random.Random(seed)
    count = chance.randint(2, 8)
    scarce = chance.random() < 0.5
    events = Events()
    joins = [_random_join(chance, events, spu_id, scarce) for spu_id in range(count)]
    others = []
    for name in ("t2", "t3"):
        free = [
            join.spu_id
            for join in joins
            if all(taint.effect is not TaintEffect.EVICT for taint in join.taints)
        ]
        if len(free) > 1:
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
    event = event_from_json(
        json.dumps(
            {
                "type": "spu_joined",
                "event_id": events.join().event_id,
                "cluster_id": "c1",
                "spu_id": spu_id,
                "rack": chance.choice(("r1", "r2", "r3")),
                "capacity": chance.randint(2, 4) if scarce else 9,
                "labels": labels,
                "taints": taints,
            }
        )
    )
    assert isinstance(event, SpuJoined)
    return event


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


class Oracle:
    """What a case permits."""

    def __init__(self, case: ConstrainedCase) -> None:
        self._case = case
        self._spus = {join.spu_id: join for join in case.joins}
        self._labels = {
            spu_id: {**(join.labels or {}), "rack": join.rack or "", "spu_id": str(spu_id)}
            for spu_id, join in self._spus.items()
        }
        self._rules = case.constraints
        held = Counter(spu_id for _, row in case.others for spu_id in row)
        self._free = {i: (join.capacity or 0) - held[i] for i, join in self._spus.items()}
        self.is_ample = all(free >= case.partitions for free in self._free.values())
        able = [spu_id for spu_id in self._spus if self.may_hold(spu_id)]
        self.lists = [
            row for row in itertools.combinations(able, case.replicas) if self._may_be(row)
        ]

    def is_possible(self) -> bool:
        """Whether the request can be met."""
        return next(self._ways(), None) is not None

    def best_score(self) -> tuple[int, ...]:
        """Of one list, where all SPUs have room."""
        return min(map(self.score, self.lists))

    def least_scores(self) -> tuple[int, ...]:
        """The least that the scores of the lists of any way to meet it come to together."""
        return min(tuple(map(sum, zip(*map(self.score, way), strict=True))) for way in self._ways())

    def is_valid(self, rows: Sequence[Sequence[int]]) -> bool:
        """Whether the rows hold every hard rule, leaders included, and have room."""
        held = Counter(spu_id for row in rows for spu_id in row)
        return all(held[i] <= self._free[i] for i in held) and all(
            tuple(sorted(row)) in self.lists and self.may_lead(row[0]) for row in rows
        )

    def score(self, row: Sequence[int]) -> tuple[int, ...]:
        """Pairs by level, less weights, rank of the best leader."""
        pairs = []
        for label, _ in self.levels():
            counts = Counter(self.value(i, label) for i in row)
            pairs.append(sum(count * (count - 1) // 2 for count in counts.values()))
        weight = sum(map(self.weight, row))
        return (*pairs, -weight, min(self.rank(i) for i in row if self.may_lead(i)))

    def levels(self) -> list[tuple[str, int | None]]:
        """Labels that lists are spread over, the outermost first, each with its maximum."""
        levels = [(each["label"], each.get("max")) for each in self._rules.get("spread", ())]
        if all(label != "rack" for label, _ in levels):
            levels.append(("rack", None))
        return levels

    def value(self, spu_id: int, label: str) -> str:
        return self._labels[spu_id].get(label, "")

    def weight(self, spu_id: int) -> int:
        """Of all preferences that hold."""
        return sum(
            each["weight"]
            for each in self._rules.get("prefer", ())
            if holds(each["select"], self._labels[spu_id])
        )

    def free(self, spu_id: int) -> int:
        return self._free[spu_id]

    @property
    def spu_ids(self) -> list[int]:
        return sorted(self._spus)

    def rank(self, spu_id: int) -> int:
        """Of a leader."""
        selectors = self._rules.get("leaders", ())
        ranks = [at for at, each in enumerate(selectors) if holds(each, self._labels[spu_id])]
        return min(ranks, default=len(selectors))

    def _ways(self) -> Iterator[tuple[List, ...]]:
        for way in itertools.combinations_with_replacement(self.lists, self._case.partitions):
            held = Counter(spu_id for row in way for spu_id in row)
            if all(held[i] <= self._free[i] for i in held):
                yield way

    def _effects(self, spu_id: int) -> list[str]:
        return [
            taint.effect.value
            for taint in self._spus[spu_id].taints
            if not any(
                each["key"] == taint.key and each.get("value", taint.value) == taint.value
                for each in self._rules.get("tolerations", ())
            )
        ]

    def may_lead(self, spu_id: int) -> bool:
        return "no_leaders" not in self._effects(spu_id)

    def may_hold(self, spu_id: int) -> bool:
        labels = self._labels[spu_id]
        others = dict(self._case.others)
        return (
            self._free[spu_id] > 0
            and not {"no_new_replicas", "evict"} & set(self._effects(spu_id))
            and all(holds(each, labels) for each in self._rules.get("require", ()))
            and not any(holds(each, labels) for each in self._rules.get("forbid", ()))
            and not any(spu_id in others[name] for name in self._rules.get("apart_from", ()))
            and all(spu_id in others[name] for name in self._rules.get("together_with", ()))
        )

    def _may_be(self, row: List) -> bool:
        for level in self._rules.get("spread", ()):
            counts = Counter(self._labels[i].get(level["label"], "") for i in row)
            if "max" in level and max(counts.values(), default=0) > level["max"]:
                return False
        return any(map(self.may_lead, row))


def holds(selector: str, labels: dict[str, str]) -> bool:
    """Whether a selector holds, read condition by condition."""
    while selector:
        head, _, rest = selector.partition("(")
        if (" in " in f"{head} " or "notin" in head) and "," not in head:
            inner, _, selector = rest.partition(")")
            selector = selector.lstrip(" ,")
            values = [value.strip() for value in inner.split(",")]
            key, word = head.split()
            if (labels.get(key) in values) is (word == "notin"):
                return False
            continue
        condition, _, selector = selector.partition(",")
        selector = selector.strip()
        condition = condition.strip()
        if condition.startswith("!"):
            is_met = condition[1:] not in labels
        elif "!=" in condition:
            key, value = (part.strip() for part in condition.split("!="))
            is_met = labels.get(key) != value
        elif "=" in condition:
            key, value = (part.strip() for part in condition.split("="))
            is_met = labels.get(key) == value
        else:
            is_met = condition in labels
        if not is_met:
            return False
    return True


def constraints_of(case: ConstrainedCase) -> Constraints:
    """The constraints as an event has them."""
    event = event_from_json(
        json.dumps(
            {
                "type": "topic_constraints",
                "event_id": "e",
                "cluster_id": "c1",
                "topic": "t",
                "constraints": case.constraints,
            }
        )
    )
    constraints: Constraints = event.constraints  # type: ignore[union-attr]
    return constraints


def answered(case: ConstrainedCase) -> tuple[list[list[int]] | None, TopicStatus]:
    """The lists that the core gives to the request of a case, and its status."""
    state, events = ClusterState("c1"), Events(first=100)

    def apply(event: Event) -> Sequence[Record]:
        return plain_records(step(state, event, default_policy=Policy.BALANCED))

    for join in case.joins:
        apply(join)
    for name, row in case.others:
        apply(events.adopt(name, list(row)))
    constraints = constraints_of(case)
    records = apply(events.create("t", case.partitions, case.replicas, constraints=constraints))
    rows = [
        each.replicas.tolist()
        for each in records
        if isinstance(each, ReplicaMap) and each.replicas is not None
    ]
    status = next(each for each in records if isinstance(each, TopicStatus))
    return (rows[0] if rows else None), status


def worsened(
    maps: Mapping[str, ReplicaMap],
    before: Mapping[str, Sequence[Sequence[int]]],
    after: Mapping[str, Sequence[Sequence[int]]],
    labels: Mapping[int, Mapping[str, str]],
    *,
    followers: frozenset[int],
) -> Iterator[str]:
    """What is worse after a rebalance; `followers` are SPUs that may be to lead nothing."""
    held = [{name: _spus(lists) for name, lists in each.items()} for each in (before, after)]
    for name in sorted(before.keys() & maps.keys()):  # A create that waited may have come since.
        record = maps[name]
        rules = record.constraints or Constraints()
        for was, now in zip(before[name], after[name], strict=True):
            if record.constraints is not None and was != now and len(was) == len(now):
                for fault in _of_list(rules, was, now, labels, ignore_rack=record.ignore_rack):
                    yield f"{name}: {was} became {now}: {fault}"
                led = [_rank(rules, labels[row[0]]) for row in (was, now)]
                if was[0] not in followers and led[1] > led[0]:
                    yield f"{name}: {was} became {now}, led by one that is preferred less"
        for other in rules.apart_from:
            met = [each[name] & each.get(other, set()) for each in held]
            if not met[1] <= met[0]:
                yield f"{name} met {other} on {met[1] - met[0]}"
        for other in rules.together_with:
            alone = [each[name] - each.get(other, each[name]) for each in held]
            if not alone[1] <= alone[0]:
                yield f"{name} is without {other} on {alone[1] - alone[0]}"


def permitted_lists(state: ClusterState, name: str, row: Sequence[int]) -> Iterator[List]:
    """What a rebalance may make of a list of a topic: all lists by which nothing is worse, itself
    included. Of two topics that are to be apart both may take an SPU here."""
    topic, spus = state.topics[name], state.spus
    rules = topic.constraints or Constraints()
    labels = {
        int(i): {**dict(spu.labels), "rack": spu.rack or "", "spu_id": str(i)}
        for i, spu in spus.items()
    }
    held = {other: _spus(each.replicas.lists().tolist()) for other, each in state.topics.items()}
    apart = {*rules.apart_from, *state.apart_from.get(name, ())} & held.keys()
    together = [other for other in rules.together_with if other in held]
    beside = [
        held[other]
        for other in sorted(state.constrained)
        if name in (state.topics[other].constraints or rules).together_with and other != name
    ]

    def is_closed(spu_id: int) -> bool:
        spu = spus[SpuId(spu_id)]
        effects = {taint.effect for taint in untolerated(spu.taints, rules.tolerations)}
        return not spu.online or spu.cordoned or bool(effects - {TaintEffect.NO_LEADERS})

    def may_take(spu_id: int) -> bool:
        return (
            not is_closed(spu_id)
            and all(holds(each, labels[spu_id]) for each in rules.require)
            and not any(holds(each, labels[spu_id]) for each in rules.forbid)
            and not any(spu_id in held[other] for other in apart)
            and all(spu_id in held[other] and spu_id in held[name] for other in together)
        )

    def barred(spu_id: int) -> bool:
        spu = spus[SpuId(spu_id)]
        effects = {taint.effect for taint in untolerated(spu.taints, rules.tolerations)}
        return spu.demoted or TaintEffect.NO_LEADERS in effects

    takers = [spu_id for spu_id in labels if spu_id not in row and may_take(spu_id)]
    ways = [
        [spu_id]
        if is_closed(spu_id) or any(spu_id in each for each in beside)
        else [spu_id, *takers]
        for spu_id in row
    ]
    racks = Counter(labels[spu_id]["rack"] for spu_id in row)
    for now in itertools.product(*ways):
        counts = Counter(labels[spu_id]["rack"] for spu_id in now)
        if len(set(now)) < len(now) or any(
            count > max(1, racks[rack]) for rack, count in counts.items()
        ):
            continue
        if now[0] != row[0] and barred(now[0]) and not barred(row[0]):
            continue
        if name in state.constrained:
            if any(_of_list(rules, row, now, labels, ignore_rack=topic.ignore_rack)):
                continue
            if _rank(rules, labels[now[0]]) > _rank(rules, labels[row[0]]):
                continue
        yield now


def _of_list(
    rules: Constraints,
    was: Sequence[int],
    now: Sequence[int],
    labels: Mapping[int, Mapping[str, str]],
    *,
    ignore_rack: bool,
) -> Iterator[str]:
    levels = [(level.label, level.max) for level in rules.spread]
    if not ignore_rack and all(label != "rack" for label, _ in levels):
        levels.append(("rack", None))
    for label, most in levels:
        counts = [Counter(labels[spu].get(label, "") for spu in row) for row in (was, now)]
        for value, count in counts[1].items():
            if most is not None and count > max(most, counts[0][value]):
                yield f"{count} on {label} {value!r}"
        pairs = [sum(count * (count - 1) for count in each.values()) for each in counts]
        if pairs[1] > pairs[0]:
            yield f"less even over {label}"
    weights = [
        sum(each.weight for spu in row for each in rules.prefer if holds(each.select, labels[spu]))
        for row in (was, now)
    ]
    if weights[1] < weights[0]:
        yield f"preferences weigh {weights[1]}, not {weights[0]}"


def _rank(rules: Constraints, labels: Mapping[str, str]) -> int:
    ranks = [at for at, each in enumerate(rules.leaders) if holds(each, dict(labels))]
    return min(ranks, default=len(rules.leaders))


def _spus(lists: Sequence[Sequence[int]]) -> set[int]:
    return {spu for row in lists for spu in row}
