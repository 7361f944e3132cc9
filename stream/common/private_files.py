"""Folders and files that are for this user's eyes alone: state, data, logs, sockets.

Folders of the product are 0700; what Spark and Kafka write inside is made under a mask that leaves
nothing to others. Folders on other file systems (`hdfs://`, `s3a://`) are guarded there.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from spu_assigner.core.base.errors import AssignerError

MASK: Final = 0o077  # a umask: nothing for the group, nothing for others
_WRITABLE: Final = 0o022


class FolderError(AssignerError):
    """A folder that others can change, or that cannot be made."""

    exit_status = 2

    def __init__(self, *, folder: Path, found: str, advice: str) -> None:
        self.folder = folder
        super().__init__(f"{folder} {found}; {advice}")


def private_folder(folder: Path) -> None:
    """Make a folder 0700; take the rights to read from others where it is there already. What
    others could have written is not trusted, so that is refused, not changed."""
    with _as_folder_error(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = _trusted_mode(folder)
        if mode & MASK:
            folder.chmod(mode & ~MASK)
            done = f"{folder} could be read by others (mode {mode:04o}): made {mode & ~MASK:04o}"
            print(f"spu-assigner: {done}", file=sys.stderr)


def require_trusted(folder: Path) -> None:
    """Return if `private_folder` would take this folder, or could make it; nothing is changed."""
    with _as_folder_error(folder):
        place = folder
        try:
            _trusted_mode(folder)
        except FileNotFoundError:
            place = next(each for each in folder.parents if each.exists())
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(0, "it is no folder, or this user may not write there")


def _trusted_mode(folder: Path) -> int:
    """The rights to a folder; raises FolderError if others own it or may write there."""
    found = folder.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        raise FolderError(
            folder=folder,
            found=f"belongs to user {found.st_uid}, expected this one, {os.geteuid()}",
            advice="name another folder, e.g. a new one inside it, or change its owner",
        )
    if mode & _WRITABLE:
        raise FolderError(
            folder=folder,
            found=f"can be written by others (mode {mode:04o}, expected 0700)",
            advice=f"if all in it can be trusted, `chmod 700 {folder}`, else name another "
            "folder, e.g. a new one inside it",
        )
    return mode


@contextmanager
def _as_folder_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as reason:
        found = f"cannot be made a private folder ({reason.strerror})"
        raise FolderError(folder=folder, found=found, advice="name another") from reason


def open_private(path: Path) -> IO[bytes]:
    """Open a log to add to it, 0600, also where it was there with wider rights; no link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags, 0o600), "ab")
    os.fchmod(file.fileno(), 0o600)
    return file


@contextmanager
def private_files() -> Iterator[None]:
    """What is made meanwhile, and by processes started meanwhile, is for this user alone. The mask
    belongs to the process, so other threads' files are private too for that while."""
    before = os.umask(MASK)
    try:
        yield
    finally:
        os.umask(before)
