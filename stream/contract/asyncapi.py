"""The contract as AsyncAPI 3.0: topics, keys, headers, schemas and wire formats, as plain data.

Everything that the code knows is taken from it: topics and settings from `topics`, which type goes
where from `codec` and `bundle`, schemas and ids from the registry, keys, headers and bytes of the
examples from what the job itself makes them with. Only sentences are written here.

The operations are those of a client of the job: it sends events, and receives what follows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO, StringIO
from typing import Any, Final

import fastavro
from spu_assigner.core.base.records import RingEvent, TopicStatus
from spu_assigner.schemas.avro.registry import FOLDER, Registered, Registry
from spu_assigner.schemas.messages.codec import (
    EVENT_KINDS,
    confluent_header,
    decode_event,
    decode_record,
    encode_event,
    encode_record,
    single_object_header,
)
from spu_assigner.schemas.messages.encoding import Message
from spu_assigner.schemas.messages.wire import AppliedTopic, CommitMarker, DeadLetter, Wire
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.contract.asyncapi_text import (
    ADDRESS,
    APPLIED_KEY,
    CHANNELS,
    CLUSTER_KEY,
    DEAD_LETTER_KEY,
    ENTRY_KEYS,
    HEADERS,
    INFO,
    MAP_KEY,
    MARKER_HEADERS,
    PREFIX,
    QUERY_KEY,
    SERVERS,
    STATUS_KEY,
    WIRES,
)
from spu_assigner.stream.contract.yaml_text import to_yaml
from spu_assigner.stream.kafka.cloud_events import marker_headers
from spu_assigner.stream.kafka.topics import (
    APPLIED_TOPICS,
    ASSIGNER_AUDIT,
    ASSIGNER_COMMITS,
    DEAD_LETTER,
    PARTITIONS,
    REPLICA_MAP,
    RING_EVENTS,
    SPU_EVENTS,
    TOPIC_EVENTS,
    TOPIC_STATUS,
    TOPICS,
    TopicSpec,
)
from spu_assigner.stream.shard.batch import KINDS_GONE, SOURCE_KINDS, entry_key
from spu_assigner.stream.shard.bundle import KINDS, SOURCE_TOPICS, MessageKind
from spu_assigner.stream.verify.digest_order import expected_headers
from spu_assigner.stream.verify.model import Headers

VERSION: Final = "3.0.0"  # of AsyncAPI
AVRO: Final = "application/vnd.apache.avro;version=1.9.0"
CONTENT_TYPE: Final = "application/avro"  # as the header of the same name says
BINDING: Final = "0.5.0"  # of AsyncAPI's Kafka bindings
EXAMPLE_QUERY: Final = "spu-assigner"
EXAMPLE_PLACE: Final = f"{TOPIC_EVENTS}/0/17"  # of the event that examples follow from
EXAMPLE_TIME_MS: Final = 1_763_700_000_000

_LEAD: Final = (
    "# Written by `make asyncapi` from the schemas and the table of topics; edit those.\n"
)
_MARKER: Final = "CommitMarker"
_APPLIED: Final = "AppliedTopic"
_HEADERS: Final = "CloudEventsHeaders"
_MARKER_HEADERS: Final = "MarkerHeaders"
_ANSWERED_ON: Final = {SPU_EVENTS: RING_EVENTS, TOPIC_EVENTS: TOPIC_STATUS}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Carried:
    """One kind of message that a topic carries."""

    type_name: str  # of its schema; of a tombstone, that of what is gone or released
    kind: MessageKind | None = None  # of an output with headers
    is_tombstone: bool = False

    @property
    def name(self) -> str:
        if not self.is_tombstone:
            return self.type_name
        what = self.type_name if self.kind is None else KINDS[self.kind][1]
        return f"{what}Tombstone"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Example:
    """A message as the job, or a producer, writes it."""

    payload: Any  # in Avro's JSON encoding
    key: str
    encoded: Mapping[Wire, bytes]
    marker: CommitMarker | None = None  # if it is one


def text() -> str:
    """The document in YAML, as it is kept at the project's top."""
    return _LEAD + to_yaml(document())


