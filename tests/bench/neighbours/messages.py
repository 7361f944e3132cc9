"""The messages as a user reads and writes them: Confluent's frame, and fastavro for what is in it.

Stands on fastavro and the product's schema files alone, so that a neighbour in an environment of
its own can use it.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import fastavro

_REGISTRY: Final = Path(__file__).parents[3] / "schemas" / "registry.json"
_HEADER_SIZE: Final = 5  # 0x00 and the schema's id

_entries: Final = json.loads(_REGISTRY.read_text(encoding="utf-8"))["schemas"]
_headers: Final = {entry["id"]: b"\x00" + entry["id"].to_bytes(4, "big") for entry in _entries}
_READERS: Final = {
    _headers[entry["id"]]: (name, fastavro.parse_schema(entry["schema"]))
    for entry in _entries
    if (name := entry["type_name"]) in ("SpuJoined", "TopicCreate")
}
_map: Final = [entry for entry in _entries if entry["type_name"] == "ReplicaMap"][-1]  # the newest
MAP_HEADER: Final = _headers[_map["id"]]
_MAP_SCHEMA: Final = fastavro.parse_schema(_map["schema"])


def decode(value: bytes) -> tuple[str, dict[str, Any]]:
    """The name of an event's type, and its fields."""
    name, schema = _READERS[value[:_HEADER_SIZE]]
    fields: Any = fastavro.schemaless_reader(BytesIO(value[_HEADER_SIZE:]), schema, None)
    return name, fields


def encode_map(fields: dict[str, Any]) -> bytes:
    """The message of a replica map; fields that may be null need not be given."""
    out = BytesIO()
    out.write(MAP_HEADER)
    fastavro.schemaless_writer(out, _MAP_SCHEMA, fields)
    return out.getvalue()
