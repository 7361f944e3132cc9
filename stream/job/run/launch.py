"""Start broker, Spark and query, and end them.

What can be done at once is done at once: the embedded broker starts, and the scenario is sent,
while Spark is still starting.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from py4j.protocol import Py4JError
from spu_assigner.stream.common.interrupts import Interrupts
from spu_assigner.stream.common.private_files import open_private
from spu_assigner.stream.job.faults import SparkGoneError
from spu_assigner.stream.job.lifecycle import Job, start_query
from spu_assigner.stream.job.run.demo import Play
from spu_assigner.stream.job.run.scenario import examples
from spu_assigner.stream.job.session import build_session, ensure_jars
from spu_assigner.stream.job.start_checks import check_early
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.broker.embedded import DEFAULT_PORT, EmbeddedBroker
from spu_assigner.stream.local.jvm.java import ensure_java

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
    short_lived: bool = False  # it ends with the demonstration


@dataclass(slots=True, kw_only=True)
class Running:
    """What has been started."""

    settings: Settings
    logs: dict[str, Path]  # by whose they are
    say: Callable[[str], None]  # with the time since the start
    job: Job = field(init=False)
    interrupts: Interrupts = field(init=False)
    play: Play | None = None


@contextmanager
def launched(plan: LaunchPlan) -> Iterator[Running]:
    """Everything up, and down again at the end.

    Raises:
        AssignerError: something cannot be started, or does not fit together.
    """
    begun = time.monotonic()

    def say(what: str) -> None:
        click.echo(f"{time.monotonic() - begun:5.1f} s  {what}")

    running = Running(settings=plan.settings, logs={"Spark": plan.spark_log}, say=say)
    with ExitStack() as stack:
        if plan.home is None:  # A missing broker or topic is known in an instant: before Spark.
            _prepare_kafka(plan, running, stack)
            spark = _start_spark(plan, running, stack)
        else:
            with ThreadPoolExecutor(1) as executor:
                preparing = executor.submit(_prepare_kafka, plan, running, stack)
                spark = _start_spark(plan, running, stack)
                preparing.result()
        say("Spark started")
        running.interrupts.check()
        running.job = start_query(spark, running.settings)
        stack.callback(_end, running.job.stop, running.interrupts)
        say("query started")
        running.interrupts.check()
        try:
            yield running
        except SparkGoneError:
            running.interrupts.check()  # A signal to the whole group has ended the JVM too.
            raise


def _prepare_kafka(plan: LaunchPlan, running: Running, stack: ExitStack) -> None:
    """Broker, topics, and the demonstration's messages."""
    if plan.home is not None:
        broker = stack.enter_context(
            EmbeddedBroker(plan.home / "broker", preferred_port=DEFAULT_PORT)
        )
        running.logs["broker"] = broker.log_path
        running.settings = replace(plan.settings, bootstrap_servers=broker.bootstrap_servers)
        running.say(f"Kafka broker at {broker.bootstrap_servers}")
    connection = running.settings.connection()
    if plan.create_topics:
        report = create_topics(connection.client(), prefix=connection.prefix)
        running.say(f"topics: {len(report.created)} created, {len(report.unchanged)} were there")
    if plan.home is None:
        check_early(running.settings)
    if plan.demo_prefix is not None:
        running.play = Play(connection, examples(plan.demo_prefix))
        running.say(f"scenario: {running.play.send()} messages sent to Kafka")


def _start_spark(plan: LaunchPlan, running: Running, stack: ExitStack) -> SparkSession:
    jars = ensure_jars(plan.settings.checkpoint)
    with _stderr_to(plan.spark_log):
        spark = build_session(
            plan.settings, java=ensure_java(), jars=jars, short_lived=plan.short_lived
        )
    running.interrupts = Interrupts(lambda: _send_stderr_to(plan.spark_log))
    stack.callback(_end, spark.stop, running.interrupts)
    return spark


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
    """Give processes that are started meanwhile a log for their standard error."""
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
