"""A new policy is found wherever a table must know it: what mypy does not see."""

from __future__ import annotations

from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Mode
from spu_assigner.core.policies.cursor import RULES_OF
from spu_assigner.stream.client import explanation


def test_each_policy_places_by_a_rule_or_by_a_way_of_its_own() -> None:
    """`manual` places the lists of the request, `balanced` by load, `kraft` by what is drawn; all
    others by a rule without racks, and maybe by another over racks."""
    own = {Policy.MANUAL, Policy.BALANCED, Policy.KRAFT}
    assert {policy: len(RULES_OF[policy]) for policy in own} == dict.fromkeys(own, 0)
    assert all(len(RULES_OF[policy]) in (1, 2) for policy in {*Policy} - own)


def test_explain_knows_the_name_of_each_mode() -> None:
    """Else `explain` would fail at the first map of a new policy."""
    assert set(Mode) == set(explanation.MODE_NAMES)
