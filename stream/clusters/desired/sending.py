"""Sending the events of a plan, and waiting for their answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spu_assigner.core.base.events import Event
from spu_assigner.stream.client.pending_answers import ANSWER_TOPICS, Awaited
from spu_assigner.stream.kafka.client import Reader, Received, Sender, SentMessage
from spu_assigner.stream.kafka.config.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport:
    """What became of the events."""

    sent: tuple[str, ...]  # ids
    failed: tuple[str, ...]  # what kept others from being sent
    refused: int  # that the job rejected, or could not read
    unanswered: tuple[str, ...]  # ids, in time


class AnswerReader:
    """Answers from the moment it was made: make it before deciding what is to be sent.

    Else an answer to the same event, sent by another run, could pass unseen.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._reader = Reader(connection, ANSWER_TOPICS)

    def __enter__(self) -> AnswerReader:
        self._reader.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._reader.__exit__(None, None, None)

    def send_all(
        self,
        events: Sequence[Event],
        *,
        seconds: float,
        report_sent: Callable[[SentMessage], None],
        report_received: Callable[[Received], None],
    ) -> SendReport:
        """Send the events, and wait `seconds` at most until all are answered.

        Raises:
            ClientError: Kafka cannot be reached.
        """
        awaited = Awaited()
        sent: list[str] = []
        failed: list[str] = []

        def take_sent(message: SentMessage) -> None:
            awaited.sent(message)
            if message.error is None:
                sent.append(message.event_id or "")
                report_sent(message)
            else:
                failed.append(f"event {message.event_id} was not sent: {message.error}")

        sender = Sender(self._connection, take_sent)
        for event in events:
            awaited.expect(event)
            sender.send(event)
        sender.flush()
        awaited.wait(self._reader, seconds=seconds, report=report_received)
        return SendReport(
            sent=tuple(sent),
            failed=tuple(failed),
            refused=awaited.refused,
            unanswered=tuple(awaited.unanswered),
        )
