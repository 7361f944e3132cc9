"""The ring: the SPUs that may take new replicas, the orders it is read in, and where the next
assignment starts.

A reason holds its members as text: ids and ranges in the order in which the rule read them
(`0-4,7`; `0-8/2` is every second id from 0 to 8), where the rule reads racks rack by rack, by name
(`0-2;3-5`), and where it reads capacities with the one of all ids before it (`0-4*100,7*50`). By id
that is some bytes for any ring; at worst, 10,000 ids in no order, it is `RING_SIZE_MAX`.

A chain names the SPU that leads next instead of a position. So a ring that grows, or is put in
another order, changes no chain; only when the leading SPU itself goes does the first one after it
that remains lead, in the next cycle when the search passes the end. The chain index is derived:
cycle * ring size + position of that SPU.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.chains import Chain, Order
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.rules.fluvio import diagonal
from spu_assigner.core.rules.kafka import alternation
from spu_assigner.core.state.ledger import CountArray

START: Final = Chain()
_OVER_RACKS: Final = (Order.DIAGONAL, Order.ALTERNATION)


class Ring:
    """The SPUs of a cluster that are online, not cordoned and not saturated; never changed once
    made.

    `ids` are in ascending order. `spus` describes at least the members; it must not change while
    the ring is in use.
    """

    __slots__ = (
        "_index_of",
        "_orders",
        "_racks",
        "_resource_names",
        "_spus",
        "_weights",
        "ids",
        "kept",
        "size",
    )

    def __init__(self, ids: IdArray, spus: Mapping[SpuId, SpuChanged]) -> None:
        self.ids = ids
        self.size = len(ids)
        self._spus = spus
        self._orders: dict[Order, IdArray] = {Order.ID: ids, Order.BALANCED: ids}
        self._index_of: dict[Order, tuple[Chain, int]] = {}
        self._racks: NDArray[np.str_] | None = None
        self._weights: CountArray | None = None
        self._resource_names: frozenset[str] | None = None
        self.kept: dict[Hashable, Any] = {}  # what others make of the ring: it lasts as long

    def order(self, order: Order) -> IdArray:
        """The members' ids in this order. O(N log N) the first time."""
        known = self._orders.get(order)
        if known is None:
            known = self._orders[order] = np.array(self._arranged(order), dtype=np.int32)
        return known

    def _arranged(self, order: Order) -> list[int]:
        ids: list[int] = self.ids.tolist()
        if order is Order.REGISTRATION:
            return sorted(ids, key=lambda spu_id: self._spus[SpuId(spu_id)].registration)
        racks = [self._spus[SpuId(spu_id)].rack or "" for spu_id in ids]
        return diagonal(ids, racks) if order is Order.DIAGONAL else alternation(ids, racks)

    def text(self, order: Order, *, is_weighted: bool = False) -> str:
        """The members as a rule reads them that has this order; `is_weighted`: and capacities."""
        racks = None
        if order in _OVER_RACKS or (is_weighted and order is Order.BALANCED):
            racks = self.rack_numbers(self.ids)
        ids = self.order(order) if racks is None else self.ids
        return members_text(ids, racks, self.weights() if is_weighted else None)

    def racks(self) -> NDArray[np.str_]:
        """The rack of each member by ascending id; "" for none."""
        if self._racks is None:
            self._racks = np.array([self._spus[SpuId(i)].rack or "" for i in self.ids.tolist()])
        return self._racks

    def racks_of_members(self, *, ignore_rack: bool = False) -> dict[int, str]:
        """The rack of each member by id, "" for none."""
        ids: list[int] = self.ids.tolist()
        racks = [""] * self.size if ignore_rack else self.racks().tolist()
        return dict(zip(ids, racks, strict=True))

    def described(self) -> list[SpuChanged]:
        """The members, by ascending id."""
        return [self._spus[SpuId(spu_id)] for spu_id in self.ids.tolist()]

    def weights(self) -> CountArray:
        """The capacity of each member by ascending id."""
        if self._weights is None:
            capacities = [self._spus[SpuId(spu_id)].capacity for spu_id in self.ids.tolist()]
            self._weights = np.array(capacities, dtype=np.int64)
        return self._weights

    def resource_names(self) -> frozenset[str]:
        """The resources that a member has."""
        if self._resource_names is None:
            spus = [self._spus[SpuId(spu_id)] for spu_id in self.ids.tolist()]
            self._resource_names = frozenset(name for spu in spus for name, _ in spu.resources)
        return self._resource_names

    def rack_numbers(self, ids: IdArray) -> IdArray:
        """For each id the number of its rack, from 0 in name order."""
        racks = [self._spus[SpuId(spu_id)].rack or "" for spu_id in ids.tolist()]
        number_of = {rack: number for number, rack in enumerate(sorted(set(racks)))}
        return np.array([number_of[rack] for rack in racks], dtype=np.int32)

    def __contains__(self, spu_id: int) -> bool:
        at = int(np.searchsorted(self.ids, spu_id))
        return at < self.size and int(self.ids[at]) == spu_id

    def with_members(self, entering: Iterable[int], spus: Mapping[SpuId, SpuChanged]) -> Ring:
        """The ring after some SPUs have entered it, with new descriptions of all."""
        new = [spu_id for spu_id in sorted(set(entering)) if spu_id not in self]
        at = np.searchsorted(self.ids, new)  # `union1d` would import numpy's masked arrays.
        return Ring(np.insert(self.ids, at, np.array(new, dtype=np.int32)), spus)

    def without(self, gone: Collection[int]) -> Ring:
        """The ring after some members have left it."""
        return Ring(self.ids[~np.isin(self.ids, list(gone))], self._spus)

    def index(self, order: Order, chain: Chain) -> int:
        """The chain index on this ring: cycle * size + position of the SPU that leads next."""
        cached = self._index_of.get(order)
        if cached is not None and cached[0] is chain:
            return cached[1]
        if not chain.moved:
            return 0
        if chain.lead is None:
            return chain.cycle * self.size
        position = int(np.flatnonzero(self.order(order) == chain.lead)[0])
        index = chain.cycle * self.size + position
        self._index_of[order] = (chain, index)
        return index

    def chain_at(self, order: Order, index: int) -> Chain:
        """The chain that stands at an index which an assignment has reached.

        The ring must not be empty.
        """
        cycle, position = divmod(index, self.size)
        ids = self._orders[order] if order in self._orders else self.order(order)
        chain = Chain(cycle=cycle, lead=ids.item(position), moved=True)
        self._index_of[order] = (chain, index)
        return chain

    def chain_without(self, order: Order, chain: Chain, gone: Collection[int]) -> Chain:
        """The chain after some members leave together: the first that remains leads."""
        if chain.lead is None or chain.lead not in gone:
            return chain
        ids: list[int] = self.order(order).tolist()
        index, lead = next_remaining(ids, ids.index(chain.lead), gone)
        if lead is None:
            return Chain(cycle=chain.cycle, lead=None, moved=True)
        return Chain(cycle=chain.cycle + index // len(ids), lead=lead, moved=True)

    def chain_entered(self, order: Order, chain: Chain) -> Chain:
        """The chain on this ring after members came: in a ring that was empty, position 0 leads."""
        if chain.moved and chain.lead is None and self.size:
            return Chain(cycle=chain.cycle, lead=int(self.order(order)[0]), moved=True)
        return chain


def next_remaining(ids: list[int], position: int, gone: Collection[int]) -> tuple[int, int | None]:
    """Where, from a position on, the first id not gone stands; past the end the length is added."""
    for step in range(len(ids)):
        candidate = ids[(position + step) % len(ids)]
        if candidate not in gone:
            return position + step, candidate
    return position, None


def members_text(ids: IdArray, racks: IdArray | None, weights: CountArray | None = None) -> str:
    """SPUs as a reason holds them; the numbers of racks count from 0, and may leave some out."""
    groups: list[list[int]] = [ids.tolist()]
    if racks is not None:
        groups = [[] for _ in range(int(racks.max(initial=0)) + 1)]
        for spu_id, rack in zip(ids.tolist(), racks.tolist(), strict=True):
            groups[rack].append(spu_id)
    if weights is None:
        return ";".join(map(ranges_text, groups))
    weight_of = dict(zip(ids.tolist(), weights.tolist(), strict=True))
    return ";".join(
        ",".join(
            f"{ranges_text(list(run))}*{weight}"
            for weight, run in groupby(group, weight_of.__getitem__)
        )
        for group in groups
    )


def ranges_text(ids: Sequence[int]) -> str:
    """Ids in their order, three or more at equal distances as a range."""
    parts: list[str] = []
    at, last = 0, len(ids) - 1
    while at <= last:
        end = at + 1
        step = ids[end] - ids[at] if end < last else 0
        while step > 0 and end < last and ids[end + 1] - ids[end] == step:
            end += 1
        if end > at + 1:
            parts.append(f"{ids[at]}-{ids[end]}" + (f"/{step}" if step > 1 else ""))
            at = end + 1
        else:
            parts.append(str(ids[at]))
            at += 1
    return ",".join(parts)


def ids_of_text(text: str) -> list[int]:
    """The ids of `ranges_text`, in their order."""
    ids: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        last, _, step = last.partition("/")
        ids += range(int(first), int(last or first) + 1, int(step or 1))
    return ids


def ring_of_text(text: str) -> Ring:
    """The ring of `Ring.text`; racks have numbers for names."""
    racks: dict[int, str] = {}  # in the order of the text
    weights: dict[int, int] = {}
    for number, group in enumerate(text.split(";")):
        waiting: list[int] = []  # for their capacity, which stands behind the last of them
        for part in group.split(","):
            span, _, weight = part.partition("*")
            ids = ids_of_text(span)
            racks |= dict.fromkeys(ids, f"{number:05}")
            waiting += ids
            if weight:
                weights |= dict.fromkeys(waiting, int(weight))
                waiting = []
    spus = {
        SpuId(spu_id): SpuChanged(
            cluster_id="",
            spu_id=spu_id,
            online=True,
            rack=rack,
            cores=1,
            capacity=weights.get(spu_id, 0),
            labels=(),
            registration=place,
            core_weights=(),
        )
        for place, (spu_id, rack) in enumerate(racks.items())
    }
    return Ring(np.array(sorted(spus), dtype=np.int32), spus)
