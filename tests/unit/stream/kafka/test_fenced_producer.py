"""The producer of a leader where Kafka does not take what it sends."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException
from spu_assigner.stream.kafka import fenced_producer
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import ClientError
from spu_assigner.stream.kafka.fenced_producer import FencedProducer, OvertakenError


@pytest.mark.parametrize(
    ("abort", "error", "text"),
    [
        (KafkaError._FENCED, OvertakenError, "another process has taken over the-id"),
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
    monkeypatch.setattr(fenced_producer, "Producer", lambda _: producer)
    leader = FencedProducer(Connection(bootstrap_servers="k:1"), "the-id", Role.MOVER)
    with pytest.raises(error, match=text):
        leader.send("applied-topics", [("key", b"value")])
    assert producer.abort_transaction.call_count == 1
