"""What `whatif` reports, as plain values: these classes are its JSON, field by field.

The fields are a promise: names and meanings stay, later releases only add some.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core.base.resources import dominant_share
from spu_assigner.core.whatif.failure import (
    FailureAnalysis,
    FailureOutcome,
    FailureSweep,
    spus_for,
    sweep_racks,
    sweep_spus,
)
from spu_assigner.stream.clusters.whatif.failing import (
    AnyFailure,
    FailureSpec,
    FailureUnknownError,
    failing_ids,
    racks_known,
)
from spu_assigner.stream.clusters.whatif.sources import WhatifSource

FORMAT: Final = 1  # rises when a field changes its meaning


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
    capacity: int  # replica slots of the online SPUs
    leaders: LeaderSpread


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPartition:
    """A partition that loses its last online replica."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecreatedReplicas:
    """What a failure that lasts asks of the other SPUs."""

    replicas: int  # to be re-created
    free_slots: int  # of the SPUs that take new replicas
    without_slot: int  # replicas for which there is certainly no slot
    spus_to_add: int | None  # fewer will not do; None: no number of such SPUs would do
    added_capacity: int  # replica slots of each of them


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceAfter:
    """One resource beside replica slots."""

    resource: str
    over: list[int]  # SPUs that the failover alone puts over their capacity
    needed: int  # to re-create what failed, and to relieve SPUs that are over
    free: int  # of the SPUs that take new replicas
    spus_to_add: int | None  # fewer will not do; None: no number of such SPUs would do
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
    capacity: int
    leaders_before: int
    leaders: int
    replicas: int
    share: float | None  # of its capacity; None: it has none
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
        """Whether nothing is lost, no SPU is over capacity, and all replicas find room."""
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
    sweep: FailureSweep | None  # of any-…
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

    Args:
        added_capacity: of an SPU that would be added; None: what most SPUs have.

    Raises:
        FailureUnknownError: the cluster has nothing of what is to fail.
    """
    analysis = FailureAnalysis(source.state)
    sweep = None if spec.every is None else _sweep(spec.every, analysis)
    outcome = analysis.outcome(failing_ids(spec, analysis) if sweep is None else sweep.failed)
    if added_capacity is None:
        added_capacity = analysis.usual(analysis.capacities)
    return WhatifReport(
        format=FORMAT,
        cluster_id=analysis.cluster_id,
        source=source.place,
        fail=spec.text,
        before=_before(analysis),
        sweep=sweep,
        failure=_failure(analysis, outcome, added_capacity),
    )


def _sweep(every: AnyFailure, analysis: FailureAnalysis) -> FailureSweep:
    """All cases of a kind; an answer of no case would look like a good one."""
    found = (sweep_racks if every is AnyFailure.RACK else sweep_spus)(analysis)
    if found.cases:
        return found
    missing, known = "online SPU", f"it has {len(analysis.ids)} that are offline"
    if every is AnyFailure.RACK:
        missing, known = "rack with an online SPU", racks_known(analysis)
    raise FailureUnknownError(
        f"{every} finds no {missing} in cluster {analysis.cluster_id!r}; {known}"
    )


def _before(analysis: FailureAnalysis) -> BeforeFailure:
    online = int(analysis.online.sum())
    return BeforeFailure(
        spus=len(analysis.ids),
        online=online,
        partitions=analysis.partitions,
        replicas=int(analysis.held.sum()),
        lost=analysis.lost,
        under_replicated=analysis.under_replicated,
        capacity=int(analysis.capacities[analysis.online].sum()),
        leaders=_spread(analysis.leaders.tolist(), online),
    )


def _spread(leaders: list[int], online: int) -> LeaderSpread:
    total = sum(leaders)
    mean = round(total / online, 2) if online else 0.0
    return LeaderSpread(partitions=total, most=max(leaders, default=0), mean=mean)


def _failure(
    analysis: FailureAnalysis, outcome: FailureOutcome, added_capacity: int
) -> FailureReport:
    remaining = np.flatnonzero(analysis.online & ~outcome.failed).tolist()
    racks = {analysis.racks[number] for number in np.flatnonzero(outcome.failed).tolist()}
    racks -= {None, *(analysis.racks[number] for number in remaining)}
    return FailureReport(
        failed=analysis.ids[outcome.failed].tolist(),
        racks=sorted(map(str, racks)),
        leaders_lost=outcome.leaders_lost,
        under_replicated=outcome.under_replicated,
        lost=len(outcome.lost_rows),
        lost_partitions=[
            LostPartition(topic=topic, partition=partition)
            for topic, partition in map(analysis.partition_of, outcome.lost_rows.tolist())
        ],
        leaders=_spread(outcome.leaders.tolist(), len(remaining)),
        recreate=RecreatedReplicas(
            replicas=outcome.replicas,
            free_slots=outcome.free_slots,
            without_slot=outcome.without_slot,
            spus_to_add=outcome.spus_to_add(added_capacity),
            added_capacity=added_capacity,
        ),
        resources=[_resource(analysis, outcome, row) for row in range(len(analysis.resources))],
        spus=[_spu(analysis, outcome, number) for number in range(len(analysis.ids))],
    )


def _resource(analysis: FailureAnalysis, outcome: FailureOutcome, row: int) -> ResourceAfter:
    needed, free = int(outcome.needed[row]), int(outcome.free[row])
    capacity = analysis.usual(analysis.has[row])
    return ResourceAfter(
        resource=analysis.resources[row],
        over=analysis.ids[outcome.exceeds[row]].tolist(),
        needed=needed,
        free=free,
        spus_to_add=spus_for(needed - free, capacity),
        added_capacity=capacity,
    )


def _spu(analysis: FailureAnalysis, outcome: FailureOutcome, number: int) -> SpuAfter:
    is_online, is_failed = bool(analysis.online[number]), bool(outcome.failed[number])
    state = "cordoned" if analysis.closed[number] else "online"
    if not is_online:
        state = "offline"
    elif is_failed:
        state = "failed"
    capacity, held = int(analysis.capacities[number]), int(analysis.held[number])
    columns = (analysis.has, analysis.used, outcome.used)
    amounts = {
        name: AmountAfter(capacity=int(has), before=int(before), after=int(after))
        for name, has, before, after in zip(
            analysis.resources, *(each[:, number] for each in columns), strict=True
        )
        if is_online
    }
    slots = (None, held, capacity)
    before = [(name, each.before, each.capacity) for name, each in amounts.items()]
    after = [(name, each.after, each.capacity) for name, each in amounts.items()]
    dominant, of_resource = dominant_share([slots, *after])
    return SpuAfter(
        spu_id=int(analysis.ids[number]),
        rack=analysis.racks[number],
        state=state,
        capacity=capacity,
        leaders_before=int(analysis.leaders[number]),
        leaders=int(outcome.leaders[number]),
        replicas=held,
        share=round(held / capacity, 4) if capacity else None,
        resources=amounts,
        dominant_before=round(dominant_share([slots, *before])[0], 4),
        dominant=None if is_failed else round(dominant, 4),
        dominant_resource=None if is_failed else of_resource,
    )
