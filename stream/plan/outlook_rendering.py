"""What a plan means for the brokers, for people: lines with a table, or a page of HTML.

A table fits any width: cells are folded, never cut. The page needs nothing but itself; its template
escapes what is foreign.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from spu_assigner.stream.common.printable import counted, listed, printable
from spu_assigner.stream.common.quantities import bytes_text, duration_text
from spu_assigner.stream.plan.model import TopicsPlan
from spu_assigner.stream.plan.outlook import BrokerOutlook, PlanOutlook

if TYPE_CHECKING:
    from rich.table import Table

BROKERS_SHOWN_MAX: Final = 100  # of the table; --json has all
TABLE_WIDTH_MIN: Final = 60  # below, rich leaves out columns that have no room
LINES_DRAWN_MAX: Final = 5_000  # of the plan in the page, some megabytes
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
        yield f"… {more} more (--json has all)"


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


def outlook_page(plan: TopicsPlan, outlook: PlanOutlook, lines: Sequence[str]) -> str:
    """A page that shows the plan and the load of brokers before and after it.

    Args:
        lines: the plan's, as a terminal shows them.
    """
    from jinja2 import Environment, PackageLoader

    templates = Environment(
        loader=PackageLoader("spu_assigner.stream.plan"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("outlook.html").render(
        cluster_id=printable(plan.cluster_id),
        kafka_id=printable(plan.kafka_id),
        copies=copy_text(outlook) if outlook.replicas_to_copy else "No replica is to be copied",
        charts=_charts(outlook.brokers),
        columns=_COLUMNS,
        brokers=outlook.brokers,
        lines=[printable(line) for line in lines[:LINES_DRAWN_MAX]],
        more=max(0, len(lines) - LINES_DRAWN_MAX),
    )


def _charts(brokers: Sequence[BrokerOutlook]) -> list[dict[str, Any]]:
    """Bars of what each broker holds: by measure, the most and each broker's before and after."""
    measures: dict[str, tuple[Callable[[BrokerOutlook], tuple[int | None, int | None]], Any]] = {
        "replicas": (lambda each: (each.before.replicas, each.after.replicas), "{:,}".format),
        "leaders": (lambda each: (each.before.leaders, each.after.leaders), "{:,}".format),
        "bytes": (lambda each: (each.before.size_bytes, each.after.size_bytes), bytes_text),
    }
    charts = []
    for name, (pair, text) in measures.items():
        pairs = [(each.broker, *pair(each)) for each in brokers]
        most = max((value or 0 for _, *values in pairs for value in values), default=0)
        rows = [
            {
                "broker": broker,
                "bars": [
                    {
                        "kind": kind,
                        "percent": round(100 * (value or 0) / most, 2) if most else 0,
                        "text": "not known" if value is None else text(value),
                    }
                    for kind, value in (("before", before), ("after", after))
                ],
            }
            for broker, before, after in pairs
        ]
        charts.append({"name": name, "rows": rows})
    return charts
