"""Whether a schema may be expanded: small, flat enough, and without recursion.

References to named types are replaced by what they name before a reader is made. A schema of a few
hundred bytes that refers to a record twice, whose fields refer to another twice, and so on, would
grow to gigabytes; one that refers to itself would never end.
"""

from __future__ import annotations

from typing import Any, Final

from spu_assigner.schemas.errors import SchemaError

DEPTH_MAX: Final = 32  # ours are 7 deep
NODES_MAX: Final = 2_000  # of the expanded schema; ours have up to 60

_PRIMITIVES: Final = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


def check_bounds(schema: Any) -> None:
    """Do nothing if the schema is well-formed and its expansion bounded.

    Raises:
        SchemaError: it is not; the message names the type.
    """
    _size(schema, "", {}, 0)


def _size(schema: Any, namespace: str, known: dict[str, int | None], depth: int) -> int:
    """How many nodes the expansion has; `known` are those of named types, None: not yet closed."""
    if depth > DEPTH_MAX:
        raise SchemaError(f"types are nested more than {DEPTH_MAX} deep")
    match schema:
        case str() if schema in _PRIMITIVES:
            return 1
        case str():
            size = _known_size(_full_name(schema, namespace), known)
        case list():
            size = 1 + sum(_size(branch, namespace, known, depth + 1) for branch in schema)
        case {"type": "record", "name": str(given), "fields": list(fields)}:
            name = _full_name(given, schema.get("namespace") or namespace)
            known[name] = None
            size = known[name] = _fields_size(name, fields, known, depth)
        case {"type": "enum" | "fixed", "name": str(given)}:
            size = known[_full_name(given, schema.get("namespace") or namespace)] = 1
        case {"type": "array", "items": inside} | {"type": "map", "values": inside}:
            size = 1 + _size(inside, namespace, known, depth + 1)
        case {"type": (str() | dict() | list()) as inside} if inside not in (
            "record",
            "enum",
            "fixed",
            "array",
            "map",
        ):
            size = _size(inside, namespace, known, depth + 1)
        case _:
            raise SchemaError(f"{str(schema)[:80]} is no schema")
    if size > NODES_MAX:
        raise SchemaError(f"expanded it has more than {NODES_MAX} parts")
    return size


def _known_size(name: str, known: dict[str, int | None]) -> int:
    if name not in known:
        raise SchemaError(f"the type {name!r} is not defined before it is used")
    size = known[name]
    if size is None:
        raise SchemaError(f"the type {name!r} is recursive, so its values have no end")
    return size


def _fields_size(name: str, fields: list[Any], known: dict[str, int | None], depth: int) -> int:
    size = 1
    for field in fields:
        if not isinstance(field, dict) or not {"name", "type"} <= field.keys():
            raise SchemaError(f"a field of {name!r} has no name or no type")
        size += _size(field["type"], name.rpartition(".")[0], known, depth + 1)
    return size


def _full_name(name: str, namespace: object) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
