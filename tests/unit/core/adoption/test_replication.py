"""`TopicReplication`: the lists of a living topic get another length; kept replicas keep order."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Mode, Status
from support.events.builders import Events
from support.events.one_cluster import OneCluster, statuses, the_map, the_status


def test_a_higher_factor_appends_to_each_list() -> None:
    """The least used SPU first, counted replica by replica, then the lowest id."""
    life = OneCluster(*Events().joins(0, 1, 2, 3))
    life.adopt("t", [0, 1], [1, 0], [2, 0])
    answers = life.apply(life.build.replication("t", 3, event_id="r"))
    changed = the_map(answers)
    assert life.lists("t") == [[0, 1, 3], [1, 0, 2], [2, 0, 3]]
    assert (changed.revision, changed.replication_factor, changed.cause) == (2, 3, "r")
    assert changed.reason is not None
    assert changed.reason.mode is Mode.REPLICATION
    assert [(move.partition, move.gone, move.taken) for move in changed.reason.moves] == [
        (0, None, 3),
        (1, None, 2),
        (2, None, 3),
    ]
    assert statuses(answers) == [("t", Status.ASSIGNED, None, "r")]


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
    life = OneCluster()
    for spu_id, rack in enumerate(racks or "aaaa"):
        life.join(spu_id, rack=rack)
    life.adopt("t", row)
    for spu_id in offline:
        life.leave(spu_id)
    life.apply(life.build.replication("t", factor))
    assert life.lists("t") == [left]


@pytest.mark.parametrize(
    ("topic", "factor", "code"),
    [
        ("t", 5, Code.INSUFFICIENT_SPUS),
        ("t", 4, Code.INSUFFICIENT_CAPACITY),
        ("t", 0, Code.INVALID_REPLICATION_FACTOR),
        ("t", 33, Code.INVALID_REPLICATION_FACTOR),
        ("none", 2, Code.TOPIC_UNKNOWN),
        ("hand", 2, Code.MANUAL_TOPIC),
    ],
)
def test_a_factor_that_cannot_be_met_changes_nothing(topic: str, factor: int, code: Code) -> None:
    life = OneCluster(*Events().joins(0, 1, 2, 3, capacity=2))
    life.adopt("t", [0, 1], [2])
    life.adopt("hand", [3], [3], policy=Policy.MANUAL)
    before = life.kept()
    answer = the_status(life.apply(life.build.replication(topic, factor)))
    assert (answer.status, answer.code) == (Status.REJECTED, code)
    assert life.kept() == before
