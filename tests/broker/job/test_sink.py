"""The sink's protocol on a real broker: every batch once, or a named error."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from functools import partial

import pytest
from confluent_kafka import KafkaException, Message
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import CommitMarker, PartitionOffsets
from spu_assigner.stream.job.batch_buffer import BatchBuffer
from spu_assigner.stream.job.checkpoint.inputs import TopicReplacedError, topic_ids
from spu_assigner.stream.job.marker import FIRST_LOOK, MarkerFormatError, read_marker
from spu_assigner.stream.job.marker_check import (
    DigestMismatchError,
    FencedError,
    ForeignCheckpointError,
    SinkError,
)
from spu_assigner.stream.job.sink import SentBatch
from spu_assigner.stream.kafka import retry
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.errors import TopicsError
from spu_assigner.stream.kafka.retry import raise_fatal_cause
from support.job.batch_buffers import MakeSink, batch_buffer, sent_values
from support.kafka.one_topic import OneTopic
from support.kafka.reading import committed, outputs, settled
from support.placers.kafka_reassign import throttle


def read_output(settings: Settings, topic: str) -> list[Message]:
    """All messages of an output, once what was committed is seen."""
    settled(settings.bootstrap_servers, outputs(settings.topic_prefix))
    return committed(settings.bootstrap_servers, settings.topic_prefix + topic)


def last_marker(settings: Settings) -> CommitMarker:
    settled(settings.bootstrap_servers, outputs(settings.topic_prefix))
    found = read_marker(settings, topic=settings.topic_prefix + "assigner-commits", seconds_max=10)
    assert found is not None
    return found.marker


@pytest.mark.smoke
def test_a_batch_is_sent_only_while_its_input_topics_are_the_same(
    settings: Settings, make_sink: MakeSink
) -> None:
    """What it has read may be of another topic; and readers are not kept waiting for it."""
    names = [f"{settings.topic_prefix}{name}" for name in ("spu-events", "topic-events")]
    topic, ids = OneTopic(settings.bootstrap_servers, names[1]), input_ids(settings, names)
    sink = make_sink()
    sink.bind("one", ids)
    sink._send_once(batch_buffer(b"a"), 0)
    assert last_marker(settings).topic_ids == ids
    topic.recreate()
    with pytest.raises(TopicReplacedError, match=f"{topic.name} was deleted and recreated"):
        sink._send_once(batch_buffer(b"b", first=1), 1)
    assert sent_values(settings) == [b"a"]
    sink.bind("one", input_ids(settings, names))
    topic.remove()
    with pytest.raises(TopicsError, match=f"{topic.name} cannot be described"):
        sink._send_once(batch_buffer(b"c", first=1), 1)
    assert sent_values(settings) == [b"a"]


def input_ids(settings: Settings, names: list[str]) -> dict[str, str]:
    return topic_ids({"bootstrap.servers": settings.bootstrap_servers}, names)


@pytest.mark.smoke
def test_a_batch_and_its_marker_are_sent_together(settings: Settings, make_sink: MakeSink) -> None:
    """The marker says what was read and what was written."""
    make_sink()._send_once(batch_buffer(b"a", None, first=4), 0)
    assert sent_values(settings) == [b"a", None]
    prefix = settings.topic_prefix
    for topic in ("assigner-commits", "assigner-audit"):
        [message] = read_output(settings, topic)
        marker = decode_record(message.value() or b"")
        assert isinstance(marker, CommitMarker)
        assert (marker.query, marker.checkpoint_id, marker.batch) == ("spu-assigner", "one", 0)
        assert (marker.count, len(marker.digest)) == (2, 64)
        read = PartitionOffsets(partition=0, first=4, last=5, count=2)
        assert marker.offsets == {f"{prefix}topic-events": (read,)}
        assert message.key() == b"spu-assigner"


def test_a_marker_of_an_earlier_form_is_refused(settings: Settings, make_sink: MakeSink) -> None:
    """Its schema had another id; resuming behind it could answer everything again."""
    sink = make_sink()
    sink._producer.begin_transaction()
    topic = f"{settings.topic_prefix}assigner-commits"
    sink._producer.produce(topic, bytes.fromhex("0000000039 02"), settings.query_name)
    sink._producer.commit_transaction()
    sink.close()
    said = rf"{topic} \(offset 0\) cannot be read: schema id 57 is not .*from 1.0 on .*prefix"
    for attempt in (partial(last_marker, settings), make_sink(opened=False).take_over):
        with pytest.raises(MarkerFormatError, match=said):
            attempt()


def test_a_batch_without_messages_has_a_marker_too(settings: Settings, make_sink: MakeSink) -> None:
    """Otherwise the next batch would not follow on the last marker."""
    sink = make_sink()
    sink._send_once(BatchBuffer(), 0)
    sink._send_once(batch_buffer(b"a"), 1)
    found = last_marker(settings)
    assert found.batch == 1


@pytest.mark.smoke
def test_a_batch_repeated_after_a_crash_is_not_sent_again(
    settings: Settings, make_sink: MakeSink
) -> None:
    """Spark had not yet noted it as done."""
    make_sink()._send_once(batch_buffer(b"a"), 0)
    sink = make_sink()
    sink._send_once(batch_buffer(b"a"), 0)
    assert sink.last == SentBatch(batch=0, count=1, repeated=True)
    sink._send_once(batch_buffer(b"b", first=1), 1)
    assert sent_values(settings) == [b"a", b"b"]


def test_bundles_are_sent_by_shard_and_sequence(settings: Settings, make_sink: MakeSink) -> None:
    """State partitions finish in any order; the digest and the order of messages do not depend."""
    both = batch_buffer(b"second", shard=2)
    for place, data in batch_buffer(b"first", shard=1)._bundles.items():
        assert isinstance(data, bytes)
        both.add(*place, data)
    make_sink()._send_once(both, 0)
    assert sent_values(settings) == [b"first", b"second"]


@pytest.mark.smoke
def test_a_repeated_batch_with_other_content_is_refused(
    settings: Settings, make_sink: MakeSink
) -> None:
    """Half of the world has seen the first answers."""
    make_sink()._send_once(batch_buffer(b"a"), 0)
    with pytest.raises(DigestMismatchError, match="batch 0 was sent with 1 messages"):
        make_sink()._send_once(batch_buffer(b"A"), 0)
    assert sent_values(settings) == [b"a"]


def test_another_checkpoint_is_refused_before_the_query_starts(make_sink: MakeSink) -> None:
    """A new checkpoint reads all events again and would answer them twice."""
    make_sink()._send_once(batch_buffer(b"a"), 0)
    with pytest.raises(ForeignCheckpointError, match="is of checkpoint one, and this is two"):
        make_sink("two")


def test_one_that_is_shut_out_while_it_sends_says_the_same(
    settings: Settings, make_sink: MakeSink
) -> None:
    """Between two messages: the client then says of the next one only that it failed for good."""
    older, topic = make_sink(), f"{settings.topic_prefix}replica-map"
    producer, older._begun = older._producer, time.time()
    producer.begin_transaction()
    producer.produce(topic, b"a", b"key")
    producer.flush(30)
    make_sink()
    with suppress(KafkaException), raise_fatal_cause(producer):  # Afterwards the client knows it.
        producer.produce(topic, b"b", b"key")
        producer.flush(30)
    with pytest.raises(KafkaException) as caught, raise_fatal_cause(producer):
        producer.produce(topic, b"c", b"key")
    with pytest.raises(FencedError, match="another process has taken over"):
        older._give_up(caught.value, batch=1, attempt=1)
    assert sent_values(settings) == []


def test_a_message_that_kafka_does_not_take_fails_the_whole_batch(
    settings: Settings, make_sink: MakeSink
) -> None:
    """All or nothing; the next process starts clean."""
    with pytest.raises(SinkError, match="could not be sent"):
        make_sink()._send_once(batch_buffer(b"a", bytes(9 * 1024 * 1024)), 0)
    make_sink()._send_once(batch_buffer(b"b"), 0)
    assert sent_values(settings) == [b"b"]


def test_a_marker_far_from_the_end_is_found(settings: Settings, make_sink: MakeSink) -> None:
    """Behind it are batches that were not committed."""
    make_sink()._send_once(batch_buffer(b"a"), 0)
    sink = make_sink()
    for _ in range(3 * FIRST_LOOK // 2):
        sink._producer.begin_transaction()
        sink._producer.produce(f"{settings.topic_prefix}assigner-commits", b"m", b"spu-assigner")
        sink._producer.flush()
        sink._producer.abort_transaction()
    found = last_marker(settings)
    assert (found.query, found.batch) == ("spu-assigner", 0)


def test_a_slow_broker_is_waited_for_as_long_as_it_goes_on(
    settings: Settings, make_sink: MakeSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a fixed time a batch that takes longer would be sent again for ever."""
    limit_seconds = 8.0
    sink = make_sink()
    monkeypatch.setattr(retry, "RETRY_SECONDS_MAX", limit_seconds)
    values = [random.Random(number).randbytes(500_000) for number in range(24)]
    client_id = settings.topic_prefix + settings.query_name
    throttle(settings.bootstrap_servers, client_id, 500_000)
    begun = time.monotonic()
    sink._send_once(batch_buffer(*values), 0)
    seconds = time.monotonic() - begun
    throttle(settings.bootstrap_servers, client_id, None)
    assert sink.last == SentBatch(batch=0, count=24, repeated=False)
    assert len(sent_values(settings)) == 24
    assert seconds > limit_seconds
