"""Which lists constraints permit, and which are best: by trying all, from the rules' definitions.

Independent of the product: it parses selectors by itself and knows no table, tree or search.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from spu_assigner.core.base.constraints import Constraints, TaintEffect, untolerated
from spu_assigner.core.base.events import Policy, SpuId
from spu_assigner.core.base.records import ReplicaMap, SpuChanged, TopicStatus
from spu_assigner.core.state.cluster_state import ClusterState
from support.events.constrained_cases import ConstrainedCase, List
from support.events.one_cluster import OneCluster, the_status


class Oracle:
    def __init__(
        self, case: ConstrainedCase, demanded: Mapping[str, Collection[str]] | None = None
    ) -> None:
        """`demanded`: the values of which `min` of levels speaks; None: those that the rules of
        the case permit."""
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
        self.demanded = self._permitted() if demanded is None else demanded
        able = [spu_id for spu_id in self._spus if self.may_hold(spu_id)]
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
        """Labels that lists are spread over, in order of preference, each with its maximum."""
        levels = [(each["label"], each.get("max")) for each in self._rules.get("spread", ())]
        if all(label != "rack" for label, _ in levels):
            levels.insert(0, ("rack", None))
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
        return self._free[spu_id] > 0 and self._is_permitted(spu_id)

    def least(self) -> dict[str, int]:
        levels = self._rules.get("spread", ())
        return {each["label"]: each["min"] for each in levels if "min" in each}

    def _permitted(self) -> dict[str, set[str]]:
        """Of each label that lists are spread over the values that the rules permit."""
        able = [spu_id for spu_id in self._spus if self._is_permitted(spu_id)]
        return {label: {self.value(i, label) for i in able} for label, _ in self.levels()}

    def _is_permitted(self, spu_id: int) -> bool:
        labels = self._labels[spu_id]
        others = dict(self._case.others)
        return (
            not {"no_new_replicas", "evict"} & set(self._effects(spu_id))
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
            for value in self.demanded[level["label"]] if "min" in level else ():
                if counts[value] < level["min"]:
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


def answered(case: ConstrainedCase) -> tuple[list[list[int]] | None, TopicStatus]:
    life = OneCluster(*case.joins, default=Policy.BALANCED)
    for name, row in case.others:
        life.adopt(name, list(row))
    status = the_status(
        life.create("t", case.partitions, case.replicas, constraints=case.constraints)
    )
    return life.lists("t") if "t" in life.state.topics else None, status


def labels_of(spu: SpuChanged) -> dict[str, str]:
    return {**dict(spu.labels), "rack": spu.rack or "", "spu_id": str(spu.spu_id)}


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
                is_repaired = _breaks(rules, now, labels, held[1]) < _breaks(
                    rules, was, labels, held[0]
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
    names_topics = bool(rules.apart_from or rules.together_with or state.apart_from.get(name))
    wanted = demanded(state, name, {})
    for level in rules.spread:
        values = [labels_of(state.spus[SpuId(spu_id)]).get(level.label, "") for spu_id in row]
        if level.max is not None and max(map(values.count, values)) > level.max:
            yield f"{name} has {row} on {values}, at most {level.max} allowed"
        for value in () if level.min is None or names_topics else wanted[level.label]:
            if values.count(value) < (level.min or 0):
                yield f"{name} has {row} on {values}, at least {level.min} demanded on {value!r}"


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
        labels = labels_of(spu)
        effects = {taint.effect for taint in untolerated(spu.taints, rules.tolerations)}
        apart = {*rules.apart_from, *state.apart_from.get(name, ())} & held.keys()
        if (
            not spu.leaving
            and not effects - {TaintEffect.NO_LEADERS}
            and all(holds(each, labels) for each in rules.require)
            and not any(holds(each, labels) for each in rules.forbid)
            and not any(spu_id in held[other] for other in apart)
            and all(spu_id in held.get(other, {spu_id}) for other in rules.together_with)
        ):
            for label, values in found.items():
                values.add(labels.get(label, ""))
    return found


def _of_list(
    rules: Constraints,
    was: Sequence[int],
    now: Sequence[int],
    labels: Mapping[int, Mapping[str, str]],
    demanded: Mapping[str, Collection[str]],
    *,
    ignore_rack: bool,
) -> Iterator[str]:
    levels = [(level.label, level.max, level.min) for level in rules.spread]
    if not ignore_rack and all(label != "rack" for label, *_ in levels):
        levels.append(("rack", None, None))
    for label, most, least in levels:
        counts = [Counter(labels[spu].get(label, "") for spu in row) for row in (was, now)]
        for value, count in counts[1].items():
            if most is not None and count > max(most, counts[0][value]):
                yield f"{count} on {label} {value!r}"
        for value, count in counts[0].items() if least is not None else ():
            if value in demanded[label] and counts[1][value] < min(least, count):
                yield f"{counts[1][value]} on {label} {value!r}, not {least}"
        pairs = [sum(count * (count - 1) for count in each.values()) for each in counts]
        if pairs[1] > pairs[0]:
            yield f"less even over {label}"
    weights = [
        sum(each.weight for spu in row for each in rules.prefer if holds(each.select, labels[spu]))
        for row in (was, now)
    ]
    if weights[1] < weights[0]:
        yield f"preferences weigh {weights[1]}, not {weights[0]}"


def _breaks(
    rules: Constraints,
    row: Sequence[int],
    labels: Mapping[int, Mapping[str, str]],
    held: Mapping[str, Collection[int]],
) -> int:
    """Replicas of a list that break a hard rule."""
    count = 0
    for spu in row:
        of_spu = labels[spu]
        count += (
            not all(holds(each, of_spu) for each in rules.require)
            or any(holds(each, of_spu) for each in rules.forbid)
            or any(spu in held.get(other, ()) for other in rules.apart_from)
            or any(spu not in held.get(other, (spu,)) for other in rules.together_with)
        )
    for level in rules.spread:
        counts = Counter(labels[spu].get(level.label, "") for spu in row)
        if level.max is not None:
            count += sum(max(0, n - level.max) for n in counts.values())
    return count


def _rank(rules: Constraints, labels: Mapping[str, str]) -> int:
    ranks = [at for at, each in enumerate(rules.leaders) if holds(each, dict(labels))]
    return min(ranks, default=len(rules.leaders))


def _spus(lists: Sequence[Sequence[int]]) -> set[int]:
    return {spu for row in lists for spu in row}
