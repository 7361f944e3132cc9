"""What comes in: frozen, keyword-only, well-formed once they exist.

Well-formed means that an answer can be addressed: legal cluster and topic names, a usable event id.
Numbers out of range are kept as they came: `decide` refuses them, so that the asker gets an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NewType

from spu_assigner.core.base.constraints import Constraints, Taint
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.fast_str_enum import FastStrEnum
from spu_assigner.core.base.limits import (
    EVENT_ID_LENGTH_MAX,
    is_text,
    match_legal_name,
    name_fault,
)

SpuId = NewType("SpuId", int)

LEGAL_NAME = "1 to 249 of [a-zA-Z0-9._-], not '.' or '..'"

_KNOWN_CLUSTERS_MAX: Final = 4_096
_KNOWN_CLUSTERS: Final[set[str]] = set()  # legal names: each event has one, and they are few


def _check_cluster(cluster_id: str) -> None:
    if not match_legal_name(cluster_id):
        expected = f"{LEGAL_NAME}{name_fault(cluster_id)}"
        raise InvalidEventError(field="cluster_id", value=cluster_id, expected=expected)
    if len(_KNOWN_CLUSTERS) == _KNOWN_CLUSTERS_MAX:
        _KNOWN_CLUSTERS.clear()
    _KNOWN_CLUSTERS.add(cluster_id)


class Policy(FastStrEnum):
    """The rule that turns ring, chain index and request into a replica map."""

    FLUVIO = "fluvio"
    KAFKA = "kafka"
    REDPANDA = "redpanda"
    MANUAL = "manual"
    BALANCED = "balanced"
    RENDEZVOUS = "rendezvous"
    KRAFT = "kraft"


DEFAULT_POLICY: Final = Policy.BALANCED  # of creates that name none, where nobody says otherwise


class LeaveMode(StrEnum):
    """What becomes of the replicas of an SPU that leaves."""

    OFFLINE = "offline"  # it keeps them and takes no new ones
    DECOMMISSION = "decommission"  # they must go


class OnShortage(StrEnum):
    """What becomes of a create that finds too few SPUs."""

    REJECT = "reject"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseEvent:
    """What every event has.

    `occurred_at` is the producer's clock in ms; no decision depends on it.
    """

    event_id: str
    cluster_id: str
    occurred_at: int | None = None

    def __post_init__(self) -> None:
        if self.cluster_id not in _KNOWN_CLUSTERS:
            _check_cluster(self.cluster_id)
        if not 1 <= len(self.event_id) <= EVENT_ID_LENGTH_MAX:
            raise InvalidEventError(
                field="event_id",
                value=self.event_id,
                expected=f"1 to {EVENT_ID_LENGTH_MAX} characters",
            )
        if not (
            self.event_id.isascii() or is_text(self.event_id)
        ):  # It is remembered by its bytes.
            raise InvalidEventError(
                field="event_id",
                value=self.event_id,
                expected="a text in Unicode; half a surrogate pair is none",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpuJoined(BaseEvent):
    """An SPU is there: new, changed, or back.

    It describes the SPU whole: what it does not name takes its default.
    """

    spu_id: int
    rack: str | None = None
    cores: int = 1
    capacity: int | None = None  # replica slots; None: cores * 7000 - 2
    labels: Mapping[str, str] | None = None
    resources: Mapping[str, int] | None = None  # what it has of each, beside replica slots
    taints: tuple[Taint, ...] = ()  # what it says against replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class SpuLeft(BaseEvent):
    """An SPU is gone, for a while or for good."""

    spu_id: int
    mode: LeaveMode = LeaveMode.OFFLINE


@dataclass(frozen=True, slots=True, kw_only=True)
class SpuCordon(BaseEvent):
    """An SPU is to take no new replicas; it keeps what it has, until `SpuUncordon`."""

    spu_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpuUncordon(BaseEvent):
    """A cordoned SPU may take new replicas again."""

    spu_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpuDemote(BaseEvent):
    """An SPU is to lead nothing where another can, until `SpuUndemote`."""

    spu_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpuUndemote(BaseEvent):
    """A demoted SPU may lead again; nothing comes back to it by that alone."""

    spu_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseTopicEvent(BaseEvent):
    """What every event about one topic has."""

    topic: str

    def __post_init__(self) -> None:
        BaseEvent.__post_init__(self)
        if not match_legal_name(self.topic):
            expected = f"{LEGAL_NAME}{name_fault(self.topic)}"
            raise InvalidEventError(field="topic", value=self.topic, expected=expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreate(BaseTopicEvent):
    """A topic is asked for.

    `replicas` holds manual lists as they came: a list of `{"id": int, "replicas": [int, …]}`, or
    `{"partitions": [such]}`. With them and no policy named, the policy is `manual`; `partitions`
    and `replication_factor` are then not read.
    """

    partitions: int = 1  # 1 … PARTITIONS_MAX, checked by decide
    replication_factor: int = 1  # 1 … REPLICATION_FACTOR_MAX, likewise
    policy: Policy | None = None  # None: the job's default
    ignore_rack: bool = False
    start_index: int | None = None
    shift: int | None = None
    replicas: Any | None = None
    validate_only: bool = False
    on_shortage: OnShortage = OnShortage.REJECT
    demand: Mapping[str, int] | None = None  # of resources, for each replica of a partition
    leader_demand: Mapping[str, int] | None = None  # for the leader, where it needs another amount
    constraints: Constraints | None = None  # what it demands of its SPUs; for `balanced`


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDelete(BaseTopicEvent):
    """A topic is no longer wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRelease(BaseTopicEvent):
    """A topic is to be forgotten; its data stay in Kafka, and nobody here deletes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAdopted(BaseTopicEvent):
    """A topic is in Kafka already, as it is; nothing moves because of it.

    Each list keeps the length that it has. The event describes the topic whole: a known topic takes
    its lists and `pinned`, and keeps its policy and its demand if the event names none.
    """

    replicas: tuple[tuple[int, ...], ...]  # SPU ids of each partition, leader first; any lengths
    policy: Policy | None = None  # that it grows by; None: the job's default
    pinned: bool = False  # a rebalance leaves it where it is
    demand: Mapping[str, int] | None = None  # as in `TopicCreate`; its `leader_demand` stays


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicGrow(BaseTopicEvent):
    """A topic is to have more partitions."""

    partitions: int  # the new total


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReplication(BaseTopicEvent):
    """Each list of a topic is to have so many replicas, more or fewer than it has."""

    replication_factor: int  # 1 … REPLICATION_FACTOR_MAX, checked by decide


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDemand(BaseTopicEvent):
    """What the replicas of a living topic need, as measured; no list changes because of it."""

    demand: Mapping[str, int]  # as in `TopicCreate`, in place of what was known
    leader_demand: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConstraints(BaseTopicEvent):
    """What a living topic demands of its SPUs from now on; no list changes because of it."""

    constraints: Constraints  # in place of those that it had


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRebalance(BaseEvent):
    """A cluster is to be evened out."""

    max_moves: int
    # Where topics say what they need of resources:
    max_bytes: int | None = None  # to be moved, as far as topics say; None: no limit
    band_percent: int | None = None  # above the fair dominant share; None: BAND_PERCENT


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
