"""The oracle on what follows a change, pinned by hand to the contract's own words."""

from __future__ import annotations

from typing import Any

import pytest
from support.model.conversation import Conversation, by_hand, changes, maps, statuses


def test_a_decommission_moves_exactly_what_the_leaving_spu_holds() -> None:
    """A lost leader is succeeded by the next replica, the replacement goes to the end."""
    talk = Conversation()
    talk.join(0, 1, 2, 3)
    talk.create("t", 4, 2)  # [0, 1] [1, 2] [2, 3] [3, 0]
    lines = talk.decommission(1)
    # SPU 0 and 3 hold 2, SPU 2 holds 2: ties go to the lowest id that is not in the list.
    assert maps(lines) == [("t", 2, [[0, 2], [2, 0], [2, 3], [3, 0]], "e6")]
    assert (statuses(lines), changes(lines)) == ([], [(1, "left", 3)])
    assert 1 not in talk.oracle.clusters["c1"].spus


def test_a_replacement_keeps_racks_distinct_before_it_evens_the_load() -> None:
    """Unless the leaving SPU shared its rack with a survivor."""
    talk = Conversation()
    for spu_id, rack in enumerate("aabb"):
        talk.join(spu_id, rack=rack, capacity=100)
    talk.join(4, rack="c", capacity=10)
    talk.manual("filler", [4])
    talk.manual("apart", [2, 0])
    talk.manual("together", [0, 1])
    # For `apart` rack b is taken; SPU 1 (rack a, share 1/100) is less used than SPU 4 (1/10).
    # For `together` rack a was there twice, so any will do: SPU 3 holds nothing.
    assert maps(talk.decommission(0)) == [
        ("apart", 2, [[2, 1]], "e9"),
        ("together", 2, [[1, 3]], "e9"),
    ]


def test_without_anybody_to_take_it_a_list_is_short_until_the_ring_grows() -> None:
    """The answer comes when the topic is whole, in the name of the leave."""
    talk = Conversation()
    talk.join(0, 1)
    talk.create("t", 2, 2)  # [0, 1] [1, 0]
    lines = talk.decommission(0)
    assert maps(lines) == [("t", 2, [[1], [1]], "e4")]
    assert statuses(lines) == [("t", "waiting", "INSUFFICIENT_SPUS", "e4")]
    assert 0 not in talk.oracle.clusters["c1"].spus
    lines = talk.join(2, capacity=1)
    assert maps(lines) == [("t", 3, [[1, 2], [1]], "e4")]
    assert statuses(lines) == []
    assert changes(lines) == [(2, "joined", 1), (2, "saturated", 1)]
    lines = talk.join(3)
    assert maps(lines) == [("t", 4, [[1, 2], [1, 3]], "e4")]
    assert statuses(lines) == [("t", "assigned", None, "e4")]


def test_a_shortage_of_slots_differs_from_one_of_spus() -> None:
    """A saturated SPU would do if it had room; a raised capacity gives it."""
    talk = Conversation()
    talk.join(0, 1)
    talk.join(2, capacity=0)
    talk.create("t", 1, 2)
    lines = talk.decommission(1)
    assert statuses(lines) == [("t", "waiting", "INSUFFICIENT_CAPACITY", "e5")]
    lines = talk.join(2, capacity=1)
    assert maps(lines) == [("t", 3, [[0, 2]], "e5")]
    assert changes(lines) == [
        (2, "updated", 1),
        (2, "restored", 1),
        (2, "saturated", 1),
    ]


def test_the_last_replica_stays_on_the_leaving_spu_until_it_is_replaced() -> None:
    """Then the survivor leads, since it has the data, though it is offline; and the SPU is
    forgotten."""
    talk = Conversation()
    talk.join(0, 1)
    talk.create("t", 1, 2)
    talk.offline(1)
    lines = talk.decommission(0)
    assert (maps(lines), statuses(lines)) == (
        [],
        [("t", "waiting", "INSUFFICIENT_SPUS", "e5")],
    )
    lines = talk.join(2)
    assert maps(lines) == [("t", 2, [[1, 2]], "e5")]
    assert sorted(talk.oracle.clusters["c1"].spus) == [1, 2]


def test_a_survivor_that_comes_back_lets_the_leaving_spu_go() -> None:
    """The list is short then, and still waits."""
    talk = Conversation()
    talk.join(0, 1)
    talk.create("t", 1, 2)
    talk.offline(1)
    talk.decommission(0)
    lines = talk.join(1)
    assert (maps(lines), statuses(lines)) == ([("t", 2, [[1]], "e5")], [])
    assert sorted(talk.oracle.clusters["c1"].spus) == [1]


