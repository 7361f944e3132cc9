"""Keeping the archive of Spark's classes: the JVM of a demonstration writes it when it ends."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from spu_assigner.stream.local.jvm.build_cache import cache_home, locked, put_in_place, scratch
from spu_assigner.stream.local.jvm.java import Java
from spu_assigner.stream.local.jvm.spark_class_archive import ARCHIVE, SILENT, archive_folder

END_SECONDS_MAX: Final = 120.0  # of a JVM that writes its archive: 100 MB
ARCHIVES_MAX: Final = 4  # in the cache: each environment that is made anew needs another


@contextmanager
def written_at_end(
    java: Java, jars: Sequence[Path], report: Callable[[str], None]
) -> Iterator[list[str]]:
    """The options by which Spark's JVM, started in this block, writes the archive; none, where it
    is there, or cannot be kept. At the block's end the JVM ends: Spark is to be stopped before.
    """
    home, folder = cache_home(), archive_folder(java, jars)
    if folder.exists() or not os.access(home, os.W_OK):
        yield []
        return
    with scratch(home) as place:
        archive = place / "image" / ARCHIVE
        archive.parent.mkdir()
        try:
            yield [f"-XX:ArchiveClassesAtExit={archive}", *SILENT]
        finally:
            report("keeps an archive of Spark's classes: the next start takes half the time")
            _end_jvm()
            with locked(home):
                if archive.is_file() and not folder.exists():
                    put_in_place(archive.parent, folder)
            archives = sorted(folder.parent.iterdir(), key=lambda each: each.stat().st_mtime)
            for old in archives[:-ARCHIVES_MAX]:
                shutil.rmtree(old, ignore_errors=True)


def _end_jvm() -> None:
    """Have Spark's JVM end, and wait for that: it writes the archive last."""
    from pyspark import SparkContext

    process: Any = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.stdin.close()  # Its sign to end.
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS_MAX)
