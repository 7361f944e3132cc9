"""The job: its query in a Spark session, and how it ends.

    with start(Settings.load()) as job:
        job.await_termination()

It runs in this process on `local[*]`, or unchanged on a cluster: what the executors need is the
installed package and Spark's connector to Kafka.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Final, Self

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.common.daemon_threads import DaemonThread
from spu_assigner.stream.job.checkpoint.files import (
    SHUFFLE_PARTITIONS,
    SparkFiles,
    absolute,
    make_private,
    read_positions,
)
from spu_assigner.stream.job.checkpoint.inputs import (
    TopicReplacedError,
    note_topics,
    require_same_ids,
)
from spu_assigner.stream.job.faults import (
    SparkGoneError,
    causes,
    is_by_others,
    jvm_may_be_gone,
    named_end,
)
from spu_assigner.stream.job.marker_check import FencedError, as_recovery
from spu_assigner.stream.job.metrics.watcher import Watch
from spu_assigner.stream.job.ownership import Ownership, files_of
from spu_assigner.stream.job.query import (
    begin_query,
    build_query,
    end_run,
    register_sink,
    signs_of_life,
)
from spu_assigner.stream.job.session import build_session, ensure_jars
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.job.start_checks import (
    CHECKPOINT,
    INPUT,
    SUBMITTED,
    StartLook,
    check_early,
    check_marker,
    make,
)
from spu_assigner.stream.job.transactional_id import ASK_SECONDS, IdOwner
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.local.jvm.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Of a query that found its checkpoint written by a process that was shut out, in a row, without a
# batch of its own between them. Such a process plans one batch at most before it notices.
RESTARTS_MAX: Final = 5
END_SECONDS: Final = 10.0


@dataclass(eq=False, repr=False, kw_only=True)
class Job:
    """A running query; made, it starts."""

    begin: Callable[[], StreamingQuery]  # starts the query, or resumes it where it stopped
    sink: TransactionalSink
    spark: SparkSession
    settings: Settings
    run: str
    shards: int
    watch: Watch
    ownership: Ownership
    restarts: int = 0  # of the query, since the job was started
    _restarts_in_a_row: int = 0
    _batch_before: int = -1  # the last one that was sent before the last restart
    _ended_by: AssignerError | None = None  # why it was stopped, if not by its caller

    def __post_init__(self) -> None:
        self.query = self.begin()
        self._over = Event()
        self._owner_watch = DaemonThread(self._watch_owner, "watch-owner")
        self._owner_watch.start()

    def _watch_owner(self) -> None:
        """End the query when a later process is the owner, by its note or by Kafka: whoever has
        taken the transactional id need not have this checkpoint.
        """
        asked_at = time.monotonic()
        try:
            while not self._over.wait(self.ownership.look_seconds):
                self.sink.check_owner()
                if time.monotonic() >= asked_at + ASK_SECONDS:
                    self.sink.check_id()
                    asked_at = time.monotonic()
        except FencedError as reason:
            self._end_by(reason)

    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the query's end; False: it still runs. Raises why it ended, if not stopped."""
        from pyspark.errors import StreamingQueryException

        while self._ended_by is None:
            try:
                ended = self.query.awaitTermination(timeout_seconds)  # type: ignore[arg-type]  # a float will do
                if self._ended_by is None:
                    return ended is not False
            except StreamingQueryException as reason:
                if not self._may_restart(reason):
                    raise self._named(reason) from reason
                self._restart()
                if timeout_seconds is not None:
                    return False
            except (Py4JNetworkError, OSError) as reason:
                raise SparkGoneError(
                    "Spark's JVM has ended: killed, or out of memory; start the job again, it "
                    "resumes where it stopped"
                ) from reason
        raise self._ended_by

    def _named(self, reason: Exception) -> AssignerError:
        failure = self._ended_by or self.sink.failure
        return named_end(reason, self.spark, self.settings, failure=failure)

    def _may_restart(self, reason: BaseException) -> bool:
        """Raises FencedError: this process is the one that was shut out."""
        if self._ended_by or self.sink.failure or not is_by_others(causes(reason)):
            return False
        self.sink.check_owner()
        sent = -1 if self.sink.last is None else self.sink.last.batch
        if sent > self._batch_before:
            self._restarts_in_a_row, self._batch_before = 0, sent
        self._restarts_in_a_row += 1
        return self._restarts_in_a_row <= RESTARTS_MAX

    def _restart(self) -> None:
        """Take what is planned in the checkpoint as this query's own plan.

        The sink stays as it is. Were the transactional id taken again, this would shut out a
        process that has taken it since; so Kafka says at the next batch whose it is.
        """
        from pyspark.errors import PySparkException

        try:
            self.query = self.begin()
        except (PySparkException, Py4JJavaError) as reason:
            raise self._named(reason) from reason
        self.restarts += 1
        self.watch.resumed(self.query)

    def see_inputs(self, before: Mapping[str, str], now: Mapping[str, str | None]) -> None:
        """Stop the query if an input topic has another id than before."""
        try:
            require_same_ids(before, now)
        except TopicReplacedError as reason:
            self._end_by(reason)

    def _end_by(self, reason: AssignerError) -> None:
        """Stop the query at once: what it wrote from now on would be in its successor's way, or be
        an answer to part of what there is.
        """
        self._ended_by = reason
        self.watch.health.ended(str(reason))
        with suppress(Py4JError, OSError):  # `await_termination` says why.
            self.query.stop()

    def stop(self) -> None:
        """Stop the query and Spark; what was not committed is repeated at the next start."""
        self.end_query()
        with jvm_may_be_gone():
            self.spark.stop()

    def end_query(self) -> None:
        """Stop the query, and all of ours that looks at it; Spark continues."""
        self._over.set()
        self._owner_watch.join(END_SECONDS)
        self.watch.close()
        with jvm_may_be_gone():
            self.query.stop()
            end_run(self.spark, self.run)
        self.sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(settings: Settings) -> Job:
    """Check what the job relies on, and start it; raises why it cannot be started."""
    check_early(settings)
    java = jars = None
    if SUBMITTED not in os.environ:  # Else spark-submit has started the JVM, with its jars.
        jars = ensure_jars(settings.checkpoint)
        java = ensure_java()
    spark = build_session(settings, java=java, jars=jars)
    try:
        return start_query(spark, settings)
    except BaseException:
        spark.stop()
        raise


