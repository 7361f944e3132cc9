"""What `whatif` reports, as plain values: these classes are its JSON, field by field.

The fields are a promise: names and meanings stay, later releases only add some.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core.base.resources import dominant_share
from spu_assigner.core.whatif.failure import FailureAnalysis, FailureOutcome
from spu_assigner.core.whatif.layout import ClusterLayout
from spu_assigner.core.whatif.recreation import Recreation, recreation
from spu_assigner.core.whatif.sweep import (
    FailureSweep,
    sweep_pairs,
    sweep_racks,
    sweep_spus,
)
from spu_assigner.stream.whatif.failing import AnyFailure, FailureSpec, failing_ids, require_cases
from spu_assigner.stream.whatif.sources import WhatifSource

FORMAT: Final = 1  # rises when a field changes its meaning

_SWEEPS: Final = {
    AnyFailure.RACK: sweep_racks,
    AnyFailure.SPU: sweep_spus,
    AnyFailure.PAIR: sweep_pairs,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSpread:
    """How leaders are divided among the online SPUs."""

    partitions: int  # that have a leader
    most: int  # of one SPU
    mean: float  # of an online SPU


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeFailure:
    """The cluster as it is."""

    spus: int
    online: int
    partitions: int
    replicas: int
    lost: int  # partitions without an online replica already
    under_replicated: int  # partitions with fewer online replicas than they are to have
    capacity: int | None  # replica slots of the online SPUs; None: not known
    leaders: LeaderSpread


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCase:
    """The worst cases by one measure."""

    measure: str
    most: int
    cases: int  # that come to the most
    failed: list[int]  # SPUs of the first of them


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """All cases of a kind."""

    cases: int
    losing: int  # cases that lose a partition
    over_capacity: int  # cases with more replicas to re-create than there is room for
    over_resources: int  # cases whose failover puts an SPU over its capacity of a resource
    worst: list[WorstCase]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPartition:
    """A partition that loses its last online replica."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecreatedReplicas:
    """What a failure that lasts asks of the other SPUs."""

    replicas: int  # to be re-created
    free_slots: int | None  # of the SPUs that take new replicas; None: not known
    without_slot: int  # replicas that find no slot
    without_spu: int  # of these, those that no SPU can take: all are in the list
    on_used_rack: int | None  # on a rack that another of the list is on; None: there are no racks
    spus_to_add: int | None  # so that nobody is over capacity; None: none of such SPUs would do
    added_capacity: int | None  # replica slots of each of them


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceAfter:
    """One resource beside replica slots."""

    resource: str
    over: list[int]  # SPUs that the failover alone puts over their capacity
    needed: int  # to re-create what failed, and to bring those who are over back
    free: int  # of the SPUs that take new replicas
    spus_to_add: int | None  # fewer will not do; None: none of such SPUs would do
    added_capacity: int  # of each of them: what most SPUs have


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountAfter:
    """What of a resource an SPU has and uses; after the failover, before anything is re-created."""

    capacity: int
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpuAfter:
    """An SPU before and after the failure."""

    spu_id: int
    rack: str | None
    state: str  # failed, online, cordoned, offline (before the failure)
    capacity: int | None
    leaders_before: int
    leaders: int
    replicas_before: int
    share_before: float | None  # of its capacity; None: it has none, or it is not known
    replicas: int  # with those that are re-created on it
    share: float | None
    over: int  # replicas beyond its capacity that it would have to take
    resources: dict[str, AmountAfter]  # that topics need; nothing of an offline SPU
    # The largest share that is used of a resource, slots included, before and after the failover.
    dominant_before: float
    dominant: float | None  # None: it has failed
    dominant_resource: str | None  # of which that is, afterwards; None: slots


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReport:
    """One failure."""

    failed: list[int]  # SPUs that were online
    racks: list[str]  # that have no online SPU afterwards, and had one
    leaders_lost: int  # partitions that lose their leader, the lost ones included
    under_replicated: int  # partitions that lose a replica and keep one
    lost: int  # partitions that lose their last online replica
    lost_partitions: list[LostPartition]
    leaders: LeaderSpread
    recreate: RecreatedReplicas
    resources: list[ResourceAfter]  # that topics need, by name
    spus: list[SpuAfter]

    @property
    def is_survived(self) -> bool:
        """Whether nothing is lost, nobody is over capacity, and everything can be re-created."""
        has_room = all(not each.over and each.spus_to_add == 0 for each in self.resources)
        return not self.lost and not self.recreate.without_slot and has_room


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatifReport:
    """The whole answer."""

    format: int
    cluster_id: str
    source: str
    fail: str
    before: BeforeFailure
    sweep: SweepReport | None  # of any-…
    failure: FailureReport  # of any-…: the worst case

    @property
    def is_survived(self) -> bool:
        """Whether no case loses a partition, and in each there is room for what is re-created."""
        sweep = self.sweep
        bad = () if sweep is None else (sweep.losing, sweep.over_capacity, sweep.over_resources)
        return not any(bad) and self.failure.is_survived


