"""What makes Spark's JVM start in half the time: an archive of its classes, made once, then cached.

Java's class data sharing: instead of reading, checking and laying out some 15,000 classes, the JVM
maps them as they were when another run ended. That run is a short real one: broker, job and the
bundled scenario. An archive is valid for one Java and one class path; a JVM of another ignores it.

It is made by `make setup`, since it takes longer than it saves at one start. Whatever the run that
makes it has started, broker, JVM and shard servers, ends with it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.common.child_processes import run_to_end
from spu_assigner.stream.local.jvm.build_cache import cache_home, locked, put_in_place, scratch
from spu_assigner.stream.local.jvm.java import Java
from spu_assigner.stream.local.jvm.spark_class_archive import (
    ARCHIVE,
    archive_folder,
    package_key,
    pyspark_folder,
)

if TYPE_CHECKING:
    from spu_assigner.stream.job.lifecycle import Job

MAKE_SECONDS_MAX: Final = 300.0
END_SECONDS_MAX: Final = 120.0  # of a JVM that writes its archive: 100 MB
PROBE_SECONDS_MAX: Final = 20.0  # a JVM prints its version in 0.1 s
LOG: Final = "spark_class_archive.log"  # in the cache, of the last run that made none
PACKAGE_NOTE: Final = "pyspark-folder"  # names the folder that the archive is of, and its jars
_WITHOUT: Final = "Spark starts without an archive of its classes"
_MARK: Final = "spark_image: "  # before the reason that the run gives itself
_OWN: Final = re.compile(rf"^{_MARK}(.+)$", re.MULTILINE)
_RAISED: Final = re.compile(r"^Traceback .*\n(?:[ \t].*\n)+(\S.*)$", re.MULTILINE)
_OF_JVM: Final = re.compile(r"\[(?:warning|error) *\]\[cds[^]]*\] *(.+)$", re.MULTILINE)


def ensure_spark_image(
    java: Java,
    jars: Sequence[Path],
    environ: Mapping[str, str] | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> bool:
    """Make the archive for this Java and these jars unless it is there; half a minute.

    Without it the job works as well, so what fails here is reported and no error; it returns False
    where another attempt may make it. The broker's image must be there (`broker.prepare`): making
    it waits for the lock that is held here.

    Args:
        jars: what Spark is given besides its own, in the order of its class path.
        environ: the environment to find the cache with; this process's by default.
        report: is called when it has to be made, and with why it could not be.
    """
    home, folder = cache_home(environ), archive_folder(java, jars, environ)
    if folder.is_dir():
        return True
    with locked(home):
        if folder.is_dir():  # Another process may have made it while this one waited.
            return True
        _remove_orphans(folder.parent)
        if problem := _unable(java):
            report(f"{_WITHOUT}: {problem}")
            return True
        report("running the job once, so that Spark starts in half the time from now on (30 s)")
        with scratch(home) as made:
            archive = made / "image" / ARCHIVE
            archive.parent.mkdir()
            if problem := _run(archive, home / LOG, environ):
                report(f"{_WITHOUT}: {problem}; its log is {home / LOG}")
                return False
            (home / LOG).unlink()
            note = archive.parent / PACKAGE_NOTE
            note.write_text("\n".join(package_key(pyspark_folder())), encoding="utf-8")
            put_in_place(archive.parent, folder)
    return True


def _remove_orphans(images: Path) -> None:
    """Archives of environments that are gone or were recreated; each takes 100 MB."""
    for image in images.iterdir() if images.is_dir() else ():
        note = image / PACKAGE_NOTE
        if not note.is_file():
            continue
        package, *jars = note.read_text(encoding="utf-8").splitlines()
        if [package, *jars] != package_key(Path(package)):
            for path in (image / ARCHIVE, note):
                path.unlink(missing_ok=True)
            image.rmdir()


def _run(archive: Path, log: Path, environ: Mapping[str, str] | None) -> str | None:
    """Make it in a process of its own; None, or what went wrong."""
    module = "spu_assigner.stream.job.run.spark_class_archive"
    try:
        with log.open("wb") as output:
            status = run_to_end(
                [sys.executable, "-m", module, str(archive)],
                output=output,
                seconds_max=MAKE_SECONDS_MAX,
                environ=environ,
            )
    except subprocess.TimeoutExpired:
        return (
            f"the run that makes it did not end within {MAKE_SECONDS_MAX:.0f} s and was ended; "
            "when the machine has less to do, `python -m spu_assigner.stream.setup` tries again"
        )
    except OSError as reason:
        return str(reason)
    if status == 0 and archive.is_file():
        return None
    said = log.read_text(encoding="utf-8", errors="replace")
    return cause_in(said) or f"the run that makes it ended with status {status}"


def cause_in(log: str) -> str | None:
    """Why the run made no archive: our own word, else an exception's, else the JVM's.

    The end of a log is no cause: Spark still logs while it is being stopped.
    """
    for pattern in (_OWN, _RAISED, _OF_JVM):
        if found := pattern.findall(log):
            return str(found[-1]).strip()
    return None


def _unable(java: Java) -> str | None:
    """Why this Java can make no archive at all; None: it can."""
    command = [str(java.executable), "-Xshare:on", "-version"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as reason:
        return f"{java.executable} does not run ({reason})"
    if done.returncode == 0:
        return None
    return (
        "this Java has no archive of its own classes, on which others are built; "
        f"`{java.executable} -Xshare:dump` makes it"
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


def main() -> int:
    """`python -m spu_assigner.stream.job.run.spark_class_archive ARCHIVE`; its exit status."""
    try:
        _make(Path(sys.argv[1]))
    except AssignerError as reason:
        print(f"{_MARK}{reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
