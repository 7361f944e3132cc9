"""`make test` in two halves: together they are all tests, and either one's failure fails both."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.project import halves


def test_the_halves_have_every_file_once() -> None:
    first, second = halves.files()
    everything = [*halves.TESTS.rglob("test_*.py"), *halves.TESTS.rglob("*_test.py")]
    assert sorted([*first, *second]) == sorted(everything)  # what pytest looks for, of either name
    assert min(len(first), len(second)) > 10


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


def test_a_half_that_is_killed_is_a_failure_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, does in (("broker/test_a.py", "os.kill(os.getpid(), 9)"), ("unit/test_a.py", "pass")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"import os\n\n\ndef test_it() -> None:\n    {does}\n")
    monkeypatch.setattr(halves, "TESTS", tmp_path)
    assert halves.main(["-q", "--import-mode=importlib"]) == 1
    assert "the first half was ended by SIGKILL" in capfd.readouterr().out
