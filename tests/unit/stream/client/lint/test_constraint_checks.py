"""Constraints that contradict each other: all of one label, and nothing that some SPUs meet."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import Constraints, SpreadLevel
from spu_assigner.stream.client.lint.constraint_checks import contradiction, topic_contradiction
from support.model.constrained_oracle import holds
from support.project.case_share import share_of


@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        (
            Constraints(require=("zone", "tier in (a, b)", "tier in (c, d)")),
            "no SPU can meet constraints.require[1] 'tier in (a, b)' and constraints.require[2] "
            "'tier in (c, d)'",
        ),
        (
            Constraints(require=("tier", "tier in (a, b)"), forbid=("x", "tier = a", "tier = b")),
            "no SPU can meet constraints.require[1] 'tier in (a, b)' and constraints.forbid[1] "
            "'tier = a' and constraints.forbid[2] 'tier = b'",
        ),
        (Constraints(require=("tier", "!tier")), "require[0] 'tier' and constraints.require[1] '!"),
        (
            Constraints(require=("!tier, tier = a",)),
            "meet constraints.require[0] '!tier, t",
        ),
        (Constraints(require=("a",), forbid=("a",)), "constraints.forbid[0] 'a'"),
        (Constraints(require=("a",), forbid=("a", "!a")), "constraints.forbid[0] 'a'"),
        (Constraints(require=("a=1", "b!=2"), forbid=("a, b notin (2,3)",)), None),
        (Constraints(require=("a=1", "b!=2"), forbid=("a, b notin (2)",)), "constraints.forbid[0]"),
        (Constraints(forbid=("spu_id",)), "no SPU can meet constraints.forbid[0] 'spu_id'"),
        (Constraints(require=("a notin (b)", "a = c"), forbid=("a = d", "!a")), None),
        (
            Constraints(require=("x", "zone in (a, b)"), spread=(SpreadLevel("zone", 1),)),
            "constraints.require[1] 'zone in (a, b)': zone can be a, b, with at most 1 of the 3 "
            "replicas of a list each",
        ),
        (Constraints(require=("zone in (a, b)",), spread=(SpreadLevel("zone", 2),)), None),
        (Constraints(require=("zone in (a, b)",), spread=(SpreadLevel("zone"),)), None),
        (
            Constraints(spread=(SpreadLevel("rack"), SpreadLevel("zone", min=4))),
            "constraints.spread[1].min is 4, and a list has 3 replicas",
        ),
        (Constraints(spread=(SpreadLevel("zone", 3, 3),)), None),
        (
            Constraints(spread=(SpreadLevel("spu_id", min=2),)),
            "constraints.spread[0].min is 2, and an SPU has 1 replica of a list",
        ),
        (Constraints(require=("zone notin (a, b)",), spread=(SpreadLevel("zone", 1),)), None),
        (
            Constraints(require=("!zone",), spread=(SpreadLevel("zone", 2),)),
            "zone can be absent, ",
        ),
        (
            Constraints(require=("spu_id in (1, 2)",)),
            "spu_id can be 1, 2, with at most 1 of the 3 replicas of a list each",
        ),
        (Constraints(require=("spu_id in (1, 2, 3)",)), None),
        (
            Constraints(apart_from=("a", "b"), together_with=("c", "b")),
            "constraints.together_with[1] is 'b', which apart_from names, too",
        ),
        (Constraints(), None),
    ],
)
def test_what_contradicts_itself_is_said_by_the_rules_that_it_takes(
    constraints: Constraints, said: str | None
) -> None:
    """Who is to leave one out sees which there are."""
    found = contradiction(constraints, 3)
    if said is None:
        assert found is None
    else:
        assert found is not None
        assert said in found[1]


TEXTS = st.sampled_from(
    [
        f"{key}{rest}" if rest != "!" else f"!{key}"
        for key in ("x", "y", "spu_id")
        for rest in ("", "!", "=1", "!=1", " in (1,2)", " in (2,3)", " notin (1,2)", " notin (3)")
    ]
)
ABSENT = None
VALUES = (ABSENT, "1", "2", "3", "other")


@settings(max_examples=share_of(500), deadline=None)
@given(
    require=st.lists(st.lists(TEXTS, min_size=1, max_size=2).map(",".join), max_size=3),
    forbid=st.lists(TEXTS, max_size=3),
    pairs=st.lists(st.lists(TEXTS, min_size=2, max_size=2).map(",".join), max_size=1),
    factor=st.integers(1, 4),
)
def test_a_contradiction_is_found_where_no_spu_can_meet_the_rules(
    require: list[str], forbid: list[str], pairs: list[str], factor: int
) -> None:
    """Of all combinations of values; of forbidden pairs only that what is found is true."""
    rules = Constraints(require=tuple(require), forbid=(*forbid, *pairs))
    fits = []
    for x, y, spu_id in product(VALUES, VALUES, VALUES[1:]):
        named = {"x": x, "y": y, "spu_id": spu_id}
        labels = {name: value for name, value in named.items() if value is not None}
        if all(holds(text, labels) for text in rules.require) and not any(
            holds(text, labels) for text in rules.forbid
        ):
            fits.append(spu_id)
    is_possible = "other" in fits or len(set(fits)) >= factor
    found = contradiction(rules, factor)
    if found is not None:
        assert not is_possible
    elif not pairs:
        assert is_possible


RULES = {
    "a": Constraints(together_with=("b",)),
    "b": Constraints(together_with=("c", "a")),
    "d": Constraints(apart_from=("c",)),
    "e": Constraints(apart_from=("t",)),
}


@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        (Constraints(together_with=("a",)), None),
        (Constraints(together_with=("d",), apart_from=("a",)), None),
        (
            Constraints(together_with=("a",), apart_from=("c",)),
            "'t' with 'a' with 'b' with 'c' cannot be: 't' is to be apart from 'c'",
        ),
        (
            Constraints(together_with=("d", "c")),
            "'t' with 'd' and 't' with 'c' cannot be: 'd' is to be apart from 'c'",
        ),
        (
            Constraints(together_with=("e",)),
            "'t' with 'e' cannot be: 'e' is to be apart from 't'",
        ),
    ],
)
def test_topics_cannot_be_apart_from_whom_they_are_with(
    constraints: Constraints, said: str | None
) -> None:
    """By way of others, too; and a circle has an end."""
    found = topic_contradiction("t", constraints, RULES.get)
    assert (None if found is None else found[1]) == said
