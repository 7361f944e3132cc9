"""Coverage-guided fuzzing of what reads others' messages and lines.

`python tests/fuzz/run.py --runs 1000000 --keep` is what `make fuzz` does. A finding ends its
target: the input is kept under `tests/fuzz/findings/`, and the exit status is 1.

After ROUND_INPUTS a fresh process goes on with the corpus of the one before: the instrumented code
leaves some memory behind with every comparison.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `fuzz` and `support`

from fuzz.targets import TARGETS, Target
from support.bench.figures import keep

HERE = Path(__file__).parent
RSS_MB_MAX = 512  # of a process: 100 MB are Python, numpy and pyarrow, the rest is the corpus
ROUND_INPUTS = 10_000  # of one process
INPUT_SECONDS_MAX = 20  # one input takes milliseconds; what takes so long hangs
_COVERAGE = re.compile(r"^#\d+\s+\S+\s+cov: (\d+) ", re.MULTILINE)
_STAT = re.compile(r"^stat::(\w+):\s+(\d+)", re.MULTILINE)


@dataclass(kw_only=True)
class Outcome:
    """What came of one target."""

    target: str
    inputs: int = 0
    coverage: int = 0  # branches that were taken at least once
    seconds: float = 0.0
    peak_rss_mb: int = 0
    crashes: int = 0
    finding: str | None = None  # the last lines that reported a crash
    artifact: str | None = None  # the input, hexadecimal


def fuzz(target: Target, runs: int, seed: int, *, plant: bool = False) -> Outcome:
    """Give a target so many inputs, or fewer if one of them breaks its promise."""
    outcome, began = Outcome(target=target.name), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        corpus, artifacts = Path(folder, "corpus"), Path(folder, "artifacts")
        corpus.mkdir()
        artifacts.mkdir()
        for number, good in enumerate(target.seeds()):
            (corpus / f"seed-{number}").write_bytes(good)
        options = [
            *(["--plant"] if plant else []),
            f"-max_len={target.size_max}",
            f"-rss_limit_mb={RSS_MB_MAX}",
            f"-timeout={INPUT_SECONDS_MAX}",
            f"-artifact_prefix={artifacts}/",
            "-print_final_stats=1",
        ]
        while outcome.inputs < runs and not outcome.crashes:
            count = min(ROUND_INPUTS, runs - outcome.inputs)
            command = [sys.executable, str(HERE / "child.py"), target.name, *options]
            command += [f"-runs={count}", f"-seed={seed}", str(corpus)]
            seed += 1
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
            stats = {name: int(value) for name, value in _STAT.findall(done.stdout)}
            outcome.inputs += stats.get("number_of_executed_units", 0)
            outcome.peak_rss_mb = max(outcome.peak_rss_mb, stats.get("peak_rss_mb", 0))
            outcome.coverage = max(outcome.coverage, *map(int, _COVERAGE.findall(done.stdout)), 0)
            found = next(iter(sorted(artifacts.iterdir())), None)
            if done.returncode or found is not None:
                outcome.crashes = 1
                outcome.finding = "\n".join(done.stdout.splitlines()[-30:])
                outcome.artifact = found and found.read_bytes().hex()
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit status 1 when something was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=20_000, help="inputs over all targets")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers, from 1")
    parser.add_argument("--target", choices=list(TARGETS), help="this one alone gets all runs")
    parser.add_argument("--keep", action="store_true", help="write results/fuzz.json")
    asked = parser.parse_args(arguments)
    targets = [TARGETS[asked.target]] if asked.target else list(TARGETS.values())
    whole = sum(target.share for target in targets)
    outcomes = []
    for target in targets:
        outcome = fuzz(target, asked.runs * target.share // whole, asked.seed)
        outcomes.append(outcome)
        print(
            f"{outcome.target}: {outcome.inputs} inputs, {outcome.coverage} branches, "
            f"{outcome.peak_rss_mb} MB, {outcome.seconds} s, {outcome.crashes} crashes",
            flush=True,
        )
        if outcome.crashes:
            print(outcome.finding, file=sys.stderr)
            path = HERE / "findings" / outcome.target
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{outcome.artifact}\n", encoding="ascii")
            print(f"the input, hexadecimal, is in {path}", file=sys.stderr)
    inputs = sum(each.inputs for each in outcomes)
    crashes = sum(each.crashes for each in outcomes)
    print(f"{inputs} inputs, {crashes} crashes")
    if asked.keep:
        sizes = {
            "runs": asked.runs,
            "seed": asked.seed,
            "rss_mb_max": RSS_MB_MAX,
            "input_seconds_max": INPUT_SECONDS_MAX,
            "inputs": inputs,
            "crashes": crashes,
        }
        figures = {each.target: asdict(each) for each in outcomes}
        keep(
            "fuzz",
            sizes=sizes,
            figures=figures,
            show=False,
            folder=HERE / "results",
            packages=("atheris", "fastavro", "numpy"),
        )
    return 1 if crashes else 0


if __name__ == "__main__":
    sys.exit(main())
