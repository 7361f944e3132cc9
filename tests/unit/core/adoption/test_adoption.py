"""Topics adopted as Kafka has them, and lists of a living topic that get another length."""

from __future__ import annotations

from typing import Any

import pytest
from spu_assigner.core.base.constraints import Constraints, SpreadLevel
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.limits import PARTITIONS_MAX
from spu_assigner.core.base.records import Mode, RingChange, Status, TopicStatus
from support.events.builders import Events
from support.events.one_cluster import Answer, OneCluster, ring_changes, statuses, the_map

LISTS = [[0, 1], [1, 2, 0], [2]]
DISK = "disk_bytes"


def cluster(*spu_ids: int, **given: Any) -> OneCluster:
    """SPUs that hold nothing yet."""
    return OneCluster(*Events().joins(*spu_ids, **given), default=Policy.BALANCED)


def test_an_adopted_topic_is_as_it_was_found() -> None:
    life = cluster(0, 1, 2)
    answers = life.adopt("t", *LISTS, policy=None, event_id="a")
    found = the_map(answers)
    assert found.replicas is not None
    assert found.replicas.tolist() == LISTS
    assert (found.revision, found.policy, found.cause) == (1, Policy.BALANCED, "a")
    assert (found.replication_factor, found.wanted_lengths) == (3, (2, 3, 1))
    assert found.reason is not None
    assert found.reason.mode is Mode.ADOPTED
    assert statuses(answers) == [("t", Status.ADOPTED, None, "a")]
    assert [life.held(spu_id) for spu_id in range(3)] == [2, 2, 2]


@pytest.mark.parametrize(
    ("topic", "lists", "code", "message"),
    [
        ("t", [[0], [0, 7]], Code.MANUAL_UNKNOWN_SPU, "partition 1 names SPU 7"),
        ("t", [[0], [1, 0, 1]], Code.MANUAL_DUPLICATE_SPU, "partition 1 names SPU 1 more than"),
        ("t", [[0], []], Code.MANUAL_EMPTY_LIST, "partition 1 has no replicas"),
        ("t", [[-1]], Code.MANUAL_INVALID_SPU, "partition 0 names the SPU -1"),
        ("t", [[0]] * (PARTITIONS_MAX + 1), Code.INVALID_PARTITIONS, "name 100001 partitions"),
        ("t", [[*range(33)]], Code.INVALID_REPLICATION_FACTOR, "has 33 replicas"),
        ("replica-map", [[0]], Code.RESERVED_NAME, "leave it out"),
    ],
)
def test_what_cannot_be_adopted_is_rejected_by_name(
    topic: str, lists: list[list[int]], code: Code, message: str
) -> None:
    life = cluster(0, 1)
    before = life.kept()
    [status] = life.adopt(topic, *lists)
    assert isinstance(status, TopicStatus)
    assert (status.status, status.code) == (Status.REJECTED, code)
    assert message in (status.message or "")
    assert life.kept() == before


# What it needs of resources: as measured, it counts from then on.


def used(life: OneCluster) -> list[int]:
    return [life.state.ledger.used(spu_id).get(DISK, 0) for spu_id in life.state.spus]


@pytest.fixture
def measured() -> OneCluster:
    """Three SPUs with 100 bytes each."""
    return cluster(0, 1, 2, resources={DISK: 100})


def test_a_fact_may_exceed_what_an_spu_has_and_only_those_that_need_it_avoid_it(
    measured: OneCluster,
) -> None:
    answers = measured.adopt("t", [0], [0, 1], demand={DISK: 150})
    assert used(measured) == [300, 150, 0]
    assert ring_changes(answers) == [(0, RingChange.SATURATED, 3), (1, RingChange.SATURATED, 3)]
    [refused] = measured.create("u", 1, 2, demand={DISK: 1})
    assert isinstance(refused, TopicStatus)
    assert refused.code is Code.INSUFFICIENT_CAPACITY
    assert "2 have less than 1 of disk_bytes free" in str(refused.message)
    measured.create("v", 1, 3)
    assert measured.spus("v").keys() == {0, 1, 2}


