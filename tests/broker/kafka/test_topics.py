"""The product's topics on a real broker: made once, checked at start, repaired where possible."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from spu_assigner.core.base.limits import MAP_SIZE_MAX
from spu_assigner.stream.kafka.errors import TopicsError
from spu_assigner.stream.kafka.topic_admin import (
    Fault,
    TopicReport,
    check_topics,
    create_topics,
    find_faults,
)
from spu_assigner.stream.kafka.topics import TOPICS, topic_name
from support.kafka.shared_broker import SharedBroker


def _client(kafka: SharedBroker) -> dict[str, str | int]:
    return {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}


def _create(kafka: SharedBroker, topic: NewTopic) -> None:
    with AdminClient(_client(kafka)) as admin:
        admin.create_topics([topic])[topic.topic].result(timeout=60)
        deadline = time.monotonic() + 60
        while topic.topic not in admin.list_topics(timeout=60).topics:
            assert time.monotonic() < deadline, f"{topic.topic} is nowhere to be seen"
            time.sleep(0.02)


@pytest.mark.smoke
def test_all_topics_are_made_once(kafka: SharedBroker, topic_prefix: str) -> None:
    """The command may be repeated, by two people too. The last marker is read from one place."""
    names = tuple(topic_name(spec.name, prefix=topic_prefix) for spec in TOPICS)
    given: dict[str, Any] = {"prefix": topic_prefix, "partitions": 3, "replication_factor": 1}
    first = create_topics(_client(kafka), **given)
    second = create_topics(_client(kafka), **given)
    assert first == TopicReport(created=names, repaired=(), unchanged=())
    assert second == TopicReport(created=(), repaired=(), unchanged=names)
    check_topics(_client(kafka), prefix=topic_prefix)
    with AdminClient(_client(kafka)) as admin:
        topics = admin.list_topics(timeout=60).topics
    assert [len(topics[name].partitions) for name in names] == [3, 3, 3, 3, 3, 3, 3, 1, 1, 1]


@pytest.mark.smoke
def test_an_input_s_time_is_the_broker_s(kafka: SharedBroker, topic_prefix: str) -> None:
    """The inputs are merged by time: a producer's wrong clock must not reorder them."""
    create_topics(_client(kafka), prefix=topic_prefix, partitions=1)
    for name in ("spu-events", "topic-events"):
        topic = f"{topic_prefix}{name}"
        producer = Producer(_client(kafka))
        producer.produce(topic, b"an event", timestamp=1)
        assert producer.flush(60) == 0
        consumer = Consumer({**_client(kafka), "group.id": topic})
        consumer.assign([TopicPartition(topic, 0, 0)])
        (message,) = consumer.consume(1, timeout=60)
        consumer.close()
        kind, time_ms = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert time_ms > 1


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["replica-map", "topic-status"])
def test_the_largest_map_fits(kafka: SharedBroker, topic_prefix: str, name: str) -> None:
    """A map at its limit must not fail at the very last step."""
    create_topics(_client(kafka), prefix=topic_prefix, partitions=1)
    size = MAP_SIZE_MAX + 1024
    producer = Producer({**_client(kafka), "message.max.bytes": 2 * size})
    failures: list[object] = []
    producer.produce(
        f"{topic_prefix}{name}",
        bytes(size),
        key=b"a cluster",  # without one a compacted topic takes nothing
        on_delivery=lambda error, message: failures.append(error),
    )
    assert producer.flush(60) == 0
    assert failures == [None]


@pytest.mark.smoke
def test_a_wrong_setting_is_found_reported_and_repaired(
    kafka: SharedBroker, topic_prefix: str
) -> None:
    """A topic made by hand has Kafka's defaults: the merge would go by the producers' clocks."""
    topic = f"{topic_prefix}spu-events"
    _create(kafka, NewTopic(topic, 2))
    faults = find_faults(_client(kafka), prefix=topic_prefix)
    assert [fault for fault in faults if fault.setting == "message.timestamp.type"] == [
        Fault(
            topic=topic,
            setting="message.timestamp.type",
            found="CreateTime",
            expected="LogAppendTime",
        )
    ]
    with pytest.raises(TopicsError, match=r"timestamp\.type is CreateTime, expected Log"):
        check_topics(_client(kafka), prefix=topic_prefix)
    report = create_topics(_client(kafka), prefix=topic_prefix)
    assert report.repaired == (topic,)
    check_topics(_client(kafka), prefix=topic_prefix)


@pytest.mark.smoke
def test_a_larger_message_limit_is_left_alone(kafka: SharedBroker, topic_prefix: str) -> None:
    """What the user has made larger is not made smaller."""
    topic = f"{topic_prefix}ring-events"
    _create(kafka, NewTopic(topic, 1, config={"max.message.bytes": "20000000"}))
    create_topics(_client(kafka), prefix=topic_prefix)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    with AdminClient(_client(kafka)) as admin:
        settings = admin.describe_configs([resource])[resource].result(timeout=60)
        assert settings["max.message.bytes"].value == "20000000"


@pytest.mark.smoke
def test_too_many_partitions_for_the_markers_cannot_be_repaired(
    kafka: SharedBroker, topic_prefix: str
) -> None:
    """Kafka takes no partition away: the user must decide."""
    topic = f"{topic_prefix}assigner-commits"
    _create(kafka, NewTopic(topic, 2))
    with pytest.raises(TopicsError, match="is in 2 partitions, expected 1 partition; delete"):
        create_topics(_client(kafka), prefix=topic_prefix)
    with pytest.raises(TopicsError, match="delete that topic, or choose another prefix"):
        check_topics(_client(kafka), prefix=topic_prefix)
