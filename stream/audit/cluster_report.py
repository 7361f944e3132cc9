"""What `inspect` reports of a state, as plain values: these classes are its JSON, field by field.

The fields are a promise: names and meanings stay, later releases only add some. Nothing is left
out or cut here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from spu_assigner.core.base.constraints import Constraints, Taint
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.records import Order, Wait, Waiting
from spu_assigner.core.base.replica_lists import PADDING
from spu_assigner.core.base.resources import dominant_share
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.topic import Topic
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.job.checkpoint_reading import Inspection

FORMAT: Final = 1  # rises when a field changes its meaning
WAITING_FIELDS: Final = (
    *("topic", "kind", "sequence", "cause", "policy", "partitions", "replication_factor"),
)


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
    online: int  # the saturated and the cordoned ones included
    saturated: int  # online, but without a free slot: not in the ring
    cordoned: int  # online, but taking no new replicas, by an order or a taint: likewise
    leaving: int  # decommissioned, and some list still holds them
    offline: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpuLoad:
    """One SPU."""

    spu_id: int
    rack: str | None
    state: str  # online, saturated, cordoned (or tainted so), leaving, offline
    capacity: int
    replicas: int
    share_used: float | None  # of its capacity; None: it has none
    fair_share: float | None  # replicas it would hold if all did by capacity; None: not online
    leaders: int  # lists it leads
    cores: int
    core_weights: tuple[int, ...]  # one for each core; only `redpanda` weighs
    registration: int  # place in the ring of `redpanda`
    labels: Mapping[str, str]
    cordoned: bool  # whatever its state is
    demoted: bool
    resources: Mapping[str, int] = field(default_factory=dict)  # what it has beside slots,
    resources_used: Mapping[str, int] = field(default_factory=dict)  # and what is used of each
    dominant_share: float = 0.0  # the largest share that is used, slots included
    dominant_resource: str | None = None  # of which that is; None: of slots
    taints: tuple[Taint, ...] = ()


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
    short_lists: int  # lists with fewer; of an adopted one, than it was adopted with
    ignore_rack: bool
    created_by: str  # hash of its create's event_id: 64 bits as 16 hexadecimal digits
    grown_by: tuple[str, ...]  # likewise of the last that changed it on request, oldest first
    is_waiting: bool  # to be repaired
    pinned: bool  # a rebalance leaves it where it is
    demand: Mapping[str, int]  # of resources, for each replica
    leader_demand: Mapping[str, int]  # for a leader, where it needs another amount
    constraints: Constraints | None  # None: no rules of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMap:
    """A living topic's replica map."""

    summary: TopicSummary
    lists: list[list[int]]
    cores: list[list[int]] | None  # parallel to lists, `redpanda` only


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDetail:
    """What is reported of a cluster that is named."""

    racks: tuple[RackLoad, ...]  # by name
    spus: tuple[SpuLoad, ...]  # by id
    topics: tuple[TopicSummary, ...]  # by name
    waiting: tuple[Waiting, ...]  # as they will be served; of these, `WAITING_FIELDS`
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


def cluster_reports(
    inspection: Inspection, *, cluster_id: str | None = None, topic: str | None = None
) -> tuple[ClusterReport, ...]:
    """All clusters by id; or a named one in detail, and of it a named topic with its map.

    Raises:
        NotThereError: there is no such cluster or topic; it says what there is.
    """
    clusters = inspection.clusters
    if cluster_id is None:
        return tuple(cluster_report(clusters[each]) for each in sorted(clusters))
    if cluster_id not in clusters:
        raise NotThereError(
            f"there is no cluster {cluster_id!r} after batch {inspection.batch}; there is "
            f"{listed(sorted(clusters))}"
        )
    return (cluster_report(clusters[cluster_id], with_detail=True, topic=topic),)


def report_json(inspection: Inspection, clusters: Sequence[ClusterReport]) -> dict[str, Any]:
    """The whole answer as plain dicts and lists."""
    reports = [dataclasses.asdict(cluster) for cluster in clusters]
    for detail in (cluster["detail"] for cluster in reports if cluster["detail"] is not None):
        detail["waiting"] = [
            {name: each[name] for name in WAITING_FIELDS} for each in detail["waiting"]
        ]
    names = [field.name for field in dataclasses.fields(inspection)]
    head = {name: getattr(inspection, name) for name in names if name != "clusters"}
    return {"format": FORMAT, **head, "clusters": reports}