def test_a_join_cancels_a_decommission() -> None:
    """Nothing had moved: the topic is whole as it was, and says so."""
    talk = Conversation()
    talk.join(0)
    talk.create("t")
    talk.decommission(0)
    assert talk.refuse("u", replicas=by_hand([0])) == "MANUAL_SPU_LEAVING"
    lines = talk.join(0)
    assert maps(lines) == []
    assert statuses(lines) == [("t", "assigned", None, "e3")]
    assert changes(lines) == [(0, "joined", 1)]
    assert not talk.oracle.clusters["c1"].repairs


def test_counts_are_up_to_date_replica_by_replica() -> None:
    """SPU 1 takes one and is full; the next list of the same topic goes to SPU 2."""
    talk = Conversation()
    talk.join(0)
    talk.create("t", 2)
    talk.join(1, 2, capacity=1)
    lines = talk.decommission(0)
    assert maps(lines) == [("t", 2, [[1], [2]], "e5")]
    assert changes(lines) == [(0, "left", 0), (1, "saturated", 0), (2, "saturated", 0)]


def test_cores_move_along_and_the_replacement_takes_the_least_loaded() -> None:
    """Cores of untouched replicas stay as they were recorded."""
    talk = Conversation("redpanda")
    talk.join(0, 1, 2, cores=2)
    first = talk.create("t", 2, 2)
    assert (first["replicas"], first["cores"]) == ([[0, 1], [2, 0]], [[1, 1], [1, 1]])
    (second,) = [line for line in talk.decommission(0) if line["type"] == "replica_map"]
    assert (second["replicas"], second["cores"]) == ([[1, 2], [2, 1]], [[1, 1], [1, 1]])
    spus = talk.oracle.clusters["c1"].spus
    assert [spus[1].weights, spus[2].weights] == [[2, 2], [2, 2]]


def test_the_chain_stays_with_its_spu_when_a_repair_fills_it() -> None:
    """SPU 1 was to lead next; filled by the repair, it is followed by SPU 2."""
    talk = Conversation()
    talk.join(0, 1, 2, 3, capacity=1)
    talk.create("t")
    assert maps(talk.decommission(0)) == [("t", 2, [[1]], "e6")]
    assert talk.create("u", 2)["replicas"] == [[2], [3]]


def test_a_create_that_waits_is_served_when_the_ring_grows() -> None:
    """It reserves its name; its answer comes in its own name, with revision 1."""
    talk = Conversation()
    talk.join(0)
    wait = {"topic": "t", "replication_factor": 2, "on_shortage": "wait"}
    lines = talk.say("topic_create", **wait)
    assert statuses(lines) == [("t", "waiting", "INSUFFICIENT_SPUS", "e2")]
    assert talk.refuse("t") == "TOPIC_EXISTS"
    assert talk.say("topic_grow", topic="t", partitions=2)[0]["code"] == "TOPIC_UNKNOWN"
    lines = talk.join(1)
    assert maps(lines) == [("t", 1, [[0, 1]], "e2")]
    assert statuses(lines) == [("t", "assigned", None, "e2")]


def test_a_create_that_waits_is_withdrawn_by_a_delete() -> None:
    """No map: there was none."""
    talk = Conversation()
    talk.say("topic_create", topic="t", on_shortage="wait")
    lines = talk.say("topic_delete", topic="t")
    assert (maps(lines), statuses(lines)) == ([], [("t", "deleted", None, "e2")])
    assert maps(talk.join(0)) == []
    talk.create("t")


def test_one_that_does_not_fit_blocks_none_behind_it() -> None:
    """Oldest first; short lists before all creates."""
    talk = Conversation()
    talk.join(0, capacity=1)
    talk.join(1, capacity=9)
    talk.create("short", 1, 2)
    for topic, partitions in (("large", 9), ("small", 1)):
        fields = {"partitions": partitions, "replication_factor": 2, "on_shortage": "wait"}
        talk.say("topic_create", topic=topic, **fields)
    talk.decommission(0)
    lines = talk.join(2, capacity=3)
    assert maps(lines) == [("short", 3, [[1, 2]], "e6"), ("small", 1, [[1, 2]], "e5")]
    assert [status[0] for status in statuses(lines)] == ["short", "small"]
    assert list(talk.oracle.clusters["c1"].creates) == ["large"]


