"""What `inspect` tells of a state, as plain values: these classes are its JSON, field by field.

The fields are a promise: names and meanings stay, later releases only add some. Nothing is left
out or cut here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.records import Order, Wait
from spu_assigner.core.base.replica_lists import PADDING
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.topic import Topic
from spu_assigner.stream.inspect.checkpoint_reading import Inspection

FORMAT: Final = 1  # rises when a field changes its meaning
NAMES_TOLD: Final = 5  # of what there is instead of what was asked for


class NotThereError(AssignerError):
    """The checkpoint has no such cluster, or the cluster no such topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The least and the most of something over the online SPUs."""

    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpuCounts:
    """How many SPUs there are: total = online + leaving + offline."""

    total: int
    online: int  # the saturated ones included
    saturated: int  # online, but without a free slot: not in the ring
    leaving: int  # decommissioned, and some list still holds them
    offline: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpuLoad:
    """One SPU."""

    spu_id: int
    rack: str | None
    state: str  # online, saturated, leaving, offline
    capacity: int
    replicas: int
    share_used: float | None  # of its capacity; None: it has none
    fair_share: float | None  # replicas it would hold if all did by capacity; None: not online
    leaders: int  # lists it leads
    cores: int
    core_weights: tuple[int, ...]  # one for each core; only `redpanda` weighs
    registration: int  # place in the ring of `redpanda`
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RackLoad:
    """The SPUs of one rack together."""

    rack: str | None
    spus: int
    online: int
    capacity: int  # of the online ones
    replicas: int
    leaders: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    """A living topic, without its lists."""

    topic: str
    policy: str
    revision: int
    partitions: int
    replication_factor: int  # that was asked for
    replicas: int  # that there are
    short_lists: int  # lists with fewer
    ignore_rack: bool
    created_by: str  # hash of its create's event_id: 64 bits as 16 hexadecimal digits
    grown_by: tuple[str, ...]  # likewise of its last grows, oldest first
    is_waiting: bool  # to be repaired


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMap:
    """A living topic's replica map."""

    summary: TopicSummary
    lists: list[list[int]]
    cores: list[list[int]] | None  # parallel to lists, `redpanda` only


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRequest:
    """What waits for the ring to grow or slots to free."""

    topic: str
    kind: str  # create, repair
    sequence: int  # the lower, the earlier it is served
    cause: str  # event_id
    policy: str | None  # of a create, as the fields that follow
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDetail:
    """What is told of a cluster that is named."""

    racks: tuple[RackLoad, ...]  # by name
    spus: tuple[SpuLoad, ...]  # by id
    topics: tuple[TopicSummary, ...]  # by name
    waiting: tuple[WaitingRequest, ...]  # as they will be served
    lists_on_distinct_racks: int  # of all; SPUs without a rack count as one rack


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """One cluster."""

    cluster_id: str
    spus: SpuCounts
    ring_size: int
    racks: int  # named ones
    capacity: int  # replica slots of the online SPUs
    topics: int
    partitions: int
    replicas: int
    short_lists: int
    chain_indexes: Mapping[str, int]  # by order
    waiting_creates: int
    waiting_repairs: int
    replicas_per_spu: Spread | None  # None: no SPU is online
    leaders_per_spu: Spread | None
    off_fair_share: Spread | None  # replicas less the fair share
    detail: ClusterDetail | None  # with --cluster
    topic: TopicMap | None  # with --topic, unless it is a create that waits


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectReport:
    """The whole answer."""

    format: int
    checkpoint: str
    query_id: str | None
    batch: int
    batch_time_ms: int | None
    batches_kept: tuple[int, ...]
    shards: int | None
    input_offsets: Mapping[str, Mapping[str, int]]
    clusters: tuple[ClusterReport, ...]  # by id; with --cluster that one

    def to_json(self) -> dict[str, Any]:
        """The same as plain dicts and lists."""
        return dataclasses.asdict(self)


