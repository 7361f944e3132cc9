"""The base of events and records: frozen, made and compared in C.

A frozen dataclass sets its fields one by one in Python, which takes three times as long: a create
makes some ten such objects. Else it is as one: `fields`, `replace` and `is_dataclass` of
`dataclasses` take it.
"""

from __future__ import annotations

from dataclasses import Field, field, make_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields as fields_of


class _DataclassFields:
    """What `dataclasses` reads of a class; made when it is asked for."""

    def __get__(self, made: object, cls: type[Struct]) -> dict[str, Field[Any]]:
        return _dataclass_fields(cls)


@cache
def _dataclass_fields(cls: type[Struct]) -> dict[str, Field[Any]]:
    twin: Any = make_dataclass(
        cls.__name__,
        [
            (each.name, each.type)
            if each.default is NODEFAULT
            else (each.name, each.type, field(default=each.default))
            for each in fields_of(cls)
        ],
        kw_only=True,
    )
    found: dict[str, Field[Any]] = twin.__dataclass_fields__
    return found


class FrozenStruct(Struct, frozen=True):
    """A frozen object of named fields."""

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    else:
        __dataclass_fields__ = _DataclassFields()
