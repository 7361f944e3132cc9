"""Manual replica lists from a file, in either of the documents' forms.

Only what cannot be sent is refused here; what is wrong with the lists themselves is for the core to
say, which names the first fault.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final, NoReturn

from spu_assigner.core.errors import AssignerError
from spu_assigner.core.limits import MANUAL_FILE_SIZE_MAX

FORMS: Final = (
    'a list like [{"id": 0, "replicas": [0, 1, 2]}], or an object {"partitions": [such a list]}'
)


class AssignmentFileError(AssignerError):
    """The file holds no replica lists."""

    exit_status = 2

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f"replica assignment {str(path)!r} {reason}")


def read_assignment(path: Path) -> Any:
    """The manual lists of a file, as they are there.

    Raises:
        AssignmentFileError: not a regular file, over 8 MiB, or no JSON of either form.
    """
    data = _read(path)
    try:
        value = json.loads(
            data.decode("utf-8-sig"), object_pairs_hook=_unique, parse_constant=_no_constant
        )
    except UnicodeDecodeError as error:
        raise AssignmentFileError(path, f"is no UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise AssignmentFileError(path, f"is no JSON at {where}: {error.msg}") from error
    except RecursionError as error:
        raise AssignmentFileError(path, f"is nested too deeply; expected {FORMS}") from error
    except ValueError as error:
        raise AssignmentFileError(path, f"cannot be read: {error}") from error
    is_object = isinstance(value, dict) and list(value) == ["partitions"]
    lists = value["partitions"] if is_object else value
    if not isinstance(lists, list):
        raise AssignmentFileError(path, f"is neither form; expected {FORMS}")
    return value


def _read(path: Path) -> bytes:
    try:
        # Opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise AssignmentFileError(path, "is not a regular file")
            data = file.read(MANUAL_FILE_SIZE_MAX + 1)
    except OSError as error:
        raise AssignmentFileError(path, f"cannot be read: {error.strerror}") from error
    if len(data) > MANUAL_FILE_SIZE_MAX:
        raise AssignmentFileError(path, f"has more than {MANUAL_FILE_SIZE_MAX} bytes")
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"{name[:80]!r} is given more than once in one object")
        members[name] = value
    return members


def _no_constant(constant: str) -> NoReturn:
    raise ValueError(f"found {constant}; expected a whole number")
