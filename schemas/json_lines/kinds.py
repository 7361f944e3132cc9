"""What a field of an event may hold as JSON, by the type that its class names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any, Final, get_args, get_origin, get_type_hints

from spu_assigner.core.base.limits import is_text
from spu_assigner.schemas.errors import LineFault
from spu_assigner.schemas.json_lines.json_object import quoted

FAULTS_MAX: Final = 100  # of one field that are reported; more help nobody
MANUAL_DEPTH_MAX: Final = 8  # well-formed manual lists are 4 deep; the core quotes what is not

Note = Callable[[LineFault, str, str], None]  # takes a fault, its message, and the field


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldKind:
    """What a field may hold."""

    expected: str
    types: tuple[type, ...]  # of a value of JSON
    finish: Callable[[str, Any, Note], Any] | None = None  # looks at what is inside
    null: Any = None  # what null stands for, if it may be there

    def read(self, name: str, value: object, note: Note) -> Any:
        """The value as the event has it; a fault is noted."""
        if type(value) not in self.types:  # A bool is an int to Python, not to the contract.
            note(
                LineFault.WRONG_VALUE, f"{name} is {quoted(value)}; expected {self.expected}", name
            )
        elif value is None:
            return self.null
        elif self.finish is not None:
            return self.finish(name, value, note)
        return value


def members_and_required(cls: Any) -> tuple[dict[str, FieldKind], tuple[str, ...]]:
    """The kinds of the fields of a dataclass, and the names of those that must be there."""
    hints = get_type_hints(cls)
    return (
        {field.name: kind_of(hints[field.name]) for field in fields(cls)},
        tuple(field.name for field in fields(cls) if field.default is MISSING),
    )


def kind_of(hint: Any) -> FieldKind:
    """The kind of a field by its type, or its type or None."""
    held, *others = get_args(hint) if type(None) in get_args(hint) else (hint,)
    kind = _KINDS.get(held)
    if kind is None:
        if get_origin(held) is tuple:
            kind = _list(get_args(held)[0])
        else:
            kind = _object(held) if is_dataclass(held) else _choice(held)
    return replace(kind, types=(*kind.types, *others))


def path_of(field: str) -> tuple[int | str, ...]:
    """The names and indexes on the way to a field that a fault names: `spread[0].max`."""
    return tuple(
        int(index) if index else name for name, index in re.findall(r"([^.[\]]+)|\[(\d+)\]", field)
    )


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


def _some(note: Note) -> Note:
    """Notes the first faults."""
    left = FAULTS_MAX

    def note_some(fault: LineFault, message: str, field: str) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            note(fault, message, field)

    return note_some


def _check_text(name: str, text: str, note: Note) -> str:
    if not is_text(text):
        said = (
            f"{name} is {quoted(text)}; expected a text in Unicode; half a surrogate pair is none"
        )
        note(LineFault.WRONG_VALUE, said, name)
    return text


def _check_labels(name: str, labels: dict[str, Any], note: Note) -> dict[str, Any]:
    note = _some(note)
    for key, text in labels.items():
        _check_text(name, key, note)
        _TEXT.read(f"{name}.{key}", text, note)
    return labels


def _check_amounts(name: str, amounts: dict[str, Any], note: Note) -> dict[str, Any]:
    """Whole numbers; whether they can be amounts the core judges."""
    note = _some(note)
    for key, amount in amounts.items():
        if type(amount) is not int or not is_text(key):
            field = f"{name}.{key}" if is_text(key) else name
            said = f"{name}.{quoted(key)} is {quoted(amount)}; expected a whole number"
            note(LineFault.WRONG_VALUE, said, field)
    return amounts


def _adopted_lists(name: str, lists: list[Any], note: Note) -> tuple[tuple[int, ...], ...]:
    """Lists of numbers; whether these are SPU ids the core judges."""
    for partition, replicas in enumerate(lists):
        if type(replicas) is not list or any(type(spu_id) is not int for spu_id in replicas):
            said = f"{name}[{partition}] is {quoted(replicas)}; expected a list of SPU ids"
            note(LineFault.WRONG_VALUE, said, name)
            return ()
    return tuple(map(tuple, lists))


def _check_depth(name: str, lists: object, note: Note) -> object:
    """Deeper down the core judges: the requester gets an answer."""
    if is_deeper_than(lists, MANUAL_DEPTH_MAX):
        said = f"{name} is nested more than {MANUAL_DEPTH_MAX} deep; expected lists of SPU ids"
        note(LineFault.TOO_DEEP, said, name)
    return lists


def _choice(words: type[StrEnum]) -> FieldKind:
    by_value = {word.value: word for word in words}
    expected = f"one of {', '.join(by_value)}"

    def choose(name: str, value: str, note: Note) -> StrEnum | None:
        if value not in by_value:
            said = f"{name} is {quoted(value)}; expected {expected}"
            note(LineFault.WRONG_VALUE, said, name)
        return by_value.get(value)

    return FieldKind(expected=expected, types=(str,), finish=choose)


def _list(item: Any) -> FieldKind:
    """A list of items of one type; null: an empty one."""
    kind = kind_of(item)

    def read_all(name: str, values: list[Any], note: Note) -> tuple[Any, ...]:
        note = _some(note)
        return tuple(
            kind.read(f"{name}[{index}]", value, note) for index, value in enumerate(values)
        )

    what = "texts" if item is str else f"objects with {', '.join(members_and_required(item)[0])}"
    return FieldKind(
        expected=f"a list of {what}", types=(list, type(None)), finish=read_all, null=()
    )


def _object(cls: Any) -> FieldKind:
    """An object of a dataclass."""
    kinds, required = members_and_required(cls)
    has = ", ".join(kinds)

    def read_members(name: str, members: dict[str, Any], note: Note) -> Any:
        is_sound = True

        def note_here(fault: LineFault, message: str, field: str) -> None:
            nonlocal is_sound
            is_sound = False
            note(fault, message, field)

        for absent in required:
            if absent not in members:
                said = f"{name}.{absent} is absent; expected {', '.join(required)}"
                note_here(LineFault.ABSENT_FIELD, said, name)
        values = {}
        for member, value in members.items():
            if member in kinds:
                values[member] = kinds[member].read(f"{name}.{member}", value, note_here)
            else:
                said = f"{name} has an unknown field {quoted(member)}; it may have {has}"
                note_here(LineFault.UNKNOWN_FIELD, said, name)
        return cls(**values) if is_sound else None

    return FieldKind(expected=f"an object that may have {has}", types=(dict,), finish=read_members)


_TEXT: Final = FieldKind(expected="a text", types=(str,), finish=_check_text)
_KINDS: Final[dict[Any, FieldKind]] = {
    int: FieldKind(expected="a whole number", types=(int,)),
    bool: FieldKind(expected="true or false", types=(bool,)),
    str: _TEXT,
    Mapping[str, str]: FieldKind(
        expected="an object of texts, or null", types=(dict,), finish=_check_labels
    ),
    Mapping[str, int]: FieldKind(
        expected="an object of whole numbers", types=(dict,), finish=_check_amounts
    ),
    tuple[tuple[int, ...], ...]: FieldKind(
        expected="a list of lists of SPU ids", types=(list,), finish=_adopted_lists
    ),
    Any: FieldKind(expected="a list, an object or null", types=(list, dict), finish=_check_depth),
}
