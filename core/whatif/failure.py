"""What the failure of a set of SPUs costs, before anything is repaired.

The first online replica of a list leads. When SPUs fail, each partition that they lead gets the
next online replica of its list as leader; one whose online replicas all fail is lost. A new leader
takes what a leader needs more than a follower of its SPU's resources. If the failure lasts, what
the failed SPUs held is to be re-created elsewhere, the replicas of lost partitions too. Slots and
resources are compared as sums, so the SPUs to add are a lower bound.

Example. Lists [3, 2, 0] and [4, 3, 1], and 3 and 4 fail: the first loses its leader, 2 leads it and
one of its replicas is to be re-created; the second loses its leader too, 1 leads it and two are to
be re-created. Both are under-replicated, none is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.replica_lists import PADDING, IdArray, stacked
from spu_assigner.core.base.structs import FrozenStruct
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.topic import Topic

FlagArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]  # of whole numbers: exact below 2**53, more than any SPU has


class FailureOutcome(FrozenStruct, frozen=True, kw_only=True):
    """What a failure costs; arrays are by SPU as `FailureAnalysis.ids`, or by resource."""

    failed: FlagArray
    """The SPUs that fail, of those that were online."""
    leaders_lost: int
    """Partitions that lose their leader, the lost ones included."""
    under_replicated: int
    """Partitions that lose a replica and keep one."""
    lost_rows: IdArray
    """Partitions that lose their last online replica, for `FailureAnalysis.partition_of`."""
    leaders: CountArray
    """Partitions that each SPU leads afterwards."""
    replicas: int
    """Replicas that are to be re-created if the failure is permanent."""
    free_slots: int
    """Of the SPUs that take new replicas."""
    lists_short: CountArray
    """Of each list that lost a replica: replicas that no SPU can take, since all are in it."""
    used: FloatArray
    """Shape (resources, SPUs): what each uses after the failover; a failed one what it did."""
    exceeds: FlagArray
    """Of these, whether the failover puts the SPU over its capacity of the resource."""
    needed: FloatArray
    """What it takes to re-create what failed, and to relieve SPUs that are over."""
    free: FloatArray
    """What the SPUs that take new replicas have left."""

    @property
    def without_slot(self) -> int:
        """Replicas for which there is certainly no room."""
        return max(0, self.replicas - self.free_slots, int(self.lists_short.sum()))

    def badness(self) -> tuple[int, ...]:
        """What failures are compared by, the worst is the greatest: partitions lost, replicas
        without a slot, SPUs over capacity; then leaders lost, partitions under-replicated, and
        leaders of one SPU."""
        over, most = int(self.exceeds.any(axis=0).sum()), int(self.leaders.max(initial=0))
        is_bad = (len(self.lost_rows), self.without_slot, over)
        return (*is_bad, self.leaders_lost, self.under_replicated, most)

    def spus_to_add(self, slots: int) -> int | None:
        """SPUs of so many slots that are needed at least; None: no number of them will do."""
        for_slots = spus_for(self.replicas - self.free_slots, slots)
        for_lists = int(self.lists_short.max(initial=0))
        return None if for_slots is None or (for_lists and not slots) else max(for_slots, for_lists)


class FailureAnalysis:
    """Failures of one cluster; what all of them need is counted once.

    `ids` has the SPUs, ascending. Lists hold their places there, without offline SPUs.
    """

    def __init__(self, state: ClusterState) -> None:
        spus = [spu for _, spu in sorted(state.spus.items())]
        self.cluster_id, self.topics = state.cluster_id, sorted(state.topics)
        self.ids: IdArray = np.array([spu.spu_id for spu in spus], dtype=np.int32)
        self.racks = [spu.rack for spu in spus]
        self.online: FlagArray = np.array([spu.online for spu in spus], dtype=np.bool_)
        self.closed: FlagArray = np.array([spu.is_closed for spu in spus], dtype=np.bool_)
        self.capacities: CountArray = np.array([spu.capacity for spu in spus], dtype=np.int64)
        self.held = state.ledger.counts(self.ids)  # replicas, also of those that are offline
        topics = [state.topics[name] for name in self.topics]
        matrices = [topic.replicas.matrix() for topic in topics]
        sizes = [len(matrix) for matrix in matrices]
        self._topic_of = np.repeat(np.arange(len(sizes)), sizes)  # by its place, of each list
        lists = stacked(matrices)
        places = np.searchsorted(self.ids, lists)
        is_gone = (lists == PADDING) | ~self.online[places]
        order = np.argsort(is_gone, axis=1, kind="stable")
        self._live = np.take_along_axis(np.where(is_gone, PADDING, places), order, axis=1)
        wanted = [*chain(*map(Topic.lengths_wanted, topics, sizes))]

        needs = [() if topic.need is None else topic.need.by_name() for topic in topics]
        self.resources = sorted({name for need in needs for name, *_ in need})
        self.has = _amounts(self.resources, [dict(spu.resources) for spu in spus])
        follower = [{name: amount for name, amount, _ in need} for need in needs]
        lead = [{name: more - amount for name, amount, more in need} for need in needs]
        self._follower = _amounts(self.resources, follower)  # what a replica of a topic needs
        self._lead = _amounts(self.resources, lead)  # and a leader beyond that
        is_there = self._live != PADDING
        rows, columns = np.nonzero(is_there)
        numbers, led = self._live[rows, columns], np.flatnonzero(is_there[:, 0])
        self.leaders = self._tally(self._live[led, 0])
        self.used = self._use(self._follower, rows, numbers)
        self.used += self._use(self._lead, led, self._live[led, 0])
        lengths = is_there.sum(axis=1)
        self.partitions = len(lengths)
        # Partitions without an online replica, whatever fails; and with fewer than wanted.
        self.lost = int(np.count_nonzero(lengths == 0))
        self.under_replicated = int(np.count_nonzero((lengths > 0) & (lengths < wanted)))
        # The rows of the SPU 0, then of 1, …
        self._rows = rows[np.argsort(numbers, kind="stable")]
        self._begins = np.concatenate(([0], np.cumsum(self._tally(numbers))))

    def _tally(self, numbers: IdArray) -> CountArray:
        return np.bincount(numbers, minlength=len(self.ids))

    def _use(self, needs: FloatArray, rows: NDArray[np.intp], numbers: IdArray) -> FloatArray:
        """What SPUs need together for these rows; shape (resources, SPUs)."""
        count, of_rows = len(self.ids), needs[:, self._topic_of[rows]]
        sums = [np.bincount(numbers, weights=need, minlength=count) for need in of_rows]
        return np.array(sums, dtype=np.float64).reshape(len(needs), count)

    def partition_of(self, row: int) -> tuple[str, int]:
        """The topic and the partition of a row."""
        topic = self._topic_of[row]
        return self.topics[topic], row - int(np.searchsorted(self._topic_of, topic))

    def outcome(self, spu_ids: Iterable[int]) -> FailureOutcome:
        """What the failure of these SPUs costs. O(SPUs, and partitions that they hold).

        Raises:
            InvalidEventError: one is not of the cluster.
        """
        wanted = np.array(sorted({*spu_ids}), dtype=np.int64)
        unknown = wanted[~np.isin(wanted, self.ids)]
        if len(unknown):
            expected = f"SPUs of cluster {self.cluster_id!r}"
            raise InvalidEventError(field="spu_ids", value=int(unknown[0]), expected=expected)
        is_failed = np.zeros(len(self.ids) + 1, dtype=np.bool_)  # the last is the padding's
        is_failed[np.searchsorted(self.ids, wanted)] = True
        is_failed[:-1] &= self.online
        rows = self._rows_of(np.flatnonzero(is_failed))
        lists = self._live[rows]
        gone = is_failed[lists]
        kept = (lists != PADDING) & ~gone
        is_alive = kept.any(axis=1)
        moves = gone[:, 0] & is_alive  # gets a new leader
        new_leaders = lists[moves, kept[moves].argmax(axis=1)]
        is_open = self.online & ~self.closed & ~is_failed[:-1]
        others = np.count_nonzero(is_open) - (kept & np.append(is_open, False)[lists]).sum(axis=1)
        used = self.used + self._use(self._lead, rows[moves], new_leaders)
        exceeds = used > np.maximum(self.has, self.used)
        room = self.has - used
        needed = self._follower[:, self._topic_of[rows]] @ gone.sum(axis=1)
        needed += self._lead[:, self._topic_of[rows[~is_alive]]].sum(axis=1)
        return FailureOutcome(
            failed=is_failed[:-1],
            leaders_lost=int(np.count_nonzero(gone[:, 0])),
            under_replicated=int(np.count_nonzero(is_alive)),
            lost_rows=rows[~is_alive],
            leaders=self.leaders - self._tally(lists[gone[:, 0], 0]) + self._tally(new_leaders),
            replicas=int(np.count_nonzero(gone)),
            free_slots=int(np.maximum(self.capacities - self.held, 0)[is_open].sum()),
            lists_short=np.maximum(gone.sum(axis=1) - others, 0),
            used=used,
            exceeds=exceeds,
            needed=needed - np.where(exceeds, room, 0.0).sum(axis=1),
            free=np.maximum(room[:, is_open], 0.0).sum(axis=1),
        )

    def _rows_of(self, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """The lists that have a replica on one of these SPUs, ascending."""
        found = [self._rows[self._begins[each] : self._begins[each + 1]] for each in numbers]
        return np.unique(np.concatenate([self._rows[:0], *found]))

    def usual(self, amounts: CountArray | FloatArray) -> int:
        """The amount that most online SPUs have, the larger of equally frequent ones."""
        values, counts = np.unique(amounts[self.online], return_counts=True)
        return int(values[counts == counts.max(initial=0)].max(initial=0))


def spus_for(amount: int, capacity: int) -> int | None:
    """How many SPUs of this capacity have the amount; None: no number of them."""
    if amount <= 0:
        return 0
    return -(-amount // capacity) if capacity else None


class FailureSweep(FrozenStruct, frozen=True, kw_only=True):
    """All failures of a kind."""

    cases: int
    """How many failures were looked at."""
    losing: int
    """Cases that lose a partition."""
    over_capacity: int
    """Cases with more replicas to re-create than there is room for."""
    over_resources: int
    """Cases whose failover puts an SPU over the capacity of a resource."""
    failed: list[int]
    """The ids of the SPUs of the worst case, the first of equals."""


def sweep_spus(analysis: FailureAnalysis) -> FailureSweep:
    """The failure of each online SPU."""
    return _sweep(analysis, [[spu_id] for spu_id in analysis.ids[analysis.online].tolist()])


def sweep_racks(analysis: FailureAnalysis) -> FailureSweep:
    """The failure of each rack that has an online SPU, in the order of names."""
    members: dict[str, list[int]] = {}
    for number in np.flatnonzero(analysis.online).tolist():
        rack = analysis.racks[number]
        if rack is not None:
            members.setdefault(rack, []).append(int(analysis.ids[number]))
    return _sweep(analysis, [spu_ids for _, spu_ids in sorted(members.items())])


def _sweep(analysis: FailureAnalysis, cases: Sequence[list[int]]) -> FailureSweep:
    found = [analysis.outcome(failed).badness() for failed in cases]
    losing, over_capacity, over_resources = (sum(each[at] > 0 for each in found) for at in range(3))
    return FailureSweep(
        cases=len(cases),
        losing=losing,
        over_capacity=over_capacity,
        over_resources=over_resources,
        failed=cases[found.index(max(found))] if cases else [],
    )


def _amounts(resources: Sequence[str], named: Iterable[dict[str, int]]) -> FloatArray:
    """Shape (resources, of what is given): the amount of each resource, 0 where it has none."""
    rows = [[each.get(name, 0) for name in resources] for each in named]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(resources)).T
