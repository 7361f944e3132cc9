"""Many lists at once, dealt so that failovers are even: followers leader by leader.

The followers of each rack are dealt in turn to the lists of one leader after the other, first those
that come right behind the leader. So each SPU that leads is followed by as many others as there
are, and what a rack leads is taken over by all others in turn, whatever the sizes of racks and of
the request. Dealt list by list (`fill_rows`), SPUs may come in step: of one topic of 5,000
partitions on 63 SPUs, one SPU would take over 20 of the 79 lists that another one leads.

- Where a list has a replica on each rack, the racks come right behind its leader by capacity.
- Where racks do not matter, each leader has all others in turn. Some followers then change, so that
  each SPU is as often in the lists as it is to.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.balanced.list_filling import Task, racks_of_columns
from spu_assigner.core.balanced.swap_repair import Columns, by_number, repaired
from spu_assigner.core.balanced.weighted_interleave import Numbers, dealt, interleaved
from spu_assigner.core.state.ledger import CountArray

PERIOD_MAX: Final = 1_024  # lists after which the racks right behind a leader come again


def rows_by_leader(
    task: Task, *, capacities: CountArray, led: CountArray
) -> NDArray[np.int16] | None:
    """Rows of positions in `ids`, shape (rows, replicas), leader first.

    A row has an SPU of a rack at most, or racks do not matter. `capacities` are those of the SPUs,
    `led` the lists that they lead already. None: rows are to be made otherwise.
    Cost: O(cells), vectorised.
    """
    leading = interleaved(task.leaders, task.positions)
    by_leader = by_number(leading)
    columns = np.empty((task.replicas, len(leading)), dtype=np.int16)
    columns[0] = leading
    if len(task.starts) == len(task.ids):
        if not _follow_all(task, columns, by_leader, led):
            return None
    else:
        _follow_on_racks(task, columns, by_leader, capacities)
    return np.ascontiguousarray(columns.T)


def _follow_all(task: Task, columns: Columns, by_leader: CountArray, led: CountArray) -> bool:
    """Fill in followers where racks do not matter; whether that can be done.

    Each leader goes on where it has come to by the lists that it leads already. What each SPU has
    too many of, or too few, is made up for in the last column.
    """
    size, followers = len(task.ids), task.replicas - 1
    to_follow = task.quotas - task.leaders
    if task.replicas == size or int(to_follow.max()) > 2 * int(to_follow.min()):
        return False
    leaders = columns[0].take(by_leader).astype(np.int32)
    turns = np.arange(len(leaders))
    turns += np.repeat(led + task.leaders - task.leaders.cumsum(), task.leaders)
    for at in range(followers):
        ahead = (turns + at * (size - 1) // followers) % (size - 1)
        columns[1 + at, by_leader] = (leaders + 1 + ahead) % size
    more = np.bincount(columns[1:].reshape(-1), minlength=size) - to_follow
    if not more.any():
        return True
    last, surplus = columns[-1], np.maximum(more, 0)
    there = np.bincount(last, minlength=size)
    if (surplus > there).any():
        return False
    spus = np.repeat(np.arange(size), surplus)
    turns = np.arange(len(spus)) - np.repeat(surplus.cumsum() - surplus, surplus)
    places = (there.cumsum() - there)[spus] + turns * there[spus] // surplus[spus]
    last[by_number(last)[places]] = np.repeat(np.arange(size), np.maximum(-more, 0))
    return not len(repaired(columns, None, task.seed))


def _follow_on_racks(
    task: Task, columns: Columns, by_leader: CountArray, capacities: CountArray
) -> None:
    """Fill in followers, on racks other than their leader's and than each other's."""
    if len(task.starts) == task.replicas:
        racks = _all_racks(task, np.add.reduceat(capacities, task.starts))
    else:
        racks = racks_of_columns(task, columns[0].take(by_leader))
    counts = np.array([np.bincount(column, minlength=len(task.starts)) for column in racks])
    sequences = [
        np.split(own, np.cumsum(sizes)[:-1])
        for own, sizes in zip(_sequences(task), counts.T, strict=True)
    ]
    for at, column in enumerate(racks):
        followers = np.concatenate([own[at] for own in sequences])
        columns[1 + at, by_leader.take(by_number(column))] = followers


def _sequences(task: Task) -> list[Numbers]:
    """The followers of each rack, each SPU as often as it is to, evenly spread.

    Where they are to come about equally often: all in turn, in an order that begins where the
    request before is likely to have ended for the same leader.
    """
    counts, size = task.quotas - task.leaders, len(task.ids)
    sequences = []
    for begin, end in pairwise([*task.starts.tolist(), size]):
        own, count = counts[begin:end], end - begin
        least, most = int(own.min()), int(own.max())
        if most > 2 * least:
            spus = dealt(own, np.zeros_like(own), task.seed)
        else:
            first = task.seed * count // (size * (size - count)) % count
            spus = (np.arange(first, first + least * count) % count).astype(np.int16)
            if least < most:
                turned = np.arange(first, first + count, dtype=np.int16) % np.int16(count)
                more = np.arange(most - least)[:, np.newaxis] < own[turned] - least
                spus = np.concatenate((spus, turned[more.nonzero()[1]]))
        spus += np.int16(begin)
        sequences.append(spus)
    return sequences


def _all_racks(task: Task, weights: CountArray) -> Columns:
    """The racks of followers, leader by leader, where a list has all racks."""
    led, parts = np.add.reduceat(task.leaders, task.starts).tolist(), tuple(weights.tolist())
    racks = np.empty((task.replicas - 1, sum(led)), dtype=np.int16)
    begin = 0
    for home, lists in enumerate(led):
        period = _period(parts, home)
        racks[:, begin : begin + lists] = period[:, np.arange(lists) % period.shape[1]]
        begin += lists
    return racks


@lru_cache(maxsize=256)
def _period(weights: tuple[int, ...], home: int) -> Columns:
    """The racks of followers in some lists that a rack leads; then they come again."""
    others = [rack for rack in range(len(weights)) if rack != home]
    shares = [weights[rack] for rack in others]
    unit = max(gcd(*shares), -(-sum(shares) // PERIOD_MAX))
    counts = np.array([max(share // unit, 1) for share in shares])
    firsts = interleaved(counts, np.arange(len(others)))
    turns = np.arange(len(others))[:, np.newaxis]
    return np.array(others, dtype=np.int16).take((firsts + turns) % len(others))
