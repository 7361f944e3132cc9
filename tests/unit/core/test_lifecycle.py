"""The later life of a cluster: what a change makes follow, event by event."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy, SpuId
from spu_assigner.core.base.limits import WAITING_MAX
from spu_assigner.core.base.records import Mode, Move, ReplicaMap, RingChange, Status, TopicStatus
from support.events.builders import Events
from support.events.one_cluster import Answer, OneCluster, ring_changes
from support.model.pictures import picture

GONE = LeaveMode.DECOMMISSION


def maps(answers: list[Answer]) -> dict[str, list[list[int]] | None]:
    return {
        each.topic: None if each.replicas is None else each.replicas.tolist()
        for each in answers
        if isinstance(each, ReplicaMap)
    }


def the_map(answers: list[Answer]) -> ReplicaMap:
    [found] = [each for each in answers if isinstance(each, ReplicaMap)]
    return found


def the_lists(answers: list[Answer]) -> list[list[int]]:
    replicas = the_map(answers).replicas
    assert replicas is not None
    return replicas.tolist()


def statuses(answers: list[Answer]) -> list[tuple[str, Status, Code | None]]:
    return [
        (each.topic, each.status, each.code) for each in answers if isinstance(each, TopicStatus)
    ]


# Leaving.


def test_a_decommission_moves_the_replicas_of_the_leaving_spu_and_no_other() -> None:
    """Every other place in every list stays as it was."""
    life = OneCluster(*Events().joins(0, 1, 2, 3))
    life.create("a", 4, 3)  # 012 123 230 301
    answers = life.leave(1, GONE)
    assert maps(answers) == {"a": [[0, 2, 3], [2, 3, 0], [2, 3, 0], [3, 0, 2]]}
    assert the_map(answers).revision == 2
    assert the_map(answers).cause == "e1001"
    reason = the_map(answers).reason
    assert reason is not None
    assert (reason.mode, reason.moves) == (
        Mode.REPAIR,
        (
            Move(partition=0, gone=1, taken=3),
            Move(partition=1, gone=1, taken=0),
            Move(partition=3, gone=1, taken=2),
        ),
    )
    assert statuses(answers) == []
    assert ring_changes(answers) == [(1, RingChange.LEFT, 3)]
    assert SpuId(1) not in life.state.spus


def test_topics_that_the_leaving_spu_does_not_hold_are_not_reported() -> None:
    """Only what changed is emitted."""
    life = OneCluster(*Events().joins(0, 1, 2))
    life.apply(life.build.manual("with", [0, 1]))
    life.apply(life.build.manual("without", [1, 2]))
    assert maps(life.leave(0, GONE)) == {"with": [[1, 2]]}


def test_a_lost_leader_is_succeeded_by_the_first_online_replica() -> None:
    """An offline replica cannot lead, and a new one has no data yet."""
    life = OneCluster(*Events().joins(0, 1, 2, 3))
    life.apply(life.build.manual("a", [0, 1, 2]))
    life.leave(1)
    assert maps(life.leave(0, GONE)) == {"a": [[2, 1, 3]]}


def test_a_survivor_that_is_offline_keeps_its_place_before_a_replacement_without_data() -> None:
    """What is there once it is back is its data; the replacement has nothing to serve."""
    life = OneCluster(*Events().joins(1, 3, 4))
    life.apply(life.build.manual("a", [4, 3]))
    life.apply(life.build.manual("b", [3, 4]))
    life.leave(4)
    assert maps(life.leave(3, GONE)) == {"a": [[4, 1]], "b": [[4, 1]]}


def test_the_only_copy_stays_on_an_spu_that_is_offline() -> None:
    """There is nothing to copy it from; once the SPU is back, its decommission moves it."""
    life = OneCluster(*Events().joins(1, 3))
    life.apply(life.build.manual("a", [3]))
    life.apply(life.build.manual("b", [3, 1]))
    life.leave(3)
    answers = life.leave(3, GONE)
    assert "a" not in maps(answers)
    [waiting] = [each for each in answers if isinstance(each, TopicStatus) and each.topic == "a"]
    assert (waiting.status, waiting.code) == (Status.WAITING, Code.SOURCE_OFFLINE)
    assert "1 list has its only copy on SPU 3" in (waiting.message or "")
    assert "a" not in maps(life.join(2))
    life.join(3)
    assert "a" not in life.state.waiting
    assert maps(life.leave(3, GONE))["a"] in ([[1]], [[2]])


def test_an_spu_that_fails_while_it_leaves_keeps_what_could_not_move_yet() -> None:
    """Nobody had room for it while it could be copied."""
    life = OneCluster(*Events().joins(1, 3))
    life.apply(life.build.manual("a", [3]))
    life.apply(life.build.cordon(1))
    life.leave(3, GONE)
    life.leave(3)
    assert maps(life.apply(life.build.uncordon(1))) == {}
    assert life.state.topics["a"].replicas.lists().tolist() == [[3]]


def test_a_replacement_keeps_distinct_racks_distinct() -> None:
    """Rack b is the only one without a replica, though SPU 3 on rack a is empty."""
    life = OneCluster(
        *Events().racks({"a": [0, 3], "b": [1, 4], "c": [2]}),
    )
    life.apply(life.build.manual("load", [4]))
    life.apply(life.build.manual("a", [0, 1, 2]))
    assert maps(life.leave(1, GONE)) == {"a": [[0, 2, 4]]}


def test_a_replacement_goes_to_any_rack_where_no_free_rack_is_left() -> None:
    """Two racks cannot hold three distinct ones; a replica less would be worse."""
    life = OneCluster(*Events().racks({"a": [0, 3], "b": [1], "c": [2]}))
    life.apply(life.build.manual("a", [0, 1, 2]))
    assert maps(life.leave(2, GONE)) == {"a": [[0, 1, 3]]}


def test_a_replacement_goes_to_the_lowest_share_of_capacity_then_id() -> None:
    """1 of 10 is more than 1 of 20, whatever the ids; equal shares go to the lowest id."""
    life = OneCluster()
    life.join(0)
    life.join(1, capacity=10)
    life.join(2, 3, capacity=20)
    for spu_id in (1, 2, 3):
        life.apply(life.build.manual(f"load{spu_id}", [spu_id]))
    life.apply(life.build.manual("a", [0]))
    assert maps(life.leave(0, GONE)) == {"a": [[2]]}


def test_a_moved_replica_of_redpanda_takes_the_least_loaded_core() -> None:
    """Its core on the new SPU is chosen there; the others keep theirs."""
    life = OneCluster()
    life.join(0, 1, cores=2)
    life.create("a", 2, 2, policy=Policy.REDPANDA)
    life.join(2, cores=2)
    answers = the_map(life.leave(0, GONE))
    assert answers.replicas is not None
    assert answers.cores is not None
    assert answers.replicas.tolist() == [[1, 2], [1, 2]]
    assert answers.cores.tolist() == [[1, 1], [1, 1]]
    weights = {spu_id: spu.core_weights for spu_id, spu in life.state.spus.items()}
    assert weights == {1: (2, 2), 2: (2, 2)}


def test_a_list_without_a_replacement_stays_short_and_waits() -> None:
    """The status says so; when an SPU comes the list is filled, for the cause that asked."""
    life = OneCluster(*Events().joins(0, 1, 2))
    life.create("a", 2, 3)
    answers = life.leave(2, GONE)
    assert maps(answers) == {"a": [[0, 1], [1, 0]]}
    assert statuses(answers) == [("a", Status.WAITING, Code.INSUFFICIENT_SPUS)]
    assert SpuId(2) not in life.state.spus
    filled = life.join(7)
    assert maps(filled) == {"a": [[0, 1, 7], [1, 0, 7]]}
    assert (the_map(filled).revision, the_map(filled).cause) == (3, the_map(answers).cause)
    assert statuses(filled) == [("a", Status.ASSIGNED, None)]
    assert not life.state.waiting


def test_the_last_replica_stays_on_the_leaving_spu_until_it_is_replaced() -> None:
    """Dropping it would drop the data. The SPU is forgotten once it holds nothing."""
    life = OneCluster(*Events().joins(0))
    life.create("a", 1, 1)
    answers = life.leave(0, GONE)
    assert maps(answers) == {}
    assert statuses(answers) == [("a", Status.WAITING, Code.INSUFFICIENT_SPUS)]
    assert life.state.spus[SpuId(0)].leaving
    assert maps(life.join(5)) == {"a": [[5]]}
    assert list(life.state.spus) == [5]


def test_a_leaving_spu_is_kept_where_all_others_are_offline() -> None:
    """Nobody else could serve the partition."""
    life = OneCluster(*Events().joins(0, 1))
    life.create("a", 1, 2)
    life.leave(1)
    answers = life.leave(0, GONE)
    assert maps(answers) == {}
    assert statuses(answers) == [("a", Status.WAITING, Code.INSUFFICIENT_SPUS)]
    assert life.lists("a") == [[0, 1]]


def test_a_join_in_the_middle_of_a_repair_ends_the_leaving() -> None:
    """What it still holds stays; short lists may take it back."""
    life = OneCluster(*Events().joins(0, 1))
    life.create("two", 1, 2)
    life.create("one", 1, 1)  # on SPU 1
    assert life.lists("one") == [[1]]
    life.leave(1, GONE)
    assert (life.lists("two"), life.lists("one")) == ([[0]], [[0]])
    life.join(1)
    assert (life.lists("two"), life.lists("one")) == ([[0, 1]], [[0]])
    life.leave(0, GONE)
    life.leave(1, GONE)
    assert life.state.leaving == {1}
    answers = life.join(1)
    assert ring_changes(answers) == [(1, RingChange.JOINED, 1)]
    assert statuses(answers) == [("one", Status.ASSIGNED, None)]
    assert list(life.state.waiting) == ["two"]


def test_a_return_without_a_free_slot_ends_the_wait_for_a_replacement() -> None:
    """The list is whole then, though the ring is as empty as before (seed 156)."""
    life = OneCluster(*Events().joins(3))
    life.create("a", 3, 1)
    life.leave(3, GONE)
    answers = life.join(3, capacity=1)
    assert statuses(answers) == [("a", Status.ASSIGNED, None)]
    assert not life.state.waiting


def test_an_spu_that_fills_up_in_a_repair_leaves_the_ring_at_that_replica() -> None:
    """Capacity holds for repairs too, and the ring's log says so."""
    life = OneCluster(*Events().joins(0))
    life.join(1, capacity=1)
    life.join(2, capacity=3)
    life.apply(life.build.manual("a", [0], [0]))
    life.apply(life.build.manual("load", [2], [2]))
    answers = life.leave(0, GONE)
    assert maps(answers) == {"a": [[1], [2]]}
    assert ring_changes(answers) == [
        (0, RingChange.LEFT, 0),
        (1, RingChange.SATURATED, 0),
        (2, RingChange.SATURATED, 0),
    ]


