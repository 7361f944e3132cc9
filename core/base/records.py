"""What goes out: decisions. `ReplicaMap`, `TopicStatus` and `RingEvent` are answers to users.

The others say what the answers do not, so that replaying all records of a cluster from the empty
state gives its state. `GrantedCreate` stands for the records of the most frequent decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from spu_assigner.core.base.constraints import Constraints, Taint, TaintEffect, has_effect
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, TopicCreate
from spu_assigner.core.base.fast_constructor import fast_constructor
from spu_assigner.core.base.fast_str_enum import FastStrEnum
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.resources import Amounts, Need


class Status(FastStrEnum):
    """The answer to a request."""

    ASSIGNED = "assigned"
    REJECTED = "rejected"
    VALIDATED = "validated"
    DELETED = "deleted"
    WAITING = "waiting"
    RELEASED = "released"
    ADOPTED = "adopted"
    VIOLATED = "violated"  # no answer: labels or taints changed, and a topic's lists break a rule


class RingChange(StrEnum):
    """What happened to an SPU's place in the ring."""

    JOINED = "joined"  # new, or back online
    UPDATED = "updated"
    LEFT = "left"
    SATURATED = "saturated"
    RESTORED = "restored"
    IGNORED = "ignored"
    CORDONED = "cordoned"
    UNCORDONED = "uncordoned"
    DEMOTED = "demoted"
    UNDEMOTED = "undemoted"


class Mode(FastStrEnum):
    """How the lists that a map is new with were found."""

    ROUND_ROBIN = "round_robin"  # fluvio without racks
    RACK_WALK = "rack_walk"  # fluvio over racks
    SHIFTED = "shifted"  # kafka without racks
    RACK_SHIFTED = "rack_shifted"  # kafka over racks
    POINTER = "pointer"  # redpanda
    LISTS = "lists"  # manual: as they were given
    BALANCED = "balanced"
    REPAIR = "repair"  # of what a decommission took away
    REBALANCE = "rebalance"
    ADOPTED = "adopted"  # as they were found in Kafka
    REPLICATION = "replication"  # made longer or shorter, to another replication factor
    DEMOTION = "demotion"  # another member leads, because an SPU is demoted
    SCORED = "scored"  # rendezvous without racks
    RACK_SCORED = "rack_scored"  # rendezvous over racks
    STRIPED = "striped"  # kraft
    DEMAND = "demand"  # as they were; what the topic needs has changed
    CONSTRAINTS = "constraints"  # as they were; what it demands of its SPUs has changed
    CONSTRAINED = "constrained"  # balanced over what the topic's constraints permit
    BALANCED_ROUNDS = "balanced_rounds"  # balanced on SPUs alike: each gets one replica a round


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A change of one replica list of an existing topic."""

    partition: int
    gone: int | None  # SPU that holds it no more; None: a short list was filled
    taken: int | None  # SPU that holds it now; None: the list is short


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a map is as it is, in few numbers; `explain` recomputes and names the rest."""

    mode: Mode
    first_partition: int = 0  # the step placed the partitions from here on (a grow keeps earlier)
    start_index: int | None = None  # where it was placed from; None where there is no index
    shift: int | None = None  # Kafka's, of a request that named its start
    is_named: bool = False  # the request named the start; else the chain did
    ring_size: int  # before the step
    # 64 bits of the order that was read, with its racks and weights where they matter
    ring_fingerprint: int
    offline: int = 0  # SPUs that were passed over because they are offline or leaving
    saturated: int = 0  # likewise saturated
    same_rack: int = 0  # times a candidate was passed over for its rack, over all lists of the step
    in_list: int = 0  # likewise because the list had it already
    moves: tuple[Move, ...] = ()  # of a repair or rebalance, in order of partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMap:
    """The current replica map of a topic; `replicas` None: the topic is deleted or released.

    A list that lost a replica and found no other is shorter than `replication_factor`, or than what
    `wanted_lengths` says of it.
    """

    cluster_id: str
    topic: str
    revision: int  # from 1, up by one with each change
    policy: Policy
    replicas: ReplicaLists | None
    cores: ReplicaLists | None  # parallel to replicas, `redpanda` only
    chain_index: int | None  # of this policy's order, after the request; None for `manual`
    cause: str  # event_id
    replication_factor: int  # that was asked for
    ignore_rack: bool = False  # of the request, for when the topic grows
    # Hashes of the event that made it, and of the last grows, new factors and adoptions; none:
    # `cause` made it.
    own_events: tuple[int, ...] = ()
    reason: Reason | None = None  # None: deleted, or written by a release that gave none
    is_released: bool = False  # with `replicas` None: only forgotten, the data stay in Kafka
    pinned: bool = False  # a rebalance leaves it where it is
    # How long each list is to be, of an adopted topic where they differ; None: all as the factor.
    wanted_lengths: tuple[int, ...] | None = None
    need: Need | None = None  # of resources; None: replica slots alone
    constraints: Constraints | None = None  # None: no rules of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """The answer to one request."""

    cluster_id: str
    topic: str
    status: Status
    code: Code | None
    message: str | None
    replicas: ReplicaLists | None  # of VALIDATED: the map that would have been given
    cause: str
    moves: int | None = None  # of a rebalance (whose topic is ""): replicas moved