def test_the_same_again_changes_nothing_and_another_amount_is_the_next_revision(
    measured: OneCluster,
) -> None:
    measured.adopt("t", [0, 1], demand={DISK: 10})
    before = measured.kept()
    for demand in ({DISK: 10}, None):
        [(_, status, _, _)] = statuses(measured.adopt("t", [0, 1], demand=demand))
        assert status is Status.ADOPTED
    assert measured.kept() == before
    changed = the_map(measured.adopt("t", [0, 1], demand={DISK: 20}))
    assert (changed.revision, used(measured)) == (2, [20, 20, 0])
    empty = the_map(measured.adopt("t", [0, 1], demand={DISK: 0}))
    assert (empty.revision, empty.need, used(measured)) == (3, None, [0, 0, 0])


def test_what_needs_less_makes_room_for_what_waits(measured: OneCluster) -> None:
    measured.adopt("t", [0, 1, 2], demand={DISK: 90})
    measured.wait("u", 1, 3, demand={DISK: 50})
    assert "u" in measured.state.waiting
    measured.adopt("t", [0, 1, 2], demand={DISK: 50})
    assert measured.lists("u") != []


# What it breaks of its own rules.


@pytest.mark.parametrize(
    ("rules", "lists", "said"),
    [
        (Constraints(require=("tier=ssd",)), [[0, 2], [0, 1]], "require[0] 'tier=ssd' (1 list)"),
        (Constraints(forbid=("tier=hdd",)), [[2, 3], [3, 0]], "forbid[0] 'tier=hdd' (2 lists)"),
        (
            Constraints(spread=(SpreadLevel("tier", max=1),)),
            [[0, 1], [2, 0]],
            "spread[0] 'tier' max 1 (1 list)",
        ),
        (Constraints(apart_from=("u",)), [[1, 0], [0, 3]], "apart_from[0] 'u' (1 list)"),
        (Constraints(require=("tier=ssd",)), [[0, 1]], None),
    ],
)
def test_lists_that_break_the_topics_own_rules_are_adopted_and_said_to(
    rules: Constraints, lists: list[list[int]], said: str | None
) -> None:
    """They are facts; the topic's rules are known from before."""
    life = OneCluster()
    for spu_id, tier in enumerate(("ssd", "ssd", "hdd", "hdd")):
        life.join(spu_id, labels={"tier": tier})
    life.adopt("u", [1])
    life.adopt("t", [0, 2], rules=rules)
    found: list[Answer] = [*life.adopt("t", *lists), *life.adopt("t", *lists, pinned=True)]
    messages = [
        each.message
        for each in found
        if isinstance(each, TopicStatus) and each.status is Status.VIOLATED
    ]
    broken = f"lists break {said}; they stay as they are"
    assert messages == ([broken] * 2 if said else [])
    assert life.lists("t") == lists


@pytest.mark.parametrize(
    ("row", "offline", "racks", "factor", "left"),
    [
        ([3, 1, 2], [3], "", 2, [1, 2]),  # a leader that is offline serves nothing
        ([0, 1, 2], [0, 2], "", 2, [1, 2]),
        ([0, 1, 2], [0, 2], "", 1, [1]),
        ([2, 0, 3, 1], [0, 1, 2, 3], "", 1, [2]),
        ([0, 1, 2, 3, 4], [], "aabbb", 4, [0, 1, 3, 4]),  # the rack with the most gives
        ([4, 0, 1, 2, 3], [], "abbab", 3, [4, 2, 3]),
        ([0], [], "aab", 2, [0, 2]),  # and the one with the fewest takes
    ],
)
def test_what_goes_and_what_comes(
    row: list[int], offline: list[int], racks: str, factor: int, left: list[int]
) -> None:
    """The documented order: leaving, offline, racks, the fullest; the leader while it is online."""
    life = OneCluster.on_racks(racks or "aaaa", row)
    for spu_id in offline:
        life.leave(spu_id)
    life.apply(life.build.replication("t", factor))
    assert life.lists("t") == [left]
