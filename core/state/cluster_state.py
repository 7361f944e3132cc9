"""The state of one cluster, and `evolve`, its only writer.

Kept are the members (`spus`), what was given (`topics`, the ledger), what waits,
where each order goes on (`chains`), and which events were seen. The ring follows from these.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import assert_never

import numpy as np
from msgspec.structs import replace
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.records import (
    Chain,
    ChainEntry,
    ChainsChanged,
    ClusterGone,
    Entry,
    EntryGone,
    EntryKind,
    EventSeen,
    Order,
    Record,
    ReplicaMap,
    Retries,
    RetriesChanged,
    RingEvent,
    SeenEntry,
    SpuChanged,
    SpuGone,
    TopicStatus,
    Waiting,
    WaitingSettled,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.state.core_weights import weights_after
from spu_assigner.core.state.ledger import Ledger
from spu_assigner.core.state.memory import BLOCKS, Memory, event_hash
from spu_assigner.core.state.ring import START, Ring
from spu_assigner.core.state.takeovers import COUNTS_MAX, Takeovers
from spu_assigner.core.state.topic import Topic, map_of, topic_of


class ClusterState:
    """All that decisions about one cluster depend on; the attributes are the core's.

    Two are equal if they decide alike: if their `parts` are the same.
    """

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.spus: dict[SpuId, SpuChanged] = {}
        self.topics: dict[str, Topic] = {}
        self.waiting: dict[str, Waiting] = {}  # by topic
        self.demoted: set[SpuId] = set()  # or tainted so: lead nothing where another can
        self.leaving: set[SpuId] = set()  # decommissioned, still held by some list
        self.barred: set[SpuId] = set()  # tainted against leading
        self.evicting: set[SpuId] = set()  # tainted so that replicas are to move away
        self.constrained: set[str] = set()  # topics that have rules of their own
        self.apart_from: dict[str, set[str]] = {}  # of a topic those whose rules name it so
        self.rule_tables: dict[Hashable, object] = {}  # of `core.constraints`, until an SPU changes
        self.chains: dict[Order, Chain] = dict.fromkeys(Order, START)
        self.registration_next = 0
        self.retries: Retries | None = None  # what is left to be tried of what waits
        self.memory = Memory()
        self.ledger = Ledger()
        self.online_count = 0
        self.racked_count = 0  # online SPUs that have a rack
        self._dotted: dict[str, str] = {}  # topics with dots, by their names without any
        self._ring: Ring | None = None  # None: membership changed since it was last asked for
        self._takeovers: Takeovers | None = None  # None: not asked for yet, or racks changed
        self._dirty_spus: set[SpuId] = set()
        self._dirty_waiting: set[str] = set()
        self._dirty_blocks: set[int] = set()
        self._waiting_next: int | None = None  # it is looked up
        self._stored_blocks: set[int] = set()  # that `assigner-state` holds, to be taken back

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to decide on: such a cluster is forgotten."""
        return not (self.topics or self.spus or self.waiting)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterState) and self.parts() == other.parts()

    __hash__ = None  # type: ignore[assignment]  # a state changes

    def __repr__(self) -> str:
        return (
            f"<ClusterState {self.cluster_id!r}: {len(self.spus)} SPUs ({self.online_count} "
            f"online), {len(self.topics)} topics, {len(self.waiting)} waiting>"
        )

    @property
    def ring(self) -> Ring:
        """The SPUs that may take new replicas now."""
        ring = self._ring
        if ring is None or self.ledger.ring_may_differ:
            ids = self.ledger.ring_ids()
            self.ledger.ring_may_differ = False
            if ring is None or not np.array_equal(ids, ring.ids):
                ring = self._ring = Ring(ids, self.spus)
        return ring

    def takeovers(self) -> Takeovers:
        """Failover counts per rack and SPU. O(lists) at first and after a change of racks."""
        if self._takeovers is None:
            spus = ((spu_id, spu.rack) for spu_id, spu in self.spus.items())
            maps = (topic.replicas.lists() for topic in self.topics.values())
            self._takeovers = Takeovers(spus, maps)
        return self._takeovers

    def chain_index(self, order: Order) -> int:
        """Where the next assignment of an order starts."""
        return self.ring.index(order, self.chains[order])

    def waiting_next(self) -> int:
        """The sequence number of what is to wait behind all others."""
        if self._waiting_next is None:
            sequences = (waiting.sequence for waiting in self.waiting.values())
            self._waiting_next = 1 + max(sequences, default=-1)
        return self._waiting_next

    def _put_waiting(self, waiting: Waiting) -> None:
        self._waiting_next = max(self.waiting_next(), waiting.sequence + 1)
        self.waiting[waiting.topic] = waiting
        self._enter_name(waiting.topic)

    def _drop_waiting(self, topic: str) -> None:
        gone = self.waiting.pop(topic, None)
        self._drop_name(topic)
        if gone is not None and gone.sequence + 1 == self._waiting_next:
            self._waiting_next = None

    def colliding(self, topic: str) -> str | None:
        """The one that Kafka does not permit beside a topic of this name, as `a.b` beside `a_b`:
        in its metrics dots are underscores. None: there is none."""
        plain = topic.replace(".", "_")
        other = self._dotted.get(plain)
        if other is None and plain != topic and (plain in self.topics or plain in self.waiting):
            return plain
        return None if other == topic else other

    def _enter_name(self, topic: str) -> None:
        if "." in topic:
            self._dotted[topic.replace(".", "_")] = topic

    def _drop_name(self, topic: str) -> None:
        if "." in topic and topic not in self.topics and topic not in self.waiting:
            self._dotted.pop(topic.replace(".", "_"), None)

    def parts(self) -> tuple[ReplicaMap | Entry, ...]:
        """All that makes the state, in a fixed order, maps last: `restore` makes it again of them.

        Of a map all is there that the state keeps: not `cause`, `chain_index` and `reason`.
        """
        blocks = map(self._seen_entry, range(BLOCKS))
        return (
            *(self.spus[spu_id] for spu_id in sorted(self.spus)),
            *sorted(self.waiting.values(), key=lambda waiting: waiting.sequence),
            self._chain_entry(),
            *(block for block in blocks if block.hashes),
            *(map_of(self.cluster_id, name, self.topics[name]) for name in sorted(self.topics)),
        )

    def _chain_entry(self) -> ChainEntry:
        return ChainEntry(
            cluster_id=self.cluster_id,
            chains=tuple((order, self.chains[order]) for order in Order),
            registration_next=self.registration_next,
            seen_count=self.memory.count,
            retries=self.retries,
        )

    def _seen_entry(self, block: int) -> SeenEntry:
        hashes = self.memory.block(block)
        return SeenEntry(cluster_id=self.cluster_id, block=block, hashes=hashes)

    def take_entries(self) -> tuple[Entry | EntryGone, ...]:
        """What `assigner-state` is to say of what changed since the last call, in a fixed order."""
        entries: list[Entry | EntryGone] = [
            self.spus.get(spu_id) or self._gone(EntryKind.SPU, str(spu_id))
            for spu_id in sorted(self._dirty_spus)
        ]
        entries += [
            self.waiting.get(topic) or self._gone(EntryKind.WAITING, topic)
            for topic in sorted(self._dirty_waiting)
        ]
        if self._dirty_blocks:  # Each event is remembered, and the entry holds their number.
            is_gone = self.memory.count == 0
            entries.append(self._gone(EntryKind.CHAINS, "all") if is_gone else self._chain_entry())
        for block in sorted(self._dirty_blocks):
            entry = self._seen_entry(block)
            entries.append(entry if entry.hashes else self._gone(EntryKind.SEEN, str(block)))
            (self._stored_blocks.add if entry.hashes else self._stored_blocks.discard)(block)
        self._dirty_spus, self._dirty_waiting, self._dirty_blocks = set(), set(), set()
        return tuple(entries)

    def _gone(self, kind: EntryKind, name: str) -> EntryGone:
        return EntryGone(cluster_id=self.cluster_id, kind=kind, name=name)

    def restore(self, record: ReplicaMap | Entry) -> None:
        """Take over what was published of the state: current maps and entries, in any order."""
        self._takeovers = None
        match record:
            case ReplicaMap():
                self.forget_topic(record.topic)
                if record.replicas is not None:
                    self.ledger.enter(record.replicas.flat())
                    self._keep_topic(record, record.replicas)
            case SpuChanged():
                self._put_spu(record)
            case Waiting():
                self._put_waiting(record)
            case ChainEntry():
                self.chains.update(record.chains)
                self.registration_next = record.registration_next
                self.memory.count = record.seen_count
                self.retries = record.retries
            case SeenEntry():
                self._stored_blocks.add(record.block)
                self.memory.restore(record.block, record.hashes)
            case _:
                assert_never(record)

    def forget_entry(self, kind: EntryKind, name: str) -> None:
        """Take over a published tombstone: the SPU is forgotten, or nothing waits there."""
        match kind:
            case EntryKind.SPU:
                self._forget_spu(SpuId(int(name)))
            case EntryKind.WAITING:
                self._drop_waiting(name)
            case EntryKind.CHAINS:
                self._reset()
            case EntryKind.SEEN:
                self.memory.restore(int(name), ())
            case _:
                assert_never(kind)

    def _reset(self) -> None:
        """Forget how far each order was; the memory counts from 0 again."""
        self.chains = dict.fromkeys(Order, START)
        self.registration_next, self.retries = 0, None
        self.memory.count = 0
        self._ring = None

    def _put_spu(self, spu: SpuChanged) -> None:
        spu_id = SpuId(spu.spu_id)
        before = self.spus.get(spu_id)
        if before is not None and before.rack != spu.rack:
            self._takeovers = None
        if self._takeovers is not None:
            self._takeovers.enter(spu.spu_id, spu.rack)
            if self._takeovers.size > COUNTS_MAX:
                self._takeovers = None
        for each, sign in ((before, -1), (spu, 1)):
            if each is not None and each.online:
                self.online_count += sign
                self.racked_count += sign * (each.rack is not None)
        self.spus[spu_id] = spu
        for ids, is_in in (
            (self.leaving, spu.leaving),
            (self.demoted, spu.demoted or spu.is_barred),
            (self.barred, spu.is_barred),
            (self.evicting, spu.evicts),
        ):
            (ids.add if is_in else ids.discard)(spu_id)
        self.rule_tables.clear()
        self.ledger.describe(spu)
        self._ring = None

    def _forget_spu(self, spu_id: SpuId) -> None:
        spu = self.spus.get(spu_id)
        if spu is not None:
            gone = replace(spu, online=False, leaving=False, demoted=False, capacity=0)
            self._put_spu(replace(gone, resources=(), taints=()))
            del self.spus[spu_id]
            if self.ledger.count(spu_id) == 0:  # Else it is restored before maps without it.
                self.ledger.forget(spu_id)
        self._takeovers = None

    def _keep_topic(self, record: ReplicaMap, lists: ReplicaLists) -> None:
        own = record.own_events or (event_hash(record.cause),)
        self.topics[record.topic] = topic_of(record, lists, own)
        self._enter_name(record.topic)
        self.ledger.add(lists, record.need)
        if self._takeovers is not None:
            self._takeovers.count(lists)
        if record.constraints is not None:
            self.constrained.add(record.topic)
            for other in record.constraints.apart_from:
                self.apart_from.setdefault(other, set()).add(record.topic)

    def forget_topic(self, name: str) -> None:
        """Take a topic out; it was deleted, or its published tombstone says so."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        self._drop_name(name)
        lists = topic.replicas.lists()
        self.ledger.subtract(lists, topic.need)
        if self._takeovers is not None:
            self._takeovers.count(lists, -1)
        self.constrained.discard(name)
        for other in () if topic.constraints is None else topic.constraints.apart_from:
            self.apart_from[other].discard(name)
            if not self.apart_from[other]:
                del self.apart_from[other]


def evolve(state: ClusterState, record: Record) -> None:
    """Apply one record: all that follows from it was decided already and has its own."""
    match record:
        case ReplicaMap():
            _evolve_map(state, record)
        case EventSeen():
            state._dirty_blocks.add(state.memory.add(record.event_hash))
        case TopicStatus() | RingEvent():
            pass  # It changes nothing: the state that it reports is in other records.
        case ChainsChanged():
            state.chains.update(record.chains)
            state.registration_next = record.registration_next
        case RetriesChanged():
            state.retries = record.retries
        case ClusterGone():
            state._reset()
            state.memory = Memory()
            state._dirty_blocks = set(state._stored_blocks)  # They are to be taken back.
        case SpuChanged():
            state._put_spu(record)
            state._dirty_spus.add(SpuId(record.spu_id))
        case SpuGone():
            state._forget_spu(SpuId(record.spu_id))
            state._dirty_spus.add(SpuId(record.spu_id))
        case Waiting():
            state._put_waiting(record)
            state._dirty_waiting.add(record.topic)
        case WaitingSettled():
            state._drop_waiting(record.topic)
            state._dirty_waiting.add(record.topic)
        case _:
            assert_never(record)


def _evolve_map(state: ClusterState, record: ReplicaMap) -> None:
    gone = state.topics.get(record.topic)
    if gone is not None:
        state.forget_topic(record.topic)
    if record.replicas is not None:
        state._keep_topic(record, record.replicas)
    if record.cores is not None or (gone is not None and gone.cores is not None):
        changed = weights_after(state.spus, gone, record)
        state.spus.update(changed)
        state._dirty_spus.update(changed)
