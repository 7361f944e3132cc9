"""Which lists constraints permit, and which are best: by trying all, from the rules' definitions.

Independent of the product: it parses selectors by itself and knows no table, tree or search.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spu_assigner.core.base.constraints import Constraints, TaintEffect
from spu_assigner.core.base.events import Policy, SpuJoined
from spu_assigner.core.base.records import ReplicaMap, SpuChanged, TopicStatus
from spu_assigner.core.state.cluster_state import ClusterState
from support.events.builders import Events
from support.events.one_cluster import OneCluster, the_status

Labels = Mapping[str, str]


class Oracle:
    def __init__(
        self, case: ConstrainedCase, demanded: Mapping[str, Collection[str]] | None = None
    ) -> None:
        """`demanded`: the values of which `min` of levels speaks; None: those that the rules of
        the case permit."""
        self._case = case
        self._spus = {join.spu_id: join for join in case.joins}
        self._labels = {spu_id: labels_of(join) for spu_id, join in self._spus.items()}
        self._rules = Events().create(constraints=case.constraints).constraints or Constraints()
        labels = [level.label for level in self._rules.spread]
        self._levels = labels if "rack" in labels else ["rack", *labels]
        held = Counter(spu_id for _, row in case.others for spu_id in row)
        self._free = {i: (join.capacity or 0) - held[i] for i, join in self._spus.items()}
        self.is_ample = all(free >= case.partitions for free in self._free.values())
        permitted = [spu_id for spu_id in self._spus if self._is_permitted(spu_id)]
        self.demanded = demanded or {
            label: {self._labels[i].get(label, "") for i in permitted} for label in self._levels
        }
        able = [spu_id for spu_id in permitted if self._free[spu_id] > 0]
        self.lists = [
            row for row in itertools.combinations(able, case.replicas) if self._may_be(row)
        ]

    def is_possible(self) -> bool:
        return next(self._ways(), None) is not None

    def best_score(self) -> tuple[int, ...]:
        """Of one list, where all SPUs have room."""
        return min(map(self.score, self.lists))

    def is_valid(self, rows: Sequence[Sequence[int]]) -> bool:
        held = Counter(spu_id for row in rows for spu_id in row)
        return all(held[i] <= self._free[i] for i in held) and all(
            tuple(sorted(row)) in self.lists and self._may_lead(row[0]) for row in rows
        )

    def score(self, row: Sequence[int]) -> tuple[int, ...]:
        """Pairs by level, less weights, rank of the best leader."""
        levels = (_counts(row, self._labels, label) for label in self._levels)
        return (
            *map(_pairs, levels),
            -_weight(self._rules, row, self._labels),
            min(self.rank(i) for i in row if self._may_lead(i)),
        )

    def rank(self, spu_id: int) -> int:
        """Of a leader."""
        return _rank(self._rules, self._labels[spu_id])

    def _ways(self) -> Iterator[tuple[List, ...]]:
        for way in itertools.combinations_with_replacement(self.lists, self._case.partitions):
            held = Counter(spu_id for row in way for spu_id in row)
            if all(held[i] <= self._free[i] for i in held):
                yield way

    def _may_lead(self, spu_id: int) -> bool:
        return TaintEffect.NO_LEADERS not in effects_on(self._rules, self._spus[spu_id])

    def _is_permitted(self, spu_id: int) -> bool:
        others = dict(self._case.others)
        return (
            permits(self._rules, self._spus[spu_id])
            and not any(spu_id in others[name] for name in self._rules.apart_from)
            and all(spu_id in others[name] for name in self._rules.together_with)
        )

    def _may_be(self, row: List) -> bool:
        faults = _broken(self._rules, row, self._labels, self.demanded)
        return not any(faults) and any(map(self._may_lead, row))


def holds(selector: str, labels: Labels) -> bool:
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


def answered(case: ConstrainedCase) -> tuple[list[list[int]] | None, TopicStatus]:
    life = OneCluster(*case.joins, default=Policy.BALANCED)
    for name, row in case.others:
        life.adopt(name, list(row))
    status = the_status(
        life.create("t", case.partitions, case.replicas, constraints=case.constraints)
    )
    return life.lists("t") if "t" in life.state.topics else None, status


def labels_of(spu: SpuChanged | SpuJoined) -> dict[str, str]:
    return {**dict(spu.labels or {}), "rack": spu.rack or "", "spu_id": str(spu.spu_id)}


def effects_on(rules: Constraints, spu: SpuChanged | SpuJoined) -> set[TaintEffect]:
    """Of the taints that the rules do not tolerate."""
    return {
        taint.effect
        for taint in spu.taints
        if not any(
            each.key == taint.key and each.value in (None, taint.value)
            for each in rules.tolerations
        )
    }


def permits(rules: Constraints, spu: SpuChanged | SpuJoined) -> bool:
    """Whether taints and selectors let replicas come to an SPU."""
    is_tainted = bool(effects_on(rules, spu) - {TaintEffect.NO_LEADERS})
    return not is_tainted and _is_selected(rules, labels_of(spu))


def _is_selected(rules: Constraints, labels: Labels) -> bool:
    is_required = all(holds(each, labels) for each in rules.require)
    return is_required and not any(holds(each, labels) for each in rules.forbid)


def worsened(
    state: ClusterState,
    maps: Mapping[str, ReplicaMap],
    before: Mapping[str, Sequence[Sequence[int]]],
    after: Mapping[str, Sequence[Sequence[int]]],
) -> Iterator[str]:
    labels = {int(spu_id): labels_of(spu) for spu_id, spu in state.spus.items()}
    followers = frozenset(map(int, state.demoted))  # SPUs that may be to lead nothing
    held = [{name: _spus(lists) for name, lists in each.items()} for each in (before, after)]
    for name in sorted(before.keys() & maps.keys()):  # A create that waited may have come since.
        record = maps[name]
        rules = record.constraints or Constraints()
        for was, now in zip(before[name], after[name], strict=True):
            if record.constraints is not None and was != now and len(was) == len(now):
                wanted = demanded(state, name, before)
                is_repaired = _breaks(rules, now, labels, held[1], wanted) < _breaks(
                    rules, was, labels, held[0], wanted
                )
                for fault in _of_list(
                    rules, was, now, labels, wanted, ignore_rack=record.ignore_rack
                ):
                    if not is_repaired:
                        yield f"{name}: {was} became {now}: {fault}"
                if is_repaired:
                    continue
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


def broken_levels(state: ClusterState, name: str, row: Sequence[int]) -> Iterator[str]:
    rules = state.topics[name].constraints or Constraints()
    labels = {int(spu_id): labels_of(spu) for spu_id, spu in state.spus.items()}
    names_topics = bool(rules.apart_from or rules.together_with or state.apart_from.get(name))
    wanted = {} if names_topics else demanded(state, name, {})
    for fault in _broken(rules, row, labels, wanted):
        yield f"{name} has {row}: {fault}"


def _broken(
    rules: Constraints,
    row: Sequence[int],
    labels: Mapping[int, Labels],
    demanded: Mapping[str, Collection[str]],
) -> Iterator[str]:
    for level in rules.spread:
        counts = _counts(row, labels, level.label)
        if level.max is not None and max(counts.values(), default=0) > level.max:
            yield f"{dict(counts)} of {level.label}, at most {level.max} allowed"
        for value in () if level.min is None else demanded.get(level.label, ()):
            if counts[value] < (level.min or 0):
                yield f"{dict(counts)} of {level.label}, at least {level.min} of {value!r} demanded"


def demanded(
    state: ClusterState, name: str, lists: Mapping[str, Collection[Any]]
) -> dict[str, set[str]]:
    """Of each label of `spread` the values of which its `min` speaks: of SPUs that do not leave,
    where the other hard rules permit replicas. `lists`: of each topic its SPUs, or its lists."""
    rules = state.topics[name].constraints or Constraints()
    held = {
        other: {spu for each in rows for spu in (each if isinstance(each, Sequence) else [each])}
        for other, rows in lists.items()
    }
    found: dict[str, set[str]] = {level.label: set() for level in rules.spread}
    for spu_id, spu in state.spus.items():
        apart = {*rules.apart_from, *state.apart_from.get(name, ())} & held.keys()
        if (
            not spu.leaving
            and permits(rules, spu)
            and not any(spu_id in held[other] for other in apart)
            and all(spu_id in held.get(other, {spu_id}) for other in rules.together_with)
        ):
            for label, values in found.items():
                values.add(labels_of(spu).get(label, ""))
    return found


def _of_list(
    rules: Constraints,
    was: Sequence[int],
    now: Sequence[int],
    labels: Mapping[int, Labels],
    demanded: Mapping[str, Collection[str]],
    *,
    ignore_rack: bool,
) -> Iterator[str]:
    levels = [(level.label, level.max, level.min) for level in rules.spread]
    if not ignore_rack and all(label != "rack" for label, *_ in levels):
        levels.append(("rack", None, None))
    for label, most, least in levels:
        before, after = (_counts(row, labels, label) for row in (was, now))
        for value, count in after.items():
            if most is not None and count > max(most, before[value]):
                yield f"{count} on {label} {value!r}"
        for value, count in before.items() if least is not None else ():
            if value in demanded[label] and after[value] < min(least, count):
                yield f"{after[value]} on {label} {value!r}, not {least}"
        if _pairs(after) > _pairs(before):
            yield f"less even over {label}"
    weights = [_weight(rules, row, labels) for row in (was, now)]
    if weights[1] < weights[0]:
        yield f"preferences weigh {weights[1]}, not {weights[0]}"


def _breaks(
    rules: Constraints,
    row: Sequence[int],
    labels: Mapping[int, Labels],
    held: Mapping[str, Collection[int]],
    demanded: Mapping[str, Collection[str]],
) -> int:
    """Replicas of a list that break a hard rule, or are missing by one."""
    count = sum(
        not _is_selected(rules, labels[spu])
        or any(spu in held.get(other, ()) for other in rules.apart_from)
        or any(spu not in held.get(other, (spu,)) for other in rules.together_with)
        for spu in row
    )
    for level in rules.spread:
        counts = _counts(row, labels, level.label)
        if level.max is not None:
            count += sum(max(0, n - level.max) for n in counts.values())
        for value in () if level.min is None else demanded.get(level.label, ()):
            count += max(0, (level.min or 0) - counts[value])
    return count


def _counts(row: Sequence[int], labels: Mapping[int, Labels], label: str) -> Counter[str]:
    return Counter(labels[spu].get(label, "") for spu in row)


def _pairs(counts: Counter[str]) -> int:
    """Of replicas that share a value."""
    return sum(count * (count - 1) // 2 for count in counts.values())


def _weight(rules: Constraints, row: Sequence[int], labels: Mapping[int, Labels]) -> int:
    return sum(
        each.weight for spu in row for each in rules.prefer if holds(each.select, labels[spu])
    )


def _rank(rules: Constraints, labels: Labels) -> int:
    ranks = [at for at, each in enumerate(rules.leaders) if holds(each, labels)]
    return min(ranks, default=len(rules.leaders))


def _spus(lists: Sequence[Sequence[int]]) -> set[int]:
    return {spu for row in lists for spu in row}


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
