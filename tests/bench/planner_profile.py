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
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from test_planner_bench import LARGE, SHAPES, WARM_UP, creates

PROFILES: Final = Path(__file__).parent / "profiles"
SHOWN: Final = ("no racks", "10 racks", "4 capacities, 9 racks")
REQUESTS: Final = 9
FUNCTIONS: Final = 20


def place(state: ClusterState, prefix: str, topics: int) -> None:
    """Create topics of the large size."""
    for event in creates(Policy.BALANCED, prefix, topics, LARGE):
        step(state, event, default_policy=Policy.BALANCED)


def main(name: str) -> None:
    """Profile each shape."""
    text = [f"{REQUESTS} requests of {LARGE:,} partitions x 3 replicas, 1,000 SPUs, `balanced`"]
    for shape in SHOWN:
        state = SHAPES[shape].cluster()
        place(state, "w", WARM_UP)
        profile = cProfile.Profile()
        profile.enable()
        place(state, "t", REQUESTS)
        profile.disable()
        tracemalloc.start()
        place(state, "m", 1)
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
