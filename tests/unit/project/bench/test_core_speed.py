"""The core is as fast as the stored results say, beside a fixed piece of work in this process.

CPU time within one run, the least of some rounds: how fast the machine is, and what else it does,
does not count.
"""

from __future__ import annotations

import pytest
from support.bench.core_speed import CASES, Case, slower_than
from support.bench.figures import figure, read_results

pytestmark = pytest.mark.thorough

_RATIOS = read_results()["core_ratios"]["figures"]
TIMES_MAX = 2.0  # another processor or Python moves a ratio too; a lost fast path costs more

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def stored(case: Case) -> float:
    ratio = figure(_RATIOS, case.name, "ratio", "median")
    assert ratio is not None, "measure it: python tests/bench/core_ratios.py --write"
    return ratio


@each_case
def test_the_core_is_not_slower_than_the_stored_ratio(case: Case) -> None:
    """A fast path that is lost breaks no other test."""
    assert slower_than(case, stored(case), TIMES_MAX) is None
