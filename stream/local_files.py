"""A checkpoint's files on this machine's own disk, read without Spark.

What they hold is judged by the same code that reads them through Hadoop's file systems.
"""

from __future__ import annotations

import hashlib
from pathlib import Path


class LocalFiles:
    """Reads small files and folders; places may begin with `file:`."""

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


def local_path(place: str) -> Path:
    """The path of a place on this machine's disk."""
    return Path(place.removeprefix("file://").removeprefix("file:"))
