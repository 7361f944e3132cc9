"""Reading a file that another user may have put there: whole, or not at all.

Only a regular file is read, no more of it than its limit, and never by waiting, as for a pipe's
end. What was opened is what is judged, so a file that is exchanged meanwhile is no other case.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from spu_assigner.core.base.errors import AssignerError


class FileRefusedError(AssignerError):
    """A file that is not read."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason  # what follows the file's name in a message
        super().__init__(f"{str(path)!r} {reason}")


def read_plain_file(
    path: Path, *, size_max: int, follows_link: bool = True, is_private: bool = False
) -> bytes:
    """The bytes of a regular file of at most `size_max`; raises FileRefusedError if it is none.

    Args:
        follows_link: whether the file may be a symbolic link; its folders always may.
        is_private: whether it must belong to this user, and no other may open it.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # Opening a pipe would wait for a writer.
    try:
        descriptor = os.open(path, flags | (0 if follows_link else os.O_NOFOLLOW))
        try:
            if fault := _fault(path, os.fstat(descriptor), is_private=is_private):
                raise FileRefusedError(path, fault)
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(size_max + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno == errno.ELOOP and not follows_link:
            reason = "is a symbolic link; name the file that it leads to"
        else:
            reason = f"cannot be read: {error.strerror}"
        raise FileRefusedError(path, reason) from error
    except ValueError as error:  # The name holds a NUL, or half a surrogate pair.
        raise FileRefusedError(path, f"cannot be read: {error}") from error
    if len(data) > size_max:
        raise FileRefusedError(path, f"has more than {size_max} bytes")
    return data


def _fault(path: Path, status: os.stat_result, *, is_private: bool) -> str | None:
    """Why an open file is not read."""
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if is_private and status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, not to {os.geteuid()}, who reads it"
    if is_private and mode & 0o077:
        return f"is open to others (mode {mode:04o}): `chmod 600 {path}`"
    return None
