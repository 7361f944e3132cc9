"""The ring as it was: rebuilt from what is known now and the ring events since.

Walks backwards from the present. Each ring event undone gives an earlier membership, a *cut*; the
right one has the size and the fingerprint that the decision recorded. Within the ring events of one
event the order among SPUs is not told, so every mixture that the size allows is tried, up to a
limit. A ring that no cut gives is not guessed: `find_ring` returns None.

The order of registration is that of now, as far as no event tells of it. So are racks; but for SPUs
that are forgotten, or were described anew since, each rack of the cluster is tried. The fingerprint
says which it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, islice, product
from typing import Final

import numpy as np
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.records import Order, Reason, RingChange, RingEvent, SpuChanged
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import Ring

RACKS_TRIED_MAX: Final = 512  # for one cut: combinations of racks
RINGS_TRIED_MAX: Final = 8_192  # with other racks than those of now, for one decision
OVER_RACKS: Final = (Order.DIAGONAL, Order.ALTERNATION, Order.BALANCED)
MIXTURES_MAX: Final = 4_096  # of the ring events of one event; 12 SPUs that became saturated


class RingPlace(StrEnum):
    """Where an SPU stands, seen from the ring."""

    RING = "ring"
    SATURATED = "saturated"
    OFFLINE = "offline"
    LEAVING = "leaving"
    LEFT = "left"  # it left some time before: offline or leaving, if it is not forgotten by then
    OUT = "out"  # not in the ring; whether saturated, offline or not yet known is not told
    UNKNOWN = "unknown"  # not in the ring; offline, or not of the cluster at all


@dataclass(frozen=True, slots=True, kw_only=True)
class RingGroup:
    """The ring events of one event, in order."""

    key: str  # the same for all records of the event
    events: tuple[RingEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRing:
    """The ring before a decision, and who of the cluster was not in it."""

    ring: Ring
    offline: tuple[int, ...]  # or leaving; named as far as it is certain
    saturated: tuple[int, ...]
    leaving: tuple[int, ...]  # of `offline`, those known to have been decommissioned
    unnamed: int  # more that were not in the ring, of whom the outputs do not tell the name
    described_since: frozenset[int]  # whose racks of now need not be those of then


@dataclass(frozen=True, slots=True)
class _Cut:
    """A moment: all of groups 0 … group - 1, and of that group the first changes of each SPU."""

    places: Mapping[int, RingPlace]
    group: int
    taken: Mapping[int, int]  # changes of `group` that have happened, by SPU

    def size(self) -> int:
        return sum(place is RingPlace.RING for place in self.places.values())

    def ids(self) -> list[int]:
        return sorted(spu_id for spu_id, place in self.places.items() if place is RingPlace.RING)


def find_ring(
    state: ClusterState,
    groups: Sequence[RingGroup],
    reason: Reason,
    *,
    order: Order,
    key: str,
    is_whole: bool,
) -> PastRing | None:
    """The ring that has the fingerprint of the reason.

    None: no cut gives it.

    Args:
        state: the cluster now, after all groups.
        groups: ring events, oldest first, without a gap up to now.
        order: the one that the fingerprint was taken of.
        key: of the event that made the decision. If it has a group, only the cuts of that are
            tried.
        is_whole: no older ring event has expired.
    """
    own = [number for number, group in enumerate(groups) if group.key == key]
    cuts = [
        cut
        for cut in _cuts(state, groups, own[0] if own else None, reason.ring_size)
        if cut.size() == reason.ring_size
    ]
    cuts = [cut for cut in cuts if _names(cut, reason, is_whole=is_whole).fits] or cuts
    found = _matching(cuts, groups, state.spus, reason, order)
    if not found and order in OVER_RACKS:
        rings = chain.from_iterable(_with_other_racks(cut, groups, state.spus) for cut in cuts)
        for cut, spus in islice(rings, RINGS_TRIED_MAX):
            if _matching([cut], groups, spus, reason, order):
                found = _matching(cuts, groups, spus, reason, order)
                break
    if not found:
        return None
    named = [_names(cut, reason, is_whole=is_whole) for cut, _ in found]
    offline = _in_all([names.offline for names in named])
    saturated = _in_all([names.saturated for names in named])
    return PastRing(
        ring=found[0][1],
        offline=offline,
        saturated=saturated,
        leaving=_in_all([names.leaving for names in named]),
        unnamed=reason.offline + reason.saturated - len(offline) - len(saturated),
        described_since=frozenset().union(*(_described_since(cut, groups) for cut, _ in found)),
    )


def _matching(
    cuts: Sequence[_Cut],
    groups: Sequence[RingGroup],
    spus: Mapping[SpuId, SpuChanged],
    reason: Reason,
    order: Order,
) -> list[tuple[_Cut, Ring]]:
    """The cuts whose ring, with these SPUs, has the fingerprint."""
    found = []
    for cut in cuts:
        ring = _ring_at(cut, groups, spus, order)
        if ring is not None and ring.fingerprint(order) == reason.ring_fingerprint:
            found.append((cut, ring))
    return found


@dataclass(frozen=True, slots=True)
class _Names:
    """Who was not in the ring at a cut, as far as one can say."""

    offline: tuple[int, ...]
    saturated: tuple[int, ...]
    leaving: tuple[int, ...]
    fits: bool  # as many can have been offline, and saturated, as the reason says


def _in_all(named: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """What all cuts agree on: only such names are certain."""
    return tuple(spu_id for spu_id in named[0] if all(spu_id in each for each in named))


def _names(cut: _Cut, reason: Reason, *, is_whole: bool) -> _Names:
    """Names for the numbers of the reason, as far as the cut gives them."""
    by_place: dict[RingPlace, list[int]] = {place: [] for place in RingPlace}
    for spu_id, place in sorted(cut.places.items()):
        by_place[place].append(spu_id)
    sure = sorted(by_place[RingPlace.OFFLINE] + by_place[RingPlace.LEAVING])
    full, out = by_place[RingPlace.SATURATED], by_place[RingPlace.OUT]
    maybe = by_place[RingPlace.LEFT] + out
    if not is_whole:  # Else whoever joins later was not of the cluster.
        maybe += by_place[RingPlace.UNKNOWN]
    offline = _chosen(sure, maybe, reason.offline)
    maybe_full = [spu_id for spu_id in out if spu_id not in offline]
    return _Names(
        offline=offline,
        saturated=_chosen(full, maybe_full, reason.saturated),
        leaving=tuple(spu_id for spu_id in by_place[RingPlace.LEAVING] if spu_id in offline),
        fits=len(sure) <= reason.offline <= len(sure) + len(maybe)
        and len(full) <= reason.saturated <= len(full) + len(out),
    )


def _chosen(sure: Sequence[int], maybe: Sequence[int], count: int) -> tuple[int, ...]:
    """So many of them, if there is one way to choose; else those that are certain."""
    if len(sure) + len(maybe) == count:
        return tuple(sorted([*sure, *maybe]))
    return tuple(sure) if len(sure) <= count else ()


def _cuts(
    state: ClusterState, groups: Sequence[RingGroup], own: int | None, size: int
) -> Iterator[_Cut]:
    """Memberships, the newest first; with `own` those within that group alone."""
    told = [event.spu_id for group in groups for event in group.events]
    places = {
        **dict.fromkeys(told, RingPlace.LEFT),  # of those that are forgotten now
        **{int(spu_id): _place_now(state, spu) for spu_id, spu in state.spus.items()},
    }
    before = _places_before(groups)
    if own is None:
        yield _Cut(dict(places), len(groups), {})
    for number in range(len(groups) - 1, -1, -1):
        after = dict(places)
        earlier_size = _size_after(groups[number - 1]) if number else None
        guesses = _undone(places, groups[number], before[number], earlier_size)
        places = guesses[0]
        if own is None:
            for guess in guesses:
                yield _Cut(dict(guess), number, {})
        elif own == number:
            for guess in guesses:
                yield from _within(guess, after, groups[number], number, size)
            return


def _place_now(state: ClusterState, spu: SpuChanged) -> RingPlace:
    if spu.online:
        return RingPlace.RING if spu.spu_id in state.ring else RingPlace.SATURATED
    return RingPlace.LEAVING if spu.leaving else RingPlace.OFFLINE


def _size_after(group: RingGroup) -> int | None:
    return group.events[-1].ring_size if group.events else None


def _places_before(groups: Sequence[RingGroup]) -> list[list[RingPlace | None]]:
    """For each ring event where its SPU stood before it, as earlier events tell; None: not told."""
    last: dict[int, RingPlace] = {}
    told: list[list[RingPlace | None]] = []
    for group in groups:
        row: list[RingPlace | None] = []
        for event in group.events:
            row.append(last.get(event.spu_id))
            place = _place_after(event.change, last.get(event.spu_id))
            if place is not None:
                last[event.spu_id] = place
        told.append(row)
    return told


def _place_after(change: RingChange, before: RingPlace | None) -> RingPlace | None:
    match change:
        case RingChange.JOINED | RingChange.RESTORED:
            return RingPlace.RING
        case RingChange.SATURATED:
            return RingPlace.SATURATED
        case RingChange.LEFT:
            return RingPlace.OFFLINE
        case RingChange.UPDATED | RingChange.IGNORED:
            return before


def _undone(
    places: Mapping[int, RingPlace],
    group: RingGroup,
    told: Sequence[RingPlace | None],
    earlier_size: int | None,
) -> list[dict[int, RingPlace]]:
    """Where all stood before the group; several possibilities where nothing tells."""
    before = dict(places)
    open_ids: list[int] = []
    for event, told_place in reversed(list(zip(group.events, told, strict=True))):
        spu_id = event.spu_id
        match event.change:
            case RingChange.SATURATED:
                before[spu_id] = RingPlace.RING
            case RingChange.RESTORED:
                before[spu_id] = RingPlace.SATURATED
            case RingChange.JOINED:
                before[spu_id] = RingPlace.UNKNOWN if told_place is None else RingPlace.LEFT
            case RingChange.LEFT if told_place is not None:
                before[spu_id] = told_place
            case RingChange.LEFT:
                before[spu_id] = RingPlace.OUT
                open_ids.append(spu_id)
            case _:
                pass
    if not open_ids:
        return [before]
    size = sum(place is RingPlace.RING for place in before.values())
    inside = {**before, **dict.fromkeys(open_ids, RingPlace.RING)}
    if earlier_size is None:
        return [inside, before]
    return [inside] if earlier_size > size else [before]


def _within(
    before: Mapping[int, RingPlace],
    after: Mapping[int, RingPlace],
    group: RingGroup,
    number: int,
    size: int,
) -> Iterator[_Cut]:
    """Memberships between the changes of one event that have this size.

    First none of the changes, then all but the saturations, then all, then mixtures.
    """
    changes: dict[int, list[RingChange]] = {}
    for event in group.events:
        if event.change is not RingChange.IGNORED:
            changes.setdefault(event.spu_id, []).append(event.change)
    ids = sorted(changes)
    unfilled = [
        next(
            (at for at, change in enumerate(changes[spu_id]) if change is RingChange.SATURATED),
            len(changes[spu_id]),
        )
        for spu_id in ids
    ]
    simple = [tuple(0 for _ in ids), tuple(unfilled), tuple(len(changes[i]) for i in ids)]
    ranges = [range(len(changes[spu_id]), -1, -1) for spu_id in ids]
    count = 1
    for each in ranges:
        count = min(count * len(each), MIXTURES_MAX + 1)
    mixtures: Iterator[tuple[int, ...]] = iter(())
    if count <= MIXTURES_MAX:
        mixtures = product(*ranges)
    for mixture in dict.fromkeys(chain(simple, mixtures)):
        places = dict(before)
        for spu_id, taken in zip(ids, mixture, strict=True):
            for change in changes[spu_id][:taken]:
                place = _place_after(change, places.get(spu_id))
                places[spu_id] = RingPlace.OUT if place is None else place
            if taken == len(changes[spu_id]) and after.get(spu_id) is RingPlace.LEAVING:
                places[spu_id] = RingPlace.LEAVING
        if sum(place is RingPlace.RING for place in places.values()) == size:
            yield _Cut(places, number, dict(zip(ids, mixture, strict=True)))


def _ring_at(
    cut: _Cut, groups: Sequence[RingGroup], spus: Mapping[SpuId, SpuChanged], order: Order
) -> Ring | None:
    """The ring of a cut; None where its order cannot be told."""
    ids = cut.ids()
    described = {SpuId(spu_id): spus.get(SpuId(spu_id)) or _undescribed(spu_id) for spu_id in ids}
    if order is Order.REGISTRATION:
        ranked = _registered(cut, groups, spus, ids)
        if ranked is None:
            return None
        described = {
            SpuId(spu_id): replace(described[SpuId(spu_id)], registration=rank)
            for rank, spu_id in enumerate(ranked)
        }
    return Ring(np.array(ids, dtype=np.int32), described)


def _described_since(cut: _Cut, groups: Sequence[RingGroup]) -> frozenset[int]:
    """Who has told its rack since, perhaps another."""
    return frozenset(
        event.spu_id
        for group in groups[cut.group :]
        for event in group.events
        if event.change in (RingChange.JOINED, RingChange.UPDATED)
    )


def _with_other_racks(
    cut: _Cut, groups: Sequence[RingGroup], spus: Mapping[SpuId, SpuChanged]
) -> Iterator[tuple[_Cut, Mapping[SpuId, SpuChanged]]]:
    """The SPUs with such racks as they may have had at the cut; the cut each time."""
    ids = cut.ids()
    racks = sorted({spu.rack or "" for spu in spus.values()})
    forgotten = [spu_id for spu_id in ids if SpuId(spu_id) not in spus]
    for uncertain in (forgotten, sorted({*forgotten, *(_described_since(cut, groups) & set(ids))})):
        if not uncertain or len(racks) ** min(len(uncertain), 16) > RACKS_TRIED_MAX:
            continue
        for tried in product(racks, repeat=len(uncertain)):
            changed = {
                SpuId(spu_id): replace(
                    spus.get(SpuId(spu_id)) or _undescribed(spu_id), rack=rack or None
                )
                for spu_id, rack in zip(uncertain, tried, strict=True)
            }
            yield cut, {**spus, **changed}


def _undescribed(spu_id: int) -> SpuChanged:
    """An SPU that is forgotten: its rack is not known, which a fingerprint over racks will tell."""
    return SpuChanged(
        cluster_id="",
        spu_id=spu_id,
        online=False,
        rack=None,
        cores=1,
        capacity=0,
        labels=(),
        registration=0,
        core_weights=(),
    )


def _registered(
    cut: _Cut, groups: Sequence[RingGroup], spus: Mapping[SpuId, SpuChanged], ids: Sequence[int]
) -> list[int] | None:
    """The ids in order of registration at the cut: who came or came back last is at the tail.

    None: of one that came back since, no event tells where it had been.
    """
    earlier: dict[int, tuple[int, int]] = {}
    later: set[int] = set()
    for number, group in enumerate(groups):
        seen: dict[int, int] = {}
        for place, event in enumerate(group.events):
            if event.change is RingChange.IGNORED:
                continue
            seen[event.spu_id] = seen.get(event.spu_id, 0) + 1
            if event.change not in (RingChange.JOINED, RingChange.RESTORED):
                continue
            happened = number < cut.group or (
                number == cut.group and seen[event.spu_id] <= cut.taken.get(event.spu_id, 0)
            )
            if happened:
                earlier[event.spu_id] = (number, place)
            else:
                later.add(event.spu_id)
    ranks: dict[int, tuple[int, int, int]] = {}
    for spu_id in ids:
        if spu_id in earlier:
            ranks[spu_id] = (1, *earlier[spu_id])
        elif spu_id in later or SpuId(spu_id) not in spus:
            return None
        else:
            ranks[spu_id] = (0, spus[SpuId(spu_id)].registration, 0)
    return sorted(ids, key=ranks.__getitem__)
