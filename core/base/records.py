"""What goes out: decisions, some of them answers to users.

All records of a cluster, replayed, give its state; so do its current maps and `Entry`s.
"""

from __future__ import annotations

from enum import StrEnum

from spu_assigner.core.base.constraints import Constraints, Taint, TaintEffect, has_effect
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.resources import Amounts, Need
from spu_assigner.core.base.structs import FastStrEnum, FrozenStruct


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
    """How the lists that a map is new with were found: by which policy, or of which lists."""

    ROUND_ROBIN = "round_robin"  # `fluvio` without racks
    RACK_WALK = "rack_walk"  # `fluvio` over racks
    SHIFTED = "shifted"  # `kafka` without racks
    RACK_SHIFTED = "rack_shifted"  # `kafka` over racks
    POINTER = "pointer"  # `redpanda`
    LISTS = "lists"  # `manual`
    BALANCED = "balanced"  # `balanced`
    REPAIR = "repair"  # lists that were there, changed
    REBALANCE = "rebalance"  # likewise
    ADOPTED = "adopted"  # lists that were there
    REPLICATION = "replication"  # lists that were there, changed
    DEMOTION = "demotion"  # likewise
    SCORED = "scored"  # `rendezvous` without racks
    RACK_SCORED = "rack_scored"  # `rendezvous` over racks
    STRIPED = "striped"  # `kraft`
    DEMAND = "demand"  # lists as they were, with another demand
    CONSTRAINTS = "constraints"  # likewise other constraints
    CONSTRAINED = "constrained"  # `balanced`, by the topic's rules
    BALANCED_ROUNDS = "balanced_rounds"  # `balanced`, on SPUs alike, in rounds


class OfCluster(FrozenStruct, frozen=True, kw_only=True):
    """What every record and entry has."""

    cluster_id: str


class Move(FrozenStruct, frozen=True, kw_only=True):
    """A change of one replica list of an existing topic."""

    partition: int
    gone: int | None
    """The SPU that holds it no more; None: a short list was filled."""
    taken: int | None
    """The SPU that holds it now; None: the list is short."""


class RecordedRing(FrozenStruct, frozen=True, kw_only=True):
    """The ring on which a step was decided, each part as ranges of SPU ids (`core.state.ring`)."""

    members: str  # as the rule read them: by rack or with capacities, where it reads those
    offline: str = ""  # SPUs that were offline or leaving, and so not in it
    saturated: str = ""  # likewise saturated
    cordoned: str = ""  # likewise cordoned, or tainted against new replicas
    fenced: str = ""  # of `kraft`: offline SPUs that it reads too, by rack as the members


class Reason(FrozenStruct, frozen=True, kw_only=True):
    """Why a map is as it is: what `explain` needs to compute the step again."""

    mode: Mode
    first_partition: int = 0
    """The step placed the partitions from here on; a grow keeps the earlier ones."""
    start_index: int | None = None
    """Where it was placed from; None where there is no index."""
    shift: int | None = None
    """Kafka's, of a request that named its start."""
    is_named: bool = False
    """Whether the request named the start; else the chain did."""
    ring: RecordedRing | None = None
    """The ring before the step; None: no ring was read."""
    filled: str = ""
    """Of a step of a rule: SPUs that it saturated, each with its last replica, as ranges."""
    moves: tuple[Move, ...] = ()
    """Moves of a repair or rebalance, in order of partition."""


