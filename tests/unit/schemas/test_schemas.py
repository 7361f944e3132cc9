"""The schemas, their examples, their registry, and that every version reads all earlier ones."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from fastavro.schema import expand_schema
from spu_assigner.core.base.events import Policy, SpuJoined, TopicCreate
from spu_assigner.core.state import consistency_check
from spu_assigner.schemas.avro.readers import compile_reader
from spu_assigner.schemas.avro.registry import FOLDER, Registry
from spu_assigner.schemas.avro.strict_reading import read_whole
from spu_assigner.schemas.errors import SchemaError
from spu_assigner.schemas.messages.codec import EventKind, decode_event, decode_record
from spu_assigner.schemas.messages.meanings import EVENT_TYPES, MEANING, MESSAGE_TYPES, TYPE_NAMES
from spu_assigner.stream.job.shard.clusters import Clusters, map_key, state_key
from support.events.event_codecs import decode, encode, example
from support.job.released import Left, archives, unpack
from support.project.schema_registry import breaks, faults, named_parts, with_schema, write

REGISTRY = Registry.load()
NAMES = REGISTRY.type_names


# What is there.


def test_the_registry_is_sound_and_every_version_reads_all_earlier_ones() -> None:
    """BACKWARD_TRANSITIVE."""
    assert faults(REGISTRY) == []


def test_every_type_has_a_schema_an_example_and_a_codec() -> None:
    names = sorted(NAMES)
    assert sorted(path.stem for path in FOLDER.glob("*.avsc")) == names
    assert sorted(path.stem for path in (FOLDER / "examples").glob("*.json")) == names
    assert sorted(EVENT_TYPES | MESSAGE_TYPES) == names


@pytest.mark.parametrize("type_name", NAMES)
def test_an_example_is_what_the_schema_says_and_what_the_codec_writes(type_name: str) -> None:
    """Examples are copied by those who write producers, so they must be right."""
    data = example(REGISTRY.current(type_name))
    [value] = decode(data)
    assert TYPE_NAMES[type(value)] == type_name
    assert encode(value) == data


@pytest.mark.parametrize("type_name", NAMES)
def test_a_schema_is_in_our_namespace_and_documented(type_name: str) -> None:
    """It is the contract that other teams read: types and fields all say what they are."""
    schema = json.loads((FOLDER / f"{type_name}.avsc").read_text("utf-8"))
    assert schema["name"] == type_name
    assert schema["namespace"] == "io.spuassigner.v1"
    assert all(part.get("doc") for part in named_parts(schema) if "name" in part)


# Earlier versions.


def without(type_name: str, *names: str) -> dict[str, Any]:
    """A type's schema, as it would have been before these fields came."""
    schema = json.loads((FOLDER / f"{type_name}.avsc").read_text("utf-8"))
    schema["fields"] = [each for each in schema["fields"] if each["name"] not in names]
    return dict(schema)


def registry_with_history(type_name: str, older: dict[str, Any]) -> Registry:
    newer = json.loads((FOLDER / f"{type_name}.avsc").read_text())
    return with_schema(with_schema(Registry([]), type_name, older), type_name, newer)


@pytest.mark.parametrize(
    ("older", "fields", "event"),
    [
        (
            without("SpuJoined", "labels", "capacity"),
            {"event_id": "e", "cluster_id": "c", "spu_id": 3, "rack": "a", "cores": 4},
            SpuJoined(event_id="e", cluster_id="c", spu_id=3, rack="a", cores=4),
        ),
        (
            without("TopicCreate", "shift", "on_shortage", "occurred_at"),
            {"event_id": "e", "cluster_id": "c", "topic": "t", "policy": "KAFKA"},
            TopicCreate(event_id="e", cluster_id="c", topic="t", policy=Policy.KAFKA),
        ),
    ],
)
def test_a_message_of_an_earlier_version_takes_the_defaults_of_what_came_since(
    older: dict[str, Any], fields: dict[str, Any], event: Any
) -> None:
    """A producer is updated when its team likes."""
    registry = registry_with_history(TYPE_NAMES[type(event)], older)
    first, second = registry.versions(TYPE_NAMES[type(event)])
    assert (first.version, second.version) == (1, 2)
    body = BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(first.schema), fields)
    data = body.getvalue()
    read = compile_reader(first.expanded, MEANING, current=second.expanded)
    assert read_whole(read, data, 0) == event


def record(*fields: dict[str, Any], name: str = "R") -> Any:
    return expand_schema({"type": "record", "name": name, "fields": list(fields)})


def of(kind: Any) -> Any:
    return record({"name": "a", "type": kind})


def enum(*symbols: str, name: str = "E") -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols)}


def fixed(size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size}


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "string"}
INTS, LONGS = {"type": "map", "values": "int"}, {"type": "map", "values": "long"}
NULL_OR_LONG = {"type": "array", "items": ["null", "long"]}
INT_OR_NULL = {"type": "array", "items": ["int", "null"]}


@pytest.mark.parametrize(
    ("reader", "writer", "says"),
    [
        (record(A), record(A, B), None),
        (record(A, B | {"default": ""}), record(A), None),
        (of(["null", "int"]), of("int"), None),
        (of(enum("X", "Y")), of(enum("X")), None),
        (of(NULL_OR_LONG), of(INT_OR_NULL), None),
        (record(A, B), record(A), "value.b: new without a default"),
        (of("int"), of("long"), "value.a: long became int"),
        (record(A, name="S"), record(A), "value: R became S"),
        (of(enum("X")), of(enum("X", "Y")), "value.a: symbol Y is gone"),
        (of(enum("X", name="F")), of(enum("X")), "value.a: E became F"),
        (of("int"), of(["null", "int"]), "no branch reads null"),
        (of(["null", "int"]), of("string"), "value.a: string is in no branch of ['null', 'int']"),
        (of(INTS), of(LONGS), "value.a{}: long became int"),
        (of(fixed(8)), of(fixed(4)), "value.a: another size"),
    ],
)
def test_a_change_that_cannot_read_what_was_written_is_caught(
    reader: Any, writer: Any, says: str | None
) -> None:
    found = breaks(reader, writer)
    assert len(found) == (says is not None)
    assert says is None or says in found[0]