def test_a_leaving_spu_takes_no_manual_map() -> None:
    """It is to become empty."""
    life = OneCluster(*Events().joins(0))
    life.create("a", 1, 1)
    life.leave(0, GONE)
    answers = life.apply(life.build.manual("b", [0]))
    assert statuses(answers) == [("b", Status.REJECTED, Code.MANUAL_SPU_LEAVING)]


def test_an_spu_that_holds_nothing_is_forgotten_at_once() -> None:
    """And its id can come back as a new SPU."""
    life = OneCluster(*Events().joins(0, 1))
    assert ring_changes(life.leave(1, GONE)) == [(1, RingChange.LEFT, 1)]
    assert list(life.state.spus) == [0]
    assert statuses(life.leave(1, GONE)) == []
    assert ring_changes(life.join(1)) == [(1, RingChange.JOINED, 2)]


def test_an_offline_spu_keeps_its_replicas() -> None:
    """They are counted; only DECOMMISSION moves them."""
    life = OneCluster(*Events().joins(0, 1))
    life.create("a", 1, 2)
    assert maps(life.leave(1)) == {}
    assert life.lists("a") == [[0, 1]]
    assert life.state.ledger.count(1) == 1


# Capacity.


def test_a_capacity_below_the_count_saturates_and_breaks_nothing() -> None:
    """What is there stays, nothing new comes."""
    life = OneCluster(*Events().joins(0, 1))
    life.create("a", 4, 2)
    assert ring_changes(life.join(1, capacity=2)) == [
        (1, RingChange.UPDATED, 1),
        (1, RingChange.SATURATED, 1),
    ]
    answers = life.create("b", 1, 2)
    assert statuses(answers) == [("b", Status.REJECTED, Code.INSUFFICIENT_CAPACITY)]
    assert ring_changes(life.join(1, capacity=5)) == [
        (1, RingChange.UPDATED, 2),
        (1, RingChange.RESTORED, 2),
    ]
    assert statuses(life.create("b", 1, 2)) == [("b", Status.ASSIGNED, None)]


