"""Looks at what the job does not tell by itself: Spark's progress, signs of life, where the input
ends.

It looks by a thread of its own and asks Spark and Kafka little: a few calls to the JVM a second,
two requests to the broker each `LAG_SECONDS`. What does not answer is left out and looked at
again; the query goes on whatever becomes of it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from spu_assigner.stream.common.daemon_threads import DaemonThread
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.kafka.topics import INPUTS, topic_name
from spu_assigner.stream.metrics.counters import Metrics, Place
from spu_assigner.stream.metrics.health import JobHealth, StartStep
from spu_assigner.stream.metrics.server import MetricsServer, application, listen

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_SECONDS: Final = (
    1.0  # Spark keeps the last 100 progresses: ten seconds of its smallest batches
)
LAG_SECONDS: Final = 5.0
REQUEST_SECONDS_MAX: Final = 3.0
END_SECONDS: Final = 10.0
ENDED: Final = "the query has ended: start the job again, it goes on where it stopped"


class Watch:
    """Metrics and health of one job, and the server that shows them.

    Raises:
        SettingsError: it cannot listen where the settings say.
    """

    def __init__(self, settings: Settings) -> None:
        self.metrics = Metrics()
        self.health = JobHealth(settings.query_name)
        self.settings = settings
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._server: MetricsServer | None = None
        self._spark: _Spark | None = None
        listening = listen(settings)
        if listening is not None:
            from spu_assigner.stream.metrics.exposition import registry_of

            registry = registry_of(self.metrics, self.health, query=settings.query_name)
            self._server = MetricsServer(listening, application(registry, self.health))

    @property
    def url(self) -> str | None:
        """Where metrics are."""
        return None if self._server is None else f"{self._server.url}/metrics"

    def begin(self, query: StreamingQuery) -> None:
        """Watch the query, which has begun, until `close`."""
        self.health.done(StartStep.QUERY)
        if self._server is None:
            return  # Nobody will ask.
        self._spark = _Spark(query, self)
        for name, look in (("watch-spark", self._spark), ("watch-kafka", _InputEnds(self))):
            thread = DaemonThread(look.run, name)
            thread.start()
            self._threads.append(thread)

    def resumed(self, query: StreamingQuery) -> None:
        """Watch a query that goes on where the former one stopped."""
        if self._spark is not None:
            self._spark.resumed(query)

    def close(self) -> None:
        """Look no more, and show nothing any more."""
        self.health.ended(ENDED)
        self._over.set()
        for thread in self._threads:
            thread.join(END_SECONDS)
        if self._server is not None:
            self._server.close()
            self._server = None

    def pause(self, seconds: float) -> bool:
        """Wait; False: it is over."""
        return not self._over.wait(seconds)


class _Spark:
    """What the query does."""

    def __init__(self, query: StreamingQuery, watch: Watch) -> None:
        self._query: Any = query._jsq  # JSON at once, not by fields
        self._lock = threading.Lock()
        self._watch = watch
        self._seen = -1  # the last batch whose progress was told

    def resumed(self, query: StreamingQuery) -> None:
        """Look at this one from now on."""
        with self._lock:
            self._query = query._jsq
            self._watch.health.resumed()

    def run(self) -> None:
        from py4j.protocol import Py4JError

        while self._watch.pause(LOOK_SECONDS):
            try:
                self._look()
            except (Py4JError, OSError) as reason:
                if not self._watch.pause(LOOK_SECONDS):
                    return
                self._watch.health.ended(
                    f"Spark's JVM does not answer ({type(reason).__name__}): start the job again, "
                    "it goes on where it stopped"
                )
                return

    def _look(self) -> None:
        health, query = self._watch.health, self._query
        if not query.isActive():
            self._tell_progress(query)
            with self._lock:
                if query is self._query:  # Else another one goes on in its place.
                    health.ended(ENDED)
            return
        status = json.loads(query.status().json())
        if not status["isTriggerActive"]:
            health.sign()
        self._tell_progress(query)

    def _tell_progress(self, query: Any) -> None:
        latest = query.lastProgress()
        if latest is None or latest.batchId() <= self._seen:
            return
        recent = query.recentProgress()
        news = []
        for place in range(len(recent) - 1, -1, -1):
            if recent[place].batchId() <= self._seen:
                break
            news.append(json.loads(recent[place].json()))
        for progress in reversed(news):
            self._seen = max(self._seen, progress["batchId"])
            self._watch.metrics.progress(progress)
        self._watch.health.sign(batch=self._seen)


class _InputEnds:
    """Where the input ends."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        settings = watch.settings
        self._client = settings.connection().client()
        self._topics = [topic_name(topic, prefix=settings.topic_prefix) for topic in INPUTS]

    def run(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        with AdminClient({**self._client, "log_level": 0}) as admin:
            while True:
                ends: Mapping[Place, tuple[int, int]] | None = None
                with suppress(KafkaException):  # Said by there being no lag.
                    ends = self._ends(admin)
                self._watch.metrics.ends(ends)
                if not self._watch.pause(LAG_SECONDS):
                    return

    def _ends(self, admin: AdminClient) -> dict[Place, tuple[int, int]]:
        from confluent_kafka import TopicCollection, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        described = admin.describe_topics(
            TopicCollection(self._topics), request_timeout=REQUEST_SECONDS_MAX
        )
        places = [
            TopicPartition(topic, partition.id)
            for topic, future in described.items()
            for partition in future.result().partitions
        ]
        first, end = (
            {
                (place.topic, place.partition): future.result().offset
                for place, future in admin.list_offsets(
                    dict.fromkeys(places, spec), request_timeout=REQUEST_SECONDS_MAX
                ).items()
            }
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
        return {place: (first[place], end[place]) for place in end}
