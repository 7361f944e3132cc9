"""The file registry: schema ids and fingerprints on the wire, for ever the same.

`registry.json` holds every version of every schema that was ever written with; each `<Type>.avsc`
beside it is the current one. After an edit of an `.avsc`:

    python -m spu_assigner.schemas.avro.registry --check   # what is not registered, or may not be
    python -m spu_assigner.schemas.avro.registry --write   # registers it if it reads all earlier

A release's entries are never changed nor taken out: messages in Kafka name them.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from fastavro.schema import (
    SchemaParseException,
    expand_schema,
    fingerprint,
    to_parsing_canonical_form,
)
from spu_assigner.schemas.avro.evolution import breaks
from spu_assigner.schemas.avro.readers import compile_reader
from spu_assigner.schemas.errors import SchemaError

FOLDER: Final = Path(__file__).parents[1]  # schemas/
FILE_NAME: Final = "registry.json"


@dataclass(frozen=True, kw_only=True)
class Registered:
    """One version of one schema."""

    id: int  # in Confluent's frame
    type_name: str
    version: int  # from 1, of this type
    fingerprint: str  # CRC-64-AVRO, hexadecimal, in the order of bytes on the wire
    schema: dict[str, Any]  # with defaults, without documentation

    @cached_property
    def expanded(self) -> Any:
        """The schema with its names in full and no references."""
        return expand_schema(self.schema)


class Registry:
    """All versions of all schemas, by id."""

    def __init__(self, entries: list[Registered]) -> None:
        self.entries = sorted(entries, key=lambda entry: entry.id)

    @classmethod
    def load(cls, folder: Path = FOLDER) -> Registry:
        """The registry of a folder."""
        return cls([Registered(**each) for each in _read(folder / FILE_NAME)["schemas"]])

    def save(self, folder: Path = FOLDER) -> None:
        """Write the file, one version a line."""
        lines = [
            json.dumps({name: getattr(entry, name) for name in entry.__dataclass_fields__})
            for entry in self.entries
        ]
        text = '{"schemas": [\n' + ",\n".join(lines) + "\n]}\n"
        (folder / FILE_NAME).write_text(text, "utf-8")

    def versions(self, type_name: str) -> list[Registered]:
        """All versions of a type, oldest first."""
        found = [entry for entry in self.entries if entry.type_name == type_name]
        return sorted(found, key=lambda entry: entry.version)

    def current(self, type_name: str) -> Registered:
        """The version that is written."""
        return self.versions(type_name)[-1]

    @property
    def type_names(self) -> list[str]:
        """Every type once, in the order of ids."""
        return list(dict.fromkeys(entry.type_name for entry in self.entries))

    def with_schema(self, type_name: str, schema: dict[str, Any]) -> Registry:
        """A registry that holds this as the type's current schema; itself, if it does already."""
        versions = self.versions(type_name)
        bare = _without_documentation(schema)
        if versions and versions[-1].schema == bare:
            return self
        try:
            mark = fingerprint_of(schema)
        except SchemaParseException as error:
            raise SchemaError(f"{type_name}: {error}") from error
        same = [entry for entry in versions if entry.fingerprint == mark]
        if same and same[0] is not versions[-1]:
            raise SchemaError(f"{type_name} is its version {same[0].version} again; never go back")
        entry = Registered(
            id=same[0].id if same else 1 + max((each.id for each in self.entries), default=0),
            type_name=type_name,
            version=same[0].version if same else len(versions) + 1,
            fingerprint=mark,
            schema=bare,
        )  # Where only defaults changed, the bytes did not: the entry stays, with the new defaults.
        return Registry([each for each in self.entries if each not in same] + [entry])


def fingerprint_of(schema: Any) -> str:
    """CRC-64-AVRO of the canonical form, hexadecimal, in the order of bytes on the wire."""
    return str(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def faults(registry: Registry, folder: Path = FOLDER) -> list[str]:
    """What is wrong with the registry and the files beside it, one sentence each."""
    found = [
        f"{path.name}: not registered as it is; run with --write"
        for path in _files(folder)
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
    return found + [fault for name in registry.type_names for fault in _faults_of(registry, name)]


def _faults_of(registry: Registry, type_name: str) -> list[str]:
    found = []
    current = registry.current(type_name)
    for entry in registry.versions(type_name):
        label = f"{type_name} version {entry.version}"
        if entry.fingerprint != fingerprint_of(entry.schema):
            found.append(f"{label}: its fingerprint is not the schema's; was it edited?")
        try:
            compile_reader(entry.expanded)
        except SchemaError as error:
            found.append(f"{label}: {error}")
        found += [
            f"{type_name} version {current.version} cannot read version {entry.version}: {each}"
            for each in breaks(current.expanded, entry.expanded)
        ]
    return found


def write(folder: Path = FOLDER) -> list[str]:
    """Register the folder's schemas as they are. Gives the faults that kept it from doing so."""
    registry = Registry.load(folder)
    try:
        for path in _files(folder):
            registry = registry.with_schema(path.stem, _read(path))
    except SchemaError as error:
        return [str(error)]
    found = faults(registry, folder)
    if not found:
        registry.save(folder)
    return found


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.avsc"))


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


def main(arguments: list[str] | None = None) -> int:
    """Check or write the registry; exit status 1 when something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m spu_assigner.schemas.avro.registry")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--check", action="store_true", help="say what is wrong, change nothing")
    group.add_argument("--write", action="store_true", help="register new versions")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the .avsc files")
    options = parser.parse_args(arguments)
    folder = options.folder
    found = write(folder) if options.write else faults(Registry.load(folder), folder)
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