# Waiting.


def test_a_create_that_waits_is_served_when_the_ring_has_grown() -> None:
    """Its cause is the create, its answers come with the join."""
    life = OneCluster(*Events().joins(0))
    answers = life.wait("a", 2, 2, policy=Policy.KAFKA)
    assert statuses(answers) == [("a", Status.WAITING, Code.INSUFFICIENT_SPUS)]
    served = life.join(1)
    assert maps(served) == {"a": [[0, 1], [1, 0]]}
    assert (the_map(served).policy, the_map(served).revision) == (Policy.KAFKA, 1)
    assert the_map(served).cause == "e1000"
    assert statuses(served) == [("a", Status.ASSIGNED, None)]
    assert ring_changes(served) == [(1, RingChange.JOINED, 2)]


def test_one_that_does_not_fit_blocks_none_behind_it() -> None:
    """The oldest first, each one tried."""
    life = OneCluster(*Events().joins(0))
    life.wait("large", 1, 3)
    life.wait("small", 1, 2)
    assert list(maps(life.join(1))) == ["small"]
    assert list(maps(life.join(2))) == ["large"]


def test_waiting_creates_are_served_when_slots_free() -> None:
    """A delete frees slots; the SPUs come back and are full again within one event."""
    life = OneCluster()
    life.join(0, 1, capacity=1)
    life.create("a", 1, 2)
    life.wait("b", 1, 2)
    answers = life.apply(life.build.delete("a"))
    assert maps(answers) == {"a": None, "b": [[0, 1]]}
    assert statuses(answers) == [("a", Status.DELETED, None), ("b", Status.ASSIGNED, None)]
    assert ring_changes(answers) == [
        (0, RingChange.RESTORED, 0),
        (0, RingChange.SATURATED, 0),
        (1, RingChange.RESTORED, 0),
        (1, RingChange.SATURATED, 0),
    ]


