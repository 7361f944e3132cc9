"""Random cases of a test: all in `make test-all`, some in `make test`, few in `make unit`."""

from __future__ import annotations

import os
from typing import Final

_DIVISORS: Final = {"all": 1, "some": 6, "few": 30}
_DRAWN: Final = os.environ.get("SPU_ASSIGNER_TEST_CASES", "some")
ALL: Final = _DRAWN == "all"


def share_of(count: int) -> int:
    """Of so many in `make test-all`, how many in this run; one at least."""
    return max(1, count // _DIVISORS[_DRAWN])
