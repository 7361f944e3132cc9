"""The later life of a cluster: what a change makes follow, event by event.

What the oracle of `test_simulation` follows is held there; here is what a reader looks for first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import LeaveMode, SpuId, TopicDelete, TopicRelease
from spu_assigner.core.base.limits import WAITING_MAX
from spu_assigner.core.base.records import (
    ClusterGone,
    EntryGone,
    Mode,
    Move,
    ReplicaMap,
    RingChange,
    Status,
    TopicStatus,
)
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState, evolve
from spu_assigner.stream.client.rendering import received_line
from spu_assigner.stream.job.shard.bundle import KINDS, MessageKind
from spu_assigner.stream.kafka.client import Received
from support.events.builders import Events
from support.events.histories import Outgoing, Writer
from support.events.one_cluster import (
    OneCluster,
    picture,
    ring_changes,
    statuses,
    the_map,
    the_status,
)
from support.events.random_lives import life_of

GONE = LeaveMode.DECOMMISSION


def mapped(found: Iterable[object]) -> list[str]:
    return [each.topic for each in found if isinstance(each, ReplicaMap)]


def test_a_decommission_moves_the_replicas_of_the_leaving_spu_and_no_other() -> None:
    life = OneCluster(*Events().joins(0, 1, 2, 3))
    life.create("a", 4, 3)  # 012 123 230 301
    answers = life.leave(1, GONE)
    changed = the_map(answers)
    assert life.lists("a") == [[0, 2, 3], [2, 3, 0], [2, 3, 0], [3, 0, 2]]
    assert (changed.revision, changed.cause) == (2, "e1001")
    assert changed.reason is not None
    assert (changed.reason.mode, changed.reason.moves) == (
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


def test_the_only_copy_stays_on_an_spu_that_is_offline() -> None:
    """There is nothing to copy it from; once the SPU is back, its decommission moves it."""
    life = OneCluster(*Events().joins(1, 3))
    life.manual("a", [3])
    life.leave(3)
    waiting = the_status(life.leave(3, GONE))
    assert (waiting.status, waiting.code) == (Status.WAITING, Code.SOURCE_OFFLINE)
    assert "1 list has its only copy on SPU 3" in (waiting.message or "")
    assert life.lists("a") == [[3]]
    life.join(3)
    assert "a" not in life.state.waiting
    life.leave(3, GONE)
    assert life.lists("a") == [[1]]


def test_a_list_without_a_replacement_stays_short_and_waits() -> None:
    """The status says so; when an SPU comes the list is filled, for the cause that asked."""
    life = OneCluster(*Events().joins(0, 1, 2))
    life.create("a", 2, 3)
    answers = life.leave(2, GONE)
    cause = the_map(answers).cause
    assert life.lists("a") == [[0, 1], [1, 0]]
    assert statuses(answers) == [("a", Status.WAITING, Code.INSUFFICIENT_SPUS, cause)]
    assert SpuId(2) not in life.state.spus
    filled = life.join(7)
    assert life.lists("a") == [[0, 1, 7], [1, 0, 7]]
    assert (the_map(filled).revision, the_map(filled).cause) == (3, cause)
    assert statuses(filled) == [("a", Status.ASSIGNED, None, cause)]


def test_a_capacity_below_the_count_saturates_and_breaks_nothing() -> None:
    life = OneCluster(*Events().joins(0, 1))
    life.create("a", 4, 2)
    assert ring_changes(life.join(1, capacity=2)) == [
        (1, RingChange.UPDATED, 1),
        (1, RingChange.SATURATED, 1),
    ]
    assert the_status(life.create("b", 1, 2)).code is Code.INSUFFICIENT_CAPACITY
    assert ring_changes(life.join(1, capacity=5)) == [
        (1, RingChange.UPDATED, 2),
        (1, RingChange.RESTORED, 2),
    ]
    assert the_status(life.create("b", 1, 2)).status is Status.ASSIGNED


def test_one_that_does_not_fit_blocks_none_behind_it() -> None:
    life = OneCluster(*Events().joins(0))
    life.wait("large", 1, 3)
    life.wait("small", 1, 2)
    assert mapped(life.join(1)) == ["small"]
    assert mapped(life.join(2)) == ["large"]


def test_no_more_creates_wait_than_the_limit() -> None:
    life = OneCluster()
    for number in range(WAITING_MAX):
        life.wait(f"t{number}", 1, 1)
    assert the_status(life.wait("one-more", 1, 1)).code is Code.TOO_MANY_WAITING
    assert len(life.join(0)) == 2 * 6998 + 2  # maps, statuses; joined, saturated
    assert len(life.state.waiting) == WAITING_MAX - 6998


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, ""), (1, "; 1 manual topic left alone"), (200, "; 200 manual topics left alone")],
)
def test_a_rebalance_says_how_many_manual_topics_it_leaves_alone(count: int, said: str) -> None:
    """Else a cluster that stays uneven would look evened out."""
    life = OneCluster(*Events().joins(0, 1))
    life.create("even", 2, 1)
    for number in range(count):
        life.manual(f"m{number}", [0])
    status = life.rebalance()
    assert (status.status, status.code, status.moves) == (Status.ASSIGNED, None, 0)
    assert status.message == (
        f"0 replicas move, 0 lists get another leader from among their replicas{said}"
    )


def test_a_rebalance_frees_a_saturated_spu_and_serves_who_waits() -> None:
    life = OneCluster()
    life.join(0, 1, capacity=6)
    life.create("a", 6, 2)
    life.wait("b", 1, 2)
    life.leave(1)
    life.join(2, capacity=12)
    answers = life.apply(life.build.rebalance(100))
    assert (0, RingChange.RESTORED) in [event[:2] for event in ring_changes(answers)]
    assert [each.topic for each in answers if isinstance(each, TopicStatus)] == ["", "b"]


# Clusters of which nothing is left.


def test_a_cluster_whose_last_spu_is_gone_is_as_one_that_never_was() -> None:
    """After 40 remembered events; for who replays the records, too."""
    life, replayed = OneCluster(), ClusterState("c1")
    build = life.build
    events = [build.join(0), build.create("t", 3, 1), *(build.delete("no") for _ in range(36))]
    for event in (*events, build.delete("t"), build.leave(0, mode=GONE)):
        records = step(life.state, event, default_policy=life.default)
        for record in records:
            evolve(replayed, record)
    assert isinstance(records[-1], ClusterGone)
    assert picture(life.state) == picture(ClusterState("c1")) == picture(replayed)


def test_a_cluster_that_comes_again_within_a_batch_is_published_as_it_is() -> None:
    life, before = OneCluster(), ClusterState("c1")
    life.join(*range(40))
    stored = list(life.state.take_entries())
    for number in range(40):
        life.leave(number, GONE)
    assert life.state.is_empty
    life.join(7)
    for entry in [*stored, *life.state.take_entries()]:
        if isinstance(entry, EntryGone):
            before.forget_entry(entry.kind, entry.name)
        else:
            before.restore(entry)
    assert picture(before) == picture(life.state)


@pytest.mark.parametrize("kept", ["offline", "waiting", "topic"])
def test_an_spu_that_is_offline_a_topic_and_a_create_that_waits_keep_a_cluster(kept: str) -> None:
    life = OneCluster()
    join = life.build.join(0)
    life.apply(join)
    if kept == "waiting":
        life.wait("w", 1, 5)
    if kept == "topic":
        life.create("t", 1, 1)
    life.leave(0, LeaveMode.OFFLINE if kept == "offline" else GONE)
    assert life.apply(join) == []


# Topics that are released.


LIVES = 90


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_release_differs_from_a_delete_in_status_and_tombstone_alone(seed: int) -> None:
    """Random lives, played twice: with releases, and with deletes in their place."""
    life = life_of(seed)
    one, other = Assigner(life.default_policy), Assigner(life.default_policy)
    for event in life.events:
        plain = []
        for answer in one.apply(event):
            if isinstance(answer, ReplicaMap):
                plain.append(replace(answer, is_released=False))
            elif isinstance(answer, TopicStatus) and answer.status is Status.RELEASED:
                plain.append(replace(answer, status=Status.DELETED))
            else:
                plain.append(answer)
        common = {"event_id": event.event_id, "cluster_id": event.cluster_id}
        is_release = isinstance(event, TopicRelease)
        expected = TopicDelete(**common, topic=event.topic) if is_release else event
        assert tuple(plain) == other.apply(expected)
        pictures = [{name: picture(s) for name, s in a.clusters.items()} for a in (one, other)]
        assert pictures[0] == pictures[1]


def test_the_tombstone_of_a_release_has_a_type_of_its_own() -> None:
    """A consumer sees by the header whether data are to go; nothing else differs."""
    events, writer = Events(), Writer(1, shards=1)
    for event in (
        *events.joins(0),
        *(events.create("kept"), events.create("dropped")),
        *(events.release("kept"), events.delete("dropped")),
    ):
        writer.send([Outgoing.of_event(event, None)])
        writer.batch()
    tombstones = {
        read.key: dict(read.headers)["ce_type"]
        for (name, _), log in writer.topics.logs.items()
        if name == "replica-map"
        for read in log
        if read.value is None
    }
    assert tombstones == {
        b"c1/kept": b"io.spuassigner.v1.TopicReleased",
        b"c1/dropped": b"io.spuassigner.v1.ReplicaMap",
    }
    assert KINDS[MessageKind.TOPIC_RELEASED] == ("replica-map", "TopicReleased")


def test_watch_shows_that_the_data_of_a_released_topic_stay() -> None:
    deleted = Received(topic="replica-map", key="c1/t", answer=None)
    assert received_line(deleted, "table") == "map     c1/t  none: the topic is deleted"
    assert received_line(replace(deleted, is_released=True), "table") == (
        "map     c1/t  none: the topic is released, its data stay in Kafka"
    )
