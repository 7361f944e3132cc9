"""The ring: the SPUs that may take new replicas, the orders it is read in, and where the next
assignment starts.

A reason holds its members as text: ids and ranges in the order in which the rule read them
(`0-4,7`; `0-8/2` is every second id from 0 to 8), where the rule reads racks rack by rack, by name
(`0-2;3-5`), and where it reads capacities with the one of all ids before it (`0-4*100,7*50`).

A chain names the SPU that leads next; when that one goes, the first after it that remains does, in
the next cycle when the search passes the end. Index = cycle * ring size + position of that SPU.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import numpy as np
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.records import Chain, Order, SpuChanged
from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.rules.fluvio import diagonal
from spu_assigner.core.rules.kafka import alternation
from spu_assigner.core.state.ledger import CountArray

START: Final = Chain()
_find_runs: Final = re.compile(r"([^*]+)(?:\*(\d+))?,?").findall  # ids, and their capacity
OVER_RACKS: Final = (Order.DIAGONAL, Order.ALTERNATION)


class Ring:
    """The SPUs of a cluster that are online, not cordoned and not saturated; never changed.

    `ids` ascend; `spus` describes at least them. `kept` is what is made of the ring, for as long.
    """

    def __init__(self, ids: IdArray, spus: Mapping[SpuId, SpuChanged]) -> None:
        self.ids = ids
        self.size = len(ids)
        self._spus = spus
        self._orders: dict[Order, IdArray] = {Order.ID: ids, Order.BALANCED: ids}
        self._index_of: dict[Order, tuple[Chain, int]] = {}
        self.kept: dict[Hashable, Any] = {}

    def order(self, order: Order) -> IdArray:
        """The members' ids in this order. O(N log N) the first time."""
        known = self._orders.get(order)
        if known is None:
            if order is Order.REGISTRATION:
                members = sorted(self.described(), key=attrgetter("registration"))
                ids = [spu.spu_id for spu in members]
            else:
                arranged = diagonal if order is Order.DIAGONAL else alternation
                racks = self.racks_of_members()
                ids = arranged([*racks], [*racks.values()])
            known = self._orders[order] = np.array(ids, dtype=np.int32)
        return known

    def text(self, order: Order, *, is_weighted: bool = False) -> str:
        """The members as a rule reads them that has this order; `is_weighted`: and capacities."""
        racks = None
        if order in OVER_RACKS or (is_weighted and order is Order.BALANCED):
            racks = self.rack_numbers(self.ids)
        ids = self.order(order) if racks is None else self.ids
        return members_text(ids, racks, self.weights if is_weighted else None)

    def described(self) -> list[SpuChanged]:
        """The members, by ascending id."""
        return [self._spus[SpuId(spu_id)] for spu_id in self.ids.tolist()]

    def racks_of_members(self, *, ignore_rack: bool = False) -> dict[int, str]:
        """The rack of each member by ascending id, "" for none."""
        return {spu.spu_id: "" if ignore_rack else spu.rack or "" for spu in self.described()}

    def rack_numbers(self, ids: IdArray) -> IdArray:
        """For each id the number of its rack, from 0 in name order."""
        racks = [self._spus[SpuId(spu_id)].rack or "" for spu_id in ids.tolist()]
        number_of = {rack: number for number, rack in enumerate(sorted({*racks}))}
        return np.array([number_of[rack] for rack in racks], dtype=np.int32)

    @cached_property
    def weights(self) -> CountArray:
        """The capacity of each member by ascending id."""
        return np.array([spu.capacity for spu in self.described()], dtype=np.int64)

    @cached_property
    def resource_names(self) -> frozenset[str]:
        """The resources that a member has."""
        return frozenset(name for spu in self.described() for name, _ in spu.resources)

    def __contains__(self, spu_id: int) -> bool:
        at = int(np.searchsorted(self.ids, spu_id))
        return at < self.size and int(self.ids[at]) == spu_id

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
        """The chain that stands at an index which an assignment has reached on a ring with SPUs."""
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
    for at in range(position, position + len(ids)):
        if ids[at % len(ids)] not in gone:
            return at, ids[at % len(ids)]
    return position, None


def members_text(ids: IdArray, racks: IdArray | None, weights: CountArray | None = None) -> str:
    """SPUs as a reason holds them; the numbers of racks count from 0, and may leave some out."""
    groups: list[list[int]] = [ids.tolist()]
    if racks is not None:
        groups = [ids[racks == rack].tolist() for rack in range(int(racks.max(initial=0)) + 1)]
    if weights is None:
        return ";".join(map(ranges_text, groups))
    weight_of = dict(zip(ids.tolist(), weights.tolist(), strict=True))
    runs = [groupby(group, weight_of.__getitem__) for group in groups]
    return ";".join(
        ",".join(f"{ranges_text(list(alike))}*{weight}" for weight, alike in run) for run in runs
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
    spus: dict[SpuId, SpuChanged] = {}
    for number, group in enumerate(text.split(";")):
        for span, weight in _find_runs(group):
            for spu_id in map(SpuId, ids_of_text(span)):
                spus[spu_id] = SpuChanged(
                    cluster_id="",
                    spu_id=spu_id,
                    online=True,
                    rack=f"{number:05}",
                    cores=1,
                    capacity=int(weight or 0),
                    labels=(),
                    registration=len(spus),
                    core_weights=(),
                )
    return Ring(np.array(sorted(spus), dtype=np.int32), spus)
