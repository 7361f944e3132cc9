"""The report of `whatif`, for people: lines and a table, of which no cell is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.table import Table
from rich.text import Text
from spu_assigner.stream.common.printable import counted, listed, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_Spu = Mapping[str, Any]  # of the report


def _change(before: object, after: object) -> str:
    return str(after) if before == after else f"{before} → {after}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _dominant(spu: _Spu) -> str:
    """Before and after the failover, and of what it is then; of a failed one before."""
    before, after = _percent(spu["dominant_before"]), _percent(spu["dominant"])
    return f"{_change(before, after)} {spu['dominant_resource'] or 'slots'}" if after else before


def _exceeded(spu: _Spu) -> str:
    amounts = spu["resources"].items()
    return ", ".join(
        name for name, each in amounts if each["after"] > max(each["capacity"], each["before"])
    )


# A heading (one that begins with # is of numbers), and what its cells show.
_SPUS: Final[Mapping[str, Callable[[_Spu], str]]] = {
    "#SPU": lambda each: str(each["spu_id"]),
    "rack": lambda each: "" if each["rack"] is None else printable(each["rack"]),
    "state": lambda each: str(each["state"]),
    "#leaders": lambda each: _change(f"{each['leaders_before']:,}", f"{each['leaders']:,}"),
    "#slots": lambda each: f"{each['capacity']:,}",
    "#replicas": lambda each: f"{each['replicas']:,}",
    "#used": lambda each: _percent(each["share"]),
}
_RESOURCES: Final = {"#dominant share": _dominant, "exceeds": _exceeded}


def pieces(report: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The whole answer, piece by piece."""
    before, sweep, failure = report["before"], report["sweep"], report["failure"]
    lines = {
        "cluster": f"{report['cluster_id']}, from {report['source']}",
        "SPUs": f"{before['online']:,} of {before['spus']:,} online",
        "partitions": f"{before['partitions']:,} with {before['replicas']:,} replicas; "
        f"{before['lost']:,} without an online replica already, "
        f"{before['under_replicated']:,} under-replicated already",
    }
    if sweep is not None:
        lines["cases"] = (
            f"{sweep['cases']:,} ({report['fail']}): {sweep['losing']:,} lose partitions, "
            f"{sweep['over_capacity']:,} leave replicas without a slot"
        )
        if failure["resources"]:
            lines["cases"] += f", {sweep['over_resources']:,} put SPUs over capacity"
    yield _lines(lines)
    if sweep is not None:
        yield Text("The worst case\n")
    yield _lines(_failure(failure, before["leaders"]))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    columns = {**_SPUS, **(_RESOURCES if failure["resources"] else {})}
    for heading in columns:
        justify = "right" if heading.startswith("#") else "left"
        table.add_column(heading.removeprefix("#"), justify=justify, overflow="fold")  # type: ignore[arg-type]  # one of rich's words
    for spu in failure["spus"]:
        table.add_row(*(Text(cell(spu)) for cell in columns.values()))
    yield table


def _failure(failure: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, str]:
    after, recreate, resources = failure["leaders"], failure["recreate"], failure["resources"]
    fails = _spus(failure["failed"])
    if racks := failure["racks"]:
        name = "rack" if len(racks) == 1 else "racks"
        fails += f" (all of {name} {printable(listed(racks))})"
    lost = "none"
    if failure["lost"]:
        names = [f"{each['topic']}/{each['partition']}" for each in failure["lost_partitions"]]
        lost = f"{counted(failure['lost'], 'partition')}: {listed(names)}"
    replicas, slots = recreate["replicas"], recreate["free_slots"]
    recreated = f"{counted(replicas, 'replica')}; the other SPUs have {counted(slots, 'free slot')}"
    if recreate["without_slot"]:
        recreated += f"; no slot for at least {recreate['without_slot']:,}"
    over = [f"{_spus(each['over'])} of {each['resource']}" for each in resources if each["over"]]
    return {
        "fails": fails,
        "lose leader": counted(failure["leaders_lost"], "partition"),
        "under-replicated": counted(failure["under_replicated"], "partition"),
        "lost": lost,
        "leaders of an SPU": (
            f"before: most {before['most']:,}, mean {before['mean']:,.2f}; "
            f"after: most {after['most']:,}, mean {after['mean']:,.2f}"
        ),
        "to re-create": recreated,
        "SPUs to add": _to_add(recreate),
        **({"over capacity": "; ".join(over) or "no SPU"} if resources else {}),
        **{each["resource"]: _needed(each) for each in resources},
    }


def _spus(spu_ids: Sequence[int]) -> str:
    if not spu_ids:
        return "no SPU that is online"
    return f"SPU{'' if len(spu_ids) == 1 else 's'} {listed(spu_ids)}"


def _needed(each: Mapping[str, Any]) -> str:
    """What is needed of a resource, and what is there."""
    text = f"{each['needed']:,} needed; the other SPUs have {each['free']:,} left"
    if each["spus_to_add"] is None:
        return f"{text}; most SPUs have none of it, so that adding such would not do"
    if each["spus_to_add"]:
        spus = counted(each["spus_to_add"], "SPU")
        return f"{text}; at least {spus} with {each['added_capacity']:,} each to add"
    return text


def _to_add(recreate: Mapping[str, Any]) -> str:
    count = recreate["spus_to_add"]
    if count is None:
        return "none would do: an added SPU would have no slot, as most SPUs"
    slots = counted(recreate["added_capacity"], "slot")
    return f"at least {count:,} with {slots} each" if count else "none"


def _lines(lines: Mapping[str, str]) -> Text:
    width = max(map(len, lines)) + 2
    return Text("".join(f"{name:<{width}}{printable(text)}\n" for name, text in lines.items()))