def start_query(spark: SparkSession, settings: Settings) -> Job:
    """Start the query in a session that was built for it."""
    from pyspark.errors import PySparkException

    place = absolute(settings.checkpoint)
    run = secrets.token_hex(16)
    with ExitStack() as undo:
        undo.callback(_end_run, spark, run)
        watch = Watch(settings)
        undo.callback(watch.close)
        try:
            make_private(place, alone=(spark.sparkContext.master or "").startswith("local"))
            files = files_of(spark, place)
            # Through Hadoop, which finds damage by the sums that Spark keeps beside its files.
            look = StartLook(settings=settings, files=SparkFiles(spark))
            make(CHECKPOINT, look)
            spark.conf.set(SHUFFLE_PARTITIONS, str(look.shards))
            planner = undo.enter_context(ThreadPoolExecutor(1))  # while Kafka is asked
            planning = planner.submit(
                build_query, spark, settings, shards=look.shards, run=run, recovery=look.recovery
            )
            check_marker(look)
            ownership = Ownership(files, place, query=settings.query_name)
            sink = TransactionalSink(
                settings,
                shards=look.shards,
                positions_after=lambda batch: read_positions(files, place, batch),
                metrics=watch.metrics,
                ownership=ownership,
                id_owner=IdOwner(spark, settings),
            )
            undo.callback(sink.close)
            with as_recovery(look.recovery, place):
                sink.open(look.checkpoint.id)
            look.topic_ids = sink.topic_ids
            make(INPUT, look)
            topic_ids = note_topics(look.files, settings, place, look.inputs.ids)
            plan = planning.result()
            register_sink(spark, run, sink)
            sink.check_owner()
            job = Job(
                begin=partial(begin_query, plan, settings, run),
                sink=sink,
                spark=spark,
                settings=settings,
                run=run,
                shards=look.shards,
                watch=watch,
                ownership=ownership,
            )
            sink.bind(job.query.id, topic_ids)
            watch.begin(
                job.query,
                signs=partial(signs_of_life, spark, run),
                see_inputs=partial(job.see_inputs, topic_ids),
            )
        except (PySparkException, Py4JJavaError, OSError) as reason:
            if isinstance(reason, OSError) and reason.filename is None:
                raise
            raise named_end(reason, spark, settings) from reason
        undo.pop_all()
    planner.shutdown()
    return job


def _end_run(spark: SparkSession, run: str) -> None:
    with jvm_may_be_gone():
        end_run(spark, run)


def main() -> int:
    """For spark-submit: runs the job with the environment's settings until it ends."""
    try:
        settings = Settings.load()
        if (warning := settings.security.warning) is not None:
            print(f"spu-assigner: warning: {warning}", file=sys.stderr)
        with start(settings) as job:
            job.await_termination()
    except AssignerError as error:
        print(f"spu-assigner: {' '.join(str(error).split())}", file=sys.stderr)
        return int(getattr(error, "exit_status", 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
