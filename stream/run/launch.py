"""Start broker, Spark and query, and end them.

What can be done at once is done at once: the embedded broker starts, and the scenario is sent,
while Spark is still starting.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from py4j.protocol import Py4JError
from spu_assigner.stream.broker.embedded import EmbeddedBroker
from spu_assigner.stream.common.interrupts import Interrupts
from spu_assigner.stream.common.private_files import open_private
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.job.lifecycle import Jars, Job, build_session, start_query
from spu_assigner.stream.job.query_end import SparkGoneError
from spu_assigner.stream.job.start_marker import refuse_foreign_early
from spu_assigner.stream.jvm.jars import ensure_all
from spu_assigner.stream.jvm.java import ensure_java
from spu_assigner.stream.kafka.topic_admin import check_topics, create_topics
from spu_assigner.stream.run.demo import Play
from spu_assigner.stream.run.scenario import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """What is to be started."""

    settings: Settings
    home: Path | None  # of an embedded broker; None: the settings' broker
    spark_log: Path
    create_topics: bool
    demo_prefix: str | None  # None: no demonstration


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What has been started."""

    settings: Settings
    job: Job
    logs: Mapping[str, Path]  # by whose they are
    play: Play | None
    interrupts: Interrupts
    say: Callable[[str], None]  # with the time since the start


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreparedKafka:
    settings: Settings
    log: Path | None
    play: Play | None


@contextmanager
def launched(plan: LaunchPlan) -> Iterator[Running]:
    """Everything up, and down again at the end.

    Raises:
        AssignerError: something cannot be started, or does not fit together.
    """
    begun = time.monotonic()

    def say(what: str) -> None:
        click.echo(f"{time.monotonic() - begun:5.1f} s  {what}")

    with ExitStack() as stack:
        if plan.home is None:  # A missing broker or topic is known in an instant: before Spark.
            kafka = _prepare_kafka(plan, stack, say)
            spark, interrupts = _start_spark(plan, stack)
        else:
            with ThreadPoolExecutor(1) as executor:
                preparing = executor.submit(_prepare_kafka, plan, stack, say)
                spark, interrupts = _start_spark(plan, stack)
                kafka = preparing.result()
        say("Spark started")
        interrupts.check()
        job = start_query(spark, kafka.settings)
        stack.callback(_end, job.stop, interrupts)
        say("query started")
        interrupts.check()
        logs = {"Spark": plan.spark_log}
        if kafka.log is not None:
            logs["broker"] = kafka.log
        try:
            yield Running(
                settings=kafka.settings,
                job=job,
                logs=logs,
                play=kafka.play,
                interrupts=interrupts,
                say=say,
            )
        except SparkGoneError:
            interrupts.check()  # A signal to the whole group has ended the JVM too.
            raise


def _prepare_kafka(
    plan: LaunchPlan, stack: ExitStack, say: Callable[[str], None]
) -> _PreparedKafka:
    """Broker, topics, and the demonstration's messages."""
    settings, log, play = plan.settings, None, None
    if plan.home is not None:
        broker = stack.enter_context(EmbeddedBroker(plan.home / "broker"))
        log = broker.log_path
        settings = replace(settings, bootstrap_servers=broker.bootstrap_servers)
        say(f"Kafka broker at {broker.bootstrap_servers}")
    connection = settings.connection()
    if plan.create_topics:
        report = create_topics(connection.client(), prefix=connection.prefix)
        say(f"topics: {len(report.created)} made, {len(report.unchanged)} were there")
    if plan.home is None:
        check_topics(connection.client(), prefix=connection.prefix)
        refuse_foreign_early(settings)
    if plan.demo_prefix is not None:
        play = Play(connection, examples(plan.demo_prefix))
        say(f"scenario: {play.send()} messages sent to Kafka")
    return _PreparedKafka(settings=settings, log=log, play=play)


def _start_spark(plan: LaunchPlan, stack: ExitStack) -> tuple[SparkSession, Interrupts]:
    found = ensure_all(["spark-kafka", "spark-local"])
    jars = Jars(kafka=found["spark-kafka"], local=found["spark-local"])
    with _stderr_to(plan.spark_log):
        spark = build_session(plan.settings, java=ensure_java(), jars=jars)
    interrupts = Interrupts(lambda: _send_stderr_to(plan.spark_log))
    stack.callback(_end, spark.stop, interrupts)
    return spark, interrupts


def _end(stop: Callable[[], None], interrupts: Interrupts) -> None:
    """Stop something of Spark's.

    A signal to the whole group ends the JVM too, and then there is nothing to stop any more.
    """
    try:
        stop()
    except (Py4JError, OSError):
        if not interrupts.noted:
            raise


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Give processes that are started meanwhile a log for their standard error.

    Spark's Python workers print several lines for each batch, with no setting to stop them.
    """
    saved = os.dup(2)
    try:
        _send_stderr_to(log)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


def _send_stderr_to(log: Path) -> None:
    """From here on; what a JVM says while it is torn down is of no use on a terminal."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    sys.stderr.flush()
    with open_private(log) as file:
        os.dup2(file.fileno(), 2)
