"""Reading replica maps: straight from the bytes of the current schema.

They are what a start reads most of. A map of short names, few lists and no more than its create
behind it is read in one go; any other with care, field by field. What the one does not take the
other looks at, so a fault is told in the same words.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.fast_constructor import fast_constructor
from spu_assigner.core.base.records import Mode, Move, Reason, ReplicaMap
from spu_assigner.schemas.avro.strict_reading import (
    Reader,
    compile_reader,
    read_long,
    record_reader,
    union_reader,
)
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.create_reading import CLUSTERS_MAX, SHAPE_SIZE_MAX, SHAPES_MAX
from spu_assigner.schemas.messages.replica_lists import read_lists

Fields = dict[str, Any]

_FIELDS: Final = (
    "cluster_id",
    "topic",
    "revision",
    "policy",
    "replicas",
    "cores",
    "chain_index",
    "cause",
    "replication_factor",
    "ignore_rack",
    "own_events",
    "reason",
)
_fast_map = fast_constructor(ReplicaMap)


def replica_map_reader(schema: Any) -> Reader:
    """A reader of replica maps of the current schema, expanded: lists become arrays in bulk."""
    types = {field["name"]: field["type"] for field in schema["fields"]}
    if tuple(types) != _FIELDS:
        raise ValueError(f"ReplicaMap has {list(types)}: the reader must be changed with it")
    read_reason = _reason_reader(types["reason"][1])
    by_hand = {
        "replicas": read_lists,
        "cores": union_reader([None, read_lists]),
        "reason": union_reader([None, read_reason]),
    }
    read_fields = record_reader(
        [(name, by_hand.get(name) or compile_reader(type_)) for name, type_ in types.items()]
    )
    clusters: dict[bytes, str] = {}  # names that were met

    def read_with_care(data: bytes, position: int) -> tuple[ReplicaMap, int]:
        fields, position = read_fields(data, position)
        fields["policy"] = Policy[fields["policy"]]
        fields["own_events"] = hashes_of(fields["own_events"])
        record = with_factor(fields)
        if len(clusters) == CLUSTERS_MAX:
            clusters.clear()
        clusters[record.cluster_id.encode()] = record.cluster_id
        return record, position

    policies = {2 * index: Policy[name] for index, name in enumerate(types["policy"]["symbols"])}
    return _in_one_go(clusters, policies, read_reason, read_with_care)


def _in_one_go(
    clusters: dict[bytes, str],
    policies: dict[int, Policy],
    read_reason: Reader,
    read_with_care: Reader,
) -> Reader:
    """A reader that is quick where all numbers but the index are small and the cluster was met."""

    def read(data: bytes, position: int) -> tuple[ReplicaMap, int]:
        try:
            size = data[position]
            cluster_end = position + 1 + (size >> 1)
            cluster_id = clusters.get(data[position + 1 : cluster_end])
            topic_size = data[cluster_end]
            topic_end = cluster_end + 1 + (topic_size >> 1)
            revision, policy = data[topic_end], policies.get(data[topic_end + 1])
            # Sizes below 0 or of several bytes, or what was never met.
            if (size | topic_size | revision) & 0x81 or cluster_id is None or policy is None:
                return read_with_care(data, position)
            replicas, end = read_lists(data, topic_end + 2)
            chain_index = None
            if data[end] != 0:  # There are cores.
                return read_with_care(data, position)
            if data[end + 1] == 0:
                begin = end + 2
            elif data[end + 1] == 2:
                chain_index, begin = read_long(data, end + 2)
            else:
                return read_with_care(data, position)
            cause_size = data[begin]
            cause_end = begin + 1 + (cause_size >> 1)
            factor, ignore_rack, own_events, branch = data[cause_end : cause_end + 4]
            if (cause_size | factor) & 0x81 or factor == 0 or ignore_rack > 1 or own_events:
                return read_with_care(data, position)
            if branch == 0:
                reason, end = None, cause_end + 4
            elif branch == 2:
                reason, end = read_reason(data, cause_end + 4)
            else:
                return read_with_care(data, position)
        except (IndexError, ValueError, DecodeError):  # The bytes end, or say what they must not.
            return read_with_care(data, position)
        return _fast_map(
            cluster_id=cluster_id,
            topic=data[cluster_end + 1 : topic_end].decode(),
            revision=revision >> 1,
            policy=policy,
            replicas=replicas,
            cores=None,
            chain_index=chain_index,
            cause=data[begin + 1 : cause_end].decode(),
            replication_factor=factor >> 1,
            ignore_rack=ignore_rack == 1,
            reason=reason,
        ), end

    return read


def _reason_reader(schema: Any) -> Reader:
    """A reader of reasons, the last field of a map.

    What follows the start is the same for many maps of one ring: it is looked up by its bytes.
    """
    first = schema["fields"][0]
    if first["name"] != "start_index":
        raise ValueError(f"Reason begins with {first['name']}: the reader must be changed with it")
    read_start = compile_reader(first["type"])
    read_rest = compile_reader({"type": "record", "fields": schema["fields"][1:]})
    rests: dict[bytes, Fields] = {}

    def read(data: bytes, position: int) -> tuple[Reason, int]:
        start_index, position = read_start(data, position)
        end = len(data)
        tail = data[position:] if end - position <= SHAPE_SIZE_MAX else b""
        rest = rests.get(tail)
        if rest is None:
            rest, end = read_rest(data, position)
            rest = reason_fields(rest)
            if end == len(data) and tail:
                if len(rests) == SHAPES_MAX:
                    rests.clear()
                rests[tail] = rest
        return Reason(start_index=start_index, **rest), end

    return read


def with_factor(fields: Fields) -> ReplicaMap:
    """Release 0.1 did not tell what was asked for, and knew no short lists."""
    if fields["replication_factor"] == 0:
        fields["replication_factor"] = fields["replicas"].matrix.shape[1]
    return ReplicaMap(**fields)


def reason_fields(reason: Fields) -> Fields:
    """Of what was decoded, what `Reason` takes."""
    reason["mode"] = Mode[reason["mode"]]
    reason["ring_fingerprint"] = int.from_bytes(reason["ring_fingerprint"], "big")
    reason["moves"] = tuple(Move(**move) for move in reason["moves"])
    return reason


def hashes_of(hashes: list[bytes]) -> tuple[int, ...]:
    """Numbers of 64 bits."""
    return struct.unpack(f">{len(hashes)}Q", b"".join(hashes)) if hashes else ()
