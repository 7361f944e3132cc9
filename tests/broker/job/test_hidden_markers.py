"""The last marker behind an open transaction of another producer, and two queries of one prefix."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from threading import Timer

import pytest
from confluent_kafka import Producer
from spu_assigner.schemas.messages.codec import encode_record
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.job import sink as sink_module
from spu_assigner.stream.job.batch_buffer import BatchBuffer
from spu_assigner.stream.job.marker import PrefixTakenError, read_marker
from spu_assigner.stream.job.sink import SentBatch
from spu_assigner.stream.job.start_checks import StartLook, check_marker
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.open_transactions import OpenTransactionError
from support.job.batch_buffers import MakeSink, batch_buffer, sent_values
from support.kafka.one_topic import open_transaction

PATIENCE_SECONDS = 20.0
OPEN_SECONDS = 1.0


@pytest.fixture
def commits(settings: Settings) -> str:
    return f"{settings.topic_prefix}assigner-commits"


@pytest.mark.smoke
def test_a_marker_behind_an_open_transaction_is_waited_for(
    settings: Settings, make_sink: MakeSink, commits: str
) -> None:
    """The marker before it would have the last batch sent a second time."""
    sink = make_sink()
    sink._send_once(batch_buffer(b"a"), 0)
    with open_transaction(settings.bootstrap_servers, commits) as other:
        sink._send_once(batch_buffer(b"b", first=1), 1)
        sink.close()
        Timer(OPEN_SECONDS, other.abort).start()
        successor = make_sink()
    successor._send_once(batch_buffer(b"b", first=1), 1)
    assert successor.last == SentBatch(batch=1, count=1, repeated=True)
    assert sent_values(settings) == [b"a", b"b"]


def test_a_marker_that_stays_hidden_is_a_named_error(
    settings: Settings, make_sink: MakeSink, commits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the partition, its offsets, and how a transaction that never ends is ended."""
    make_sink()._send_once(batch_buffer(b"a"), 0)
    patient = partial(read_marker, held_seconds=OPEN_SECONDS)  # only with transactions
    monkeypatch.setattr(sink_module, "read_marker", patient)
    with (
        open_transaction(settings.bootstrap_servers, commits),
        pytest.raises(OpenTransactionError, match=r"offsets \d+ to \d+ .*kafka-transactions\.sh"),
    ):
        make_sink()


def test_a_look_before_the_start_neither_waits_for_a_transaction_nor_trusts_what_is_before_it(
    settings: Settings, make_sink: MakeSink, commits: str
) -> None:
    """A job that was killed in a batch left one; it is aborted when the job takes its id."""
    recovered = make_sink()
    recovered._send_once(batch_buffer(b"a"), 0)
    with open_transaction(settings.bootstrap_servers, commits):
        with pytest.raises(OpenTransactionError):
            read_marker(settings, topic=commits, seconds_max=PATIENCE_SECONDS, held_seconds=0.0)
        check_marker(StartLook(settings=settings))


def test_a_second_query_of_a_prefix_is_refused(settings: Settings, make_sink: MakeSink) -> None:
    """It would answer every event again, to the same topics."""
    make_sink()._send_once(batch_buffer(b"a"), 0)
    with pytest.raises(PrefixTakenError, match=r"is of query 'spu-assigner', and this is query 'b"):
        make_sink("b", query="b")
    with pytest.raises(PrefixTakenError):  # Before it shuts anybody out.
        check_marker(StartLook(settings=replace(settings, query_name="b")))


def test_a_second_query_that_started_before_any_batch_sends_none(
    settings: Settings, make_sink: MakeSink
) -> None:
    """Neither had a marker at its start."""
    first, second = make_sink("a", query="a"), make_sink("b", query="b")
    first._send_once(batch_buffer(b"a"), 0)
    with pytest.raises(PrefixTakenError, match="is of query 'a'"):
        second._send_once(batch_buffer(b"b"), 0)
    first._send_once(batch_buffer(b"c", first=1), 1)
    assert sent_values(settings) == [b"a", b"c"]


def test_of_two_queries_whose_first_batches_meet_one_goes_on(
    make_sink: MakeSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both looked before either had sent: the one whose marker is the last stays."""
    first, second = make_sink("a", query="a"), make_sink("b", query="b")
    transact = first._transact

    def meet(buffer: BatchBuffer, marker: CommitMarker) -> None:
        transact(buffer, marker)
        second._transact(batch_buffer(b"b"), replace(marker, query="b", checkpoint_id="b"))

    monkeypatch.setattr(first, "_transact", meet)
    with pytest.raises(PrefixTakenError, match="is of query 'b'"):
        first._send_once(batch_buffer(b"a"), 0)
    second.close()
    assert make_sink("b", query="b")._marker is not None


def test_what_is_no_marker_is_no_other_query(
    settings: Settings, make_sink: MakeSink, commits: str
) -> None:
    """A marker that was deleted by a tombstone frees the prefix."""
    sink = make_sink("a", query="a")
    sink._send_once(batch_buffer(b"a"), 0)
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    producer.produce(commits, b"garbage", b"c")
    producer.produce(commits, encode_record(sink._marker), b"d")  # type: ignore[arg-type]  # there is one
    producer.produce(commits, None, b"d")
    producer.flush()
    assert make_sink("a", query="a")._marker is not None
    producer.produce(commits, None, b"a")
    producer.flush()
    assert make_sink("b", query="b")._marker is None
