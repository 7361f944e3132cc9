"""The decoded copy of a shard: its clusters, each decoded when it is first needed.

A shard may hold a million topics. What a start reads of a cluster is put aside as bytes, with one
look at each key, so that the first answer waits for the decoding of its own cluster only; and
clusters that no event touches take the least memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, assert_never

from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.records import (
    ChainEntry,
    Entry,
    EntryGone,
    EntryKind,
    ReplicaMap,
    SeenEntry,
    SpuChanged,
    Waiting,
)
from spu_assigner.core.constraints.improvable import Improvable
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.stream.job.shard.state_log import pack_entry, unpack_entries

_MAP: Final = b"m"  # what precedes the key of a replica map in the state,
_ENTRY: Final = b"s"  # and that of an entry of assigner-state
_FORGOTTEN: Final = b"/chains/all"  # its tombstone is that of the cluster: each has the entry


def map_key(key: bytes) -> bytes:
    """The key in a shard's state of a message of `replica-map`."""
    return _MAP + key


def state_key(key: bytes) -> bytes:
    """The key in a shard's state of a message of `assigner-state`."""
    return _ENTRY + key


def output_key(record: ReplicaMap | Entry) -> bytes:
    """The key of a record's message on its topic: the state keeps it after a letter."""
    if isinstance(record, ReplicaMap):
        return f"{record.cluster_id}/{record.topic}".encode()
    kind, name = entry_name(record)
    return f"{record.cluster_id}/{kind}/{name}".encode()


def entry_name(entry: Entry | EntryGone) -> tuple[EntryKind, str]:
    """What stands after the cluster in the key of an entry's message."""
    match entry:
        case SpuChanged():
            return EntryKind.SPU, str(entry.spu_id)
        case Waiting():
            return EntryKind.WAITING, entry.topic
        case ChainEntry():
            return EntryKind.CHAINS, "all"
        case SeenEntry():
            return EntryKind.SEEN, str(entry.block)
        case EntryGone():
            return entry.kind, entry.name
    assert_never(entry)


class Clusters(Mapping[str, ClusterState]):
    """Clusters by name. A look-up may decode one, and so find that what is stored is damaged."""

    def __init__(self) -> None:
        self._states: dict[str, ClusterState | bytearray] = {}  # bytes: entries, not yet decoded
        self.unmeasured: dict[str, None] = {}  # changed since their figures were reported
        self.unsearched: dict[str, None] = {}  # likewise since it was looked what could be better
        self.improvable: dict[str, Improvable] = {}  # of clusters where something could
        self.rests_until = 0.0  # by the monotonic clock: before, none is searched

    def of(self, cluster_id: str) -> ClusterState:
        """A cluster's state; empty if nothing is known of it."""
        state = self._states.get(cluster_id, b"")
        if not isinstance(state, ClusterState):
            state = self._states[cluster_id] = _decoded(cluster_id, bytes(state))
        return state

    def restore(self, key: bytes, value: bytes | None) -> None:
        """Take over one message that rebuilds state."""
        if value is None:
            _named(key)  # Before it is put aside: a tombstone has nothing to be checked by later.
        cluster_id = key[1 : key.find(b"/")].decode()
        state = self._states.get(cluster_id)
        if isinstance(state, ClusterState):
            _restore(state, key, value)
        elif value is None and (state is None or key.endswith(_FORGOTTEN)):
            self._states.pop(cluster_id, None)
        else:
            if state is None:
                state = self._states[cluster_id] = bytearray()
            state += pack_entry(key, value)

    def forget_empty(self, names: Iterable[str]) -> None:
        """Keep nothing of those of these clusters that have no SPU, topic or waiting request."""
        for name in names:
            state = self._states.get(name)
            if isinstance(state, ClusterState) and state.is_empty:
                del self._states[name]

    def clear(self) -> None:
        """Be empty."""
        self._states.clear()
        self.unmeasured.clear()

    def __getitem__(self, cluster_id: str) -> ClusterState:
        if cluster_id not in self._states:
            raise KeyError(cluster_id)
        return self.of(cluster_id)

    def __contains__(self, cluster_id: object) -> bool:
        return cluster_id in self._states

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)


def _decoded(cluster_id: str, packed: bytes) -> ClusterState:
    state = ClusterState(cluster_id)
    latest = dict(unpack_entries(packed))
    # Maps last: their SPUs are known then, which saves a look at each.
    for key in sorted(latest, key=lambda key: key.startswith(_MAP)):
        value = latest[key]
        if value is not None:
            _restore(state, key, value)
    return state


def _restore(state: ClusterState, key: bytes, value: bytes | None) -> None:
    if value is None:
        match _named(key):
            case None, topic:
                state.forget_topic(topic)
            case kind, name:
                state.forget_entry(kind, name)
        return
    record = decode_record(value)
    if not isinstance(record, ReplicaMap | Entry):
        raise InvariantError(f"the state holds a {type(record).__name__} under {key!r}")
    if record.cluster_id != state.cluster_id:
        raise InvariantError(f"the state holds a record of {record.cluster_id!r} under {key!r}")
    state.restore(record)


def _named(key: bytes) -> tuple[EntryKind | None, str]:
    """The kind and name of what a tombstone's key stood for; no kind: a map, by its topic."""
    match key[:1], key[1:].decode().split("/"):
        case b"m", [_, topic]:
            return None, topic
        case b"s", [_, ("spu" | "waiting" | "chains" | "seen") as kind, name]:
            return EntryKind(kind), name
        case _:
            raise InvariantError(
                f"the state holds a tombstone under {key!r}; "
                "only maps, SPUs, what waits, chains and remembered ids have them"
            )
