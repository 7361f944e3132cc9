"""All benches and the neighbours in one run, one table against the targets, and the curves.

    python tests/bench/run.py [--quick] [--only core,neighbours] [--stored]

Each part is a program of its own; what it says is shown as it comes and kept beside its results in
build/bench. A part that fails takes nothing from the others. Results of parts that ended well go to
results/, the table as bench.json once all did; curves and the tables of the documentation show what
is kept.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`, as pytest does
from support.bench.bench_pages import publish_tables
from support.bench.curves import draw
from support.bench.figures import STORED, keep, say
from support.bench.tables.bench_table import kept, lines_missed, show
from support.bench.targets import Results, read_results

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
CURVES: Final = HERE / "curves"
FAILED: Final = 1
NOT_RUN: Final = 3  # as neighbours/run.py says it


# Those that something is held to, in one policy and the default profile.
QUICK_NEIGHBOURS: Final = (
    "spu-assigner fluvio",
    "plain loop",
    "plain loop with table codec",
    "Kafka Streams 100 ms",
    "Quix Streams 100 ms",
    "Spark stateless echo",
    "naive transformWithState",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A program that measures, and the results that it writes."""

    name: str
    results: Sequence[str]
    minutes: float  # about, of the whole
    whole: Sequence[str]
    quick: Sequence[str] | None = None  # where it does not know by itself
    is_in_quick: bool = True
    is_in_whole: bool = True

    def command(self, *, quick: bool) -> list[str]:
        return [sys.executable, "-u", *((quick and self.quick) or self.whole)]


def _script(file: str, *options: str) -> list[str]:
    return [str(HERE / file), "--write", *options]


