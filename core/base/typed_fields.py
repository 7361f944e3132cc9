"""What a field may hold, by the type that its class names: taken, coerced or refused.

One rule for the fields of all events, and of the constraints and taints that they carry. What JSON
can say of a field is taken, and no value is guessed:

    type              taken as it is    coerced                          refused, among others
    int               int               numpy's integers                 bool, 7.0, "7"
    bool              bool                                               0, "true"
    str               str               numpy's texts                    half a surrogate pair
    an enumeration    its members       their words: "decommission"      any other text
    tuple[X, ...]     tuple             list, numpy array, ReplicaLists  a text, a set
    Mapping[str, X]                     each mapping, copied to a dict   a list of pairs
    a class           its objects       a mapping of its fields          unknown or absent fields
    Any               list, dict        tuple, other mappings            all else
    X | None          None, as X        as X                             as X

Whether a number is in range is not judged here: `decide` answers that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter, index
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from msgspec.structs import force_setattr
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.limits import is_text
from spu_assigner.core.base.structs import FrozenStruct

Take = Callable[[str, Any], Any]
Built = TypeVar("Built")

_NAMES: Final = ("event_id", "cluster_id", "topic")  # texts that the events check themselves
UNICODE: Final = "a text in Unicode; half a surrogate pair is none"


@dataclass(frozen=True, slots=True)
class FieldType:
    """What a field may hold."""

    expected: str  # in words
    take: Take  # by the field's name and a value: what is kept of it; raises InvalidEventError
    settled: tuple[type, ...] = ()  # types of which `take` gives back every value as it is


class TypedFields(FrozenStruct, frozen=True):
    """An object whose fields hold what their types say, once it exists."""

    def __post_init__(self) -> None:
        settle_fields(self)


def settle_fields(made: TypedFields) -> None:
    """Coerce the fields of an object that was just made.

    Raises:
        InvalidEventError: a value is none that its field can take.
    """
    cls: Any = type(made)
    known = _known(cls)
    values = known.values_of(made)
    if (*map(type, values),) not in known.settled:
        _settle(made, known, values)


def taken_as(hint: Any, field: str, value: object) -> Any:
    """A value as a field of this type keeps it.

    Raises:
        InvalidEventError: it is none that the field can take.
    """
    return field_type(hint).take(field, value)


def built(cls: type[Built], members: Mapping[Any, Any], *, path: str) -> Built:
    """The object of a dataclass that has these members.

    Args:
        cls: the dataclass.
        members: by name; those that have a default may be absent.
        path: of the members in messages.

    Raises:
        InvalidEventError: a member is unknown, absent, or of another type.
    """
    named: Any = cls
    types, required = _members(named)
    if not required <= members.keys() <= types.keys():
        must = f"; {', '.join(sorted(required))} must be there" if required else ""
        expected = f"an object with the fields {', '.join(types)}{must}"
        raise InvalidEventError(field=path, value=members, expected=expected)
    return cls(**{name: types[name].take(f"{path}.{name}", each) for name, each in members.items()})


@cache
def field_type(hint: Any) -> FieldType:
    """What a field of this type may hold."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if type(None) in args:
        (held,) = (each for each in args if each is not type(None))
        return _or_none(field_type(held))
    if origin is tuple:
        is_open = args[-1] is ...
        return _list(field_type(args[0])) if is_open else _row(tuple(map(field_type, args)))
    if origin is Mapping:
        return _mapping(field_type(args[1]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice(hint)
    if hasattr(hint, "_fields"):
        return _row(tuple(kind for kind in _members(hint)[0].values()), hint)
    return _object(hint)


@dataclass(frozen=True, slots=True)
class _KnownClass:
    types: tuple[tuple[str, FieldType], ...]  # by name
    values_of: Callable[[object], tuple[Any, ...]]
    # Types of all values together for which nothing needs to be looked at.
    settled: set[tuple[type, ...]]


@cache
def _known(cls: Any) -> _KnownClass:
    types = tuple(_members(cls)[0].items())
    return _KnownClass(types, attrgetter(*(name for name, _ in types)), set())


@cache
def _members(cls: Any) -> tuple[dict[str, FieldType], frozenset[str]]:
    """The types of the fields by name, and the names of those without a default."""
    hints = get_type_hints(cls)
    if not is_dataclass(cls):  # a named tuple
        return {name: field_type(hints[name]) for name in cls._fields}, frozenset()
    types = {
        field.name: _NAME if field.name in _NAMES else field_type(hints[field.name])
        for field in fields(cls)
    }
    return types, frozenset(field.name for field in fields(cls) if field.default is MISSING)


def _settle(made: TypedFields, known: _KnownClass, values: tuple[Any, ...]) -> None:
    is_settled = True
    for (name, kind), value in zip(known.types, values, strict=True):
        if type(value) in kind.settled:
            continue
        is_settled = False
        kept = kind.take(name, value)
        if kept is not value:
            force_setattr(made, name, kept)
    if is_settled:  # The combinations of such types are few.
        known.settled.add((*map(type, values),))


def _take_integer(field: str, value: Any) -> int:
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if not isinstance(value, bool) and kind != "b":  # numpy 2.0 takes its bool as an index too.
        try:
            return int(index(value))
        except TypeError:
            pass
    raise InvalidEventError(field=field, value=value, expected="a whole number")


def _take_bool(field: str, value: Any) -> bool:
    if value is True or value is False:
        return value
    raise InvalidEventError(field=field, value=value, expected="True or False")


def _take_text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidEventError(field=field, value=value, expected="a text")
    text = value if type(value) is str else str.__str__(value)
    if is_text(text):
        return text
    raise InvalidEventError(field=field, value=value, expected=UNICODE)


def _take_lists(field: str, value: Any) -> Any:
    """Manual lists as they come out of JSON; `decide` judges what is inside."""
    if isinstance(value, Mapping):
        return value if type(value) is dict else dict(value)
    if isinstance(value, list | tuple):
        return value if type(value) is list else list(value)
    expected = 'a list of {"id": 0, "replicas": [0, 1]}, or {"partitions": such a list}'
    raise InvalidEventError(field=field, value=value, expected=expected)


_NAME: Final = FieldType("a text", _take_text, (str,))
_PLAIN: Final[dict[Any, FieldType]] = {
    int: FieldType("a whole number", _take_integer, (int,)),
    bool: FieldType("True or False", _take_bool, (bool,)),
    str: FieldType("a text", _take_text),
    Any: FieldType("manual lists", _take_lists, (list, dict)),
}


def _or_none(kind: FieldType) -> FieldType:
    expected = f"{kind.expected}, or None"

    def take(field: str, value: Any) -> Any:
        if value is None:
            return None
        return kind.take(field, value)

    return FieldType(expected, take, (*kind.settled, type(None)))


def _choice(words: type[Enum]) -> FieldType:
    by_word = {word.value: word for word in words}
    expected = f"one of {', '.join(map(repr, by_word))}"

    def take(field: str, value: Any) -> Enum:
        if isinstance(value, str) and value in by_word:
            return by_word[str.__str__(value)]
        raise InvalidEventError(field=field, value=value, expected=expected)

    return FieldType(expected, take, (words,))


def _items(value: Any) -> list[Any] | tuple[Any, ...] | None:
    """The items of a list, a tuple, or an array; None: it is none of these."""
    if isinstance(value, list | tuple):
        return value
    plain = value.tolist() if hasattr(value, "tolist") else None
    return plain if isinstance(plain, list) else None


def _list(kind: FieldType) -> FieldType:
    expected = f"a list, each item {kind.expected}"
    settled = {*kind.settled}

    def take(field: str, value: Any) -> tuple[Any, ...]:
        items = _items(value)
        if items is None:
            raise InvalidEventError(field=field, value=value, expected=expected)
        if settled.issuperset(map(type, items)):
            return tuple(items)
        return tuple([kind.take(f"{field}[{at}]", each) for at, each in enumerate(items)])

    return FieldType(expected, take)


def _row(kinds: tuple[FieldType, ...], cls: Any = None) -> FieldType:
    """Items of which each has a type of its own; a named tuple, if it is one."""
    expected = f"a list of {len(kinds)}: {'; '.join(kind.expected for kind in kinds)}"

    def take(field: str, value: Any) -> tuple[Any, ...]:
        items = _items(value)
        if items is None or len(items) != len(kinds):
            raise InvalidEventError(field=field, value=value, expected=expected)
        pairs = enumerate(zip(kinds, items, strict=True))
        row = tuple([kind.take(f"{field}[{at}]", each) for at, (kind, each) in pairs])
        return row if cls is None else cls(*row)

    return FieldType(expected, take)


def _mapping(kind: FieldType) -> FieldType:
    expected = f"a mapping of names, each to {kind.expected}"

    def take(field: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise InvalidEventError(field=field, value=value, expected=expected)
        return {
            _take_text(f"a name in {field}", name): kind.take(f"{field}.{name}", each)
            for name, each in value.items()
        }

    return FieldType(expected, take)


def _object(cls: Any) -> FieldType:
    expected = f"{cls.__name__}, or a mapping of its fields"

    def take(field: str, value: Any) -> Any:
        if isinstance(value, cls):
            return value
        if isinstance(value, Mapping) and hasattr(cls, "__dataclass_fields__"):
            return built(cls, value, path=field)
        raise InvalidEventError(field=field, value=value, expected=expected)

    return FieldType(expected, take, (cls,))