def test_a_late_copy_of_what_waits_changes_nothing() -> None:
    """Also when the memory of the cluster has long forgotten it."""
    talk = Conversation()
    create = {"type": "topic_create", "event_id": "c", "cluster_id": "c1", "topic": "t"}
    create["on_shortage"] = "wait"
    assert statuses(talk.oracle.apply(create)) == [("t", "waiting", "INSUFFICIENT_SPUS", "c")]
    for _ in range(256):
        talk.say("topic_delete", topic="u")
    assert talk.oracle.apply(create) == []


def test_a_topic_grows_from_the_chain_index_on() -> None:
    """Old partitions stay; ignore_rack is that of the create."""
    talk = Conversation()
    for spu_id, rack in enumerate("aab"):
        talk.join(spu_id, rack=rack)
    assert talk.create("t", 2, 2, ignore_rack=True)["replicas"] == [[0, 1], [1, 2]]
    talk.create("u", 1, 2, ignore_rack=True)  # index 2
    lines = talk.say("topic_grow", topic="t", partitions=4)
    # Index 3 and 4 of three SPUs: the gap is 1.
    assert maps(lines) == [("t", 2, [[0, 1], [1, 2], [0, 2], [1, 0]], "e6")]
    assert (lines[0]["chain_index"], statuses(lines)) == (5, [("t", "assigned", None, "e6")])


@pytest.mark.parametrize(
    ("topic", "partitions", "code"),
    [
        ("unknown", 5, "TOPIC_UNKNOWN"),
        ("hand", 5, "MANUAL_TOPIC"),
        ("t", 2, "INVALID_PARTITIONS"),
        ("t", 100_001, "INVALID_PARTITIONS"),
        ("t", 9, "INSUFFICIENT_CAPACITY"),
    ],
)
def test_a_grow_that_cannot_be_met_is_refused_whole(topic: str, partitions: int, code: str) -> None:
    """The topic stays as it was, and the next grow goes on from the same index."""
    talk = Conversation()
    talk.join(0, 1, capacity=3)
    talk.manual("hand", [1])
    talk.create("t", 2)
    (line,) = talk.say("topic_grow", topic=topic, partitions=partitions)
    assert (line["status"], line["code"]) == ("rejected", code)
    assert maps(talk.say("topic_grow", topic="t", partitions=3))[0][2] == [[0], [1], [0]]


def test_the_last_grows_of_a_living_topic_are_remembered() -> None:
    """The create and fifteen grows; an older grow is no news either, but answered."""
    talk = Conversation()
    talk.join(0)
    talk.create("t")
    grows: list[dict[str, Any]] = [
        {"type": "topic_grow", "event_id": f"g{number}", "cluster_id": "c1", "topic": "t"}
        | {"partitions": number}
        for number in range(2, 18)
    ]
    for grow in grows:
        assert maps(talk.oracle.apply(grow)) != []
    for _ in range(256):
        talk.say("topic_delete", topic="u")
    assert [bool(talk.oracle.apply(grow)) for grow in grows] == [True] + [False] * 15


def test_a_delete_of_a_topic_that_waits_for_repair_ends_the_wait() -> None:
    """And lets the leaving SPU go."""
    talk = Conversation()
    talk.join(0)
    talk.create("t")
    talk.decommission(0)
    lines = talk.say("topic_delete", topic="t")
    assert (maps(lines), statuses(lines)) == (
        [("t", 2, None, "e4")],
        [("t", "deleted", None, "e4")],
    )
    assert "c1" not in talk.oracle.clusters  # No SPU is left: it is forgotten.


def test_slots_that_a_delete_frees_serve_what_waits() -> None:
    """One event: its own answer first; ring events by id, then as they came."""
    talk = Conversation()
    talk.join(0, capacity=1)
    talk.create("old")
    talk.say("topic_create", topic="new", on_shortage="wait")
    lines = talk.say("topic_delete", topic="old")
    assert maps(lines) == [("new", 1, [[0]], "e3"), ("old", 2, None, "e4")]
    assert statuses(lines) == [("old", "deleted", None, "e4"), ("new", "assigned", None, "e3")]
    assert changes(lines) == [(0, "restored", 0), (0, "saturated", 0)]


def test_a_rebalance_of_an_empty_cluster_moves_nothing() -> None:
    """And one of fewer than no moves is refused."""
    talk = Conversation()
    (line,) = talk.say("cluster_rebalance", max_moves=5)
    assert (line["topic"], line["status"], line["moves"]) == ("", "assigned", 0)
    (line,) = talk.say("cluster_rebalance", max_moves=-1)
    assert (line["status"], line["code"]) == ("rejected", "INVALID_MAX_MOVES")
