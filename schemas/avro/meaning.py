"""What values of a schema are to the program, and the functions made of source for it.

Without a meaning a record is a dict, an enum its symbol, an array a list. Readers and writers are
made of source, one function for each record, since a call for each field takes twice the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[Any], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a named type or one field is held, where that is not as its schema says."""

    load: Callable[[Any], Any] | None = None  # from what the schema says
    dump: Callable[[Any], Any] | None = None  # and back
    read: Reader | None = None  # in place of the reader of the schema
    write: Writer | None = None  # likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """Tables by the names of a schema, without namespace. Of a union with null, the other branch
    takes the field's form.
    """

    classes: Mapping[str, type] = field(default_factory=dict)  # dataclasses, of records
    enums: Mapping[str, type[Enum]] = field(default_factory=dict)
    forms: Mapping[str, Form] = field(default_factory=dict)  # of a type, or "Record.field"
    array: Callable[[list[Any]], Any] = list  # what arrays become


NO_FORM: Final = Form()
PLAIN: Final = Meaning()


def short_name(schema: Any) -> str:
    """The name of a named type without its namespace; empty: it has none."""
    name = schema.get("name", "") if isinstance(schema, dict) else ""
    return str(name).rpartition(".")[2]


class Source:
    """The source of a function, and the objects that it uses."""

    def __init__(self, head: str) -> None:
        self._lines = [head]
        self._objects: dict[str, Any] = {}

    def add(self, *lines: str, depth: int = 1) -> None:
        """Add lines, so deep in the function."""
        self._lines += ["    " * depth + line for line in lines]

    def name(self, value: Any) -> str:
        """A name for an object."""
        name = f"_{len(self._objects)}"
        self._objects[name] = value
        return name

    def function(self) -> Any:
        """The function."""
        scope = dict(self._objects)
        exec("\n".join(self._lines), scope)  # noqa: S102  # as `dataclass` does; made here alone
        return scope["made"]
