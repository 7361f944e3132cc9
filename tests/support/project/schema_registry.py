"""Register the schemas of schemas/ as they are: `python tests/support/project/schema_registry.py`.

The symbols of their enums are written first, those of the core's enums. An edited schema becomes
its type's next version if it reads all that earlier ones wrote, which is BACKWARD_TRANSITIVE in a
Schema Registry's words. The rules are Avro's resolution rules, but narrower: the only promotion is
int to long, and aliases and enum defaults do not count.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastavro.schema import SchemaParseException
from spu_assigner.schemas.avro.readers import compile_reader
from spu_assigner.schemas.avro.registry import (
    FILE_NAME,
    FOLDER,
    Registered,
    Registry,
    fingerprint_of,
)
from spu_assigner.schemas.errors import SchemaError
from spu_assigner.schemas.messages.meanings import MEANING


def write(folder: Path = FOLDER) -> list[str]:
    """Register the folder's schemas. Gives the faults that kept it from doing so."""
    registry = Registry.load(folder)
    try:
        for path in sorted(folder.glob("*.avsc")):
            schema = _read(path)
            if any([*map(_set_symbols, named_parts(schema))]):
                path.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", "utf-8")
            registry = with_schema(registry, path.stem, schema)
    except SchemaError as error:
        return [str(error)]
    found = faults(registry, folder)
    if not found:
        lines = ",\n".join(json.dumps(asdict(entry)) for entry in registry.entries)
        (folder / FILE_NAME).write_text(f'{{"schemas": [\n{lines}\n]}}\n', "utf-8")
    return found


def named_parts(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema's types and fields, itself first."""
    if isinstance(schema, dict):
        yield schema
    for each in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(each, dict | list):
            yield from named_parts(each)


def _set_symbols(part: dict[str, Any]) -> bool:
    """Give an enum the words of the core's enum of that name; whether it had others."""
    if part.get("type") != "enum" or part["name"] not in MEANING.enums:
        return False
    before, part["symbols"] = part["symbols"], [word.name for word in MEANING.enums[part["name"]]]
    return bool(before != part["symbols"])


def with_schema(registry: Registry, type_name: str, schema: dict[str, Any]) -> Registry:
    """A registry that holds this as the type's current schema; the same, if it does already."""
    versions = registry.versions(type_name)
    bare = _without_documentation(schema)
    if versions and versions[-1].schema == bare:
        return registry
    try:
        mark = fingerprint_of(schema)
    except SchemaParseException as error:
        raise SchemaError(f"{type_name}: {error}") from error
    same = [entry for entry in versions if entry.fingerprint == mark]
    if same and same[0] is not versions[-1]:
        raise SchemaError(f"{type_name} is its version {same[0].version} again; never go back")
    entry = Registered(
        id=same[0].id if same else 1 + max((each.id for each in registry.entries), default=0),
        type_name=type_name,
        version=same[0].version if same else len(versions) + 1,
        fingerprint=mark,
        schema=bare,
    )  # Where only defaults changed, the bytes did not: the entry stays, with the new defaults.
    return Registry([each for each in registry.entries if each not in same] + [entry])


def faults(registry: Registry, folder: Path = FOLDER) -> list[str]:
    """What is wrong with the registry and the files beside it, one sentence each."""
    found = [
        f"{path.name}: not registered as it is; run tests/support/project/schema_registry.py"
        for path in sorted(folder.glob("*.avsc"))
        if path.stem not in registry.type_names
        or registry.current(path.stem).schema != _without_documentation(_read(path))
    ]
    found += [
        f"{name}: registered, but {name}.avsc is gone"
        for name in registry.type_names
        if not (folder / f"{name}.avsc").exists()
    ]
    ids = [entry.id for entry in registry.entries]
    found += [f"id {each} is given twice" for each in sorted(set(ids)) if ids.count(each) > 1]
    for entry in registry.entries:
        label = f"{entry.type_name} version {entry.version}"
        current = registry.current(entry.type_name)
        if entry.fingerprint != fingerprint_of(entry.schema):
            found.append(f"{label}: its fingerprint is not the schema's; was it edited?")
        try:
            compile_reader(entry.expanded)
        except SchemaError as error:
            found.append(f"{label}: {error}")
        found += [
            f"{entry.type_name} version {current.version} cannot read version {entry.version}: "
            + each
            for each in breaks(current.expanded, entry.expanded)
        ]
    return found


def breaks(reader: Any, writer: Any, path: str = "value") -> list[str]:
    """What keeps `reader` from reading what `writer` wrote, one sentence each; empty: nothing does.

    Both are expanded schemas (no references to named types).
    """
    if isinstance(writer, list):
        found = [(_kind(branch), breaks(reader, branch, path)) for branch in writer]
        return [
            f"{path}: no branch reads {kind}: {'; '.join(said)}" for kind, said in found if said
        ]
    if isinstance(reader, list):
        if any(not breaks(branch, writer, path) for branch in reader):
            return []
        return [f"{path}: {_kind(writer)} is in no branch of {[*map(_kind, reader)]}"]
    now, then = _kind(reader), _kind(writer)
    if now != then:
        return [] if (now, then) == ("long", "int") else [f"{path}: {then} became {now}"]
    if now == "array":
        return breaks(reader["items"], writer["items"], f"{path}[]")
    if now == "map":
        return breaks(reader["values"], writer["values"], f"{path}{{}}")
    if now not in ("record", "enum", "fixed"):
        return []
    renamed = reader["name"] != writer["name"]
    told = [f"{path}: {writer['name']} became {reader['name']}"] if renamed else []
    if now == "enum":
        lost = [each for each in writer["symbols"] if each not in reader["symbols"]]
        return told + [f"{path}: symbol {symbol} is gone" for symbol in lost]
    if now == "fixed":
        return told + ([] if reader["size"] == writer["size"] else [f"{path}: another size"])
    written = {field["name"]: field["type"] for field in writer["fields"]}
    for field in reader["fields"]:
        name = field["name"]
        if name in written:
            told += breaks(field["type"], written[name], f"{path}.{name}")
        elif "default" not in field:
            told.append(f"{path}.{name}: new without a default")
    return told


def _kind(schema: Any) -> str:
    if isinstance(schema, dict):
        return str(schema["type"])
    return "union" if isinstance(schema, list) else str(schema)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _without_documentation(schema: Any) -> Any:
    match schema:
        case dict():
            return {k: _without_documentation(v) for k, v in schema.items() if k != "doc"}
        case list():
            return [_without_documentation(each) for each in schema]
        case _:
            return schema


if __name__ == "__main__":
    sys.exit("\n".join(write()) or 0)
