"""`balanced` on SPUs alike, in rounds: as even as can be, the same however it is asked for.

On racks too; of those alone: `test_rack_rounds`.
"""

from __future__ import annotations

from collections import Counter
from math import gcd
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.balanced import rounds
from spu_assigner.core.balanced.policy import place_balanced
from spu_assigner.core.balanced.rounds import RoundsAhead, place_in_rounds
from spu_assigner.core.base.events import Event, LeaveMode, Policy
from spu_assigner.core.base.records import Mode, Reason, ReplicaMap
from spu_assigner.core.decision.machine import step
from spu_assigner.core.explain.explaining_assigner import ExplainingAssigner
from spu_assigner.core.explain.placement_decision import PlacementDecision
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.loads import Loads
from support.events.builders import Events
from support.events.random_lives import Life
from support.events.simulation import fault_of
from support.project.case_share import share_of

AUTOMATIC = (Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA, Policy.RENDEZVOUS, Policy.KRAFT)
SIZES = st.integers(rounds.SPUS_MIN, 80)


class Ring:
    """SPUs alike and what they hold; ids are 3, 6, 9 …"""

    def __init__(self, size: int, held: list[int] | None = None, led: list[int] | None = None):
        self.ids = [3 * number + 3 for number in range(size)]
        self.held = dict(zip(self.ids, held or [5] * size, strict=True))
        self.led = dict(zip(self.ids, led or [2] * size, strict=True))

    def loads(self) -> Loads:
        return Loads(
            ids=np.array(self.ids, dtype=np.int32),
            racks=np.zeros(len(self.ids), dtype=np.int32),
            capacities=np.full(len(self.ids), 10**6),
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

    def by_rule(self, replicas: int, index: int) -> list[int] | None:
        """The list of one chain index, replica by replica, as the module says it; None: not so."""
        ids, size = self.ids, len(self.ids)
        turned = ids[index % size :] + ids[: index % size]
        open_ids = self._open()
        led, next_leaders, at = dict(self.led), [], index
        for _ in range(-(-len(open_ids) // replicas)):
            turned = ids[at % size :] + ids[: at % size]
            leader = min(turned, key=lambda spu_id: (led[spu_id], turned.index(spu_id)))
            led[leader] += 1
            next_leaders.append(leader)
            at += 1
        if not set(next_leaders) <= set(open_ids) or len({*next_leaders}) < len(next_leaders):
            return None
        followers = [
            spu_id
            for spu_id in in_order(ids, replicas, index * replicas + len(open_ids))
            if spu_id in open_ids and spu_id not in next_leaders
        ]
        row = [next_leaders[0], *followers[: replicas - 1]]
        if len(row) == replicas:
            return row
        begun = Ring(size, list(self.held.values()), list(self.led.values()))
        begun.take([row])
        left = begun._leading(replicas, index + 1, len(ids) - (replicas - len(row)))
        for spu_id in in_order(ids, replicas, index * replicas + len(open_ids) + size):
            if len(row) < replicas and spu_id not in row and spu_id not in left:
                row.append(spu_id)
        return row

    def _open(self) -> list[int]:
        least = min(self.held.values())
        return [spu_id for spu_id in self.ids if self.held[spu_id] == least]

    def _leading(self, replicas: int, index: int, cells: int) -> list[int]:
        led, found = dict(self.led), []
        for at in range(index, index - (-cells // replicas)):
            turned = self.ids[at % len(self.ids) :] + self.ids[: at % len(self.ids)]
            leader = min(turned, key=lambda spu_id: (led[spu_id], turned.index(spu_id)))
            led[leader] += 1
            found.append(leader)
        return found


def in_order(ids: list[int], replicas: int, end: int) -> list[int]:
    """Who follows first in a round that ends after so many replicas from chain index 0."""
    size, lists_end = len(ids), -(-end // replicas)
    turned = [ids[(lists_end + number) % size] for number in range(size)]
    leaders = lists_end + (size - end) // replicas  # lists that begin in the round
    count, turn = size - leaders - 1, end // (size * replicas)
    if replicas == 1:
        return turned
    epoch, shift = divmod(turn, count)
    factor = 1 + (epoch % rounds.EPOCHS + 1) * 5 * count // 8 % count
    followers = replicas - 1
    factor += next(more for more in range(size) if gcd(factor + more, count) == 1)
    step = next(more for more in range(followers, 2 * size) if gcd(more, count) == 1)
    order = sorted(range(count), key=lambda number: (number * factor + shift * step) % count)
    begun = -(end - size) % replicas
    rank = begun + followers * (turn % max((count - begun) // followers - 1, 1) + 1) + followers - 1
    order = [*order[:rank], count, *order[rank + 1 :], *order[rank : rank + 1]]
    return [turned[number] for number in (*order, *range(count + 1, size))]


@given(
    size=SIZES,
    replicas=st.integers(1, 6),
    start=st.integers(0, 2**40),
    asked=st.lists(st.integers(1, 60), min_size=1, max_size=8),
)
def test_lists_do_not_depend_on_how_many_are_asked_for(
    size: int, replicas: int, start: int, asked: list[int]
) -> None:
    """One long request, short ones one after the other, and the rule list by list: all the same.
    After each list any two SPUs differ by one replica and one lead at most."""
    replicas = min(replicas, size // rounds.SPUS_A_REPLICA_MIN)
    with mock.patch.object(rounds, "SMALL_REQUEST_CELLS_MAX", 10**6):
        at_once = Ring(size).lists(sum(asked), replicas, start)
    ring, found = Ring(size), []
    for partitions in asked:
        lists = ring.lists(partitions, replicas, start + len(found))
        assert lists is not None
        ring.take(lists)
        found += lists
    assert found == at_once
    ring = Ring(size)
    for index, row in enumerate(found[:70], start):
        assert ring.by_rule(replicas, index) == row
        assert len({*row}) == replicas
        ring.take([row])
        assert max(ring.held.values()) - min(ring.held.values()) <= 1
        assert max(ring.led.values()) - min(ring.led.values()) <= 1


@settings(max_examples=share_of(200))
@given(data=st.data(), size=st.integers(17, 30), replicas=st.integers(1, 4))
def test_other_loads_are_placed_in_rounds_only_where_that_keeps_them_even(
    data: st.DataObject, size: int, replicas: int
) -> None:
    """Whoever holds or leads one more; the numbers are those that `place_balanced` gives."""
    ones = st.lists(st.integers(0, 1), min_size=size, max_size=size)
    held, led = data.draw(ones), data.draw(ones)
    ring, partitions = Ring(size, held, led), data.draw(st.integers(1, 30))
    start = data.draw(st.integers(0, 1_000))
    lists = ring.lists(partitions, replicas, start)
    if lists is None:
        return
    others = Ring(size, held, led)
    others.take(
        place_balanced(ring.loads(), partitions=partitions, replicas=replicas, start=start).tolist()
    )
    assert ring.by_rule(replicas, start) == lists[0]
    ring.take(lists)
    assert sorted(ring.held.values()) == sorted(others.held.values())
    assert max(ring.led.values()) - min(ring.led.values()) <= 1


@pytest.mark.parametrize(
    ("held", "led", "given_to_it"),
    [
        ([0] * 19 + [2], [0] * 20, {}),  # two more replicas
        ([0] * 20, [0] * 19 + [2], {}),  # two more leads
        ([1] + [0] * 19, [0] * 20, {}),  # SPU 3 is to lead, and has had its replica
        ([0] * 20, [0] * 20, {"partitions": rounds.SMALL_REQUEST_CELLS_MAX // 3 + 1}),
        ([0] * 20, [0] * 20, {"replicas": 6}),  # fewer than four SPUs a replica
        ([0] * 16, [0] * 16, {}),  # as many as `failover` orders
    ],
)
def test_what_is_not_even_is_left_to_the_general_rule(
    held: list[int], led: list[int], given_to_it: dict[str, int]
) -> None:
    """None of these has lists by rounds."""
    ring = Ring(len(held), held, led)
    assert ring.lists(**{"partitions": 2, "replicas": 3, "start": 0, **given_to_it}) is None


def test_nobody_leads_twice_in_a_round() -> None:
    """The two that lead least are due in a moment; then it is the turn of one of them again."""
    led = [1] * 20
    led[4] = led[6] = 0
    ring = Ring(20, led=led)
    assert ring.lists(1, 4, 4) is None


def modes(state: ClusterState, events: list[Event]) -> list[Mode]:
    """How each create was placed."""
    found = []
    for event in events:
        for record in step(state, event, default_policy=Policy.BALANCED):
            if isinstance(record, ReplicaMap) and isinstance(record.reason, Reason):
                found.append(record.reason.mode)
    return found


def test_the_reason_says_which_rule_placed_a_map() -> None:
    """What was placed before, by the rule for any loads, is `BALANCED` as it was."""
    state, build = ClusterState("c1"), Events()
    assert modes(state, [*build.joins(*range(20)), build.create("a", 16, 3)]) == [
        Mode.BALANCED_ROUNDS
    ]
    assert modes(state, [build.grow("a", 40)]) == [Mode.BALANCED_ROUNDS]
    assert modes(state, [build.join(20), build.create("b", 16, 3)]) == [Mode.BALANCED]
    small = ClusterState("c2")
    assert modes(small, [*build.joins(*range(16)), build.create("a", 16, 3)]) == [Mode.BALANCED]


@pytest.mark.parametrize("racks", ["", "abc", "aabcc", "abcdefghi"])
@pytest.mark.parametrize("size", [17, 64, 200])
def test_after_topics_went_loads_become_even_again(size: int, racks: str) -> None:
    """Soon nearly all creates are placed in rounds again, whatever their sizes."""
    random, build, state = Random(size), Events(), ClusterState("c1")
    modes(
        state, [build.join(n, rack=racks[n % len(racks)] if racks else None) for n in range(size)]
    )
    modes(state, [build.create(f"a{n}", random.randint(1, 16), 3) for n in range(30)])
    modes(state, [build.delete(f"a{n}") for n in (3, 7, 20)])
    found = modes(state, [build.create(f"b{n}", random.randint(1, 16), 3) for n in range(150)])
    assert found[-50:].count(Mode.BALANCED_ROUNDS) == 50


@pytest.mark.parametrize(
    ("replicas", "racks"),
    [(1, ""), (2, ""), (3, ""), (5, ""), (2, "ab"), (3, "abc"), (3, "abcab"), (3, "abcdef")],
)
def test_windows_give_what_is_given_one_by_one(replicas: int, racks: str) -> None:
    """Rows made ahead, which end and begin again, beside none ahead; also where topics of another
    factor or policy, deletes, and what is decided but not applied come between."""
    random, build, lives = Random(replicas), Events(), []
    events: list[Event] = [
        build.join(spu_id, rack=racks[spu_id % len(racks)] if racks else None)
        for spu_id in range(100, 130)
    ]
    for number in range(400):
        events.append(build.create(f"t{number}", random.choice([1, 3, 16, 40, 100]), replicas))
        if number % 90 == 70:
            events += [build.delete(f"t{number - 5}"), build.create(f"o{number}", 4, 2)]
        if number % 50 == 40:
            events.append(build.create(f"v{number}", 4, replicas, validate_only=True))
            events.append(build.create(f"k{number}", 30, replicas, policy=Policy.KAFKA))
    for ahead in (rounds.AHEAD_FIRST, 0):
        state, maps = ClusterState("c1"), []
        with mock.patch.object(rounds, "AHEAD_FIRST", ahead):
            for event in events:
                maps.append(step(state, event, default_policy=Policy.BALANCED))
        lives.append(maps)
    assert lives[0] == lives[1]
    placed = [record for maps in lives[0] for record in maps if isinstance(record, ReplicaMap)]
    assert Mode.BALANCED_ROUNDS in map(mode_of, placed)
    assert Mode.BALANCED in map(mode_of, placed)


def mode_of(record: Any) -> Mode | None:
    return None if record.reason is None else record.reason.mode


def test_a_window_is_not_made_for_each_request() -> None:
    """While nothing else comes between, lists are cut from a table that grows."""
    state, build = ClusterState("c1"), Events()
    modes(state, [*build.joins(*range(64))])
    with mock.patch.object(
        RoundsAhead, "_look_ahead", autospec=True, side_effect=RoundsAhead._look_ahead
    ) as looks:
        found = modes(state, [build.create(f"t{number}", 16, 3) for number in range(600)])
    assert found == [Mode.BALANCED_ROUNDS] * 600
    assert looks.call_count < 20


@pytest.mark.parametrize("size", [20, 64, 200])
def test_each_spu_is_taken_over_by_many_alike(size: int) -> None:
    """Whoever does not lead in the same round follows first, and at all, about equally often."""
    ring, lists = Ring(size), []
    for start in range(0, 60 * size, 300):
        more = ring.lists(300, 3, start)
        assert more is not None
        ring.take(more)
        lists += more
    for leader in ring.ids:
        heirs = Counter(row[1] for row in lists if row[0] == leader)
        members = {spu_id for row in lists if row[0] == leader for spu_id in row}
        others = size - -(-size // 3) - 1
        assert len(members) > min(others, 60)
        assert max(heirs.values()) <= max(4 * -(-60 // others), 2)


@pytest.mark.parametrize("racks", ["", "abc", "abcab", "abcde"])
@pytest.mark.parametrize("is_of_before", [False, True])
def test_maps_of_both_rules_are_replayed(is_of_before: bool, racks: str) -> None:
    """Those in rounds, and those that an earlier release placed on loads that are even."""
    build, assigner = Events(), ExplainingAssigner(Policy.BALANCED)
    decisions: list[PlacementDecision] = []
    with pytest.MonkeyPatch.context() as patch:
        if is_of_before:
            patch.setattr(RoundsAhead, "lists", lambda *_, **__: None)
        joins = [build.join(n, rack=racks[n % len(racks)] if racks else None) for n in range(20)]
        for event in [*joins, build.create("t", 16, 3), build.grow("t", 30)]:
            for _, reasons in assigner.apply(event):
                decisions += [decision for _, decision in reasons]
    expected = Mode.BALANCED if is_of_before else Mode.BALANCED_ROUNDS
    assert len(decisions) == 30
    for decision in decisions:
        assert decision.reason is not None
        assert decision.reason.mode is expected
        assert decision.recomputed
        assert decision.unknown == ()


def life_on_spus_alike(seed: int, racks: str) -> Life:
    """Creates of all sizes on SPUs alike that fill up, with all that can come between; each is on
    the rack of its letter, or on none."""
    random, build = Random(seed), Events()
    size, capacity = random.randint(17, 30), random.choice([20, 60, 10**6])
    rack_of = [racks[number % len(racks)] if racks else None for number in range(size)]
    events: list[Event] = [
        build.join(number, capacity=capacity, rack=rack_of[number]) for number in range(size)
    ]
    topics = [f"t{number}" for number in range(40)]
    events += [build.create(topic, random.randint(1, 9), 3) for topic in topics[:12]]
    for _ in range(60):
        topic, spu_id = random.choice(topics), random.randrange(size)
        factor = random.choice([1, 2, 3, 3, 3, 3, 4, 5])
        kind = random.choice("ccccccccccccccddgjlokmbf")
        if kind == "c":
            partitions = random.choice([1, 2, 5, 8, 16, 30])
            validate = random.random() < 0.1
            events.append(build.create(topic, partitions, factor, validate_only=validate))
        elif kind == "d":
            events.append(build.delete(topic))
        elif kind == "g":
            events.append(build.grow(topic, random.randint(2, 40)))
        elif kind == "j":
            events.append(build.join(spu_id, capacity=capacity, rack=rack_of[spu_id]))
        elif kind == "l":
            events.append(build.leave(spu_id, mode=random.choice([*LeaveMode])))
        elif kind == "o":
            events.append(build.create(topic, 6, 2, policy=random.choice([*AUTOMATIC])))
        elif kind == "k":
            events.append(random.choice([build.cordon, build.uncordon])(spu_id))
        elif kind == "m":
            events.append(random.choice([build.demote, build.undemote])(spu_id))
        elif kind == "b":
            events.append(build.rebalance(max_moves=random.randint(1, 50)))
        else:
            events.append(build.create(topic, 4, 3, demand={"disk": 0}))
    crashes = frozenset(event.event_id for event in random.sample(events, 3))
    return Life(
        seed=seed,
        events=tuple(events),
        crashes=crashes,
        default_policy=Policy.BALANCED,
        memory=256,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("racks", ["", "abc", "abacab", "abcdefg"])
def test_lives_on_spus_alike_keep_every_invariant(racks: str) -> None:
    """Also where SPUs fill up, leave, are cordoned or demoted, and the state is restored or
    replayed; lists made ahead are those made one request at a time."""
    in_rounds = 0
    for seed in range(15):
        life = life_on_spus_alike(seed, racks)
        assert fault_of(life) is None, seed
        lives = []
        for ahead in (rounds.AHEAD_FIRST, 0):
            with mock.patch.object(rounds, "AHEAD_FIRST", ahead):
                state = ClusterState("c1")
                lives.append(
                    [step(state, event, default_policy=Policy.BALANCED) for event in life.events]
                )
        assert lives[0] == lives[1], seed
        placed = [record for each in lives[0] for record in each if isinstance(record, ReplicaMap)]
        in_rounds += [mode_of(record) for record in placed].count(Mode.BALANCED_ROUNDS)
    assert in_rounds > 100
