"""A writer of a schema: the function of one expression for each record.

The bytes are those that fastavro writes, in a third of its time.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from spu_assigner.schemas.avro.meaning import NO_FORM, Meaning, Source, Writer, short_name
from spu_assigner.schemas.avro.registry import REGISTER
from spu_assigner.schemas.avro.writing import (
    array_bytes,
    bytes_bytes,
    int_bytes,
    long_bytes,
    text_bytes,
)
from spu_assigner.schemas.errors import SchemaError


def compile_writer(schema: Any, meaning: Meaning) -> Writer:
    """A writer of one expanded record, which is an object of its class, or a dict if it has none.

    Raises:
        SchemaError: a union that is not of null and another type, or an enum without a word that
            the core has: the schema was not registered again.
    """
    name = short_name(schema)
    fields = schema["fields"]
    source = Source("def made(value):")
    path = "value.{}" if name in meaning.classes else "value[{!r}]"
    if (dump := meaning.forms.get(name, NO_FORM).dump) is not None:
        source.add(f"value = {source.name(dump)}(value)")
    parts = [
        _expression(source, field["type"], path.format(field["name"]), meaning, _key(name, field))
        for field in fields
    ]
    source.add(f"return {source.name(b''.join)}(({', '.join(parts)},))")
    return source.function()  # type: ignore[no-any-return]


def _key(name: str, field: Any) -> str:
    return f"{name}.{field['name']}"


def _expression(source: Source, schema: Any, value: str, meaning: Meaning, key: str) -> str:
    """The expression of a value's bytes; `key` is "Record.field", empty inside arrays and maps."""
    if isinstance(schema, list) and len(schema) == 2 and schema[0] in ("null", {"type": "null"}):
        written = _expression(source, schema[1], value, meaning, key)
        return f"(b'\\x00' if {value} is None else b'\\x02' + {written})"
    kind = schema["type"] if isinstance(schema, dict) else schema
    form = meaning.forms.get(short_name(schema) if kind == "fixed" else key, NO_FORM)
    if form.write is not None:
        return f"{source.name(form.write)}({value})"
    if form.dump is not None:
        value = f"{source.name(form.dump)}({value})"
    match kind:
        case "int" | "long":
            write = source.name(int_bytes if kind == "int" else long_bytes)
            return f"{write}({value}, {key.rpartition('.')[2]!r})"
        case "string" | "bytes":
            return f"{source.name(text_bytes if kind == 'string' else bytes_bytes)}({value})"
        case "boolean":
            return f"(b'\\x01' if {value} else b'\\x00')"
        case "fixed":
            return value
        case "enum":
            table = _indexes(meaning.enums[short_name(schema)], schema["symbols"])
            return f"{source.name(table)}[{value}]"
        case "array":
            item = _expression(source, schema["items"], "each", meaning, "")
            return _array(source, f"{item} for each in items", value)
        case "map":
            member = _expression(source, schema["values"], "each", meaning, "")
            pair = f"{source.name(text_bytes)}(name) + {member}"
            return _array(source, f"{pair} for name, each in items.items()", value)
        case "record":
            return f"{source.name(compile_writer(schema, meaning))}({value})"
        case _:
            raise SchemaError(f"cannot write {schema!r}")


def _indexes(enum: type[Enum], symbols: list[str]) -> dict[Enum, bytes]:
    """The bytes of each word."""
    if absent := [word for word in enum if word.name not in symbols]:
        raise SchemaError(f"{absent[0]!r} is not in the registered schema; {REGISTER}")
    return {enum[symbol]: long_bytes(index) for index, symbol in enumerate(symbols)}


def _array(source: Source, items: str, value: str) -> str:
    """The expression of an array or a map; most are empty."""
    return f"({source.name(array_bytes)}([{items}]) if (items := {value}) else b'\\x00')"
