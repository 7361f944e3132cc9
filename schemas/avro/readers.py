"""A strict reader of a schema, and of the messages of its earlier versions.

Each record's reader is one function made of source: short texts and numbers are read in its lines,
all else by the functions of `strict_reading`.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from io import BytesIO
from typing import Any, Final

import fastavro
from spu_assigner.schemas.avro.meaning import NO_FORM, PLAIN, Meaning, Reader, Source, short_name
from spu_assigner.schemas.avro.strict_reading import (
    array_reader,
    fixed_reader,
    map_reader,
    read_boolean,
    read_bytes,
    read_int,
    read_long,
    read_text,
    undecodable,
)
from spu_assigner.schemas.errors import DecodeError, SchemaError

_READERS: Final[dict[Any, Reader]] = {
    "int": read_int,
    "long": read_long,
    "string": read_text,
    "boolean": read_boolean,
    "bytes": read_bytes,
}


def compile_reader(schema: Any, meaning: Meaning = PLAIN, *, current: Any = None) -> Reader:
    """A reader of one expanded schema (no references to named types).

    With `current`, a later version, it gives what a message of that version would: fields that came
    since have their defaults, fields that went are dropped.

    Raises:
        SchemaError: a recursive schema, a type of zero width, or one this package does not use.
    """
    current = schema if current is None else _counterpart(schema, current)
    match schema:
        case str() if schema in _READERS:
            return _READERS[schema]
        case {"type": str(name)} if name in _READERS:
            return _READERS[name]
        case {"type": "record", "fields": [_, *_] as written}:
            return _record_reader(schema, written, current["fields"], meaning)
        case {"type": "fixed", "size": int(size)} if size > 0:
            return fixed_reader(size, meaning.forms.get(short_name(schema), NO_FORM).load)
        case {"type": "array", "items": items}:
            read_item = compile_reader(items, meaning, current=current["items"])
            return array_reader(read_item, load=meaning.array)
        case {"type": "map", "values": values}:
            return map_reader(compile_reader(values, meaning, current=current["values"]))
        case list() | {"type": "enum"}:
            source = Source("def made(data, position):")
            _add_value(source, "value", schema, current, meaning)
            source.add("return value, position")
            return source.function()  # type: ignore[no-any-return]
        case _:
            raise SchemaError(f"cannot read {schema!r}: recursive, of zero width, or unused here")


def _counterpart(schema: Any, current: Any) -> Any:
    """The type of the later version that a value has; its union's branch, if it is one."""
    if not isinstance(current, list) or isinstance(schema, list):
        return current
    for branch in current:
        if branch == schema or (short_name(branch) and short_name(branch) == short_name(schema)):
            return branch
    return schema  # A number that became a long.


def _record_reader(schema: Any, written: list[Any], current: list[Any], meaning: Meaning) -> Reader:
    name = short_name(schema)
    cls = meaning.classes.get(name)
    source = Source("def made(data, position):")
    target = "field_{}"
    if cls is None:
        source.add("value = {}")
        target = "value[{!r}]"
    missing = {field["name"]: field for field in current}
    for field in written:
        later = missing.pop(field["name"], None)
        variable = "dropped" if later is None else target.format(field["name"])
        type_ = field["type"] if later is None else later["type"]
        _add_value(source, variable, field["type"], type_, meaning, key=f"{name}.{field['name']}")
    for field in missing.values():
        default = source.name(_default(name, field, meaning))
        source.add(f"{target.format(field['name'])} = {default}")
    if cls is not None:
        names = [field["name"] for field in current]
        _check_fields(cls, names)
        given = ", ".join(f"{each}={target.format(each)}" for each in names)
        source.add(f"value = {source.name(cls)}({given})")
    if (load := meaning.forms.get(name, NO_FORM).load) is not None:
        source.add(f"value = {source.name(load)}(value)")
    source.add("return value, position")
    return source.function()  # type: ignore[no-any-return]


def _check_fields(cls: type, read: list[str]) -> None:
    for field in fields(cls):
        if field.name not in read and field.default is MISSING:
            raise SchemaError(f"the schema of {cls.__name__} has no field {field.name}")


def _default(name: str, field: Any, meaning: Meaning) -> Any:
    """A field's default, as if it had been read."""
    body = BytesIO()
    fastavro.schemaless_writer(body, field["type"], field["default"])
    classes = {each: cls for each, cls in meaning.classes.items() if each != name}
    forms = {each: form for each, form in meaning.forms.items() if each != name}
    bare = replace(meaning, classes=classes, forms=forms)
    read = _record_reader({"name": name}, [field], [field], bare)
    value, _ = read(body.getvalue(), 0)
    return value[field["name"]]


def _add_value(
    source: Source,
    target: str,
    schema: Any,
    current: Any,
    meaning: Meaning,
    *,
    key: str = "",
    depth: int = 1,
) -> None:
    """The lines that read a value into a variable; `key` is "Record.field"."""

    def add(*lines: str) -> None:
        source.add(*lines, depth=depth)

    form = meaning.forms.get(key, NO_FORM)
    if isinstance(schema, list):
        add(*_number_lines("index", source.name(read_long)))
        for number, branch in enumerate(schema):
            add(f"{'elif' if number else 'if'} index == {number}:")
            if branch in ("null", {"type": "null"}):
                source.add(f"{target} = None", depth=depth + 1)
            else:
                type_ = _counterpart(branch, current)
                _add_value(source, target, branch, type_, meaning, key=key, depth=depth + 1)
        add(
            "else:",
            f'    raise {source.name(_wrong_index)}("a union\'s branch", index, {len(schema)})',
        )
        return
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "enum":
        enum = meaning.enums.get(short_name(schema))
        symbols = [each if enum is None else enum[each] for each in schema["symbols"]]
        add(
            *_number_lines("index", source.name(read_long)),
            f"if not 0 <= index < {len(symbols)}:",
            f'    raise {source.name(_wrong_index)}("an enum\'s index", index, {len(symbols)})',
            f"{target} = {source.name(symbols)}[index]",
        )
    elif kind in ("int", "long"):
        add(*_number_lines(target, source.name(_READERS[kind])))
    elif kind == "string":
        add(
            "size = data[position]",
            "end = position + 1 + (size >> 1)",
            "if size & 0x81 or end > len(data):",  # longer than 63 bytes, negative, or cut
            f"    {target}, position = {source.name(read_text)}(data, position)",
            "else:",
            f"    {target} = data[position + 1 : end].decode()",
            "    position = end",
        )
    else:
        read = form.read or compile_reader(schema, meaning, current=current)
        add(f"{target}, position = {source.name(read)}(data, position)")
    if form.load is not None:
        add(f"{target} = {source.name(form.load)}({target})")


def _number_lines(target: str, read: str) -> list[str]:
    return [
        "byte = data[position]",
        "if byte < 0x80:",
        f"    {target} = (byte >> 1) ^ -(byte & 1)",
        "    position += 1",
        "else:",
        f"    {target}, position = {read}(data, position)",
    ]


def _wrong_index(what: str, index: int, count: int) -> DecodeError:
    return undecodable(f"{what} is {index}; expected 0 to {count - 1}")
