"""`follow --topics` beside three real brokers: new topics of others enter the state."""

from __future__ import annotations

import signal

import pytest
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.job.kafka_operator import Operator, TopicFollower
from support.job.small_job import small_job


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
