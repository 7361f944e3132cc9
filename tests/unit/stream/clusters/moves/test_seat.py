"""The record of the moves where Kafka does not take it."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from spu_assigner.stream.clusters.moves import run_record
from spu_assigner.stream.clusters.moves.run_record import Seat, SeatTakenError, begun_run
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.errors import ClientError


class Failing:
    """A producer whose commits fail, and whose aborts end as they are to."""

    abort: KafkaException | None = None
    aborts = 0

    def __init__(self, _: object) -> None:
        pass

    def init_transactions(self, _: float) -> None:
        pass

    def begin_transaction(self) -> None:
        pass

    def produce(self, *_: object) -> None:
        pass

    def flush(self, _: float) -> int:
        return 0

    def __len__(self) -> int:
        return 0

    def commit_transaction(self, _: float) -> None:
        reason = "EndTxn commit failed: Unknown broker error"
        raise KafkaException(KafkaError(KafkaError.UNKNOWN, reason, txn_requires_abort=True))

    def abort_transaction(self, _: float) -> None:
        type(self).aborts += 1
        if self.abort is not None:
            raise self.abort


class NoMessages:
    def drain_messages(self) -> list[Any]:
        return []


@pytest.fixture
def seat(monkeypatch: pytest.MonkeyPatch) -> Seat:
    monkeypatch.setattr(run_record, "Producer", Failing)
    monkeypatch.setattr(Failing, "aborts", 0)
    monkeypatch.setattr(Seat, "look", lambda _: NoMessages())
    taken = Seat(Settings.load(flags={}, environ={}).connection())
    taken.take_over()
    return taken


@pytest.mark.parametrize(
    ("abort", "error", "text"),
    [
        (KafkaError._FENCED, SeatTakenError, "another process has taken over the moves"),
        (KafkaError._TIMED_OUT, ClientError, "EndTxn commit failed: Unknown broker error"),
        (None, ClientError, "EndTxn commit failed: Unknown broker error"),
    ],
)
def test_a_commit_that_fails_is_reported_as_what_its_abort_shows(
    seat: Seat,
    monkeypatch: pytest.MonkeyPatch,
    abort: int | None,
    error: type[Exception],
    text: str,
) -> None:
    """At the moment of a fence Kafka says only that it failed; no transaction stays open."""
    reason = None if abort is None else KafkaException(KafkaError(abort, fatal=abort < -140))
    monkeypatch.setattr(Failing, "abort", reason)
    with pytest.raises(error, match=text):
        seat.write(begun_run("c1"))
    assert Failing.aborts == 1
