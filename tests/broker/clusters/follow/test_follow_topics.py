"""`follow --topics` beside three real brokers: what others do to topics enters the state."""

from __future__ import annotations

import signal

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.job.kafka_operator import Lists, Operator, TopicFollower
from support.job.small_job import small_job


def grow(operator: Operator, topic: str, added: Lists, total: int) -> None:
    new = NewPartitions(operator.name(topic), total, replica_assignment=added)
    with AdminClient(operator.cluster.client) as admin:
        admin.create_partitions([new])[operator.name(topic)].result(timeout=60)


@pytest.mark.long("a topic's whole life, seen by a process of its own")
def test_what_others_do_to_topics_enters_the_state(operator: Operator) -> None:
    """Made, grown, reassigned, deleted; what this product does itself is none of it."""
    create_topics(operator.cluster.client, prefix=operator.prefix, partitions=2)
    with small_job(operator.settings()) as job, job.answering():
        follower = TopicFollower(operator, job)
        try:
            live(operator, follower)
        finally:
            follower.end()


def live(operator: Operator, follower: TopicFollower) -> None:
    """The life of some topics."""
    operator.make("a", [[1], [2]])
    follower.waits(lambda: follower.maps() == {"a": [[1], [2]]})
    grow(operator, "a", [[3]], 3)
    follower.waits(lambda: follower.maps() == {"a": [[1], [2], [3]]})
    operator.reassign({"a": [[1, 2], [2, 3], [3, 1]]})
    follower.waits(lambda: follower.maps() == {"a": [[1, 2], [2, 3], [3, 1]]})

    asked = ("produce", "topic-create", "--cluster", "c1", "--topic", operator.name("mine"))
    assert operator(*asked, "--wait").exit_code == 0
    follower.looks_again("b")
    assert "mine" in follower.maps()  # A map without a topic: `apply` is still to make it.
    assert operator.apply().exit_code == 0
    follower.looks_again("c")
    states = follower.job.states()["c1"].topics
    assert states[operator.name("mine")].revision == 1
    follower.waits(
        lambda: (
            {name: str(each.origin) for name, each in operator.recorded().items()}
            == {"a": "found", "b": "found", "c": "found", "mine": "created"}
        )
    )

    asked = ("produce", "spu-left", "--cluster", "c1", "--spu-id", "3", "--mode", "decommission")
    assert operator(*asked, "--wait").exit_code == 0
    follower.looks_again("d")
    assert all(3 not in row for row in follower.maps()["a"])  # It is not taken back.

    operator.remove("b")
    follower.waits(lambda: "b" not in follower.maps())
    follower.waits(lambda: "b" not in operator.recorded())
    assert not any("Traceback" in line for line in follower.lines), follower.lines
    assert operator("verify", "--strict").exit_code == 0


@pytest.mark.long("topics are made and moved beside a process of its own")
def test_a_new_topic_is_placed_by_the_job_while_it_is_empty(operator: Operator) -> None:
    """What was there, and what holds data when it is first seen, is adopted as it is."""
    operator.make("there", [[1, 2]] * 6)
    create_topics(operator.cluster.client, prefix=operator.prefix, partitions=2)
    with small_job(operator.settings()) as job, job.answering():
        disks = ("--resources", "disk_bytes=1000000")
        follower = TopicFollower(operator, job, "--place-new", *disks)
        try:
            follower.waits(lambda: follower.maps() == {"there": [[1, 2]] * 6})
            operator.make("new", [[1, 2]] * 6)
            follower.waits(lambda: "new" in follower.maps())
            placed = follower.maps()["new"]
            assert {3} < {each for row in placed for each in row}
            operator.until("new", placed)
            follower.waits(lambda: "new" in operator.recorded())

            follower.process.send_signal(signal.SIGSTOP)
            operator.make("late", [[1, 2]] * 6)
            operator.write("late", b"a record", partition=5)
            follower.process.send_signal(signal.SIGCONT)
            follower.waits(lambda: {"late", "new", "there"} <= operator.recorded().keys())
            assert any(f"does not place topic {operator.name('late')}" in x for x in follower.lines)
            need = job.states()["c1"].topics[operator.name("late")].need
            assert need is not None  # The bytes of its record, over six partitions.
            assert 1 <= dict(need.demand)["disk_bytes"] < 100
            assert job.states()["c1"].topics[operator.name("new")].need is None
        finally:
            follower.end()
    assert operator.lists("late", "new") == {"late": [[1, 2]] * 6, "new": placed}
    assert operator.plan().exit_code == 0
    assert not any("Traceback" in line for line in follower.lines), follower.lines
    assert operator("verify", "--strict").exit_code == 0