def report(
    inspection: Inspection, *, cluster_id: str | None = None, topic: str | None = None
) -> InspectReport:
    """What there is to tell; of a named cluster in detail, of a named topic with its map.

    Raises:
        NotThereError: there is no such cluster or topic; it says what there is.
    """
    clusters = inspection.clusters
    if cluster_id is not None:
        if cluster_id not in clusters:
            raise NotThereError(
                f"there is no cluster {cluster_id!r} after batch {inspection.batch}; there is "
                f"{_named(sorted(clusters))}"
            )
        clusters = {cluster_id: clusters[cluster_id]}
    return InspectReport(
        format=FORMAT,
        checkpoint=inspection.checkpoint,
        query_id=inspection.query_id,
        batch=inspection.batch,
        batch_time_ms=inspection.batch_time_ms,
        batches_kept=inspection.batches_kept,
        shards=inspection.shards,
        input_offsets=inspection.input_offsets,
        clusters=tuple(
            cluster_report(state, with_detail=cluster_id is not None, topic=topic)
            for _, state in sorted(clusters.items())
        ),
    )


def cluster_report(
    state: ClusterState, *, with_detail: bool = False, topic: str | None = None
) -> ClusterReport:
    """One cluster.

    Raises:
        NotThereError: it has no such topic.
    """
    loads = spu_loads(state)
    online = [load for load in loads if load.fair_share is not None]
    sizes = [_size(each) for each in state.topics.values()]
    kinds = [waiting.kind for waiting in state.waiting.values()]
    return ClusterReport(
        cluster_id=state.cluster_id,
        spus=SpuCounts(
            total=len(loads),
            online=len(online),
            saturated=sum(load.state == "saturated" for load in loads),
            leaving=sum(load.state == "leaving" for load in loads),
            offline=sum(load.state == "offline" for load in loads),
        ),
        ring_size=state.ring.size,
        racks=len({load.rack for load in loads} - {None}),
        capacity=sum(load.capacity for load in online),
        topics=len(state.topics),
        partitions=sum(partitions for partitions, _, _ in sizes),
        replicas=sum(replicas for _, replicas, _ in sizes),
        short_lists=sum(short for _, _, short in sizes),
        chain_indexes={order.value: state.chain_index(order) for order in Order},
        waiting_creates=kinds.count(Wait.CREATE),
        waiting_repairs=kinds.count(Wait.REPAIR),
        replicas_per_spu=_spread([load.replicas for load in online]),
        leaders_per_spu=_spread([load.leaders for load in online]),
        off_fair_share=_spread([load.replicas - (load.fair_share or 0.0) for load in online]),
        detail=_detail(state, loads) if with_detail else None,
        topic=None if topic is None else topic_map(state, topic),
    )


def spu_loads(state: ClusterState) -> tuple[SpuLoad, ...]:
    """What each SPU of a cluster holds, by id."""
    ids = np.array(sorted(state.spus), dtype=np.int32)
    counts, leaders = state.ledger.counts(ids).tolist(), state.ledger.leaders(ids).tolist()
    members = set(state.ring.ids.tolist())
    online = np.array([state.spus[SpuId(spu_id)].online for spu_id in ids.tolist()], dtype=bool)
    capacity_online = int(state.ledger.capacities(ids)[online].sum())
    replicas_online = int(state.ledger.counts(ids)[online].sum())
    loads = []
    for spu_id, replicas, led in zip(ids.tolist(), counts, leaders, strict=True):
        spu = state.spus[SpuId(spu_id)]
        if spu.online:
            condition = "online" if spu_id in members else "saturated"
        else:
            condition = "leaving" if spu.leaving else "offline"
        fair = replicas_online * spu.capacity / capacity_online if capacity_online else 0.0
        loads.append(
            SpuLoad(
                spu_id=spu_id,
                rack=spu.rack,
                state=condition,
                capacity=spu.capacity,
                replicas=replicas,
                share_used=round(replicas / spu.capacity, 4) if spu.capacity else None,
                fair_share=round(fair, 2) if spu.online else None,
                leaders=led,
                cores=spu.cores,
                core_weights=tuple(state.core_weights[SpuId(spu_id)]),
                registration=spu.registration,
                labels=dict(spu.labels),
            )
        )
    return tuple(loads)


