"""What a field may hold, by the type that its class names: taken, coerced or refused.

What JSON can say of a field is taken, and no value is guessed (docs/python-api.md, Events, has the
table). Whether a number is in range, `decide` answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from operator import attrgetter, index
from typing import Any, Final, NamedTuple, get_args, get_origin

from msgspec import NODEFAULT
from msgspec.structs import fields, force_setattr
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.limits import is_text
from spu_assigner.core.base.structs import FrozenStruct

Take = Callable[[str, Any], Any]  # of a field's name and a value what is kept, or InvalidEventError

_NAMES: Final = ("event_id", "cluster_id", "topic")  # texts that the events check themselves
UNICODE: Final = "a text in Unicode; half a surrogate pair is none"


class TypedFields(FrozenStruct, frozen=True):
    """An object whose fields hold what their types say, once it exists."""

    def __post_init__(self) -> None:
        """Coerce the fields; raises `InvalidEventError` for a value that a field cannot take."""
        known = _known(type(self))
        values = known.values_of(self)
        types = (*map(type, values),)
        if types in known.settled:
            return
        is_settled = True
        for (name, take), value in zip(known.takes.items(), values, strict=True):
            kept = take(name, value)
            if kept is not value:
                force_setattr(self, name, kept)
            is_kept_by_type = type(value) is not tuple and (
                type(value) is not str or name in _NAMES
            )
            is_settled &= kept is value and is_kept_by_type
        if is_settled:  # The combinations of such types are few.
            known.settled.add(types)


class _KnownClass(NamedTuple):
    takes: dict[str, Take]  # by field
    required: frozenset[str]
    values_of: Callable[[object], tuple[Any, ...]]
    settled: set[tuple[type, ...]]  # types of all values together of which each is kept as it is


@cache
def _known(cls: type[TypedFields]) -> _KnownClass:
    takes = {each.name: taker(each.type) for each in fields(cls)}
    required = frozenset(each.name for each in fields(cls) if each.default is NODEFAULT)
    return _KnownClass(takes, required, attrgetter(*takes), set())


@cache
def taker(hint: Any) -> Take:
    """How a value becomes that of a field of this type."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if type(None) in args:
        take = taker(args[0])
        return lambda field, value: None if value is None else take(field, value)
    if origin is tuple:
        return partial(_take_list, taker(args[0]))
    if origin is Mapping:
        return partial(_take_mapping, taker(args[1]))
    if issubclass(hint, Enum):
        return partial(_take_word, {word.value: word for word in hint})
    return partial(_take_object, hint)


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


def _take_manual_lists(field: str, value: Any) -> Any:
    """Manual lists as they come out of JSON; `decide` judges what is inside."""
    for types, plain in ((Mapping, dict), (list | tuple, list)):
        if isinstance(value, types):
            return value if type(value) is plain else plain(value)
    expected = 'a list of {"id": 0, "replicas": [0, 1]}, or {"partitions": such a list}'
    raise InvalidEventError(field=field, value=value, expected=expected)


_PLAIN: Final[dict[Any, Take]] = {
    int: _take_integer,
    bool: _take_bool,
    str: _take_text,
    Any: _take_manual_lists,
}


def _take_word(by_word: Mapping[str, Enum], field: str, value: Any) -> Enum:
    if isinstance(value, str) and value in by_word:
        return by_word[str.__str__(value)]
    expected = f"one of {', '.join(map(repr, by_word))}"
    raise InvalidEventError(field=field, value=value, expected=expected)


def _take_list(take: Take, field: str, value: Any) -> tuple[Any, ...]:
    items = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(items, list | tuple):
        raise InvalidEventError(field=field, value=value, expected="a list")
    if take is _take_integer and {*map(type, items)} == {int}:  # There may be a million.
        return tuple(items)
    return tuple([take(f"{field}[{at}]", each) for at, each in enumerate(items)])


def _take_mapping(take: Take, field: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidEventError(field=field, value=value, expected="a mapping of names")
    return {
        _take_text(f"a name in {field}", name): take(f"{field}.{name}", each)
        for name, each in value.items()
    }


def _take_object(cls: type[TypedFields], field: str, value: Any) -> TypedFields:
    if isinstance(value, cls):
        return value
    expected = f"{cls.__name__}, or a mapping of its fields"
    if isinstance(value, Mapping):
        takes, required, *_ = _known(cls)
        if required <= value.keys() <= takes.keys():
            return cls(**{name: takes[name](f"{field}.{name}", value[name]) for name in value})
        must = f"; {', '.join(sorted(required))} must be there" if required else ""
        expected = f"an object with the fields {', '.join(takes)}{must}"
    raise InvalidEventError(field=field, value=value, expected=expected)