class ReplicaMap(OfCluster, frozen=True, kw_only=True):
    """The current replica map of a topic; fields named as the create's are as that asked.

    A list that lost a replica and found no other is shorter than `replication_factor`, or than what
    `wanted_lengths` says of it.
    """

    topic: str
    revision: int
    """From 1, up by one with each change."""
    policy: Policy
    """The rule that placed it, and by which it grows."""
    replicas: ReplicaLists | None
    """A list for each partition, leader first; None: the topic is gone."""
    cores: ReplicaLists | None
    """The core of each replica, for `redpanda` alone."""
    chain_index: int | None
    """The index of this policy's order after the request; None for `manual`."""
    cause: str
    """The id of the event that it follows from."""
    replication_factor: int
    ignore_rack: bool = False
    own_events: tuple[int, ...] = ()
    """Hashes (64 bits) of the events that made and last changed it; none: `cause` made it."""
    reason: Reason | None = None
    """Why the lists are as they are; None: the topic is gone."""
    is_released: bool = False
    """With `replicas` None: the topic is only forgotten, its data stay in Kafka."""
    pinned: bool = False
    wanted_lengths: tuple[int, ...] | None = None
    """How long each list of an adopted topic is to be; None: all as the factor."""
    need: Need | None = None
    """What its replicas need of resources; None: replica slots alone."""
    constraints: Constraints | None = None


class TopicStatus(OfCluster, frozen=True, kw_only=True):
    """The answer to one request."""

    topic: str
    """The topic; "" of a rebalance."""
    status: Status
    """The answer in a word."""
    code: Code | None
    """Why the request is not met; None: it is."""
    message: str | None
    """The same in a sentence, with what to do."""
    replicas: ReplicaLists | None
    """Of VALIDATED, the map that would have been given."""
    cause: str
    moves: int | None = None
    """Of a rebalance, how many replicas move."""


class RingEvent(OfCluster, frozen=True, kw_only=True):
    """A change of the ring, or a membership event that was not followed."""

    spu_id: int
    change: RingChange
    """What happened."""
    code: Code | None
    """Of IGNORED, why."""
    message: str | None
    """Of IGNORED: why; of JOINED and UPDATED: what the join dropped."""
    ring_size: int
    """SPUs in the ring after the whole event that caused it."""
    cause: str
    resource: str | None = None
    """Of SATURATED and RESTORED: what is used up, or left again. None: replica slots."""


class SpuChanged(OfCluster, frozen=True, kw_only=True):
    """All that is known of an SPU, but the counts that the maps give."""

    spu_id: int
    online: bool
    rack: str | None
    cores: int
    capacity: int
    labels: tuple[tuple[str, str], ...]  # pairs of name and value, by name
    registration: int  # its number: the ring of `redpanda` is in this order
    core_weights: tuple[int, ...]  # a weight for each core
    leaving: bool = False  # it is decommissioned and some list still holds it; it is not online
    unreachable: bool = False  # it was offline when it began to leave: nothing can be copied
    cordoned: bool = False  # it takes no new replicas until it is uncordoned, online or not
    demoted: bool = False  # it leads nothing where another can, until it is undemoted
    resources: Amounts = ()  # what it has of each resource, beside replica slots
    taints: tuple[Taint, ...] = ()

    @property
    def is_closed(self) -> bool:
        """Whether it takes no new replicas of topics that tolerate nothing."""
        return self.cordoned or any(
            each.effect is not TaintEffect.NO_LEADERS for each in self.taints
        )

    @property
    def evicts(self) -> bool:
        """Whether replicas of topics that tolerate nothing are to move away."""
        return has_effect(self.taints, TaintEffect.EVICT)

    @property
    def is_barred(self) -> bool:
        """Whether it is to lead nothing of topics that tolerate nothing."""
        return has_effect(self.taints, TaintEffect.NO_LEADERS)


class SpuGone(OfCluster, frozen=True, kw_only=True):
    """A decommissioned SPU holds no replica any more and is forgotten."""

    spu_id: int


class Wait(StrEnum):
    """What waits."""

    CREATE = "create"  # a topic, for enough SPUs
    REPAIR = "repair"  # a living topic with short lists, or with replicas on leaving SPUs


