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
from spu_assigner.core.state.core_weights import HeldByCores, held_by_cores

BYTE_MAX: Final = 255
_PACKED: Final = "packed"  # of a table's cache: all its rows
_OF_WIDTH: Final = {1: np.uint8, 2: np.uint16, 4: np.int32}


class PackedLists(NamedTuple):
    """A matrix in the narrowest integers that hold it: a million topics are kept in memory."""

    data: bytes
    width: int  # bytes of one integer
    columns: int
    ragged: bool = False  # padded where lists are short

    def lists(self) -> ReplicaLists:
        """The replica lists again."""
        return ReplicaLists(self.matrix(), ragged=self.ragged)

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


def pack(lists: ReplicaLists) -> tuple[bytes, int, int, bool]:
    """The fields of the `PackedLists` of these; from a table the bytes are sliced."""
    table = lists.table
    if table is None:
        return _packed(lists.matrix, ragged=lists.ragged)
    if _PACKED not in table.cache:
        table.cache[_PACKED] = _packed(table.rows)
    data, width, columns, _ = table.cache[_PACKED]
    size = width * columns
    begin = lists.start * size
    return data[begin : begin + lists.count * size], width, columns, False


def _packed(matrix: IdMatrix, *, ragged: bool = False) -> tuple[bytes, int, int, bool]:
    largest = matrix.max(initial=0)
    width = 4 if ragged or largest > 65_535 else 2 if largest > BYTE_MAX else 1
    data = matrix.astype(_OF_WIDTH[width]).tobytes()
    return data, width, matrix.shape[1], ragged


class TopicExtras(FrozenStruct, frozen=True, kw_only=True):
    """What few topics have; all others share `NO_EXTRAS`."""

    cores: PackedLists | None = None  # of each replica, `redpanda` only
    ragged: bool = False  # some lists are short
    pinned: bool = False  # a rebalance leaves it where it is
    wanted_lengths: bytes | None = None  # a byte for each list, where an adopted topic's differ
    need: Need | None = None  # of resources, for each replica
    constraints: Constraints | None = None


NO_EXTRAS: Final = TopicExtras()


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
    extras: TopicExtras = NO_EXTRAS

    @property
    def replicas(self) -> PackedLists:
        """Its lists."""
        return PackedLists(self.data, self.width, self.columns, self.extras.ragged)

    @property
    def cores(self) -> PackedLists | None:
        """The core of each replica, of `redpanda`."""
        return self.extras.cores

    @property
    def pinned(self) -> bool:
        """Whether a rebalance leaves it where it is."""
        return self.extras.pinned

    @property
    def wanted_lengths(self) -> bytes | None:
        """How long each list is to be, where that differs."""
        return self.extras.wanted_lengths

    @property
    def need(self) -> Need | None:
        """What each replica needs of resources."""
        return self.extras.need

    @property
    def constraints(self) -> Constraints | None:
        """Its own rules."""
        return self.extras.constraints

    def lengths_wanted(self, partitions: int) -> Sequence[int]:
        """How long each of its lists is to be; it must have so many partitions."""
        return self.wanted_lengths or (self.replication_factor,) * partitions

    def held_by_cores(self) -> HeldByCores:
        """How many replicas each core holds; nothing but for `redpanda`."""
        if self.cores is None:
            return {}
        return held_by_cores(self.replicas.matrix(), self.cores.matrix())


def topic_of(record: ReplicaMap, lists: ReplicaLists, own_events: tuple[int, ...]) -> Topic:
    """What is kept of a map, which has these lists; `own_events`: the one that made it first."""
    data, width, columns, ragged = pack(lists)
    cores, wanted = record.cores, record.wanted_lengths
    need, constraints = record.need, record.constraints
    extras = NO_EXTRAS
    if ragged or cores or record.pinned or wanted or need or constraints:
        extras = TopicExtras(
            cores=None if cores is None else PackedLists(*pack(cores)),
            ragged=ragged,
            pinned=record.pinned,
            wanted_lengths=None if wanted is None else bytes(wanted),
            need=need,
            constraints=constraints,
        )
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
        extras,
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
