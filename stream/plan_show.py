"""A plan for people: a line for each topic that is not as mapped, and its lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spu_assigner.stream.plan_model import Change, Kind, Plan, Row, Told
from spu_assigner.stream.printable import printable

ROWS_SHOWN_MAX: Final = 16  # of a topic; JSON has all
_SIGNS: Final = {Kind.CREATE: "+", Kind.CHANGE: "~", Kind.DELETE: "-"}
REASSIGN: Final = "kafka-reassign-partitions"


def plan_lines(plan: Plan) -> Iterator[str]:
    """The diff, and its summary."""
    for change in plan.changes:
        yield f"{_SIGNS[change.kind]} {change.topic}  {_about(change)}"
        rows = list(_rows(change))
        yield from rows[:ROWS_SHOWN_MAX]
        if len(rows) > ROWS_SHOWN_MAX:
            yield f"    … {len(rows) - ROWS_SHOWN_MAX} more (--json has all)"
    yield from _told("!", plan.refused)
    yield from _told("?", plan.waiting)
    for topic in plan.deletable:
        yield f". {topic}  is mapped no more; --delete deletes it"
    if plan.unchanged:
        yield f"= {counted(len(plan.unchanged), 'topic')} as mapped"
    yield summary(plan)


def summary(plan: Plan) -> str:
    """One line."""
    parts = [
        f"{len(plan.of(Kind.CREATE))} to create",
        f"{len(plan.of(Kind.CHANGE))} to change",
        f"{len(plan.of(Kind.DELETE))} to delete",
    ]
    if plan.refused:
        parts.append(f"{len(plan.refused)} that cannot be made as mapped")
    if plan.waiting:
        parts.append(f"{len(plan.waiting)} waiting")
    nothing = "" if plan.changes else "nothing to do: "
    return f"{nothing}{', '.join(parts)}"


def counted(count: int, what: str) -> str:
    """A number of things."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _about(change: Change) -> str:
    if change.kind is Kind.DELETE:
        return counted(len(change.before), "partition")
    if change.kind is Kind.CREATE:
        width = len(change.after[0])
        return f"{counted(len(change.after), 'partition')} of {counted(width, 'replica')}"
    parts = []
    if change.added:
        parts.append(f"{len(change.before)} → {len(change.after)} partitions")
    if change.moves:
        parts.append(f"{counted(len(change.moves), 'partition')} to move with {REASSIGN}")
    if change.moving:
        parts.append(f"{counted(len(change.moving), 'partition')} being moved by Kafka")
    return ", ".join(parts)


def _rows(change: Change) -> Iterator[str]:
    if change.kind is Kind.DELETE:
        return
    for number, after in enumerate(change.after):
        if number >= len(change.before):
            yield f"    + {number}  {_row(after)}"
        elif number in change.moving:
            yield f"    ~ {number}  {_row(change.before[number])} → {_row(after)}, in progress"
        elif change.before[number] != after:
            yield f"    ~ {number}  {_row(change.before[number])} → {_row(after)}"


def _told(sign: str, listed: tuple[Told, ...]) -> Iterator[str]:
    for told in listed:
        yield f"{sign} {printable(told.topic)}  {printable(told.reason)}"


def _row(row: Row) -> str:
    return f"[{', '.join(map(str, row))}]"
