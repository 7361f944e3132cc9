"""The words of the AsyncAPI document, and what of it does not follow from the rest of the code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.config.settings import SPECS
from spu_assigner.stream.kafka.topics import (
    APPLIED_TOPICS,
    ASSIGNER_AUDIT,
    ASSIGNER_COMMITS,
    ASSIGNER_STATE,
    DEAD_LETTER,
    REPLICA_MAP,
    RING_EVENTS,
    SPU_EVENTS,
    TOPIC_EVENTS,
    TOPIC_STATUS,
)

_DEFAULTS: Final = {spec.name: spec.default for spec in SPECS}
_HOST, _, _PORT = _DEFAULTS["bootstrap_servers"].partition(":")
_NAME: Final = "[a-zA-Z0-9._-]{1,249}"  # of clusters and topics
ADDRESS: Final = "{{prefix}}{}"  # of a topic's name

INFO: Final = f"""\
Places the replicas of topics' partitions on storage nodes (SPUs). Nodes and requests come as
events on Kafka; replica maps, answers and changes of the ring go out.

The operations are those of a client: it sends events and receives what follows.

**Values** are a header, then one Avro record in binary encoding. The header is Confluent's (`00`,
the schema id in 4 bytes, big-endian) or that of Avro's single-object encoding (`c301`, the
schema's CRC-64-AVRO fingerprint in 8 bytes, little-endian). Both are read; which one the job
writes is its setting `SPU_ASSIGNER_WIRE`, `{_DEFAULTS["wire"]}` by default.

**Schemas**: every version that was ever written is under `components/schemas`, with its id
(`x-schema-id`) and both headers in hexadecimal. Ids are for ever, and no registry server is
needed: who wants one gives it these schemas under these ids. `x-schema-ids` of a message names
the versions that a topic may hold; the first is the newest, which is written, but for answers:
they have the version before, unless they say `RELEASED`, which it does not hold.

**Keys** are UTF-8. All events of a cluster have the same key, and so lie in one partition.

**Headers** of outputs are those of CloudEvents. `ce_id` is the same again when a batch is
repeated. Events need none.

**Delivery** is exactly once: a batch and its marker are one transaction. Read with
`isolation.level=read_committed`.

**Examples** are in Avro's JSON encoding; `x-example-bytes` are the same as they are on the wire,
in hexadecimal."""

WIRES: Final = {
    Wire.CONFLUENT.value: {
        "magic": "00",
        "then": "the schema id in 4 bytes, big-endian; Avro, binary encoding",
        "header": "x-confluent-header",
    },
    Wire.SINGLE_OBJECT.value: {
        "magic": "c301",
        "then": "the schema's CRC-64-AVRO in 8 bytes, little-endian; Avro, binary encoding",
        "header": "x-single-object-header",
    },
}

_VARIABLES: Final = {
    "host": {"default": _HOST, "description": "A broker of the cluster."},
    "port": {"default": _PORT, "description": "Its listener."},
}


def _server(text: str, protocol: str, *schemes: str) -> dict[str, Any]:
    told: dict[str, Any] = {
        "host": "{host}:{port}",
        "protocol": protocol,
        "description": text,
        "variables": _VARIABLES,
    }
    if schemes:
        told["security"] = [{"$ref": f"#/components/securitySchemes/{name}"} for name in schemes]
    return told


SERVERS: Final = {
    "plaintext": _server("Without encryption: for a broker on the loopback.", "kafka"),
    "tls": _server(
        "Encrypted; clients show a certificate if the broker asks.", "kafka-secure", "certificate"
    ),
    "sasl": _server(
        "Encrypted, and clients log in.", "kafka-secure", "scramSha512", "scramSha256", "plain"
    ),
}

PREFIX: Final = {
    "description": "What precedes the name of each topic: the job's setting "
    "`SPU_ASSIGNER_TOPIC_PREFIX`; empty by default.",
    "default": _DEFAULTS["topic_prefix"],
    "examples": ["staging."],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """What is said of a topic, and of a client's operation on it."""

    title: str
    text: str
    operation: str
    operation_title: str


