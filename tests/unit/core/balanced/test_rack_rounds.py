"""`balanced` on racks of SPUs alike, in rounds: as even as can be, the same however asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from spu_assigner.core.balanced import rack_rounds, rounds
from spu_assigner.core.balanced.policy import place_balanced
from spu_assigner.core.balanced.rounds import place_in_rounds
from spu_assigner.core.state.loads import Loads
from support.project.case_share import share_of

# Full racks: as many as replicas. Racks that share: more.
FULL = [
    (6, 6, 6),
    (7, 6, 5),
    (10, 5, 2),
    (16, 1),
    (12, 9),
    (5, 5, 5, 5),
    (30, 20, 11),
    (8, 8, 3, 1),
]
SHARED = [
    (3,) * 6,
    (4,) * 5,
    (6, 6, 6, 2),
    (5, 4, 4, 3, 3),
    (2,) * 10,
    (1,) * 15 + (3, 2),
    (9, 9, 9, 8),
]


@pytest.fixture(autouse=True, scope="module")
def long_requests() -> Iterator[None]:
    """Also those that are dealt leader by leader, where it is not said to make rounds."""
    with mock.patch.object(rounds, "SMALL_REQUEST_CELLS_MAX", 10**6):
        yield


class Ring:
    """SPUs alike on racks of these sizes, and what they hold; ids are 3, 6, 9 …, racks mixed."""

    def __init__(
        self, sizes: Sequence[int], held: Sequence[int] = (), led: Sequence[int] = ()
    ) -> None:
        self.sizes, self.size = sizes, sum(sizes)
        by_rack = [(rack, place) for rack, size in enumerate(sizes) for place in range(size)]
        by_rack.sort(key=lambda each: (each[1] * 7 % 5, each))
        self.ids = [3 * number + 3 for number in range(self.size)]
        self.rack_of = {spu_id: rack for spu_id, (rack, _) in zip(self.ids, by_rack, strict=True)}
        self.members = [
            [spu_id for spu_id in self.ids if self.rack_of[spu_id] == rack]
            for rack in range(len(sizes))
        ]
        self.held = dict(zip(self.ids, held or [5] * self.size, strict=True))
        self.led = dict(zip(self.ids, led or [2] * self.size, strict=True))

    def loads(self, capacities: Sequence[int] = ()) -> Loads:
        return Loads(
            ids=np.array(self.ids, dtype=np.int32),
            racks=np.array([self.rack_of[spu_id] for spu_id in self.ids], dtype=np.int32),
            capacities=np.array(capacities or [10**6] * self.size),
            replicas=np.array(list(self.held.values())),
            leaders=np.array(list(self.led.values())),
        )

    def lists(self, partitions: int, replicas: int, start: int) -> list[list[int]] | None:
        rows = place_in_rounds(self.loads(), partitions=partitions, replicas=replicas, start=start)
        return None if rows is None else rows.tolist()

    def take(self, lists: list[list[int]]) -> None:
        for row in lists:
            self.led[row[0]] += 1
            for spu_id in row:
                self.held[spu_id] += 1

    def require_even(self, *, is_shared: bool) -> None:
        """The SPUs of each rack, or of all, and the leaders differ by one at most."""
        groups = [self.ids] if is_shared else self.members
        for group in groups:
            counts = [self.held[spu_id] for spu_id in group]
            assert max(counts) - min(counts) <= 1
        assert max(self.led.values()) - min(self.led.values()) <= 1

    def by_rule(self, index: int) -> list[int]:
        """On full racks: the list of a chain index, replica by replica, as the module says it."""
        leaders = self._next_leaders(index, max(self.sizes))
        home = self.rack_of[leaders[0]]
        count = len(self.sizes)
        behind = [(home + step) % count for step in range(1, count)]
        behind = sorted(behind, key=lambda rack: (rack < home, rack))
        turn = (index + index // self.size) % (count - 1)
        row = [leaders[0]]
        for rack in behind[turn:] + behind[:turn]:
            least = min(self.held[spu_id] for spu_id in self.members[rack])
            still = [spu_id for spu_id in self.members[rack] if self.held[spu_id] == least]
            leading = leaders[: len(still)]
            order = self._in_order(rack, index + len(still))
            row.append(next(each for each in order if each in still and each not in leading))
        return row

    def _next_leaders(self, index: int, count: int) -> list[int]:
        least = min(self.led.values())
        done = [spu_id for spu_id in self.ids if self.led[spu_id] > least]
        turn = (index - len(done)) // self.size
        found = [spu_id for spu_id in self._in_turn(turn) if spu_id not in done]
        while len(found) < count:
            turn += 1
            found += self._in_turn(turn)
        return found

    def _in_turn(self, turn: int) -> list[int]:
        """Who leads in a turn: racks alternately, by size."""
        points = sorted(
            (Fraction(2 * place + 1, 2 * size), rack, place)
            for rack, size in enumerate(self.sizes)
            for place in range(size)
        )
        return [
            self.members[rack][(place + self._later(rack, turn)) % self.sizes[rack]]
            for _, rack, place in points
        ]

    def _later(self, rack: int, turn: int) -> int:
        size = self.sizes[rack]
        step = turn * (rack % max(size - -(-size * size // self.size), 1))
        return step + step // size

    def _in_order(self, rack: int, end: int) -> list[int]:
        """Who follows first in a round that ends before the list of a chain index."""
        turn, within = divmod(end, self.size)
        size = self.sizes[rack]
        behind = within * size // self.size + self._later(rack, turn)
        order = [self.members[rack][(behind + step) % size] for step in range(size)]
        following = max(size - size * size // self.size, 1)
        late = (turn // 2 + turn // (2 * following)) % following
        turned = [order[(late + number) % following] for number in range(following)]
        return turned + order[following:]


@given(
    sizes=st.sampled_from([*FULL, *SHARED]),
    replicas=st.integers(3, 5),
    start=st.integers(0, 2**40),
    asked=st.lists(st.integers(1, 60), min_size=1, max_size=8),
)
def test_lists_do_not_depend_on_how_many_are_asked_for(
    sizes: tuple[int, ...], replicas: int, start: int, asked: list[int]
) -> None:
    """One long request, and short ones one after the other, from wherever in a turn: the same.
    Each list is on distinct racks, and after it loads are as even as can be."""
    is_shared = sizes in SHARED
    replicas = min(replicas, sum(sizes) // max(sizes)) if is_shared else len(sizes)
    assume(sum(sizes) >= rounds.SPUS_A_REPLICA_MIN * replicas)
    at_once = Ring(sizes).lists(sum(asked), replicas, start)
    ring, found = Ring(sizes), []
    for partitions in asked:
        lists = ring.lists(partitions, replicas, start + len(found))
        if lists is None:
            assert at_once is None
            return
        ring.take(lists)
        found += lists
    assert found == at_once
    ring = Ring(sizes)
    for index, row in enumerate(found[:100], start):
        if not is_shared:
            assert ring.by_rule(index) == row
        assert len({ring.rack_of[spu_id] for spu_id in row}) == replicas == len(row)
        ring.take([row])
        ring.require_even(is_shared=is_shared)


@pytest.mark.parametrize("sizes", [*FULL, *SHARED])
def test_rounds_go_on_for_ever(sizes: tuple[int, ...]) -> None:
    """From even loads, no turn is one in which somebody would lead a second time in a round."""
    replicas = min(3, sum(sizes) // max(sizes)) if sizes in SHARED else len(sizes)
    ring, start = Ring(sizes), 0
    while start < 40 * sum(sizes):
        lists = ring.lists(500, replicas, start)
        assert lists is not None
        ring.take(lists)
        start += 500


@settings(max_examples=share_of(200))
@given(data=st.data(), sizes=st.sampled_from([*FULL, *SHARED]))
def test_other_loads_are_placed_in_rounds_only_where_that_keeps_them_even(
    data: st.DataObject, sizes: tuple[int, ...]
) -> None:
    """Whoever holds or leads one more; the numbers are those that `place_balanced` gives."""
    replicas = min(3, sum(sizes) // max(sizes)) if sizes in SHARED else len(sizes)
    ones = st.lists(st.integers(0, 1), min_size=sum(sizes), max_size=sum(sizes))
    held, led = data.draw(ones), data.draw(ones)
    partitions, start = data.draw(st.integers(1, 30)), data.draw(st.integers(0, 1_000))
    ring, others = Ring(sizes, held, led), Ring(sizes, held, led)
    lists = ring.lists(partitions, replicas, start)
    if lists is None:
        return
    others.take(
        place_balanced(ring.loads(), partitions=partitions, replicas=replicas, start=start).tolist()
    )
    if sizes in FULL:
        assert ring.by_rule(start) == lists[0]
    ring.take(lists)
    ring.require_even(is_shared=sizes in SHARED)
    if sizes in SHARED:
        assert Counter(ring.held.values()) == Counter(others.held.values())
        return
    for members in ring.members:
        counts = Counter(ring.held[spu_id] for spu_id in members)
        assert counts == Counter(others.held[spu_id] for spu_id in members)


@pytest.mark.parametrize(
    ("sizes", "replicas", "uneven"),
    [
        ((6, 6, 5), 3, {"held": [2] + [0] * 16}),
        ((6, 6, 5), 3, {"led": [2] + [0] * 16}),
        ((6, 6, 5), 3, {"capacities": [10**6] * 16 + [10**5]}),
        ((6, 6, 5), 2, {}),  # racks share lists of two
        ((6, 6, 5), 4, {}),  # more replicas than racks
        ((9, 4, 4, 3), 3, {}),  # the first rack is too large for a fair share
        ((6, 5, 5), 3, {}),  # fewer SPUs than 17
        ((1,) * 20 + (2,) * 13, 3, {}),  # too many racks share
    ],
)
def test_all_other_rings_and_loads_are_left_to_the_general_rule(
    sizes: tuple[int, ...], replicas: int, uneven: dict[str, list[int]]
) -> None:
    capacities = uneven.pop("capacities", [])
    ring = Ring(sizes, **uneven)
    loads = ring.loads(capacities)
    assert place_in_rounds(loads, partitions=2, replicas=replicas, start=0) is None


def test_racks_that_share_meet_all_others() -> None:
    """In each of the orders of leads; what was chosen for a round is found again."""
    ring, lists, start = Ring((7,) * 9), [], 0
    while start < 63 * 2 * rack_rounds.PATTERNS:
        more = ring.lists(500, 3, start)
        assert more is not None
        ring.take(more)
        lists += more
        start += 500
    pairs = Counter(
        (ring.rack_of[row[0]], ring.rack_of[spu_id]) for row in lists for spu_id in row[1:]
    )
    fair = 2 * len(lists) / (9 * 8)
    assert len(pairs) == 9 * 8
    assert max(pairs.values()) < 2 * fair
    assert min(pairs.values()) > fair / 2
