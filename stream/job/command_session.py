"""A Spark session for a command that only looks at a checkpoint's files, or writes some."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, TYPE_CHECKING

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.config.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SessionError(AssignerError):
    """Spark could not be started."""


@contextmanager
def command_session(
    given: SparkSession | None, place: str, *, application: str
) -> Iterator[SparkSession]:
    """The given session, else the active one, else one of its own that ends with the block.

    Raises:
        SessionError: it could not be started.
        JavaError, JarError: what Spark needs cannot be had.
    """
    from pyspark.sql import SparkSession

    base = given or SparkSession.getActiveSession()
    if base is not None:
        yield base
        return
    own = _start_session(place, application)
    try:
        yield own
    finally:
        own.stop()


def _start_session(place: str, application: str) -> SparkSession:
    from spu_assigner.stream.job.lifecycle import Jars, build_session
    from spu_assigner.stream.jvm.jars import ensure
    from spu_assigner.stream.jvm.java import ensure_java

    flags = {"checkpoint": place, "ui_port": "0", "query_name": application}
    settings = Settings.load(flags=flags)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM, with its jars.
        return build_session(settings, java=None, jars=None)
    java, jars = ensure_java(), Jars(kafka=(), local=ensure("spark-local"))
    with _stderr_kept() as said:
        try:
            # Here, whatever master the job has: what is read goes to this process alone.
            settings = replace(settings, master="local[*]")
            return build_session(settings, java=java, jars=jars)
        except Exception as reason:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
            told = lines[-1] if lines else str(reason)
            raise SessionError(f"Spark could not be started: {told}") from reason


@contextmanager
def _stderr_kept() -> Iterator[IO[bytes]]:
    """Give a JVM that is started meanwhile a file for what it says; it has no other silence."""
    saved = os.dup(2)
    sys.stderr.flush()
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield said
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
