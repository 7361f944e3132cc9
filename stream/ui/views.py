"""What the pages show, as plain values out of what is known.

Rules: lists are cut into pages here, and never built whole, except names; a report on a cluster,
which goes through all its topics, is made anew after a change at most a fifth of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.records import Order
from spu_assigner.core.explain.decisions import explain, why_it_waits
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.explain.rendering import decision_lines
from spu_assigner.stream.inspect.plot import bars
from spu_assigner.stream.inspect.report import (
    ClusterReport,
    RackLoad,
    SpuLoad,
    TopicMap,
    TopicSummary,
    WaitingRequest,
    cluster_report,
    rack_loads,
    spu_loads,
    topic_map,
    topic_summary,
    waiting_requests,
)
from spu_assigner.stream.kafka.outputs import read_cluster
from spu_assigner.stream.ui.known import ClusterDamagedError, Heard, Known
from spu_assigner.stream.ui.ring_drawing import RingDrawing, ring_drawing

ROWS: Final = 50  # of a page
MAP_ROWS: Final = 100  # partitions of a page
FEW: Final = 10  # of what a cluster's page shows only the first
PLOT_SPUS_MAX: Final = 1_000  # bars of one picture in a page: half a megabyte
REPORTS_MAX: Final = 1_000  # that are kept
IDLE: Final = 5.0  # times what a report costs, until the next is made

_T = TypeVar("_T")


class NotFoundError(AssignerError):
    """There is no such thing to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice(Generic[_T]):
    """One page of a list."""

    rows: Sequence[_T]
    page: int  # from 1
    pages: int
    total: int
    first: int  # row, from 1; 0: there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """A cluster in the list."""

    cluster_id: str
    report: ClusterReport | None  # None: what was published cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The page of a cluster."""

    report: ClusterReport
    ring: RingDrawing
    racks: Slice[RackLoad]
    spus: Slice[SpuLoad]
    plot: str | None  # SVG; None: too many
    waiting: Slice[WaitingRequest]
    statuses: Sequence[Heard]
    ring_events: Sequence[Heard]
    faults: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One cell of a map."""

    spu_id: int
    rack: str | None
    state: str  # as of `SpuLoad`; unknown: the SPU was not described yet
    core: int | None
    colour: int  # of its rack


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """The page of a topic."""

    map: TopicMap | None  # None: it waits
    rows: Slice[tuple[int, list[Replica]]]
    columns: int
    racks: int
    waiting: WaitingRequest | None
    obstacle: str | None  # why a create that waits is not served


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionText:
    """One decision in words."""

    revision: int
    cause: str
    replicas: tuple[int, ...]
    before: tuple[int, ...] | None
    lines: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainView:
    """Why a partition's replicas are where they are."""

    partition: int
    partitions: int
    policy: str
    replicas: tuple[int, ...]
    is_whole: bool
    told: Sequence[DecisionText]  # the newest first


class Reports:
    """Reports on clusters, kept until the cluster changes, and a little longer where they cost."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[int, float, ClusterReport]] = {}

    def of(self, known: Known, cluster_id: str) -> ClusterReport:
        """Raises as `Known.state`."""
        version = known.cluster_version(cluster_id)
        kept = self._kept.get(cluster_id)
        if kept is not None and (kept[0] == version or self._clock() < kept[1]):
            return kept[2]
        begin = self._clock()
        report = cluster_report(known.state(cluster_id))
        end = self._clock()
        while len(self._kept) >= REPORTS_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[cluster_id] = version, end + IDLE * (end - begin), report
        return report


def sliced(items: Sequence[_T], page: int, *, size: int = ROWS) -> Slice[_T]:
    """One page; the last one, where there are not so many."""
    pages = max(1, -(-len(items) // size))
    page = min(page, pages)
    begin = (page - 1) * size
    return Slice(
        rows=items[begin : begin + size],
        page=page,
        pages=pages,
        total=len(items),
        first=begin + 1 if items else 0,
    )


def found(names: Sequence[str], search: str) -> Sequence[str]:
    """The names that contain what is searched for; case does not matter."""
    wanted = search.casefold()
    return [name for name in names if wanted in name.casefold()] if wanted else names


def clusters_view(known: Known, reports: Reports, *, search: str, page: int) -> Slice[ClusterRow]:
    """A page of the list of clusters."""
    ids = sliced(found(known.cluster_ids, search), page)
    rows = []
    for cluster_id in ids.rows:
        try:
            report = reports.of(known, cluster_id)
        except ClusterDamagedError:
            rows.append(ClusterRow(cluster_id=cluster_id, report=None))
        else:
            rows.append(ClusterRow(cluster_id=cluster_id, report=report))
    return Slice(rows=rows, page=ids.page, pages=ids.pages, total=ids.total, first=ids.first)


def cluster_view(
    known: Known, reports: Reports, cluster_id: str, *, order: Order | None, page: int, rack: int
) -> ClusterView:
    """The page of a cluster; `page` is of its SPUs, `rack` of its racks."""
    state = known.state(cluster_id)
    loads = spu_loads(state)
    return ClusterView(
        report=reports.of(known, cluster_id),
        ring=ring_drawing(state, loads, order),
        racks=sliced(rack_loads(loads), rack, size=FEW * 2),
        spus=sliced(loads, page),
        plot=bars(loads) if loads and len(loads) <= PLOT_SPUS_MAX else None,
        waiting=sliced(waiting_requests(state), 1, size=FEW),
        statuses=known.statuses(cluster_id)[:FEW],
        ring_events=known.ring_events(cluster_id)[:FEW],
        faults=known.faults(cluster_id),
    )


def topics_view(known: Known, cluster_id: str, *, search: str, page: int) -> Slice[TopicSummary]:
    """A page of a cluster's topics."""
    state = known.state(cluster_id)
    names = sliced(found(sorted(state.topics), search), page)
    return Slice(
        rows=[topic_summary(state, name) for name in names.rows],
        page=names.page,
        pages=names.pages,
        total=names.total,
        first=names.first,
    )


