"""Follows the output topics for the page, in a thread of its own.

Rules:
- What comes is taken over when no more comes for a moment: the messages of one transaction reach
  different partitions one after the other, and a page shall not show half of it.
- A broker that is away is told of and waited for; the last that is known stays.
- Topics that were made anew are read anew, aside; the old is shown until that is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from confluent_kafka import Message
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.common.daemon_threads import DaemonThread
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.errors import ClientError, RenewedError
from spu_assigner.stream.kafka.topics import DEAD_LETTER, RING_EVENTS, TOPIC_STATUS
from spu_assigner.stream.ui.known import STATE_TOPICS, Known

TOLD_TOPICS: Final = (RING_EVENTS, TOPIC_STATUS, DEAD_LETTER)
BACK: Final = 500  # offsets of each partition of these that are read at the start
PATIENCE_SECONDS: Final = 1.0  # what has come waits for more at most so long
APPLIED_MAX: Final = 5_000  # messages taken over at once: pages wait meanwhile
PROBE_SECONDS: Final = 2.0  # between looks whether the broker is there
ANSWER_SECONDS_MAX: Final = 3.0  # of such a look
AGAIN_SECONDS: Final = 1.0  # before reading anew
END_SECONDS_MAX: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingHealth:
    """How the reading goes."""

    trouble: str | None  # why nothing new is read
    read: int  # messages of the state,
    total: int  # of so many; the same once all was read
    is_loaded: bool


class Live:
    """Keeps `Known` up to date while it is open.

    with Live(connection) as live: with live.known() as known: …

    Raises:
        ClientError: at its opening: Kafka cannot be reached, or topics are missing.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.RLock()
        self._known = Known()
        self._health = ReadingHealth(trouble=None, read=0, total=0, is_loaded=False)
        self._stopping = threading.Event()
        self._thread = DaemonThread(self._run, "live")
        self._first: _Readers | None = None

    def __enter__(self) -> Self:
        self._first = _Readers(self._connection)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(END_SECONDS_MAX)

    @property
    def connection(self) -> Connection:
        return self._connection

    @property
    def health(self) -> ReadingHealth:
        return self._health

    @contextmanager
    def known(self) -> Iterator[Known]:
        """What is known; nothing of it changes inside the block."""
        with self._lock:
            yield self._known

    def _run(self) -> None:
        readers = self._first
        while not self._stopping.is_set():
            try:
                readers = readers or _Readers(self._connection)
                with readers:
                    self._follow(readers)
            except RenewedError:
                pass  # Read anew at once.
            except AssignerError as reason:
                self._tell(trouble=str(reason))
                self._stopping.wait(AGAIN_SECONDS)
            readers = None

    def _follow(self, readers: _Readers) -> None:
        known = Known(first_version=self._known.version + 1)
        if self._known.version == 0:
            self._known = known  # Nothing is there that could be shown meanwhile.
        total, read = readers.states.remaining(ANSWER_SECONDS_MAX), 0
        is_loaded = total == 0
        probe_at = time.monotonic() + PROBE_SECONDS
        self._health = ReadingHealth(trouble=None, read=0, total=total, is_loaded=is_loaded)
        while not self._stopping.is_set():
            messages = readers.gathered(self._stopping)
            with self._lock:
                for topic, message in messages:
                    known.take(topic, message, is_loaded=is_loaded)
                    read += topic in STATE_TOPICS
                if is_loaded:
                    self._known = known
            if not is_loaded or time.monotonic() >= probe_at:
                left = self._remaining(readers)
                probe_at = time.monotonic() + PROBE_SECONDS
                if not is_loaded and left == 0:
                    is_loaded, total = True, read
                    with self._lock:
                        known.version += 1
                        self._known = known
                self._health = ReadingHealth(
                    trouble=self._health.trouble, read=read, total=total, is_loaded=is_loaded
                )

    def _remaining(self, readers: _Readers) -> int | None:
        """What is left to read of the state; None: nobody answers."""
        try:
            left = readers.states.remaining(ANSWER_SECONDS_MAX)
        except RenewedError:
            raise
        except ClientError as reason:
            self._tell(trouble=str(reason))
            return None
        self._tell(trouble=None)
        return left

    def _tell(self, *, trouble: str | None) -> None:
        now = self._health
        self._health = ReadingHealth(
            trouble=trouble, read=now.read, total=now.total, is_loaded=now.is_loaded
        )


class _Readers:
    """The state from its beginning; of what was told, the last."""

    def __init__(self, connection: Connection) -> None:
        with ExitStack() as stack:
            self.states = stack.enter_context(Reader(connection, STATE_TOPICS, from_beginning=True))
            self._told = stack.enter_context(Reader(connection, TOLD_TOPICS, back=BACK))
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def gathered(self, stopping: threading.Event) -> list[tuple[str, Message]]:
        """What has come, once no more comes for a moment."""
        found: list[tuple[str, Message]] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not stopping.is_set():
            new = [*self._told.messages(0.0), *self.states.messages()]
            found += new
            if not new or len(found) >= APPLIED_MAX or time.monotonic() > deadline:
                break
        return found
