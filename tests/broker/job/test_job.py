"""The whole way: a real broker, real Spark, events in and answers out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from spu_assigner.stream.audit.rebuild import recover
from spu_assigner.stream.job.lifecycle import Job, start
from spu_assigner.stream.kafka.client import Reader, Sender, SentMessage
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.errors import TopicsError
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.events.builders import Events
from support.kafka.shared_broker import SharedBroker
from support.kafka.traffic import Kafka


@pytest.mark.long("two jobs run and a checkpoint is recovered")
def test_a_new_checkpoint_has_one_shard_and_a_recovered_one_as_many_as_are_asked_for(
    settings: Settings, run: Callable[..., Job], tmp_path: Path
) -> None:
    """With one shard its task reads the input, too; both are the same state."""
    kafka, events = Kafka(settings), Events()
    kafka.send([events.join(0), events.create("a")])
    job = run(replace(settings, shards=None))
    kafka.wait("topic-status", 1, job)
    assert job.shards == 1
    job.stop()
    new = replace(settings, shards=2, checkpoint=str(tmp_path / "new"))
    assert recover(new).shards == 2
    job = run(replace(new, shards=None))
    kafka.send([events.create("b")])
    kafka.wait("topic-status", 2, job)
    assert job.shards == 2


@pytest.mark.smoke
def test_missing_topics_are_reported_before_anything_starts(
    kafka: SharedBroker, topic_prefix: str
) -> None:
    """One line, and what to do."""
    flags = {"bootstrap_servers": kafka.bootstrap_servers, "topic_prefix": topic_prefix}
    with pytest.raises(TopicsError, match="topics create"):
        start(Settings.load(flags=flags, environ={}))


def test_an_unknown_host_beside_a_broker_stops_nobody(
    settings: Settings, run: Callable[..., Job]
) -> None:
    """A list of brokers is there to be incomplete: topics, job and clients use the one that is."""
    mixed = replace(settings, bootstrap_servers=f"brokr.invalid:9092,{settings.bootstrap_servers}")
    create_topics(mixed.connection().client(), prefix=mixed.topic_prefix)
    kafka, events = Kafka(settings), Events()
    job = run(mixed)
    sent: list[SentMessage] = []
    with Reader(mixed.connection(), ["topic-status"]) as reader:
        sender = Sender(mixed.connection(), sent.append)
        for event in (events.join(0), events.create("a")):
            sender.send(event)
        sender.flush()
        kafka.wait("topic-status", 1, job)
        assert [each.error for each in sent] == [None, None]
        assert len(reader.drain()) == 1
