"""All failures of a kind: any one SPU, or any one rack; how many are bad, and the worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.whatif.failure import FailureAnalysis

# What failures are compared by; the worst of all is the worst by the first, then by the next.
MEASURES: Final = (
    *("lost", "without_slot", "over_capacity"),
    *("leaders_lost", "under_replicated", "leaders_most"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstByMeasure:
    """The worst failures by one measure."""

    measure: str
    """The attribute of `FailureOutcome` that is compared."""
    most: int
    """What the worst of them come to."""
    cases: int
    """How many cases come to the most."""
    failed: list[int]
    """The ids of the SPUs of the first of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSweep:
    """All failures of a kind."""

    cases: int
    """How many failures were looked at."""
    losing: int
    """Cases that lose a partition."""
    over_capacity: int
    """Cases with more replicas to re-create than there is room for."""
    over_resources: int
    """Cases whose failover puts an SPU over the capacity of a resource."""
    worst: list[WorstByMeasure]
    """The worst cases by each measure; nothing where there is no case."""
    failed: list[int]
    """The ids of the SPUs of the worst of all, the first of equals."""


def sweep_spus(analysis: FailureAnalysis) -> FailureSweep:
    """The failure of each online SPU."""
    return _sweep(analysis, np.flatnonzero(analysis.layout.online).reshape(-1, 1).astype(np.int32))


def sweep_racks(analysis: FailureAnalysis) -> FailureSweep:
    """The failure of each rack that has an online SPU, in the order of names."""
    members: dict[str, list[int]] = {}
    for number in np.flatnonzero(analysis.layout.online).tolist():
        rack = analysis.layout.racks[number]
        if rack is not None:
            members.setdefault(rack, []).append(number)
    return _sweep(analysis, [np.array(each, dtype=np.int32) for _, each in sorted(members.items())])


def _sweep(analysis: FailureAnalysis, cases: Sequence[IdArray] | IdArray) -> FailureSweep:
    """What the cases come to, one after another."""
    costs: list[tuple[int, ...]] = []
    for failed in cases:
        outcome = analysis.outcome(failed)
        costs.append(tuple(int(getattr(outcome, name)) for name in MEASURES))

    def first(of: Sequence[object], most: object) -> list[int]:
        """The ids of the SPUs of the first case that comes to the most."""
        ids: list[int] = analysis.layout.ids[cases[of.index(most)]].tolist()
        return ids

    columns = [*zip(*costs, strict=True)]
    worst = [
        WorstByMeasure(
            measure=name,
            most=max(column),
            cases=column.count(max(column)),
            failed=first(column, max(column)),
        )
        for name, column in zip(MEASURES, columns, strict=bool(costs))
    ]
    losing, over_capacity, over_resources = (
        sum(cost[place] > 0 for cost in costs) for place in range(3)
    )
    return FailureSweep(
        cases=len(costs),
        losing=losing,
        over_capacity=over_capacity,
        over_resources=over_resources,
        worst=worst,
        failed=first(costs, max(costs)) if costs else [],
    )