def test_waiting_creates_are_served_when_a_capacity_is_raised() -> None:
    """The ring has the same members then, but more slots."""
    life = OneCluster()
    life.join(0, capacity=2)
    life.wait("a", 3, 1)
    assert statuses(life.join(0, capacity=3)) == [("a", Status.ASSIGNED, None)]


def test_short_lists_come_before_waiting_creates() -> None:
    """Data that is there and in danger comes before data that is still to come."""
    life = OneCluster()
    life.join(0, 1, capacity=2)
    life.create("a", 1, 2)
    life.leave(1, GONE)
    life.wait("b", 1, 2)
    answers = life.join(2, capacity=1)
    assert maps(answers) == {"a": [[0, 2]]}
    assert list(life.state.waiting) == ["b"]


def test_a_delete_withdraws_a_waiting_create() -> None:
    """There was no map, so there is no tombstone."""
    life = OneCluster(*Events().joins(0))
    life.wait("a", 1, 2)
    answers = life.apply(life.build.delete("a"))
    assert (maps(answers), statuses(answers)) == ({}, [("a", Status.DELETED, None)])
    assert maps(life.join(1)) == {}


def test_a_waiting_create_holds_its_name() -> None:
    """Another create of it would have to be undone later."""
    life = OneCluster(*Events().joins(0))
    life.wait("a", 1, 2)
    assert statuses(life.create("a", 1, 1)) == [("a", Status.REJECTED, Code.TOPIC_EXISTS)]
    grown = life.apply(life.build.grow("a", 5))
    assert statuses(grown) == [("a", Status.REJECTED, Code.TOPIC_UNKNOWN)]


