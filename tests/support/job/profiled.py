"""The profile that the suites' jobs are run in: `make test PROFILE=latency`; none named by default.

A test's job has the settings that the test gives it and, of this process's environment, the profile
alone. Its state is in as many shards as the profile wants on two cores.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from spu_assigner.stream.config.profile import Profile, tuning
from spu_assigner.stream.config.settings import Settings

VARIABLE: Final = "SPU_ASSIGNER_PROFILE"
CORES: Final = 2

# What a test's settings read in place of the environment.
ENVIRON: Final[Mapping[str, str]] = {
    name: value for name, value in os.environ.items() if name == VARIABLE
}
PROFILE: Final[Profile | None] = Settings.load(environ=ENVIRON).profile
SHARDS: Final = min(CORES, tuning(PROFILE).shards_max)
