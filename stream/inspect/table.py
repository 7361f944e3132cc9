"""What `inspect` tells, as tables for people.

No cell is ever cut: what is wide is folded. A table of many rows ends with a line that says how
many more there are; the JSON has them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rich import box
from rich.table import Table
from rich.text import Text
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.inspect.report import (
    ClusterDetail,
    ClusterReport,
    InspectReport,
    Spread,
    TopicMap,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

ROWS_SHOWN: Final = 100  # of one table: some screens
WIDE: Final = 140  # columns that the table of clusters needs; else each is told in lines


def tables(
    report: InspectReport, *, width: int, asked_topic: str | None = None
) -> Iterator[RenderableType]:
    """The whole answer, piece by piece, for a terminal of so many columns."""
    yield _head(report)
    if not report.clusters:
        yield Text("\nThere is no cluster yet.")
    elif len(report.clusters) > 1 and width >= WIDE:
        yield _clusters(report.clusters)
    else:
        yield from map(_cluster, report.clusters[:ROWS_SHOWN])
        if len(report.clusters) > ROWS_SHOWN:
            yield Text(f"\n{_more(len(report.clusters))}")
    for cluster in report.clusters:
        if cluster.detail is not None and asked_topic is None:
            yield from _details(cluster.detail)
        if cluster.detail is not None and asked_topic is not None:
            yield from _topic(cluster.topic, cluster.detail, asked_topic)


def _head(report: InspectReport) -> Text:
    time = "" if report.batch_time_ms is None else f", begun {_time(report.batch_time_ms)}"
    kept = report.batches_kept
    inputs = "; ".join(
        f"{name} {', '.join(f'{number}: {offset}' for number, offset in sorted(offsets.items()))}"
        for name, offsets in report.input_offsets.items()
    )
    lines = {
        "checkpoint": report.checkpoint,
        "query": f"{report.query_id or 'unknown'}, {report.shards or 'unknown'} shards",
        "batch": f"{report.batch}{time}; kept are {kept[0]} to {kept[-1]}",
        "read up to": inputs or "unknown",
    }
    return Text("\n".join(f"{name:<10}  {printable(told)}" for name, told in lines.items()))


def _cluster(cluster: ClusterReport) -> Text:
    """One cluster in lines, for any width."""
    lines = {
        "SPUs": f"{', '.join(_spus(cluster))}; ring of {cluster.ring_size}, {cluster.racks} racks",
        "topics": f"{cluster.topics} with {cluster.partitions} partitions; {_slots(cluster)} slots",
        "on an SPU": f"{_spread(cluster.replicas_per_spu)} replicas, "
        f"{_spread(cluster.leaders_per_spu)} leaders, "
        f"{_spread(cluster.off_fair_share, sign='+')} off its fair share",
        "chains": ", ".join(_chains(cluster)),
        "waiting": ", ".join(_waits(cluster)) or "nothing",
    }
    told = "\n".join(f"  {name:<11}{value}" for name, value in lines.items())
    return Text(f"\n{printable(cluster.cluster_id)}\n{told}")


def _clusters(clusters: Sequence[ClusterReport]) -> Table:
    return _table(
        "clusters",
        (
            *("cluster", "SPUs", "#ring", "#racks", "#topics", "#partitions", "slots used"),
            *("#replicas/SPU", "#leaders/SPU", "#off fair share", "chain indexes", "waiting"),
        ),
        (
            (
                cluster.cluster_id,
                "\n".join(_spus(cluster)),
                cluster.ring_size,
                cluster.racks,
                cluster.topics,
                cluster.partitions,
                _slots(cluster),
                _spread(cluster.replicas_per_spu),
                _spread(cluster.leaders_per_spu),
                _spread(cluster.off_fair_share, sign="+"),
                "\n".join(_chains(cluster)),
                "\n".join(_waits(cluster)) or "-",
            )
            for cluster in clusters[:ROWS_SHOWN]
        ),
        count=len(clusters),
    )


def _spus(cluster: ClusterReport) -> list[str]:
    spus = cluster.spus
    full = f" ({spus.saturated} saturated)" if spus.saturated else ""
    gone = (("leaving", spus.leaving), ("offline", spus.offline))
    return [f"{spus.online} online{full}", *(f"{count} {name}" for name, count in gone if count)]


def _slots(cluster: ClusterReport) -> str:
    return f"{cluster.replicas} of {cluster.capacity}"


def _chains(cluster: ClusterReport) -> list[str]:
    moved = [f"{order} {index}" for order, index in cluster.chain_indexes.items() if index]
    return moved or ["all 0"]


def _waits(cluster: ClusterReport) -> list[str]:
    counts = (
        ("create", cluster.waiting_creates),
        ("repair", cluster.waiting_repairs),
        ("short list", cluster.short_lists),
    )
    return [f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts if count]


def _details(detail: ClusterDetail) -> Iterator[RenderableType]:
    yield _table(
        "racks",
        ("rack", "#SPUs", "#online", "#capacity", "#replicas", "#leaders"),
        (
            (_rack(each.rack), each.spus, each.online, each.capacity, each.replicas, each.leaders)
            for each in detail.racks[:ROWS_SHOWN]
        ),
        count=len(detail.racks),
    )
    yield _table(
        "SPUs",
        (
            *("#SPU", "rack", "state", "#slots", "#replicas", "#used", "#fair"),
            *("#leaders", "#cores"),
        ),
        (
            (
                each.spu_id,
                _rack(each.rack),
                each.state,
                each.capacity,
                each.replicas,
                "-" if each.share_used is None else f"{each.share_used:.1%}",
                "-" if each.fair_share is None else f"{each.fair_share:.1f}",
                each.leaders,
                each.cores,
            )
            for each in detail.spus[:ROWS_SHOWN]
        ),
        count=len(detail.spus),
    )
    yield _table(
        "topics",
        (
            *("topic", "policy", "#revision", "#partitions", "#factor", "#replicas"),
            "#short lists",
        ),
        (
            (
                each.topic,
                each.policy,
                each.revision,
                each.partitions,
                each.replication_factor,
                each.replicas,
                f"{each.short_lists}, waiting" if each.is_waiting else each.short_lists,
            )
            for each in detail.topics[:ROWS_SHOWN]
        ),
        count=len(detail.topics),
    )
    if detail.waiting:
        yield _waiting(detail)
    lists = sum(each.partitions for each in detail.topics)
    yield Text(f"\n{detail.lists_on_distinct_racks} of {lists} replica lists are on distinct racks")


def _waiting(detail: ClusterDetail, topic: str | None = None) -> Table:
    chosen = [each for each in detail.waiting if topic in (None, each.topic)]
    return _table(
        "waiting",
        ("topic", "what", "#sequence", "policy", "#partitions", "#replicas", "cause"),
        (
            (
                each.topic,
                each.kind,
                each.sequence,
                each.policy or "-",
                each.partitions or "-",
                each.replication_factor or "-",
                each.cause,
            )
            for each in chosen[:ROWS_SHOWN]
        ),
        count=len(chosen),
    )


def _topic(found: TopicMap | None, detail: ClusterDetail, asked: str) -> Iterator[RenderableType]:
    if found is None:
        yield _waiting(detail, asked)
        return
    told = found.summary
    lines = {
        "topic": told.topic,
        "policy": told.policy + (", racks ignored" if told.ignore_rack else ""),
        "revision": f"{told.revision}",
        "created by": f"event hash {told.created_by}"
        + (f", grown by {', '.join(told.grown_by)}" if told.grown_by else ""),
        "lists": f"{told.partitions} of {told.replication_factor} replicas asked for"
        + (f", {told.short_lists} short" if told.short_lists else ""),
    }
    yield Text("\n" + "\n".join(f"{name:<10}  {value}" for name, value in lines.items()))
    if told.is_waiting:
        yield _waiting(detail, asked)
    racks = {each.spu_id: each.rack for each in detail.spus}
    shown = found.lists[:ROWS_SHOWN]
    headings = ["#partition", "replicas, leader first"]
    columns: list[list[object]] = [
        list(range(len(shown))),
        [", ".join(map(str, each)) for each in shown],
    ]
    if any(rack is not None for rack in racks.values()):
        headings.append("on racks")
        columns.append([", ".join(_rack(racks.get(spu)) for spu in each) for each in shown])
    if found.cores is not None:
        headings.append("on cores")
        columns.append([", ".join(map(str, each)) for each in found.cores[:ROWS_SHOWN]])
    yield _table("map", headings, zip(*columns, strict=True), count=len(found.lists))


def _table(
    title: str, headings: Iterable[str], rows: Iterable[Iterable[object]], *, count: int
) -> Table:
    """A table of cells that fold; a heading that begins with # is one of numbers.

    `count` is how many rows there are in all.
    """
    table = Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        caption=_more(count) if count > ROWS_SHOWN else None,
        caption_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    for heading in headings:
        is_number = heading.startswith("#")
        table.add_column(
            heading.removeprefix("#"), justify="right" if is_number else "left", overflow="fold"
        )
    for row in rows:
        # Text, not markup: brackets in a name are brackets.
        lines = ("\n".join(map(printable, str(cell).split("\n"))) for cell in row)
        table.add_row(*map(Text, lines))
    return table


def _more(count: int) -> str:
    return f"… {count - ROWS_SHOWN} more (all with --format json)"


def _rack(rack: str | None) -> str:
    return "-" if rack is None else rack.replace("\n", "\\n")


def _spread(spread: Spread | None, sign: str = "") -> str:
    if spread is None:
        return "-"
    return " to ".join(
        f"{each:{sign}.2f}".rstrip("0").rstrip(".") for each in (spread.least, spread.most)
    )


def _time(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
