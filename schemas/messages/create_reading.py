"""Reading requests for topics: straight from the bytes of the current schema.

Requests differ in id, time and topic, but hardly in what follows the topic: that is decoded once
and looked up by its bytes from then on; likewise the cluster. A request of short names whose
cluster and rest were met is read in one go; any other with care, step by step. What the one does
not take the other looks at, so a fault is told in the same words.
"""

from __future__ import annotations

from typing import Any, Final

from spu_assigner.core.base.events import OnShortage, Policy, TopicCreate
from spu_assigner.core.base.fast_constructor import fast_constructor
from spu_assigner.core.base.limits import PARTITIONS_MAX, is_legal_raw_name
from spu_assigner.schemas.avro.strict_reading import (
    Reader,
    array_reader,
    compile_reader,
    read_text,
    record_reader,
    union_reader,
)
from spu_assigner.schemas.errors import DecodeError

SHAPES_MAX: Final = 4_096  # different rests of requests, or of reasons, that are remembered
SHAPE_SIZE_MAX: Final = 64  # bytes; a rest without manual lists, or without moves, is shorter
CLUSTERS_MAX: Final = 4_096  # names of clusters that are remembered

_SHAPE_FIELDS: Final = (
    "partitions",
    "replication_factor",
    "policy",
    "ignore_rack",
    "start_index",
    "shift",
    "validate_only",
    "on_shortage",
)
_fast_create = fast_constructor(TopicCreate)


class _Met:
    """What was met in requests that were read with care."""

    def __init__(self) -> None:
        self.rests: dict[bytes, tuple[Any, ...]] = {}  # in the order of _SHAPE_FIELDS
        self.clusters: dict[bytes, str] = {}

    def note(self, event: TopicCreate, rest: bytes) -> None:
        """Remember cluster and rest of a request, which fills its bytes."""
        if len(self.clusters) == CLUSTERS_MAX:
            self.clusters.clear()
        self.clusters[event.cluster_id.encode()] = event.cluster_id
        if len(rest) <= SHAPE_SIZE_MAX and event.replicas is None:
            if len(self.rests) == SHAPES_MAX:
                self.rests.clear()
            self.rests[rest] = tuple(getattr(event, name) for name in _SHAPE_FIELDS)


def topic_create_reader(schema: Any) -> Reader:
    """A reader of requests for topics of the current schema, expanded."""
    names = [field["name"] for field in schema["fields"]]
    if names[:4] != ["event_id", "cluster_id", "occurred_at", "topic"]:
        raise ValueError(f"TopicCreate begins with {names[:4]}: the reader must be changed with it")
    read_occurred_at = compile_reader(schema["fields"][2]["type"])
    read_shape = record_reader(
        [
            (
                field["name"],
                _manual_reader(field["type"])
                if field["name"] == "replicas"
                else compile_reader(field["type"]),
            )
            for field in schema["fields"][4:]
        ]
    )
    met = _Met()

    def read_with_care(data: bytes, position: int) -> tuple[TopicCreate, int]:
        event_id, position = read_text(data, position)
        cluster_id, position = read_text(data, position)
        occurred_at, position = read_occurred_at(data, position)
        topic, position = read_text(data, position)
        shape, end = read_shape(data, position)
        event = TopicCreate(
            event_id=event_id,
            cluster_id=cluster_id,
            occurred_at=occurred_at,
            topic=topic,
            **shape_of(shape),
        )
        if end == len(data):
            met.note(event, data[position:])
        return event, end

    return _in_one_go(met, read_occurred_at, read_with_care)


def _in_one_go(met: _Met, read_occurred_at: Reader, read_with_care: Reader) -> Reader:
    """A reader that is quick where all is as it was met before, and leaves the others to care."""

    def read(data: bytes, position: int) -> tuple[TopicCreate, int]:
        try:
            id_size = data[position]
            id_end = position + 1 + (id_size >> 1)
            cluster_size = data[id_end]
            cluster_end = id_end + 1 + (cluster_size >> 1)
            cluster_id = met.clusters.get(data[id_end + 1 : cluster_end])
            # A size below 0 or of several bytes, no id at all, or a cluster never met.
            if (id_size | cluster_size) & 0x81 or id_size == 0 or cluster_id is None:
                return read_with_care(data, position)
            if data[cluster_end] == 0:
                occurred_at, begin = None, cluster_end + 1
            else:
                occurred_at, begin = read_occurred_at(data, cluster_end)
            topic_size = data[begin]
            end = begin + 1 + (topic_size >> 1)
            raw_topic = data[begin + 1 : end]
        except (IndexError, DecodeError):
            return read_with_care(data, position)
        rest = met.rests.get(data[end:])
        if topic_size & 0x81 or rest is None or not is_legal_raw_name(raw_topic):
            return read_with_care(data, position)
        partitions, factor, policy, ignore_rack, start, shift, validate_only, on_shortage = rest
        event = _fast_create(
            event_id=data[position + 1 : id_end].decode(),
            cluster_id=cluster_id,
            occurred_at=occurred_at,
            topic=raw_topic.decode(),
            partitions=partitions,
            replication_factor=factor,
            policy=policy,
            ignore_rack=ignore_rack,
            start_index=start,
            shift=shift,
            validate_only=validate_only,
            on_shortage=on_shortage,
        )
        return event, len(data)

    return read


def shape_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Decoded fields as the event has them."""
    policy = fields["policy"]
    fields["policy"] = None if policy is None else Policy[policy]
    fields["on_shortage"] = OnShortage[fields["on_shortage"]]
    return fields


def _manual_reader(schema: Any) -> Reader:
    """A reader of manual lists, or null.

    A request for too many partitions is refused by their number alone. Kept whole, half a million
    empty lists, which a message of 1 MiB can hold, would take 130 MB.
    """
    read_list = compile_reader(schema[1]["items"])
    return union_reader([None, array_reader(read_list, kept_max=PARTITIONS_MAX)])