def whatif_report(
    source: WhatifSource, spec: FailureSpec, *, added_capacity: int | None
) -> WhatifReport:
    """What a failure costs.

    Raises:
        FailureUnknownError: the cluster has nothing of what is to fail.
    """
    layout = source.layout
    sweep = None
    if spec.every is None:
        failed = layout.numbers_of(failing_ids(spec, layout))
        analysis = FailureAnalysis(layout)
    else:
        require_cases(spec.every, layout)
        analysis = FailureAnalysis(layout)
        sweep = _SWEEPS[spec.every](analysis)
        failed = sweep.failed
    outcome = analysis.outcome(failed)
    recreated = recreation(analysis, outcome, added_capacity=added_capacity)
    return WhatifReport(
        format=FORMAT,
        cluster_id=layout.cluster_id,
        source=source.place,
        fail=spec.text,
        before=_before(analysis),
        sweep=None if sweep is None else _sweep_report(sweep, layout),
        failure=_failure(analysis, outcome, recreated),
    )


def _before(analysis: FailureAnalysis) -> BeforeFailure:
    layout = analysis.layout
    online = int(layout.online.sum())
    return BeforeFailure(
        spus=len(layout.ids),
        online=online,
        partitions=len(layout.live),
        replicas=int(layout.held.sum()),
        lost=analysis.lost_before,
        under_replicated=analysis.under_replicated_before,
        capacity=(
            None if layout.capacities is None else int(layout.capacities[layout.online].sum())
        ),
        leaders=_spread(analysis.leaders.tolist(), online),
    )


def _spread(leaders: list[int], online: int) -> LeaderSpread:
    total = sum(leaders)
    return LeaderSpread(
        partitions=total,
        most=max(leaders, default=0),
        mean=round(total / online, 2) if online else 0.0,
    )


def _sweep_report(sweep: FailureSweep, layout: ClusterLayout) -> SweepReport:
    return SweepReport(
        cases=sweep.cases,
        losing=sweep.losing,
        over_capacity=sweep.lacking_slots,
        over_resources=sweep.over_capacity,
        worst=[
            WorstCase(
                measure=each.measure,
                most=each.most,
                cases=each.cases,
                failed=layout.ids[each.failed].tolist(),
            )
            for each in sweep.worst
        ],
    )