def waiting_view(known: Known, cluster_id: str, *, page: int) -> Slice[WaitingRequest]:
    """A page of what waits in a cluster."""
    return sliced(waiting_requests(known.state(cluster_id)), page)


def topic_view(known: Known, cluster_id: str, topic: str, *, page: int) -> TopicView:
    """The page of a topic.

    Raises:
        NotFoundError: there is none, and none waits.
    """
    state = known.state(cluster_id)
    waiting = state.waiting.get(topic)
    if waiting is None and topic not in state.topics:
        raise NotFoundError(f"cluster {cluster_id!r} has no topic {topic!r}")
    names = sorted({spu.rack for spu in state.spus.values()} - {None}, key=str)
    colours = {rack: number for number, rack in enumerate(names)}
    members = set(state.ring.ids.tolist())
    told = topic_map(state, topic)
    lists = [] if told is None else told.lists
    cores = None if told is None else told.cores

    def replica(spu_id: int, core: int | None) -> Replica:
        spu = state.spus.get(spu_id)  # type: ignore[call-overload]  # a SpuId at run time
        if spu is None:
            return Replica(spu_id=spu_id, rack=None, state="unknown", core=core, colour=-1)
        away = "leaving" if spu.leaving else "offline"
        condition = "online" if spu_id in members else "saturated"
        return Replica(
            spu_id=spu_id,
            rack=spu.rack,
            state=condition if spu.online else away,
            core=core,
            colour=colours.get(spu.rack, -1) % 8 if spu.rack in colours else -1,
        )

    chosen = sliced(range(len(lists)), page, size=MAP_ROWS)
    rows = []
    for partition in chosen.rows:
        own = [None] * len(lists[partition]) if cores is None else cores[partition]
        rows.append(
            (partition, [replica(*pair) for pair in zip(lists[partition], own, strict=True)])
        )
    refusal = None if waiting is None or told is not None else why_it_waits(state, waiting)
    return TopicView(
        map=told,
        rows=Slice(
            rows=rows,
            page=chosen.page,
            pages=chosen.pages,
            total=chosen.total,
            first=chosen.first,
        ),
        columns=max((len(each) for each in lists), default=0),
        racks=len(names),
        waiting=next((each for each in waiting_requests(state) if each.topic == topic), None),
        obstacle=None if refusal is None else f"{refusal.code}: {refusal.message}",
    )


def explain_view(
    connection: Connection, cluster_id: str, topic: str, partition: int
) -> ExplainView:
    """Why a partition's replicas are where they are; read anew from the topics, as `explain` does.

    Raises:
        NotFoundError: there is no such topic or partition.
        ClientError: Kafka cannot be reached.
    """
    read = read_cluster(connection, cluster_id, topic)
    newest = read.maps[-1].map.replicas if read.maps else None
    if newest is None:
        raise NotFoundError(f"topic {topic!r} of cluster {cluster_id!r} has no map")
    if partition >= len(newest):
        raise NotFoundError(
            f"no partition {partition} in topic {topic!r}; expected 0 to {len(newest) - 1}"
        )
    [told] = explain(read.outputs, read.maps, [partition])
    return ExplainView(
        partition=partition,
        partitions=len(newest),
        policy=told.policy.value,
        replicas=told.replicas,
        is_whole=told.is_whole,
        told=[
            DecisionText(
                revision=decision.revision,
                cause=decision.cause,
                replicas=decision.replicas,
                before=decision.before,
                lines=decision_lines(decision),
            )
            for decision in reversed(told.decisions)
        ],
    )
