"""The topic `applied-topics`: where `apply` keeps what it made, beside the topics themselves.

Rules: a key is `<cluster>/<topic>`, or `<cluster>/<topic>/intent` before a creation, so that two
runs at the same time cannot overwrite a creation with an intent. What a drain took is in parts, as
moves that are done, under `/drained/<cluster>/<broker>/<number>`. What is written is acknowledged
by all replicas in sync before anything that depends on it is done. The topic is made by the first
write; until then nothing is recorded. A value that is none of ours is an error: it would look as if
nothing were recorded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from confluent_kafka import Message
from spu_assigner.schemas.messages.codec import encode_record
from spu_assigner.schemas.messages.wire import AppliedTopic, MovedPartition, MovesState, Origin
from spu_assigner.stream.clusters.moves.run_record import begun_run
from spu_assigner.stream.clusters.plan.applied import AppliedRecords, fold
from spu_assigner.stream.job.shard.published import checked_record
from spu_assigner.stream.kafka.client import Reader, Sender, SentMessage
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.errors import GRANTING, ClientError
from spu_assigner.stream.kafka.moves_record import run_of
from spu_assigner.stream.kafka.topic_admin import make_seen, may_write
from spu_assigner.stream.kafka.topics import APPLIED_TOPICS, topic_name

INTENT: Final = "/intent"
PART: Final = 500  # moves in a message, which they fit into with the longest names and lists


class AppliedLedger:
    """The records of one cluster's topics, in the Kafka cluster where they are."""

    def __init__(self, connection: Connection, cluster_id: str, *, is_there: bool) -> None:
        self.is_there = is_there
        self._topic = topic_name(APPLIED_TOPICS, prefix=connection.prefix)
        self._connection = connection
        self._cluster_id = cluster_id
        self._sender: Sender | None = None
        self._faults: list[str] = []  # of messages that were not acknowledged
        self._intents: set[str] = set()  # topics with one that is not settled

    def read(self) -> AppliedRecords:
        """All that is recorded now; nothing where the topic is missing."""
        applied = fold(self._records()) if self.is_there else AppliedRecords()
        self._intents = set(applied.intents)
        return applied

    def _records(self) -> Iterator[tuple[str, AppliedTopic | None]]:
        for key, message in self._messages(own := f"{self._cluster_id}/"):
            writer = "`spu-assigner apply`"
            record = checked_record(message, AppliedTopic, _key, writer=writer)
            yield key.removeprefix(own), record

    def _messages(self, begin: str) -> Iterator[tuple[str, Message]]:
        with Reader(self._connection, [APPLIED_TOPICS], from_beginning=True) as reader:
            for _, message in reader.drain_messages():
                if (key := message.key() or b"").startswith(begin.encode()):
                    yield key.decode("utf-8", "replace"), message

    def drained(self, broker: int) -> list[MovedPartition] | None:
        """What the last drain of a broker took; None: nothing is recorded."""
        begin = f"/drained/{self._cluster_id}/{broker}/"
        latest = dict(self._messages(begin) if self.is_there else ())
        runs = [run for message in latest.values() if (run := run_of(message)) is not None]
        return [move for run in runs for move in run.moves] if runs else None

    def record_drained(self, broker: int, moves: Sequence[MovedPartition] | None) -> None:
        """Record this instead, or (None) nothing; `after` is empty of what is not known yet."""
        begin = f"/drained/{self._cluster_id}/{broker}/"
        values = dict[str, bytes | None].fromkeys(key for key, _ in self._messages(begin))
        if moves is not None:
            run = replace(begun_run(self._cluster_id), state=MovesState.DONE)
            for at in range(0, len(moves) or 1, PART):
                part = replace(run, moves=tuple(moves[at : at + PART]))
                values[f"{begin}{at}"] = encode_record(part)
        self._send([*values.items()])

    def record(self, records: Sequence[AppliedTopic]) -> None:
        """Record these topics, as intended or otherwise; the latter settles their intents."""
        intents = {each.topic for each in records if each.origin is Origin.INTENT}
        settled = self._intents & {each.topic for each in records} - intents
        self._write(records, [f"{topic}{INTENT}" for topic in sorted(settled)])
        self._intents = self._intents - settled | intents

    def withdraw(self, topics: Iterable[str]) -> None:
        """Settle intents that came to nothing: the topics were made by others."""
        self._write((), [f"{topic}{INTENT}" for topic in topics])

    def forget(self, topics: Iterable[str]) -> None:
        """Record nothing of these topics any more: they are not in Kafka, and not mapped."""
        self._write((), [f"{topic}{end}" for topic in topics for end in ("", INTENT)])

    def _write(self, records: Sequence[AppliedTopic], gone: Sequence[str]) -> None:
        """Write these, and tombstones of these keys."""
        stamped = [replace(each, recorded_at=time.time_ns() // 1_000_000) for each in records]
        written = ((_key(record).decode(), encode_record(record)) for record in stamped)
        self._send([*written, *((f"{self._cluster_id}/{key}", None) for key in gone)])

    def _send(self, messages: Sequence[tuple[str, bytes | None]]) -> None:
        """Write values, or tombstones, under whole keys, and wait until all are acknowledged."""
        if not messages:
            return
        sender = self._sender = self._sender or self._opened()
        self._faults.clear()
        for key, value in messages:
            sender.send_raw(APPLIED_TOPICS, key=key, value=value)
        sender.flush()
        if self._faults:
            raise ClientError(
                f"{self._topic} does not take what is to be recorded: {self._faults[0]}; fix that, "
                "and run this again"
            )

    def _opened(self) -> Sender:
        """A sender, once the topic is there and may be written to.

        The right is asked for: of a producer that may not write librdkafka prints a line of its
        own.
        """

        def sent(message: SentMessage) -> None:
            self._faults.extend([message.error] if message.error else ())

        with DiagnosedAdmin(self._connection.client()) as admin:
            if not self.is_there:
                make_seen(admin, APPLIED_TOPICS, prefix=self._connection.prefix)
                self.is_there = True
            if may_write(admin, self._topic) is False:
                raise ClientError(f"this user may not Write {self._topic}; {GRANTING}")
        return Sender(self._connection, sent, [APPLIED_TOPICS])


def _key(record: AppliedTopic) -> bytes:
    end = INTENT if record.origin is Origin.INTENT else ""
    return f"{record.cluster_id}/{record.topic}{end}".encode()
