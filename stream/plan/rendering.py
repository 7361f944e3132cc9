"""A plan for people: a line for each topic that is not as mapped, and its lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.plan.model import (
    GONE,
    GONE_FACT,
    GONE_FIX,
    ChangeKind,
    Row,
    TopicChange,
    TopicReason,
    TopicSize,
    TopicsPlan,
    row_text,
)

ROWS_SHOWN_MAX: Final = 16  # of a topic; JSON has all
_SIGNS: Final = {ChangeKind.CREATE: "+", ChangeKind.CHANGE: "~", ChangeKind.DELETE: "-"}
REASSIGN: Final = "kafka-reassign-partitions"
FIRST_SEEN: Final = (
    "exists in Kafka and was not made by apply; it is as mapped: the next apply records it as "
    "found, and never deletes it"
)
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNIT: Final = 1_024


def plan_lines(plan: TopicsPlan) -> Iterator[str]:
    """The diff, and its summary."""
    for change in plan.changes:
        yield f"{_SIGNS[change.kind]} {change.topic}  {_about(change)}"
        rows = list(_rows(change))
        yield from rows[:ROWS_SHOWN_MAX]
        if len(rows) > ROWS_SHOWN_MAX:
            yield f"    … {len(rows) - ROWS_SHOWN_MAX} more (--json has all)"
    yield from _refused_lines(plan.refused)
    for topic in plan.first_seen:
        yield f"! {topic}  {FIRST_SEEN}"
    yield from _reason_lines("?", plan.waiting)
    for topic in plan.deletable:
        yield f". {topic}  is mapped no more; --delete deletes it"
    yield from _reason_lines(".", plan.staying)
    if plan.unchanged:
        yield f"= {counted(len(plan.unchanged), 'topic')} as mapped"
    yield summary(plan)


def summary(plan: TopicsPlan) -> str:
    """One line."""
    parts = [
        f"{len(plan.of(ChangeKind.CREATE))} to create",
        f"{len(plan.of(ChangeKind.CHANGE))} to change",
        f"{len(plan.of(ChangeKind.DELETE))} to delete",
    ]
    if plan.refused:
        parts.append(f"{len(plan.refused)} that cannot be made as mapped")
    if plan.first_seen:
        parts.append(f"{len(plan.first_seen)} not made by apply")
    if plan.waiting:
        parts.append(f"{len(plan.waiting)} waiting")
    nothing = "" if plan.changes else "nothing to do: "
    return f"{nothing}{', '.join(parts)}"


def counted(count: int, what: str) -> str:
    """A number of things."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def deletion(change: TopicChange) -> str:
    """What is lost with a topic."""
    partitions = counted(len(change.before), "partition")
    return partitions if change.size is None else f"{partitions}, {size_text(change.size)}"


def size_text(size: TopicSize) -> str:
    """Records, and bytes where they are known."""
    records = counted(size.records, "record")
    return records if size.size_bytes is None else f"{records}, {bytes_text(size.size_bytes)}"


def bytes_text(size: int) -> str:
    """A number of bytes in the largest unit that leaves a whole number before the point."""
    value, unit = float(size), 0
    while value >= _UNIT and unit < len(_UNITS) - 1:
        value, unit = value / _UNIT, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def _about(change: TopicChange) -> str:
    if change.kind is ChangeKind.DELETE:
        return deletion(change)
    if change.kind is ChangeKind.CREATE:
        width = len(change.after[0])
        again = "" if change.gone_id is None else f" ({GONE_FACT})"
        return f"{counted(len(change.after), 'partition')} of {counted(width, 'replica')}{again}"
    parts = []
    if change.added:
        parts.append(f"{len(change.before)} → {len(change.after)} partitions")
    if change.moves:
        parts.append(f"{counted(len(change.moves), 'partition')} to move with {REASSIGN}")
    if change.moving:
        parts.append(f"{counted(len(change.moving), 'partition')} being moved by Kafka")
    return ", ".join(parts)


def _rows(change: TopicChange) -> Iterator[str]:
    if change.kind is ChangeKind.DELETE:
        return
    for number, after in enumerate(change.after):
        if number >= len(change.before):
            yield f"    + {number}  {row_text(after)}"
        elif number in change.moving:
            yield f"    ~ {number}  {_move(change.before[number], after)}, in progress"
        elif change.before[number] != after:
            yield f"    ~ {number}  {_move(change.before[number], after)}"


def _move(before: Row, after: Row) -> str:
    return f"{row_text(before)} → {row_text(after)}"


def _reason_lines(sign: str, listed: tuple[TopicReason, ...]) -> Iterator[str]:
    for each in listed:
        yield f"{sign} {printable(each.topic)}  {printable(each.reason)}"


def _refused_lines(refused: tuple[TopicReason, ...]) -> Iterator[str]:
    """A topic that is gone would be created, so it has that sign, but is only on request."""
    for each in refused:
        if each.reason == GONE:
            yield f"+ {printable(each.topic)}  ({GONE_FACT}): {GONE_FIX}"
        else:
            yield from _reason_lines("!", (each,))
