"""Who holds what in a cluster, as arrays: the input of everything else in this package.

SPUs are numbered by ascending id; lists hold these numbers. An SPU that is offline leads nothing
and serves nothing, so `live` leaves it out of the lists: the first of a live list leads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.replica_lists import PADDING, IdArray, IdMatrix, ReplicaLists
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.whatif.resources import ResourceLayout, resource_layout

CountArray = NDArray[np.int64]
FlagArray = NDArray[np.bool_]


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
    cordoned: FlagArray
    """Of each SPU, whether it takes no new replicas."""
    capacities: CountArray | None
    """Replica slots of each SPU; None: not known."""
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
    resources: ResourceLayout | None = None
    """What there is of resources; None: there are replica slots alone."""

    @property
    def numbers_online(self) -> IdArray:
        """The numbers of the online SPUs, ascending."""
        return np.flatnonzero(self.online).astype(np.int32)

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

    def partition_of(self, row: int) -> tuple[str, int]:
        """The topic and the partition of a row of `live`."""
        at = int(np.searchsorted(self.first_rows, row, side="right")) - 1
        return self.topics[at], row - int(self.first_rows[at])


def layout_of_state(state: ClusterState) -> ClusterLayout:
    """Of a cluster's state."""
    ids = np.array(sorted(state.spus), dtype=np.int32)
    spus = [state.spus[SpuId(each)] for each in ids.tolist()]
    names = tuple(sorted(state.topics))
    topics = [state.topics[name] for name in names]
    matrices = [each.replicas.matrix() for each in topics]
    wanted = [
        np.asarray(list(topic.lengths_wanted(len(matrix))), dtype=np.int32)
        if topic.wanted_lengths is not None
        else np.full(len(matrix), topic.replication_factor, dtype=np.int32)
        for topic, matrix in zip(topics, matrices, strict=True)
    ]
    return _layout(
        cluster_id=state.cluster_id,
        ids=ids,
        racks=tuple(spu.rack for spu in spus),
        online=np.array([spu.online for spu in spus], dtype=np.bool_),
        cordoned=np.array([spu.cordoned for spu in spus], dtype=np.bool_),
        capacities=np.array([spu.capacity for spu in spus], dtype=np.int64),
        matrices=dict(zip(names, matrices, strict=True)),
        wanted=wanted,
        resources=resource_layout(
            [spu.resources for spu in spus],
            [each.need for each in topics],
            [*map(len, matrices)],
        ),
    )


def layout_of_maps(
    *,
    cluster_id: str,
    online: Mapping[int, bool],
    cordoned: frozenset[int],
    maps: Mapping[str, ReplicaLists],
) -> ClusterLayout:
    """Of maps alone, which say neither racks nor capacities.

    Each list is to be as long as the longest of its map.

    Args:
        online: by SPU id; SPUs that only lists name are online.
    """
    named = [lists.flat() for lists in maps.values()]
    ids = np.unique(np.concatenate([*named, np.array(sorted(online))])).astype(np.int32)
    matrices = {name: maps[name].matrix for name in sorted(maps)}
    return _layout(
        cluster_id=cluster_id,
        ids=ids,
        racks=(None,) * len(ids),
        online=np.array([online.get(each, True) for each in ids.tolist()], dtype=np.bool_),
        cordoned=np.array([each in cordoned for each in ids.tolist()], dtype=np.bool_),
        capacities=None,
        matrices=matrices,
        wanted=[np.full(len(each), each.shape[1], dtype=np.int32) for each in matrices.values()],
    )


def _layout(
    *,
    cluster_id: str,
    ids: IdArray,
    racks: tuple[str | None, ...],
    online: FlagArray,
    cordoned: FlagArray,
    capacities: CountArray | None,
    matrices: Mapping[str, IdMatrix],
    wanted: list[IdArray],
    resources: ResourceLayout | None = None,
) -> ClusterLayout:
    lists = _joined(list(matrices.values()))
    is_there = lists != PADDING
    numbers = np.where(is_there, np.searchsorted(ids, lists), PADDING).astype(np.int32)
    held = np.bincount(numbers[is_there], minlength=len(ids)).astype(np.int64)
    sizes = np.array([0, *(len(each) for each in matrices.values())], dtype=np.int32)
    return ClusterLayout(
        cluster_id=cluster_id,
        ids=ids,
        racks=racks,
        online=online,
        cordoned=cordoned,
        capacities=capacities,
        held=held,
        live=_live(numbers, online),
        wanted=np.concatenate([np.zeros(0, dtype=np.int32), *wanted]),
        topics=tuple(matrices),
        first_rows=np.cumsum(sizes)[:-1].astype(np.int32),
        resources=resources,
    )


def _joined(matrices: list[IdMatrix]) -> IdMatrix:
    """All rows below each other, padded to the widest."""
    width = max((each.shape[1] for each in matrices), default=1)
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
