"""Random clusters and rules, held against all ways to place a request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from spu_assigner.core.base.constraints import TaintEffect
from spu_assigner.core.base.errors import Code
from support.model.constrained_oracle import ConstrainedCase, Oracle, answered, random_case
from support.project.case_share import share_of

SEEDS = share_of(200)  # of each part; more by `SPU_ASSIGNER_TEST_CASES`
PARTS = 6

Rule = tuple[str, Any]  # of which kind, and which


def drawn(part: int) -> Iterator[tuple[str, ConstrainedCase]]:
    for seed in range(part * SEEDS, (part + 1) * SEEDS):
        for with_min in (False, True):
            case = random_case(seed, with_min=with_min)
            if case.constraints:
                yield f"{seed}, with_min={with_min}", case


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_possible_is_given_with_the_best_score_and_nothing_else(part: int) -> None:
    """What is given holds every hard rule, and is led by who meets the first selector; each list
    has the best score where there is room."""
    compared = 0
    for seed, case in drawn(part):
        oracle = Oracle(case)
        rows, status = answered(case)
        assert (rows is not None) is oracle.is_possible(), (seed, status)
        if rows is None:
            continue
        scores = [oracle.score(row) for row in rows]
        assert oracle.is_valid(rows), (seed, rows)
        assert [oracle.rank(row[0]) for row in rows] == [score[-1] for score in scores], seed
        if oracle.is_ample:
            compared += 1
            assert scores == [oracle.best_score()] * len(rows), seed
    assert compared >= SEEDS // 8


@pytest.mark.parametrize("part", range(PARTS))
def test_a_refusal_names_rules_that_conflict_and_none_that_can_be_spared(part: int) -> None:
    compared = 0
    for seed, case in drawn(part):
        rows, status = answered(case)
        if rows is not None:
            continue
        empty, rules = emptied(case), rules_of(case)
        if may_be_met(empty, {*rules}) or not may_be_met(empty, set()):
            assert status.code in (Code.INSUFFICIENT_CAPACITY, Code.INSUFFICIENT_SPUS), seed
            continue
        compared += 1
        assert status.code is Code.UNSATISFIABLE, (seed, status)
        named = named_rules(status.message or "")
        assert named <= rules.keys(), (seed, status.message)
        assert not may_be_met(empty, named), (seed, status.message)
        for rule in named:
            assert may_be_met(empty, named - {rule}), (seed, rule, status.message)
    assert compared > SEEDS / 8


def emptied(case: ConstrainedCase) -> ConstrainedCase:
    held = Counter(spu_id for _, row in case.others for spu_id in row)
    joins = [
        replace(each, capacity=(each.capacity or 0) + held[each.spu_id]) for each in case.joins
    ]
    return replace(case, joins=tuple(joins))


def named_rules(message: str) -> set[str]:
    """What a refusal names, with how much it excludes in brackets behind each."""
    found = re.split(r" \((?:excludes \d+ SPUs?|\d+ values?|\d+ SPUs? may not lead)\)", message)
    return {text.split("cannot hold ")[-1].removeprefix(" and ") for text in found[:-1]}


def rules_of(case: ConstrainedCase) -> dict[str, Rule]:
    """By what a refusal calls them."""
    found: dict[str, Rule] = {}
    for name in ("require", "forbid", "apart_from", "together_with"):
        entries = case.constraints.get(name, [])
        for each in entries:  # One may be given twice.
            found[f"{name}[{entries.index(each)}] {each!r}"] = name, each
    for at, level in enumerate(case.constraints.get("spread", ())):
        for name in ("max", "min"):
            if name in level:
                found[f"spread[{at}] {level['label']!r} {name} {level[name]}"] = name, at
    for taint in {taint for join in case.joins for taint in join.taints}:
        is_barring = taint.effect is TaintEffect.NO_LEADERS
        text = f"taint {taint.key}={taint.value}:{taint.effect.value}"
        found["taints against leading" if is_barring else text] = (
            ("effect", taint.effect) if is_barring else ("taint", taint)
        )
    return found


def may_be_met(case: ConstrainedCase, kept: set[str]) -> bool:
    """Whether the request can be met under these rules alone. What `min` demands is of the values
    that all rules permit, whichever of them are kept."""
    demanded = Oracle(case).demanded
    for text, rule in rules_of(case).items():
        if text not in kept:
            case = without(case, *rule)
    return Oracle(case, demanded).is_possible()


def without(case: ConstrainedCase, name: str, what: Any) -> ConstrainedCase:
    if name in ("taint", "effect"):
        joins = [
            replace(
                join, taints=tuple(each for each in join.taints if what not in (each, each.effect))
            )
            for join in case.joins
        ]
        return replace(case, joins=tuple(joins))
    constraints = {key: [*entries] for key, entries in case.constraints.items()}
    if name in ("max", "min"):
        level = constraints["spread"][what]
        constraints["spread"][what] = {key: level[key] for key in level if key != name}
    else:
        constraints[name] = [each for each in constraints[name] if each != what]
    return replace(case, constraints=constraints)
