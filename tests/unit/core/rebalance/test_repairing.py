"""What a rebalance repairs, gives to new SPUs, and keeps of the rules of topics."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import Constraints, Taint, TaintEffect, Toleration
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, SpuId
from spu_assigner.core.base.records import Status
from spu_assigner.core.rebalance import planning, repairing
from support.events.one_cluster import OneCluster
from support.events.random_lives import rebalanced_life
from support.events.simulation import fault_of
from support.project.case_share import share_of


def test_of_two_on_a_rack_one_moves_to_the_rack_that_joins() -> None:
    """Not the one that is alone on its rack, though its SPU holds most."""
    life = OneCluster.on_racks("abb", [0, 2, 1], [0, 1, 2])
    life.join(3, rack="c", capacity=100)
    assert life.rebalance().moves == 2
    assert all({0, 3} < set(row) for row in life.lists("t"))


@pytest.mark.parametrize("racks", ["aab", "aabc", "aaab"])
def test_two_on_one_rack_take_one_move_to_an_empty_one(racks: str) -> None:
    life = OneCluster.on_racks(racks, [0, 1])
    assert life.rebalance().message == (
        "1 replica moves (1 to repair lists, 0 to even out), 0 lists get another leader from among "
        "their replicas"
    )
    assert len({racks[spu] for spu in life.lists("t")[0]}) == 2


def test_few_moves_repair_as_much_as_they_may() -> None:
    """And the answer says what is left; leaders alone repair nothing."""
    life = OneCluster.on_racks("aabb", *[[0, 1]] * 5)
    assert (life.rebalance(0).moves, life.rebalance(2).moves) == (0, 2)
    answer = life.rebalance(1)
    assert (answer.moves, "2 lists are left to be repaired" in (answer.message or "")) == (1, True)
    assert "left" not in (life.rebalance().message or "")


def test_of_many_lists_some_are_repaired_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others would keep all events waiting; asking again repairs them, too."""
    monkeypatch.setattr(repairing, "LISTS_MAX", 6)
    life = OneCluster.on_racks("aabb", *[[0, 1]] * 5)
    assert "3 lists are left to be repaired" in (life.rebalance().message or "")
    while "left" in (life.rebalance().message or ""):
        pass
    assert all({0, 1} & set(row) and {2, 3} & set(row) for row in life.lists("t"))


def test_repairs_count_as_bytes() -> None:
    life = OneCluster.on_racks("aabb", *[[0, 1]] * 5, resources={"disk_bytes": 10_000})
    life.apply(life.build.demand("t", demand={"disk_bytes": 10}))
    message = life.rebalance(max_bytes=35).message or ""
    assert message.startswith("3 replicas of 30 bytes move (3 to repair lists")


def test_a_topic_that_ignores_racks_is_not_repaired() -> None:
    life = OneCluster.on_racks("aabb")
    life.create("t", 2, 2, policy=Policy.FLUVIO, ignore_rack=True)
    assert "to repair" not in (life.rebalance().message or "")


@settings(max_examples=share_of(300), deadline=None)
@given(st.data())
def test_no_further_move_makes_a_list_more_even(data: st.DataObject) -> None:
    """On random clusters, once nothing moves any more."""
    racks = data.draw(st.text("abcd", min_size=2, max_size=8))
    life = OneCluster.on_racks(racks, capacity=data.draw(st.sampled_from([6, 100])))
    ids = range(len(racks))
    rows = st.lists(st.sampled_from(ids), min_size=1, max_size=5, unique=True)
    for number in range(data.draw(st.integers(1, 3))):
        life.adopt(f"t{number}", *data.draw(st.lists(rows, min_size=1, max_size=4)))
    for spu_id in data.draw(st.sets(st.sampled_from(ids), max_size=2)):
        life.leave(spu_id)
    while life.rebalance().moves:  # What evens out may make room for further repairs.
        pass
    spus = life.state.spus
    for topic in life.state.topics:
        for row in life.lists(topic):
            counts = Counter(racks[spu] for spu in row)
            most = max((counts[racks[i]] for i in row if spus[SpuId(i)].online), default=0)
            for taken in life.state.ring.ids.tolist():
                assert taken in row or most < counts[racks[taken]] + 2, (row, taken)


