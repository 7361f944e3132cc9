"""How many random cases a test draws: all in `make test-all`, two fifths in `make test`."""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "SPU_ASSIGNER_TEST_ALL"  # set by `make test-all`


def examples(count: int) -> int:
    """For tests of which each case takes long, as beside an exact solver."""
    return count if os.environ.get(VARIABLE) else count * 2 // 5
