"""What the failure of a set of SPUs costs, before anything is repaired.

The first online replica of a list leads. When SPUs fail, each partition that they lead gets the
next online replica of its list as leader; one whose online replicas all fail is lost. What was
offline before is no part of the failure.

    analysis = FailureAnalysis(layout)
    outcome = analysis.outcome(layout.numbers_of([3, 4]))

Example. Lists [3, 2, 0] and [4, 3, 1], and 3 and 4 fail: the first loses its leader, 2 leads it and
one of its replicas is to be re-created; the second loses its leader too, 1 leads it and two are to
be re-created. Both are under-replicated, none is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from spu_assigner.core.base.replica_lists import PADDING, IdArray
from spu_assigner.core.whatif.layout import ClusterLayout, CountArray, FlagArray
from spu_assigner.core.whatif.resources import FloatArray, ResourceOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureOutcome:
    """What a failure costs; SPUs are given by number."""

    failed: IdArray
    """The SPUs that were online, ascending."""
    leaders_lost: int
    """Partitions that lose their leader, the lost ones included."""
    under_replicated: int
    """Partitions that lose a replica and keep one."""
    lost_rows: IdArray
    """Partitions that lose their last online replica."""
    leaders: CountArray
    """Partitions that each SPU leads afterwards."""
    replicas: int
    """Replicas that are to be re-created if the failure is permanent."""
    unfillable: int
    """Those of them for which there are too few SPUs, whatever their slots."""
    slots: int | None
    """Free slots of the SPUs that take new replicas; None: not known."""
    resources: ResourceOutcome | None
    """What becomes of resources; None: there are replica slots alone."""

    @property
    def lost(self) -> int:
        """How many partitions are lost."""
        return len(self.lost_rows)

    @property
    def without_slot(self) -> int:
        """Replicas for which there is certainly no room."""
        missing = 0 if self.slots is None else self.replicas - self.slots
        return max(missing, self.unfillable)

    @property
    def over_capacity(self) -> int:
        """SPUs that the failover alone puts over the capacity of a resource."""
        return 0 if self.resources is None else self.resources.over_capacity

    @property
    def leaders_most(self) -> int:
        """The most partitions that one of the others leads afterwards."""
        return int(self.leaders.max(initial=0))


class FailureAnalysis:
    """Failures of one cluster; what all of them need is counted once."""

    def __init__(self, layout: ClusterLayout) -> None:
        self.layout = layout
        live = layout.live
        self.count = len(layout.ids)
        is_there = live != PADDING
        self.lengths = is_there.sum(axis=1)
        self.leaders = self._tally(live[self.lengths > 0, 0])  # of each SPU, before
        self.held = self._tally(live[is_there])  # replicas of online SPUs
        self.takers = layout.online & ~layout.cordoned
        self.free = self._free()
        rows = np.repeat(np.arange(len(live), dtype=np.int32), self.lengths)
        self.used = self._used(rows)  # of resources, by name and SPU; None: slots alone
        order = np.argsort(live[is_there], kind="stable")
        self._rows = rows[order]  # of the SPU 0, then of 1, …
        self._first = np.concatenate(([0], np.cumsum(self.held)))

    def _tally(self, numbers: IdArray) -> CountArray:
        return np.bincount(numbers, minlength=self.count).astype(np.int64)

    def _free(self) -> CountArray | None:
        """Free slots of each SPU that takes new replicas, 0 of the others."""
        if self.layout.capacities is None:
            return None
        free = np.maximum(self.layout.capacities - self.layout.held, 0)
        return np.asarray(np.where(self.takers, free, 0))

    def _used(self, rows: IdArray) -> FloatArray | None:
        """What online SPUs use; `rows` are those of the online replicas, one after another."""
        resources, live = self.layout.resources, self.layout.live
        if resources is None:
            return None
        used = np.zeros_like(resources.capacities)
        resources.add(used, resources.follower, rows, live[live != PADDING])
        led = np.flatnonzero(self.lengths > 0).astype(np.int32)
        resources.add(used, resources.lead, led, live[led, 0])
        return used

    @property
    def lost_before(self) -> int:
        """Partitions without an online replica, whatever fails."""
        return int(np.count_nonzero(self.lengths == 0))

    @property
    def under_replicated_before(self) -> int:
        """Partitions that have fewer online replicas than they are to have, and one at least."""
        return int(np.count_nonzero((self.lengths > 0) & (self.lengths < self.layout.wanted)))

    def rows_of(self, failed: IdArray) -> IdArray:
        """The partitions that have a replica on one of these SPUs, ascending."""
        slices = [self._rows[self._first[each] : self._first[each + 1]] for each in failed.tolist()]
        if len(slices) == 1:
            return slices[0]
        flags = np.zeros(len(self.layout.live), dtype=np.bool_)
        for each in slices:
            flags[each] = True
        return np.flatnonzero(flags).astype(np.int32)

    def outcome(self, failed: IdArray) -> FailureOutcome:
        """What the failure of these SPUs costs. O(partitions that they hold)."""
        is_failed = np.zeros(self.count + 1, dtype=np.bool_)  # the last is the padding's
        is_failed[failed] = True
        is_failed &= np.append(self.layout.online, False)
        failed = np.flatnonzero(is_failed).astype(np.int32)
        rows = self.rows_of(failed)
        lists = self.layout.live[rows]
        gone = is_failed[lists]
        kept = (lists != PADDING) & ~gone
        is_alive = kept.any(axis=1)
        has_new_leader = gone[:, 0] & is_alive
        at = kept.argmax(axis=1)[has_new_leader]
        leaders = self.leaders - self._tally(lists[gone[:, 0], 0])
        leaders += self._tally(lists[has_new_leader, at])
        takers = self.takers & ~is_failed[:-1]
        return FailureOutcome(
            failed=failed,
            leaders_lost=int(np.count_nonzero(gone[:, 0])),
            under_replicated=int(np.count_nonzero(is_alive)),
            lost_rows=rows[~is_alive],
            leaders=leaders,
            replicas=int(np.count_nonzero(gone)),
            unfillable=_unfillable(lists, gone, kept, takers),
            slots=None if self.free is None else int(self.free[takers].sum()),
            resources=self._resources(
                rows,
                gone,
                ~is_alive,
                takers,
                heirs=(rows[has_new_leader], lists[has_new_leader, at]),
            ),
        )

    def _resources(
        self,
        rows: IdArray,
        gone: FlagArray,
        is_lost: FlagArray,
        takers: FlagArray,
        *,
        heirs: tuple[IdArray, IdArray],
    ) -> ResourceOutcome | None:
        """What becomes of resources.

        Args:
            rows: of the partitions that lose a replica.
            gone: of each place of their lists whether it is one of these.
            is_lost: of each of these partitions.
            takers: the SPUs that take new replicas afterwards.
            heirs: partitions with a new leader, and the leaders.
        """
        resources, before = self.layout.resources, self.used
        if resources is None or before is None:
            return None
        used = before.copy()
        resources.add(used, resources.lead, *heirs)
        over = resources.over(before, used)
        topics = resources.topic_of[rows]
        needed = resources.follower[:, topics] @ gone.sum(axis=1).astype(np.float64)
        needed += resources.lead[:, topics[is_lost]].sum(axis=1)
        room = resources.capacities - used
        return ResourceOutcome(
            used=used,
            over=over,
            needed=needed - np.where(over, room, 0.0).sum(axis=1),
            free=np.maximum(room[:, takers], 0.0).sum(axis=1),
        )


def _unfillable(lists: IdArray, gone: FlagArray, kept: FlagArray, takers: FlagArray) -> int:
    """Replicas that no SPU can take, since all that could are in their lists already."""
    count = int(np.count_nonzero(takers))
    if count >= lists.shape[1]:
        return 0
    is_taker = np.append(takers, False)
    others = count - (kept & is_taker[lists]).sum(axis=1)
    return int(np.maximum(gone.sum(axis=1) - others, 0).sum())