def grown() -> OneCluster:
    life = OneCluster()
    life.join(0, 1, 2)
    life.create("t", 900, 3, policy=Policy.BALANCED)
    life.join(3, 4, 5)
    return life


def test_too_many_moves_are_rejected_and_the_answer_says_what_to_ask_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan would keep all others waiting; so many at a time come to the same."""
    monkeypatch.setattr(planning, "REBALANCE_MOVES_MAX", 500)
    life = grown()
    refused = life.rebalance(1_000)
    assert (refused.status, refused.code) == (Status.REJECTED, Code.TOO_MANY_MOVES)
    assert "max_moves 500" in (refused.message or "")
    moves = [life.rebalance(500).moves for _ in range(4)]
    assert moves == [500, 500, 347, 0]  # 3 * 449 in all


def test_a_search_that_ends_at_its_limit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found is done, and asking again may find more."""
    life = grown()
    evened = planning.even_out

    def cut(*given: object, **_: object) -> object:
        return evened(*given, looks_max=0)  # type: ignore[arg-type]

    monkeypatch.setattr(planning, "even_out", cut)
    assert "ended at its limit" in (life.rebalance().message or "")


# New SPUs hold their part of each topic.


def later(old: int, new: int, topics: dict[str, int], replicas: int, racks: int) -> OneCluster:
    life = OneCluster()

    def join(first: int, last: int) -> None:
        for spu_id in range(first, last):
            life.join(spu_id, rack=f"r{spu_id % racks}" if racks else None, capacity=10_000)

    join(0, old)
    for name, partitions in topics.items():
        life.create(name, partitions, replicas, policy=Policy.BALANCED)
    join(old, old + new)
    return life


def on(life: OneCluster, topic: str) -> Counter[int]:
    return Counter(spu for row in life.lists(topic) for spu in row)


@pytest.mark.parametrize(("old", "topics", "partitions"), [(3, 3, 6), (4, 5, 10), (5, 4, 12)])
def test_each_topic_gives_the_spu_that_joins_its_part(
    old: int, topics: int, partitions: int
) -> None:
    """Of 6 x 2 on four SPUs 3, or one more or less."""
    life = later(old, 1, {f"t{at}": partitions for at in range(topics)}, 2, 0)
    life.rebalance()
    fair = 2 * partitions / (old + 1)
    assert all(abs(on(life, f"t{at}")[old] - fair) <= 1 for at in range(topics))


