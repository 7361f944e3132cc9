"""Whether the job lives and is ready, for whatever starts and watches it.

Rules:
- Live is what a restart would not fix: while the job starts, and as long as its query shows signs
  of life. A query that waits for events shows one at each look; one at work shows them from inside
  the batch, however long that takes: as its shards decide one event after the other, and with each
  attempt to send it. Without one for `SILENCE_SECONDS_MAX` it is stuck.
- Ready is a query that has begun: the topics were checked, the last marker was read, it runs.
- An answer says why in one line, without anything foreign or secret in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

# Between two signs a first batch reads a million topics in half a minute, an event takes seconds,
# the largest answers are sent within a minute, and a broker that stands still is waited for during
# a transaction's two.
SILENCE_SECONDS_MAX: Final = 300.0


Verdict = dict[str, Any]  # as it is served; with a `reason` unless the answer is yes


class JobHealth:
    """What is known of the job; any thread may report and ask: each fact is one assignment."""

    def __init__(self, query: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._query = query
        self._clock = clock
        self._has_begun = False
        self._sign = clock()  # of life
        self._batch: int | None = None
        self._ended: str | None = None

    def begun(self) -> None:
        """The query runs."""
        self._sign = self._clock()
        self._has_begun = True

    def resumed(self) -> None:
        """The query runs again."""
        self._sign = self._clock()
        self._ended = None

    def sign(self, *, batch: int | None = None) -> None:
        """The query waits for events, gets on with a batch, or has finished one."""
        self._sign = self._clock()
        if batch is not None:
            self._batch = batch

    def ended(self, reason: str) -> None:
        """The query runs no more; the first reason stays."""
        self._ended = self._ended or reason

    def live(self) -> Verdict:
        """Whether to leave it running."""
        return self._verdict("live", self._stopped())

    def ready(self) -> Verdict:
        """Whether events are answered."""
        starting = None if self._has_begun else "it is starting"
        return self._verdict("ready", self._stopped() or starting)

    def _stopped(self) -> str | None:
        silence = self._clock() - self._sign
        if self._ended or not self._has_begun or silence <= SILENCE_SECONDS_MAX:
            return self._ended
        return (
            f"no sign of life from the query for {silence:.0f} s; expected one every "
            f"{SILENCE_SECONDS_MAX:.0f} s: start the job again, it resumes where it stopped"
        )

    def _verdict(self, what: str, reason: str | None) -> Verdict:
        return {
            what: reason is None,
            "reason": reason,
            "query": self._query,
            "last_batch": self._batch,
            "last_sign_seconds": round(self._clock() - self._sign, 1),
        }