@dataclass(frozen=True, slots=True, kw_only=True)
class RingEvent:
    """A change of the ring, or a membership event that was not followed."""

    cluster_id: str
    spu_id: int
    change: RingChange
    code: Code | None  # of IGNORED
    message: str | None  # of IGNORED
    ring_size: int  # after the whole event that caused it
    cause: str
    # Of SATURATED and RESTORED: what the SPU has used up, or has left again. It stays in the ring:
    # who needs nothing of it can have a replica there. None: replica slots.
    resource: str | None = None


class Order(FastStrEnum):
    """An order of the ring; each keeps its own chain index."""

    ID = "id"
    DIAGONAL = "diagonal"  # Fluvio's, over racks
    ALTERNATION = "alternation"  # Kafka's, over racks
    REGISTRATION = "registration"  # Redpanda's
    BALANCED = "balanced"  # by id, with an index of its own


class Chain(NamedTuple):
    """Where the next assignment of an order starts: index = cycle * ring size + position of `lead`.

    It names the SPU rather than a position, so a ring that grows or is reordered needs no change of
    it.
    """

    cycle: int = 0
    lead: int | None = None  # None: no assignment has moved it (index 0), or the ring was emptied
    moved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpuChanged:
    """All that is known of an SPU, but the counts that the maps give."""

    cluster_id: str
    spu_id: int
    online: bool
    rack: str | None
    cores: int
    capacity: int
    labels: tuple[tuple[str, str], ...]  # by name
    registration: int  # the ring of `redpanda` is in this order
    core_weights: tuple[int, ...]  # one for each core
    leaving: bool = False  # decommissioned, and some list still holds it; it is not online
    unreachable: bool = False  # offline while it leaves: nothing can be copied from it
    cordoned: bool = False  # it takes no new replicas until it is uncordoned, online or not
    demoted: bool = False  # it leads nothing where another can, until it is undemoted
    resources: Amounts = ()  # what it has of each, beside replica slots
    taints: tuple[Taint, ...] = ()

    @property
    def is_closed(self) -> bool:
        """Whether it takes no new replicas of topics that tolerate nothing: it is not in the
        ring."""
        return self.cordoned or any(
            taint.effect is not TaintEffect.NO_LEADERS for taint in self.taints
        )

    @property
    def evicts(self) -> bool:
        """Whether replicas of topics that tolerate nothing are to move away."""
        return has_effect(self.taints, TaintEffect.EVICT)

    @property
    def is_barred(self) -> bool:
        """Whether it is to lead nothing of topics that tolerate nothing."""
        return has_effect(self.taints, TaintEffect.NO_LEADERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpuGone:
    """A decommissioned SPU holds no replica any more and is forgotten."""

    cluster_id: str
    spu_id: int


class Wait(StrEnum):
    """What waits."""

    CREATE = "create"  # a topic for SPUs enough
    REPAIR = "repair"  # a living topic with short lists, or with replicas on leaving SPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What waits for the ring to grow or slots to free; one for each topic at most."""

    cluster_id: str
    topic: str
    sequence: int  # the lower, the earlier it is served
    kind: Wait
    cause: str  # event_id of the create, or of the leave
    policy: Policy | None = None  # of a create, as its other fields; never `manual`
    partitions: int = 0
    replication_factor: int = 0
    ignore_rack: bool = False
    start_index: int | None = None
    shift: int | None = None
    need: Need | None = None
    constraints: Constraints | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSettled:
    """It waits no more: served or withdrawn."""

    cluster_id: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainsChanged:
    """Chain indexes after an event; only those that changed."""

    cluster_id: str
    chains: tuple[tuple[Order, Chain], ...]
    registration_next: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Where the next event goes on to try what waits: short lists, then creates, by sequence."""

    kind: Wait
    sequence: int
    again: bool  # room was made since: all of it is to be tried once more, behind the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class RetriesChanged:
    """What is left to be tried after an event; None: nothing."""

    cluster_id: str
    retries: Retries | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterGone:
    """No SPU, topic or waiting request is left: all is forgotten, also which events were seen."""

    cluster_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSeen:
    """An event was applied or refused; a copy of it is not to be applied again."""

    cluster_id: str
    event_hash: int  # 64 bits, unsigned


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEntry:
    """All chain indexes of a cluster, as `assigner-state` keeps them."""

    cluster_id: str
    chains: tuple[tuple[Order, Chain], ...]  # every order, in the order of `Order`
    registration_next: int
    seen_count: int  # events ever remembered; the next takes slot seen_count % EVENT_IDS_REMEMBERED
    retries: Retries | None = None  # what is left to be tried of what waits


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEntry:
    """Sixteen slots of the memory of event ids, as `assigner-state` keeps them."""

    cluster_id: str
    block: int  # holds slots 16 * block … 16 * block + 15
    hashes: tuple[int, ...]  # up to 16, the filled slots; 64 bits, unsigned


class EntryKind(StrEnum):
    """Entries that can be gone; the word is part of their key."""

    SPU = "spu"
    WAITING = "waiting"
    CHAINS = "chains"
    SEEN = "seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryGone:
    """What `assigner-state` said of this is no more: a tombstone."""

    cluster_id: str
    kind: EntryKind
    name: str  # the SPU id, the topic, "all" chains, or the block of remembered ids


class RingFacts(Protocol):
    """What the requests of one kind on one ring have in common; the codec uses `cache`."""

    mode: Mode
    order: Order
    ring_size: int
    ring_fingerprint: int
    offline: int  # SPUs of the cluster that are not in the ring because they are offline,
    saturated: int  # or saturated
    cache: bytes | None


@dataclass(slots=True, eq=False)
class GrantedCreate:
    """A create that is granted and saturates no SPU: its map, status, chain and event id in one.

    Nearly all records of a job are of this class, so state and codec read it as it is; `parts` has
    the records that it stands for. Not frozen, since it is made and read in half the time so; who
    gets one only reads it.
    """

    event: TopicCreate
    policy: Policy  # the event's, or the default
    facts: RingFacts
    lists: ReplicaLists
    passed: tuple[int, int]  # SPUs passed over: for their rack, because the list had them
    start: int  # the chain index before the request
    after: int  # and after it
    chain: Chain  # which stands there
    event_hash: int  # 64 bits, unsigned
    registration_next: int  # of the cluster, unchanged

    def parts(self) -> tuple[ReplicaMap, TopicStatus, ChainsChanged, EventSeen]:
        """The records that it stands for, in the order in which they apply."""
        event, facts = self.event, self.facts
        same_rack, in_list = self.passed
        cluster_id, topic, cause = event.cluster_id, event.topic, event.event_id
        return (
            new_replica_map(
                cluster_id=cluster_id,
                topic=topic,
                revision=1,
                policy=self.policy,
                replicas=self.lists,
                cores=None,
                chain_index=self.after,
                cause=cause,
                replication_factor=event.replication_factor,
                ignore_rack=event.ignore_rack,
                reason=new_reason(
                    mode=facts.mode,
                    start_index=self.start,
                    ring_size=facts.ring_size,
                    ring_fingerprint=facts.ring_fingerprint,
                    offline=facts.offline,
                    saturated=facts.saturated,
                    same_rack=same_rack,
                    in_list=in_list,
                ),
            ),
            new_topic_status(
                cluster_id=cluster_id,
                topic=topic,
                status=Status.ASSIGNED,
                code=None,
                message=None,
                replicas=None,
                cause=cause,
            ),
            new_chains_changed(
                cluster_id=cluster_id,
                chains=((facts.order, self.chain),),
                registration_next=self.registration_next,
            ),
            new_event_seen(cluster_id=cluster_id, event_hash=self.event_hash),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GrantedCreate) and self.parts() == other.parts()

    def __hash__(self) -> int:
        return hash(self.parts())


Answer = ReplicaMap | TopicStatus | RingEvent
StateChange = SpuChanged | SpuGone | Waiting | WaitingSettled | ChainsChanged | RetriesChanged
PlainRecord = Answer | StateChange | EventSeen | ClusterGone
Record = PlainRecord | GrantedCreate
Entry = SpuChanged | Waiting | ChainEntry | SeenEntry  # what `assigner-state` carries


def plain_records(records: Iterable[Record]) -> tuple[PlainRecord, ...]:
    """The records with each granted create as its parts."""
    return tuple(
        part
        for record in records
        for part in (record.parts() if isinstance(record, GrantedCreate) else (record,))
    )


new_reason = fast_constructor(Reason)
new_replica_map = fast_constructor(ReplicaMap)
new_topic_status = fast_constructor(TopicStatus)
new_chains_changed = fast_constructor(ChainsChanged)
new_event_seen = fast_constructor(EventSeen)
