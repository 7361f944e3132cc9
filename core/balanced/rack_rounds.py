"""`balanced` on racks of SPUs alike, round by round: `rounds` for lists on distinct racks.

Racks are *full* where there are as many as a list has replicas: each has one of every list. Where
there are more, and none of them is so large that its SPUs could not have their fair share, they
*share* the lists.

- A *round* of a full rack is as many lists as it has SPUs: each of them gets one replica. In a
  round of racks that share, each SPU of all gets one; it may end within a list.
- In a *turn*, as many lists as there are SPUs, each leads one: the racks alternately, by size
  (where they share, in several orders in turn); in each rack by id, every turn from another SPU on.
- Who leads no list of a round follows in it: by id, beginning behind those who lead, every
  second turn one later, and now and then once more.
- Of racks that share, those with most replicas to get in the round come first into a list.

Which of its followers comes right behind the leader is decided by `failover`, as for other lists.

9 SPUs on racks a (0 1 2), b (3 4 5) and c (6 7 8), lists of 3: 0 3 6 1 4 7 2 5 8 lead. The first
round is three lists; 1 and 2 follow in the two that b and c lead, 4 and 5 in those of a and c.

After each list the SPUs of a full rack, those of all racks that share, and the leaders differ by
one at most. Where a round or a turn stands follows from the loads, and where it began from the
chain index less the lists since: so lists do not depend on how many are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.balanced.mixing import mixed
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.loads import NUMBER_BITS, Layout

SHARING_RACKS_MAX: Final = 32  # the racks of a list are chosen in plain Python
SHARED_REPLICAS_MIN: Final = 3  # of two there is no choice who follows first
PATTERNS: Final = 16  # of turns, at most; then the same racks come together again
KNOWN_CELLS_MAX: Final = 2**16  # of rounds whose racks are kept: 1 MB

_NUMBER_MASK: Final = 2**NUMBER_BITS - 1

Numbers = NDArray[np.int64]
_RoundKey = tuple[bytes, bytes, bytes, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRacks:
    """The racks of the followers in a round of racks that share, list after list."""

    racks: Numbers
    begun: tuple[int, ...]  # racks of the list in which it ends, its leader's among them


@dataclass(frozen=True, slots=True, kw_only=True)
class RackRounds:
    """What rounds need of a ring for lists of so many replicas. SPUs are numbered by rack, id."""

    replicas: int
    is_shared: bool  # whether racks share the lists
    by_id: Numbers  # of each number the place in id order
    rack_of: Numbers  # of each SPU
    starts: Numbers  # the first SPU of each rack
    sizes: Numbers
    lead_racks: Numbers  # who leads in a turn of each pattern: racks,
    lead_places: Numbers  # and the place in the rack
    shifts: Numbers  # of each rack: by how much its leads are later in the next turn
    others: Numbers  # the racks behind each rack, in each order that begins with another of them
    known: dict[_RoundKey, RoundRacks | None] = field(default_factory=dict)

    @classmethod
    def of(cls, layout: Layout, replicas: int) -> RackRounds | None:
        """None: on this ring, lists of so many replicas are not placed so."""
        count, size = len(layout.starts) - 1, len(layout.rack_of)
        sizes = np.diff(layout.starts)
        if layout.capacity is None or layout.is_one or count < replicas:
            return None
        is_shared = count > replicas
        if is_shared and (
            replicas < SHARED_REPLICAS_MIN
            or count > SHARING_RACKS_MAX
            or int(sizes.max()) * replicas > size
        ):
            return None
        starts, rack_of = np.array(layout.starts[:-1]), np.repeat(np.arange(count), sizes)
        racks = range(count)
        behind = [[*range(home + 1, count), *range(home)] for home in racks]
        lead_racks, lead_places = _patterns(
            rack_of,
            np.arange(size) - starts[rack_of],
            sizes,
            min(max(KNOWN_CELLS_MAX // (replicas * size), 1), PATTERNS) if is_shared else 1,
        )
        return cls(
            replicas=replicas,
            is_shared=is_shared,
            by_id=np.argsort(layout.racks, kind="stable"),
            rack_of=rack_of,
            starts=starts,
            sizes=sizes,
            lead_racks=lead_racks,
            lead_places=lead_places,
            shifts=np.arange(count) % np.maximum(sizes + -(sizes**2) // size, 1),
            others=np.array(
                [[own[turn:] + own[:turn] for turn in range(count - 1)] for own in behind]
            ),
        )

    def rows(
        self, held: CountArray, led: CountArray, *, start: int, wanted: int
    ) -> NDArray[np.int32] | None:
        """So many lists of places in id order, from loads in that order; fewer, if whoever is to
        lead in a round has had its replica; None: there is not one, or loads are not even.

        Cost: O(rounds * SPUs), vectorised.
        """
        window = _Window.of(self, held[self.by_id], led[self.by_id], start)
        while window is not None and wanted > 0:
            rows, wanted = window.rows(wanted)
            if rows is not None:
                return self.by_id[rows].astype(np.int32)
        return None


def rack_rounds_of(layout: Layout, replicas: int) -> RackRounds | None:
    """The same, kept with the layout."""
    if replicas not in layout.rack_rounds:
        layout.rack_rounds[replicas] = RackRounds.of(layout, replicas)
    known: RackRounds | None = layout.rack_rounds[replicas]
    return known


def _patterns(
    rack_of: Numbers, places: Numbers, sizes: Numbers, count: int
) -> tuple[Numbers, Numbers]:
    """Orders in which SPUs lead in a turn: each rack's evenly spread, from another point on."""
    points: Numbers = np.full((1, len(sizes)), 1 << 31, dtype=np.int64)
    if count > 1:
        hashes = mixed(np.arange(count * len(sizes)), 0).reshape(count, -1)
        points = (hashes >> np.uint64(32)).astype(np.int64)
    turned = (places << 32) + points[:, rack_of]
    orders = np.argsort(turned // sizes[rack_of], axis=1, kind="stable")
    return rack_of[orders], places[orders]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """Where rounds and turns stand before the list of a chain index."""

    ring: RackRounds
    start: int
    is_open: NDArray[np.bool_]  # who has not had its replica in the round
    is_due: NDArray[np.bool_]  # who has not led in the turn
    each: int  # replicas of a list that count in a round
    begun: Numbers  # of each rack: those that there were in its round
    lengths: Numbers  # and those of a whole round

    @classmethod
    def of(cls, ring: RackRounds, held: CountArray, led: CountArray, start: int) -> _Window | None:
        """None: loads are not even."""
        least = np.minimum.reduceat(held, ring.starts)
        above = held - (least.min() if ring.is_shared else least[ring.rack_of])
        is_due = led == led.min()
        if int(above.max()) > 1 or int(led.max() - led.min()) > 1:
            return None
        begun, lengths = np.add.reduceat(above, ring.starts), ring.sizes
        if ring.is_shared:
            begun, lengths = (np.full_like(each, each.sum()) for each in (begun, lengths))
        return cls(
            ring=ring,
            start=start,
            is_open=above == 0,
            is_due=is_due,
            each=ring.replicas if ring.is_shared else 1,
            begun=begun,
            lengths=lengths,
        )

    def rows(self, wanted: int) -> tuple[NDArray[np.int64] | None, int]:
        """Lists of numbers of SPUs; None: only so many can be made."""
        ring, each, lengths = self.ring, self.each, self.lengths
        rounds = 1 + np.maximum(-(-(wanted * each + self.begun - lengths) // lengths), 0)
        count = -(-int((rounds * lengths - self.begun).max()) // each)
        leaders, turns = self._leaders(count)
        homes = ring.rack_of[leaders]
        racks, possible = self._racks(wanted, homes, turns)
        if possible < wanted:
            return None, possible
        bases = np.cumsum(rounds) - rounds  # of each rack its first round, among those of all
        cells = np.arange(count) * each
        lead_rounds = (cells + self.begun[homes]) // lengths[homes]
        is_inside = lead_rounds < rounds[homes]
        followers, sizes = self._followers(
            rounds, bases, leaders[is_inside], lead_rounds[is_inside]
        )
        cells = cells[:, np.newaxis]
        if ring.is_shared:
            cells = cells + np.arange(1, each)
        numbers = (cells + self.begun[racks]) // lengths[racks]
        numbers = np.where(numbers < rounds[racks], bases[racks] + numbers, len(sizes))
        differ = np.bincount(numbers.reshape(-1), minlength=len(sizes) + 1)[:-1] != sizes
        if differ.any():
            return None, self._lists_before(np.flatnonzero(differ), bases)
        order = np.argsort(numbers, axis=None, kind="stable")
        flat = np.zeros(numbers.size, dtype=np.int64)
        flat[order[: len(followers)]] = followers
        rows = np.empty((wanted, ring.replicas), dtype=np.int64)
        rows[:, 0] = leaders[:wanted]
        rows[:, 1:] = flat.reshape(count, -1)[:wanted]
        return rows, wanted

    def _lists_before(self, numbers: Numbers, bases: Numbers) -> int:
        """How many lists end before the first of these rounds of racks begins."""
        racks = np.searchsorted(bases, numbers, side="right") - 1
        begins = (numbers - bases[racks]) * self.lengths[racks] - self.begun[racks]
        return int(begins.min()) // self.each

    def _leaders(self, count: int) -> tuple[Numbers, Numbers]:
        """Who leads the next lists, and in which turn."""
        ring, size = self.ring, len(self.is_due)
        due = int(np.count_nonzero(self.is_due))
        first = (self.start - (size - due)) // size
        turns = np.arange(first, first + 1 + max(-(-(count - due) // size), 0))
        steps = turns[:, np.newaxis] * ring.shifts
        offsets = (steps + steps // ring.sizes) % ring.sizes
        racks = ring.lead_racks[turns % len(ring.lead_racks)]
        leaders = ring.lead_places[turns % len(ring.lead_racks)] + np.take_along_axis(
            offsets, racks, axis=1
        )
        leaders %= ring.sizes[racks]
        leaders += ring.starts[racks]
        in_first = leaders[0][self.is_due[leaders[0]]]
        all_leaders = np.concatenate((in_first, leaders[1:].reshape(-1)))
        return all_leaders[:count], np.repeat(turns, size)[size - due :][:count]

    def _followers(
        self, rounds: Numbers, bases: Numbers, leaders: Numbers, lead_rounds: Numbers
    ) -> tuple[Numbers, Numbers]:
        """Who follows in each round, rack by rack and in order, and how many these are."""
        ring, size = self.ring, len(self.is_open)
        round_racks = np.repeat(np.arange(len(rounds)), rounds)
        number = np.arange(len(round_racks)) - bases[round_racks]
        ends = (number + 1) * self.lengths[round_racks] - self.begun[round_racks]
        turns, within = np.divmod(self.start + ends // self.each, size)
        sizes = ring.sizes[round_racks]
        steps = turns * ring.shifts[round_racks]
        behind = within * sizes // size + steps + steps // sizes
        following = np.maximum(sizes - sizes * self.lengths[round_racks] // (self.each * size), 1)

        late = turns // 2 + turns // (2 * following)

        of_spu = rounds[ring.rack_of]
        firsts = np.cumsum(of_spu) - of_spu
        spus = np.repeat(np.arange(size), of_spu)
        racks = ring.rack_of[spus]
        numbers = bases[racks] + np.arange(len(spus)) - firsts[spus]
        is_follower = np.ones(len(spus), dtype=np.bool_)
        is_follower[firsts[~self.is_open]] = False
        is_follower[firsts[leaders] + lead_rounds] = False
        spus, numbers, racks = spus[is_follower], numbers[is_follower], racks[is_follower]
        ranks = (spus - ring.starts[racks] - behind[numbers]) % sizes[numbers]
        turned = (ranks - late[numbers]) % following[numbers]
        ranks = np.where(ranks < following[numbers], turned, ranks)
        keys = (numbers << NUMBER_BITS | ranks) << NUMBER_BITS | spus
        keys.sort()
        return keys & _NUMBER_MASK, np.bincount(numbers, minlength=len(round_racks))

    def _racks(self, wanted: int, homes: Numbers, turns: Numbers) -> tuple[Numbers, int]:
        """The racks of each list's followers, and of how many lists these can be chosen."""
        ring, size, count = self.ring, len(self.is_due), len(homes)
        indexes = np.arange(count)
        if not ring.is_shared:
            indexes += self.start
            turn = (indexes + indexes // size) % (ring.replicas - 1)
            return ring.others[homes, turn], wanted
        led = size - int(np.count_nonzero(self.is_due))
        before = (indexes + led) % size * ring.sizes[homes] // size  # lists led by the rack
        firsts = homes + 1 + (before + turns % len(ring.lead_racks)) * (ring.replicas - 1)
        chosen, possible = self._shared(wanted, homes, firsts % len(ring.sizes))
        racks = np.zeros((count, ring.replicas - 1), dtype=np.int64)
        racks.reshape(-1)[: len(chosen)] = chosen
        return racks, possible

    def _shared(self, wanted: int, homes: Numbers, firsts: Numbers) -> tuple[Numbers, int]:
        """The racks of followers, round after round of racks that share."""
        ring, each = self.ring, self.each
        length = len(self.is_open)
        to_get = np.add.reduceat(self.is_open, ring.starts, dtype=np.int64)
        chosen = [np.zeros(0, dtype=np.int64)]
        used: tuple[int, ...] = ()
        begin = 0
        for end in range(int(to_get.sum()), wanted * each + length, length):
            lists = slice(-(-begin // each), -(-end // each))
            key = to_get.tobytes(), homes[lists].tobytes(), firsts[lists].tobytes(), used
            if key not in ring.known:
                if len(ring.known) * length > KNOWN_CELLS_MAX:
                    ring.known.clear()
                ring.known[key] = _round_racks(
                    to_get.tolist(),
                    list(zip(homes[lists].tolist(), firsts[lists].tolist(), strict=True)),
                    each=each,
                    used=used,
                    rest=-begin % each,
                )
            found = ring.known[key]
            if found is None:
                wanted = begin // each
                break
            chosen.append(found.racks)
            used, begin, to_get = found.begun, end, ring.sizes
        return np.concatenate(chosen), wanted


def _round_racks(
    to_get: list[int],
    lists: Sequence[tuple[int, int]],
    *,
    each: int,
    used: Sequence[int],
    rest: int,
) -> RoundRacks | None:
    """Choose the racks of the followers in a round, those with most replicas to get first.

    `to_get`: replicas of each rack, with those of leaders. `lists`: of each that begins in the
    round its leader's rack, and the rack that is preferred among equals. `used`: the racks of the
    list in which the round begins, of which `rest` replicas are to come.
    None: some list finds too few racks.
    """
    count, left = len(to_get), sum(to_get)
    to_follow = to_get.copy()
    for home, _ in lists:
        to_follow[home] -= 1
    if (left - rest) % each == 1 and lists:  # Of the last one there is the leader alone.
        to_get[lists[-1][0]] -= 1
    chosen: list[int] = []
    members, need, first = [*used], min(rest, left), 0
    for number in range(len(lists) + 1):
        if number:
            home, first = lists[number - 1]
            to_get[home] -= 1
            members, left = [home], left - 1
            need = min(each - 1, left)
        able = [rack for rack in range(count) if to_follow[rack] > 0 and rack not in members]
        if len(able) < need:
            return None
        able.sort(key=lambda rack: (rack - first) % count - count * to_get[rack])
        for rack in able[:need]:
            to_get[rack] -= 1
            to_follow[rack] -= 1
        members += able[:need]
        chosen += able[:need]
        left -= need
    return RoundRacks(racks=np.array(chosen, dtype=np.int64), begun=tuple(members))
