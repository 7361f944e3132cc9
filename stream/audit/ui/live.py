"""Follows the output topics for the page, in a thread of its own.

Rules:
- What comes is taken over when no more comes for a moment: the messages of one transaction reach
  different partitions one after the other, and a page shall not show half of it.
- A broker that does not answer is reported and asked again; the last that is known stays.
- Topics that were created again are read again, aside; the old is shown until that is done.
- The Kafka cluster of the mapped topics is looked at again and again, as far as this user may see.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, Self

from confluent_kafka import Message
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.audit.ui.known import STATE_TOPICS, Known
from spu_assigner.stream.clusters.plan.model import KafkaCluster
from spu_assigner.stream.clusters.plan.target_cluster import Target
from spu_assigner.stream.common.daemon_threads import DaemonThread
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import RenewedError
from spu_assigner.stream.kafka.moves_record import MovesFollower
from spu_assigner.stream.kafka.topics import DEAD_LETTER, RING_EVENTS, TOPIC_STATUS

ANSWER_TOPICS: Final = (RING_EVENTS, TOPIC_STATUS, DEAD_LETTER)
BACK: Final = 500  # offsets of each partition of these that are read at the start
GATHER_SECONDS_MAX: Final = 1.0  # what has come waits for more at most so long
LOOK_SECONDS: Final = 3.0  # between two at the Kafka cluster of the mapped topics
APPLIED_MAX: Final = 5_000  # messages taken over at once: pages wait meanwhile
PROBE_SECONDS: Final = 2.0  # between looks whether the broker is there
RETRY_SECONDS: Final = 1.0  # before reading again
END_SECONDS_MAX: Final = 10.0


class Live:
    """Keeps `Known` up to date while it is open; opening it raises ClientError.

    with Live(connection) as live: with live.known() as known: …

    Args:
        moved: to the Kafka cluster whose partitions are moved, if it is not the job's.
    """

    def __init__(self, connection: Connection, *, moved: Connection | None = None) -> None:
        self.connection = connection
        self.trouble: str | None = None  # why nothing new is read
        self.is_loaded = False  # all that was there at the start is known
        self.target = moved or connection
        self.kafka: KafkaCluster | None = None  # None: it was not seen yet, or does not answer now
        self.looks = 0  # that have found something else
        self.moves = MovesFollower(self.target)
        self._lock = threading.RLock()
        self._known = Known()
        self._stopping = threading.Event()
        self._thread = DaemonThread(self._run, "live")
        self._looking = DaemonThread(self._look, "look")
        self._opened: _Readers | None = None

    def __enter__(self) -> Self:
        self._opened = _Readers(self.connection)
        self._thread.start()
        self._looking.start()
        self.moves.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.moves.close()
        self._thread.join(END_SECONDS_MAX)
        self._looking.join(END_SECONDS_MAX)

    @contextmanager
    def known(self) -> Iterator[Known]:
        """What is known; nothing of it changes inside the block."""
        with self._lock:
            yield self._known

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                readers, self._opened = self._opened or _Readers(self.connection), None
                with readers.stack:
                    self._load(readers)
                    self._follow(readers)
            except RenewedError:
                pass  # Read again at once.
            except AssignerError as reason:
                self.trouble = str(reason)
                self._stopping.wait(RETRY_SECONDS)

    def _look(self) -> None:
        with Target(self.target) as target:
            while not self._stopping.is_set():
                found = None
                with suppress(AssignerError):
                    found = target.look(())
                if found != self.kafka:
                    self.kafka, self.looks = found, self.looks + 1
                self._stopping.wait(LOOK_SECONDS)

    def _load(self, readers: _Readers) -> None:
        """Read what is there; it is shown meanwhile if nothing was known before."""
        known = Known(first_version=self._known.version + 1) if self._known.version else self._known
        for reader in (readers.states, readers.answers):
            for topic, message in reader.drain_messages():
                with self._lock:
                    known.take(topic, message)
                if self._stopping.is_set():
                    return
        with self._lock:
            self._known, self.is_loaded = known, True

    def _follow(self, readers: _Readers) -> None:
        while not self._stopping.is_set():
            messages = readers.gathered(self._stopping)
            with self._lock:
                for topic, message in messages:
                    self._known.take(topic, message)
            self.trouble = readers.states.probe(PROBE_SECONDS)


class _Readers:
    """The state from its beginning; of answers, the last. Open until `stack` is closed."""

    def __init__(self, connection: Connection) -> None:
        with ExitStack() as stack:
            self.states = stack.enter_context(Reader(connection, STATE_TOPICS, from_beginning=True))
            self.answers = stack.enter_context(Reader(connection, ANSWER_TOPICS, back=BACK))
            self.stack = stack.pop_all()

    def gathered(self, stopping: threading.Event) -> list[tuple[str, Message]]:
        """What has come, once no more comes for a moment."""
        found: list[tuple[str, Message]] = []
        deadline = time.monotonic() + GATHER_SECONDS_MAX
        while not stopping.is_set():
            new = [*self.answers.messages(0.0), *self.states.messages()]
            found += new
            if not new or len(found) >= APPLIED_MAX or time.monotonic() > deadline:
                break
        return found
