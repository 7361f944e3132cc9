"""Messages as Avro bytes without their frame: readers and writers of all versions and types."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from spu_assigner.core.base.events import Event, Policy
from spu_assigner.core.base.records import GrantedCreate, RingFacts, Status
from spu_assigner.schemas.avro.meaning import Reader, Writer
from spu_assigner.schemas.avro.readers import compile_reader
from spu_assigner.schemas.avro.registry import Registered, Registry
from spu_assigner.schemas.avro.writers import compile_writer, span_writer
from spu_assigner.schemas.avro.writing import PREPARED_LONGS, long_bytes, text_bytes
from spu_assigner.schemas.messages.meanings import EVENT_TYPES, MEANING, MESSAGE_TYPES, Message
from spu_assigner.schemas.messages.replica_lists import lists_bytes

REGISTRY: Final = Registry.load()
TYPE_NAMES: Final[dict[type[Event | Message], str]] = {
    cls: name for name, cls in (EVENT_TYPES | MESSAGE_TYPES).items()
}


def reader_of(entry: Registered, current: Registered) -> Reader:
    """A reader of one version of a type; it gives what the current version would."""
    return compile_reader(entry.expanded, MEANING, current=current.expanded)


@cache
def writer_of(type_name: str) -> Writer:
    """The writer of a type."""
    return compile_writer(REGISTRY.current(type_name).expanded, MEANING)


# A granted create. Nearly all messages that a job writes are maps and statuses of these. They say
# much of it twice, and to make them as records would take longer than to write them.

_POLICIES: Final = {policy: long_bytes(index) for index, policy in enumerate(Policy)}
_FIRST_REVISION: Final = long_bytes(1)
_PLAINLY_ASSIGNED: Final = long_bytes(list(Status).index(Status.ASSIGNED)) + bytes(3)
_CLUSTERS_MAX: Final = 4_096  # names of clusters that are remembered
_CLUSTERS: Final[dict[str, bytes]] = {}


def granted_create_bodies(granted: GrantedCreate) -> tuple[bytes, bytes]:
    """The bytes of map and status of a granted create."""
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
            facts.cache or _ring(facts),
            long_bytes(same_rack) if same_rack else b"\x00",
            long_bytes(in_list) if in_list else b"\x00",
            b"\x00",  # no moves
        )
    )
    return body, b"%b%b%b\x00" % (names, _PLAINLY_ASSIGNED, cause)


def _cluster(cluster_id: str) -> bytes:
    if len(_CLUSTERS) == _CLUSTERS_MAX:
        _CLUSTERS.clear()
    data = _CLUSTERS[cluster_id] = text_bytes(cluster_id)
    return data


@cache
def _write_ring() -> Any:
    reason = REGISTRY.current("ReplicaMap").expanded["fields"][-1]["type"][1]
    return span_writer(reason, MEANING)


def _ring(facts: RingFacts) -> bytes:
    """What the reasons of granted creates say of a ring; kept with it."""
    ring = facts.ring_size, facts.ring_fingerprint, facts.offline, facts.saturated
    data: bytes = _write_ring()(facts.mode, 0, None, False, *ring)
    facts.cache = data
    return data
