"""Events, answers and records as what `json.dumps` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any


def as_dict(made: Any) -> dict[str, Any]:
    """The fields of an event, an answer or a record, as `json.dumps` takes them.

    Replica lists and tuples become lists, enumerations their words, and what is inside likewise. An
    event is made again by its class: `TopicCreate(**as_dict(event))`. Hashes and fingerprints are
    whole numbers of 64 bits.
    """
    return {field.name: _plain(getattr(made, field.name)) for field in fields(made)}


def _plain(value: Any) -> Any:
    if value is None or type(value) in {int, str, bool}:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if is_dataclass(value):
        return as_dict(value)
    return value.tolist() if hasattr(value, "tolist") else value
