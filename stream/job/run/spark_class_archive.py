"""What makes Spark's JVM start in half the time: an archive of its classes, made once, then cached.

Java's class data sharing: instead of reading, checking and laying out some 15,000 classes, the JVM
maps them as they were when another run ended. That run is a short real one: broker, job and the
bundled scenario. An archive is valid for one Java and one class path; a JVM of another ignores it.

It is made by `make setup`, since it takes longer than it saves at one start. Whatever the run that
makes it has started, broker, JVM and shard servers, ends with it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spu_assigner.stream.common.child_processes import run_to_end
from spu_assigner.stream.local.jvm.build_cache import cache_home, made_once
from spu_assigner.stream.local.jvm.java import Java
from spu_assigner.stream.local.jvm.spark_class_archive import ARCHIVE, archive_folder

if TYPE_CHECKING:
    from spu_assigner.stream.job.lifecycle import Job

MAKE_SECONDS_MAX: Final = 300.0
END_SECONDS_MAX: Final = 120.0  # of a JVM that writes its archive: 100 MB
ARCHIVES_MAX: Final = 4  # in the cache: each environment that is made anew needs another
LOG: Final = "spark_class_archive.log"  # in the cache, of the last run


def ensure_spark_image(
    java: Java,
    jars: Sequence[Path],
    environ: Mapping[str, str] | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> bool:
    """Make the archive for this Java and these jars unless it is there; half a minute.

    Without it the job works as well, so what fails here is reported and no error; it returns False
    where another attempt may make it. The broker's data folder must be formatted
    (`broker.prepare`): that waits for the lock that is held here.

    Args:
        jars: what Spark is given besides its own, in the order of its class path.
        environ: the environment to find the cache with; this process's by default.
        report: is called when it has to be made, and with why it could not be.
    """
    folder = archive_folder(java, jars, environ)

    def make(scratch: Path) -> Path:
        report("running the job once, so that Spark starts in half the time from now on (30 s)")
        archive = scratch / "image" / ARCHIVE
        archive.parent.mkdir()
        _run(archive, environ)
        return archive.parent

    if folder.exists():
        return True
    if not _has_own_archive(java):
        report(
            "Spark starts without an archive of its classes: this Java has no archive of its own "
            f"classes, on which others are built; `{java.executable} -Xshare:dump` makes it"
        )
        return True
    try:
        made_once(cache_home(environ), folder, make)
    except subprocess.SubprocessError as reason:
        report(f"Spark starts without an archive of its classes: {reason}")
        return False
    archives = sorted(folder.parent.iterdir(), key=lambda each: each.stat().st_mtime)
    for old in archives[:-ARCHIVES_MAX]:
        shutil.rmtree(old, ignore_errors=True)
    return True


def _has_own_archive(java: Java) -> bool:
    """A Java that was put together by jlink has none."""
    command = [str(java.executable), "-Xshare:on", "-version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(archive: Path, environ: Mapping[str, str] | None) -> None:
    """Make it in a process of its own."""
    module = "spu_assigner.stream.job.run.spark_class_archive"
    log = cache_home(environ) / LOG
    try:
        with log.open("wb") as output:
            status = run_to_end(
                [sys.executable, "-m", module, str(archive)],
                output=output,
                seconds_max=MAKE_SECONDS_MAX,
                environ=environ,
            )
    except subprocess.TimeoutExpired as reason:
        raise subprocess.SubprocessError(
            f"the run that makes it did not end within {MAKE_SECONDS_MAX:.0f} s and was ended; "
            "when the machine has less to do, `python -m spu_assigner.stream.setup` tries again; "
            f"its log is {log}"
        ) from reason
    if status != 0 or not archive.is_file():
        raise subprocess.SubprocessError(
            f"the run that makes it ended with status {status}; its log is {log}"
        )


def _make(archive: Path) -> None:
    """A short life of broker and job; the JVM writes the archive when it ends."""
    from pyspark import SparkContext
    from spu_assigner.stream.job.lifecycle import start
    from spu_assigner.stream.job.run.demo import Play
    from spu_assigner.stream.job.run.scenario import examples
    from spu_assigner.stream.kafka.config.settings import Settings
    from spu_assigner.stream.kafka.topic_admin import create_topics
    from spu_assigner.stream.local.broker.embedded import EmbeddedBroker

    with tempfile.TemporaryDirectory(prefix="spu-assigner-image-") as folder:
        with EmbeddedBroker() as broker:
            flags = {
                "bootstrap_servers": broker.bootstrap_servers,
                "checkpoint": f"{folder}/checkpoint",
                "shards": "2",
            }
            settings = Settings.load(flags=flags, environ={})
            create_topics(settings.connection().client())
            with start(settings, jvm_options=[f"-XX:ArchiveClassesAtExit={archive}"]) as job:
                play = Play(settings.connection(), examples())
                play.send()
                play.gather(lambda: _require_active(job))
        process: Any = SparkContext._gateway.proc  # type: ignore[union-attr]  # made by `start`
        process.stdin.close()  # Its sign to end.
        process.wait(END_SECONDS_MAX)


def _require_active(job: Job) -> None:
    if not job.query.isActive:
        job.await_termination()  # raises why


if __name__ == "__main__":
    _make(Path(sys.argv[1]))
