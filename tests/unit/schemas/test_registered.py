"""What the core says and what is registered agree. Run it alone: all other tests need the codec,
which fails when it is imported if they do not.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from enum import StrEnum
from typing import Final

import pytest
from spu_assigner.core.base.records import Status
from spu_assigner.schemas.avro.registry import Registry
from spu_assigner.schemas.avro.writers import compile_writer
from spu_assigner.schemas.errors import SchemaError
from spu_assigner.schemas.messages.meanings import EVENT_TYPES, MEANING, MESSAGE_TYPES
from support.project.schema_registry import named_parts

REGISTRY: Final = Registry.load()
NAMES: Final = tuple(EVENT_TYPES | MESSAGE_TYPES)


def test_the_symbols_of_an_enum_are_the_words_of_the_core_in_their_order() -> None:
    """In each schema that has it, or its writer would fail at the first new word."""
    found = [
        (name, part["name"].rpartition(".")[2], part["symbols"])
        for name in NAMES
        for part in named_parts(REGISTRY.current(name).expanded)
        if part.get("type") == "enum"
    ]
    assert {enum for _, enum, _ in found} == MEANING.enums.keys()
    for name, enum, symbols in found:
        words = [word.name for word in MEANING.enums[enum]]
        advice = "run tests/support/project/schema_registry.py"
        assert symbols == words, f"{name} was registered with another {enum}; {advice}"


@pytest.mark.parametrize("type_name", NAMES)
def test_a_schema_has_the_fields_of_its_class(type_name: str) -> None:
    """Or what was added to the class is not sent. A released topic's map is a tombstone."""
    cls = (EVENT_TYPES | MESSAGE_TYPES)[type_name]
    of_class = {field.name for field in dataclasses.fields(cls)} - {"is_released"}
    assert of_class == {field["name"] for field in REGISTRY.current(type_name).schema["fields"]}


def test_a_word_that_is_not_registered_stops_the_codec_before_any_message() -> None:
    """Else a `KeyError` in generated source would, when the first record has that word."""
    schema = REGISTRY.current("TopicStatus").expanded
    one_more = StrEnum("Status", {**{word.name: word.value for word in Status}, "NEW": "new"})
    with pytest.raises(SchemaError, match=r"Status.NEW.* is not in the registered schema; run"):
        compile_writer(schema, replace(MEANING, enums={**MEANING.enums, "Status": one_more}))


def test_a_type_without_a_schema_is_named() -> None:
    with pytest.raises(SchemaError, match=r"no schema of TopicNew is registered; run"):
        REGISTRY.current("TopicNew")
