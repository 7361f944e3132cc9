"""All that is wrong with a line that makes no event, by the rules of reading it."""

from __future__ import annotations

from itertools import islice
from typing import Final

from spu_assigner.schemas.errors import LineError, LineFault
from spu_assigner.schemas.json_lines.json_object import lenient_members
from spu_assigner.schemas.json_lines.lines import event_of_members
from spu_assigner.stream.lint.json_positions import Path, Places

FAULTS_MAX: Final = 1_000  # of one line


def faults_of_line(raw: bytes, first: LineError) -> list[LineError]:
    """What is wrong with a line that was refused for its first fault."""
    try:
        members = lenient_members(raw)
    except LineError:
        return [first]
    slips = [error for _, error in islice(Places(raw.decode()).slips(), FAULTS_MAX)]
    told = {slip.field for slip in slips if slip.fault is LineFault.WRONG_VALUE}
    faults: list[LineError] = [*slips]

    def tell(error: LineError) -> None:
        if len(faults) == FAULTS_MAX:
            return
        if error.fault is not LineFault.WRONG_VALUE or error.field not in told:
            faults.append(error)

    event_of_members(members, len(raw), tell)
    return faults or [first]


def places_of(raw: bytes) -> Places | None:
    """The places of a line; None if it is no text. Faults of its JSON know their own."""
    try:
        return Places(raw.decode())
    except UnicodeDecodeError:
        return None


def path_of(field: str) -> Path:
    """The path to a field of a line: of labels the name is whatever follows the dot."""
    labels, dot, name = field.partition(".")
    if dot and labels == "labels":
        return labels, name
    return (field,) if field else ()
