"""Kafka 4's striped placer as a policy: what is drawn, who leads, offline SPUs.

`tests/broker/placers/test_kraft_policy.py` holds it against Kafka's own class.
"""

from __future__ import annotations

import pytest
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import LeaveMode, Policy
from spu_assigner.core.policies.striped import stripes_seed
from spu_assigner.core.rules.kraft import SeededDraws, Stripes, shuffle
from support.events.builders import Events
from support.events.one_cluster import OneCluster, the_map, the_status


class Nothing(SeededDraws):
    """Draws 0 for ever."""

    def below(self, bound: int) -> int:
        assert bound > 0
        return 0


def cluster(*spu_ids: int) -> OneCluster:
    return OneCluster(*Events().joins(*spu_ids), default=Policy.KRAFT)


def test_what_is_drawn_is_what_java_util_random_draws() -> None:
    draws = SeededDraws(42)
    assert [draws.below(10) for _ in range(10)] == [0, 3, 8, 4, 0, 5, 5, 8, 9, 3]
    assert all(0 <= draws.below(16) < 16 for _ in range(100))
    items = list(range(5))
    shuffle(items, SeededDraws(7))
    assert sorted(items) == list(range(5)) != items


def test_the_worked_example_of_the_rule() -> None:
    """Racks in turn; an offline SPU where its rack has no online one, but never as a leader."""
    stripes = Stripes({0: "a", 1: "a", 2: "b"}, {3: "c"}, Nothing(0))
    assert [stripes.next(3) for _ in range(3)] == [[0, 2, 3], [2, 3, 1], [0, 3, 2]]


def test_the_seed_is_cluster_topic_and_chain_index() -> None:
    assert stripes_seed("c1", "t", 0) == 0xD7D8AF126C716812
    racks = {"a": [0, 1, 2], "b": [3, 4, 5], "c": [6, 7]}
    life = OneCluster(*Events().racks(racks), default=Policy.KRAFT)
    for index in (0, 8):
        found = the_map(life.create("t", 8, 3))
        assert found.reason is not None
        assert (found.reason.start_index, found.chain_index) == (index, index + 8)
        draws = SeededDraws(stripes_seed("c1", "t", index))
        stripes = Stripes(dict(enumerate("aaabbbcc")), {}, draws)
        assert life.lists("t") == [stripes.next(3) for _ in range(8)]
        life.apply(life.build.delete("t"))


@pytest.mark.parametrize("last", ["leaving", "cordoned", "full"])
def test_an_offline_spu_that_may_take_nothing_is_not_asked(last: str) -> None:
    life = cluster(0, 1, 2)
    life.join(3, capacity=0 if last == "full" else None)
    if last == "cordoned":
        life.cordon(3)
    if last == "leaving":
        life.manual("m", [3])
    life.leave(3, LeaveMode.DECOMMISSION if last == "leaving" else LeaveMode.OFFLINE)
    assert the_status(life.create("t", 1, 4)).code is Code.INSUFFICIENT_SPUS
