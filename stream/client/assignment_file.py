"""Manual replica lists from a file, in either of the documents' forms.

Only what cannot be sent is refused here; what is wrong with the lists themselves is for the core to
say, which names the first fault.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import MANUAL_FILE_SIZE_MAX
from spu_assigner.schemas.errors import LineError
from spu_assigner.schemas.json_lines.json_object import (
    REASSIGNMENT,
    is_reassignment,
    strict_value,
)
from spu_assigner.schemas.json_lines.kinds import MANUAL_DEPTH_MAX, is_deeper_than
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file

_FORMS: Final = (
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
        AssignmentFileError: not a regular file, a link to one, over 8 MiB, or no JSON of either
            form.
    """
    try:
        data = read_plain_file(path, size_max=MANUAL_FILE_SIZE_MAX, follows_link=False)
    except FileRefusedError as error:
        raise AssignmentFileError(path, error.reason) from error
    try:
        value = strict_value(data.decode("utf-8").removeprefix("\ufeff"))
        is_too_deep = is_deeper_than(value, MANUAL_DEPTH_MAX)
    except RecursionError:
        is_too_deep = True
    except (LineError, ValueError) as error:
        reason = error.message if isinstance(error, LineError) else str(error)
        raise AssignmentFileError(path, f"cannot be read: {reason}; expected {_FORMS}") from error
    if is_too_deep:
        raise AssignmentFileError(path, f"is nested too deeply; expected {_FORMS}")
    if is_reassignment(value):
        raise AssignmentFileError(path, f"{REASSIGNMENT}; expected {_FORMS}")
    is_object = isinstance(value, dict) and list(value) == ["partitions"]
    if not isinstance(value["partitions"] if is_object else value, list):
        raise AssignmentFileError(path, f"is neither form; expected {_FORMS}")
    return value
