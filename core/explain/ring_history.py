"""The ring as it was: rebuilt from what is known now and the ring events since.

Walks backwards from the present. Each ring event undone gives an earlier membership, a *cut*; the
right one has the size and the fingerprint that the decision recorded. Within the ring events of one
event the order among SPUs is not known, so every mixture that the size allows is tried, up to a
limit. A ring that no cut gives is not guessed: `find_ring` returns None.

The order of registration is that of now, as far as no event changed it. So are racks; for SPUs that
are forgotten or described again since, each is tried. Capacities of `rendezvous` are those of now.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain, islice, product
from typing import Final

import numpy as np
from spu_assigner.core.base.chains import Order
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.records import Mode, Reason, RingChange, RingEvent, SpuChanged
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
    CORDONED = "cordoned"
    OFFLINE = "offline"
    LEAVING = "leaving"
    LEFT = "left"  # it left some time before: offline or leaving, if it is not forgotten by then
    OUT = "out"  # not in the ring; saturated, cordoned, offline or not yet of the cluster
    UNKNOWN = "unknown"  # not in the ring; offline, or not of the cluster at all


class Why(StrEnum):
    """Why an SPU was passed over, or was not in the ring."""

    OFFLINE = "offline"  # or leaving, where that is not known
    LEAVING = "leaving"
    SATURATED = "saturated"
    CORDONED = "cordoned"
    DEMOTED = "demoted"  # passed over as a leader alone
    FILLED = "filled"  # saturated by an earlier replica of the same step
    SAME_RACK = "same_rack"
    IN_LIST = "in_list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """An SPU that was passed over."""

    spu_id: int
    why: Why
    """The reason."""
    beside: int | None = None
    """Of SAME_RACK, the SPU of the list that is on that rack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingGroup:
    """The ring events of one event, in order; none of a resource, which change no ring."""

    key: str  # the same for all records of the event
    events: tuple[RingEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRing:
    """The ring before a decision."""

    ring: Ring
    absent: tuple[Passed, ...]  # who of the cluster was not in it, as far as that is certain
    unnamed: int  # more that were not in the ring, whose name the outputs do not have
    described_since: frozenset[int]  # whose racks of now need not be those of then


_AFTER: Final = {
    RingChange.JOINED: RingPlace.RING,
    RingChange.RESTORED: RingPlace.RING,
    RingChange.SATURATED: RingPlace.SATURATED,
    RingChange.LEFT: RingPlace.OFFLINE,
}  # where an SPU stands after a change; after any other, where it stood
_IN_OR_FULL: Final = (RingPlace.RING, RingPlace.SATURATED)
_TO_THE_TAIL: Final = (RingChange.JOINED, RingChange.RESTORED, RingChange.UNCORDONED)
_KEPT: Final = (RingPlace.LEAVING, RingPlace.CORDONED)  # no change alone says so
_FORGOTTEN: Final = SpuChanged(  # Its rack is not known, which a fingerprint over racks will show.
    cluster_id="",
    spu_id=0,
    online=False,
    rack=None,
    cores=1,
    capacity=0,
    labels=(),
    registration=0,
    core_weights=(),
)
_Places = Mapping[int, RingPlace]
_Spus = Mapping[SpuId, SpuChanged]


@dataclass(frozen=True, slots=True)
class _Cut:
    """A moment: all of groups 0 … group - 1, and of that group the first changes of each SPU."""

    places: _Places
    group: int
    taken: Mapping[int, int] = field(default_factory=dict)  # changes of `group`, by SPU

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
    """The ring that has the fingerprint of the reason; None: no cut gives it.

    Args:
        state: the cluster now, after all groups.
        groups: ring events, oldest first, without a gap up to now.
        reason: of the decision.
        order: the one that the fingerprint was taken of.
        key: of the event that made the decision. If it has a group, only the cuts of that are
            tried.
        is_whole: no older ring event has expired.
    """
    own = next((number for number, group in enumerate(groups) if group.key == key), None)
    cuts = [cut for cut in _cuts(state, groups, own) if _size(cut.places) == reason.ring_size]
    cuts = [cut for cut in cuts if _absent(cut, reason, is_whole=is_whole)[1]] or cuts
    weighted = reason.mode in (Mode.SCORED, Mode.RACK_SCORED)

    def matching(cuts: Iterable[_Cut], spus: _Spus) -> list[tuple[_Cut, Ring]]:
        rings = [(cut, _ring_at(cut, groups, spus, order)) for cut in cuts]
        return [
            (cut, ring)
            for cut, ring in rings
            if ring and ring.fingerprint(order, is_weighted=weighted) == reason.ring_fingerprint
        ]

    found = matching(cuts, state.spus)
    if not found and order in OVER_RACKS:
        tries = ((cut, spus) for cut in cuts for spus in _with_other_racks(cut, groups, state.spus))
        for cut, spus in islice(tries, RINGS_TRIED_MAX):
            if matching([cut], spus):
                found = matching(cuts, spus)
                break
    if not found:
        return None
    whys = _agreed([_absent(cut, reason, is_whole=is_whole)[0] for cut, _ in found])
    return PastRing(
        ring=found[0][1],
        absent=tuple(Passed(spu_id=spu_id, why=why) for spu_id, why in sorted(whys.items())),
        unnamed=reason.offline
        + reason.saturated
        - sum(why is not Why.CORDONED for why in whys.values()),
        described_since=frozenset().union(*(_described_since(cut, groups) for cut, _ in found)),
    )


def _size(places: _Places) -> int:
    return sum(place is RingPlace.RING for place in places.values())


def _agreed(by_cut: Sequence[Mapping[int, Why]]) -> dict[int, Why]:
    """What all cuts agree on: only such names are certain."""
    agreed = {}
    for spu_id, why in by_cut[0].items():
        whys = {each.get(spu_id) for each in by_cut}
        if len(whys) == 1 or whys == {Why.OFFLINE, Why.LEAVING}:
            agreed[spu_id] = why if len(whys) == 1 else Why.OFFLINE
    return agreed


def _absent(cut: _Cut, reason: Reason, *, is_whole: bool) -> tuple[dict[int, Why], bool]:
    """Who was not in the ring at a cut, as far as one can say.

    And whether as many can have been offline, and saturated, as the reason says.
    """
    at: dict[RingPlace, list[int]] = {place: [] for place in RingPlace}
    for spu_id, place in sorted(cut.places.items()):
        at[place].append(spu_id)
    leaving, full, out = at[RingPlace.LEAVING], at[RingPlace.SATURATED], at[RingPlace.OUT]
    sure = at[RingPlace.OFFLINE] + leaving
    maybe = at[RingPlace.LEFT] + out
    if not is_whole:  # Else whoever joins later was not of the cluster.
        maybe += at[RingPlace.UNKNOWN]
    offline = _chosen(sure, maybe, reason.offline)
    saturated = _chosen(full, [each for each in out if each not in offline], reason.saturated)
    fits = 0 <= reason.offline - len(sure) <= len(maybe)
    fits = fits and 0 <= reason.saturated - len(full) <= len(out)
    whys = dict.fromkeys(saturated, Why.SATURATED) | dict.fromkeys(offline, Why.OFFLINE)
    whys |= dict.fromkeys(at[RingPlace.CORDONED], Why.CORDONED)
    return whys | {each: Why.LEAVING for each in leaving if each in offline}, fits


def _chosen(sure: list[int], maybe: list[int], count: int) -> list[int]:
    """So many of them, if there is one way to choose; else those that are certain."""
    if len(sure) + len(maybe) == count:
        return sure + maybe
    return sure if len(sure) <= count else []


def _cuts(state: ClusterState, groups: Sequence[RingGroup], own: int | None) -> Iterator[_Cut]:
    """Memberships, the newest first; with `own` those within that group alone."""
    places: _Places = {
        # Of those that are forgotten now:
        **{event.spu_id: RingPlace.LEFT for group in groups for event in group.events},
        **{int(spu_id): _place_now(state, spu) for spu_id, spu in state.spus.items()},
    }
    before = _places_before(state, groups)
    if own is None:
        yield _Cut(places, len(groups))
    for number in range(len(groups) - 1, -1, -1):
        earlier = groups[number - 1].events if number else ()
        after = places
        guesses = _undone(
            places, groups[number], before[number], earlier[-1].ring_size if earlier else None
        )
        places = guesses[0]
        for guess in guesses:
            if own is None:
                yield _Cut(guess, number)
            elif own == number:
                yield from _within(guess, after, groups[number], number)
        if own == number:
            return


def _place_now(state: ClusterState, spu: SpuChanged) -> RingPlace:
    if spu.online and spu.is_closed:
        return RingPlace.CORDONED
    if spu.online:
        return RingPlace.RING if spu.spu_id in state.ring else RingPlace.SATURATED
    return RingPlace.LEAVING if spu.leaving else RingPlace.OFFLINE


def _places_before(
    state: ClusterState, groups: Sequence[RingGroup]
) -> list[list[RingPlace | None]]:
    """For each ring event where its SPU stood before it, as earlier events say; None: unknown."""
    cordoned_later = _cordons_after(state, groups)
    last: dict[int, RingPlace | None] = {}
    cordoned: set[int] = set()  # by an event that is retained, if not forgotten meanwhile
    places = []
    for group, later in zip(groups, cordoned_later, strict=True):
        row = []
        for event, is_cordoned_later in zip(group.events, later, strict=True):
            spu_id, before = event.spu_id, last.get(event.spu_id)
            row.append(before)
            after = _AFTER.get(event.change, before)
            match event.change:
                case RingChange.JOINED if is_cordoned_later:
                    after = RingPlace.CORDONED
                case RingChange.JOINED if spu_id in cordoned:
                    after = None  # It was forgotten before this join, or before a later one.
                case RingChange.CORDONED:
                    cordoned.add(spu_id)
                    after = RingPlace.CORDONED if before in _IN_OR_FULL else before
                case RingChange.UNCORDONED:
                    cordoned.discard(spu_id)
                    after = RingPlace.RING if before is RingPlace.CORDONED else before
                case _:
                    pass
            last[spu_id] = after
        places.append(row)
    return places


def _cordons_after(state: ClusterState, groups: Sequence[RingGroup]) -> list[list[bool]]:
    """For each ring event whether later ones, or the state, say that its SPU is cordoned after
    it."""
    cordoned = {int(spu_id): spu.is_closed for spu_id, spu in state.spus.items()}
    found = []
    for group in reversed(groups):
        row = []
        for event in reversed(group.events):
            row.append(cordoned.get(event.spu_id, False))
            if event.change in (RingChange.CORDONED, RingChange.UNCORDONED):
                cordoned[event.spu_id] = event.change is RingChange.UNCORDONED
        found.append(row[::-1])
    return found[::-1]


def _undone(
    places: _Places,
    group: RingGroup,
    known: Sequence[RingPlace | None],
    earlier_size: int | None,
) -> list[dict[int, RingPlace]]:
    """Where all stood before the group; several possibilities where nothing says it.

    Args:
        places: after the group.
        group: to be undone.
        known: where the SPU of each event stood before it.
        earlier_size: of the ring before the group.
    """
    before = dict(places)
    open_ids: list[int] = []
    for event, known_place in reversed(list(zip(group.events, known, strict=True))):
        match event.change:
            case RingChange.SATURATED:
                before[event.spu_id] = RingPlace.RING
            case RingChange.RESTORED:
                before[event.spu_id] = RingPlace.SATURATED
            case RingChange.JOINED:
                is_new = known_place is None
                before[event.spu_id] = RingPlace.UNKNOWN if is_new else RingPlace.LEFT
            case RingChange.LEFT:
                before[event.spu_id] = known_place or RingPlace.OUT
                open_ids += [event.spu_id] if known_place is None else []
            case RingChange.CORDONED if before.get(event.spu_id) is RingPlace.CORDONED:
                before[event.spu_id] = known_place or RingPlace.OUT
                open_ids += [event.spu_id] if known_place is None else []
            case RingChange.UNCORDONED if before.get(event.spu_id) in _IN_OR_FULL:
                before[event.spu_id] = RingPlace.CORDONED
            case _:
                pass
    if not open_ids:
        return [before]
    inside = {**before, **dict.fromkeys(open_ids, RingPlace.RING)}
    if earlier_size is None:
        return [inside, before]
    return [inside] if earlier_size > _size(before) else [before]


def _within(before: _Places, after: _Places, group: RingGroup, number: int) -> Iterator[_Cut]:
    """Memberships between the changes of one event.

    First none of the changes, then all but the saturations, then all, then mixtures.
    """
    changes: dict[int, list[RingChange]] = {}
    for event in sorted(group.events, key=lambda event: event.spu_id):
        if event.change is not RingChange.IGNORED:
            changes.setdefault(event.spu_id, []).append(event.change)
    lengths = [len(each) for each in changes.values()]
    unfilled = [
        each.index(RingChange.SATURATED) if RingChange.SATURATED in each else len(each)
        for each in changes.values()
    ]
    mixtures: Iterable[tuple[int, ...]] = ()
    if math.prod(length + 1 for length in lengths) <= MIXTURES_MAX:
        mixtures = product(*(range(length, -1, -1) for length in lengths))
    simple = [(0,) * len(lengths), tuple(unfilled), tuple(lengths)]
    for mixture in dict.fromkeys(chain(simple, mixtures)):
        places = dict(before)
        taken = dict(zip(changes, mixture, strict=True))
        for spu_id, count in taken.items():
            for change in changes[spu_id][:count]:
                place = _AFTER.get(change) or places.get(spu_id, RingPlace.OUT)
                if change is RingChange.UNCORDONED and place is RingPlace.CORDONED:
                    place = RingPlace.RING
                places[spu_id] = place
            after_all = after.get(spu_id, RingPlace.OUT)
            if count == len(changes[spu_id]) and after_all in _KEPT:
                places[spu_id] = after_all
        yield _Cut(places, number, taken)


def _ring_at(cut: _Cut, groups: Sequence[RingGroup], spus: _Spus, order: Order) -> Ring | None:
    """The ring of a cut; None where its order cannot be known."""
    ids = cut.ids()
    described = {SpuId(spu_id): spus.get(SpuId(spu_id), _FORGOTTEN) for spu_id in ids}
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
    """Whose rack was announced since, perhaps another."""
    return frozenset(
        event.spu_id
        for group in groups[cut.group :]
        for event in group.events
        if event.change in (RingChange.JOINED, RingChange.UPDATED)
    )


def _with_other_racks(cut: _Cut, groups: Sequence[RingGroup], spus: _Spus) -> Iterator[_Spus]:
    """The SPUs with such racks as they may have had at the cut."""
    ids = cut.ids()
    racks = sorted({spu.rack or "" for spu in spus.values()})
    forgotten = [spu_id for spu_id in ids if SpuId(spu_id) not in spus]
    for uncertain in (forgotten, sorted({*forgotten, *(_described_since(cut, groups) & {*ids})})):
        if not uncertain or len(racks) ** min(len(uncertain), 16) > RACKS_TRIED_MAX:
            continue
        for tried in product(racks, repeat=len(uncertain)):
            yield {
                **spus,
                **{
                    SpuId(spu_id): replace(spus.get(SpuId(spu_id), _FORGOTTEN), rack=rack or None)
                    for spu_id, rack in zip(uncertain, tried, strict=True)
                },
            }


def _registered(
    cut: _Cut, groups: Sequence[RingGroup], spus: _Spus, ids: Sequence[int]
) -> list[int] | None:
    """The ids in order of registration at the cut: who came or came back last is at the tail.

    None: of one that came back since, no event says where it had been.
    """
    came: dict[int, tuple[int, int]] = {}  # last before the cut: group, place in it
    later: set[int] = set()
    for number, group in enumerate(groups):
        seen: Counter[int] = Counter()
        for place, event in enumerate(group.events):
            seen[event.spu_id] += event.change is not RingChange.IGNORED
            if event.change not in _TO_THE_TAIL:
                continue
            is_taken = seen[event.spu_id] <= cut.taken.get(event.spu_id, 0)
            if number < cut.group or (number == cut.group and is_taken):
                came[event.spu_id] = (number, place)
            else:
                later.add(event.spu_id)
    ranks: dict[int, tuple[int, int, int]] = {}
    for spu_id in ids:
        if spu_id in came:
            ranks[spu_id] = (1, *came[spu_id])
        elif spu_id in later or SpuId(spu_id) not in spus:
            return None
        else:
            ranks[spu_id] = (0, spus[SpuId(spu_id)].registration, 0)
    return sorted(ids, key=ranks.__getitem__)