def test_only_a_shortage_is_waited_for() -> None:
    """Racks do not become complete by waiting, and a check is answered at once."""
    life = OneCluster()
    life.join(0, rack="a")
    life.join(1)
    assert statuses(life.wait("a", 1, 2)) == [("a", Status.REJECTED, Code.RACKS_INCOMPLETE)]
    answers = life.wait("b", 1, 3, validate_only=True, ignore_rack=True)
    assert statuses(answers) == [("b", Status.REJECTED, Code.INSUFFICIENT_SPUS)]
    assert not life.state.waiting


def test_a_late_copy_of_a_waiting_create_changes_nothing() -> None:
    """Also when the cluster has seen more events since than it remembers."""
    life = OneCluster(*Events().joins(0))
    create = life.build.create("a", 1, 2, on_shortage=OnShortage.WAIT)
    life.apply(create)
    for _ in range(300):
        life.leave(9)
    before = picture(life.state)
    assert life.apply(create) == []
    assert picture(life.state) == before


def test_no_more_creates_wait_than_the_limit() -> None:
    """The one after is refused, and nothing is lost of those before."""
    life = OneCluster()
    for number in range(WAITING_MAX):
        life.wait(f"t{number}", 1, 1)
    answers = life.wait("one-more", 1, 1)
    assert statuses(answers) == [("one-more", Status.REJECTED, Code.TOO_MANY_WAITING)]
    assert len(life.join(0)) == 2 * 6998 + 2  # maps, statuses; joined, saturated
    assert len(life.state.waiting) == WAITING_MAX - 6998


@given(order=st.permutations(range(12)), copies=st.lists(st.integers(0, 11), max_size=6))
@settings(deadline=None)
def test_in_any_interleaving_with_joins_each_create_is_granted_once(
    order: list[int], copies: list[int]
) -> None:
    """Creates that wait, joins, and copies of both, in any order: at the end nothing is open."""
    build = Events()
    events: list[Event] = [*build.joins(0, 1, 2, 3)]
    policies = [Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA, Policy.BALANCED] * 2
    for number, policy in enumerate(policies):
        events.append(build.create(f"t{number}", 2, 3, policy=policy, on_shortage=OnShortage.WAIT))
    life = OneCluster()
    answers = [each for index in [*order, *copies] for each in life.apply(events[index])]
    granted = [each.topic for each in answers if isinstance(each, ReplicaMap)]
    assert sorted(granted) == [f"t{number}" for number in range(8)]
    assert [status for _, status, _ in statuses(answers)].count(Status.ASSIGNED) == 8
    assert not life.state.waiting
    assert sum(life.state.ledger.count(spu_id) for spu_id in range(4)) == 8 * 2 * 3


# Growing.


def test_a_topic_grows_from_the_chain_index_and_keeps_its_partitions() -> None:
    """As if it had been created larger, if nobody came between."""
    life = OneCluster(*Events().joins(0, 1, 2, 3, 4))
    life.create("a", 9, 3)
    answers = life.apply(life.build.grow("a", 11))
    assert the_map(answers).replicas is not None
    assert maps(answers)["a"][9:] == [[4, 1, 2], [0, 3, 4]]  # type: ignore[index]
    assert (the_map(answers).revision, the_map(answers).chain_index) == (2, 11)
    assert statuses(answers) == [("a", Status.ASSIGNED, None)]
    reason = the_map(answers).reason
    assert reason is not None
    assert (reason.first_partition, reason.start_index) == (9, 9)