def document() -> dict[str, Any]:
    """The whole document."""
    registry = Registry.load()
    carried = {spec.name: tuple(_carried(spec.name)) for spec in TOPICS}
    messages = {
        each.name: _message(each, topic, registry)
        for topic, those in carried.items()
        for each in those
    }
    return {
        "asyncapi": VERSION,
        "id": "urn:io.spuassigner:v1",
        "info": {"title": "spu-assigner", "version": RELEASE, "description": INFO},
        "defaultContentType": CONTENT_TYPE,
        "x-wire-formats": WIRES,
        "servers": SERVERS,
        "channels": {spec.name: _channel(spec, carried[spec.name]) for spec in TOPICS},
        "operations": dict(_operation(spec, carried) for spec in TOPICS),
        "components": {
            "parameters": {"prefix": PREFIX},
            "messages": messages,
            "schemas": {
                _HEADERS: _headers(HEADERS),
                _MARKER_HEADERS: _headers({**HEADERS, **MARKER_HEADERS}),
                **dict(_schemas(registry)),
            },
            "securitySchemes": {
                "scramSha512": {"type": "scramSha512"},
                "scramSha256": {"type": "scramSha256"},
                "plain": {"type": "plain"},
                "certificate": {"type": "X509"},
            },
        },
    }


def _carried(topic: str) -> Iterator[_Carried]:
    """What a topic carries, as the code says it."""
    for source, name in SOURCE_TOPICS.items():
        if name == topic:
            types = [each for each, kind in EVENT_KINDS.items() if kind == SOURCE_KINDS[source]]
            yield from (_Carried(type_name=each) for each in types)
    for kind, (name, type_name) in KINDS.items():
        if kind is MessageKind.TOPIC_RELEASED and name == topic:  # It has no value of its own.
            of_maps = KINDS[MessageKind.REPLICA_MAP][1]
            yield _Carried(type_name=of_maps, kind=kind, is_tombstone=True)
        elif name == topic:
            yield _Carried(type_name=type_name, kind=kind)
            if kind is MessageKind.REPLICA_MAP or kind in KINDS_GONE.values():
                yield _Carried(type_name=type_name, kind=kind, is_tombstone=True)
    if topic in (ASSIGNER_COMMITS, ASSIGNER_AUDIT):
        yield _Carried(type_name=_MARKER)
    if topic == APPLIED_TOPICS:
        yield _Carried(type_name=_APPLIED)
        yield _Carried(type_name=_APPLIED, is_tombstone=True)


def _channel(spec: TopicSpec, carried: tuple[_Carried, ...]) -> dict[str, Any]:
    about = CHANNELS[spec.name]
    partitions = (
        "It has one partition, and no more."
        if spec.single
        else f"`spu-assigner topics create` gives it {PARTITIONS} partitions and the broker's "
        "own number of replicas, unless told otherwise."
    )
    return {
        "address": ADDRESS.format(spec.name),
        "title": about.title,
        "description": f"{about.text} {partitions}",
        "messages": {each.name: _reference("messages", each.name) for each in carried},
        "parameters": {"prefix": _reference("parameters", "prefix")},
        "bindings": {
            "kafka": {
                "partitions": 1 if spec.single else PARTITIONS,
                "topicConfiguration": {**_typed(spec.required), **_typed(spec.tuning)},
                "x-required": list(spec.required),
                "bindingVersion": BINDING,
            }
        },
    }