def rack_loads(loads: Sequence[SpuLoad]) -> tuple[RackLoad, ...]:
    """The same by rack, in the order of names; SPUs without a rack come first."""
    by_rack: dict[str | None, list[SpuLoad]] = {}
    for load in loads:
        by_rack.setdefault(load.rack, []).append(load)
    return tuple(
        RackLoad(
            rack=rack,
            spus=len(members),
            online=sum(load.fair_share is not None for load in members),
            capacity=sum(load.capacity for load in members if load.fair_share is not None),
            replicas=sum(load.replicas for load in members),
            leaders=sum(load.leaders for load in members),
        )
        for rack, members in sorted(
            by_rack.items(), key=lambda pair: (pair[0] is not None, pair[0] or "")
        )
    )


def _detail(state: ClusterState, loads: tuple[SpuLoad, ...]) -> ClusterDetail:
    return ClusterDetail(
        racks=rack_loads(loads),
        spus=loads,
        topics=tuple(topic_summary(state, name) for name in sorted(state.topics)),
        waiting=waiting_requests(state),
        lists_on_distinct_racks=_diverse(state),
    )


def waiting_requests(state: ClusterState) -> tuple[WaitingRequest, ...]:
    """What waits, as it will be served: repairs first."""
    waiting = sorted(
        state.waiting.values(), key=lambda each: (each.kind is Wait.CREATE, each.sequence)
    )
    return tuple(
        WaitingRequest(
            topic=each.topic,
            kind=each.kind.value,
            sequence=each.sequence,
            cause=each.cause,
            policy=None if each.policy is None else each.policy.value,
            partitions=each.partitions,
            replication_factor=each.replication_factor,
        )
        for each in waiting
    )


def topic_summary(state: ClusterState, name: str) -> TopicSummary:
    """A living topic of the cluster."""
    topic = state.topics[name]
    partitions, replicas, short = _size(topic)
    return TopicSummary(
        topic=name,
        policy=topic.policy.value,
        revision=topic.revision,
        partitions=partitions,
        replication_factor=topic.replication_factor,
        replicas=replicas,
        short_lists=short,
        ignore_rack=topic.ignore_rack,
        created_by=f"{topic.created_by:016x}",
        grown_by=tuple(f"{each:016x}" for each in topic.grown_by),
        is_waiting=name in state.waiting,
    )


def topic_map(state: ClusterState, name: str) -> TopicMap | None:
    """A living topic's map; None: it is a create that waits.

    Raises:
        NotThereError: the cluster has no such topic.
    """
    topic = state.topics.get(name)
    if topic is None:
        if name in state.waiting:
            return None  # a create; the detail tells of it
        raise NotThereError(
            f"cluster {state.cluster_id!r} has no topic {name!r}; it has "
            f"{_named(sorted({*state.topics, *state.waiting}))}"
        )
    return TopicMap(
        summary=topic_summary(state, name),
        lists=topic.replicas.lists().tolist(),
        cores=None if topic.cores is None else topic.cores.lists().tolist(),
    )


def _size(topic: Topic) -> tuple[int, int, int]:
    """Its partitions, its replicas, and how many lists are shorter than was asked for."""
    lists = topic.replicas.lists()
    width = lists.matrix.shape[1]
    if not lists.ragged:
        short = len(lists) if width < topic.replication_factor else 0
        return len(lists), len(lists) * width, short
    lengths = lists.lengths()
    return len(lists), sum(lengths), sum(each < topic.replication_factor for each in lengths)


def _diverse(state: ClusterState) -> int:
    """How many lists have no two SPUs of one rack."""
    ids = np.array(sorted(state.spus), dtype=np.int32)
    numbers = state.ring.rack_numbers(ids)
    found = 0
    for topic in state.topics.values():
        matrix = topic.replicas.matrix()
        # A place of padding gets a number of its own: it is on no rack.
        padding = -1 - np.arange(matrix.shape[1])
        at = np.minimum(np.searchsorted(ids, matrix), len(ids) - 1)
        racks = np.sort(np.where(matrix == PADDING, padding, numbers[at]), axis=1)
        found += int((np.diff(racks, axis=1) != 0).all(axis=1).sum())
    return found


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread(least=round(min(values), 2), most=round(max(values), 2)) if values else None


def _named(names: Sequence[str]) -> str:
    if not names:
        return "none"
    more = len(names) - NAMES_TOLD
    return ", ".join(names[:NAMES_TOLD]) + (f" and {more} more" if more > 0 else "")
