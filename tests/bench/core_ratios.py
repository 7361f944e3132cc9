"""How fast the core is beside a fixed piece of work: what CI holds each change to.

    python tests/bench/core_ratios.py [--write]

With --write the ratios go to results/core_ratios.json; a change that makes one twice as large fails
`tests/unit/project/bench/test_core_speed.py`. Whoever makes the core slower on purpose writes them
again and says why.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`, as pytest does
from support.bench.core_speed import CASES, ROUNDS, speed_of
from support.bench.figures import QUICK, keep, parser_of, say, spread

REPEATS: Final = 1 if QUICK else 5


def main() -> None:
    options = parser_of(__doc__).parse_args()
    figures = {}
    for case in CASES:
        speeds = [speed_of(case) for _ in range(REPEATS)]
        figures[case.name] = {
            "ratio": spread([speed.ratio for speed in speeds]),
            "us_an_event": spread([speed.us for speed in speeds]),
        }
        ratio, us = (median(getattr(speed, what) for speed in speeds) for what in ("ratio", "us"))
        say(f"{case.name}: {ratio:.3f} of the reference, {us:,.1f} µs an event")
    if options.write:
        keep("core_ratios", sizes={"rounds": ROUNDS}, figures=figures, show=False)


if __name__ == "__main__":
    main()
