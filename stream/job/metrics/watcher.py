"""Observes what the job does not report by itself: Spark's progress, signs of life, where the input
ends.

It has threads of its own and asks Spark and Kafka little: a few calls to the JVM a second, four
requests to the broker each `LAG_SECONDS`, one more for each cluster that is followed, and two a
second where moves are recorded. What does not answer is left out and asked again; the query
continues in either case.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JError
from spu_assigner.stream.common.daemon_threads import DaemonThread
from spu_assigner.stream.common.own_names import is_loopback
from spu_assigner.stream.job.checkpoint.inputs import (
    Spans,
    describe,
    ids_of,
    input_topics,
    spans_of,
)
from spu_assigner.stream.job.metrics.counters import Metrics, add_job
from spu_assigner.stream.job.metrics.health import JobHealth
from spu_assigner.stream.job.metrics.server import MetricsServer, application, listen
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.election import FollowerLooks
from spu_assigner.stream.kafka.moves_record import MovesFollower
from spu_assigner.stream.kafka.retry import look_again

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# Spark keeps the last 100 progresses: ten seconds of its smallest batches.
LOOK_SECONDS: Final = 1.0
LAG_SECONDS: Final = 5.0
REQUEST_SECONDS_MAX: Final = 3.0
END_SECONDS: Final = 10.0
ENDED: Final = "the query has ended: start the job again, it resumes where it stopped"


class Watch:
    """Metrics and health of one job, and the server that shows them."""

    def __init__(self, settings: Settings) -> None:
        self._moves: MovesFollower | None = None
        self.metrics = Metrics(moves=lambda: None if self._moves is None else self._moves.run)
        self.health = JobHealth(settings.query_name)
        self._settings = settings
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._server: MetricsServer | None = None
        self._query: Any = None  # Spark's own: it gives JSON at once, not by fields
        self._query_lock = threading.Lock()
        self._signs: Callable[[], int] = lambda: 0  # that the query has given
        self._signs_seen = 0
        self._seen = -1  # the last batch whose progress was reported
        listening = listen(settings)
        if listening is not None:
            add_job(self.metrics, self.health, query=settings.query_name)
            pages = application(
                self.metrics.registry, self.health, is_loopback=is_loopback(listening)
            )
            self._server = MetricsServer(listening, pages)

    @property
    def url(self) -> str | None:
        """Where metrics are."""
        return None if self._server is None else f"{self._server.url}/metrics"

    def begin(
        self,
        query: StreamingQuery,
        *,
        signs: Callable[[], int],
        see_inputs: Callable[[Mapping[str, str | None]], None],
    ) -> None:
        """Watch the query, which has begun, until `close`."""
        self.health.begun()
        self._signs = signs
        self._start("watch-kafka", partial(self._watch_kafka, see_inputs))
        if self._server is not None:
            self._query = query._jsq
            self._start("watch-spark", self._watch_spark)
            self._moves = MovesFollower(self._settings.connection())
            self._moves.start()

    def _start(self, name: str, run: Callable[[], None]) -> None:
        thread = DaemonThread(run, name)
        thread.start()
        self._threads.append(thread)

    def resumed(self, query: StreamingQuery) -> None:
        """Watch a query that continues where the former one stopped."""
        with self._query_lock:
            self._query = query._jsq
            self.health.resumed()

    def close(self) -> None:
        """Stop watching and serving."""
        self.health.ended(ENDED)
        self._over.set()
        if self._moves is not None:
            self._moves.close()
        for thread in self._threads:
            thread.join(END_SECONDS)
        if self._server is not None:
            self._server.close()
            self._server = None

    def _watch_spark(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._look()
            except (Py4JError, OSError) as reason:
                if not self._over.wait(LOOK_SECONDS):
                    self.health.ended(
                        f"Spark's JVM does not answer ({type(reason).__name__}): start the job "
                        "again, it resumes where it stopped"
                    )
                return

    def _look(self) -> None:
        query = self._query
        is_active = query.isActive()
        signs = self._signs() + self.metrics.attempts
        if is_active and signs != self._signs_seen:
            self._signs_seen = signs
            self.health.sign()
        self._report_progress(query)
        if not is_active:
            with self._query_lock:
                if query is self._query:  # Else another one continues in its place.
                    self.health.ended(ENDED)

    def _report_progress(self, query: Any) -> None:
        latest = query.lastProgress()
        if latest is None or latest.batchId() <= self._seen:
            return
        recent = takewhile(
            lambda each: each.batchId() > self._seen, reversed(query.recentProgress())
        )
        for progress in reversed([*recent]):
            self.metrics.progress(json.loads(progress.json()))
        self._seen = max(self._seen, latest.batchId())
        self.health.sign(batch=self._seen)

    def _watch_kafka(self, see_inputs: Callable[[Mapping[str, str | None]], None]) -> None:
        topics = input_topics(self._settings)
        connection = self._settings.connection()
        with (
            AdminClient({**connection.client(), "log_level": 0}) as admin,
            closing(FollowerLooks(connection)) as looks,
        ):
            while True:
                ends: Spans = {}
                try:
                    described = describe(admin, topics, REQUEST_SECONDS_MAX)
                    see_inputs(ids_of(described))
                    ends = spans_of(admin, described, REQUEST_SECONDS_MAX)
                    if self._server is not None:  # Else nothing shows them.
                        new = looks.read(admin, REQUEST_SECONDS_MAX)
                        self.metrics.looks = {**self.metrics.looks, **new}
                except KafkaException:  # Then there is no lag to read.
                    look_again(admin, seconds=REQUEST_SECONDS_MAX)
                self.metrics.ends(ends)
                if self._over.wait(LAG_SECONDS):
                    return
