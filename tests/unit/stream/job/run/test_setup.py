"""Set-up's command: a stamp says that nothing is left to be made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from spu_assigner.stream import setup
from spu_assigner.stream.local.jvm.java import JavaError


def ran(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["setup", *arguments])
    return setup.main()


@pytest.mark.parametrize("is_complete", [True, False])
def test_the_stamp_is_written_when_all_was_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_complete: bool
) -> None:
    """What could not be made is no error, but the next set-up tries again."""
    monkeypatch.setattr(setup, "set_up", lambda report, **_: is_complete)
    stamp = tmp_path / "stamp"
    assert ran(monkeypatch, "--stamp", str(stamp)) == 0
    assert stamp.exists() is is_complete


def test_a_failure_is_told_and_writes_no_stamp(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make` stops there."""

    def failing(report: object, **_: bool) -> bool:
        raise JavaError("found no Java; set JAVA_HOME")

    monkeypatch.setattr(setup, "set_up", failing)
    stamp = tmp_path / "stamp"
    assert ran(monkeypatch, "--stamp", str(stamp)) == 1
    assert not stamp.exists()
    assert capsys.readouterr().err == "setup: found no Java; set JAVA_HOME\n"
