"""Whether the job lives and is ready, for whatever starts and watches it.

Rules:
- Live is what a restart would not fix: while the job starts, and as long as its query shows signs
  of life. A query that waits for events shows one at each look; one at work shows them from inside
  the batch, however long that takes: as its shards decide one event after the other, and with each
  attempt to send it. Without one for `SILENCE_SECONDS_MAX` it is stuck.
- Ready is a query that has begun: the topics were checked, the last marker was read, it runs. It is
  not ready while an open transaction has held its input back for `HELD_SECONDS_MAX`.
- An answer says why in one line, without anything foreign or secret in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

# Between two signs a first batch reads a million topics in half a minute, an event takes seconds,
# the largest answers are sent within a minute, and a broker that stands still is waited for during
# a transaction's two.
SILENCE_SECONDS_MAX: Final = 300.0
# Producers' transactions last less, or are given up: Kafka's clients have 60 s by default.
HELD_SECONDS_MAX: Final = 60.0


class StartStep(StrEnum):
    """What must be done before events are answered, in this order."""

    MARKER = "marker"  # the last one was read, and fits the checkpoint
    TOPICS = "topics"  # are there, and what is to be read next is in them
    QUERY = "query"  # has begun


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """An answer."""

    ok: bool
    body: dict[str, Any]


class JobHealth:
    """What is known of the job; any thread may report and ask: each fact is one assignment."""

    def __init__(self, query: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._query = query
        self._clock = clock
        self._done: set[StartStep] = set()
        self._sign = clock()  # of life
        self._batch: int | None = None
        self._ended: str | None = None
        self._held: str | None = None

    def done(self, step: StartStep) -> None:
        """A step of the start is completed."""
        self._sign = self._clock()
        self._done.add(step)

    def sign(self, *, batch: int | None = None) -> None:
        """The query waits for events, gets on with a batch, or has finished one."""
        self._sign = self._clock()
        if batch is not None:
            self._batch = batch

    def ended(self, reason: str) -> None:
        """The query runs no more; the first reason stays."""
        self._ended = self._ended or reason

    def hold(self, reason: str | None) -> None:
        """Why events are not answered although the query runs; None: they are."""
        self._held = reason

    def resumed(self) -> None:
        """The query runs again."""
        self._sign = self._clock()
        self._ended = None

    def live(self) -> Verdict:
        """Whether to leave it running."""
        return self._verdict("live", self._stopped())

    def ready(self) -> Verdict:
        """Whether events are answered."""
        missing = [step for step in StartStep if step not in self._done]
        starting = f"it is starting; still to be done: {', '.join(missing)}" if missing else None
        return self._verdict("ready", self._stopped() or starting or self._held)

    def _stopped(self) -> str | None:
        silence = self._clock() - self._sign
        if self._ended or StartStep.QUERY not in self._done or silence <= SILENCE_SECONDS_MAX:
            return self._ended
        return (
            f"no sign of life from the query for {silence:.0f} s; expected one every "
            f"{SILENCE_SECONDS_MAX:.0f} s: start the job again, it resumes where it stopped"
        )

    def _verdict(self, what: str, reason: str | None) -> Verdict:
        body = {
            what: reason is None,
            "reason": reason,
            "query": self._query,
            "done": [step.value for step in StartStep if step in self._done],
            "last_batch": self._batch,
            "last_sign_seconds": round(self._clock() - self._sign, 1),
        }
        return Verdict(ok=reason is None, body=body)
