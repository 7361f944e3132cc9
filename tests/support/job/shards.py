"""In how many parts the jobs of tests have their state: several, so that events are divided."""

from __future__ import annotations

from typing import Final

SHARDS: Final = 2
