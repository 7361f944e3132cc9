"""`make test` in two halves: together they are all tests, and either one's failure fails both."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import halves


def names(said: str) -> list[str]:
    """Without parameters: some are drawn anew in each run."""
    return sorted(line.partition("[")[0] for line in said.splitlines() if "::" in line)


def collected(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return names(said)


def test_the_halves_have_every_test_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert halves.main(["--collect-only", "-q"]) == 0
    both = names(capfd.readouterr().out)
    assert both == collected(str(halves.TESTS))
    assert len(both) > 2_000


@pytest.mark.parametrize("place", ["broker/test_a.py", "unit/test_a.py"])
def test_a_failure_in_either_half_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    for name in ("broker/test_a.py", "unit/test_a.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"def test_it() -> None:\n    assert {name != place}\n")
    monkeypatch.setattr(halves, "TESTS", tmp_path)
    assert halves.main(["-q", "--import-mode=importlib"]) == 1
