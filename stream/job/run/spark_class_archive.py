"""What makes Spark's JVM start in half the time: an archive of its classes, made once, then cached.

Java's class data sharing: instead of reading, checking and laying out some 15,000 classes, the JVM
maps them as they were when another run ended. That run is a demonstration: the first one of an
environment, or one that set-up plays in a process of its own. An archive is valid for one Java and
one class path; a JVM of another ignores it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from spu_assigner.stream.local.jvm.build_cache import (
    CACHE_VARIABLE,
    cache_home,
    locked,
    put_in_place,
    scratch,
)
from spu_assigner.stream.local.jvm.java import Java
from spu_assigner.stream.local.jvm.spark_class_archive import ARCHIVE, SILENT, archive_folder

MAKE_SECONDS_MAX: Final = 300.0
END_SECONDS_MAX: Final = 120.0  # of a JVM that writes its archive: 100 MB
ARCHIVES_MAX: Final = 4  # in the cache: each environment that is made anew needs another
LOG: Final = "spark_class_archive.log"  # in the cache, of the last run
_DEMONSTRATION: Final = ("run", "--demo", "--once")


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


def ensure_spark_image(
    java: Java,
    jars: Sequence[Path],
    environ: Mapping[str, str] = os.environ,
    report: Callable[[str], None] = lambda message: None,
) -> bool:
    """Make the archive for this Java and these jars, in the order of the class path, unless it is
    there; half a minute. Without it the job works as well, so what fails here is reported and no
    error; it returns False then.
    """
    folder, log = archive_folder(java, jars, environ), cache_home(environ) / LOG
    if folder.exists():
        return True
    report("running the job once, so that Spark starts in half the time from now on (30 s)")
    log.parent.mkdir(parents=True, exist_ok=True)
    settings = ("KAFKA_", "SPU_ASSIGNER_")  # of a job of the user's
    kept = {
        name: value
        for name, value in environ.items()
        if name == CACHE_VARIABLE or not name.startswith(settings)
    }
    try:
        with log.open("wb") as output:
            subprocess.run(
                [sys.executable, "-m", "spu_assigner.stream.cli", *_DEMONSTRATION],
                stdout=output,
                stderr=output,
                env=kept,
                timeout=MAKE_SECONDS_MAX,
                check=True,
            )
        why = "the JVM has written none"
    except subprocess.SubprocessError as reason:
        why = str(reason)
    if not folder.exists():
        report(
            f"Spark starts without an archive of its classes ({why}); its log is {log}; "
            "`python -m spu_assigner.stream.setup` tries again"
        )
    return folder.exists()
