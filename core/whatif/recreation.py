"""Where the replicas of a failure that lasts could be re-created, and how many SPUs are missing.

Every replica of a failed SPU that was online is to be re-created, those of lost partitions too:
they come back empty, or out of a copy, and need their slots. Partition by partition each is given
to an SPU that takes new replicas and is not in the list: to one with a free slot; of these, on the
rack that holds the fewest replicas of the list; then the one with the lowest share of its capacity
used, then the one with the lowest id. A repair orders SPUs in the same way; rules and resources of
topics are left aside here. A replica for which no SPU has a free slot is given by the same order to
one that would then be over its capacity.

The SPUs to add are a lower bound: if a replica is left without a slot, one; as many as have slots
for what is beyond all free slots; as many as the longest list lacks. More are needed where the last
free slots are of SPUs that are in the lists already.

Cost: O(replicas · SPUs), the second factor in numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core.base.replica_lists import PADDING
from spu_assigner.core.whatif.failure import FailureAnalysis, FailureOutcome
from spu_assigner.core.whatif.layout import CountArray, FloatArray

# The rank of an SPU for one replica more, as one integer: the least is chosen. From the right: the
# share of capacity used with it, in 2**-32; replicas of the list on its rack; what excludes it.
SHARE_BITS: Final = 32
ON_RACK: Final = 1 << 45
FULL: Final = 1 << 60
EXCLUDED: Final = 1 << 61


@dataclass(frozen=True, slots=True, kw_only=True)
class RecreatedReplicas:
    """What a failure that lasts asks of the other SPUs."""

    replicas: int  # to be re-created
    free_slots: int | None  # of the SPUs that take new replicas; None: not known
    without_slot: int  # replicas that find no slot
    without_spu: int  # of these, those that no SPU can take: all are in the list
    on_used_rack: int | None  # on a rack that another of the list is on; None: there are no racks
    spus_to_add: int | None  # fewer will not do; None: no number of such SPUs would do
    added_capacity: int | None  # replica slots of each of them; None: slots are not known


def usual(analysis: FailureAnalysis, amounts: CountArray | FloatArray) -> int:
    """The amount that most online SPUs have, the larger of equally frequent ones."""
    values, counts = np.unique(amounts[analysis.layout.online], return_counts=True)
    return int(values[counts == counts.max(initial=0)].max(initial=0))


def spus_for(amount: int, capacity: int) -> int | None:
    """How many SPUs of this capacity have the amount; None: no number of them."""
    if amount <= 0:
        return 0
    return -(-amount // capacity) if capacity else None


def _rank(held: int, capacity: int) -> int:
    share = ((held + 1) << SHARE_BITS) // max(capacity, 1)
    return min(share, ON_RACK - 1) + (FULL if held >= capacity else 0)


def recreation(
    analysis: FailureAnalysis, outcome: FailureOutcome, *, added_capacity: int | None = None
) -> tuple[RecreatedReplicas, CountArray, CountArray]:
    """Re-create what a failure takes.

    Args:
        added_capacity: of an SPU that would be added; None: the usual one of the cluster.

    Returns:
        The sums, the replicas that each SPU gets, and how many of these are beyond its capacity.
    """
    layout = analysis.layout
    if added_capacity is None:
        added_capacity = usual(analysis, layout.capacities)
    number_of = {rack: number for number, rack in enumerate(dict.fromkeys(layout.racks))}
    racks = np.array([number_of[rack] for rack in layout.racks])
    held, capacities = layout.held.tolist(), layout.capacities.tolist()
    rank = np.array([*map(_rank, held, capacities)], dtype=np.int64)
    rank[~outcome.open] = EXCLUDED
    failed, open_count = {*outcome.failed.tolist()}, int(outcome.open.sum())
    given, over = np.zeros_like(layout.held), np.zeros_like(layout.held)
    without_spu = on_used_rack = most_lacking = 0
    for row in layout.live[analysis.rows_of(outcome.failed)].tolist():
        members = [spu for spu in row if spu != PADDING]
        in_list = [spu for spu in members if spu not in failed]
        missing = len(members) - len(in_list)
        lacking = max(0, missing - open_count + int(outcome.open[in_list].sum()))
        without_spu += lacking
        most_lacking = max(most_lacking, lacking)
        on_rack = np.bincount(racks[in_list], minlength=len(number_of)) * ON_RACK
        for _ in range(missing - lacking):
            ranks = rank + on_rack[racks]
            ranks[in_list] = EXCLUDED
            spu = int(ranks.argmin())
            over[spu] += held[spu] >= capacities[spu]
            on_used_rack += bool(on_rack[racks[spu]])
            given[spu] += 1
            held[spu] += 1
            rank[spu] = _rank(held[spu], capacities[spu])
            on_rack[racks[spu]] += ON_RACK
            in_list.append(spu)
    without_slot = int(over.sum()) + without_spu
    spus_to_add = spus_for(
        max(without_slot > 0, outcome.replicas - outcome.free_slots), added_capacity
    )
    found = RecreatedReplicas(
        replicas=outcome.replicas,
        free_slots=outcome.free_slots,
        without_slot=without_slot,
        without_spu=without_spu,
        on_used_rack=on_used_rack if any(layout.racks) else None,
        spus_to_add=None if spus_to_add is None else max(spus_to_add, most_lacking),
        added_capacity=added_capacity,
    )
    return found, given, over
