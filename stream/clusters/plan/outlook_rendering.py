"""What a plan means for the brokers, for people: lines with a table.

It fits any width: cells are folded, never cut.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from spu_assigner.stream.clusters.plan.outlook import BrokerOutlook, PlanOutlook
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.common.quantities import bytes_text, duration_text

if TYPE_CHECKING:
    from rich.table import Table

BROKERS_SHOWN_MAX: Final = 100  # of the table; -o json has all
TABLE_WIDTH_MIN: Final = 60  # below, rich leaves out columns that have no room
DESCRIBE_RIGHT: Final = "brokers report them to users who may Describe the cluster"


def outlook_lines(outlook: PlanOutlook, *, width: int | None) -> Iterator[str]:
    """What is copied, how long that takes, and each broker before and after; nothing: no lines.

    Args:
        width: of the table; None: the terminal's.
    """
    if not outlook.has_change:
        return
    if outlook.replicas_to_copy:
        yield copy_text(outlook)
    yield from load_lines(outlook.brokers, width=width)


def load_lines(brokers: Sequence[BrokerOutlook], *, width: int | None) -> Iterator[str]:
    """Each broker before and after.

    Args:
        width: of the table; None: the terminal's.
    """
    from rich.console import Console

    text = io.StringIO()
    console = Console(file=text, width=width, highlight=False, color_system=None)
    if console.width < TABLE_WIDTH_MIN:
        yield from _narrow_lines(brokers, console.width)
        return
    console.print(_table(brokers))
    yield from (line.rstrip() for line in text.getvalue().splitlines())
    yield from _more_lines(brokers)


def _narrow_lines(brokers: Sequence[BrokerOutlook], width: int) -> Iterator[str]:
    """The table where its columns have no room side by side: a line for each cell."""
    for broker in brokers[:BROKERS_SHOWN_MAX]:
        for heading, cell in _COLUMNS.items():
            indent = "" if heading == "broker" else "  "
            yield from wrap(f"{indent}{heading} {cell(broker)}", max(width, 12))
    yield from _more_lines(brokers)


def _more_lines(brokers: Sequence[BrokerOutlook]) -> Iterator[str]:
    more = len(brokers) - BROKERS_SHOWN_MAX
    if more > 0:
        yield f"… {more} more (-o json has all)"


def last_lines(outlook: PlanOutlook) -> list[str]:
    """What else is to be known of topics that need nothing, and of those without a map."""
    lines = (
        *(f"no topic matches --topics {each}; check it" for each in outlook.unmatched),
        reassigned_line(outlook),
        out_of_sync_line(outlook),
        unmapped_line(outlook),
        *unseen_lines(outlook),
    )
    return [line for line in lines if line is not None]


def unseen_lines(outlook: PlanOutlook) -> Iterator[str]:
    """What was left out since this user may not see it."""
    counted_so = ", and counted above without leaders" if outlook.has_change else ""
    return outlook.unseen.lines(f"not compared with any map{counted_so}")


def unmapped_line(outlook: PlanOutlook) -> str | None:
    """How many topics `adopt` would take in; None: every topic has a map."""
    count = len(outlook.unmapped)
    if not count:
        return None
    if count == 1:
        return "1 topic in Kafka has no map (adopt takes it in)"
    return f"{count} topics in Kafka have no map (adopt takes them in)"


def reassigned_line(outlook: PlanOutlook) -> str | None:
    """Whose moves would take back what somebody else has done; None: none would."""
    if not outlook.reassigned:
        return None
    was = "was" if len(outlook.reassigned) == 1 else "were"
    return (
        f"{listed(outlook.reassigned)} {was} adopted, and then reassigned in Kafka by others: "
        "`adopt` takes over what Kafka has now, `apply --moves` moves it back"
    )


def out_of_sync_line(outlook: PlanOutlook) -> str | None:
    """What is as mapped and not whole yet; None: all is."""
    found = outlook.out_of_sync
    if not found:
        return None
    has = "has its list" if sum(found.values()) == 1 else "have their lists"
    return (
        f"{counted(sum(found.values()), 'partition')} of {listed(list(found))} {has} and a replica "
        "that is not in sync: Kafka still copies it, or its broker is down"
    )


def copy_text(outlook: PlanOutlook) -> str:
    """How much is copied, and how long it takes at least."""
    parts = [f"{counted(outlook.replicas_to_copy, 'replica')} to copy"]
    unsized = outlook.replicas_unsized
    if unsized == outlook.replicas_to_copy:
        return f"{parts[0]}; how many bytes is not known: {DESCRIBE_RIGHT}"
    parts.append(bytes_text(outlook.bytes_to_copy))
    if outlook.bytes_being_copied:
        parts.append(
            f"{bytes_text(outlook.bytes_being_copied)} of it by moves that Kafka has begun"
        )
    if unsized:
        parts.append(f"without {unsized:,} whose bytes no broker reports")
    text = ", ".join(parts)
    if outlook.throttle is None or outlook.seconds is None:
        return text
    return (
        f"{text}; {bytes_text(outlook.bytes_most)} to or from the busiest broker: at least "
        f"{duration_text(outlook.seconds)} at {bytes_text(outlook.throttle)}/s"
    )


def arrow(before: str, after: str) -> str:
    """A value before and after, once where it stays."""
    return before if before == after else f"{before} → {after}"


def _bytes(size: int | None) -> str:
    return "?" if size is None else bytes_text(size)


_COLUMNS: Final[dict[str, Callable[[BrokerOutlook], str]]] = {
    "broker": lambda each: str(each.broker),
    "replicas": lambda each: arrow(f"{each.before.replicas:,}", f"{each.after.replicas:,}"),
    "leaders": lambda each: arrow(f"{each.before.leaders:,}", f"{each.after.leaders:,}"),
    "bytes": lambda each: arrow(_bytes(each.before.size_bytes), _bytes(each.after.size_bytes)),
    "in": lambda each: _bytes(each.bytes_in),
    "out": lambda each: _bytes(each.bytes_out),
}


def _table(brokers: Sequence[BrokerOutlook]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in _COLUMNS:
        table.add_column(heading, justify="right", overflow="fold")
    for broker in brokers[:BROKERS_SHOWN_MAX]:
        table.add_row(*(cell(broker) for cell in _COLUMNS.values()))
    return table