CHANNELS: Final[Mapping[str, Channel]] = {
    SPU_EVENTS: Channel(
        title="SPU events",
        text="SPUs join and leave. What is no event becomes a dead letter. Merged with the topic "
        "events of the cluster by the broker's time.",
        operation="sendSpuEvents",
        operation_title="Tell that an SPU joins or leaves",
    ),
    TOPIC_EVENTS: Channel(
        title="Topic events",
        text="Topics are asked for, deleted, released, grown; clusters are evened out. Each "
        "request is answered; what is no event becomes a dead letter.",
        operation="sendTopicEvents",
        operation_title="Ask for topics",
    ),
    REPLICA_MAP: Channel(
        title="Replica maps",
        text="The current replica map of each topic, with its reason; a tombstone when the topic "
        "is deleted, or released, and its `ce_type` says which.",
        operation="receiveReplicaMaps",
        operation_title="Learn where replicas are",
    ),
    TOPIC_STATUS: Channel(
        title="Answers",
        text="The answer to each request, with a code and what to do. A request that waits is "
        "answered again when it is served. `cause` is the event_id of the request.",
        operation="receiveTopicStatuses",
        operation_title="Learn what became of requests",
    ),
    RING_EVENTS: Channel(
        title="Ring events",
        text="Which SPU joined, left, became saturated or came back, with the ring's size after "
        "it; or which event was ignored, with a code.",
        operation="receiveRingEvents",
        operation_title="Follow the ring",
    ),
    DEAD_LETTER: Channel(
        title="Dead letters",
        text="What is no event and cannot be answered: its beginning, size, SHA-256, place, and "
        "what is wrong with it.",
        operation="receiveDeadLetters",
        operation_title="Learn what could not be read",
    ),
    ASSIGNER_STATE: Channel(
        title="State",
        text="What the maps do not tell, so that the job's state can be rebuilt from its outputs: "
        "SPUs, chain indexes, what waits, remembered events; a tombstone for what is gone.",
        operation="receiveState",
        operation_title="Follow the job's state",
    ),
    ASSIGNER_COMMITS: Channel(
        title="Last marker",
        text="The marker of the last batch of each query.",
        operation="receiveLastMarkers",
        operation_title="Learn how far the job is",
    ),
    ASSIGNER_AUDIT: Channel(
        title="Markers",
        text="The marker of every batch: what it wrote, and what it had read.",
        operation="receiveMarkers",
        operation_title="Audit the batches",
    ),
    APPLIED_TOPICS: Channel(
        title="Topics that were applied",
        text="What `spu-assigner apply` made in Kafka or found there, by Kafka's id of each topic: "
        "only what it made is ever deleted by it. It lies in the Kafka cluster of the mapped "
        "topics, and the job has no part in it: messages have no headers. A tombstone when the "
        "topic is deleted, or an intended creation is settled.",
        operation="receiveAppliedTopics",
        operation_title="Learn which topics apply made",
    ),
}

HEADERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "ce_specversion": {"const": "1.0"},
    "ce_id": {
        "description": "Input topic, partition and offset of the event it follows from, and its "
        "number among all that does; the same when a batch is repeated.",
        "pattern": f"^{_NAME}(/[0-9]+){{3}}$",
    },
    "ce_source": {
        "description": "The query that wrote it.",
        "pattern": "^/spu-assigner/.+$",
    },
    "ce_type": {
        "description": "The type of the value; of a tombstone, that of what is gone, or "
        "`TopicReleased` where the topic was released.",
        "pattern": "^io\\.spuassigner\\.v1\\.[A-Za-z]+$",
    },
    "ce_time": {
        "description": "The broker's time of the event it follows from, in UTC.",
        "format": "date-time",
    },
    "content-type": {"const": "application/avro"},
}

# Those of a marker that differ.
MARKER_HEADERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "ce_id": {
        "description": "Query, checkpoint and batch; -1 where a recovered checkpoint begins.",
        "pattern": "^.+/[0-9a-f-]+/(-1|[0-9]+)$",
    },
    "ce_time": {
        "description": "When the batch's transaction was begun, in UTC, by the job's clock.",
        "format": "date-time",
    },
}

CLUSTER_KEY: Final = {
    "type": "string",
    "description": "The cluster_id of the value.",
    "pattern": f"^{_NAME}$",
}
MAP_KEY: Final = {
    "type": "string",
    "description": "cluster_id/topic",
    "pattern": f"^{_NAME}/{_NAME}$",
}
STATUS_KEY: Final = {
    "type": "string",
    "description": "cluster_id/topic; cluster_id/ of a request about the whole cluster.",
    "pattern": f"^{_NAME}/({_NAME})?$",
}
DEAD_LETTER_KEY: Final = {
    "description": "The first 1,024 bytes of the source message's key: any bytes, or none.",
}
APPLIED_KEY: Final = {
    "type": "string",
    "description": "cluster_id/topic; cluster_id/topic/intent of an INTENT.",
    "pattern": f"^{_NAME}/{_NAME}(/intent)?$",
}
QUERY_KEY: Final = {
    "type": "string",
    "description": "The query's name.",
}


def _entry_key(text: str, pattern: str) -> dict[str, Any]:
    return {"type": "string", "description": text, "pattern": f"^{_NAME}/{pattern}$"}


ENTRY_KEYS: Final = {
    "SpuState": _entry_key("cluster_id/spu/spu_id", "spu/[0-9]+"),
    "ChainState": _entry_key("cluster_id/chains/all", "chains/all"),
    "SeenState": _entry_key("cluster_id/seen/block", "seen/[0-9]+"),
    "WaitingState": _entry_key("cluster_id/waiting/topic", f"waiting/{_NAME}"),
}
