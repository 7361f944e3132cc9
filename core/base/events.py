"""What comes in: frozen, keyword-only, well-formed once they exist.

Each field holds what its type says (`typed_fields` has the rule), and an answer can be addressed:
legal cluster and topic names, a usable event id. Anything else raises `InvalidEventError`. Numbers
out of range are kept as they came: `decide` refuses them, so that the requester gets an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final, NewType

from spu_assigner.core.base.constraints import Constraints, Taint
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.limits import EVENT_ID_LENGTH_MAX, is_legal_name, is_text, name_fault
from spu_assigner.core.base.structs import FastStrEnum
from spu_assigner.core.base.typed_fields import UNICODE, TypedFields, taker

SpuId = NewType("SpuId", int)

LEGAL_NAME = "1 to 249 of [a-zA-Z0-9._-], not '.' or '..'"


class Policy(FastStrEnum):
    """The rule that turns ring, chain index and request into a replica map."""

    FLUVIO = "fluvio"
    """Round robin with growing gaps; over racks, a walk of their diagonal."""
    KAFKA = "kafka"
    """Kafka's default assignment."""
    REDPANDA = "redpanda"
    """A pointer over SPUs in order of registration, and the least used core."""
    MANUAL = "manual"
    """The lists of the request."""
    BALANCED = "balanced"
    """Racks first, then even shares of capacity and leaders over all topics; the default."""
    RENDEZVOUS = "rendezvous"
    """The highest scores of a hash, by capacity."""
    KRAFT = "kraft"
    """The striped placer of Kafka's KRaft controller."""


DEFAULT_POLICY: Final = Policy.BALANCED  # of creates that name none, unless a setting names another


class LeaveMode(StrEnum):
    """What becomes of the replicas of an SPU that leaves."""

    OFFLINE = "offline"
    """It keeps them and takes no new ones."""
    DECOMMISSION = "decommission"
    """They must go."""


class OnShortage(StrEnum):
    """What becomes of a create that finds too few SPUs."""

    REJECT = "reject"
    """It is rejected."""
    WAIT = "wait"
    """It waits until there is room, or the topic is deleted."""


# A policy that a caller names by itself or by its word; `InvalidEventError`: there is none.
policy_of: Final[Callable[[Policy | str], Policy]] = partial(taker(Policy), "default_policy")


def check_name(field: str, name: str) -> None:
    """Raise `InvalidEventError` for a name that Kafka permits no topic."""
    if not is_legal_name(name):
        expected = f"{LEGAL_NAME}{name_fault(name)}"
        raise InvalidEventError(field=field, value=name, expected=expected)


class BaseEvent(TypedFields, frozen=True, kw_only=True):
    """What every event has."""

    event_id: str
    """Unique, chosen by the producer; an event whose id is remembered is not answered again."""
    cluster_id: str
    """The cluster that the event is for, named as Kafka names topics."""
    occurred_at: int | None = None
    """The producer's clock in ms; no decision depends on it."""

    def __post_init__(self) -> None:
        """Check the fields, and that an answer can be addressed; raises `InvalidEventError`."""
        TypedFields.__post_init__(self)
        check_name("cluster_id", self.cluster_id)
        event_id = self.event_id
        if not 1 <= len(event_id) <= EVENT_ID_LENGTH_MAX:
            expected = f"1 to {EVENT_ID_LENGTH_MAX} characters"
            raise InvalidEventError(field="event_id", value=event_id, expected=expected)
        if not is_text(event_id):  # It is remembered by its bytes.
            raise InvalidEventError(field="event_id", value=event_id, expected=UNICODE)


class SpuJoined(BaseEvent, frozen=True, kw_only=True):
    """An SPU is there, new, changed, or back; what the event does not name takes its default."""

    spu_id: int
    """0 or more."""
    rack: str | None = None
    """Lists are spread over racks; None: it has none."""
    cores: int = 1
    """Of its processor; `redpanda` places on cores."""
    capacity: int | None = None
    """Replica slots; None: `cores * 7000 - 2`."""
    labels: Mapping[str, str] | None = None
    """What the selectors of `Constraints` read, by name."""
    resources: Mapping[str, int] | None = None
    """What it has of each resource, beside replica slots."""
    taints: tuple[Taint, ...] = ()
    """What it says against replicas."""


class BaseSpuEvent(BaseEvent, frozen=True, kw_only=True):
    """What every event about one SPU that is known has."""

    spu_id: int
    """Of a known SPU."""


class SpuLeft(BaseSpuEvent, frozen=True, kw_only=True):
    """An SPU is gone, for a while or for good."""

    mode: LeaveMode = LeaveMode.OFFLINE
    """What becomes of its replicas."""


class SpuCordon(BaseSpuEvent, frozen=True, kw_only=True):
    """An SPU is to take no new replicas; it keeps what it has, until `SpuUncordon`."""


