"""What a field of an event may hold as JSON, by the type that its class names.

A plain value is judged as the class itself judges it; of lists and objects each part is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, Final, get_args, get_origin, get_type_hints

from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.typed_fields import TypedFields, taker
from spu_assigner.schemas.errors import LineFault
from spu_assigner.schemas.json_lines.json_object import quoted

FAULTS_MAX: Final = 100  # of one list that are reported: no reader needs more
MANUAL_DEPTH_MAX: Final = 8  # well-formed manual lists are 4 deep; the core quotes what is not

Note = Callable[[LineFault, str, str], None]  # takes a fault, its message, and the field
# Reads a field: takes its name and a value of JSON, returns the event's value; a fault is noted.
FieldReader = Callable[[str, Any, Note], Any]


def members_and_required(cls: Any) -> tuple[dict[str, FieldReader], tuple[str, ...]]:
    """The readers of the fields of a class, and the names of those that must be there."""
    hints = get_type_hints(cls)
    return (
        {field.name: reader_of(hints[field.name]) for field in fields(cls)},
        tuple(field.name for field in fields(cls) if field.default is MISSING),
    )


def reader_of(hint: Any) -> FieldReader:
    """The reader of a field by its type, or its type or None."""
    held, *others = get_args(hint) if type(None) in get_args(hint) else (hint,)
    if get_origin(held) is tuple and get_origin(get_args(held)[0]) is not tuple:
        return _list_reader(get_args(held)[0])
    if isinstance(held, type) and issubclass(held, TypedFields):
        return _object_reader(held, may_be_null=bool(others))
    take = taker(hint)

    def read(name: str, value: Any, note: Note) -> Any:
        if held is Any and is_deeper_than(value, MANUAL_DEPTH_MAX):
            said = f"{name} is nested more than {MANUAL_DEPTH_MAX} deep; expected lists of SPU ids"
            note(LineFault.TOO_DEEP, said, name)
            return None
        try:
            return take(name, value)
        except InvalidEventError as error:
            expected = error.expected.replace("True or False", "true or false").replace("'", "")
            said = f"{error.field} is {quoted(error.value)}; expected {expected}"
            note(LineFault.WRONG_VALUE, said, error.field)
            return None

    return read


def is_deeper_than(value: object, depth: int) -> bool:
    """Whether lists and objects of JSON are nested more than `depth` deep. Cost: O(values)."""
    level: list[object] = [value]
    for _ in range(depth):
        level = [
            child
            for parent in level
            if isinstance(parent, (list, dict))
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
    return bool(level)


def _list_reader(item: Any) -> FieldReader:
    """A list of items of one type; null: an empty one."""
    read_item = reader_of(item)
    what = "texts" if item is str else f"objects with {', '.join(members_and_required(item)[0])}"

    def read(name: str, values: Any, note: Note) -> Any:
        if values is not None and type(values) is not list:
            said = f"{name} is {quoted(values)}; expected a list of {what}"
            note(LineFault.WRONG_VALUE, said, name)
            return ()
        left = FAULTS_MAX

        def note_some(fault: LineFault, message: str, field: str) -> None:
            nonlocal left
            left -= 1
            if left >= 0:
                note(fault, message, field)

        return tuple(
            read_item(f"{name}[{at}]", value, note_some) for at, value in enumerate(values or ())
        )

    return read


def _object_reader(cls: Any, *, may_be_null: bool) -> FieldReader:
    """An object of a class."""
    readers, required = members_and_required(cls)
    has = ", ".join(readers)

    def read(name: str, members: Any, note: Note) -> Any:
        if members is None and may_be_null:
            return None
        is_sound = True

        def note_here(fault: LineFault, message: str, field: str) -> None:
            nonlocal is_sound
            is_sound = False
            note(fault, message, field)

        if type(members) is not dict:
            said = f"{name} is {quoted(members)}; expected an object that may have {has}"
            note_here(LineFault.WRONG_VALUE, said, name)
            return None
        for absent in required:
            if absent not in members:
                said = f"{name}.{absent} is absent; expected {', '.join(required)}"
                note_here(LineFault.ABSENT_FIELD, said, name)
        values = {}
        for member, value in members.items():
            if member in readers:
                values[member] = readers[member](f"{name}.{member}", value, note_here)
            else:
                said = f"{name} has an unknown field {quoted(member)}; it may have {has}"
                note_here(LineFault.UNKNOWN_FIELD, said, name)
        return cls(**values) if is_sound else None

    return read
