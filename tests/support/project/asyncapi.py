"""The contract as AsyncAPI 3.0: topics, keys, headers, schemas and wire formats, as plain data.

    python tests/support/project/asyncapi.py    # writes asyncapi.yaml

`asyncapi_base.yaml` has what is written by hand. Everything that the code knows is taken from it:
topics and settings from `topics`, which type goes where from `codec` and `bundle`, schemas and ids
from the registry, keys, headers and bytes of the examples from what the job itself makes them with.

The operations are those of a client of the job: it sends events, and receives what follows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, Final

import fastavro
import yaml
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
from spu_assigner.schemas.messages.meanings import Message
from spu_assigner.schemas.messages.wire import (
    MOVES_KEY,
    AppliedTopic,
    CommitMarker,
    DeadLetter,
    MovesRun,
    Wire,
)
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.job.shard.batch import SOURCE_KINDS, STATE_KINDS
from spu_assigner.stream.job.shard.bundle import KINDS, SOURCE_TOPICS, MessageKind
from spu_assigner.stream.job.shard.clusters import output_key
from spu_assigner.stream.kafka.cloud_events import Headers, marker_headers, output_headers
from spu_assigner.stream.kafka.topics import (
    APPLIED_TOPICS,
    ASSIGNER_AUDIT,
    ASSIGNER_COMMITS,
    PARTITIONS,
    TOPIC_EVENTS,
    TOPICS,
    TopicSpec,
)

DOCUMENT: Final = Path(__file__).parents[3] / "asyncapi.yaml"
AVRO: Final = "application/vnd.apache.avro;version=1.9.0"
BINDING: Final = "0.5.0"  # of AsyncAPI's Kafka bindings
EXAMPLE_QUERY: Final = "spu-assigner"
EXAMPLE_PLACE: Final = f"{TOPIC_EVENTS}/0/17/0".encode()  # of the event that examples follow from
EXAMPLE_TIME_MS: Final = 1_763_700_000_000

_LEAD: Final = (
    "# Written by `make asyncapi` from asyncapi_base.yaml, the schemas and the table of topics; "
    "edit those.\n"
)
_CORRELATIONS: Final = {  # the field that names the event which a message is, or follows from
    "event_id": "Answers name it as their cause.",
    "cause": "The event_id of the event that led to it.",
}


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


# What a reader of YAML 1.2 could take for a number where one of YAML 1.1 sees text, or the reverse.
_LIKE_NUMBER: Final = re.compile(r"[-+.]?[0-9][0-9A-Za-z.+_-]*|[0-9a-f]{8,}")


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
    """Writes text of several lines as such, and repeated parts in full."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _LIKE_NUMBER.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def text() -> str:
    """The document in YAML, as it is kept at the project's top."""
    body = yaml.dump(document(), Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
    return f"{_LEAD}{body}"


def document() -> dict[str, Any]:
    """The whole document."""
    registry = Registry.load()
    base = Path(__file__).with_name("asyncapi_base.yaml").read_text("utf-8")
    whole: dict[str, Any] = yaml.safe_load(base)
    keys = whole.pop("keys")
    whole["info"]["version"] = RELEASE
    channels, components = whole["channels"], whole["components"]
    components["messages"] = {}
    for spec in TOPICS:
        carried = [*_carried(spec.name)]
        _fill_channel(channels[spec.name], spec, carried)
        for each in carried:
            key = keys.get(spec.name) or keys[each.type_name]
            components["messages"][each.name] = _message(each, key, registry)
    components["schemas"] |= _schemas(registry)
    for operation in whole["operations"].values():
        for end in (operation, operation.get("reply", operation)):
            channel = end["channel"]["$ref"]
            names = channels[channel.rpartition("/")[2]]["messages"]
            end["messages"] = [{"$ref": f"{channel}/messages/{name}"} for name in names]
    return whole


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
            if kind is MessageKind.REPLICA_MAP or kind in STATE_KINDS.values():
                yield _Carried(type_name=type_name, kind=kind, is_tombstone=True)
    if topic in (ASSIGNER_COMMITS, ASSIGNER_AUDIT):
        yield _Carried(type_name="CommitMarker")
    if topic == APPLIED_TOPICS:
        yield _Carried(type_name="AppliedTopic")
        yield _Carried(type_name="AppliedTopic", is_tombstone=True)
        yield _Carried(type_name="MovesRun")


def _fill_channel(channel: dict[str, Any], spec: TopicSpec, carried: list[_Carried]) -> None:
    """Complete a channel that has a title and a description."""
    channel["description"] += (
        " It has one partition, and no more."
        if spec.single
        else f" `spu-assigner topics create` gives it {PARTITIONS} partitions and the broker's "
        "default number of replicas, unless another is given."
    )
    channel |= {
        "address": f"{{prefix}}{spec.name}",
        "messages": {each.name: _reference("messages", each.name) for each in carried},
        "parameters": {"prefix": _reference("parameters", "prefix")},
        "bindings": {
            "kafka": {
                "partitions": 1 if spec.single else PARTITIONS,
                "topicConfiguration": {
                    name: _typed(name, value)
                    for name, value in {**spec.required, **spec.tuning}.items()
                },
                "x-required": list(spec.required),
                "bindingVersion": BINDING,
            }
        },
    }


def _typed(name: str, value: str) -> list[str] | int | str:
    """A setting of a topic as the binding wants it: a list, a number or text."""
    if name == "cleanup.policy":
        return value.split(",")
    return int(value) if value.isdecimal() else value


def _message(each: _Carried, key_schema: Mapping[str, Any], registry: Registry) -> dict[str, Any]:
    entry = registry.current(each.type_name)
    shown = json.loads((FOLDER / "examples" / f"{entry.type_name}.json").read_text("utf-8"))
    example, encoded, key = _encoded(entry, shown)
    message: dict[str, Any] = {"name": each.name, "contentType": "application/avro"}
    sample: dict[str, Any] = {"name": each.name}
    binding: dict[str, Any] = {"key": {**key_schema, "examples": [key]}}
    if headers := _example_headers(each, example):
        sample["headers"] = headers
        of_markers = each.kind is None
        message["headers"] = {
            "allOf": [
                _reference("schemas", "MarkerHeaders" if of_markers else "OutputHeaders"),
                {"properties": {"ce_type": {"const": headers["ce_type"]}}},
            ]
        }
    if each.is_tombstone:
        message["summary"] = (
            "The topic that the key names is forgotten; its data stay in Kafka."
            if each.kind is MessageKind.TOPIC_RELEASED
            else f"What the key names is gone; before, it was a {each.type_name}."
        )
        message["payload"] = {"type": "null"}
        sample["payload"] = None
    else:
        message["summary"] = _documented(entry)["doc"]
        message["payload"] = _reference("schemas", _schema_name(entry))
        sample["payload"] = shown
        binding |= {"schemaIdLocation": "payload", "schemaIdPayloadEncoding": "confluent"}
        names = {field["name"] for field in entry.schema["fields"]}
        for name, about in _CORRELATIONS.items():
            if name in names:
                place = f"$message.payload#/{name}"
                message["correlationId"] = {"description": about, "location": place}
        message["x-schema-ids"] = [old.id for old in reversed(registry.versions(each.type_name))]
        message["x-example-bytes"] = {wire.value: data.hex() for wire, data in encoded.items()}
    message["bindings"] = {"kafka": {**binding, "bindingVersion": BINDING}}
    message["examples"] = [sample]
    return message


def _example_headers(each: _Carried, example: object) -> dict[str, str]:
    """As the job writes them; none of events, nor of what `apply` writes."""
    headers: Headers = []
    if each.kind is not None:
        headers = output_headers(
            EXAMPLE_QUERY, KINDS[each.kind][1], EXAMPLE_PLACE, EXAMPLE_TIME_MS, (0, 0)
        )
    elif isinstance(example, CommitMarker):
        headers = marker_headers(example, EXAMPLE_TIME_MS)
    return {name: value.decode() for name, value in headers}


def _schemas(registry: Registry) -> dict[str, Any]:
    """Every version of every schema: topics keep messages of earlier releases."""
    return {
        _schema_name(entry): {
            "schemaFormat": AVRO,
            "x-schema-id": entry.id,
            "x-confluent-header": confluent_header(entry).hex(),
            "x-single-object-header": single_object_header(entry).hex(),
            "schema": _documented(entry) if entry is registry.current(name) else entry.schema,
        }
        for name in registry.type_names
        for entry in registry.versions(name)
    }


def _schema_name(entry: Registered) -> str:
    return f"{entry.type_name}.v{entry.version}"


def _documented(entry: Registered) -> dict[str, Any]:
    """A current schema as its file has it, with the documentation that the registry leaves out."""
    found: dict[str, Any] = json.loads((FOLDER / f"{entry.type_name}.avsc").read_text("utf-8"))
    return found


def _encoded(entry: Registered, shown: Any) -> tuple[object, dict[Wire, bytes], str]:
    """An example, its bytes as the codec writes them, and its key as the job writes it."""
    schema = fastavro.parse_schema(entry.schema, _write_hint=False)
    (fields,) = fastavro.json_reader(StringIO(json.dumps(shown)), schema)
    body = BytesIO()
    fastavro.schemaless_writer(body, schema, fields)
    data = confluent_header(entry) + body.getvalue()
    if entry.type_name in EVENT_KINDS:
        event = decode_event(data, kind=EVENT_KINDS[entry.type_name])
        return event, {wire: encode_event(event, wire=wire) for wire in Wire}, event.cluster_id
    record = decode_record(data)
    return record, {wire: encode_record(record, wire=wire) for wire in Wire}, _record_key(record)


def _record_key(record: Message) -> str:
    match record:
        case CommitMarker():
            return record.query
        case DeadLetter():
            return "c1"  # Its source's, whatever that was.
        case TopicStatus() | AppliedTopic():
            return f"{record.cluster_id}/{record.topic}"
        case RingEvent():
            return record.cluster_id
        case MovesRun():
            return MOVES_KEY
        case _:
            return output_key(record).decode()


def _reference(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}


if __name__ == "__main__":
    DOCUMENT.write_text(text(), encoding="utf-8")
    print(f"{DOCUMENT.name}: {DOCUMENT.stat().st_size:,} bytes")
