"""The whole way: a real broker, real Spark, events in and answers out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spu_assigner.stream.job.lifecycle import Job
from spu_assigner.stream.kafka.client import Reader, Sender, SentMessage
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.events.builders import Events
from support.kafka.traffic import Kafka


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
