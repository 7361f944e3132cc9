"""A new policy is found wherever a table must know it: what mypy does not see."""

from __future__ import annotations

from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Mode
from spu_assigner.core.decision.requests import RULES_OF
from spu_assigner.core.policies.cursor import ORDER_OF
from spu_assigner.stream.client import explanation


def test_each_policy_has_its_rules_and_each_rule_its_order() -> None:
    """`manual` places the lists of the request, `balanced` by load, `kraft` by what is drawn; all
    others by a rule."""
    assert {*RULES_OF, Policy.MANUAL, Policy.BALANCED, Policy.KRAFT} == set(Policy)
    assert {rule for pair in RULES_OF.values() for rule in pair} == set(ORDER_OF)


def test_explain_knows_the_name_of_each_mode() -> None:
    """Else `explain` would fail at the first map of a new policy."""
    assert set(Mode) == set(explanation.MODE_NAMES)
