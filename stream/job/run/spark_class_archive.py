"""What makes Spark's JVM start in half the time: an archive of its classes, made once, then cached.

Java's class data sharing: instead of reading, checking and laying out some 15,000 classes, the JVM
maps them as they were when another run ended. That run is the demonstration, in a process of its
own. An archive is valid for one Java and one class path; a JVM of another ignores it.

It is made by `make setup`, since it takes longer than it saves at one start.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from spu_assigner.stream.local.jvm.build_cache import cache_home, made_once
from spu_assigner.stream.local.jvm.java import Java
from spu_assigner.stream.local.jvm.spark_class_archive import ARCHIVE, archive_folder

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
    """Make the archive for this Java and these jars, in the order of the class path, unless it is
    there; half a minute. Without it the job works as well, so what fails here is reported and no
    error; it returns False then.
    """
    folder, log = archive_folder(java, jars, environ), cache_home(environ) / LOG

    def make(scratch: Path) -> Path:
        report("running the job once, so that Spark starts in half the time from now on (30 s)")
        archive = scratch / "image" / ARCHIVE
        archive.parent.mkdir()
        log.unlink(missing_ok=True)
        with log.open("ab") as output:
            subprocess.run(
                [sys.executable, "-m", __name__, str(log), str(archive)],
                stdout=output,
                stderr=output,
                env=environ,
                timeout=MAKE_SECONDS_MAX,
                check=True,
            )
        return archive.parent

    if folder.exists():
        return True
    try:
        made_once(cache_home(environ), folder, make)
    except subprocess.SubprocessError as reason:
        report(
            f"Spark starts without an archive of its classes ({reason}); its log is {log}; "
            "`python -m spu_assigner.stream.setup` tries again"
        )
        return False
    archives = sorted(folder.parent.iterdir(), key=lambda each: each.stat().st_mtime)
    for old in archives[:-ARCHIVES_MAX]:
        shutil.rmtree(old, ignore_errors=True)
    return True


def _make(log: Path, archive: Path) -> None:
    """Play the demonstration; the JVM writes the archive when it ends."""
    from pyspark import SparkContext
    from spu_assigner.stream.job.run.command import finish_demo
    from spu_assigner.stream.job.run.launch import Launch
    from spu_assigner.stream.kafka.config.settings import Settings

    with tempfile.TemporaryDirectory(prefix="spu-assigner-image-") as folder:
        flags = {"checkpoint": f"{folder}/checkpoint", "shards": "2"}
        launch = Launch(
            settings=Settings.load(flags=flags, environ={}),
            home=Path(folder),
            spark_log=log,
            create_topics=True,
            demo_prefix="",
            short_lived=False,
            jvm_options=[f"-XX:ArchiveClassesAtExit={archive}"],
        )
        with launch.up():
            finish_demo(launch)
        process: Any = SparkContext._gateway.proc  # type: ignore[union-attr]  # made by `launch`
        process.stdin.close()  # Its sign to end.
        process.wait(END_SECONDS_MAX)
    if not archive.is_file():
        sys.exit("the JVM has written no archive")


if __name__ == "__main__":
    _make(*map(Path, sys.argv[1:]))
