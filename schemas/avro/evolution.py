"""Whether a schema may follow another: every version must read all that earlier ones wrote.

That is BACKWARD_TRANSITIVE in a Schema Registry's words. The rules are Avro's resolution rules, but
narrower: the only promotion is int to long, and aliases and enum defaults do not count.
"""

from __future__ import annotations

from typing import Any


def breaks(reader: Any, writer: Any) -> list[str]:
    """What keeps `reader` from reading what `writer` wrote, one sentence each; empty: nothing does.

    Both are expanded schemas (no references to named types).
    """
    return _breaks(reader, writer, "value")


def _breaks(reader: Any, writer: Any, path: str) -> list[str]:
    if isinstance(writer, list):
        return [
            f"{path}: no branch reads {_kind(branch)}: {'; '.join(_breaks(reader, branch, path))}"
            for branch in writer
            if _breaks(reader, branch, path)
        ]
    if isinstance(reader, list):
        if any(not _breaks(branch, writer, path) for branch in reader):
            return []
        return [f"{path}: {_kind(writer)} is in no branch of {[_kind(each) for each in reader]}"]
    kinds = _kind(reader), _kind(writer)
    if kinds == ("long", "int"):
        return []
    if kinds[0] != kinds[1]:
        return [f"{path}: {kinds[1]} became {kinds[0]}"]
    match kinds[0]:
        case "record":
            return _name_breaks(reader, writer, path) + _record_breaks(reader, writer, path)
        case "enum":
            lost = [each for each in writer["symbols"] if each not in reader["symbols"]]
            return _name_breaks(reader, writer, path) + [
                f"{path}: symbol {x} is gone" for x in lost
            ]
        case "fixed":
            size = [] if reader["size"] == writer["size"] else [f"{path}: another size"]
            return _name_breaks(reader, writer, path) + size
        case "array":
            return _breaks(reader["items"], writer["items"], f"{path}[]")
        case "map":
            return _breaks(reader["values"], writer["values"], f"{path}{{}}")
        case _:
            return []


def _record_breaks(reader: Any, writer: Any, path: str) -> list[str]:
    written = {field["name"]: field["type"] for field in writer["fields"]}
    found = []
    for field in reader["fields"]:
        name = field["name"]
        if name in written:
            found += _breaks(field["type"], written[name], f"{path}.{name}")
        elif "default" not in field:
            found.append(f"{path}.{name}: new without a default")
    return found


def _name_breaks(reader: Any, writer: Any, path: str) -> list[str]:
    if reader["name"] == writer["name"]:
        return []
    return [f"{path}: {writer['name']} became {reader['name']}"]


def _kind(schema: Any) -> str:
    if isinstance(schema, dict):
        return str(schema["type"])
    return "union" if isinstance(schema, list) else str(schema)
