"""What `whatif` reports, for people: lines and tables.

No cell is ever cut: what is wide is folded. A table of many rows ends with a line that says how
many more there are; the JSON has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.table import Table
from rich.text import Text
from spu_assigner.stream.clusters.whatif.report import (
    FailureReport,
    LeaderSpread,
    RecreatedReplicas,
    ResourceAfter,
    SpuAfter,
    WhatifReport,
)
from spu_assigner.stream.common.printable import counted, listed, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

ROWS_SHOWN: Final = 100  # of one table: some screens

# A heading (one that begins with # is of numbers), and what its cells show.
_Columns = Mapping[str, Callable[[Any], str]]


def _change(before: object, after: object) -> str:
    return str(after) if before == after else f"{before} → {after}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _dominant(spu: SpuAfter) -> str:
    """Before and after the failover, and of what it is then; of a failed one before."""
    if spu.dominant is None:
        return _percent(spu.dominant_before)
    text = _change(_percent(spu.dominant_before), _percent(spu.dominant))
    return f"{text} {spu.dominant_resource or 'slots'}"


_SPUS: Final[_Columns] = {
    "#SPU": lambda each: str(each.spu_id),
    "rack": lambda each: "" if each.rack is None else printable(each.rack),
    "state": lambda each: each.state,
    "#leaders": lambda each: _change(f"{each.leaders_before:,}", f"{each.leaders:,}"),
    "#slots": lambda each: f"{each.capacity:,}",
    "#replicas": lambda each: f"{each.replicas:,}",
    "#used": lambda each: _percent(each.share),
}
_RESOURCES: Final[_Columns] = {
    "#dominant share": _dominant,
    "exceeds": lambda each: ", ".join(
        name
        for name, amount in each.resources.items()
        if amount.after > max(amount.capacity, amount.before)
    ),
}


def pieces(report: WhatifReport) -> Iterator[RenderableType]:
    """The whole answer, piece by piece."""
    before = report.before
    lines = {
        "cluster": f"{report.cluster_id}, from {report.source}",
        "SPUs": f"{before.online:,} of {before.spus:,} online",
        "partitions": f"{before.partitions:,} with {before.replicas:,} replicas; "
        f"{before.lost:,} without an online replica already, "
        f"{before.under_replicated:,} under-replicated already",
    }
    if report.sweep is not None:
        sweep = report.sweep
        lines["cases"] = (
            f"{sweep.cases:,} ({report.fail}): {sweep.losing:,} lose partitions, "
            f"{sweep.over_capacity:,} leave replicas without a slot"
        )
        if report.failure.resources:
            lines["cases"] += f", {sweep.over_resources:,} put SPUs over capacity"

    yield _lines(lines)
    if report.sweep is not None:
        yield Text("The worst case\n")
    yield _lines(_failure(report.failure, before.leaders))
    # SPUs with the largest shares and those that gain leaders come first: a long table is cut.
    spus = report.failure.spus
    if len(spus) > ROWS_SHOWN:
        spus = sorted(spus, key=_interest)
    columns = {**_SPUS, **(_RESOURCES if report.failure.resources else {})}
    yield _table(columns, spus[:ROWS_SHOWN])
    if len(spus) > ROWS_SHOWN:
        yield Text(f"… {len(spus) - ROWS_SHOWN:,} more (-o json has all)")


def _interest(spu: SpuAfter) -> tuple[float, int, int]:
    return -(spu.dominant or 0.0), spu.leaders_before - spu.leaders, spu.spu_id


def _failure(failure: FailureReport, before: LeaderSpread) -> dict[str, str]:
    after, recreate = failure.leaders, failure.recreate
    lost = "none"
    if failure.lost:
        names = [f"{each.topic}/{each.partition}" for each in failure.lost_partitions]
        lost = f"{counted(failure.lost, 'partition')}: {listed(names)}"
    return {
        "fails": _what_fails(failure),
        "lose leader": counted(failure.leaders_lost, "partition"),
        "under-replicated": counted(failure.under_replicated, "partition"),
        "lost": lost,
        "leaders of an SPU": (
            f"before: most {before.most:,}, mean {before.mean:,.2f}; "
            f"after: most {after.most:,}, mean {after.mean:,.2f}"
        ),
        "to re-create": _recreated(recreate),
        "SPUs to add": _to_add(recreate),
        **({"over capacity": _over(failure)} if failure.resources else {}),
        **{each.resource: _needed(each) for each in failure.resources},
    }


def _what_fails(failure: FailureReport) -> str:
    """The SPUs of a failure, with their racks where all of a rack fail."""
    text = _spus(failure.failed)
    if failure.racks:
        name = "rack" if len(failure.racks) == 1 else "racks"
        text += f" (all of {name} {printable(listed(failure.racks))})"
    return text


def _spus(spu_ids: Sequence[int]) -> str:
    if not spu_ids:
        return "no SPU that is online"
    return f"SPU{'' if len(spu_ids) == 1 else 's'} {listed(spu_ids)}"


def _recreated(recreate: RecreatedReplicas) -> str:
    text = counted(recreate.replicas, "replica")
    text += f"; the other SPUs have {counted(recreate.free_slots, 'free slot')}"
    if recreate.without_slot:
        text += f"; no slot for at least {recreate.without_slot:,}"
    return text


def _over(failure: FailureReport) -> str:
    over = [f"{_spus(each.over)} of {each.resource}" for each in failure.resources if each.over]
    return "; ".join(over) or "no SPU"


def _needed(each: ResourceAfter) -> str:
    """What is needed of a resource, and what is there."""
    text = f"{each.needed:,} needed; the other SPUs have {each.free:,} left"
    if each.spus_to_add is None:
        return f"{text}; most SPUs have none of it, so that adding such would not do"
    if each.spus_to_add:
        spus = counted(each.spus_to_add, "SPU")
        return f"{text}; at least {spus} with {each.added_capacity:,} each to add"
    return text


def _to_add(recreate: RecreatedReplicas) -> str:
    if recreate.spus_to_add is None:
        return "none would do: an added SPU would have no slot (see --added-capacity)"
    if not recreate.spus_to_add:
        return "none"
    slots = counted(recreate.added_capacity, "slot")
    return f"at least {recreate.spus_to_add:,} with {slots} each"


def _lines(lines: Mapping[str, str]) -> Text:
    width = max(map(len, lines)) + 2
    return Text("".join(f"{name:<{width}}{printable(text)}\n" for name, text in lines.items()))


def _table(columns: _Columns, rows: Sequence[object]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in columns:
        is_number = heading.startswith("#")
        table.add_column(
            heading.removeprefix("#"), justify="right" if is_number else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(cell(row)) for cell in columns.values()))
    return table
