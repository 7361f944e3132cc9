"""The AsyncAPI document: as the code says, valid, complete, and enough to read messages by."""

from __future__ import annotations

import gzip
import json
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form
from jsonschema import Draft7Validator
from spu_assigner.schemas.avro.registry import Registry
from support.project.asyncapi import DOCUMENT, document, text
from support.project.contract import Contract

SPECIFICATION = Path(__file__).parents[3] / "data/asyncapi-specs/3.0.0.json.gz"
VALIDATOR = Draft7Validator(json.loads(gzip.decompress(SPECIFICATION.read_bytes())))
CONTRACT = Contract()
MESSAGES: dict[str, Any] = CONTRACT.resolved(CONTRACT.document["components"]["messages"])
WITH_VALUES = [name for name, each in MESSAGES.items() if "x-example-bytes" in each]


def test_the_document_is_the_one_that_the_code_writes() -> None:
    """Who changes a schema or a topic changes the contract, and sees it."""
    is_so = DOCUMENT.read_bytes() == text().encode()
    assert is_so, "asyncapi.yaml is not what the code says: run `make asyncapi`"


def test_the_document_is_valid_asyncapi() -> None:
    """AsyncAPI's own schema says so, its Kafka bindings and Avro's schema included."""
    faults = [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(document())]
    assert faults == []


def test_every_version_of_every_schema_is_there_under_its_id() -> None:
    """Topics keep messages of earlier releases; ids and fingerprints are those on the wire."""
    entries = Registry.load().entries
    assert sorted(CONTRACT.schemas) == [entry.id for entry in entries]
    for entry in entries:
        described = CONTRACT.schemas[entry.id]
        canonical = to_parsing_canonical_form(described["schema"])
        mark = fingerprint(canonical, "CRC-64-AVRO")
        assert described["x-single-object-header"] == f"c301{mark}" == f"c301{entry.fingerprint}"
        assert described["x-confluent-header"] == f"00{entry.id:08x}"
        current = MESSAGES[entry.type_name]
        assert entry.id in current["x-schema-ids"]
        assert current["payload"] == CONTRACT.schemas[current["x-schema-ids"][0]]


@pytest.mark.parametrize("name", WITH_VALUES)
@pytest.mark.parametrize("wire", ["confluent", "single-object"])
def test_the_bytes_of_an_example_are_its_payload(name: str, wire: str) -> None:
    """Read with the document alone, in both wire formats."""
    message = MESSAGES[name]
    data = message["x-example-bytes"][wire]
    header, payload = next(
        (header, schema)
        for schema in (CONTRACT.schemas[each] for each in message["x-schema-ids"])
        for header in [schema[CONTRACT.document["x-wire-formats"][wire]["header"]]]
        if data.startswith(header)
    )
    assert header.startswith(CONTRACT.document["x-wire-formats"][wire]["magic"])
    schema = fastavro.parse_schema(payload["schema"])
    body = BytesIO(bytes.fromhex(data.removeprefix(header)))
    text = StringIO()
    fastavro.json_writer(text, schema, [fastavro.schemaless_reader(body, schema, None)])
    assert body.read() == b""
    assert json.loads(text.getvalue()) == message["examples"][0]["payload"]