def test_a_topic_that_ignored_racks_ignores_them_when_it_grows() -> None:
    """The new partitions follow the rule of the old ones."""
    life = OneCluster(*Events().racks({"a": [0, 1], "b": [2, 3]}))
    life.create("a", 1, 2, ignore_rack=True)
    assert maps(life.apply(life.build.grow("a", 2))) == {"a": [[0, 1], [1, 2]]}


@pytest.mark.parametrize("partitions", [-1, 0, 1, 2, 100_001])
def test_a_topic_does_not_shrink_or_outgrow_the_limit(partitions: int) -> None:
    """The answer names what would be legal."""
    life = OneCluster(*Events().joins(0))
    life.create("a", 2, 1)
    answers = life.apply(life.build.grow("a", partitions))
    assert statuses(answers) == [("a", Status.REJECTED, Code.INVALID_PARTITIONS)]


def test_a_manual_topic_and_an_unknown_one_do_not_grow() -> None:
    """There is no rule to grow them by."""
    life = OneCluster(*Events().joins(0))
    life.apply(life.build.manual("a", [0]))
    for topic, code in (("a", Code.MANUAL_TOPIC), ("b", Code.TOPIC_UNKNOWN)):
        answers = life.apply(life.build.grow(topic, 5))
        assert statuses(answers) == [(topic, Status.REJECTED, code)]


def test_a_short_topic_grows_with_whole_lists() -> None:
    """New partitions have the factor that was asked for; short ones still wait."""
    life = OneCluster(*Events().joins(0, 1, 2))
    life.create("a", 1, 3)
    life.leave(2, GONE)
    answers = life.apply(life.build.grow("a", 2))
    assert statuses(answers) == [("a", Status.REJECTED, Code.INSUFFICIENT_SPUS)]
    life.leave(1)
    life.join(3, 4)
    assert life.lists("a") == [[0, 1, 3]]
    answers = life.apply(life.build.grow("a", 2))
    assert maps(answers) == {"a": [[0, 1, 3], [0, 3, 4]]}


def test_late_copies_of_a_topics_own_events_change_nothing() -> None:
    """Its create and its grows are remembered as long as it lives, also after a repair."""
    life = OneCluster(*Events().joins(0, 1, 2))
    create, grow = life.build.create("a", 2, 2), life.build.grow("a", 4)
    life.apply(create)
    life.apply(grow)
    life.leave(2, GONE)
    for _ in range(300):
        life.leave(9)
    before = picture(life.state)
    assert life.apply(create) == []
    assert life.apply(grow) == []
    assert picture(life.state) == before


# Balanced.