class SpuUncordon(BaseSpuEvent, frozen=True, kw_only=True):
    """A cordoned SPU may take new replicas again."""


class SpuDemote(BaseSpuEvent, frozen=True, kw_only=True):
    """An SPU is to lead nothing where another can, until `SpuUndemote`."""


class SpuUndemote(BaseSpuEvent, frozen=True, kw_only=True):
    """A demoted SPU may lead again; nothing comes back to it by that alone."""


class BaseTopicEvent(BaseEvent, frozen=True, kw_only=True):
    """What every event about one topic has."""

    topic: str
    """Its name, by Kafka's rule."""

    def __post_init__(self) -> None:
        """Check the topic too."""
        BaseEvent.__post_init__(self)
        check_name("topic", self.topic)


class TopicCreate(BaseTopicEvent, frozen=True, kw_only=True):
    """A request for a topic."""

    partitions: int = 1
    """1 to 100,000; other numbers are answered with a rejection."""
    replication_factor: int = 1
    """1 to 32, likewise."""
    policy: Policy | None = None
    """The rule that places it; None: the job's default, or `manual` if it names `replicas`."""
    ignore_rack: bool = False
    """Place as if no SPU had a rack; for `fluvio` and `kafka`."""
    start_index: int | None = None
    """Where the first partition is placed, for `fluvio` and `kafka`; None: the chain goes on."""
    shift: int | None = None
    """Kafka's shift of followers, with `start_index` alone; None: as `start_index`."""
    replicas: Any | None = None
    """Manual lists as they came: a list of `{"id": int, "replicas": [int, …]}`, or
    `{"partitions": [such]}`. `partitions` and `replication_factor` are then not read."""
    validate_only: bool = False
    """Answer as if the topic were created, and change nothing."""
    on_shortage: OnShortage = OnShortage.REJECT
    """What becomes of it if there is no room."""
    demand: Mapping[str, int] | None = None
    """What each replica of a partition needs of resources."""
    leader_demand: Mapping[str, int] | None = None
    """What the leader needs, where that is another amount."""
    constraints: Constraints | None = None
    """The topic's rules on its SPUs; for `balanced`."""


class TopicDelete(BaseTopicEvent, frozen=True, kw_only=True):
    """A topic is no longer wanted."""


class TopicRelease(BaseTopicEvent, frozen=True, kw_only=True):
    """Forget a topic; its data stay in Kafka."""


class TopicAdopted(BaseTopicEvent, frozen=True, kw_only=True):
    """A topic is in Kafka already, as it is; nothing moves because of it.

    Each list keeps the length that it has. The event describes the topic whole: a known topic takes
    its lists and `pinned`, and keeps its policy and its demand if the event names none.
    """

    replicas: tuple[tuple[int, ...], ...]
    """SPU ids of each partition, leader first; any lengths."""
    policy: Policy | None = None
    """The rule that it grows by; None: the job's default."""
    pinned: bool = False
    """A rebalance leaves it where it is."""
    demand: Mapping[str, int] | None = None
    """As in `TopicCreate`; its `leader_demand` stays."""


class TopicGrow(BaseTopicEvent, frozen=True, kw_only=True):
    """A topic is to have more partitions."""

    partitions: int
    """The new total."""


class TopicReplication(BaseTopicEvent, frozen=True, kw_only=True):
    """Each list of a topic is to have so many replicas, more or fewer than it has."""

    replication_factor: int
    """1 to 32; other numbers are answered with a rejection."""


class TopicDemand(BaseTopicEvent, frozen=True, kw_only=True):
    """What the replicas of a living topic need, as measured; no list changes because of it."""

    demand: Mapping[str, int]
    """As in `TopicCreate`, in place of what was known."""
    leader_demand: Mapping[str, int] | None = None
    """What the leader needs, where that is another amount."""


class TopicConstraints(BaseTopicEvent, frozen=True, kw_only=True):
    """What a living topic demands of its SPUs from now on; no list changes because of it."""

    constraints: Constraints
    """In place of those that it had."""


class ClusterRebalance(BaseEvent, frozen=True, kw_only=True):
    """A cluster is to be evened out."""

    max_moves: int
    """Replicas that may be moved; 0: leaders alone are evened out."""
    max_bytes: int | None = None
    """Bytes that may be moved, as far as topics name a demand for `disk_bytes`; None: no limit."""
    band_percent: int | None = None
    """How far a dominant share may stay above the fair one; None: 5."""
    band: int | None = None
    """How far an SPU may stay from its fair share of replicas, 0 or 1; None: 1."""


# What `spu-events` carries.
SpuEvent = SpuJoined | SpuLeft | SpuCordon | SpuUncordon | SpuDemote | SpuUndemote
Event = (
    SpuEvent
    | TopicCreate
    | TopicDelete
    | TopicRelease
    | TopicAdopted
    | TopicGrow
    | TopicReplication
    | TopicDemand
    | TopicConstraints
    | ClusterRebalance
)
