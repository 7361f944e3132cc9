"""What `inspect` reports, as tables for people.

No cell is ever cut: what is wide is folded. A table of many rows ends with a line that says how
many more there are; the JSON has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.table import Table
from rich.text import Text
from spu_assigner.stream.audit.cluster_report import (
    ClusterDetail,
    ClusterReport,
    Spread,
    SpuLoad,
    TopicMap,
    TopicSummary,
)
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.common.rule_texts import rule_texts, taint_text
from spu_assigner.stream.job.checkpoint_reading import Inspection

if TYPE_CHECKING:
    from rich.console import RenderableType

ROWS_SHOWN: Final = 100  # of one table: some screens

# A heading (one that begins with # is of numbers), and the field that its cells show.
Columns = Mapping[str, str | Callable[[Any], object]]
_RACKS: Final[Columns] = {
    "rack": "rack",
    "#SPUs": "spus",
    "#online": "online",
    "#capacity": "capacity",
    "#replicas": "replicas",
    "#leaders": "leaders",
}
_SPUS: Final[Columns] = {
    "#SPU": "spu_id",
    "rack": "rack",
    "state": lambda each: ", ".join(_states(each)),
    "#slots": "capacity",
    "#replicas": "replicas",
    "#used": lambda each: None if each.share_used is None else f"{each.share_used:.1%}",
    "#fair": lambda each: None if each.fair_share is None else f"{each.fair_share:.1f}",
    "#leaders": "leaders",
    "#cores": "cores",
}
_RESOURCES: Final[Columns] = {
    "resources used": lambda each: ", ".join(_used(each)) or None,
    "dominant": lambda each: f"{each.dominant_share:.1%} {each.dominant_resource or 'slots'}",
}
_TAINTS: Final[Columns] = {"taints": lambda each: ", ".join(map(taint_text, each.taints)) or None}
_TOPICS: Final[Columns] = {
    "topic": "topic",
    "policy": "policy",
    "#revision": "revision",
    "#partitions": "partitions",
    "#factor": "replication_factor",
    "#replicas": "replicas",
    "#short lists": lambda each: f"{each.short_lists}{', waiting' if each.is_waiting else ''}",
}
_WAITING: Final[Columns] = {
    "topic": "topic",
    "what": "kind",
    "#sequence": "sequence",
    "policy": "policy",
    "#partitions": lambda each: each.partitions or None,
    "#replicas": lambda each: each.replication_factor or None,
    "cause": "cause",
}


def _states(load: SpuLoad) -> list[str]:
    """Where it stands, and what was ordered of it beside."""
    marks = (("cordoned", load.cordoned), ("demoted", load.demoted))
    return [load.state, *(name for name, holds in marks if holds and name != load.state)]


def _used(load: SpuLoad) -> Iterator[str]:
    """What is used of each resource, as a share of what there is."""
    for name in sorted({*load.resources, *load.resources_used}):
        used, has = load.resources_used.get(name, 0), load.resources.get(name, 0)
        yield f"{name} {used / has:.1%}" if has else f"{name} {used} of 0"


def tables(
    inspection: Inspection, clusters: Sequence[ClusterReport], *, asked_topic: str | None = None
) -> Iterator[RenderableType]:
    """The whole answer, piece by piece."""
    yield _head(inspection)
    if not clusters:
        yield Text("\nThere is no cluster yet.")
    for cluster in clusters[:ROWS_SHOWN]:
        yield _cluster(cluster)
        if cluster.detail is not None and asked_topic is not None:
            yield from _topic(cluster.topic, cluster.detail, asked_topic)
        elif cluster.detail is not None:
            yield from _details(cluster.detail)
    if len(clusters) > ROWS_SHOWN:
        yield Text(f"\n{_more(len(clusters))}")


def _head(found: Inspection) -> Text:
    time = ""
    if found.batch_time_ms is not None:
        time = f", begun {datetime.fromtimestamp(found.batch_time_ms / 1000, UTC):%F %T} UTC"
    inputs = "; ".join(
        f"{name} {', '.join(f'{number}: {offset}' for number, offset in sorted(offsets.items()))}"
        for name, offsets in found.input_offsets.items()
    )
    kept = found.batches_kept
    return _lines(
        {
            "checkpoint": found.checkpoint,
            "query": f"{found.query_id or 'unknown'}, {found.shards or 'unknown'} shards",
            "batch": f"{found.batch}{time}; kept are {kept[0]} to {kept[-1]}",
            "read up to": inputs or "unknown",
        }
    )


def _cluster(cluster: ClusterReport) -> Text:
    spus = cluster.spus
    inside = (("saturated", spus.saturated), ("cordoned", spus.cordoned))
    barred = ", ".join(f"{count} {name}" for name, count in inside if count)
    full = f" ({barred})" if barred else ""
    away = (("leaving", spus.leaving), ("offline", spus.offline))
    states = [f"{spus.online} online{full}", *(f"{count} {name}" for name, count in away if count)]
    chains = [f"{order} {index}" for order, index in cluster.chain_indexes.items() if index]
    counts = (
        ("create", cluster.waiting_creates),
        ("repair", cluster.waiting_repairs),
        ("short list", cluster.short_lists),
    )
    waits = [f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts if count]
    lines = {
        "  SPUs": f"{', '.join(states)}; ring of {cluster.ring_size}, {cluster.racks} racks",
        "  topics": f"{cluster.topics} with {cluster.partitions} partitions; "
        f"{cluster.replicas} of {cluster.capacity} slots",
        "  on an SPU": f"{_spread(cluster.replicas_per_spu)} replicas, "
        f"{_spread(cluster.leaders_per_spu)} leaders, "
        f"{_spread(cluster.off_fair_share, sign='+')} off its fair share",
        "  chains": ", ".join(chains) or "all 0",
        "  waiting": ", ".join(waits) or "nothing",
    }
    return Text("\n").append(_lines({cluster.cluster_id: "", **lines}))


def _details(detail: ClusterDetail) -> Iterator[RenderableType]:
    yield _table("racks", detail.racks, _RACKS)
    has_resources = any(each.resources or each.resources_used for each in detail.spus)
    has_taints = any(each.taints for each in detail.spus)
    columns = {
        **_SPUS,
        **(_RESOURCES if has_resources else {}),
        **(_TAINTS if has_taints else {}),
    }
    yield _table("SPUs", detail.spus, columns)
    yield _table("topics", detail.topics, _TOPICS)
    if detail.waiting:
        yield _table("waiting", detail.waiting, _WAITING)
    lists = sum(each.partitions for each in detail.topics)
    yield Text(f"\n{detail.lists_on_distinct_racks} of {lists} replica lists are on distinct racks")


def _topic(found: TopicMap | None, detail: ClusterDetail, asked: str) -> Iterator[RenderableType]:
    if found is not None:
        about = found.summary
        changed = f", changed by {', '.join(about.grown_by)}" if about.grown_by else ""
        short = f", {about.short_lists} short" if about.short_lists else ""
        rules = "" if about.constraints is None else "; ".join(rule_texts(about.constraints))
        lines = {
            "topic": about.topic,
            "policy": about.policy
            + (", racks ignored" if about.ignore_rack else "")
            + (", pinned" if about.pinned else ""),
            "revision": f"{about.revision}",
            "created by": f"event hash {about.created_by}{changed}",
            **({"demand": _demand(about)} if about.demand or about.leader_demand else {}),
            **({"constraints": rules} if rules else {}),
            "lists": f"{about.partitions} of {about.replication_factor} replicas asked for{short}",
        }
        yield Text("\n").append(_lines(lines))
    waiting = [each for each in detail.waiting if each.topic == asked]
    if waiting:
        yield _table("waiting", waiting, _WAITING)
    if found is None:
        return
    lists, cores = found.lists, found.cores
    racks = {each.spu_id: each.rack or "-" for each in detail.spus}
    columns: dict[str, Callable[[int], object]] = {
        "#partition": lambda partition: partition,
        "replicas, leader first": lambda partition: ", ".join(map(str, lists[partition])),
    }
    if any(each.rack is not None for each in detail.spus):
        columns["on racks"] = lambda partition: ", ".join(
            racks.get(spu_id, "-") for spu_id in lists[partition]
        )
    if cores is not None:
        columns["on cores"] = lambda partition: ", ".join(map(str, cores[partition]))
    yield _table("map", range(len(lists)), columns)


def _demand(about: TopicSummary) -> str:
    pairs = (f"{name} {amount}" for name, amount in about.demand.items())
    of_leaders = (f"{name} {amount}" for name, amount in about.leader_demand.items())
    leaders = ", ".join(of_leaders)
    return (", ".join(pairs) or "nothing") + (f"; a leader {leaders}" if leaders else "")


def _lines(lines: Mapping[str, str]) -> Text:
    pairs = (f"{printable(name):<12} {printable(value)}" for name, value in lines.items())
    return Text("\n".join(pair.rstrip() for pair in pairs))


def _table(title: str, items: Sequence[Any], columns: Columns) -> Table:
    table = Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        caption=_more(len(items)) if len(items) > ROWS_SHOWN else None,
        caption_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    for heading in columns:
        justify: Any = "right" if heading.startswith("#") else "left"
        table.add_column(heading.removeprefix("#"), justify=justify, overflow="fold")
    for item in items[:ROWS_SHOWN]:
        cells = (
            getattr(item, column) if isinstance(column, str) else column(item)
            for column in columns.values()
        )
        # Text, not markup: brackets in a name are brackets.
        table.add_row(*(Text("-" if cell is None else printable(str(cell))) for cell in cells))
    return table


def _more(count: int) -> str:
    return f"… {count - ROWS_SHOWN} more (all with --output json)"


def _spread(spread: Spread | None, sign: str = "") -> str:
    if spread is None:
        return "-"
    return " to ".join(
        f"{each:{sign}.2f}".rstrip("0").rstrip(".") for each in (spread.least, spread.most)
    )