def test_a_balanced_topic_may_ignore_racks() -> None:
    """Then only loads count: the two large SPUs take it, though they share a rack."""
    life = OneCluster()
    life.join(0, 1, rack="a", capacity=1000)
    life.join(2, rack="b", capacity=10)
    life.create("full", 4, 1, policy=Policy.BALANCED)
    answers = life.create("apart", 1, 2, policy=Policy.BALANCED)
    assert {spu_id // 2 for spu_id in the_lists(answers)[0]} == {0, 1}
    answers = life.create("a", 2, 2, policy=Policy.BALANCED, ignore_rack=True)
    assert [sorted(row) for row in the_lists(answers)] == [[0, 1], [0, 1]]
    answers = life.apply(life.build.grow("a", 3))
    assert sorted(the_lists(answers)[2]) == [0, 1]


# Evening out.


def test_a_rebalance_brings_an_empty_spu_its_share_and_no_more() -> None:
    """The new SPU needs 5 to be within one replica of its fair share of 6; a sixth is waste."""
    life = OneCluster(*Events().joins(0, 1, 2))
    life.create("a", 12, 2)
    life.join(3)
    answers = life.apply(life.build.rebalance(100))
    [status] = [each for each in answers if isinstance(each, TopicStatus)]
    assert (status.topic, status.status, status.moves) == ("", Status.ASSIGNED, 5)
    counts = [life.state.ledger.count(spu_id) for spu_id in range(4)]
    assert max(counts) - min(counts) <= 2
    assert sum(counts) == 24
    again = life.apply(life.build.rebalance(100))
    assert maps(again) == {}
    [status] = [each for each in again if isinstance(each, TopicStatus)]
    assert status.moves == 0


def test_a_rebalance_makes_no_more_moves_than_it_may() -> None:
    """With none allowed, leaders may still change places: that costs no data."""
    life = OneCluster(*Events().joins(0, 1, 2))
    life.create("a", 12, 2)
    life.join(3)
    answers = life.apply(life.build.rebalance(2))
    [status] = [each for each in answers if isinstance(each, TopicStatus)]
    assert status.moves == 2
    assert life.state.ledger.count(3) == 2


def test_a_rebalance_leaves_manual_topics_alone() -> None:
    """Whoever placed them by hand meant it."""
    life = OneCluster(*Events().joins(0, 1))
    life.apply(life.build.manual("a", [0], [0], [0], [0], [0], [0]))
    answers = life.apply(life.build.rebalance(100))
    assert maps(answers) == {}


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, ""), (1, "; 1 manual topic left alone"), (200, "; 200 manual topics left alone")],
)
def test_a_rebalance_says_how_many_manual_topics_it_leaves_alone(count: int, said: str) -> None:
    """Else a cluster that stays uneven would look evened out."""
    life = OneCluster(*Events().joins(0, 1))
    life.create("even", 2, 1)
    for number in range(count):
        life.apply(life.build.manual(f"m{number}", [0]))
    [status] = life.apply(life.build.rebalance(100))
    assert isinstance(status, TopicStatus)
    assert (status.status, status.code, status.moves) == (Status.ASSIGNED, None, 0)
    assert status.message == (
        f"0 replicas move, 0 lists get another leader from among their replicas{said}"
    )


def test_a_rebalance_of_one_replica_or_list_says_so_in_the_singular() -> None:
    """A person reads it after `rebalance --max-bytes`."""
    for lists, said in (
        ([[0]] * 3, "1 replica moves, 0 lists get another leader from among their replicas"),
        ([[0, 1]] * 3, "0 replicas move, 1 list gets another leader from among its replicas"),
    ):
        life = OneCluster(*Events().joins(0, 1))
        life.apply(life.build.adopt("t", *lists))
        *_, status = life.apply(life.build.rebalance(100))
        assert isinstance(status, TopicStatus)
        assert status.message == said


def test_a_rebalance_counts_topics_that_are_there_and_not_creates_that_wait() -> None:
    """A manual create never waits, and what was deleted is not counted."""
    life = OneCluster(*Events().joins(0, 1))
    for name in ("a", "b"):
        life.apply(life.build.manual(name, [0]))
    life.wait("c", 1, 3)
    life.apply(life.build.delete("b"))
    [status] = life.apply(life.build.rebalance(100))
    assert isinstance(status, TopicStatus)
    assert status.message is not None
    assert status.message.endswith("; 1 manual topic left alone")


def test_a_rebalance_frees_a_saturated_spu_and_serves_who_waits() -> None:
    """It comes back at the ring's tail, and a create that waited for it is placed."""
    life = OneCluster()
    life.join(0, 1, capacity=6)
    life.create("a", 6, 2)
    life.wait("b", 1, 2)
    life.leave(1)
    life.join(2, capacity=12)
    answers = life.apply(life.build.rebalance(100))
    assert (0, RingChange.RESTORED) in [event[:2] for event in ring_changes(answers)]
    assert ("b", Status.ASSIGNED, None) in statuses(answers)


@pytest.mark.parametrize("moves", [-1, 2**31, 10**30])
def test_a_number_of_moves_out_of_range_is_refused(moves: int) -> None:
    """And an empty cluster is even already."""
    life = OneCluster()
    answers = life.apply(life.build.rebalance(moves))
    assert statuses(answers) == [("", Status.REJECTED, Code.INVALID_MAX_MOVES)]
    [status] = life.apply(life.build.rebalance(5))
    assert isinstance(status, TopicStatus)
    assert status.moves == 0
