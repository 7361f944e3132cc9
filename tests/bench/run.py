"""All benches and the neighbours in one run, one table against the targets, and the curves.

    python tests/bench/run.py [--quick] [--only core,neighbours] [--stored]

Each part is a program of its own. A part that fails takes nothing from the others: results of
those that ended well go to results/; curves and the tables of the documentation show what is kept.

Some parts are run by name alone: load, compare, movement. With --quick sizes are small, some
parts are left out, and nothing is kept: it shows roughly where things stand. With --stored nothing
is measured: all that is made of results is made of those kept.

Exit status: 1 if a part failed, else 3 if something could not be run here, else 0. A missed
target is reported, and is no failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`, as pytest does
from support.bench.bench_pages import publish_tables
from support.bench.curves import draw
from support.bench.figures import STORED, read_results, say
from support.bench.targets import table

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
CURVES: Final = HERE / "curves"
FAILED: Final = 1
NOT_RUN: Final = 3  # as neighbours/run.py says it

# Those that something is held to, in one policy and the default profile.
QUICK_NEIGHBOURS: Final = (
    *("spu-assigner fluvio", "plain loop", "plain loop with core fluvio", "Kafka Streams 100 ms"),
    *("Quix Streams 100 ms", "Spark stateless echo", "naive transformWithState"),
)


class Part(NamedTuple):
    """A program that measures, and the result that it writes."""

    name: str
    result: str
    minutes: float  # about, of the whole
    program: Sequence[str]  # below this folder, and its options
    quick: Sequence[str] = ()  # further options
    is_in_quick: bool = True
    is_in_whole: bool = True  # else by name alone


PARTS: Final = (
    Part("cost", "cost", 24, ["scale/cost.py"], is_in_quick=False),
    Part("core", "core_growth", 4, ["core_growth.py"]),
    Part("ratios", "core_ratios", 0.5, ["core_ratios.py"]),
    Part("resources", "resources", 0.5, ["scale/resources.py"]),
    Part(
        *("neighbours", "neighbours", 24, ["neighbours/run.py"]),
        quick=["--backlog", "5000", "--latencies", "20", "--only", ",".join(QUICK_NEIGHBOURS)],
    ),
    Part("growth", "growth", 12, ["scale/growth.py"], is_in_quick=False),
    Part("scaling", "scaling", 6, ["scale/scaling.py"], is_in_quick=False),
    Part("start", "first_start", 3, ["scale/first_start.py"], is_in_quick=False),
    Part("load", "load", 20, ["scale/load.py"], is_in_quick=False, is_in_whole=False),
    Part("compare", "comparison", 2, ["comparison.py"], is_in_quick=False, is_in_whole=False),
    Part("movement", "movement", 2, ["movement.py"], is_in_quick=False, is_in_whole=False),
)


def run_part(part: Part, folder: Path, *, quick: bool) -> int:
    """Its exit status; FAILED without a result."""
    file, *options = part.program
    done = subprocess.run(
        [sys.executable, "-u", HERE / file, "--write", *options, *(part.quick if quick else ())],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "BENCH_RESULTS": str(folder), "BENCH_QUICK": "1" if quick else ""},
        check=False,
    )
    is_there = (folder / f"{part.result}.json").exists()
    return FAILED if done.returncode in {0, NOT_RUN} and not is_there else done.returncode


def run_parts(
    parts: Sequence[Part], folder: Path, *, quick: bool, stored: Path = STORED
) -> dict[str, int]:
    """The status of each; results of those that ended well are put to those stored unless quick."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    statuses = {}
    for number, part in enumerate(parts, 1):
        about = "" if quick else f", about {part.minutes:g} min"
        say(f"[{number}/{len(parts)}] {part.name}{about}")
        status = statuses[part.name] = run_part(part, folder, quick=quick)
        if not quick and status in {0, NOT_RUN}:
            shutil.copy(folder / f"{part.result}.json", stored)
    return statuses


def status_of(statuses: Sequence[int]) -> int:
    """That of the whole run."""
    if {*statuses} - {0, NOT_RUN}:
        return FAILED
    return NOT_RUN if NOT_RUN in statuses else 0


def chosen(names: str | None, *, quick: bool) -> list[Part]:
    """Those named, in their order; None: the whole."""
    known = {each.name for each in PARTS}
    if names is not None and (unknown := {*names.split(",")} - known):
        sys.exit(f"no part {', '.join(sorted(unknown))}; there are: {', '.join(sorted(known))}")
    wanted = (
        {each.name for each in PARTS if each.is_in_whole} if names is None else names.split(",")
    )
    return [each for each in PARTS if each.name in wanted and (each.is_in_quick or not quick)]


def main() -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help="names of parts, with commas between")
    parser.add_argument("--stored", action="store_true")
    options = parser.parse_args()
    statuses: dict[str, int] = {}
    if options.stored:
        say(table(read_results(STORED)))
    else:
        folder = ROOT / "build" / ("bench-quick" if options.quick else "bench")
        begun = time.monotonic()
        parts = chosen(options.only, quick=options.quick)
        statuses = run_parts(parts, folder, quick=options.quick)
        say(table(read_results(folder), measured_only=options.only is not None))
        ended = {0: "done", NOT_RUN: "something could not be run here"}
        for name, status in statuses.items():
            say(f"{name}: {ended.get(status, f'FAILED with status {status}')}")
        say(f"{(time.monotonic() - begun) / 60:.1f} min")
    if not options.quick:
        stored = read_results(STORED)
        draw(stored, CURVES)
        publish_tables(stored)
    return status_of([*statuses.values()])


if __name__ == "__main__":
    sys.exit(main())
