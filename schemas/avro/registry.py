"""The file registry: schema ids and fingerprints on the wire, for ever the same.

`registry.json` holds every version of every schema that was ever written with; each `<Type>.avsc`
beside it is the current one. A release's entries are never changed nor taken out: messages in Kafka
name them. The sources have a tool that registers an edited `.avsc`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from fastavro.schema import expand_schema, fingerprint, to_parsing_canonical_form
from spu_assigner.schemas.errors import SchemaError

FOLDER: Final = Path(__file__).parents[1]  # schemas/
FILE_NAME: Final = "registry.json"
REGISTER: Final = "run tests/support/project/schema_registry.py"


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
        text = (folder / FILE_NAME).read_text("utf-8")
        return cls([Registered(**each) for each in json.loads(text)["schemas"]])

    def versions(self, type_name: str) -> list[Registered]:
        """All versions of a type, oldest first."""
        found = [entry for entry in self.entries if entry.type_name == type_name]
        return sorted(found, key=lambda entry: entry.version)

    def current(self, type_name: str) -> Registered:
        """The version that is written; raises `SchemaError`: there is none."""
        if not (versions := self.versions(type_name)):
            raise SchemaError(f"no schema of {type_name} is registered; {REGISTER}")
        return versions[-1]

    @property
    def type_names(self) -> list[str]:
        """Every type once, in the order of ids."""
        return list(dict.fromkeys(entry.type_name for entry in self.entries))


def fingerprint_of(schema: Any) -> str:
    """CRC-64-AVRO of the canonical form, hexadecimal, in the order of bytes on the wire."""
    return str(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))
