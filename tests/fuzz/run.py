"""Coverage-guided fuzzing of everything that reads what others wrote.

    python tests/fuzz/run.py --runs 1000000 --keep     # what `make fuzz` does

Each target gets its share of the runs in processes of its own, with their memory limited; the seeds
are made again from the examples beside the schemas, so that nothing is needed but the sources. A
finding ends its target: the input is kept under `tests/fuzz/findings/`, and the exit status is 1.
The random seed is fixed and can be chosen with --seed.

After ROUND_INPUTS a fresh process goes on with the corpus of the one before: the instrumented code
leaves some memory behind with every comparison, 13 kB for an input of the core. Without it nothing
is left behind, which `test_no_input_leaves_memory_behind` holds us to.
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
from typing import TextIO

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `fuzz` and `support`

from fuzz.targets import TARGETS, Target
from support.bench.figures import keep

HERE = Path(__file__).parent
RSS_MB_MAX = 512  # of a process: 100 MB are Python, numpy and pyarrow, the rest is the corpus
ROUND_INPUTS = 10_000  # of one process
INPUT_SECONDS_MAX = 20  # one input takes milliseconds; what takes so long hangs
REPORT_SECONDS = 10.0
FINDING_STATUS = 77  # of libFuzzer

_PROGRESS = re.compile(
    r"^#(?P<inputs>\d+)\s+\S+\s+cov: (?P<coverage>\d+) ft: (?P<features>\d+) corp: (?P<corpus>\d+)"
)
_STAT = re.compile(r"^stat::(?P<name>\w+):\s+(?P<value>\d+)")


@dataclass(kw_only=True)
class Outcome:
    """What came of one target."""

    target: str
    inputs: int = 0
    coverage: int = 0  # branches that were taken at least once
    features: int = 0  # the same, with how often
    corpus: int = 0  # inputs that each found something new
    seconds: float = 0.0
    peak_rss_mb: int = 0
    crashes: int = 0
    finding: str | None = None  # the last lines that reported a crash
    artifact: str | None = None  # the input, hexadecimal


class Progress:
    """Reports a target's progress, every ten seconds."""

    def __init__(self, target: str) -> None:
        self.began = self._reported = time.monotonic()
        self._target = target

    def report(self, inputs: int, branches: int) -> None:
        now = time.monotonic()
        if now - self._reported > REPORT_SECONDS:
            self._reported, rate = now, inputs / (now - self.began)
            line = f"{self._target}: {inputs} inputs, {branches} branches, {rate:.0f}/s"
            print(line, file=sys.stderr, flush=True)


def fuzz(target: Target, runs: int, seed: int, *, plant: str | None = None) -> Outcome:
    """Give a target so many inputs, or fewer if one of them breaks its promise."""
    outcome, progress = Outcome(target=target.name), Progress(target.name)
    with tempfile.TemporaryDirectory() as folder:
        corpus, artifacts = Path(folder, "corpus"), Path(folder, "artifacts")
        corpus.mkdir()
        artifacts.mkdir()
        for number, good in enumerate(target.seeds()):
            (corpus / f"seed-{number}").write_bytes(good)
        options = [
            *(["--plant", plant] if plant else []),
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
            status, lines = _round(command, outcome, progress)
            found = next(iter(sorted(artifacts.iterdir())), None)
            if status or found is not None:
                outcome.crashes = 1
                outcome.finding = "\n".join(lines[-30:])
                outcome.artifact = found and found.read_bytes().hex()
    outcome.seconds = round(time.monotonic() - progress.began, 1)
    return outcome


def _round(command: Sequence[str], outcome: Outcome, progress: Progress) -> tuple[int, list[str]]:
    """One process: its status, and what it said besides of its progress."""
    part = Outcome(target=outcome.target)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    with process:
        lines = _follow(process.stdout, part, before=outcome.inputs, progress=progress)
    outcome.inputs += part.inputs
    outcome.coverage = max(outcome.coverage, part.coverage)
    outcome.features = max(outcome.features, part.features)
    outcome.corpus = part.corpus
    outcome.peak_rss_mb = max(outcome.peak_rss_mb, part.peak_rss_mb)
    return process.returncode, lines


def _follow(
    output: TextIO | None, outcome: Outcome, *, before: int, progress: Progress
) -> list[str]:
    """Read libFuzzer's lines, report its progress, and return all others."""
    others: list[str] = []
    for line in output or ():
        found, stat = _PROGRESS.match(line), _STAT.match(line)
        if found is not None:
            for name, value in found.groupdict().items():
                setattr(outcome, name, int(value))
        elif stat is not None and stat["name"] == "number_of_executed_units":
            outcome.inputs = int(stat["value"])
        elif stat is not None and stat["name"] == "peak_rss_mb":
            outcome.peak_rss_mb = int(stat["value"])
        elif stat is None:
            others.append(line.rstrip())
        progress.report(before + outcome.inputs, outcome.coverage)
    return others


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes for people."""
    head = f"{'target':<12}{'inputs':>9}{'branches':>10}{'features':>10}{'corpus':>8}"
    lines = [f"{head}{'peak MB':>9}{'seconds':>9}{'crashes':>9}"]
    lines += [
        f"{each.target:<12}{each.inputs:>9}{each.coverage:>10}{each.features:>10}{each.corpus:>8}"
        f"{each.peak_rss_mb:>9}{each.seconds:>9}{each.crashes:>9}"
        for each in outcomes
    ]
    total = sum(each.inputs for each in outcomes), sum(each.crashes for each in outcomes)
    return "\n".join([*lines, f"{total[0]} inputs, {total[1]} crashes"])


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
        outcomes.append(fuzz(target, asked.runs * target.share // whole, asked.seed))
        if outcomes[-1].crashes:
            _tell(outcomes[-1])
    print(table(outcomes))
    if asked.keep:
        sizes = {
            "runs": asked.runs,
            "seed": asked.seed,
            "rss_mb_max": RSS_MB_MAX,
            "input_seconds_max": INPUT_SECONDS_MAX,
            "inputs": sum(each.inputs for each in outcomes),
            "crashes": sum(each.crashes for each in outcomes),
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
    return 1 if any(each.crashes for each in outcomes) else 0


def _tell(outcome: Outcome) -> None:
    print(f"{outcome.target}: {outcome.finding}", file=sys.stderr)
    if outcome.artifact is not None:
        folder = HERE / "findings"
        folder.mkdir(exist_ok=True)
        path = folder / outcome.target
        path.write_text(outcome.artifact + "\n", encoding="ascii")
        print(f"the input, hexadecimal, is in {path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
