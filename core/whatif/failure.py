"""What the failure of a set of SPUs costs, before anything is repaired.

The first online replica of a list leads. When SPUs fail, each partition that they lead gets the
next online replica of its list as leader; one whose online replicas all fail is lost. What was
offline before is no part of the failure.

A failover moves no replica, but a leader may need more of a resource than a follower: each new
leader takes that much more of its SPU. If the failure lasts, what the failed SPUs held is needed
elsewhere.

    analysis = FailureAnalysis(layout)
    outcome = analysis.outcome(layout.numbers_of([3, 4]))

Example. Lists [3, 2, 0] and [4, 3, 1], and 3 and 4 fail: the first loses its leader, 2 leads it and
one of its replicas is to be re-created; the second loses its leader too, 1 leads it and two are to
be re-created. Both are under-replicated, none is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from spu_assigner.core.base.replica_lists import PADDING, IdArray, IdMatrix
from spu_assigner.core.whatif.layout import ClusterLayout, CountArray, FlagArray, FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureOutcome:
    """What a failure costs; SPUs are given by number, amounts by resource."""

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
    without_slot: int
    """Replicas for which there is certainly no room: there are too few free slots, or SPUs."""
    open: FlagArray
    """Of each SPU, whether it takes new replicas afterwards."""
    free_slots: int
    """Of these."""
    used: FloatArray
    """Shape (resources, SPUs): what each uses after the failover; a failed one what it did."""
    exceeds: FlagArray
    """Of these, whether the failover puts the SPU over its capacity of the resource."""
    needed: FloatArray
    """What it takes to re-create what failed, and to relieve SPUs that are over."""
    free: FloatArray
    """What the SPUs that take new replicas have left."""

    @property
    def lost(self) -> int:
        """How many partitions are lost."""
        return len(self.lost_rows)

    @property
    def over_capacity(self) -> int:
        """SPUs that the failover alone puts over the capacity of a resource."""
        return int(self.exceeds.any(axis=0).sum())

    @property
    def leaders_most(self) -> int:
        """The most partitions that one of the others leads afterwards."""
        return int(self.leaders.max(initial=0))


class FailureAnalysis:
    """Failures of one cluster; what all of them need is counted once."""

    def __init__(self, layout: ClusterLayout) -> None:
        self.layout = layout
        is_there = layout.live != PADDING
        numbers, rows = layout.live[is_there], np.nonzero(is_there)[0].astype(np.int32)
        led = np.flatnonzero(is_there[:, 0]).astype(np.int32)
        self.leaders = self._tally(layout.live[led, 0])  # of each SPU, before
        self.used = self._amounts(layout.follower, rows, numbers)  # of resources, before
        self.used += self._amounts(layout.lead, led, layout.live[led, 0])
        self.free_slots = np.maximum(layout.capacities - layout.held, 0)  # of each SPU
        # The rows of the SPU 0, then of 1, …
        self._rows = rows[np.argsort(numbers, kind="stable")]
        self._first = np.concatenate(([0], np.cumsum(self._tally(numbers))))

    def _tally(self, numbers: IdArray) -> CountArray:
        return np.bincount(numbers, minlength=len(self.layout.ids))

    def _amounts(self, needs: FloatArray, rows: IdArray, numbers: IdArray) -> FloatArray:
        """What SPUs need together for these rows; shape (resources, SPUs)."""
        count = len(self.layout.ids)
        topics = self.layout.topics_of(rows) if len(needs) else rows
        sums = [np.bincount(numbers, weights=need[topics], minlength=count) for need in needs]
        return np.array(sums, dtype=np.float64).reshape(len(needs), count)

    @property
    def lost_before(self) -> int:
        """Partitions without an online replica, whatever fails."""
        return int(np.count_nonzero(self.layout.live[:, 0] == PADDING))

    @property
    def under_replicated_before(self) -> int:
        """Partitions that have fewer online replicas than they are to have, and one at least."""
        lengths = (self.layout.live != PADDING).sum(axis=1)
        return int(np.count_nonzero((lengths > 0) & (lengths < self.layout.wanted)))

    def rows_of(self, failed: IdArray) -> IdArray:
        """The partitions that have a replica on one of these SPUs, ascending."""
        slices = [self._rows[self._first[each] : self._first[each + 1]] for each in failed.tolist()]
        return (
            slices[0] if len(slices) == 1 else np.unique(np.concatenate([self._rows[:0], *slices]))
        )

    def outcome(self, failed: IdArray) -> FailureOutcome:
        """What the failure of these SPUs costs. O(partitions that they hold)."""
        layout = self.layout
        is_failed = np.zeros(len(layout.ids) + 1, dtype=np.bool_)  # the last is the padding's
        is_failed[failed] = True
        is_failed &= np.append(layout.online, False)
        failed = np.flatnonzero(is_failed).astype(np.int32)
        rows = self.rows_of(failed)
        lists = layout.live[rows]
        gone = is_failed[lists]
        kept = (lists != PADDING) & ~gone
        is_alive = kept.any(axis=1)
        moves = gone[:, 0] & is_alive  # gets a new leader
        new_leaders = lists[moves, kept[moves].argmax(axis=1)]
        lost_rows, replicas = rows[~is_alive], int(np.count_nonzero(gone))
        is_open = layout.online & ~layout.closed & ~is_failed[:-1]
        free_slots = int(self.free_slots[is_open].sum())
        used = self.used + self._amounts(layout.lead, rows[moves], new_leaders)
        exceeds = used > np.maximum(layout.has, self.used)
        room, topics = layout.has - used, layout.topics_of(rows)
        needed = layout.follower[:, topics] @ gone.sum(axis=1)
        needed += layout.lead[:, layout.topics_of(lost_rows)].sum(axis=1)
        return FailureOutcome(
            failed=failed,
            leaders_lost=int(np.count_nonzero(gone[:, 0])),
            under_replicated=int(np.count_nonzero(is_alive)),
            lost_rows=lost_rows,
            leaders=self.leaders - self._tally(lists[gone[:, 0], 0]) + self._tally(new_leaders),
            replicas=replicas,
            without_slot=max(replicas - free_slots, _without_spu(lists, gone, kept, is_open)),
            open=is_open,
            free_slots=free_slots,
            used=used,
            exceeds=exceeds,
            needed=needed - np.where(exceeds, room, 0.0).sum(axis=1),
            free=np.maximum(room[:, is_open], 0.0).sum(axis=1),
        )


def _without_spu(lists: IdMatrix, gone: FlagArray, kept: FlagArray, is_open: FlagArray) -> int:
    """Replicas that no SPU can take, since all that could are in their lists already."""
    others = np.count_nonzero(is_open) - (kept & np.append(is_open, False)[lists]).sum(axis=1)
    return int(np.maximum(gone.sum(axis=1) - others, 0).sum())