def _failure(
    analysis: FailureAnalysis, outcome: FailureOutcome, recreated: Recreation
) -> FailureReport:
    layout = analysis.layout
    failed = {*outcome.failed.tolist()}
    left = [number for number in layout.numbers_online.tolist() if number not in failed]
    racks = {layout.racks[each] for each in failed} - {layout.racks[each] for each in left}
    return FailureReport(
        failed=layout.ids[outcome.failed].tolist(),
        racks=sorted(rack for rack in racks if rack is not None),
        leaders_lost=outcome.leaders_lost,
        under_replicated=outcome.under_replicated,
        lost=outcome.lost,
        lost_partitions=[
            LostPartition(topic=topic, partition=partition)
            for topic, partition in map(layout.partition_of, outcome.lost_rows.tolist())
        ],
        leaders=_spread(outcome.leaders.tolist(), len(left)),
        recreate=RecreatedReplicas(
            replicas=recreated.replicas,
            free_slots=outcome.slots,
            without_slot=recreated.without_slot,
            without_spu=recreated.without_spu,
            on_used_rack=recreated.on_used_rack if any(layout.racks) else None,
            spus_to_add=recreated.spus_to_add,
            added_capacity=recreated.added_capacity,
        ),
        resources=_resources(layout, outcome),
        spus=_spus(analysis, outcome, recreated),
    )


def _resources(layout: ClusterLayout, outcome: FailureOutcome) -> list[ResourceAfter]:
    resources, after = layout.resources, outcome.resources
    if resources is None or after is None:
        return []
    return [
        ResourceAfter(
            resource=name,
            over=layout.ids[after.over[row]].tolist(),
            needed=(needed := int(after.needed[row])),
            free=(free := int(after.free[row])),
            spus_to_add=_least_to_add(needed - free, capacity),
            added_capacity=capacity,
        )
        for row, (name, capacity) in enumerate(
            zip(resources.names, map(int, resources.usual), strict=True)
        )
    ]


def _least_to_add(missing: int, capacity: int) -> int | None:
    if missing <= 0:
        return 0
    return -(-missing // capacity) if capacity else None


def _amounts(
    analysis: FailureAnalysis, outcome: FailureOutcome, number: int
) -> dict[str, AmountAfter]:
    """What an online SPU has and uses."""
    resources, after = analysis.layout.resources, outcome.resources
    if resources is None or after is None or analysis.used is None:
        return {}
    columns = (resources.capacities, analysis.used, after.used)
    amounts = zip(*(each[:, number].astype(np.int64).tolist() for each in columns), strict=True)
    return {
        name: AmountAfter(capacity=capacity, before=before, after=used)
        for name, (capacity, before, used) in zip(resources.names, amounts, strict=True)
    }


def _spus(
    analysis: FailureAnalysis, outcome: FailureOutcome, recreated: Recreation
) -> list[SpuAfter]:
    layout = analysis.layout
    capacities = layout.capacities
    failed = {*outcome.failed.tolist()}
    rows = zip(
        layout.ids.tolist(),
        layout.racks,
        layout.online.tolist(),
        layout.cordoned.tolist(),
        [None] * len(layout.ids) if capacities is None else capacities.tolist(),
        analysis.leaders.tolist(),
        outcome.leaders.tolist(),
        layout.held.tolist(),
        recreated.given.tolist(),
        recreated.over.tolist(),
        strict=True,
    )
    spus = []
    for number, row in enumerate(rows):
        spu_id, rack, is_online, is_cordoned, capacity, before, after, held, given, over = row
        state = "cordoned" if is_cordoned else "online"
        if number in failed:
            state = "failed"
        elif not is_online:
            state = "offline"
        amounts = _amounts(analysis, outcome, number) if is_online else {}
        slots = (None, held, capacity or 0)
        before_each = [(name, each.before, each.capacity) for name, each in amounts.items()]
        after_each = [(name, each.after, each.capacity) for name, each in amounts.items()]
        dominant, of_resource = dominant_share([slots, *after_each])
        spus.append(
            SpuAfter(
                spu_id=spu_id,
                rack=rack,
                state=state,
                capacity=capacity,
                leaders_before=before,
                leaders=after,
                replicas_before=held,
                share_before=round(held / capacity, 4) if capacity else None,
                replicas=held + given,
                share=round((held + given) / capacity, 4) if capacity else None,
                over=over,
                resources=amounts,
                dominant_before=round(dominant_share([slots, *before_each])[0], 4),
                dominant=None if number in failed else round(dominant, 4),
                dominant_resource=None if number in failed else of_resource,
            )
        )
    return spus
