"""Who leads the lists of an SPU that is decommissioned."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import LeaveMode, Policy
from support.events.builders import Events
from support.events.one_cluster import OneCluster

GONE = LeaveMode.DECOMMISSION


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
    assert life.leads("t") == dict.fromkeys(range(spus, 2 * spus), lists // spus)


def test_a_replica_that_has_just_come_does_not_lead() -> None:
    """It has no data. Each SPU is replaced before the next one comes, so the last leads nothing."""
    life = OneCluster(*Events().joins(0, 1, 2))
    life.create("t", 30, 3, policy=Policy.BALANCED)
    for spu_id in range(3):
        life.join(3 + spu_id)
        life.leave(spu_id, GONE)
    assert life.leads("t") == {3: 15, 4: 15}


def test_a_successor_is_one_that_the_topic_wants_to_lead() -> None:
    """`leaders` of its constraints come before who leads how much."""
    life = OneCluster()
    for spu_id, zone in enumerate("abba"):
        life.join(spu_id, labels={"zone": zone})
    life.adopt("load", *[[3]] * 5)
    life.adopt("t", [0, 1, 3], [0, 3, 2], rules=Constraints(leaders=("zone in (a)",)))
    life.leave(0, GONE)
    assert [row[0] for row in life.lists("t")] == [3, 3]
