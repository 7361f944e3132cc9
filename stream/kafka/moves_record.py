"""The record of the moves, one key of `applied-topics`, for `ui`, the job's metrics and `explain`.

Where the topic is not there, or may not be seen, there is nothing to show.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from confluent_kafka import Message
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import MOVES_KEY, MovedPartition, MovesRun, MovesState
from spu_assigner.stream.common.daemon_threads import DaemonThread
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.errors import ClientError
from spu_assigner.stream.kafka.topics import APPLIED_TOPICS, topic_name

FETCH_MS: Final = 500  # a request of an idle follower takes so long: two a second
AGAIN_SECONDS: Final = 10.0  # until the next look for a topic that is not there
PROBE_SECONDS: Final = 30.0  # between looks whether the topic is still the same
END_SECONDS_MAX: Final = 5.0
SILENT_SECONDS: Final = 60.0  # a run that lives has written something by then


def run_of(message: Message) -> MovesRun | None:
    """What a message under the record's key, or that of a drain, holds; None: a tombstone."""
    value = message.value()
    if value is None:
        return None
    try:
        found = decode_record(value)
        if isinstance(found, MovesRun):
            return found
        fault = f"it is a {type(found).__name__}"
    except DecodeError as reason:
        fault = str(reason)
    raise ClientError(
        f"{message.topic()} at offset {message.offset()} is no record of moves ({fault}); it was "
        "written by another release, or another program: use the release that wrote it"
    )


def newest_run(
    messages: Iterable[tuple[str, Message]], before: MovesRun | None = None
) -> MovesRun | None:
    """The last record among messages of `applied-topics`; the one before, if there is none."""
    for _, message in messages:
        if message.key() == MOVES_KEY.encode():
            before = run_of(message)
    return before


def latest_run(connection: Connection) -> MovesRun | None:
    """The record as it is now; None: there is none, or this user may not see it."""
    if not is_there(connection):
        return None
    with Reader(connection, [APPLIED_TOPICS], from_beginning=True) as reader:
        return newest_run(reader.drain_messages())


def is_there(connection: Connection) -> bool:
    """Whether the topic of the record is there, as far as this user may see."""
    with DiagnosedAdmin(connection.client()) as admin:
        return topic_name(APPLIED_TOPICS, prefix=connection.prefix) in admin.metadata().topics


def move_of(
    run: MovesRun | None, cluster_id: str, topic: str, partition: int
) -> MovedPartition | None:
    """The move of a partition that is under way, as far as is recorded."""
    if run is None or run.state is not MovesState.RUNNING or run.cluster_id != cluster_id:
        return None
    found = (each for each in run.moves if (each.topic, each.partition) == (topic, partition))
    return next(found, None)


def is_silent(run: MovesRun, *, now_ms: int) -> bool:
    """Whether a run that has not ended writes nothing any more: it was probably killed."""
    return run.state is MovesState.RUNNING and now_ms > run.recorded_at + SILENT_SECONDS * 1000


class MovesFollower:
    """Keeps the record up to date in a thread of its own.

    follower.start() … follower.run, follower.trouble … follower.close()
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._over = threading.Event()
        self._thread = DaemonThread(self._follow, "watch-moves")
        self.run: MovesRun | None = None  # None: there is none, or it is not known
        self.trouble: str | None = None  # why it is not known, or not the newest
        self.has_topic = True  # as far as is known
        self.is_read = False  # whether what was there at the start is known

    def start(self) -> None:
        """Begin to follow the record, in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop following; returns after 5 s at the latest."""
        self._over.set()
        self._thread.join(END_SECONDS_MAX)

    def _follow(self) -> None:
        while not self._over.is_set():
            try:
                self.has_topic = is_there(self._connection)
                if self.has_topic:
                    self._read()
                else:
                    self.run = self.trouble = None
                    self.is_read = True
            except AssignerError as reason:
                self.trouble = str(reason)
            self._over.wait(AGAIN_SECONDS)

    def _read(self) -> None:
        """Read as long as the topic stays the same."""
        topics, wait = [APPLIED_TOPICS], FETCH_MS
        with Reader(self._connection, topics, from_beginning=True, fetch_wait_ms=wait) as reader:
            self.run = newest_run(reader.drain_messages(), self.run)
            while not self._over.is_set():
                self.trouble, self.is_read = reader.probe(PROBE_SECONDS), True
                self.run = newest_run(reader.messages(1.0), self.run)