PARTS: Final = (
    Part(
        name="cost",
        results=("cost",),
        minutes=36,
        whole=_script("scale/cost.py"),
        is_in_quick=False,
    ),
    Part(name="core", results=("core_growth",), minutes=4, whole=_script("core_growth.py")),
    Part(
        name="ratios",
        results=("core_ratios",),
        minutes=0.5,
        whole=_script("core_ratios.py"),
    ),
    Part(
        name="resources",
        results=("resources",),
        minutes=0.5,
        whole=_script("scale/resources.py"),
    ),
    Part(
        name="neighbours",
        results=("neighbours",),
        minutes=14,
        # One round: starting all of them takes longer than what is measured.
        whole=_script(
            "neighbours/run.py", "--rounds", "1", "--backlogs", "3", "--latencies", "200"
        ),
        quick=_script(
            "neighbours/run.py",
            *("--rounds", "1", "--backlogs", "1", "--backlog", "5000", "--latencies", "20"),
            *("--only", ",".join(QUICK_NEIGHBOURS)),
        ),
    ),
    # Not in a quick run: jobs that take their time even when small.
    Part(
        name="growth",
        results=("growth",),
        minutes=12,
        whole=_script("scale/growth.py"),
        is_in_quick=False,
    ),
    Part(
        name="scaling",
        results=("scaling",),
        minutes=5,
        whole=_script("scale/scaling.py"),
        is_in_quick=False,
    ),
    # By name alone: the job under load for long, and our policies beside Kafka's own tools.
    Part(
        name="load",
        results=("load",),
        minutes=20,
        whole=_script("scale/load.py"),
        is_in_whole=False,
    ),
    Part(
        name="compare",
        results=("comparison",),
        minutes=2,
        whole=_script("comparison.py"),
        is_in_whole=False,
    ),
    Part(
        name="movement",
        results=("movement",),
        minutes=2,
        whole=_script("movement.py"),
        is_in_whole=False,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a part ended."""

    part: Part
    status: int
    seconds: float
    log: Path

    def __str__(self) -> str:
        ended = {0: "done", NOT_RUN: "something could not be run here"}
        how = ended.get(self.status, f"FAILED with status {self.status}")
        return f"{self.part.name}: {how}, {self.seconds:.0f} s; {self.log}"


def run_part(part: Part, folder: Path, *, quick: bool) -> Outcome:
    """Run it, show and keep what it says."""
    environ = {**os.environ, "BENCH_RESULTS": str(folder), "BENCH_QUICK": "1" if quick else ""}
    log = folder / f"{part.name}.log"
    begun = time.monotonic()
    with (
        log.open("wb") as file,
        subprocess.Popen(
            part.command(quick=quick),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ,
        ) as process,
    ):
        if process.stdout is None:
            raise RuntimeError("a pipe was asked for")
        for line in process.stdout:
            file.write(line)
            say(f"  {line.decode(errors='replace').rstrip()}")
    missing = [name for name in part.results if not (folder / f"{name}.json").exists()]
    status = FAILED if process.returncode in {0, NOT_RUN} and missing else process.returncode
    return Outcome(part=part, status=status, seconds=time.monotonic() - begun, log=log)


def run_parts(
    parts: Sequence[Part],
    folder: Path,
    *,
    quick: bool,
    run: Callable[..., Outcome] = run_part,
    stored: Path = STORED,
) -> list[Outcome]:
    """All parts; the results of those that ended well are put to those stored unless `quick`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    outcomes = []
    for number, part in enumerate(parts, 1):
        about = "" if quick else f", about {part.minutes:g} min"
        say(f"[{number}/{len(parts)}] {part.name}{about}")
        try:
            outcome = run(part, folder, quick=quick)
        except KeyboardInterrupt:  # The part was interrupted as well. What the others gave is kept.
            say("stopped")
            outcomes.append(Outcome(part=part, status=FAILED, seconds=0.0, log=folder))
            break
        outcomes.append(outcome)
        say(str(outcome))
        if not quick and outcome.status in {0, NOT_RUN}:
            for name in part.results:
                shutil.copy(folder / f"{name}.json", stored)
    return outcomes


def status_of(outcomes: Sequence[Outcome]) -> int:
    """That of the whole run."""
    statuses = {outcome.status for outcome in outcomes}
    if statuses - {0, NOT_RUN}:
        return FAILED
    return NOT_RUN if NOT_RUN in statuses else 0


def chosen(names: str | None) -> list[Part]:
    """Those named, in their order; None: the whole."""
    if names is None:
        return [each for each in PARTS if each.is_in_whole]
    wanted = set(names.split(","))
    unknown = wanted - {each.name for each in PARTS}
    if unknown:
        sys.exit(
            f"no part {', '.join(sorted(unknown))}; there are: " + ", ".join(p.name for p in PARTS)
        )
    return [each for each in PARTS if each.name in wanted]


def main() -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help="names of parts, with commas between")
    parser.add_argument("--stored", action="store_true")
    options = parser.parse_args()
    if options.stored:
        show(read_results(STORED), "the benches against their targets (stored results)")
        publish()
        return 0
    parts = chosen(options.only)
    if options.quick:
        parts = [part for part in parts if part.is_in_quick and part.is_in_whole]
    folder = ROOT / "build" / ("bench-quick" if options.quick else "bench")
    begun = time.monotonic()
    outcomes = run_parts(parts, folder, quick=options.quick)
    results = read_results(folder)
    title = "small sizes: an impression" if options.quick else "this run"
    is_part = options.only is not None
    show(results, f"the benches against their targets ({title})", measured_only=is_part)
    if not options.quick and status_of(outcomes) == 0 and parts == chosen(None):
        keep("bench", sizes={}, figures=summary(results), show=False, folder=STORED)
    if options.quick:
        draw(results, folder)
    else:
        publish()
    say(f"curves: {folder if options.quick else CURVES}")
    for outcome in outcomes:
        say(str(outcome))
    say(f"{(time.monotonic() - begun) / 60:.1f} min")
    return status_of(outcomes)


def publish() -> None:
    """The curves and the documentation's tables, of what is stored."""
    stored = read_results(STORED)
    draw(stored, CURVES)
    publish_tables(stored)


def summary(results: Results) -> dict[str, Any]:
    """What is kept of the table."""
    return {"missed": lines_missed(results), "lines": kept(results)}


if __name__ == "__main__":
    sys.exit(main())
