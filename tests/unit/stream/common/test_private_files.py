"""Folders and files that are for this user alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from spu_assigner.stream.common.private_files import (
    FolderError,
    open_private,
    private_files,
    private_folder,
)
from spu_assigner.stream.job.checkpoint.files import make_private


def rights(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def open_mask() -> Iterator[None]:
    """The user's mask would give all to everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_mask")
def test_a_new_folder_is_private_from_the_start(tmp_path: Path) -> None:
    private_folder(tmp_path / "a" / "b")
    assert rights(tmp_path / "a" / "b") == 0o700


def test_a_folder_that_others_can_read_is_tightened_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be used, and nobody wonders who changed it."""
    tmp_path.chmod(0o755)
    private_folder(tmp_path)
    assert rights(tmp_path) == 0o700
    message = f"spu-assigner: {tmp_path} could be read by others (mode 0755): made 0700\n"
    assert capsys.readouterr().err == message
    private_folder(tmp_path)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    """What is in it may be theirs already: taking their rights away would hide that."""
    tmp_path.chmod(mode)
    with pytest.raises(FolderError, match=rf"mode {mode:04o}, expected 0700.*chmod 700 {tmp_path}"):
        private_folder(tmp_path)
    assert tmp_path.stat().st_mode & 0o7777 == mode


def test_what_is_no_folder_of_this_user_s_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in its place; a folder whose owner can change its rights at any time."""
    place = tmp_path / "file"
    place.touch()
    with pytest.raises(FolderError, match="file cannot be made a private folder"):
        private_folder(place)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(FolderError, match=f"belongs to user {owner}, expected this one"):
        private_folder(tmp_path)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_checkpoint_on_this_machine_alone_is_private(tmp_path: Path, form: str) -> None:
    """Who reads it knows every placement; who writes it decides them. The executors of a cluster
    may be another user, and other file systems have rights of theirs."""
    folder = tmp_path / "checkpoint"
    make_private(form.format(folder), alone=False)
    make_private("hdfs://host/checkpoint", alone=True)
    assert list(tmp_path.iterdir()) == []
    assert not Path("hdfs:").exists()
    make_private(form.format(folder), alone=True)
    assert rights(folder) == 0o700


def test_a_log_is_private_also_if_it_was_not(tmp_path: Path) -> None:
    """It names topics and clusters."""
    log = tmp_path / "log"
    log.write_bytes(b"old\n")
    log.chmod(0o644)
    with open_private(log) as file:
        file.write(b"new\n")
    assert (log.read_bytes(), rights(log)) == (b"old\nnew\n", 0o600)
    link = tmp_path / "link"
    link.symlink_to(log)
    with pytest.raises(OSError, match="symbolic links"):
        open_private(link)


@pytest.mark.usefixtures("open_mask")
def test_processes_started_under_the_mask_inherit_it(tmp_path: Path) -> None:
    """Spark's JVM and its workers make files and sockets of their own."""
    made = tmp_path / "made"
    with private_files():
        subprocess.run([sys.executable, "-c", f"open({str(made)!r}, 'w')"], check=True)
    assert os.umask(0) == 0
    assert rights(made) == 0o600
