"""Random lives of topics with constraints that rebalances move: the shadow looks at every list."""

from __future__ import annotations

import pytest
from support.events.random_lives import rebalanced_life
from support.events.simulation import fault_of

LIVES = 600


@pytest.mark.thorough
@pytest.mark.parametrize("chunk", range(4))
def test_no_rebalance_breaks_a_rule_or_keeps_one_worse(chunk: int) -> None:
    """Labels, taints and constraints change before it; a quarter of the lives have resources."""
    for seed in range(chunk * LIVES // 4, (chunk + 1) * LIVES // 4):
        assert fault_of(rebalanced_life(seed)) is None, seed
