"""Who holds what in a cluster, as arrays: the input of everything else in this package.

SPUs are numbered by ascending id; lists hold these numbers. An SPU that is offline leads nothing
and serves nothing, so `live` leaves it out of the lists: the first of a live list leads.

Amounts of resources are whole numbers in floating point: exact below 2**53, which is more than any
SPU has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.replica_lists import PADDING, IdArray, IdMatrix
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.topic import Topic

CountArray = NDArray[np.int64]
FlagArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLayout:
    """A cluster's SPUs and the replica lists of all its topics."""

    cluster_id: str
    ids: IdArray
    """The SPUs, ascending; an SPU's number is its place here."""
    racks: tuple[str | None, ...]
    """The rack of each SPU."""
    online: FlagArray
    """Of each SPU, whether it is online."""
    closed: FlagArray
    """Of each SPU, whether it takes no new replicas: cordoned, or with a taint against them."""
    capacities: CountArray
    """Replica slots of each SPU."""
    held: CountArray
    """Replicas that each SPU has in lists, offline or not."""
    live: IdMatrix
    """Shape (partitions, replicas): online SPUs by number, then -1."""
    wanted: IdArray
    """Replicas that each partition is to have."""
    topics: tuple[str, ...]
    """Their names, sorted."""
    first_rows: IdArray
    """The row of each topic's partition 0."""
    resources: tuple[str, ...]
    """Names of the resources that topics need beside replica slots."""
    has: FloatArray
    """Shape (resources, SPUs): what each SPU has."""
    follower: FloatArray
    """Shape (resources, topics): what a replica needs that does not lead."""
    lead: FloatArray
    """Shape (resources, topics): what a leader needs beyond that; below 0 where it needs less."""

    def numbers_of(self, spu_ids: Sequence[int]) -> IdArray:
        """The numbers of these SPUs, ascending.

        Raises:
            InvalidEventError: one is not of the cluster.
        """
        unknown = sorted({*spu_ids} - {*self.ids.tolist()})
        if unknown:
            expected = f"SPUs of cluster {self.cluster_id!r}"
            raise InvalidEventError(field="spu_ids", value=unknown[0], expected=expected)
        return np.unique(np.searchsorted(self.ids, np.array(spu_ids))).astype(np.int32)

    def topics_of(self, rows: IdArray) -> IdArray:
        """For each row of `live` the place of its topic in `topics`."""
        return np.asarray(np.searchsorted(self.first_rows, rows, side="right") - 1)

    def partition_of(self, row: int) -> tuple[str, int]:
        """The topic and the partition of a row of `live`."""
        topic = int(np.searchsorted(self.first_rows, row, side="right")) - 1
        return self.topics[topic], row - int(self.first_rows[topic])


def layout_of_state(state: ClusterState) -> ClusterLayout:
    """Of a cluster's state."""
    spus = [spu for _, spu in sorted(state.spus.items())]
    names = sorted(state.topics)
    topics = [state.topics[name] for name in names]
    ids = np.array([spu.spu_id for spu in spus], dtype=np.int32)
    online = np.array([spu.online for spu in spus], dtype=np.bool_)
    matrices = [topic.replicas.matrix() for topic in topics]
    sizes = [len(matrix) for matrix in matrices]
    lists = _joined(matrices)
    is_there = lists != PADDING
    numbers = np.where(is_there, np.searchsorted(ids, lists), PADDING).astype(np.int32)
    needs = [() if topic.need is None else topic.need.by_name() for topic in topics]
    resources = tuple(sorted({name for need in needs for name, *_ in need}))
    followers = [{name: follower for name, follower, _ in need} for need in needs]
    leads = [{name: leader - follower for name, follower, leader in need} for need in needs]
    return ClusterLayout(
        cluster_id=state.cluster_id,
        ids=ids,
        racks=tuple(spu.rack for spu in spus),
        online=online,
        closed=np.array([spu.is_closed for spu in spus], dtype=np.bool_),
        capacities=np.array([spu.capacity for spu in spus], dtype=np.int64),
        held=np.bincount(numbers[is_there], minlength=len(ids)),
        live=_live(numbers, online),
        wanted=np.array([*chain(*map(Topic.lengths_wanted, topics, sizes))], dtype=np.int32),
        topics=tuple(names),
        first_rows=np.cumsum([0, *sizes], dtype=np.int32)[:-1],
        resources=resources,
        has=_amounts(resources, [dict(spu.resources) for spu in spus]),
        follower=_amounts(resources, followers),
        lead=_amounts(resources, leads),
    )


def _joined(matrices: list[IdMatrix]) -> IdMatrix:
    """All rows below each other, padded to the widest."""
    width = max((matrix.shape[1] for matrix in matrices), default=1)
    lists = np.full((sum(map(len, matrices)), width), PADDING, dtype=np.int32)
    row = 0
    for matrix in matrices:
        lists[row : row + len(matrix), : matrix.shape[1]] = matrix
        row += len(matrix)
    return lists


def _live(numbers: IdMatrix, online: FlagArray) -> IdMatrix:
    """The lists without offline SPUs, the others in their order."""
    if bool(online.all()):
        return numbers
    is_gone = (numbers == PADDING) | ~online[numbers]
    order = np.argsort(is_gone, axis=1, kind="stable")
    return np.take_along_axis(np.where(is_gone, PADDING, numbers), order, axis=1)


def _amounts(resources: Sequence[str], named: Iterable[Mapping[str, int]]) -> FloatArray:
    """Shape (resources, of what is given): the amount of each resource, 0 where it has none."""
    rows = [[each.get(name, 0) for name in resources] for each in named]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(resources)).T
