"""`TopicAdopted` of a topic that has rules of its own."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.constraints import Constraints, SpreadLevel
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Status, TopicStatus
from support.events.one_cluster import OneCluster


@pytest.mark.parametrize(
    ("constraints", "lists", "said"),
    [
        (Constraints(require=("tier=ssd",)), [[0, 2], [0, 1]], "require[0] 'tier=ssd' (1 list)"),
        (Constraints(forbid=("tier=hdd",)), [[2, 3], [3, 0]], "forbid[0] 'tier=hdd' (2 lists)"),
        (
            Constraints(spread=(SpreadLevel("tier", max=1),)),
            [[0, 1], [2, 0]],
            "spread[0] 'tier' max 1 (1 list)",
        ),
        (Constraints(apart_from=("u",)), [[1, 0], [0, 3]], "apart_from[0] 'u' (1 list)"),
    ],
)
def test_lists_that_break_the_topics_own_rules_are_adopted_and_said_to(
    constraints: Constraints, lists: list[list[int]], said: str
) -> None:
    """They are facts; the topic's rules are known from before."""
    life = OneCluster()
    for spu_id, tier in enumerate(("ssd", "ssd", "hdd", "hdd")):
        life.join(spu_id, labels={"tier": tier})
    life.apply(life.build.adopt("u", [1]))
    life.apply(life.build.adopt("t", [0, 2], policy=Policy.BALANCED))
    life.apply(life.build.constraints("t", constraints))
    for adoption in (life.build.adopt("t", *lists), life.build.adopt("t", *lists, pinned=True)):
        adopted, violated = [each for each in life.apply(adoption) if isinstance(each, TopicStatus)]
        assert (adopted.status, violated.status) == (Status.ADOPTED, Status.VIOLATED)
        assert (violated.message, violated.cause) == (
            f"lists break {said}; they stay as they are",
            adoption.event_id,
        )
    assert life.lists("t") == lists


def test_nothing_is_said_of_rules_that_hold_or_where_the_adoption_is_rejected() -> None:
    """What lists break that stay was said when they came to break it."""
    life = OneCluster()
    for spu_id, tier in enumerate(("ssd", "ssd", "hdd")):
        life.join(spu_id, labels={"tier": tier})
    life.apply(life.build.adopt("t", [0, 2], policy=Policy.BALANCED))
    life.apply(life.build.constraints("t", Constraints(require=("tier=ssd",))))
    for lists, status in (([[0, 9]], Status.REJECTED), ([[1, 0]], Status.ADOPTED)):
        [answer] = [
            each
            for each in life.apply(life.build.adopt("t", *lists))
            if isinstance(each, TopicStatus)
        ]
        assert answer.status is status
