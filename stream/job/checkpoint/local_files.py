"""A checkpoint's files on this machine's own disk, read and written without Spark.

Their contents are checked by the same code that reads them through Hadoop's file systems.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path


class LocalFiles:
    """Reads and writes small files, lists folders; places may begin with `file:`."""

    def lines(self, path: str) -> list[str] | None:
        """The lines of a text file; None: there is none."""
        try:
            text = local_path(path).read_bytes()
        except FileNotFoundError:
            return None
        return text.decode(errors="replace").splitlines()

    def names(self, folder: str) -> list[str] | None:
        """The names in a folder, in order, without the hidden sums; None: there is none."""
        try:
            names = [each.name for each in local_path(folder).iterdir()]
        except FileNotFoundError:
            return None
        return sorted(name for name in names if not name.endswith(".crc"))

    def sha256(self, path: str) -> str | None:
        """The SHA-256 of a file, hexadecimal; None: there is none."""
        try:
            with local_path(path).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        """Write a text file of this user's alone, whole or not at all; an older one is replaced."""
        place = local_path(path)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        half = place.with_name(f".{place.name}.half")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(half, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        half.replace(place)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing if there is none."""
        place = local_path(path)
        with suppress(FileNotFoundError):
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            else:
                place.unlink()


def local_path(place: str) -> Path:
    """The path of a place on this machine's disk."""
    return Path(place.removeprefix("file://").removeprefix("file:"))