def _typed(settings: Mapping[str, str]) -> dict[str, Any]:
    """Settings of a topic as the binding wants them: lists and numbers."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        match name:
            case "cleanup.policy":
                found[name] = value.split(",")
            case _:
                found[name] = int(value) if value.isdecimal() else value
    return found


def _operation(
    spec: TopicSpec, carried: Mapping[str, tuple[_Carried, ...]]
) -> tuple[str, dict[str, Any]]:
    """An operation of a client, and its name."""
    about = CHANNELS[spec.name]
    told: dict[str, Any] = {
        "action": "send" if spec.is_input else "receive",
        "title": about.operation_title,
        "channel": {"$ref": f"#/channels/{spec.name}"},
        "messages": _messages_of(spec.name, carried[spec.name]),
    }
    if spec.is_input:
        answers = _ANSWERED_ON[spec.name]
        told["reply"] = {
            "channel": {"$ref": f"#/channels/{answers}"},
            "messages": _messages_of(answers, carried[answers]),
        }
        told["x-kafka-producer"] = {"acks": "all", "enable.idempotence": True}
    else:
        told["x-kafka-consumer"] = {"isolation.level": "read_committed"}
    return about.operation, told


def _messages_of(topic: str, carried: tuple[_Carried, ...]) -> list[dict[str, str]]:
    return [{"$ref": f"#/channels/{topic}/messages/{each.name}"} for each in carried]


def _message(each: _Carried, topic: str, registry: Registry) -> dict[str, Any]:
    entry = registry.current(each.type_name)
    example = _example(entry)
    told: dict[str, Any] = {"name": each.name, "contentType": CONTENT_TYPE}
    shown: dict[str, Any] = {"name": each.name}
    if each.kind is MessageKind.TOPIC_RELEASED:
        told["summary"] = "The topic that the key names is forgotten; its data stay in Kafka."
    elif each.is_tombstone:
        told["summary"] = f"What the key names is gone; before, it was a {each.type_name}."
    else:
        told["summary"] = _documented(entry)["doc"]
    if headers := _example_headers(each, example):
        shown["headers"] = headers
        told["headers"] = {
            "allOf": [
                _reference("schemas", _HEADERS if each.kind is not None else _MARKER_HEADERS),
                {"properties": {"ce_type": {"const": headers["ce_type"]}}},
            ]
        }
    key: dict[str, Any] = {**_key_of(each, topic), "examples": [example.key]}
    binding: dict[str, Any] = {"key": key}
    if each.is_tombstone:
        told["payload"] = {"type": "null"}
        shown["payload"] = None
    else:
        told["payload"] = _reference("schemas", _schema_name(entry))
        binding |= {"schemaIdLocation": "payload", "schemaIdPayloadEncoding": "confluent"}
        shown["payload"] = example.payload
        if correlated := _correlation(entry):
            told["correlationId"] = correlated
        told["x-schema-ids"] = [old.id for old in reversed(registry.versions(each.type_name))]
        told["x-example-bytes"] = {wire.value: example.encoded[wire].hex() for wire in Wire}
    told["bindings"] = {"kafka": {**binding, "bindingVersion": BINDING}}
    told["examples"] = [shown]
    return told


def _correlation(entry: Registered) -> dict[str, str] | None:
    """Which event a message is, or follows from."""
    names = {field["name"] for field in entry.schema["fields"]}
    for name, text in (
        ("event_id", "Answers name it as their cause."),
        ("cause", "The event_id of the event that led to it."),
    ):
        if name in names:
            return {"description": text, "location": f"$message.payload#/{name}"}
    return None


def _key_of(each: _Carried, topic: str) -> Mapping[str, Any]:
    """The schema of a message's key."""
    match topic:
        case _ if topic in _ANSWERED_ON or topic == RING_EVENTS:
            return CLUSTER_KEY
        case _ if topic == REPLICA_MAP:
            return MAP_KEY
        case _ if topic == TOPIC_STATUS:
            return STATUS_KEY
        case _ if topic == DEAD_LETTER:
            return DEAD_LETTER_KEY
        case _ if each.type_name == _MARKER:
            return QUERY_KEY
        case _ if each.type_name == _APPLIED:
            return APPLIED_KEY
        case _:
            return ENTRY_KEYS[each.type_name]


