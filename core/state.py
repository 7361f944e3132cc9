"""The state of one cluster, and `evolve`, its only writer.

What is kept: who is there (`spus`), what was given (`topics`, with the counts in the ledger and the
core weights), where each order goes on (`chains`), and which events were seen. Who is in the ring
follows from these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

import numpy as np
from spu_assigner.core.errors import InvariantError
from spu_assigner.core.events import Policy, SpuId
from spu_assigner.core.ledger import Ledger
from spu_assigner.core.limits import EVENT_IDS_REMEMBERED, REDPANDA_CORE0_WEIGHT
from spu_assigner.core.records import (
    Chain,
    ChainEntry,
    ChainsChanged,
    Entry,
    EventSeen,
    Order,
    Record,
    ReplicaMap,
    RingEvent,
    SeenEntry,
    SpuChanged,
    TopicStatus,
)
from spu_assigner.core.replicas import IdMatrix, ReplicaLists, tally
from spu_assigner.core.ring import START, Ring

SEEN_BLOCK: Final = 16  # slots of the memory that are published together
_WIDTHS: Final = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.int32))


def event_hash(event_id: str) -> int:
    """64 bits that stand for an event id in memory."""
    return int.from_bytes(hashlib.blake2b(event_id.encode(), digest_size=8).digest())


@dataclass(frozen=True, slots=True)
class PackedLists:
    """A matrix in the narrowest integers that hold it: a million topics are kept in memory."""

    data: bytes
    width: int  # bytes of one integer
    replicas: int  # columns

    @classmethod
    def of(cls, lists: ReplicaLists) -> PackedLists:
        """Pack; from a table the bytes are sliced."""
        replicas = lists.matrix.shape[1]
        if lists.table is None:
            data, width = _narrowed(lists.matrix)
            return cls(data, width, replicas)
        packed = lists.table.cache.get("packed")
        if packed is None:
            packed = lists.table.cache["packed"] = _narrowed(lists.table.rows)
        row_size = packed[1] * replicas
        return cls(
            packed[0][lists.start * row_size : (lists.start + len(lists)) * row_size],
            packed[1],
            replicas,
        )

    def matrix(self) -> IdMatrix:
        """The integers again, shape (partitions, replicas)."""
        dtype = next(dtype for dtype in _WIDTHS if dtype.itemsize == self.width)
        return np.frombuffer(self.data, dtype=dtype).astype(np.int32).reshape(-1, self.replicas)


def _narrowed(matrix: IdMatrix) -> tuple[bytes, int]:
    largest = int(matrix.max(initial=0))
    dtype = next(dtype for dtype in _WIDTHS if largest <= np.iinfo(dtype).max)
    return matrix.astype(dtype).tobytes(), dtype.itemsize


@dataclass(frozen=True, slots=True)
class Topic:
    """A living topic."""

    policy: Policy
    revision: int
    cause_hash: int  # of the event that gave this map
    replicas: PackedLists
    cores: PackedLists | None


class Memory:
    """The last EVENT_IDS_REMEMBERED event hashes of a cluster, in slots used in turn."""

    __slots__ = ("_known", "_slots", "count")

    def __init__(self) -> None:
        self._slots: list[int | None] = [None] * EVENT_IDS_REMEMBERED
        self._known: set[int] = set()
        self.count = 0  # ever remembered

    def __contains__(self, hashed: int) -> bool:
        return hashed in self._known

    def add(self, hashed: int) -> int:
        """Remember, and forget what was in the slot.

        Returns the number of the block that changed.
        """
        slot = self.count % EVENT_IDS_REMEMBERED
        self._put(slot, hashed)
        self.count += 1
        return slot // SEEN_BLOCK

    def block(self, block: int) -> tuple[int, ...]:
        """What is in the slots of a block, in order."""
        slots = self._slots[block * SEEN_BLOCK : (block + 1) * SEEN_BLOCK]
        return tuple(hashed for hashed in slots if hashed is not None)

    def restore(self, block: int, hashes: tuple[int, ...]) -> None:
        """Put a block back."""
        for offset, hashed in enumerate(hashes):
            self._put(block * SEEN_BLOCK + offset, hashed)

    def _put(self, slot: int, hashed: int) -> None:
        forgotten = self._slots[slot]
        if forgotten is not None:
            self._known.discard(forgotten)
        self._slots[slot] = hashed
        self._known.add(hashed)


class ClusterState:
    """All that decisions about one cluster depend on."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.spus: dict[SpuId, SpuChanged] = {}
        self.topics: dict[str, Topic] = {}
        self.chains: dict[Order, Chain] = dict.fromkeys(Order, START)
        self.registration_next = 0
        self.memory = Memory()
        self.ledger = Ledger()
        self.core_weights: dict[SpuId, list[int]] = {}
        self.online_count = 0
        self.racked_count = 0  # online SPUs that have a rack
        self._ring: Ring | None = None  # None: membership changed since it was last asked for
        self._counts_changed = False  # then it may have changed
        self._dirty_spus: set[SpuId] = set()
        self._dirty_blocks: set[int] = set()
        self._dirty_chains = False

    @property
    def ring(self) -> Ring:
        """The SPUs that may take new replicas now."""
        if self._ring is None:
            self._ring = Ring(self.ledger.ring_ids(), self.spus)
        elif self._counts_changed:
            ids = self.ledger.ring_ids()
            if not np.array_equal(ids, self._ring.ids):
                self._ring = Ring(ids, self.spus)
        self._counts_changed = False
        return self._ring

    def chain_index(self, order: Order) -> int:
        """Where the next assignment of an order starts."""
        return self.ring.index(order, self.chains[order])

    def take_entries(self) -> tuple[Entry, ...]:
        """What `assigner-state` is to say of what changed since the last call, in a fixed order."""
        entries: list[Entry] = [self._described(spu_id) for spu_id in sorted(self._dirty_spus)]
        if self._dirty_chains:
            entries.append(
                ChainEntry(
                    cluster_id=self.cluster_id,
                    chains=tuple((order, self.chains[order]) for order in Order),
                    registration_next=self.registration_next,
                    seen_count=self.memory.count,
                )
            )
        entries += [
            SeenEntry(cluster_id=self.cluster_id, block=block, hashes=self.memory.block(block))
            for block in sorted(self._dirty_blocks)
        ]
        self._dirty_spus, self._dirty_blocks, self._dirty_chains = set(), set(), False
        return tuple(entries)

    def _described(self, spu_id: SpuId) -> SpuChanged:
        spu = self.spus[spu_id]
        return SpuChanged(
            cluster_id=spu.cluster_id,
            spu_id=spu_id,
            online=spu.online,
            rack=spu.rack,
            cores=spu.cores,
            capacity=spu.capacity,
            labels=spu.labels,
            registration=spu.registration,
            core_weights=tuple(self.core_weights[spu_id]),
        )

    def restore(self, record: ReplicaMap | Entry) -> None:
        """Take over what was published of the state: current maps and entries, in any order."""
        match record:
            case ReplicaMap():
                self._drop_topic(record.topic)
                if record.replicas is not None:
                    self._describe_unknown(record.replicas.matrix)
                    self._keep_topic(record)
            case SpuChanged():
                self._put_spu(record)
            case ChainEntry():
                self.chains.update(record.chains)
                self.registration_next = record.registration_next
                self.memory.count = record.seen_count
            case SeenEntry():
                self.memory.restore(record.block, record.hashes)
            case _:
                assert_never(record)

    def forget_topic(self, topic: str) -> None:
        """Take over a published tombstone: the topic is gone."""
        self._drop_topic(topic)

    def _describe_unknown(self, matrix: IdMatrix) -> None:
        """Room in the ledger for SPUs whose description is still to come."""
        if not self.ledger.knows(matrix):
            for spu_id in np.unique(matrix).tolist():
                if spu_id not in self.spus:
                    self.ledger.describe(spu_id=spu_id, capacity=0, online=False)

    def _put_spu(self, spu: SpuChanged) -> None:
        before = self.spus.get(SpuId(spu.spu_id))
        if before is not None and before.online:
            self.online_count -= 1
            self.racked_count -= before.rack is not None
        if spu.online:
            self.online_count += 1
            self.racked_count += spu.rack is not None
        self.spus[SpuId(spu.spu_id)] = spu
        self.core_weights[SpuId(spu.spu_id)] = list(spu.core_weights)
        self.ledger.describe(spu_id=spu.spu_id, capacity=spu.capacity, online=spu.online)
        self._ring = None

    def _keep_topic(self, record: ReplicaMap) -> None:
        if record.replicas is None:
            raise InvariantError(f"map of {record.topic!r} has no replicas to keep")
        self.topics[record.topic] = Topic(
            record.policy,
            record.revision,
            event_hash(record.cause),
            PackedLists.of(record.replicas),
            None if record.cores is None else PackedLists.of(record.cores),
        )
        self._counts_changed |= self.ledger.add(record.replicas.matrix)

    def _drop_topic(self, name: str) -> Topic | None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.ledger.subtract(topic.replicas.matrix())
            self._counts_changed = True
        return topic


