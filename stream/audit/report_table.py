"""The report of a cluster as tables for people: its fields by their names in JSON.

No cell is ever cut: what is wide is folded. A table of many rows ends with a line that says how
many more there are; the JSON has them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.table import Table
from rich.text import Text
from spu_assigner.core.base.constraints import Constraints, Taint
from spu_assigner.stream.audit.cluster_report import Report
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.common.rule_texts import rule_texts, taint_text

if TYPE_CHECKING:
    from rich.console import RenderableType

ROWS_SHOWN: Final = 100  # of one table: some screens
_SPU_FIELDS: Final = (
    *("spu_id", "rack", "state", "cordoned", "demoted", "capacity", "replicas", "share_used"),
    *("fair_share", "leaders", "cores", "resources_used", "dominant_share", "dominant_resource"),
    "taints",
)
_APART: Final = ("detail", "topic")  # have tables of their own
_TOPIC_FIELDS: Final = (
    *("topic", "policy", "revision", "partitions", "replication_factor", "replicas"),
    *("short_lists", "is_waiting", "pinned"),
)


def tables(report: Report, *, asked_topic: str | None = None) -> Iterator[RenderableType]:
    """The whole report, piece by piece."""
    clusters = report["clusters"]
    if not clusters:
        yield Text("There is no cluster yet.")
    for cluster in clusters[:ROWS_SHOWN]:
        yield Text()
        yield _lines({name: each for name, each in cluster.items() if name not in _APART})
        if (detail := cluster["detail"]) is None:
            continue
        if asked_topic is None:
            yield _table("racks", detail["racks"])
            yield _table("spus", detail["spus"], _SPU_FIELDS)
            yield _table("topics", detail["topics"], _TOPIC_FIELDS)
        if cluster["topic"] is not None:
            yield from _map(cluster["topic"], detail["spus"])
        waiting = [each for each in detail["waiting"] if asked_topic in (None, each["topic"])]
        if waiting:
            yield _table("waiting", waiting)
    if len(clusters) > ROWS_SHOWN:
        yield Text(f"\n{_more(len(clusters))}")


def _map(found: Report, spus: Sequence[Report]) -> Iterator[RenderableType]:
    yield Text()
    yield _lines(found["summary"])
    racks = {each["spu_id"]: each["rack"] for each in spus if each["rack"] is not None}
    rows = [
        {
            "partition": number,
            "replicas": replicas,
            "racks": [racks.get(each, "-") for each in replicas] if racks else (),
            "cores": found["cores"][number] if found["cores"] else (),
        }
        for number, replicas in enumerate(found["lists"])
    ]
    yield _table("map", rows)


def _lines(values: Mapping[str, Any]) -> Text:
    """A field a line, without those that say nothing."""
    pairs = (f"{name:<18} {_text(each)}" for name, each in values.items() if not _is_empty(each))
    return Text("\n".join(pair.rstrip() for pair in pairs))


def _table(title: str, rows: Sequence[Report], fields: Sequence[str] = ()) -> Table:
    """Rows with these fields, or all, of which some row has something to say."""
    table = Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        caption=_more(len(rows)) if len(rows) > ROWS_SHOWN else None,
        caption_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    names = fields or (tuple(rows[0]) if rows else ())
    shown = [name for name in names if not all(_is_empty(each[name]) for each in rows)]
    for name in shown:
        is_number = all(isinstance(each[name], int | float | None) for each in rows)
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows[:ROWS_SHOWN]:
        # Text, not markup: brackets in a name are brackets.
        table.add_row(*(Text(_text(row[name])) for name in shown))
    return table


def _is_empty(value: Any) -> bool:
    return value is None or value is False or value in ((), [], {}, "")


def _text(value: Any) -> str:
    """A value in a word; foreign text cannot move the cursor."""
    match value:
        case None | False:
            return "-"
        case True:
            return "yes"
        case float():
            return f"{value:.2f}".rstrip("0").rstrip(".")
        case Taint():
            return printable(taint_text(value))
        case Constraints():
            return printable("; ".join(rule_texts(value)))
        case Mapping():
            return ", ".join(f"{_text(name)} {_text(each)}" for name, each in value.items()) or "-"
        case list() | tuple():
            return ", ".join(map(_text, value)) or "-"
        case _:
            return printable(str(value))


def _more(count: int) -> str:
    return f"… {count - ROWS_SHOWN} more (all with --output json)"
