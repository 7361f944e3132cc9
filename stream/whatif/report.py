"""What `whatif` reports, as plain values: these classes are its JSON, field by field.

The fields are a promise: names and meanings stay, later releases only add some.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from spu_assigner.core.base.resources import dominant_share
from spu_assigner.core.whatif.failure import FailureAnalysis, FailureOutcome
from spu_assigner.core.whatif.layout import layout_of_state
from spu_assigner.core.whatif.recreation import RecreatedReplicas, recreation, spus_for, usual
from spu_assigner.core.whatif.sweep import FailureSweep, sweep_racks, sweep_spus
from spu_assigner.stream.whatif.failing import (
    AnyFailure,
    FailureSpec,
    FailureUnknownError,
    failing_ids,
    racks_known,
)
from spu_assigner.stream.whatif.sources import WhatifSource

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
    capacity: int | None  # replica slots of the online SPUs; None: not known
    leaders: LeaderSpread


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPartition:
    """A partition that loses its last online replica."""

    topic: str
    partition: int


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

    Raises:
        FailureUnknownError: the cluster has nothing of what is to fail.
    """
    layout = layout_of_state(source.state)
    analysis = FailureAnalysis(layout)
    sweep = None
    if spec.every is None:
        failed = failing_ids(spec, layout, is_of_maps=source.is_of_maps)
    else:
        sweep = _sweep(spec.every, analysis, is_of_maps=source.is_of_maps)
        failed = sweep.failed
    outcome = analysis.outcome(layout.numbers_of(failed))
    return WhatifReport(
        format=FORMAT,
        cluster_id=layout.cluster_id,
        source=source.place,
        fail=spec.text,
        before=_before(analysis, has_slots=not source.is_of_maps),
        sweep=sweep,
        failure=_Failure(
            analysis, outcome, added_capacity=added_capacity, has_slots=not source.is_of_maps
        ).report(),
    )


def _sweep(every: AnyFailure, analysis: FailureAnalysis, *, is_of_maps: bool) -> FailureSweep:
    """All cases of a kind; an answer of no case would look like a good one."""
    layout = analysis.layout
    found = (sweep_racks if every is AnyFailure.RACK else sweep_spus)(analysis)
    if found.cases:
        return found
    missing, known = "online SPU", f"it has {len(layout.ids)} that are offline"
    if every is AnyFailure.RACK:
        missing, known = "rack with an online SPU", racks_known(layout, is_of_maps=is_of_maps)
    raise FailureUnknownError(
        f"{every} finds no {missing} in cluster {layout.cluster_id!r}; {known}"
    )


def _before(analysis: FailureAnalysis, *, has_slots: bool) -> BeforeFailure:
    layout = analysis.layout
    online = int(layout.online.sum())
    return BeforeFailure(
        spus=len(layout.ids),
        online=online,
        partitions=len(layout.live),
        replicas=int(layout.held.sum()),
        lost=analysis.lost_before,
        under_replicated=analysis.under_replicated_before,
        capacity=int(layout.capacities[layout.online].sum()) if has_slots else None,
        leaders=_spread(analysis.leaders.tolist(), online),
    )


def _spread(leaders: list[int], online: int) -> LeaderSpread:
    total = sum(leaders)
    mean = round(total / online, 2) if online else 0.0
    return LeaderSpread(partitions=total, most=max(leaders, default=0), mean=mean)


class _Failure:
    """One failure, its arrays as plain values."""

    def __init__(
        self,
        analysis: FailureAnalysis,
        outcome: FailureOutcome,
        *,
        added_capacity: int | None,
        has_slots: bool,
    ) -> None:
        self._analysis = analysis
        self._layout = analysis.layout
        self._outcome = outcome
        self._has_slots = has_slots
        self._failed = {*outcome.failed.tolist()}
        recreate, self._given, self._over = recreation(
            analysis, outcome, added_capacity=added_capacity
        )
        if not has_slots:
            recreate = replace(recreate, free_slots=None, added_capacity=None)
        self._recreate = recreate

    def report(self) -> FailureReport:
        layout, outcome = self._layout, self._outcome
        left = {*np.flatnonzero(layout.online).tolist()} - self._failed
        racks = {layout.racks[each] for each in self._failed} - {
            None,
            *(layout.racks[each] for each in left),
        }
        return FailureReport(
            failed=layout.ids[outcome.failed].tolist(),
            racks=sorted(map(str, racks)),
            leaders_lost=outcome.leaders_lost,
            under_replicated=outcome.under_replicated,
            lost=outcome.lost,
            lost_partitions=[
                LostPartition(topic=topic, partition=partition)
                for topic, partition in map(layout.partition_of, outcome.lost_rows.tolist())
            ],
            leaders=_spread(outcome.leaders.tolist(), len(left)),
            recreate=self._recreate,
            resources=[*map(self._resource, range(len(layout.resources)))],
            spus=[*map(self._spu, range(len(layout.ids)))],
        )

    def _resource(self, row: int) -> ResourceAfter:
        outcome = self._outcome
        needed, free = int(outcome.needed[row]), int(outcome.free[row])
        capacity = usual(self._analysis, self._layout.has[row])
        return ResourceAfter(
            resource=self._layout.resources[row],
            over=self._layout.ids[outcome.exceeds[row]].tolist(),
            needed=needed,
            free=free,
            spus_to_add=spus_for(needed - free, capacity),
            added_capacity=capacity,
        )

    def _spu(self, number: int) -> SpuAfter:
        layout = self._layout
        is_online, is_failed = bool(layout.online[number]), number in self._failed
        state = "cordoned" if layout.closed[number] else "online"
        if not is_online:
            state = "offline"
        elif is_failed:
            state = "failed"
        capacity = int(layout.capacities[number]) if self._has_slots else None
        held = int(layout.held[number])
        replicas = held + int(self._given[number])
        amounts = self._amounts(number) if is_online else {}
        slots = (None, held, capacity or 0)
        before = [(name, each.before, each.capacity) for name, each in amounts.items()]
        after = [(name, each.after, each.capacity) for name, each in amounts.items()]
        dominant, of_resource = dominant_share([slots, *after])
        return SpuAfter(
            spu_id=int(layout.ids[number]),
            rack=layout.racks[number],
            state=state,
            capacity=capacity,
            leaders_before=int(self._analysis.leaders[number]),
            leaders=int(self._outcome.leaders[number]),
            replicas_before=held,
            share_before=round(held / capacity, 4) if capacity else None,
            replicas=replicas,
            share=round(replicas / capacity, 4) if capacity else None,
            over=int(self._over[number]),
            resources=amounts,
            dominant_before=round(dominant_share([slots, *before])[0], 4),
            dominant=None if is_failed else round(dominant, 4),
            dominant_resource=None if is_failed else of_resource,
        )

    def _amounts(self, number: int) -> dict[str, AmountAfter]:
        """What an online SPU has and uses of each resource."""
        columns = (self._layout.has, self._analysis.used, self._outcome.used)
        return {
            name: AmountAfter(capacity=int(has), before=int(before), after=int(after))
            for name, has, before, after in zip(
                self._layout.resources, *(each[:, number] for each in columns), strict=True
            )
        }
