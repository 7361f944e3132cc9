"""Random clusters and rules, held against all ways to place a request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from spu_assigner.core.base.constraints import Taint, TaintEffect
from spu_assigner.core.base.errors import Code
from support.events.constrained_cases import ConstrainedCase, random_case
from support.model.constrained_oracle import Oracle, answered
from support.project.case_share import share_of

SEEDS = share_of(200)  # of each part; more by `SPU_ASSIGNER_TEST_CASES`
PARTS = 6

Rule = tuple[str, object]


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
        empty = emptied(case)
        if may_be_met(empty, tuple(rules_of(case))) or not may_be_met(empty, ()):
            assert status.code in (Code.INSUFFICIENT_CAPACITY, Code.INSUFFICIENT_SPUS), seed
            continue
        compared += 1
        assert status.code is Code.UNSATISFIABLE, (seed, status)
        named = named_rules(case, status.message or "")
        assert not may_be_met(empty, named), (seed, status.message)
        for rule in named:
            others = tuple(each for each in named if each != rule)
            assert may_be_met(empty, others), (seed, rule, status.message)
    assert compared > SEEDS / 8


def emptied(case: ConstrainedCase) -> ConstrainedCase:
    held = Counter(spu_id for _, row in case.others for spu_id in row)
    joins = [
        replace(each, capacity=(each.capacity or 0) + held[each.spu_id]) for each in case.joins
    ]
    return replace(case, joins=tuple(joins))


def named_rules(case: ConstrainedCase, message: str) -> tuple[Rule, ...]:
    """The rules that a refusal names, in brackets after each how much it excludes."""
    found = re.split(r" \((?:excludes \d+ SPUs?|\d+ values?|\d+ SPUs? may not lead)\)", message)
    texts = [text.split("cannot hold ")[-1].removeprefix(" and ") for text in found[:-1]]
    rules = dict.fromkeys(rules_of(case))  # One may be given twice.
    named = tuple(rule for rule in rules if name_of(case, rule) in texts)
    assert len(named) == len(texts), message
    return named


def name_of(case: ConstrainedCase, rule: Rule) -> str:
    name, what = rule
    if name in ("max", "min"):
        for at, level in enumerate(case.constraints["spread"]):
            if level["label"] == what:
                return f"spread[{at}] {what!r} {name} {level[name]}"
    if isinstance(what, Taint):
        return f"taint {what.key}={what.value}:{what.effect.value}"
    if name == "no_leaders":
        return "taints against leading"
    return f"{name}[{case.constraints[name].index(what)}] {what!r}"


def may_be_met(case: ConstrainedCase, kept: tuple[Rule, ...]) -> bool:
    """Whether the request can be met under these rules alone.

    What `min` demands is of the values that all rules permit, whichever of them are kept.
    """
    return Oracle(with_rules(case, kept), Oracle(case).demanded).is_possible()


def rules_of(case: ConstrainedCase) -> Iterator[Rule]:
    for name in ("require", "forbid", "apart_from", "together_with"):
        yield from ((name, each) for each in case.constraints.get(name, ()))
    for level in case.constraints.get("spread", ()):
        yield from ((name, level["label"]) for name in ("max", "min") if name in level)
    effects = {taint for join in case.joins for taint in join.taints}
    yield from (("taint", each) for each in effects if each.effect is not TaintEffect.NO_LEADERS)
    if any(each.effect is TaintEffect.NO_LEADERS for each in effects):
        yield "no_leaders", None


def with_rules(case: ConstrainedCase, kept: tuple[Rule, ...]) -> ConstrainedCase:
    constraints = {
        name: [each for each in case.constraints.get(name, ()) if (name, each) in kept]
        for name in ("require", "forbid", "apart_from", "together_with")
    }
    constraints["tolerations"] = case.constraints.get("tolerations", [])
    constraints["spread"] = [
        {
            name: value
            for name, value in level.items()
            if name == "label" or (name, level["label"]) in kept
        }
        for level in case.constraints.get("spread", ())
    ]
    joins = [
        replace(
            join,
            taints=tuple(
                taint
                for taint in join.taints
                if ("taint", taint) in kept
                or (taint.effect is TaintEffect.NO_LEADERS and ("no_leaders", None) in kept)
            ),
        )
        for join in case.joins
    ]
    return replace(case, joins=tuple(joins), constraints=constraints)