def evolve(state: ClusterState, record: Record) -> None:
    """Apply one record.

    Everything that follows from it was decided already and has its own record.
    """
    match record:
        case ReplicaMap():
            gone = state._drop_topic(record.topic)
            if gone is not None and gone.cores is not None:
                for spu_id, weights in weights_without(state.core_weights, gone).items():
                    state.core_weights[spu_id] = weights
                    state._dirty_spus.add(spu_id)
            if record.replicas is not None:
                state._keep_topic(record)
                if record.cores is not None:
                    for spu_id, core, count in core_counts(
                        record.replicas.matrix, record.cores.matrix
                    ):
                        state.core_weights[spu_id][core] += count
                        state._dirty_spus.add(spu_id)
        case SpuChanged():
            state._put_spu(record)
            state._dirty_spus.add(SpuId(record.spu_id))
        case ChainsChanged():
            state.chains.update(record.chains)
            state.registration_next = record.registration_next
            state._dirty_chains = True
        case EventSeen():
            state._dirty_blocks.add(state.memory.add(record.event_hash))
            state._dirty_chains = True  # its entry holds the count
        case TopicStatus() | RingEvent():
            pass  # answers; the state they tell of is in other records
        case _:
            assert_never(record)


def core_counts(replicas: IdMatrix, cores: IdMatrix) -> list[tuple[SpuId, int, int]]:
    """How many replicas of a map each core holds: (SPU, core, count), in ascending order."""
    width = int(cores.max(initial=0)) + 1
    keys, counts = tally(replicas.astype(np.int64) * width + cores)
    return [
        (SpuId(key // width), key % width, count) for key, count in zip(keys, counts, strict=True)
    ]


def weights_without(weights: Mapping[SpuId, list[int]], topic: Topic) -> dict[SpuId, list[int]]:
    """The core weights of the SPUs that hold a `redpanda` topic, after it is gone.

    A replica on a core that was taken away is taken off the core with the most weight above its
    base.
    """
    changed: dict[SpuId, list[int]] = {}
    if topic.cores is None:
        return changed
    for spu_id, core, count in core_counts(topic.replicas.matrix(), topic.cores.matrix()):
        after = changed.setdefault(spu_id, list(weights[spu_id]))
        if core < len(after) and after[core] - count >= _base_weight(core):
            after[core] -= count
            continue
        for _ in range(count):
            above = [weight - _base_weight(number) for number, weight in enumerate(after)]
            after[above.index(max(above))] -= 1
    return changed


def _base_weight(core: int) -> int:
    return REDPANDA_CORE0_WEIGHT if core == 0 else 0
