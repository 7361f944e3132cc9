"""Whether a schema may follow another: every version must read all that earlier ones wrote.

That is BACKWARD_TRANSITIVE in a Schema Registry's words. The rules are Avro's resolution rules, but
narrower: the only promotion is int to long, and aliases and enum defaults do not count.
"""

from __future__ import annotations

from typing import Any


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
