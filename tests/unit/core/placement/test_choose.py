"""The choice of an SPU beside a look at every one, and whole requests of `balanced`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import Constraints, Preference, SpreadLevel
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import ReplicaMap, TopicStatus
from spu_assigner.core.base.resources import Need
from spu_assigner.core.decision.machine import step
from spu_assigner.core.placement import choose
from spu_assigner.core.placement.choose import Chooser, bind_topic, topic_chooser
from spu_assigner.core.placement.preference import (
    FRACTION_BITS,
    SHARE_MAX,
    Positions,
    chain_positions,
    share,
    shares,
)
from spu_assigner.core.state.cluster_state import ClusterState
from support.events.builders import Events
from support.events.one_cluster import OneCluster
from support.project.case_share import share_of

RULES = (
    None,
    Constraints(spread=(SpreadLevel("zone", max=2),)),
    Constraints(spread=(SpreadLevel("zone", min=1),), prefer=(Preference("ssd", 5),)),
    Constraints(require=("ssd",), spread=(SpreadLevel("rack", max=1), SpreadLevel("zone"))),
)


@pytest.fixture(autouse=True, scope="module", params=[256, 0])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Kinds are scanned one by one, or compared in arrays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "KINDS_SCANNED_MAX", request.param)
        yield


class Case:
    """A random cluster with two topics of the same rules, and a plain count of what is on it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.state, events = ClusterState("c1"), Events()
        self.need = random.choice([None, Need((("disk", random.randint(0, 9)), ("net", 2)))])
        self.rules = random.choice(RULES)
        racks = random.randint(1, 6)
        for spu_id in range(random.randint(2, 12)):
            resources = {"disk": random.randint(1, 60)}
            join = events.join(
                spu_id * 2,
                rack=f"r{random.randrange(racks)}",
                capacity=random.choice([3, 10, 10, 40, 2**31 - 1]),
                labels={"zone": str(random.randrange(3)), **({"ssd": ""} if spu_id % 4 else {})},
                resources=resources if self.need is None else {**resources, "net": 50},
            )
            step(self.state, join, default_policy=Policy.BALANCED)
        ids = [spu_id for spu_id in self.state.spus if random.random() < 0.9]
        rows = [random.sample(ids, min(len(ids), 2)) for _ in range(6)]
        rows = [row for row in rows if row] or [[0]]
        for name in "ab":
            told = [events.adopt(name, *rows)]
            if self.need is not None:
                told.append(events.demand(name, demand=dict(self.need.demand)))
            if self.rules is not None:
                told.append(events.constraints(name, self.rules))
            for event in told:
                step(self.state, event, default_policy=Policy.BALANCED)
        if random.random() < 0.3:
            step(self.state, events.cordon(0), default_policy=Policy.BALANCED)
        spus = self.state.spus
        self.count = {int(i): self.state.ledger.count(i) for i in spus}
        self.used = {int(i): Counter(self.state.ledger.used(i)) for i in spus}
        self.of_topic: Counter[int] = Counter()
        self.total = 0

    def change(self, spu_id: int, more: int) -> None:
        self.count[spu_id] += more
        self.of_topic[spu_id] += more
        for name, amount in () if self.need is None else self.need.demand:
            self.used[spu_id][name] += more * amount

    def has_room(self, spu_id: int) -> bool:
        has = dict(self.state.spus[spu_id].resources)
        needed = {} if self.need is None else dict(self.need.demand)
        fits = all(
            self.used[spu_id][name] + amount <= has.get(name, 0)
            for name, amount in needed.items()
            if amount
        )
        return fits and self.count[spu_id] < self.state.spus[spu_id].capacity

    def share_with(self, spu_id: int) -> Fraction:
        """The dominant share of an SPU with a replica more."""
        spu = self.state.spus[spu_id]
        if self.need is None:  # the middle of the replica
            return Fraction(2 * self.count[spu_id] + 1, 2 * spu.capacity)
        found = [Fraction(self.count[spu_id] + 1, spu.capacity)]
        if self.need is not None:
            for name, has in spu.resources:
                found.append(
                    Fraction(self.used[spu_id][name] + dict(self.need.demand).get(name, 0), has)
                )
        return max(found)

    def best(self, chooser: Chooser, row: list[int]) -> int | None:
        """By the order of preference, in fractions."""
        spus, rules = self.state.spus, self.rules
        able = list(chooser.field.id_list)
        capacity = sum(spus[i].capacity for i in able)
        labels = {i: {**dict(spus[i].labels), "rack": spus[i].rack or ""} for i in spus}
        levels = [("rack", None, None)]
        for level in () if rules is None else rules.spread:
            levels = levels[level.label == "rack" :]
            levels.append((level.label, level.max, level.min))
        place_of = dict(zip(able, Positions(chain_positions(len(able), 0)).of, strict=False))
        options = []
        for i in able:
            if i in row or not self.has_room(i):
                continue
            counts, met, is_full = [], 0, False
            for label, most, least in levels:
                value = labels[i].get(label, "")
                count = sum(labels[each].get(label, "") == value for each in row)
                is_full |= most is not None and count >= most
                demanded = {labels[each].get(label, "") for each in able}
                met += least is not None and count < least and value in demanded
                counts.append(count)
            weight = 5 if rules is not None and rules.prefer and "ssd" in labels[i] else 0
            fair = Fraction(self.total * spus[i].capacity, capacity)
            held = self.of_topic[i]
            is_twofold = held > 0 and held >= ceil(2 * fair)
            if not is_full:
                shown = self.share_with(i) * 2**FRACTION_BITS // 1
                score = (-met, *counts, -weight, is_twofold, shown, held, place_of[i])
                options.append((score, i))
        return min(options)[1] if options else None


