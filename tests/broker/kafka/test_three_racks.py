"""A job on three brokers in three racks that are its SPUs, too: one goes, the work goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient
from spu_assigner.core.base.events import Event, LeaveMode
from spu_assigner.stream.job.lifecycle import Job
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.events.builders import Events
from support.job.judge import audit
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.traffic import Kafka, expected_maps

SPARE = 4  # an SPU that is no broker here, in the rack of the one that goes
TOPICS = 10  # in each part of the story
PARTITIONS = 6
KAFKAS_PATIENCE_MS = 60_000  # `default.api.timeout.ms`, which stream/job/query.py sets lower


@pytest.fixture
def settings(settings: Settings, kafka_cluster: KafkaCluster, topic_prefix: str) -> Settings:
    """On the cluster, in place of the one shared broker."""
    create_topics(kafka_cluster.client, prefix=topic_prefix)
    return replace(settings, bootstrap_servers=kafka_cluster.bootstrap_servers)


def _coordinator(cluster: KafkaCluster) -> int:
    """The broker whose loss hurts most: it leads the log of the job's transactions."""
    log = "__transaction_state"
    with AdminClient(cluster.client) as admin:
        return int(admin.list_topics(log, 10).topics[log].partitions[0].leader)


def _creates(events: Events, name: str) -> list[Event]:
    return [events.create(f"{name}-{number}", PARTITIONS, 3) for number in range(TOPICS)]


def _racks_used(
    maps: Mapping[bytes, list[list[int]]], racks: Mapping[int, str | None]
) -> set[tuple[str | None, ...]]:
    return {
        tuple(sorted(racks[spu] or "" for spu in replicas))
        for lists in maps.values()
        for replicas in lists
    }


@pytest.mark.long("Kafka moves replicas between three brokers")
def test_a_broker_goes_its_replicas_move_and_the_job_goes_on(
    kafka_cluster: KafkaCluster, settings: Settings, run: Callable[..., Job]
) -> None:
    """The job's own topics and what it decides about lose the same broker: both outlive it.

    The broker that goes is the coordinator of the job's transactions. While it is away, and after
    it was killed later without a word, requests are answered; all answers are audited in the end.
    """
    kafka, events = Kafka(settings), Events()
    racks: dict[int, str | None] = {**kafka_cluster.seen()}
    sent: list[Event] = []

    def send(*more: Event) -> None:
        sent.extend(more)
        kafka.send(more)

    send(*[events.join(spu, rack=rack) for spu, rack in racks.items()], *_creates(events, "all"))
    job = run()
    kafka.wait("topic-status", TOPICS, job)
    before = kafka.maps()
    assert _racks_used(before, racks) == {("a", "b", "c")}

    gone = _coordinator(kafka_cluster)
    racks[SPARE] = racks[gone]
    with kafka_cluster.stopped(gone):
        send(events.join(SPARE, rack=racks[SPARE]), events.leave(gone, mode=LeaveMode.DECOMMISSION))
        send(*_creates(events, "away"))
        kafka.wait("topic-status", 2 * TOPICS, job)
        away = kafka.maps()
        moved = {
            topic: [[SPARE if spu == gone else spu for spu in replicas] for replicas in lists]
            for topic, lists in before.items()
        }
        assert {topic: [set(each) for each in away[topic]] for topic in before} == {
            topic: [set(each) for each in lists] for topic, lists in moved.items()
        }
        assert _racks_used(away, racks) == {("a", "b", "c")}
        assert all(gone not in each for lists in away.values() for each in lists)

    send(events.join(gone, rack=racks[gone]), events.leave(SPARE, mode=LeaveMode.DECOMMISSION))
    send(*_creates(events, "back"))
    kafka.wait("topic-status", 3 * TOPICS, job)
    lost = _coordinator(kafka_cluster)
    kafka_cluster.kill(lost)
    try:
        send(events.leave(lost), *_creates(events, "lost"))
        kafka.wait("topic-status", 4 * TOPICS, job)
    finally:
        kafka_cluster.start(lost)

    slowest = max(each["durationMs"].get("latestOffset", 0) for each in job.query.recentProgress)
    assert slowest < KAFKAS_PATIENCE_MS  # The dead broker was not waited for to the bitter end.
    job.stop()
    assert kafka.maps() == expected_maps(sent)
    statuses = kafka.read("topic-status")
    assert len({dict(message.headers() or [])["ce_id"] for message in statuses}) == 4 * TOPICS
    status, report = audit(settings.bootstrap_servers, settings.topic_prefix)
    assert (status, report["findings"]) == (0, [])
