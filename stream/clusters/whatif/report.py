"""What `whatif` reports: the object of its JSON, and the lines and the table drawn from it.

The fields are a promise: names and meanings stay, later releases only add some. `--fail` names
SPUs or racks, or asks for all cases of a kind:

    rack=a      rack=a,b      spu=3      spu=3,4      any-1-spu      any-1-rack
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec.structs import asdict
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.resources import dominant_share
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.whatif.failure import (
    FailureAnalysis,
    FailureOutcome,
    FailureSweep,
    spus_for,
    sweep_racks,
    sweep_spus,
)
from spu_assigner.stream.clusters.plan.rendering import arrow_text, table_lines
from spu_assigner.stream.common.printable import counted, listed, printable

FORMAT: Final = 1  # rises when a field changes its meaning
EXPECTED: Final = "rack=NAME[,…], spu=ID[,…], any-1-rack or any-1-spu"
SWEEPS: Final = {"any-1-rack": sweep_racks, "any-1-spu": sweep_spus}

_Object = Mapping[str, Any]  # of the report


class FailureUnknownError(AssignerError):
    """This cannot fail: it has none of the forms, or the cluster has nothing of it."""


def whatif_report(state: ClusterState, fail: str, *, source: str) -> dict[str, Any]:
    """What a failure costs."""
    analysis = FailureAnalysis(state)
    sweep, failed = _failing(fail, analysis)
    online = int(analysis.online.sum())
    return {
        "format": FORMAT,
        "cluster_id": analysis.cluster_id,
        "source": source,
        "fail": fail,
        "before": {
            "spus": len(analysis.ids),
            "online": online,
            "partitions": analysis.partitions,
            "replicas": int(analysis.held.sum()),
            "lost": analysis.lost,
            "under_replicated": analysis.under_replicated,
            "capacity": int(analysis.capacities[analysis.online].sum()),
            "leaders": _leaders(analysis.leaders.tolist(), online),
        },
        "sweep": None if sweep is None else asdict(sweep),
        "failure": _failure(analysis, analysis.outcome(failed)),
    }


def is_survived(report: _Object) -> bool:
    """Whether no case loses a partition, and in each there is room for what is re-created."""
    sweep, failure = report["sweep"], report["failure"]
    bad = [sweep[name] for name in ("losing", "over_capacity", "over_resources")] if sweep else []
    bad += [failure["lost"], failure["recreate"]["without_slot"]]
    bad += [each["over"] or each["spus_to_add"] != 0 for each in failure["resources"]]
    return not any(bad)


def _failing(fail: str, analysis: FailureAnalysis) -> tuple[FailureSweep | None, list[int]]:
    """All cases of a kind, if they are asked for, and the SPUs that fail in the worst.

    Else the SPUs that are named, those that are offline already too.
    """
    spu_ids, racks = analysis.ids.tolist(), sorted({*analysis.racks} - {None}, key=str)
    of_racks = "no racks: name SPUs with spu=ID,…"
    if racks:
        of_racks = f"racks {listed([repr(rack) for rack in racks])}"
    kind, _, names = fail.partition("=")
    if fail in SWEEPS:
        sweep = SWEEPS[fail](analysis)
        if sweep.cases:  # An answer of no case would look like a good one.
            return sweep, sweep.failed
        is_spu = fail == "any-1-spu"
        missing = f"{fail} finds no {'online SPU' if is_spu else 'rack with an online SPU'}"
        known = f"{len(spu_ids)} that are offline" if is_spu else of_racks
    elif kind == "spu" and re.fullmatch(r"[0-9]{1,12}(,[0-9]{1,12})*", names):
        ids = sorted(set(map(int, names.split(","))))
        unknown = [each for each in ids if each not in spu_ids]
        if not unknown:
            return None, ids
        missing, known = f"no SPU {listed(unknown)}", f"SPUs {listed(spu_ids)}"
    elif kind == "rack" and names:
        wanted = [names] if names in racks else names.split(",")
        absent = [repr(each) for each in wanted if each not in racks]
        if not absent:
            pairs = zip(spu_ids, analysis.racks, strict=True)
            return None, [spu_id for spu_id, rack in pairs if rack in wanted]
        missing, known = f"no rack {listed(absent)}", of_racks
    else:
        raise FailureUnknownError(f"{fail!r:.80} is no failure; expected {EXPECTED}")
    raise FailureUnknownError(f"{missing} in cluster {analysis.cluster_id!r}; it has {known}")


def _leaders(leaders: list[int], online: int) -> dict[str, Any]:
    total = sum(leaders)
    mean = round(total / online, 2) if online else 0.0
    return {"partitions": total, "most": max(leaders, default=0), "mean": mean}


def _failure(analysis: FailureAnalysis, outcome: FailureOutcome) -> dict[str, Any]:
    remaining = np.flatnonzero(analysis.online & ~outcome.failed).tolist()
    racks = {analysis.racks[number] for number in np.flatnonzero(outcome.failed).tolist()}
    racks -= {None, *(analysis.racks[number] for number in remaining)}
    lost = map(analysis.partition_of, outcome.lost_rows.tolist())
    slots = analysis.usual(analysis.capacities)
    return {
        "failed": analysis.ids[outcome.failed].tolist(),
        "racks": sorted(map(str, racks)),  # that have no online SPU afterwards, and had one
        "leaders_lost": outcome.leaders_lost,
        "under_replicated": outcome.under_replicated,
        "lost": len(outcome.lost_rows),
        "lost_partitions": [{"topic": topic, "partition": number} for topic, number in lost],
        "leaders": _leaders(outcome.leaders.tolist(), len(remaining)),
        "recreate": {
            "replicas": outcome.replicas,
            "free_slots": outcome.free_slots,
            "without_slot": outcome.without_slot,
            "spus_to_add": outcome.spus_to_add(slots),
            "added_capacity": slots,
        },
        "resources": [_resource(analysis, outcome, row) for row in range(len(analysis.resources))],
        "spus": [_spu(analysis, outcome, number) for number in range(len(analysis.ids))],
    }


def _resource(analysis: FailureAnalysis, outcome: FailureOutcome, row: int) -> dict[str, Any]:
    needed, free = int(outcome.needed[row]), int(outcome.free[row])
    capacity = analysis.usual(analysis.has[row])
    return {
        "resource": analysis.resources[row],
        "over": analysis.ids[outcome.exceeds[row]].tolist(),
        "needed": needed,
        "free": free,
        "spus_to_add": spus_for(needed - free, capacity),
        "added_capacity": capacity,
    }


def _spu(analysis: FailureAnalysis, outcome: FailureOutcome, number: int) -> dict[str, Any]:
    """An SPU before and after the failover, before anything is re-created."""
    is_online, is_failed = bool(analysis.online[number]), bool(outcome.failed[number])
    state = "failed" if is_failed else "cordoned" if analysis.closed[number] else "online"
    capacity, held = int(analysis.capacities[number]), int(analysis.held[number])
    amounts = {
        name: {
            "capacity": int(analysis.has[row, number]),
            "before": int(analysis.used[row, number]),
            "after": int(outcome.used[row, number]),
        }
        for row, name in enumerate(analysis.resources)
        if is_online
    }
    (share_before, _), (share, resource) = (
        dominant_share(
            [
                (None, held, capacity),
                *((name, each[when], each["capacity"]) for name, each in amounts.items()),
            ]
        )
        for when in ("before", "after")
    )
    return {
        "spu_id": int(analysis.ids[number]),
        "rack": analysis.racks[number],
        "state": state if is_online else "offline",
        "capacity": capacity,
        "leaders_before": int(analysis.leaders[number]),
        "leaders": int(outcome.leaders[number]),
        "replicas": held,
        "share": round(held / capacity, 4) if capacity else None,
        "resources": amounts,
        "dominant_before": round(share_before, 4),
        "dominant": None if is_failed else round(share, 4),
        "dominant_resource": None if is_failed else resource,
    }


def report_lines(report: _Object, *, width: int | None) -> Iterator[str]:
    """The whole answer for people, its table of this width."""
    before, sweep, failure = report["before"], report["sweep"], report["failure"]
    has_resources = bool(failure["resources"])
    yield from _named_lines(
        ("cluster", f"{report['cluster_id']}, from {report['source']}"),
        ("SPUs", f"{before['online']:,} of {before['spus']:,} online"),
        (
            "partitions",
            f"{before['partitions']:,} with {before['replicas']:,} replicas; {before['lost']:,} "
            f"without an online replica already, {before['under_replicated']:,} under-replicated "
            "already",
        ),
    )
    if sweep is not None:
        over = f", {sweep['over_resources']:,} put SPUs over capacity" if has_resources else ""
        yield (
            f"cases       {sweep['cases']:,} ({report['fail']}): {sweep['losing']:,} lose "
            f"partitions, {sweep['over_capacity']:,} leave replicas without a slot{over}"
        )
        yield from ("", "The worst case")
    yield ""
    yield from _failure_lines(failure, before["leaders"])
    yield ""
    headings = ["SPU", "rack", "state", "leaders", "slots", "replicas", "used"]
    headings += ["dominant share", "exceeds"] if has_resources else []
    rows = [_cells(spu)[: len(headings)] for spu in failure["spus"]]
    yield from table_lines(headings, rows, words=("rack", "state", "exceeds"), width=width)


def _cells(spu: _Object) -> list[str]:
    """A row of the table; the last two are of resources."""
    share, dominant = spu["share"], f"{spu['dominant_before']:.1%}"
    if spu["dominant"] is not None:  # Before and after the failover, and of what it is then.
        dominant = arrow_text(spu["dominant_before"], spu["dominant"], "{:.1%}".format)
        dominant += f" {spu['dominant_resource'] or 'slots'}"
    return [
        str(spu["spu_id"]),
        printable(spu["rack"] or ""),
        spu["state"],
        arrow_text(spu["leaders_before"], spu["leaders"], "{:,}".format),
        f"{spu['capacity']:,}",
        f"{spu['replicas']:,}",
        "" if share is None else f"{share:.1%}",
        dominant,
        ", ".join(
            name
            for name, each in spu["resources"].items()
            if each["after"] > max(each["capacity"], each["before"])
        ),
    ]


def _failure_lines(failure: _Object, before: _Object) -> Iterator[str]:
    after, recreate, resources = failure["leaders"], failure["recreate"], failure["resources"]
    fails, racks = _spus(failure["failed"]), failure["racks"]
    if racks:
        fails += f" (all of {'rack' if len(racks) == 1 else 'racks'} {listed(racks)})"
    lost = [f"{each['topic']}/{each['partition']}" for each in failure["lost_partitions"]]
    replicas, slots = recreate["replicas"], recreate["free_slots"]
    recreated = f"{counted(replicas, 'replica')}; the other SPUs have {counted(slots, 'free slot')}"
    if recreate["without_slot"]:
        recreated += f"; no slot for at least {recreate['without_slot']:,}"
    to_add = "none would do: an added SPU would have no slot, as most SPUs"
    if (count := recreate["spus_to_add"]) is not None:
        with_slots = f"with {counted(recreate['added_capacity'], 'slot')} each"
        to_add = f"at least {count:,} {with_slots}" if count else "none"
    over = [f"{_spus(each['over'])} of {each['resource']}" for each in resources if each["over"]]
    over_capacity = [("over capacity", "; ".join(over) or "no SPU")] if resources else []
    yield from _named_lines(
        ("fails", fails),
        ("lose leader", counted(failure["leaders_lost"], "partition")),
        ("under-replicated", counted(failure["under_replicated"], "partition")),
        ("lost", f"{counted(len(lost), 'partition')}: {listed(lost)}" if lost else "none"),
        (
            "leaders of an SPU",
            f"before: most {before['most']:,}, mean {before['mean']:,.2f}; "
            f"after: most {after['most']:,}, mean {after['mean']:,.2f}",
        ),
        ("to re-create", recreated),
        ("SPUs to add", to_add),
        *over_capacity,
        *((each["resource"], _needed(each)) for each in resources),
    )


def _needed(each: _Object) -> str:
    """What is needed of a resource, and what is there."""
    text = f"{each['needed']:,} needed; the other SPUs have {each['free']:,} left"
    if each["spus_to_add"] is None:
        return f"{text}; most SPUs have none of it, so that adding such would not do"
    if each["spus_to_add"]:
        spus = counted(each["spus_to_add"], "SPU")
        return f"{text}; at least {spus} with {each['added_capacity']:,} each to add"
    return text


def _spus(spu_ids: Sequence[int]) -> str:
    if not spu_ids:
        return "no SPU that is online"
    return f"SPU{'' if len(spu_ids) == 1 else 's'} {listed(spu_ids)}"


def _named_lines(*lines: tuple[str, str]) -> Iterator[str]:
    width = max(len(name) for name, _ in lines) + 2
    yield from (f"{name:<{width}}{printable(text)}" for name, text in lines)