@pytest.mark.parametrize("part", range(4))
def test_the_best_is_what_a_look_at_every_spu_finds(part: int) -> None:
    found = 0
    for seed in range(part * share_of(150), (part + 1) * share_of(150)):
        case = Case(seed)
        chooser = topic_chooser(case.state, "a")
        for name in "aba":
            bind_topic(chooser, case.state, name)
            lists = case.state.topics[name].replicas.lists().tolist()
            case.of_topic = Counter(spu_id for row in lists for spu_id in row)
            case.total = len(case.of_topic) and sum(map(len, lists))
            for row in lists:
                if case.random.random() < 0.3:
                    gone = case.random.choice(row)
                    row.remove(gone)
                    chooser.release(gone)
                    case.change(gone, -1)
                for _ in range(case.random.randint(0, 3)):
                    expected = case.best(chooser, row)
                    assert chooser.best(row) == expected, seed
                    assert chooser.take(row) == expected, seed
                    if expected is None:
                        break
                    found += 1
                    case.change(expected, 1)
                    row.append(expected)
    assert found > share_of(150)


@given(st.integers(0, 2**53 - 1), st.integers(0, 2**53 - 1))
def test_shares_of_many_are_those_of_one(used: int, capacity: int) -> None:
    """Exact, however large the numbers are."""
    [found] = shares(np.array([used]), np.array([capacity])).tolist()
    assert found == share(used, capacity)
    if capacity:  # One without any counts as one of 1.
        assert found == min(Fraction(used, capacity) * 2**FRACTION_BITS // 1, SHARE_MAX)


# Whole requests.


@dataclass(frozen=True, kw_only=True)
class Requests:
    """A cluster and the requests that it gets: racks and capacities of SPUs, partitions and
    replicas of topics."""

    spus: list[tuple[int, int]]
    topics: list[tuple[int, int]]


def cases(*, capacities: st.SearchStrategy[int]) -> st.SearchStrategy[Requests]:
    spus = st.lists(st.tuples(st.integers(0, 3), capacities), min_size=1, max_size=9)
    topics = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 5)), min_size=1, max_size=6)
    return st.builds(Requests, spus=spus, topics=topics)


def free(state: ClusterState) -> list[int]:
    return [max(spu.capacity - state.ledger.count(spu_id), 0) for spu_id, spu in state.spus.items()]


def joined(case: Requests) -> OneCluster:
    life = OneCluster()
    for spu_id, (rack, capacity) in enumerate(case.spus):
        life.join(spu_id, rack=f"r{rack}", capacity=capacity)
    return life


@given(cases(capacities=st.integers(1, 12)))
@settings(max_examples=share_of(150), deadline=None)
def test_what_fits_is_given_and_nothing_else(case: Requests) -> None:
    """With N lists to come an SPU can be in as many as it has room for, and in N at most."""
    life = joined(case)
    for number, (partitions, replicas) in enumerate(case.topics):
        rooms = free(life.state)
        fits = sum(min(room, partitions) for room in rooms) >= partitions * replicas
        answers = life.create(f"t{number}", partitions, replicas, policy=Policy.BALANCED)
        assert any(isinstance(each, ReplicaMap) for each in answers) == fits
        assert min(free(life.state)) >= 0


@given(cases(capacities=st.sampled_from([100, 200, 7_000])))
@settings(max_examples=share_of(150), deadline=None)
def test_lists_are_as_even_over_racks_as_their_sizes_allow(case: Requests) -> None:
    life = joined(case)
    sizes = Counter(rack for rack, _ in case.spus)
    for number, (partitions, replicas) in enumerate(case.topics):
        if replicas > len(case.spus):
            continue
        life.create(f"t{number}", partitions, replicas, policy=Policy.BALANCED)
        most = next(
            count
            for count in range(1, replicas + 1)
            if sum(min(size, count) for size in sizes.values()) >= replicas
        )
        for row in life.lists(f"t{number}"):
            assert len(set(row)) == replicas
            counts = Counter(case.spus[spu_id][0] for spu_id in row)
            for rack, size in sizes.items():
                assert min(size, most - 1) <= counts[rack] <= min(size, most)


def test_a_topic_is_not_given_whole_to_new_spus() -> None:
    """150 even topics on three SPUs, a fourth joins: of the next 50 topics of 6 lists none has all
    leaders, or a replica of each list, on one SPU before its fair share is doubled."""
    life = OneCluster(*Events().joins(0, 1, 2, capacity=10_000))
    for number in range(150):
        life.create(f"old{number}", 6, 2, policy=Policy.BALANCED)
    life.join(3, capacity=10_000)
    for number in range(50):
        life.create(f"new{number}", 6, 2, policy=Policy.BALANCED)
        rows = life.lists(f"new{number}")
        led = Counter(row[0] for row in rows)
        assert max(led.values()) <= 3  # twice 6 / 4
        assert Counter(spu_id for row in rows for spu_id in row)[3] <= 6  # twice 12 / 4


def test_a_refusal_names_the_partition_that_found_too_little_room() -> None:
    life = joined(Requests(spus=[(0, 3), (0, 1), (0, 1)], topics=[]))
    [status] = life.create("t", 3, 2, policy=Policy.BALANCED)
    assert isinstance(status, TopicStatus)
    assert status.code is Code.INSUFFICIENT_CAPACITY
    assert "partition 2 found 1 SPUs with a free slot for 2 replicas" in (status.message or "")
