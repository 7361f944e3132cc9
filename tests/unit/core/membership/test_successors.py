"""Who leads the lists of an SPU that is decommissioned."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import LeaveMode, Policy
from spu_assigner.core.base.records import ReplicaMap
from support.events.builders import Events
from support.events.one_cluster import OneCluster
from support.project.case_share import share_of

GONE = LeaveMode.DECOMMISSION


def leaders(life: OneCluster, topic: str) -> Counter[int]:
    return Counter(row[0] for row in life.lists(topic))


@pytest.mark.parametrize(("lists", "spus"), [(30, 3), (24, 3)])
def test_spus_replaced_one_after_the_other_lead_as_many_lists_each(lists: int, spus: int) -> None:
    """Not the first of each list: then the first of the new SPUs would lead them all."""
    life = OneCluster(*Events().joins(*range(2 * spus)))
    for spu_id in range(spus, 2 * spus):
        life.cordon(spu_id)
    life.create("t", lists, 3, policy=Policy.BALANCED)
    for spu_id in range(spus, 2 * spus):
        life.uncordon(spu_id)
    for spu_id in range(spus):
        life.leave(spu_id, GONE)
    assert leaders(life, "t") == dict.fromkeys(range(spus, 2 * spus), lists // spus)


def test_a_replica_that_has_just_come_does_not_lead() -> None:
    """It has no data. Each SPU is replaced before the next one comes, so the last leads nothing."""
    life = OneCluster(*Events().joins(0, 1, 2))
    life.create("t", 30, 3, policy=Policy.BALANCED)
    for spu_id in range(3):
        life.join(3 + spu_id)
        life.leave(spu_id, GONE)
    assert leaders(life, "t") == {3: 15, 4: 15}


def test_among_spus_that_lead_as_much_the_one_that_leads_least_of_the_topic() -> None:
    """SPUs 1 and 2 lead three lists each, 1 two of topic t and 2 one."""
    life = OneCluster(*Events().joins(0, 1, 2))
    life.manual("t", [0, 1, 2], [1, 0, 2], [1, 2, 0], [2, 0, 1])
    life.manual("u", [1, 2, 0], [2, 0, 1], [2, 1, 0])
    life.leave(0, GONE)
    assert life.lists("t")[0] == [2, 1]


def test_no_successor_leads_twice_its_share_of_a_topic_where_another_can() -> None:
    """SPU 1 leads nothing elsewhere, but three of the four lists here: a fourth is too much."""
    life = OneCluster(*Events().joins(0, 1, 2, 3))
    life.manual("t", [1, 2, 0], [1, 3, 0], [1, 2, 3], [0, 1, 2])
    life.manual("u", *[[2, 3]] * 5, *[[3, 2]] * 5)
    life.leave(0, GONE)
    assert life.lists("t")[3][0] == 2


def test_a_successor_is_one_that_the_topic_wants_to_lead() -> None:
    """`leaders` of its constraints come before who leads how much."""
    life = OneCluster()
    for spu_id, zone in enumerate("abba"):
        life.join(spu_id, labels={"zone": zone})
    life.apply(life.build.adopt("load", *[[3]] * 5))
    life.apply(life.build.adopt("t", [0, 1, 3], [0, 3, 2], policy=Policy.BALANCED))
    life.apply(life.build.constraints("t", Constraints(leaders=("zone in (a)",))))
    life.leave(0, GONE)
    assert [row[0] for row in life.lists("t")] == [3, 3]


def test_a_demoted_spu_that_is_offline_hands_over_to_a_replica_that_comes() -> None:
    """Found by a seed: it leads nothing that another online SPU of the list can."""
    life = OneCluster(*Events().joins(0, 1))
    life.apply(life.build.adopt("t", [0, 1]))
    life.leave(1, GONE)
    life.demote(0)
    life.leave(0)
    life.join(2)
    assert life.lists("t") == [[2, 0]]


@settings(max_examples=share_of(150), deadline=None)
@given(data=st.data())
def test_each_successor_leads_least_when_it_is_chosen(data: st.DataObject) -> None:
    """By the share of the cluster's lists, of those with data that may lead; the others of a
    topic's lists keep their leaders."""
    count = data.draw(st.integers(3, 7))
    life = OneCluster(*Events().joins(*range(count)))
    ids = st.lists(st.integers(0, count - 1), min_size=2, max_size=4, unique=True)
    for name in "ab":
        life.apply(life.build.adopt(name, *data.draw(st.lists(ids, min_size=1, max_size=8))))
    for spu_id in data.draw(st.lists(st.integers(0, count - 1), max_size=2, unique=True)):
        data.draw(st.sampled_from([life.leave, life.demote]))(spu_id)
    gone = data.draw(st.integers(0, count - 1))
    before = {name: life.lists(name) for name in "ab"}
    led = Counter(row[0] for name in "ab" for row in before[name])
    able = {i for i, spu in life.state.spus.items() if spu.online and not spu.demoted} - {gone}
    answers = life.leave(gone, GONE)
    changed = {each.topic for each in answers if isinstance(each, ReplicaMap)}
    for name in sorted(changed):
        own = Counter(row[0] for row in before[name])
        twice = -(-2 * len(before[name]) // max(len(able), 1))
        for was, now in zip(before[name], life.lists(name), strict=True):
            copies = [i for i in was if i in able]
            if now[0] == was[0]:
                continue
            if was[0] == gone and copies:
                best = min((own[i] >= twice, led[i], own[i]) for i in copies)
                assert (own[now[0]] >= twice, led[now[0]], own[now[0]]) == best
            led.update({now[0]: 1, was[0]: -1})
            own.update({now[0]: 1, was[0]: -1})
