"""Random clusters and rules, held against all ways to place a request."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from spu_assigner.core.base.constraints import TaintEffect
from spu_assigner.core.base.errors import Code
from support.events.constrained_cases import ConstrainedCase, random_case
from support.model.constrained_oracle import Oracle, answered
from support.model.exact_constraints import least_scores
from support.project.case_share import share_of

SEEDS = share_of(200)  # of each part; `tests/bench/decisions/constraints.py` does 100,000
PARTS = 6


def drawn(part: int) -> Iterator[tuple[str, ConstrainedCase]]:
    for seed in range(part * SEEDS, (part + 1) * SEEDS):
        for with_min in (False, True):
            case = random_case(seed, with_min=with_min)
            if case.constraints:
                yield f"{seed}, with_min={with_min}", case


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_possible_is_given_and_nothing_else(part: int) -> None:
    """And what is given holds every hard rule, and is led by who meets the first selector."""
    for seed, case in drawn(part):
        oracle = Oracle(case)
        rows, status = answered(case)
        assert (rows is not None) is oracle.is_possible(), (seed, status)
        if rows is not None:
            assert oracle.is_valid(rows), (seed, rows)
            led = [oracle.rank(row[0]) for row in rows]
            assert led == [oracle.score(row)[-1] for row in rows], (seed, rows)


@pytest.mark.parametrize("part", range(PARTS))
def test_each_list_has_the_best_score_where_there_is_room(part: int) -> None:
    compared = 0
    for seed, case in drawn(part):
        oracle = Oracle(case)
        rows, _ = answered(case)
        if rows is not None and oracle.is_ample:
            compared += 1
            best = oracle.best_score()
            assert [oracle.score(row) for row in rows] == [best] * len(rows), seed
    assert compared > SEEDS / 8


def test_an_exact_solver_finds_no_more_and_no_better_lists() -> None:
    """HiGHS minimises the score of all lists together, level by level."""
    compared = 0
    for seed, case in itertools.islice(drawn(0), SEEDS):
        rows, _ = answered(case)
        best = least_scores(case)
        assert (rows is not None) is (best is not None), seed
        if rows is not None and Oracle(case).is_ample:
            compared += 1
            scores = zip(*map(Oracle(case).score, rows), strict=True)
            assert tuple(map(sum, scores)) == best, seed
    assert compared > SEEDS / 16


@pytest.mark.parametrize("part", range(PARTS))
def test_a_refusal_names_as_few_rules_as_conflict(part: int) -> None:
    """On empty SPUs: what only lacks room is another answer."""
    compared = 0
    for seed, case in drawn(part):
        rows, status = answered(case)
        if rows is not None:
            continue
        fewest = fewest_rules(emptied(case))
        if fewest is None or fewest == 0:
            assert status.code in (Code.INSUFFICIENT_CAPACITY, Code.INSUFFICIENT_SPUS), seed
            continue
        compared += 1
        assert status.code is Code.UNSATISFIABLE, (seed, status)
        assert len(named_rules(status.message or "")) == fewest, (seed, status.message)
    assert compared > SEEDS / 8


def emptied(case: ConstrainedCase) -> ConstrainedCase:
    """The case with as many free slots as if no topic were there."""
    held = Counter(spu_id for _, row in case.others for spu_id in row)
    joins = [
        replace(each, capacity=(each.capacity or 0) + held[each.spu_id]) for each in case.joins
    ]
    return replace(case, joins=tuple(joins))


def named_rules(message: str) -> list[str]:
    return re.findall(r"\((?:excludes \d+ SPUs?|\d+ values?|\d+ SPUs? may not lead)\)", message)


def fewest_rules(case: ConstrainedCase) -> int | None:
    """How many rules at least cannot be met together; None: all can.

    What `min` demands is of the values that all rules permit, whichever of them are kept.
    """
    rules, demanded = list(rules_of(case)), Oracle(case).demanded
    for size in range(len(rules) + 1):
        for kept in itertools.combinations(rules, size):
            if not Oracle(with_rules(case, kept), demanded).is_possible():
                return size
    return None


Rule = tuple[str, object]


def rules_of(case: ConstrainedCase) -> Iterator[Rule]:
    """The hard rules of a case, one by one."""
    for name in ("require", "forbid", "apart_from", "together_with"):
        yield from ((name, each) for each in case.constraints.get(name, ()))
    for level in case.constraints.get("spread", ()):
        yield from ((name, level["label"]) for name in ("max", "min") if name in level)
    effects = {taint for join in case.joins for taint in join.taints}
    yield from (("taint", each) for each in effects if each.effect is not TaintEffect.NO_LEADERS)
    if any(each.effect is TaintEffect.NO_LEADERS for each in effects):
        yield "no_leaders", None


def with_rules(case: ConstrainedCase, kept: tuple[Rule, ...]) -> ConstrainedCase:
    """The case with these hard rules alone."""
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
