"""What `whatif` reports: the object of its JSON, from which the tables are drawn, too.

The fields are a promise: names and meanings stay, later releases only add some. `--fail` names
SPUs or racks, or asks for all cases of a kind:

    rack=a      rack=a,b      spu=3      spu=3,4      any-1-spu      any-1-rack
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
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
from spu_assigner.stream.common.printable import listed

FORMAT: Final = 1  # rises when a field changes its meaning
EXPECTED: Final = "rack=NAME[,…], spu=ID[,…], any-1-rack or any-1-spu"
SWEEPS: Final = {"any-1-rack": sweep_racks, "any-1-spu": sweep_spus}


class FailureUnknownError(AssignerError):
    """This cannot fail: it has none of the forms, or the cluster has nothing of it."""


def whatif_report(state: ClusterState, fail: str, *, source: str) -> dict[str, Any]:
    """What a failure costs."""
    analysis = FailureAnalysis(state)
    sweep = _sweep(fail, analysis) if fail in SWEEPS else None
    outcome = analysis.outcome(_failing(fail, analysis) if sweep is None else sweep.failed)
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
        "sweep": None
        if sweep is None
        else {name: getattr(sweep, name) for name in FailureSweep.__struct_fields__},
        "failure": _failure(analysis, outcome),
    }


def is_survived(report: dict[str, Any]) -> bool:
    """Whether no case loses a partition, and in each there is room for what is re-created."""
    sweep, failure = report["sweep"], report["failure"]
    bad = [sweep[name] for name in ("losing", "over_capacity", "over_resources")] if sweep else []
    bad += [failure["lost"], failure["recreate"]["without_slot"]]
    bad += [each["over"] or each["spus_to_add"] != 0 for each in failure["resources"]]
    return not any(bad)


def _sweep(fail: str, analysis: FailureAnalysis) -> FailureSweep:
    """All cases of a kind; an answer of no case would look like a good one."""
    found = SWEEPS[fail](analysis)
    if found.cases:
        return found
    missing, known = "online SPU", f"it has {len(analysis.ids)} that are offline"
    if fail == "any-1-rack":
        missing, known = "rack with an online SPU", _racks_known(analysis)
    raise FailureUnknownError(
        f"{fail} finds no {missing} in cluster {analysis.cluster_id!r}; {known}"
    )


def _failing(fail: str, analysis: FailureAnalysis) -> list[int]:
    """The SPUs that a failure names, ascending; those that are offline already too."""
    kind, _, names = fail.partition("=")
    known: list[int] = analysis.ids.tolist()
    if kind == "spu" and re.fullmatch(r"[0-9]{1,12}(,[0-9]{1,12})*", names):
        ids = sorted(set(map(int, names.split(","))))
        if unknown := sorted({*ids} - {*known}):
            raise FailureUnknownError(
                f"no SPU {listed(unknown)} in cluster {analysis.cluster_id!r}; it has SPUs "
                f"{listed(known)}"
            )
        return ids
    if kind != "rack" or not names:
        raise FailureUnknownError(f"{fail!r:.80} is no failure; expected {EXPECTED}")
    wanted = [names] if names in analysis.racks else names.split(",")
    if missing := [repr(each) for each in wanted if each not in analysis.racks]:
        raise FailureUnknownError(
            f"no rack {listed(missing)} in cluster {analysis.cluster_id!r}; "
            f"{_racks_known(analysis)}"
        )
    return [spu for spu, rack in zip(known, analysis.racks, strict=True) if rack in wanted]


def _racks_known(analysis: FailureAnalysis) -> str:
    """The racks of the cluster, or what to name where there are none."""
    names = sorted({repr(rack) for rack in analysis.racks if rack is not None})
    if names:
        return f"it has racks {listed(names)}"
    return "none of its SPUs has a rack: name SPUs with spu=ID,…"


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

    def dominant(when: str) -> tuple[float, str | None]:
        used = ((name, each[when], each["capacity"]) for name, each in amounts.items())
        return dominant_share([(None, held, capacity), *used])

    share, resource = dominant("after")
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
        "dominant_before": round(dominant("before")[0], 4),
        "dominant": None if is_failed else round(share, 4),
        "dominant_resource": None if is_failed else resource,
    }