def _headers(told: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of the headers of outputs."""
    names = [name for name, _ in expected_headers("", MessageKind.REPLICA_MAP, b"", 0)]
    return {
        "type": "object",
        "description": "CloudEvents 1.0 in Kafka's binary mode; each value is UTF-8.",
        "required": names,
        "properties": {name: {"type": "string", **told[name]} for name in names},
    }


def _example_headers(each: _Carried, example: _Example) -> dict[str, str]:
    """As the job writes them; none of events."""
    headers: Headers = ()
    if each.kind is not None:
        place = f"{EXAMPLE_PLACE}/0".encode()
        headers = expected_headers(EXAMPLE_QUERY, each.kind, place, EXAMPLE_TIME_MS)
    elif example.marker is not None:
        headers = marker_headers(example.marker, EXAMPLE_TIME_MS)
    return {name: (value or b"").decode() for name, value in headers}


def _schemas(registry: Registry) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every version of every schema: topics keep messages of earlier releases."""
    for name in registry.type_names:
        for entry in registry.versions(name):
            is_current = entry is registry.current(name)
            yield (
                _schema_name(entry),
                {
                    "schemaFormat": AVRO,
                    "x-schema-id": entry.id,
                    "x-confluent-header": confluent_header(entry).hex(),
                    "x-single-object-header": single_object_header(entry).hex(),
                    "schema": _documented(entry) if is_current else entry.schema,
                },
            )


def _schema_name(entry: Registered) -> str:
    return f"{entry.type_name}.v{entry.version}"


def _documented(entry: Registered) -> dict[str, Any]:
    """A current schema as its file has it, with the words that the registry leaves out."""
    found: dict[str, Any] = json.loads((FOLDER / f"{entry.type_name}.avsc").read_text("utf-8"))
    return found


def _example(entry: Registered) -> _Example:
    """The example beside the schema, as the codec writes it."""
    text = (FOLDER / "examples" / f"{entry.type_name}.json").read_text("utf-8")
    schema = fastavro.parse_schema(entry.schema, _write_hint=False)
    (fields,) = fastavro.json_reader(StringIO(json.dumps(json.loads(text))), schema)
    body = BytesIO()
    fastavro.schemaless_writer(body, schema, fields)
    data = confluent_header(entry) + body.getvalue()
    if entry.type_name in EVENT_KINDS:
        event = decode_event(data, kind=EVENT_KINDS[entry.type_name])
        encoded = {wire: encode_event(event, wire=wire) for wire in Wire}
        key, marker = event.cluster_id, None
    else:
        record = decode_record(data)
        encoded = {wire: encode_record(record, wire=wire) for wire in Wire}
        key = _record_key(record)
        marker = record if isinstance(record, CommitMarker) else None
    written = BytesIO(encoded[Wire.CONFLUENT][len(confluent_header(entry)) :])
    told = StringIO()
    fastavro.json_writer(told, schema, [fastavro.schemaless_reader(written, schema, None)])
    return _Example(payload=json.loads(told.getvalue()), key=key, encoded=encoded, marker=marker)


def _record_key(record: Message) -> str:
    """The key that the job gives a record."""
    match record:
        case CommitMarker(query=query):
            return query
        case DeadLetter():
            return "c1"  # Its source's, whatever that was.
        case TopicStatus(cluster_id=cluster_id, topic=topic):
            return f"{cluster_id}/{topic}"
        case RingEvent(cluster_id=cluster_id):
            return cluster_id
        case AppliedTopic(cluster_id=cluster_id, topic=topic):
            return f"{cluster_id}/{topic}"
        case _:
            return entry_key(record).decode()[1:]  # The state keeps it after a letter.


def _reference(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}
