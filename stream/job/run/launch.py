"""Start broker, Spark and query, and end them.

What can be done at once is done at once: the embedded broker starts, the scenario is sent, and what
the query needs is imported, while Spark is still starting.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

import click
from py4j.protocol import Py4JError
from spu_assigner.stream.common.interrupts import Interrupts
from spu_assigner.stream.common.private_files import open_private
from spu_assigner.stream.job.faults import SparkGoneError
from spu_assigner.stream.job.run.spark_class_archive import written_at_end
from spu_assigner.stream.job.session import build_session, ensure_jars, stderr_to
from spu_assigner.stream.job.start_checks import check_early
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.broker.embedded import DEFAULT_PORT, EmbeddedBroker
from spu_assigner.stream.local.jvm.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from spu_assigner.stream.job.lifecycle import Job
    from spu_assigner.stream.job.run.demo import Play

_LIFECYCLE: Final = "spu_assigner.stream.job.lifecycle"


@dataclass(slots=True, kw_only=True)
class Launch:
    """What is to be started, and what has been."""

    settings: Settings
    home: Path | None  # of an embedded broker; None: the settings' broker
    spark_log: Path
    create_topics: bool
    demo_prefix: str | None  # None: no demonstration
    short_lived: bool  # it ends with the demonstration
    broker_log: Path | None = None
    job: Job = field(init=False)
    interrupts: Interrupts = field(init=False)
    play: Play | None = None
    begun: float = field(default_factory=time.monotonic)

    def say(self, what: str) -> None:
        """Print a line with the time since the start."""
        click.echo(f"{time.monotonic() - self.begun:5.1f} s  {what}")

    @contextmanager
    def up(self) -> Iterator[None]:
        """Everything up, and down again at the end."""
        with ExitStack() as stack:
            if self.home is None:  # A missing broker or topic is known in an instant: before Spark.
                self._prepare_kafka(stack)
                spark = self._start_spark(stack)
            else:
                with ThreadPoolExecutor(1) as executor:
                    preparing = executor.submit(self._prepare_kafka, stack)
                    spark = self._start_spark(stack)
                    preparing.result()
            self.say("Spark started")
            self.interrupts.check()
            from spu_assigner.stream.job.lifecycle import start_query

            self.job = start_query(spark, self.settings)
            stack.callback(_end, self.job.stop, self.interrupts)
            self.say("query started")
            self.interrupts.check()
            try:
                yield
            except SparkGoneError:
                self.interrupts.check()  # A signal to the whole group has ended the JVM too.
                raise

    def _prepare_kafka(self, stack: ExitStack) -> None:
        """Broker, topics, and the demonstration's messages."""
        if self.home is not None:
            broker = EmbeddedBroker(self.home / "broker", preferred_port=DEFAULT_PORT)
            servers = stack.enter_context(broker).bootstrap_servers
            self.broker_log = broker.log_path
            self.settings = replace(self.settings, bootstrap_servers=servers)
            self.say(f"Kafka broker at {servers}")
        connection = self.settings.connection()
        if self.create_topics:
            made = create_topics(connection.client(), prefix=connection.prefix)
            self.say(f"topics: {len(made.created)} created, {len(made.unchanged)} were there")
        if self.home is None:
            check_early(self.settings)
        if self.demo_prefix is not None:
            from spu_assigner.stream.job.run.demo import Play, examples

            self.play = Play(connection, examples(self.demo_prefix))
            self.say(f"scenario: {self.play.send()} messages sent to Kafka")

    def _start_spark(self, stack: ExitStack) -> SparkSession:
        import pyspark.sql  # noqa: F401  # first: Spark's JVM is started with it

        Thread(target=import_module, args=(_LIFECYCLE,), daemon=True).start()
        settings = self.settings
        java, jars = ensure_java(), ensure_jars(settings.checkpoint)
        options: list[str] = []
        if self.demo_prefix is not None:
            options = stack.enter_context(written_at_end(java, jars["spark-local"], self.say))
        self.spark_log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_private(self.spark_log) as log, stderr_to(log):
            spark = build_session(
                settings,
                java=java,
                jars=jars,
                jvm_options=options or None,
                short_lived=self.short_lived,
            )
        self.interrupts = Interrupts(lambda: _send_stderr_to(self.spark_log))
        stack.callback(_end, spark.stop, self.interrupts)
        return spark


def _end(stop: Callable[[], None], interrupts: Interrupts) -> None:
    """Stop something of Spark's. A signal to the whole group ends the JVM too, and then there is
    nothing to stop any more."""
    try:
        stop()
    except (Py4JError, OSError):
        if not interrupts.noted:
            raise


def _send_stderr_to(log: Path) -> None:
    """From here on; what a JVM says while it is torn down is of no use on a terminal."""
    sys.stderr.flush()
    with open_private(log) as file:
        os.dup2(file.fileno(), 2)