class Waiting(OfCluster, frozen=True, kw_only=True):
    """What waits for the ring to grow or slots to free; one for each topic at most."""

    topic: str
    sequence: int  # the lower, the earlier it is served
    kind: Wait
    cause: str  # the id of the create, or of the leave
    policy: Policy | None = None  # of a create, as the fields below; never `manual`
    partitions: int = 0
    replication_factor: int = 0
    ignore_rack: bool = False
    start_index: int | None = None
    shift: int | None = None
    need: Need | None = None
    constraints: Constraints | None = None


class WaitingSettled(OfCluster, frozen=True, kw_only=True):
    """It waits no more: served or withdrawn."""

    topic: str


class Order(FastStrEnum):
    """An order of the ring; each keeps its own chain index."""

    ID = "id"
    DIAGONAL = "diagonal"  # Fluvio's, over racks
    ALTERNATION = "alternation"  # Kafka's, over racks
    REGISTRATION = "registration"  # Redpanda's
    BALANCED = "balanced"  # by id, with an index of its own


class Chain(FrozenStruct, frozen=True, kw_only=True):
    """Where the next assignment of an order starts: index = cycle * ring size + position of `lead`.

    It names the SPU, not a position, so that a ring may grow or be reordered.
    """

    cycle: int = 0  # how often the order was passed through
    lead: int | None = None  # the SPU; None: no assignment has moved it, or the ring was emptied
    moved: bool = False  # by an assignment; else its index is 0


class ChainsChanged(OfCluster, frozen=True, kw_only=True):
    """Chain indexes after an event; only those that changed."""

    chains: tuple[tuple[Order, Chain], ...]
    registration_next: int


class Retries(FrozenStruct, frozen=True, kw_only=True):
    """Where the next event goes on to try what waits: short lists, then creates, by sequence."""

    kind: Wait
    sequence: int  # of the next that is to be tried
    again: bool  # room was made since: all of it is to be tried once more, behind the last one


class RetriesChanged(OfCluster, frozen=True, kw_only=True):
    """What is left to be tried after an event; None: nothing."""

    retries: Retries | None  # where the next event goes on


class ClusterGone(OfCluster, frozen=True, kw_only=True):
    """No SPU, topic or waiting request is left: all is forgotten, also which events were seen."""


class EventSeen(OfCluster, frozen=True, kw_only=True):
    """An event was applied or refused; a copy of it is not to be applied again."""

    event_hash: int  # 64 bits, unsigned


class ChainEntry(OfCluster, frozen=True, kw_only=True):
    """All chain indexes of a cluster, as `assigner-state` keeps them."""

    chains: tuple[tuple[Order, Chain], ...]  # every order, in the order of `Order`
    registration_next: int  # the number of the next SPU that registers
    seen_count: int  # events ever remembered; the next takes slot seen_count % EVENT_IDS_REMEMBERED
    retries: Retries | None = None  # what is left to be tried of what waits


class SeenEntry(OfCluster, frozen=True, kw_only=True):
    """Sixteen slots of the memory of event ids, as `assigner-state` keeps them."""

    block: int  # holds slots 16 * block … 16 * block + 15
    hashes: tuple[int, ...]  # up to 16, the filled slots; 64 bits, unsigned


class EntryKind(StrEnum):
    """Entries that can be gone; the word is part of their key."""

    SPU = "spu"
    WAITING = "waiting"
    CHAINS = "chains"
    SEEN = "seen"


class EntryGone(OfCluster, frozen=True, kw_only=True):
    """What `assigner-state` said of this is no more: a tombstone."""

    kind: EntryKind
    name: str  # the SPU id, the topic, "all" chains, or the block of remembered ids


Answer = ReplicaMap | TopicStatus | RingEvent
StateChange = SpuChanged | SpuGone | Waiting | WaitingSettled | ChainsChanged | RetriesChanged
Record = Answer | StateChange | EventSeen | ClusterGone
# What `assigner-state` carries.
Entry = SpuChanged | Waiting | ChainEntry | SeenEntry
