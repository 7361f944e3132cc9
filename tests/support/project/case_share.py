"""How many random cases a test draws: all of them in `make test-all`, fewer in `make test`."""

from __future__ import annotations

import os
from typing import Final

ALL: Final = os.environ.get("SPU_ASSIGNER_TEST_ALL_CASES") == "1"


def share_of(count: int) -> int:
    """Of so many in `make test-all`, how many in this run: a sixth in `make test`."""
    return count if ALL else max(1, count // 6)