@pytest.mark.parametrize(
    "schema",
    [
        record(),
        fixed(0),
        {"type": "array", "items": "null"},
        {"type": "array", "items": record()},
        expand_schema(
            {
                "type": "record",
                "name": "Tree",
                "fields": [{"name": "children", "type": {"type": "array", "items": "Tree"}}],
            }
        ),
        "double",
    ],
)
def test_a_schema_that_could_exhaust_a_reader_is_refused(schema: Any) -> None:
    """Recursion and items of no width let a few bytes claim endless values."""
    with pytest.raises(SchemaError):
        compile_reader(schema)


# Writing the registry.


def test_a_new_version_is_registered_if_it_reads_all_earlier_ones(tmp_path: Path) -> None:
    """An incompatible one would make messages unreadable that are in Kafka now."""
    for file in (*FOLDER.glob("*.avsc"), FOLDER / "registry.json"):
        shutil.copy(file, tmp_path)
    path = tmp_path / "TopicGrow.avsc"
    before = path.read_text("utf-8")
    schema = json.loads(before)
    schema["fields"].append({"name": "wait", "type": "boolean"})
    path.write_text(json.dumps(schema), "utf-8")
    (fault,) = write(tmp_path)
    assert fault.startswith("TopicGrow version 2 cannot read version 1: value.wait")
    assert Registry.load(tmp_path).entries == REGISTRY.entries
    schema["fields"][-1]["default"] = False
    path.write_text(json.dumps(schema), "utf-8")
    assert write(tmp_path) == []
    *old, added = Registry.load(tmp_path).entries
    assert old == REGISTRY.entries
    assert (added.id, added.type_name, added.version) == (len(old) + 1, "TopicGrow", 2)
    path.write_text(before, "utf-8")
    assert write(tmp_path) == ["TopicGrow is its version 1 again; never go back"]


def test_a_lost_file_an_edited_entry_and_a_doubled_id_are_reported(tmp_path: Path) -> None:
    for file in FOLDER.glob("*.avsc"):
        shutil.copy(file, tmp_path)
    (tmp_path / "RingEvent.avsc").unlink()
    text = (FOLDER / "registry.json").read_text("utf-8")
    text = text.replace('"name": "max_moves"', '"name": "moves"').replace('{"id": 3,', '{"id": 4,')
    (tmp_path / "registry.json").write_text(text, "utf-8")
    assert faults(Registry.load(tmp_path), tmp_path) == [
        "ClusterRebalance.avsc: not registered as it is; "
        "run tests/support/project/schema_registry.py",
        "RingEvent: registered, but RingEvent.avsc is gone",
        "id 4 is given twice",
        "ClusterRebalance version 1: its fingerprint is not the schema's; was it edited?",
    ]


# What a release left behind.


KINDS: dict[str, EventKind] = {"spu-events": "spu", "topic-events": "topic"}
STATE = {"replica-map": map_key, "assigner-state": state_key}


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    messages: list[Left]
    schemas: Registry


@pytest.fixture(scope="module", params=archives())
def released(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Released:
    folder = tmp_path_factory.mktemp("released")
    messages = unpack(archives()[request.param], folder)
    return Released(messages=messages, schemas=Registry.load(folder))


def test_the_first_release_that_is_kept_is_1_0() -> None:
    """Nothing before it was published; from it on every one is resumed by the next."""
    assert next(iter(archives())) == "1.0.0"


def test_a_version_of_a_schema_keeps_its_id_and_its_number(released: Released) -> None:
    now = {entry.id: entry for entry in Registry.load().entries}
    for then in released.schemas.entries:
        found = now[then.id]
        assert (found.type_name, found.version) == (then.type_name, then.version)
        assert found.fingerprint == then.fingerprint


def test_every_message_of_a_release_is_read(released: Released) -> None:
    found: Counter[str] = Counter()
    for each in released.messages:
        if each.value is None:
            continue
        message: Any = (
            decode_event(each.value, kind=KINDS[each.topic])
            if each.topic in KINDS
            else decode_record(each.value)
        )
        found[TYPE_NAMES[type(message)]] += 1
    unwritten = {"AppliedTopic", "MovesRun", "DeadLetter", "SpuUncordon", "SpuUndemote"}
    assert {*released.schemas.type_names} - {*found} == unwritten


def test_the_state_of_a_release_is_rebuilt_from_its_outputs(released: Released) -> None:
    """Maps and entries of then, taken over by the core of now."""
    clusters = Clusters()
    for each in released.messages:
        if each.topic in STATE:
            clusters.restore(STATE[each.topic](each.key or b""), each.value)
    assert sorted(clusters) == ["c1", "c2", "c3"]
    parts = named_parts(released.schemas.current("TopicCreate").expanded)
    [then] = [{*part["symbols"]} for part in parts if part.get("name", "").endswith(".Policy")]
    for state in clusters.values():
        assert [*consistency_check.faults(state)] == []
        policies = {topic.policy.name for topic in state.topics.values()}
        assert policies >= then - {"RENDEZVOUS"}  # Its topic was released.
        assert set(state.waiting) == {"waits"}
