"""What `plan` and `apply` print, for people and for programs."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, Literal, TypeVar

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from spu_assigner.stream.clusters.moves.status import MovesReport
from spu_assigner.stream.clusters.plan.model import (
    AppliedPlan,
    BrokerLoad,
    ChangeKind,
    PlanLoad,
    TopicChange,
    TopicReason,
    TopicsPlan,
)
from spu_assigner.stream.common.printable import counted, listed, printable
from spu_assigner.stream.common.quantities import bytes_text

_T = TypeVar("_T")

ROWS_SHOWN_MAX: Final = 16  # of a topic; JSON has all
MOVER: Final = "`apply --moves`"
FIRST_SEEN: Final = (
    "exists in Kafka and was not made by apply; it is as mapped: the next apply records it as "
    "found, and never deletes it"
)
_SIGNS: Final = {ChangeKind.CREATE: "+", ChangeKind.CHANGE: "~", ChangeKind.DELETE: "-"}
_DONE: Final = {
    ChangeKind.CREATE: "created",
    ChangeKind.CHANGE: "grown",
    ChangeKind.DELETE: "deleted",
}


def plan_lines(plan: TopicsPlan, *, width: int | None = None) -> Iterator[str]:
    """Lines for topics that are not as mapped, what it costs, the sum; a table of this width."""
    for change in plan.changes:
        yield f"{_SIGNS[change.kind]} {change.topic}  {_about(change)}"
        rows = list(_rows(change))
        yield from rows[:ROWS_SHOWN_MAX]
        if len(rows) > ROWS_SHOWN_MAX:
            yield f"    … {len(rows) - ROWS_SHOWN_MAX} more (-o json has all)"
    yield from _reason_lines("!", plan.refused)
    for topic in plan.first_seen:
        yield f"! {topic}  {FIRST_SEEN}"
    yield from _reason_lines("?", plan.waiting)
    for topic in plan.deletable:
        yield f". {topic}  is mapped no more; --delete deletes it"
    yield from _reason_lines(".", plan.staying)
    if plan.unchanged:
        yield f"= {counted(len(plan.unchanged), 'topic')} as mapped"
    has_load = bool(plan.changes and plan.load.brokers)
    if has_load:
        if plan.load.replicas_to_copy:
            yield copy_text(plan.load)
        yield from load_lines(plan.load.brokers, width=width)
    others = {
        "that cannot be made as mapped": plan.refused,
        "not made by apply": plan.first_seen,
        "waiting": plan.waiting,
    }
    parts = [f"{len(plan.of(kind))} to {kind}" for kind in ChangeKind]
    parts += [f"{len(found)} {what}" for what, found in others.items() if found]
    yield ("" if plan.changes else "nothing to do: ") + ", ".join(parts)
    improvable = plan.improvable
    figures = (
        (improvable.few_racks, "list", " on fewer racks than the ring has"),
        (improvable.broken_rules, "list", " against a rule of the topic"),
        (improvable.one_leader, "topic", " led by one broker alone"),
        (plan.partitions_ahead, "partition", " not as mapped"),
    )
    if better := [f"{counted(count, what)}{so}" for count, what, so in figures if count]:
        yield f"could be better: {', '.join(better)}"
    for each in plan.unmatched:
        yield f"no topic matches --topics {each}; check it"
    if plan.reassigned:
        was = "was" if len(plan.reassigned) == 1 else "were"
        yield (
            f"{listed(plan.reassigned)} {was} adopted, and then reassigned in Kafka by others: "
            "`adopt` takes over what Kafka has now, `apply --moves` moves it back"
        )
    if count := len(plan.unmapped):
        has, them = ("has", "it") if count == 1 else ("have", "them")
        yield f"{counted(count, 'topic')} in Kafka {has} no map (adopt takes {them} in)"
    counted_so = ", and counted above without leaders" if has_load else ""
    yield from plan.unseen.lines(f"not compared with any map{counted_so}")


def _about(change: TopicChange) -> str:
    """What a change does."""
    if change.kind is ChangeKind.DELETE:
        return deletion_text(change)
    if change.kind is ChangeKind.CREATE:
        width = len(change.after[0])
        again = "" if change.gone_id is None else ", again: its data are gone"
        return f"{counted(len(change.after), 'partition')} of {counted(width, 'replica')}{again}"
    parts = []
    if change.added:
        parts.append(f"{len(change.before)} → {len(change.after)} partitions")
    if change.moves:
        parts.append(f"{counted(len(change.moves), 'partition')} to move by {MOVER}")
    if change.moving:
        parts.append(f"{counted(len(change.moving), 'partition')} being moved by Kafka")
    return ", ".join(parts)


def deletion_text(change: TopicChange, *, with_partitions: bool = True) -> str:
    """What is lost with a topic, as far as it is known."""
    parts = [counted(len(change.before), "partition")] if with_partitions else []
    if change.records is not None:
        parts.append(counted(change.records, "record"))
    if change.size_bytes is not None:
        parts.append(bytes_text(change.size_bytes))
    return ", ".join(parts)


def _rows(change: TopicChange) -> Iterator[str]:
    for number, after in enumerate(change.after):
        if number >= len(change.before):
            yield f"    + {number}  {list(after)}"
        elif change.before[number] != after:
            progress = ", in progress" if number in change.moving else ""
            yield f"    ~ {number}  {list(change.before[number])} → {list(after)}{progress}"


def _reason_lines(sign: str, reasons: Sequence[TopicReason]) -> Iterator[str]:
    for each in reasons:
        yield f"{sign} {printable(each.topic)}  {printable(each.reason)}"


def copy_text(load: PlanLoad) -> str:
    """How much is copied."""
    replicas = f"{counted(load.replicas_to_copy, 'replica')} to copy"
    if load.bytes_to_copy is None:
        return (
            f"{replicas}; how many bytes is not known: brokers report them to users who may "
            "Describe the cluster"
        )
    text = f"{replicas}, {bytes_text(load.bytes_to_copy)}"
    if load.replicas_unsized:
        text += f", without {load.replicas_unsized:,} whose bytes no broker reports"
    return text


def load_lines(brokers: Sequence[BrokerLoad], *, width: int | None) -> Iterator[str]:
    """A table of each broker before and after."""
    rows = (
        [
            str(each.broker),
            arrow_text(each.replicas_before, each.replicas_after, "{:,}".format),
            arrow_text(each.leaders_before, each.leaders_after, "{:,}".format),
            arrow_text(each.bytes_before, each.bytes_after, bytes_text),
            bytes_text(each.bytes_in),
            bytes_text(each.bytes_out),
        ]
        for each in brokers
    )
    headings = ("broker", "replicas", "leaders", "bytes", "in", "out")
    return table_lines(headings, rows, width=width)


def table_lines(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    words: Collection[str] = (),
    width: int | None,
) -> Iterator[str]:
    """A table of numbers, or of words in these columns; cells are folded, never cut."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in headings:
        justify: Literal["left", "right"] = "left" if heading in words else "right"
        table.add_column(heading, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    text = io.StringIO()
    Console(file=text, width=width, highlight=False, color_system=None).print(table)
    yield from (line.rstrip() for line in text.getvalue().splitlines())


def arrow_text(before: _T | None, after: _T | None, text: Callable[[_T], str]) -> str:
    """A value before and after, if it changes; None: it is not known."""
    was, now = ("?" if each is None else text(each) for each in (before, after))
    return was if was == now else f"{was} → {now}"


def moves_json(moves: MovesReport) -> dict[str, object]:
    """What became of moves, for programs."""
    return {
        "moved": [{"topic": topic, "partition": number} for topic, number in moves.moved],
        "not_moved": [
            {"topic": topic, "partition": number, "reason": reason}
            for (topic, number), reason in moves.failed.items()
        ],
        "moves_left": moves.left,
        "stopped": moves.stopped,
    }


def move_lines(moves: MovesReport) -> list[str]:
    """What was not moved, and what to do; a line each."""
    lines = [
        f"{printable(topic)}-{number}: {reason}" for (topic, number), reason in moves.failed.items()
    ]
    if moves.stopped is not None:
        what = f"stops with {counted(moves.left, 'partition')} to move"
        lines.append(f"{what}: {moves.stopped}; run again")
    return [*lines, *moves.throttles]


def done_line(change: TopicChange) -> str:
    """A change that was made."""
    what = deletion_text(change, with_partitions=False)
    if change.kind is ChangeKind.CREATE:
        what = counted(len(change.after), "partition")
    elif change.kind is ChangeKind.CHANGE:
        what = f"{len(change.before)} → {len(change.after)} partitions"
    return f"{_DONE[change.kind]:8} {change.topic}  {what}".rstrip()


def apply_lines(applied: AppliedPlan) -> Iterator[str]:
    """What else there is to know, and the sum."""
    plan = applied.plan
    for topic in applied.found:
        yield f"found    {topic}  as mapped; apply did not make it"
    for topic in applied.released:
        yield f"released {topic}  it stays in Kafka"
    for change in plan.changes:
        if change.moving:
            yield f"moving   {change.topic}  {counted(len(change.moving), 'partition')}, by Kafka"
    yield from _reason_lines("waiting ", plan.waiting)
    yield (
        f"{len(applied.created)} created, {len(applied.grown)} grown, {len(applied.deleted)} "
        f"deleted; {len(plan.unchanged)} as mapped before"
    )


def left_lines(applied: AppliedPlan) -> Iterator[str]:
    """What was not done, and what to do, moves that were asked for aside; a line each."""
    plan = applied.plan
    for failure in applied.failed:
        reason = printable(failure.reason).rstrip(".")
        yield f"{failure.topic}: was not {_DONE[failure.kind]}: {reason}; fix that and run again"
    for each in plan.refused:
        yield f"{each.topic}: {printable(each.reason)}"
    moves = [each for each in plan.changes if each.moves]
    if applied.moves is None and moves:
        count = sum(len(each.moves) for each in moves)
        what = f"{counted(count, 'partition')} of {listed([each.topic for each in moves])}"
        yield f"{what} {'is' if count == 1 else 'are'} to move: run {MOVER}"


def json_text(plan: TopicsPlan | AppliedPlan) -> str:
    """A plan for programs, and for its file, or what became of it."""
    return msgspec.json.encode(plan).decode()


def reassignment_text(plan: TopicsPlan) -> str:
    """What `kafka-reassign-partitions --reassignment-json-file` takes."""
    moves = [
        {"topic": each.topic, "partition": each.partition, "replicas": each.after}
        for each in plan.moved_partitions()
    ]
    return msgspec.json.encode({"version": 1, "partitions": moves}).decode()
