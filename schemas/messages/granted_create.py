"""The map and the status of a granted create as messages.

Nearly all messages that a job writes are these two. They say much of it twice, and to make them as
records would take longer than to write them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import GrantedCreate, RingFacts, Status
from spu_assigner.schemas.avro.registry import Registry
from spu_assigner.schemas.avro.writers import span_writer
from spu_assigner.schemas.avro.writing import PREPARED_LONGS, long_bytes, text_bytes
from spu_assigner.schemas.messages.meanings import MEANING
from spu_assigner.schemas.messages.replica_lists import lists_bytes

_POLICIES: Final = {policy: long_bytes(index) for index, policy in enumerate(Policy)}
_FIRST_REVISION: Final = long_bytes(1)
_PLAINLY_ASSIGNED: Final = long_bytes(list(Status).index(Status.ASSIGNED)) + bytes(3)
_cluster_bytes: Final = lru_cache(maxsize=4_096)(text_bytes)


class GrantedHeaders(NamedTuple):
    """The headers of messages of one wire format."""

    replica_map: bytes
    status: bytes


def encode_granted_create(granted: GrantedCreate, headers: GrantedHeaders) -> tuple[bytes, bytes]:
    """What `encode_record` gives for the map and the status that a granted create stands for.

    `headers` are theirs, from `codec.granted_create_headers`.
    """
    event, facts, start, after = granted.event, granted.facts, granted.start, granted.after
    names = _cluster_bytes(event.cluster_id) + text_bytes(event.topic)
    cause = text_bytes(event.event_id)
    same_rack, in_list = granted.passed
    replica_map = b"".join(
        (
            headers.replica_map,
            names,
            _FIRST_REVISION,
            _POLICIES[granted.policy],
            lists_bytes(granted.lists),
            b"\x00\x02",  # no cores, an index
            PREPARED_LONGS.get(after) or long_bytes(after),
            cause,
            PREPARED_LONGS[event.replication_factor],
            b"\x01\x00" if event.ignore_rack else b"\x00\x00",  # no events but its create
            bytes(4),  # not pinned, no lengths of their own, no need, no constraints
            b"\x02\x02",  # a reason, and in it an index
            PREPARED_LONGS.get(start) or long_bytes(start),
            facts.cache or _ring(facts),
            long_bytes(same_rack) if same_rack else b"\x00",
            long_bytes(in_list) if in_list else b"\x00",
            b"\x00",  # no moves
        )
    )
    return replica_map, b"%b%b%b%b\x00" % (headers.status, names, _PLAINLY_ASSIGNED, cause)


_REASON: Final = Registry.load().current("ReplicaMap").expanded["fields"][-1]["type"][1]
_ring_bytes: Final = span_writer(_REASON, MEANING)


def _ring(facts: RingFacts) -> bytes:
    """What the reasons of granted creates say of a ring; kept with it."""
    facts.cache = _ring_bytes(facts.mode, 0, None, False, facts.ring, "")
    return facts.cache
