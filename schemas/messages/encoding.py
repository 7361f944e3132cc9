"""Records and entries as Avro bytes, without the frame: one function for each type.

Written by hand, since the hottest path of the job ends here; tests hold every function against
fastavro's bytes for the same schema.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from spu_assigner.core.base.events import (
    Policy,
)
from spu_assigner.core.base.records import (
    Answer,
    ChainEntry,
    Entry,
    GrantedCreate,
    Mode,
    Move,
    Order,
    Reason,
    ReplicaMap,
    RingChange,
    RingEvent,
    RingFacts,
    SeenEntry,
    SpuChanged,
    Status,
    TopicStatus,
    Wait,
    Waiting,
)
from spu_assigner.schemas.avro.writing import (
    PREPARED_LONGS,
    array_bytes,
    boolean_byte,
    bytes_bytes,
    long_bytes,
    nullable_long,
    nullable_text,
    text_bytes,
)
from spu_assigner.schemas.errors import EncodeError
from spu_assigner.schemas.messages.replica_lists import lists_bytes, nullable_lists
from spu_assigner.schemas.messages.wire import AppliedTopic, CommitMarker, DeadLetter, Origin

Message = Answer | Entry | DeadLetter | CommitMarker | AppliedTopic

_RINGS_MAX: Final = 1_024  # states of rings whose bytes are remembered

# The order of symbols in the schemas is that of the enums; a test holds them together.
_POLICIES: Final = {policy: long_bytes(index) for index, policy in enumerate(Policy)}
_STATUSES: Final = {status: long_bytes(index) for index, status in enumerate(Status)}
_CHANGES: Final = {change: long_bytes(index) for index, change in enumerate(RingChange)}
_ORDERS: Final = {order: long_bytes(index) for index, order in enumerate(Order)}
_MODES: Final = {mode: long_bytes(index) for index, mode in enumerate(Mode)}
_WAITS: Final = {wait: long_bytes(index) for index, wait in enumerate(Wait)}
_ORIGINS: Final = {origin: long_bytes(index) for index, origin in enumerate(Origin)}
_FIRST_REVISION: Final = long_bytes(1)
_PLAINLY_ASSIGNED: Final = _STATUSES[Status.ASSIGNED] + bytes(3)  # no code, message, lists


# Records. Their numbers are within the core's limits, so they fit.


def _replica_map(record: ReplicaMap) -> bytes:
    if record.replicas is None:
        raise EncodeError(f"the map of {record.topic} is deleted; a tombstone says so, no value")
    cores, chain_index, own = record.cores, record.chain_index, record.own_events
    return b"".join(
        (
            text_bytes(record.cluster_id),
            text_bytes(record.topic),
            long_bytes(record.revision),
            _POLICIES[record.policy],
            lists_bytes(record.replicas),
            b"\x00" if cores is None else nullable_lists(cores),
            b"\x00" if chain_index is None else nullable_long(chain_index),
            text_bytes(record.cause),
            long_bytes(record.replication_factor),
            b"\x01" if record.ignore_rack else b"\x00",
            _hashes(own) if own else b"\x00",
            b"\x00" if record.reason is None else _reason(record.reason),
        )
    )


def _hashes(hashes: tuple[int, ...]) -> bytes:
    """An array of hashes, 8 bytes each."""
    count = len(hashes)
    return long_bytes(count) + struct.pack(f">{count}Q", *hashes) + b"\x00" if count else b"\x00"


def _reason(reason: Reason) -> bytes:
    """A reason, in the union with null.

    What it tells of the ring is the same for one request after the other: it is looked up.
    """
    ring = (
        reason.mode,
        reason.first_partition,
        reason.shift,
        reason.is_named,
        reason.ring_size,
        reason.ring_fingerprint,
        reason.offline,
        reason.saturated,
    )
    start, same_rack, in_list = reason.start_index, reason.same_rack, reason.in_list
    return b"".join(
        (
            b"\x02",
            b"\x00" if start is None else nullable_long(start),
            _RINGS.get(ring) or _ring(ring),
            long_bytes(same_rack) if same_rack else b"\x00",
            long_bytes(in_list) if in_list else b"\x00",
            array_bytes([_move(move) for move in reason.moves]) if reason.moves else b"\x00",
        )
    )


def _move(move: Move) -> bytes:
    return long_bytes(move.partition) + nullable_long(move.gone) + nullable_long(move.taken)


_RingKey = tuple[Mode, int, int | None, bool, int, int, int, int]
_RINGS: Final[dict[_RingKey, bytes]] = {}


def _ring(ring: _RingKey) -> bytes:
    mode, first_partition, shift, is_named, size, fingerprint, offline, saturated = ring
    if len(_RINGS) == _RINGS_MAX:
        _RINGS.clear()
    data = _RINGS[ring] = b"".join(
        (
            _MODES[mode],
            long_bytes(first_partition),
            nullable_long(shift),
            boolean_byte(is_named),
            long_bytes(size),
            fingerprint.to_bytes(8, "big"),
            long_bytes(offline),
            long_bytes(saturated),
        )
    )
    return data


def _topic_status(record: TopicStatus) -> bytes:
    if record.code is None and record.message is None and record.replicas is None:
        answer = b"\x00\x00\x00"
    else:
        answer = (
            nullable_text(record.code)
            + nullable_text(record.message)
            + nullable_lists(record.replicas)
        )
    return b"".join(
        (
            text_bytes(record.cluster_id),
            text_bytes(record.topic),
            _STATUSES[record.status],
            answer,
            text_bytes(record.cause),
            b"\x00" if record.moves is None else nullable_long(record.moves),
        )
    )


def granted_create_bodies(granted: GrantedCreate) -> tuple[bytes, bytes]:
    """The bytes of map and status of a granted create, which say much of it twice."""
    event, facts, start, after = granted.event, granted.facts, granted.start, granted.after
    cluster_id = event.cluster_id
    names = (_CLUSTERS.get(cluster_id) or _cluster(cluster_id)) + text_bytes(event.topic)
    cause = text_bytes(event.event_id)
    same_rack, in_list = granted.passed
    body = b"".join(
        (
            names,
            _FIRST_REVISION,
            _POLICIES[granted.policy],
            lists_bytes(granted.lists),
            b"\x00\x02",  # no cores, an index
            PREPARED_LONGS.get(after) or long_bytes(after),
            cause,
            PREPARED_LONGS[event.replication_factor],
            # No events of its own but its create; a reason, and in it an index.
            b"\x01\x00\x02\x02" if event.ignore_rack else b"\x00\x00\x02\x02",
            PREPARED_LONGS.get(start) or long_bytes(start),
            facts.cache or _of_ring(facts),
            long_bytes(same_rack) if same_rack else b"\x00",
            long_bytes(in_list) if in_list else b"\x00",
            b"\x00",  # no moves
        )
    )
    return body, b"%b%b%b\x00" % (names, _PLAINLY_ASSIGNED, cause)


_CLUSTERS_MAX: Final = 4_096  # names of clusters that are remembered
_CLUSTERS: Final[dict[str, bytes]] = {}


def _cluster(cluster_id: str) -> bytes:
    if len(_CLUSTERS) == _CLUSTERS_MAX:
        _CLUSTERS.clear()
    data = _CLUSTERS[cluster_id] = text_bytes(cluster_id)
    return data


def _of_ring(facts: RingFacts) -> bytes:
    """What the reasons of granted creates tell of a ring; kept with it."""
    data = facts.cache = _ring(
        (
            facts.mode,
            0,
            None,
            False,
            facts.ring_size,
            facts.ring_fingerprint,
            facts.offline,
            facts.saturated,
        )
    )
    return data


def _ring_event(record: RingEvent) -> bytes:
    return b"".join(
        (
            text_bytes(record.cluster_id),
            long_bytes(record.spu_id),
            _CHANGES[record.change],
            nullable_text(record.code),
            nullable_text(record.message),
            long_bytes(record.ring_size),
            text_bytes(record.cause),
        )
    )


def _spu_changed(entry: SpuChanged) -> bytes:
    return b"".join(
        (
            text_bytes(entry.cluster_id),
            long_bytes(entry.spu_id),
            boolean_byte(entry.online),
            nullable_text(entry.rack),
            long_bytes(entry.cores),
            long_bytes(entry.capacity),
            array_bytes([text_bytes(name) + text_bytes(text) for name, text in entry.labels]),
            long_bytes(entry.registration),
            array_bytes([long_bytes(weight) for weight in entry.core_weights]),
            boolean_byte(entry.leaving),
        )
    )


def _waiting(entry: Waiting) -> bytes:
    return b"".join(
        (
            text_bytes(entry.cluster_id),
            text_bytes(entry.topic),
            long_bytes(entry.sequence),
            _WAITS[entry.kind],
            text_bytes(entry.cause),
            b"\x00" if entry.policy is None else b"\x02" + _POLICIES[entry.policy],
            long_bytes(entry.partitions),
            long_bytes(entry.replication_factor),
            boolean_byte(entry.ignore_rack),
            nullable_long(entry.start_index),
            nullable_long(entry.shift),
        )
    )


def _chain_entry(entry: ChainEntry) -> bytes:
    chains = [
        _ORDERS[order]
        + long_bytes(chain.cycle)
        + nullable_long(chain.lead)
        + boolean_byte(chain.moved)
        for order, chain in entry.chains
    ]
    return b"".join(
        (
            text_bytes(entry.cluster_id),
            array_bytes(chains),
            long_bytes(entry.registration_next),
            long_bytes(entry.seen_count),
        )
    )


def _seen_entry(entry: SeenEntry) -> bytes:
    return text_bytes(entry.cluster_id) + long_bytes(entry.block) + _hashes(entry.hashes)


def _dead_letter(letter: DeadLetter) -> bytes:
    return b"".join(
        (
            text_bytes(letter.source_topic),
            long_bytes(letter.source_partition),
            long_bytes(letter.source_offset),
            long_bytes(letter.source_timestamp_ms),
            text_bytes(letter.code),
            text_bytes(letter.message),
            b"\x00" if letter.raw is None else b"\x02" + bytes_bytes(letter.raw),
            long_bytes(letter.size),
            text_bytes(letter.sha256),
        )
    )


def _commit_marker(marker: CommitMarker) -> bytes:
    offsets = [
        text_bytes(topic)
        + array_bytes(
            [
                long_bytes(each.partition)
                + long_bytes(each.first)
                + long_bytes(each.last)
                + long_bytes(each.count)
                for each in partitions
            ]
        )
        for topic, partitions in sorted(marker.offsets.items())
    ]
    positions = [
        text_bytes(topic)
        + array_bytes([long_bytes(each.partition) + long_bytes(each.next) for each in partitions])
        for topic, partitions in sorted(marker.positions.items())
    ]
    lost = marker.recovered_from
    return b"".join(
        (
            text_bytes(marker.query),
            text_bytes(marker.checkpoint_id),
            long_bytes(marker.batch),
            long_bytes(marker.count),
            text_bytes(marker.digest),
            array_bytes(offsets),
            text_bytes(marker.release),
            long_bytes(marker.shards),
            text_bytes(marker.default_policy),
            array_bytes(positions),
            b"\x00"
            if lost is None
            else b"\x02" + text_bytes(lost.checkpoint_id) + long_bytes(lost.batch),
        )
    )


def _applied_topic(record: AppliedTopic) -> bytes:
    return b"".join(
        (
            text_bytes(record.cluster_id),
            text_bytes(record.topic),
            nullable_text(record.topic_id),
            _ORIGINS[record.origin],
            long_bytes(record.recorded_at),
            text_bytes(record.lists),
        )
    )


# By type: the name of its schema, and its bytes.

MESSAGE_BODIES: Final[dict[type[Message], tuple[str, Callable[[Any], bytes]]]] = {
    ReplicaMap: ("ReplicaMap", _replica_map),
    TopicStatus: ("TopicStatus", _topic_status),
    RingEvent: ("RingEvent", _ring_event),
    SpuChanged: ("SpuState", _spu_changed),
    Waiting: ("WaitingState", _waiting),
    ChainEntry: ("ChainState", _chain_entry),
    SeenEntry: ("SeenState", _seen_entry),
    DeadLetter: ("DeadLetter", _dead_letter),
    CommitMarker: ("CommitMarker", _commit_marker),
    AppliedTopic: ("AppliedTopic", _applied_topic),
}
