"""What could be better in a cluster, in examples and held against a slow count."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from spu_assigner.core.base.constraints import Constraints, SpreadLevel, Taint, TaintEffect
from spu_assigner.core.base.events import LeaveMode, Policy
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.constraints.improvable import Improvable, improvable
from support.events.one_cluster import OneCluster

SSD = Constraints(require=("tier=ssd",))
SPREAD = Constraints(spread=(SpreadLevel("rack", max=1),))
NOT_LED = (Taint("old", "", TaintEffect.NO_LEADERS),)


def cluster(racks: str = "aabbcc") -> OneCluster:
    return OneCluster.on_racks(racks)


def adopt(
    of: OneCluster,
    topic: str,
    *lists: list[int],
    constraints: Constraints | None = None,
    pinned: bool = False,
) -> None:
    of.apply(of.build.adopt(topic, *lists, pinned=pinned, policy=Policy.BALANCED))
    if constraints is not None:
        of.apply(of.build.constraints(topic, constraints=constraints))


@pytest.mark.parametrize(
    ("lists", "given", "expected"),
    [
        ([[0, 2, 4], [2, 4, 0]], {}, Improvable()),
        ([[0, 1], [2, 0]], {}, Improvable(few_racks=1)),
        ([[0, 2], [0, 4]], {}, Improvable(one_leader=1)),
        ([[0, 2]], {}, Improvable()),
        ([[0, 1, 2, 4], [2, 3, 4, 0]], {}, Improvable()),  # There are only three racks.
        ([[0, 1], [0, 3]], {"pinned": True}, Improvable()),
        ([[0, 1], [2, 3]], {"constraints": SPREAD}, Improvable(few_racks=2, broken_rules=2)),
    ],
)
def test_lists_on_few_racks_and_topics_of_one_leader_are_counted(
    lists: list[list[int]], given: dict[str, Any], expected: Improvable
) -> None:
    """As far as the ring has racks, and the topic is not to stay as it is."""
    of = cluster()
    adopt(of, "t", *lists, **given)
    assert improvable(of.state) == expected


def test_what_rules_and_the_ring_permit_is_no_fault() -> None:
    """Only SPUs that may take replicas have racks, and only those that may lead are others."""
    of = OneCluster()
    for spu_id in range(4):
        of.join(spu_id, rack="ab"[spu_id // 2], labels={"tier": "ssd" if spu_id < 2 else "hdd"})
    adopt(of, "t", [0, 1], [0, 1], constraints=SSD)
    assert improvable(of.state) == Improvable(one_leader=1)
    of.join(1, rack="a", labels={"tier": "ssd"}, taints=NOT_LED)
    assert improvable(of.state) == Improvable()
    adopt(of, "u", [0, 1], [2, 3])
    assert improvable(of.state) == Improvable(few_racks=2)
    of.cordon(2)
    of.leave(3, LeaveMode.OFFLINE)
    assert improvable(of.state) == Improvable()


def test_a_rule_that_labels_broke_is_counted_until_it_holds() -> None:
    """Also of a pinned topic: a rule is a rule."""
    of = OneCluster()
    of.join(*range(3), labels={"tier": "ssd"})
    adopt(of, "t", [0, 1], [1, 2], [2, 0], constraints=SSD, pinned=True)
    of.join(0, labels={"tier": "hdd"})
    assert improvable(of.state) == Improvable(broken_rules=2)
    of.join(0, labels={"tier": "ssd"})
    assert improvable(of.state) == Improvable()


def test_topics_that_are_to_be_apart_are_asked_one_by_one() -> None:
    of = cluster("abcabc")
    adopt(of, "u", [0, 1])
    adopt(of, "t", [0, 2], constraints=Constraints(apart_from=("u",)))
    assert improvable(of.state) == Improvable(broken_rules=1)
    of.apply(of.build.delete("u"))
    assert improvable(of.state) == Improvable()


def test_a_state_that_is_half_read_has_no_fault() -> None:
    """A page is shown while SPUs are still being read."""
    of = cluster()
    adopt(of, "t", [0, 1], [0, 1])
    spus = [each for each in of.state.parts() if isinstance(each, SpuChanged)]
    of.state.spus = {}
    of.state.rule_tables.clear()
    assert improvable(of.state) == Improvable()
    of.state.spus = {spu.spu_id: spu for spu in spus}  # type: ignore[misc]
    of.state.rule_tables.clear()
    assert improvable(of.state) == Improvable(few_racks=2, one_leader=1)


@pytest.mark.parametrize("seed", range(20))
def test_the_figures_are_those_of_a_slow_count(seed: int) -> None:
    """Lists of many lengths and topics of many sizes, on some offline and demoted SPUs."""
    draw = Random(seed)
    of = cluster("".join(draw.choice("abcd") for _ in range(draw.randrange(2, 9))))
    ids = sorted(of.state.spus)
    racks = {spu_id: of.state.spus[spu_id].rack for spu_id in ids}
    for number in range(30):
        width = draw.randrange(1, len(ids) + 1)
        lists = [draw.sample(ids, width) for _ in range(draw.randrange(1, 4))]
        adopt(of, f"t{number}", *lists)
    of.apply(of.build.demote(ids[0]))
    of.leave(ids[-1], LeaveMode.OFFLINE)
    ring = set(of.state.ring.ids.tolist())
    rows = {name: topic.replicas.lists().tolist() for name, topic in of.state.topics.items()}
    most = len({racks[each] for each in ring})
    few = sum(
        len({racks[each] for each in row}) < min(len(row), most)
        for lists in rows.values()
        for row in lists
    )
    alone = sum(
        len(lists) > 1
        and len({row[0] for row in lists}) == 1
        and bool(ring - {ids[0], lists[0][0]})
        for lists in rows.values()
    )
    assert improvable(of.state) == Improvable(few_racks=few, one_leader=alone)
