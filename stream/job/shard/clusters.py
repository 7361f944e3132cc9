"""The decoded copy of a shard: its clusters, each decoded when it is first needed.

A shard may hold a million topics. What a start reads of a cluster is put aside as bytes, with one
look at each key, so that the first answer waits for the decoding of its own cluster only; and
clusters that no event touches take the least memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.stream.job.shard.state_log import pack_entry, read_entries, unpack_entries

MAP: Final = b"m"  # what precedes the key of a replica map in the state,
ENTRY: Final = b"s"  # and that of an entry of assigner-state
_FORGOTTEN: Final = b"/chains/all"  # its tombstone is that of the cluster: each has the entry


def map_key(key: bytes) -> bytes:
    """The key in a shard's state of a message of `replica-map`."""
    return MAP + key


def state_key(key: bytes) -> bytes:
    """The key in a shard's state of a message of `assigner-state`."""
    return ENTRY + key


def entry_key(record: ReplicaMap | Entry) -> bytes:
    """The key in a shard's state under which a record belongs."""
    if isinstance(record, ReplicaMap):
        return map_key(f"{record.cluster_id}/{record.topic}".encode())
    return state_key(f"{record.cluster_id}/{entry_name(record)}".encode())


def output_key(record: ReplicaMap | Entry) -> bytes:
    """The key of a record's message on its topic: the state keeps it after a letter."""
    return entry_key(record)[1:]


def entry_name(entry: Entry | EntryGone) -> str:
    """The key of an entry's message, without the cluster."""
    match entry:
        case SpuChanged():
            return f"{EntryKind.SPU}/{entry.spu_id}"
        case Waiting():
            return f"{EntryKind.WAITING}/{entry.topic}"
        case ChainEntry():
            return "chains/all"
        case SeenEntry():
            return f"seen/{entry.block}"
        case EntryGone():
            return f"{entry.kind}/{entry.name}"
    assert_never(entry)


class Clusters(Mapping[str, ClusterState]):
    """Clusters by name. Looking one up may decode it, and so find that what is stored is damaged.

    Raises:
        DecodeError, InvariantError: at a look-up or `restore`; the cluster is as it was.
    """

    def __init__(self) -> None:
        self._unread: dict[str, bytearray] = {}  # entries, later ones for earlier ones
        self._states = _Decoded(self._unread)
        # A cluster's state; empty if nothing is known of it.
        self.of: Callable[[str], ClusterState] = self._states.__getitem__
        self.unmeasured: dict[str, None] = {}  # changed since their figures were reported

    def restore(self, key: bytes, value: bytes | None) -> None:
        """Take over one message that rebuilds state."""
        if value is None:
            _named(key)  # Before it is put aside: a tombstone has nothing to be checked by later.
        cluster_id = key[1 : key.find(b"/")].decode()
        state = self._states.get(cluster_id)
        if state is not None:
            _restore(state, key, value)
            return
        unread = self._unread.get(cluster_id)
        if value is None and (unread is None or key.endswith(_FORGOTTEN)):
            self._unread.pop(cluster_id, None)
            return
        if unread is None:
            unread = self._unread[cluster_id] = bytearray()
        unread += pack_entry(key, value)

    def forget_empty(self, names: Iterable[str]) -> None:
        """Keep nothing of those of these clusters that have no SPU, topic or waiting request."""
        for name in names:
            state = self._states.get(name)
            if state is not None and state.is_empty:
                del self._states[name]

    def clear(self) -> None:
        """Be empty."""
        self._states.clear()
        self._unread.clear()
        self.unmeasured.clear()

    def __getitem__(self, cluster_id: str) -> ClusterState:
        if cluster_id not in self:
            raise KeyError(cluster_id)
        return self.of(cluster_id)

    def __contains__(self, cluster_id: object) -> bool:
        return cluster_id in self._states or cluster_id in self._unread

    def __iter__(self) -> Iterator[str]:
        return iter([*self._states, *self._unread])  # Looking one up moves it.

    def __len__(self) -> int:
        return len(self._states) + len(self._unread)


class _Decoded(dict[str, ClusterState]):
    """The states that were looked up; looking up another one decodes it."""

    def __init__(self, unread: dict[str, bytearray]) -> None:
        super().__init__()
        self._unread = unread

    def __missing__(self, cluster_id: str) -> ClusterState:
        state = self[cluster_id] = _decoded(cluster_id, self._unread.get(cluster_id))
        self._unread.pop(cluster_id, None)
        return state


def read_shards(rows: Iterable[tuple[int, str, bytes]]) -> Clusters:
    """The clusters that a checkpoint's state holds.

    Args:
        rows: (shard, key, value) of the state variable, as Spark's `statestore` reader gives them.
    """
    stored: dict[int, dict[str, bytes]] = {}
    for label, key, value in rows:
        stored.setdefault(label, {})[key] = bytes(value)
    clusters = Clusters()
    for label in sorted(stored):
        for name, entry in read_entries(stored[label]).items():
            clusters.restore(name, entry)
    return clusters


def _decoded(cluster_id: str, packed: bytearray | None) -> ClusterState:
    state = ClusterState(cluster_id)
    if packed is not None:
        latest = dict(unpack_entries(bytes(packed)))
        # Maps last: their SPUs are known then, which saves a look at each.
        for key in sorted(latest, key=lambda key: key[:1] == MAP):
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
