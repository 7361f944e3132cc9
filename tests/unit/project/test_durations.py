"""Long tests: which they are is stored, and each says why it must be."""

from __future__ import annotations

import ast

from support.project import durations

REASON_WORDS_MIN = 4


def test_a_test_of_over_20_s_has_a_reason_beside_its_mark() -> None:
    """Else the tiers grow long again one test at a time."""
    long = {
        name for name, took in durations.stored_seconds().items() if took > durations.LONG_SECONDS
    }
    reasons = durations.reasons()
    assert long - reasons.keys() == set()
    assert {name for name, why in reasons.items() if len(why.split()) < REASON_WORDS_MIN} == set()


def test_what_is_stored_is_of_tests_that_exist() -> None:
    """A file of tests that were renamed would hold nothing."""
    stored = durations.stored_seconds()
    assert stored, "store them: make test-all STORE=1"
    for place in stored:
        file, _, name = place.partition("::")
        tree = ast.parse((durations.ROOT / file).read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name.rpartition("::")[2] in names, place
