"""How long each test takes, as stored by `make test-all STORE=1`, and the reasons of the long ones.

The file has the tests of over 20 s, without what they share with others (a broker, a session):
`{"commit": …, "cores": …, "seconds": {"tests/…::name": 21.3}}`. Nothing fails because a machine is
slow: what is held is that a test that took more than `LONG_SECONDS` when all were measured says
why in its mark `long("reason")`.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
STORED: Final = ROOT / "tests" / "data" / "durations.json"
LONG_SECONDS: Final = 20.0  # of a test, in CONTRIBUTING.md


class Durations:
    """A plugin of pytest that notes what each test took, also those that xdist's workers run."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one test; xdist adds the name of its group."""
        if report.when == "call":
            self._seconds[re.sub(r"@[^@\]]*$", "", report.nodeid)] = report.duration

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Store them, if all passed: a test that fails may be shorter than it is."""
        if exitstatus != pytest.ExitCode.OK:
            return
        commit = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=ROOT, capture_output=True, text=True, check=False,
        ).stdout.strip()  # fmt: skip
        long = {
            name: round(took, 1)
            for name, took in sorted(self._seconds.items())
            if took > LONG_SECONDS
        }
        stored = {"commit": commit, "cores": os.cpu_count(), "seconds": long}
        STORED.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")


def stored_seconds() -> dict[str, float]:
    """What each test took when all were measured, by file::name; of several cases the longest."""
    longest: dict[str, float] = {}
    for name, took in json.loads(STORED.read_text(encoding="utf-8"))["seconds"].items():
        function = name.partition("[")[0]
        longest[function] = max(took, longest.get(function, 0.0))
    return longest


def reasons() -> dict[str, str]:
    """The reason of each test that has the mark `long`, by file::name."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.long":
                        place = f"{path.relative_to(ROOT).as_posix()}::{node.name}"
                        found[place] = ast.literal_eval(mark.args[0])
    return found
