"""A living topic as the state keeps it, its lists packed, since there may be a million of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists
from spu_assigner.core.base.resources import Need
from spu_assigner.core.base.structs import FrozenStruct

BYTE_MAX: Final = 255
_PACKED: Final = "packed"  # of a table's cache: all its rows
_OF_WIDTH: Final = {1: np.uint8, 2: np.uint16, 4: np.int32}  # padding has a sign: 4 bytes


class PackedLists(NamedTuple):
    """A matrix in the narrowest integers that hold it: a million topics are kept in memory."""

    data: bytes
    width: int  # bytes of one integer
    columns: int

    def lists(self) -> ReplicaLists:
        """The replica lists again."""
        return ReplicaLists(self.matrix(), ragged=_OF_WIDTH[self.width] is np.int32)

    def matrix(self) -> IdMatrix:
        """The integers again, shape (partitions, replicas), padded where lists are short."""
        return self._array().astype(np.int32).reshape(-1, self.columns)

    def ids(self) -> Sequence[int]:
        """All ids, list after list, padding included; cheap, for a look through all topics."""
        if self.width == 1:
            return self.data
        ids: list[int] = self._array().tolist()
        return ids

    def leaders(self) -> Sequence[int]:
        """The first id of each list; likewise."""
        return self.ids()[:: self.columns]

    def holds(self, spu_id: int) -> bool:
        """Whether the id occurs; likewise."""
        return (self.width > 1 or spu_id <= BYTE_MAX) and spu_id in self.ids()

    def _array(self) -> NDArray[Any]:
        return np.frombuffer(self.data, dtype=_OF_WIDTH[self.width])


def pack(lists: ReplicaLists) -> tuple[bytes, int, int]:
    """The fields of the `PackedLists` of these; from a table the bytes are sliced."""
    table = lists.table
    if table is None:
        return _packed(lists)
    if _PACKED not in table.cache:
        table.cache[_PACKED] = _packed(ReplicaLists(table.rows))
    data, width, columns = table.cache[_PACKED]
    size = width * columns
    begin = lists.start * size
    return data[begin : begin + lists.count * size], width, columns


def _packed(lists: ReplicaLists) -> tuple[bytes, int, int]:
    largest = lists.matrix.max(initial=0)
    width = 4 if lists.ragged or largest > 65_535 else 2 if largest > BYTE_MAX else 1
    data = lists.matrix.astype(_OF_WIDTH[width]).tobytes()
    return data, width, lists.matrix.shape[1]


class Topic(FrozenStruct, frozen=True):
    """A living topic, its packed lists by their fields: an object less for each of a million."""

    policy: Policy
    revision: int
    created_by: int  # hash of its create, or of its first adoption
    changed_by: tuple[int, ...]  # hashes of its last grows, new factors and later adoptions
    replication_factor: int  # that was asked for; lists may be shorter
    ignore_rack: bool
    data: bytes
    width: int
    columns: int
    cores: PackedLists | None = None  # of each replica, `redpanda` only
    pinned: bool = False  # a rebalance leaves it where it is
    wanted_lengths: bytes | None = None  # a byte for each list, where an adopted topic's differ
    need: Need | None = None  # of resources, for each replica
    constraints: Constraints | None = None

    @property
    def replicas(self) -> PackedLists:
        """Its lists."""
        return PackedLists(self.data, self.width, self.columns)

    def lengths_wanted(self, partitions: int) -> Sequence[int]:
        """How long each of its lists is to be; it must have so many partitions."""
        return self.wanted_lengths or (self.replication_factor,) * partitions


def topic_of(record: ReplicaMap, lists: ReplicaLists, own_events: tuple[int, ...]) -> Topic:
    """What is kept of a map, which has these lists; `own_events`: the one that made it first."""
    data, width, columns = pack(lists)
    cores, wanted = record.cores, record.wanted_lengths
    return Topic(
        record.policy,
        record.revision,
        own_events[0],
        own_events[1:],
        record.replication_factor,
        record.ignore_rack,
        data,
        width,
        columns,
        None if cores is None else PackedLists(*pack(cores)),
        record.pinned,
        None if wanted is None else bytes(wanted),
        record.need,
        record.constraints,
    )


def map_of(cluster_id: str, name: str, topic: Topic) -> ReplicaMap:
    """What is kept of a topic as a map, without what is not."""
    return ReplicaMap(
        cluster_id=cluster_id,
        topic=name,
        revision=topic.revision,
        policy=topic.policy,
        replicas=topic.replicas.lists(),
        cores=topic.cores and topic.cores.lists(),
        chain_index=None,
        cause="",
        replication_factor=topic.replication_factor,
        ignore_rack=topic.ignore_rack,
        own_events=(topic.created_by, *topic.changed_by),
        pinned=topic.pinned,
        wanted_lengths=None if topic.wanted_lengths is None else tuple(topic.wanted_lengths),
        need=topic.need,
        constraints=topic.constraints,
    )
