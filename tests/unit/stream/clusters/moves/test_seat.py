"""The record of the moves where Kafka does not take it."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException
from spu_assigner.stream.clusters.moves import run_record
from spu_assigner.stream.clusters.moves.run_record import Seat, SeatTakenError, begun_run
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.errors import ClientError


@pytest.mark.parametrize(
    ("abort", "error", "text"),
    [
        (KafkaError._FENCED, SeatTakenError, "another process has taken over the moves"),
        (KafkaError._TIMED_OUT, ClientError, "EndTxn commit failed: Unknown broker error"),
        (None, ClientError, "EndTxn commit failed: Unknown broker error"),
    ],
)
def test_a_commit_that_fails_is_reported_as_what_its_abort_shows(
    monkeypatch: pytest.MonkeyPatch, abort: int | None, error: type[Exception], text: str
) -> None:
    """At the moment of a fence Kafka says only that it failed; no transaction stays open."""
    reason = "EndTxn commit failed: Unknown broker error"
    failed = KafkaException(KafkaError(KafkaError.UNKNOWN, reason, txn_requires_abort=True))
    producer = Mock(__len__=lambda _: 0)
    producer.flush.return_value = 0
    producer.commit_transaction.side_effect = failed
    if abort is not None:
        fault = KafkaException(KafkaError(abort, fatal=abort == KafkaError._FENCED))
        producer.abort_transaction.side_effect = fault
    monkeypatch.setattr(run_record, "Producer", lambda _: producer)
    monkeypatch.setattr(Seat, "look", lambda _: Mock(drain_messages=list))
    seat = Seat(Settings.load(flags={}, environ={}).connection())
    seat.take_over()
    with pytest.raises(error, match=text):
        seat.write(begun_run("c1"))
    assert producer.abort_transaction.call_count == 1
