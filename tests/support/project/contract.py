"""A consumer that knows nothing but `asyncapi.yaml`: topics, framing, schemas, headers, keys.

It imports nothing of the project. Values are read by confluent-kafka's own Avro deserializer with a
Schema Registry client, which finds the document's schemas under their ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from jsonschema import Draft7Validator

DOCUMENT = Path(__file__).parents[3] / "asyncapi.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message as its consumer sees it."""

    name: str  # of the message in the document
    key: bytes | None
    headers: Mapping[str, str]
    value: Any  # None: a tombstone


class Contract:
    """What the document says."""

    def __init__(self, path: Path = DOCUMENT) -> None:
        self.document: dict[str, Any] = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
        self.schemas: dict[int, dict[str, Any]] = {
            schema["x-schema-id"]: schema
            for schema in self.document["components"]["schemas"].values()
            if "x-schema-id" in schema
        }

    @property
    def avro_schemas(self) -> dict[int, Any]:
        """The Avro schemas by their ids."""
        return {number: schema["schema"] for number, schema in self.schemas.items()}

    def find(self, reference: str) -> Any:
        """What a reference into the document names."""
        found = self.document
        for name in reference.removeprefix("#/").split("/"):
            found = found[name]
        return found

    def resolved(self, part: Any) -> Any:
        """A part, with what it refers to in its place."""
        match part:
            case {"$ref": str(reference)}:
                return self.resolved(self.find(reference))
            case dict():
                return {name: self.resolved(each) for name, each in part.items()}
            case list():
                return [self.resolved(each) for each in part]
            case _:
                return part

    def operations(self, action: str) -> dict[str, dict[str, Any]]:
        """The operations of this action, by name, with nothing left to look up."""
        return {
            name: self.resolved(each)
            for name, each in self.document["operations"].items()
            if each["action"] == action
        }

    def message_of(
        self, operation: Mapping[str, Any], value: bytes | None, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        """Which of an operation's messages this is: by its schema's id, or its type and nothing."""
        found: list[dict[str, Any]] = []
        for each in operation["messages"]:
            if value is None:
                is_it = each["payload"] == {"type": "null"} and _fits(
                    headers, each.get("headers", {})
                )
            else:
                size = len(bytes.fromhex(self.schemas[1]["x-confluent-header"]))
                known = {self.schemas[number]["x-confluent-header"] for number in _ids(each)}
                is_it = value[:size].hex() in known
            if is_it:
                found.append(each)
        assert len(found) == 1, f"{value!r} with {headers} is {[each['name'] for each in found]}"
        return found[0]


def _ids(message: Mapping[str, Any]) -> list[int]:
    return list(message.get("x-schema-ids", []))


def _fits(data: Any, schema: Mapping[str, Any]) -> bool:
    return bool(Draft7Validator(schema).is_valid(data))


def received(
    contract: Contract, client: SchemaRegistryClient, operation: Mapping[str, Any], **given: str
) -> list[Received]:
    """All messages that an operation would receive now; each must be as the document says.

    Args:
        contract: what is known.
        client: of the registry.
        operation: one of the document's.
        given: `bootstrap_servers`, and what the channel's address leaves open.
    """
    servers = given.pop("bootstrap_servers")
    topic = operation["channel"]["address"].format(**given)
    deserialize = AvroDeserializer(client)
    found = []
    for message in _all(servers, topic, operation["x-kafka-consumer"]):
        headers = {name: value.decode() for name, value in message.headers() or []}
        key, value = message.key(), message.value()
        described = contract.message_of(operation, value, headers)
        if "headers" in described:
            assert set(headers) == set(described["headers"]["allOf"][0]["required"])
            assert _fits(headers, described["headers"]), f"{headers} of {described['name']}"
        else:
            assert headers == {}
        key_schema = described["bindings"]["kafka"]["key"]
        assert "type" not in key_schema or _fits((key or b"").decode(), key_schema)
        context = SerializationContext(topic, MessageField.VALUE, message.headers())
        found.append(
            Received(
                name=described["name"], key=key, headers=headers, value=deserialize(value, context)
            )
        )
    return found


def _all(servers: str, topic: str, consumer_settings: Mapping[str, str]) -> list[Message]:
    """Every message on a topic now, in the order of each partition."""
    consumer = Consumer(
        {
            **consumer_settings,
            "bootstrap.servers": servers,
            "group.id": "contract",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    try:
        open_ends = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in open_ends])
        found = []
        while open_ends:
            for message in consumer.consume(1_000, 0.05):
                error = message.error()
                if error is None:
                    found.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_ends.discard(message.partition())
        return found
    finally:
        consumer.close()
