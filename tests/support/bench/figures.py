"""Figures of a run: kept as JSON with what they were measured on, and printed as a table."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

STORED = Path(__file__).parents[2] / "bench" / "results"
RESULTS = Path(os.environ.get("BENCH_RESULTS") or STORED)  # `make bench` keeps a run apart at first
QUICK = bool(os.environ.get("BENCH_QUICK"))  # small sizes: figures of an impression, none to keep
WRITTEN = ("tests/*/results/*", "tests/bench/curves/*", "README.md", "docs/performance.md")
PACKAGES = ("pyspark", "confluent-kafka", "fastavro", "numpy", "pyarrow")


def spread(values: Sequence[float]) -> dict[str, float]:
    """Minimum, median and maximum."""
    return {
        "min": round(min(values), 3),
        "median": round(statistics.median(values), 3),
        "max": round(max(values), 3),
        "runs": len(values),
    }


def percentiles(values_ms: Sequence[float]) -> dict[str, float]:
    """p50, p95 and p99 of some times in ms, nearest rank, and how many they are."""
    ordered = sorted(values_ms)
    ranks = {f"p{p}": ordered[max(0, -(-len(ordered) * p // 100) - 1)] for p in (50, 95, 99)}
    return {**{name: round(value, 2) for name, value in ranks.items()}, "samples": len(ordered)}


def slope(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """On logarithmic scales from the smallest size to the largest, or between the two largest. The
    larger of the two; 1 is linear, 0 is flat."""
    slopes = []
    for first in (0, -2):
        growth = math.log(sizes[-1] / sizes[first])
        slopes.append(math.log(costs[-1] / costs[first]) / growth)
    return max(slopes)


def keep(
    name: str,
    *,
    sizes: dict[str, Any],
    figures: dict[str, Any],
    show: bool = True,
    folder: Path = RESULTS,
    packages: Sequence[str] = PACKAGES,
) -> Path:
    """Write `<folder>/<name>.json` and, with `show`, print it as a table. Returns the file."""
    root = Path(__file__).parents[3]
    commit = commit_of(root)
    document = {
        "name": name,
        "commit": commit or None,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "processor": platform.machine(),
            "system": f"{platform.system()} {platform.release()}",
            "python": platform.python_version(),
        },
        "versions": {package: version(package) for package in packages},
        "sizes": sizes,
        "figures": figures,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if show:
        print(f"\n{name} (commit {commit or 'unknown'})")
        for figure, value in figures.items():
            print(f"  {figure:<44} {value}")
    return path


def figure(figures: Mapping[str, Any], *place: str) -> float | None:
    """The figure at a place; None: it was not measured."""
    found: Any = figures
    for key in place:
        found = found.get(key) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, int | float) else None


def read_results(folder: Path = STORED) -> dict[str, Any]:
    """What is kept in a folder, by name."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    }


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of the documentation."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """The command line of a bench: --write keeps its figures."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=raw)
    parser.add_argument("--write", action="store_true", help="keep the figures in results/")
    return parser


def say(line: str) -> None:
    """A line of progress."""
    print(line, flush=True)


def commit_of(root: Path) -> str:
    """The commit that is checked out, "-dirty" where files differ from it; empty without git."""
    commit = _git(root, "rev-parse", "--short=12", "HEAD")
    # What a run itself writes changes with each; anything else does not belong to the commit.
    if commit and _git(
        root, "status", "--porcelain", "--", ".", *(f":!{each}" for each in WRITTEN)
    ):
        commit += "-dirty"
    return commit


def _git(root: Path, *arguments: str) -> str:
    """What git says; empty where there is none."""
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()
