"""Where the time of a large `balanced` request goes, function by function, and its peak of memory.

`python tests/bench/planner_profile.py NAME` writes `profiles/planner-NAME.txt`. The profiler slows
down what calls much, so shares say more than times; for times see `results/planner.json`.
"""

from __future__ import annotations

import cProfile
import io
import pstats
import sys
import tracemalloc
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`, as pytest does

from spu_assigner.core.base.events import Policy
from test_planner_bench import LARGE, SHAPES, WARM_UP, create

PROFILES: Final = Path(__file__).parent / "profiles"
SHOWN: Final = ("no racks", "10 racks", "4 capacities, 9 racks")
REQUESTS: Final = 9
FUNCTIONS: Final = 20


def main(name: str) -> None:
    """Profile each shape."""
    text = [f"{REQUESTS} requests of {LARGE:,} partitions x 3 replicas, 1,000 SPUs, `balanced`"]
    for shape in SHOWN:
        state = SHAPES[shape].cluster()
        for number in range(WARM_UP):
            create(state, Policy.BALANCED, f"w{number}", LARGE)
        profile = cProfile.Profile()
        profile.enable()
        for number in range(REQUESTS):
            create(state, Policy.BALANCED, f"t{number}", LARGE)
        profile.disable()
        tracemalloc.start()
        create(state, Policy.BALANCED, "m", LARGE)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        table = io.StringIO()
        stats = pstats.Stats(profile, stream=table).strip_dirs().sort_stats("tottime")
        stats.print_stats(FUNCTIONS)
        lines = [line.rstrip() for line in table.getvalue().splitlines() if line.strip()]
        text += ["", f"{shape}: {peak / 1e6:.1f} MB allocated at the peak of one request", *lines]
    PROFILES.mkdir(exist_ok=True)
    (PROFILES / f"planner-{name}.txt").write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