@pytest.mark.parametrize("racks", [0, 5])
@pytest.mark.parametrize(("old", "new", "topics"), [(20, 5, 100), (15, 5, 60), (30, 10, 40)])
def test_new_spus_hold_their_part_of_each_topic(
    old: int, new: int, topics: int, racks: int
) -> None:
    """A fair part is 20 or 25 %; no list lies on them alone, and no move is one too many."""
    life = later(old, new, {f"t{at}": 16 for at in range(topics)}, 3, racks)
    moves = life.rebalance().moves
    fair = 16 * 3 * topics / (old + new)
    assert moves == new * int(-(-(fair - 1) // 1))  # to one below the fair share
    share = new / (old + new)
    for at in range(topics):
        held = on(life, f"t{at}")
        part = sum(held[spu] for spu in range(old, old + new)) / 48
        assert share - 0.11 <= part <= share + 0.11
        assert all(min(row) < old for row in life.lists(f"t{at}"))


@settings(max_examples=share_of(100), deadline=None)
@given(st.data())
def test_a_band_of_0_leaves_a_difference_of_one(data: st.DataObject) -> None:
    """Between SPUs alike; the band of 1 may leave two."""
    old, new = data.draw(st.integers(2, 8)), data.draw(st.integers(0, 3))
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    topics = {f"t{at}": size for at, size in enumerate(sizes)}
    life = later(old, new, topics, data.draw(st.integers(1, 2)), 0)
    life.rebalance(band=0)
    held = [life.held(spu) for spu in range(old + new)]
    assert max(held) - min(held) <= 1
    assert life.rebalance(band=0).moves == 0


# Topics with rules.


SSD = Constraints(require=("tier=ssd",))
WEAK = Taint("calm", "x", TaintEffect.NO_LEADERS)
LIVES = 900


@pytest.mark.thorough
@pytest.mark.parametrize("chunk", range(4))
def test_no_rebalance_breaks_a_rule_or_keeps_one_worse(chunk: int) -> None:
    """Random lives. Labels, taints and constraints change before it; a quarter have resources."""
    for seed in range(chunk * LIVES // 4, (chunk + 1) * LIVES // 4):
        assert fault_of(rebalanced_life(seed)) is None, seed


class Ruled(OneCluster):
    """SPUs with labels, and topics that are there as they are."""

    def __init__(self, resources: dict[str, int]) -> None:
        super().__init__()
        self.resources = resources

    def add(self, *spu_ids: int, taints: tuple[Taint, ...] = (), **labels: str) -> None:
        given = {"capacity": 100, "labels": labels, "resources": self.resources}
        self.join(*spu_ids, taints=taints, **given)

    def place(self, topic: str, *lists: list[int], **given: Any) -> None:
        self.adopt(topic, *lists, demand=dict.fromkeys(self.resources, 10), **given)


@pytest.fixture(params=[{}, {"disk_bytes": 1_000}], ids=["by count", "by resources"])
def ruled(request: pytest.FixtureRequest) -> Ruled:
    return Ruled(request.param)


def test_it_is_moved_within_its_rules_alone(ruled: Ruled) -> None:
    ruled.add(0, 1, 2, tier="ssd")
    ruled.add(3, 4, 5, tier="hdd")
    ruled.place("t", *[[0]] * 12, rules=SSD)
    assert "left alone" not in (ruled.rebalance().message or "")
    assert ruled.spus("t").keys() == {0, 1, 2}
    assert max(ruled.spus("t").values()) <= 5


@pytest.mark.parametrize(
    ("row", "rules", "leads"),
    [
        ([0, 1], Constraints(forbid=("spu_id=7",)), False),
        ([0], None, None),  # Nobody else could lead a list of one (life 80).
        ([0], Constraints(tolerations=(Toleration("calm"),)), True),
    ],
    ids=["followers", "a list of one", "tolerated"],
)
def test_an_spu_that_must_not_lead_gets_followers_alone(
    ruled: Ruled, row: list[int], rules: Constraints | None, leads: bool | None
) -> None:
    ruled.add(0, 1)
    ruled.add(2, taints=(WEAK,))
    ruled.place("t", *[row] * 12, rules=rules)
    ruled.rebalance()
    assert (ruled.spus("t")[2] > 0) is (leads is not None)
    assert (ruled.leads("t")[2] > 0) is bool(leads)


def test_a_list_that_breaks_a_rule_moves_to_where_it_breaks_none(ruled: Ruled) -> None:
    """It is `VIOLATED` since SPU 0 lost its label; all that is there moves away, and is right."""
    ruled.add(0, 1, 2, tier="ssd")
    ruled.add(3, tier="hdd")
    ruled.place("t", *[[0]] * 12, rules=SSD)
    ruled.add(0, tier="hdd")
    assert "12 to repair lists" in (ruled.rebalance().message or "")
    assert ruled.spus("t").keys() == {1, 2}
    assert abs(ruled.spus("t")[1] - ruled.spus("t")[2]) <= 2
