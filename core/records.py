"""What goes out: decisions. `ReplicaMap`, `TopicStatus` and `RingEvent` are answers to users.

The others (`SpuChanged`, `ChainsChanged`, `EventSeen`) say what the answers do not, so that
replaying all records of a cluster from the empty state gives its state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spu_assigner.core.errors import Code
from spu_assigner.core.events import Policy
from spu_assigner.core.replicas import ReplicaLists


class Status(StrEnum):
    """The answer to a request."""

    ASSIGNED = "assigned"
    REJECTED = "rejected"
    VALIDATED = "validated"
    DELETED = "deleted"
    WAITING = "waiting"


class RingChange(StrEnum):
    """What happened to an SPU's place in the ring."""

    JOINED = "joined"  # new, or back online
    UPDATED = "updated"
    LEFT = "left"
    SATURATED = "saturated"
    RESTORED = "restored"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMap:
    """The current replica map of a topic; `replicas` None: the topic is deleted."""

    cluster_id: str
    topic: str
    revision: int  # from 1, up by one with each change
    policy: Policy
    replicas: ReplicaLists | None
    cores: ReplicaLists | None  # parallel to replicas, `redpanda` only
    chain_index: int | None  # of this policy's order, after the request; None for `manual`
    cause: str  # event_id


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


class Order(StrEnum):
    """An order of the ring; each keeps its own chain index."""

    ID = "id"
    DIAGONAL = "diagonal"  # Fluvio's, over racks
    ALTERNATION = "alternation"  # Kafka's, over racks
    REGISTRATION = "registration"  # Redpanda's


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Where the next assignment of an order starts: who leads it, in which cycle. index = cycle * N
    + position.

    It names the SPU rather than a position, so a ring that grows or is reordered needs no change of
    it.
    """

    cycle: int = 0
    lead: int | None = (
        None  # None: no assignment has moved it (the index is 0), or the ring was emptied
    )
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainsChanged:
    """Chain indexes after an event; only those that changed."""

    cluster_id: str
    chains: tuple[tuple[Order, Chain], ...]
    registration_next: int


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEntry:
    """Sixteen slots of the memory of event ids, as `assigner-state` keeps them."""

    cluster_id: str
    block: int  # holds slots 16 * block … 16 * block + 15
    hashes: tuple[int, ...]  # up to 16, the filled slots; 64 bits, unsigned


Answer = ReplicaMap | TopicStatus | RingEvent
Record = Answer | SpuChanged | ChainsChanged | EventSeen
Entry = SpuChanged | ChainEntry | SeenEntry  # what `assigner-state` carries
