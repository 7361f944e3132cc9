"""The core of the product in a plain loop: what a user writes who embeds it.

It decides as the job does and writes the job's own maps, reasons included. It writes no statuses,
ring events or markers, and reads joins and creates alone.
"""

from __future__ import annotations

from spu_assigner.core import Assigner, Policy, TopicCreate
from spu_assigner.core.base.records import EntryGone, ReplicaMap
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.codec import (
    decode_event,
    decode_record,
    encode_event,
    encode_record,
)
from spu_assigner.stream.job.shard.clusters import entry_name

HEADER_SIZE = 5  # 0x00 and the schema's id
_CREATE = encode_event(TopicCreate(event_id="e", cluster_id="c", topic="t"))[:HEADER_SIZE]


class CoreClusters:
    """All clusters; its changelog is the maps themselves and the core's entries."""

    def __init__(self, policy: Policy) -> None:
        self._assigner = Assigner(policy)
        self._changed: set[str] = set()

    def answer(self, value: bytes) -> tuple[str, bytes] | None:
        """Key and value of the map that answers an event; None: it has none."""
        event = decode_event(value, kind="topic" if value.startswith(_CREATE) else "spu")
        self._changed.add(event.cluster_id)
        first, *_ = self._assigner.apply(event) or (None,)
        if not isinstance(first, ReplicaMap):
            return None
        return f"{first.cluster_id}/{first.topic}", encode_record(first)

    def changes(self) -> list[tuple[str, bytes | None]]:
        """Key and value of each entry that has changed, for the changelog."""
        names, self._changed = sorted(self._changed), set()
        found: list[tuple[str, bytes | None]] = []
        for name in names:
            for entry in self._assigner.clusters[name].take_entries():
                kind, which = entry_name(entry)
                value = None if isinstance(entry, EntryGone) else encode_record(entry)
                found.append((f"{name}/{kind}/{which}", value))
        return found

    def restore(self, key: str, value: bytes | None) -> None:
        """Take over a map, or an entry of the changelog."""
        if value is not None:
            name = key.partition("/")[0]
            clusters = self._assigner.clusters
            state = clusters.get(name) or clusters.setdefault(name, ClusterState(name))
            state.restore(decode_record(value))  # type: ignore[arg-type]  # what this loop wrote