def cluster_report(
    state: ClusterState, *, with_detail: bool = False, topic: str | None = None
) -> ClusterReport:
    """One cluster.

    Raises:
        NotThereError: it has no such topic.
    """
    loads = spu_loads(state)
    online = [load for load in loads if load.fair_share is not None]
    states = [load.state for load in loads]
    sizes = [_size(each) for each in state.topics.values()]
    kinds = [waiting.kind for waiting in state.waiting.values()]
    return ClusterReport(
        cluster_id=state.cluster_id,
        spus=SpuCounts(
            total=len(loads),
            online=len(online),
            saturated=states.count("saturated"),
            cordoned=states.count("cordoned"),
            leaving=states.count("leaving"),
            offline=states.count("offline"),
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
    ids = sorted(state.spus)
    spus = [state.spus[spu_id] for spu_id in ids]
    array = np.array(ids, dtype=np.int32)
    counts, leaders = state.ledger.counts(array).tolist(), state.ledger.leaders(array).tolist()
    members = set(state.ring.ids.tolist())
    capacity_online = sum(spu.capacity for spu in spus if spu.online)
    replicas_online = sum(count for spu, count in zip(spus, counts, strict=True) if spu.online)
    loads = []
    for spu, replicas, led in zip(spus, counts, leaders, strict=True):
        if spu.online:
            condition = "online" if spu.spu_id in members else "saturated"
            condition = "cordoned" if spu.is_closed else condition
        else:
            condition = "leaving" if spu.leaving else "offline"
        has, used = dict(spu.resources), dict(sorted(state.ledger.used(spu.spu_id).items()))
        shares = [(name, used.get(name, 0), amount) for name, amount in has.items()]
        share, resource = dominant_share([(None, replicas, spu.capacity), *shares])
        fair = replicas_online * spu.capacity / capacity_online if capacity_online else 0.0
        loads.append(
            SpuLoad(
                spu_id=spu.spu_id,
                rack=spu.rack,
                state=condition,
                capacity=spu.capacity,
                replicas=replicas,
                share_used=round(replicas / spu.capacity, 4) if spu.capacity else None,
                fair_share=round(fair, 2) if spu.online else None,
                leaders=led,
                cores=spu.cores,
                core_weights=tuple(state.core_weights[SpuId(spu.spu_id)]),
                registration=spu.registration,
                labels=dict(spu.labels),
                cordoned=spu.cordoned,
                demoted=spu.demoted,
                resources=has,
                resources_used=used,
                dominant_share=round(share, 4),
                dominant_resource=resource,
                taints=spu.taints,
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


def waiting_requests(state: ClusterState) -> tuple[Waiting, ...]:
    """What waits, as it will be served: repairs first."""
    return tuple(
        sorted(state.waiting.values(), key=lambda each: (each.kind is Wait.CREATE, each.sequence))
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
        grown_by=tuple(f"{each:016x}" for each in topic.changed_by),
        is_waiting=name in state.waiting,
        pinned=topic.pinned,
        demand={} if topic.need is None else dict(topic.need.demand),
        leader_demand={} if topic.need is None else dict(topic.need.leader_demand),
        constraints=topic.constraints,
    )


def topic_map(state: ClusterState, name: str) -> TopicMap | None:
    """A living topic's map; None: it is a create that waits.

    Raises:
        NotThereError: the cluster has no such topic.
    """
    topic = state.topics.get(name)
    if topic is None:
        if name in state.waiting:
            return None  # a create; the detail has it
        raise NotThereError(
            f"cluster {state.cluster_id!r} has no topic {name!r}; it has "
            f"{listed(sorted({*state.topics, *state.waiting}))}"
        )
    return TopicMap(
        summary=topic_summary(state, name),
        lists=topic.replicas.lists().tolist(),
        cores=None if topic.cores is None else topic.cores.lists().tolist(),
    )


def _size(topic: Topic) -> tuple[int, int, int]:
    """Its partitions, its replicas, and how many lists are shorter than they are to be."""
    lists = topic.replicas.lists()
    width = lists.matrix.shape[1]
    if not lists.ragged and topic.wanted_lengths is None:
        short = len(lists) if width < topic.replication_factor else 0
        return len(lists), len(lists) * width, short
    lengths = lists.lengths()
    pairs = zip(lengths, topic.lengths_wanted(len(lists)), strict=True)
    return len(lists), sum(lengths), sum(found < wanted for found, wanted in pairs)


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
