"""Checkpoints of releases from 1.0 on, and their topics: this release resumes them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spu_assigner.core.base.events import DEFAULT_POLICY, Event, Policy
from spu_assigner.core.base.records import ReplicaMap, TopicStatus
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.decision.machine import step
from spu_assigner.schemas.messages.codec import decode_event, decode_record
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.job.lifecycle import Job, start
from spu_assigner.stream.job.shard.clusters import Clusters, map_key, state_key
from spu_assigner.stream.job.sink import SentBatch
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from spu_assigner.stream.local.jvm.java import Java
from support.events.builders import Events
from support.events.one_cluster import picture
from support.job.released import PREFIX, Left, archives, fill, note_ids, unpack
from support.job.streams import Streams
from support.kafka.traffic import PATIENCE_SECONDS, process_all
from support.shard.checkpoint_state import checkpoint_clusters

SHARDS_THEN = 2


@pytest.fixture
def own_kafka() -> Iterator[EmbeddedBroker]:
    """The prefix is that of the release, so each test has a broker of its own."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(params=archives())
def released(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def left(own_kafka: EmbeddedBroker, released: str, tmp_path: Path) -> list[Left]:
    messages = unpack(archives()[released], tmp_path)
    fill(own_kafka.bootstrap_servers, messages)
    note_ids(own_kafka.bootstrap_servers, tmp_path / "checkpoint")
    return messages


@pytest.fixture
def settings(own_kafka: EmbeddedBroker, java: Java, tmp_path: Path) -> Settings:
    return Settings.load(
        flags={
            "bootstrap_servers": own_kafka.bootstrap_servers,
            "topic_prefix": PREFIX,
            "checkpoint": str(tmp_path / "checkpoint"),
            "ui_port": 0,
            "master": "local[2]",
        },
        environ={},
    )


def state_of(messages: list[Left]) -> Clusters:
    """What the outputs of that release say."""
    keys = {"replica-map": map_key, "assigner-state": state_key}
    latest = {
        keys[left.topic](left.key or b""): left.value for left in messages if left.topic in keys
    }
    clusters = Clusters()
    for key, value in latest.items():
        if value is not None:
            clusters.restore(key, value)
    return clusters


def markers_of(messages: list[Left]) -> list[CommitMarker]:
    found = [
        decode_record(left.value or b"") for left in messages if left.topic == "assigner-audit"
    ]
    return [marker for marker in found if isinstance(marker, CommitMarker)]


def more() -> list[Event]:
    """What is asked of this release: each chain goes on, and something was asked before."""
    asked: list[Event] = []
    for cluster in ("c1", "c2", "c3"):
        events = Events(cluster, first=1_000)
        asked += [
            events.create("fluvio", 3, 2, policy=Policy.FLUVIO, event_id="create-fluvio"),
            *[
                events.create(f"new-{policy}", 3, 2, policy=policy)
                for policy in Policy
                if policy not in (Policy.MANUAL, Policy.BALANCED)
            ],
            events.join(5, rack="b", capacity=50),
            events.delete("waits"),
        ]
    return asked


def until_applied(streams: Streams, count: int, job: Job) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while streams.applied_count() < count:
        assert not job.await_termination(0.1)
        assert time.monotonic() < deadline, f"{streams.applied_count()} of {count} applied"


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_checkpoint_of_a_release_is_resumed(
    settings: Settings, left: list[Left], released: str, is_repeated: bool
) -> None:
    """Also where its last batch was sent and not noted: repeated by this release it is the same."""
    streams = Streams(settings.bootstrap_servers, PREFIX)
    clusters, markers = state_of(left), markers_of(left)
    assert markers[-1].release.startswith(released)
    last = markers[-1].batch
    if is_repeated:
        Path(settings.checkpoint, "commits", str(last)).unlink()
    with start(settings) as job:
        process_all(job.query)
        repeated = SentBatch(batch=last, count=markers[-1].count, repeated=True)
        assert job.sink.last == (repeated if is_repeated else None)
        assert job.shards == SHARDS_THEN
        total = streams.applied_count() + len(more())
        streams.send(more())
        until_applied(streams, total, job)
        process_all(job.query)
        found = checkpoint_clusters(settings.checkpoint, job.spark)
    expected: list[Any] = []
    kinds: dict[str, Any] = {"spu-events": "spu", "topic-events": "topic"}
    for read in streams.applied()[-len(more()) :]:
        event = decode_event(read.value, kind=kinds[read.topic])
        records = step(clusters.of(event.cluster_id), event, default_policy=DEFAULT_POLICY)
        expected += [
            each for each in answers(records) if isinstance(each, ReplicaMap | TopicStatus)
        ]
    given = [
        decode_record(read.value)
        for topic in ("replica-map", "topic-status")
        for read in streams.read(topic)
        if read.value is not None and is_new(read.topic, read.partition, read.offset, left)
    ]
    assert sorted(map(repr, given)) == sorted(map(repr, expected))
    assert {name: picture(found[name]) for name in found} == {
        name: picture(state) for name, state in clusters.items()
    }
    markers = streams.markers()
    assert [marker.batch for marker in markers] == list(range(len(markers)))
    assert markers[-1].release == RELEASE


def is_new(topic: str, partition: int, offset: int, messages: list[Left]) -> bool:
    """Whether a message of the outputs was not there before."""
    return offset >= sum((left.topic, left.partition) == (topic, partition) for left in messages)
