"""What makes Spark's JVM start in half the time: an archive of its classes, made once, then cached.

Java's class data sharing: instead of reading, checking and laying out some 15,000 classes, the JVM
maps them as they were when another run ended. That run is a demonstration: the first one on a
machine, or one that set-up plays in a process of its own. An archive is valid for one Java and one
class path; a JVM of another ignores it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from spu_assigner.stream.local.jvm.build_cache import cache_home
from spu_assigner.stream.local.jvm.java import Java
from spu_assigner.stream.local.jvm.spark_class_archive import archive_folder

MAKE_SECONDS_MAX: Final = 300.0
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
    if folder.exists():
        return True
    report("running the job once, so that Spark starts in half the time from now on (30 s)")
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("wb") as output:
            subprocess.run(
                [sys.executable, "-m", __name__, str(log)],
                stdout=output,
                stderr=output,
                env=environ,
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


def _make(log: Path) -> None:
    """Play the demonstration, which keeps the archive."""
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
        )
        with launch.up():
            finish_demo(launch)


if __name__ == "__main__":
    _make(Path(sys.argv[1]))
