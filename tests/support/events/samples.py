"""The least record of a kind, and how any event or record becomes a message and is read again."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from io import BytesIO, StringIO
from typing import Any, get_args

import fastavro
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import ReplicaMap, RingChange, RingEvent, Status, TopicStatus
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.schemas.avro.registry import FOLDER, Registered
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import (
    EVENT_KINDS,
    EventKind,
    Wire,
    confluent_header,
    decode_event,
    decode_record,
    encode_event,
    encode_record,
    type_name_of,
)

MAP = ReplicaMap(
    cluster_id="c1",
    topic="t",
    revision=1,
    policy=Policy.KAFKA,
    replicas=ReplicaLists.of_lists([[1]]),
    cores=None,
    chain_index=1,
    cause="e5",
    replication_factor=1,
)
STATUS = TopicStatus(
    cluster_id="c1",
    topic="t",
    status=Status.VALIDATED,
    code=None,
    message=None,
    replicas=None,
    cause="e5",
)
RING = RingEvent(
    cluster_id="c1",
    spu_id=0,
    change=RingChange.SATURATED,
    code=None,
    message=None,
    ring_size=1,
    cause="e3",
)


def encode(value: Any, wire: Wire = Wire.CONFLUENT) -> bytes:
    write = encode_event if type_name_of(value) in EVENT_KINDS else encode_record
    return write(value, wire=wire)


def decode(data: bytes) -> list[Any]:
    """What a message is: an event of one topic or the other, a record, or nothing."""
    found: list[Any] = []
    readers = [partial(decode_event, kind=kind) for kind in get_args(EventKind)]
    for read in (*readers, decode_record):
        with suppress(DecodeError):
            found.append(read(data))
    return found


def example(entry: Registered) -> bytes:
    """The example beside a schema, as fastavro makes a message of it."""
    text = (FOLDER / "examples" / f"{entry.type_name}.json").read_text("utf-8")
    parsed = fastavro.parse_schema(entry.schema)
    (members,) = fastavro.json_reader(StringIO(json.dumps(json.loads(text))), parsed)
    body = BytesIO()
    fastavro.schemaless_writer(body, parsed, members)
    return confluent_header(entry) + body.getvalue()
