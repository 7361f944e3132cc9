"""What makes Spark's JVM start in half the time: an archive of its classes, made once, then cached.

Java's class data sharing: instead of reading, checking and laying out some 15,000 classes anew, the
JVM maps them as they were when another run ended. That run is a short real one: broker, job and the
bundled scenario. An archive is valid for one Java and one class path; a JVM that finds it is of
another does without.

It is made by `make setup`, since it takes longer than it saves at one start.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spu_assigner.core.errors import AssignerError
from spu_assigner.stream.cache import cache_home, class_path_key, locked, put_in_place, scratch
from spu_assigner.stream.java import Java

if TYPE_CHECKING:
    from spu_assigner.stream.job import Job

MAKE_SECONDS_MAX: Final = 300.0
END_SECONDS_MAX: Final = 120.0  # of a JVM that writes its archive: 100 MB
PROBE_SECONDS_MAX: Final = 20.0  # a JVM prints its version in 0.1 s
_ARCHIVE: Final = "classes.jsa"
_PACKAGE: Final = "pyspark-folder"  # names the folder that the archive is of, and its jars
_REVISION: Final = 2  # counted up when an archive's making changes
_WITHOUT: Final = "Spark starts without an archive of its classes"
_MARK: Final = "spark_image: "  # before the reason that the run gives itself
_OWN: Final = re.compile(rf"^{_MARK}(.+)$", re.MULTILINE)
_RAISED: Final = re.compile(r"^Traceback .*\n(?:[ \t].*\n)+(\S.*)$", re.MULTILINE)
_OF_JVM: Final = re.compile(r"\[(?:warning|error) *\]\[cds[^]]*\] *(.+)$", re.MULTILINE)


def jvm_options(
    java: Java, jars: Sequence[Path], environ: Mapping[str, str] | None = None
) -> list[str]:
    """What lets a JVM use the archive; nothing, where none was made."""
    archive = _folder(java, jars, environ) / _ARCHIVE
    if not archive.exists():
        return []
    # An archive that does not fit is none; the JVM would tell of it on the job's standard output.
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds*=off"]


def ensure_spark_image(
    java: Java,
    jars: Sequence[Path],
    environ: Mapping[str, str] | None = None,
    tell: Callable[[str], None] = lambda message: None,
) -> None:
    """Make the archive for this Java and these jars unless it is there; half a minute.

    Without it the job works as well, so what fails here is reported and no error. The broker's
    image must be there (`broker.prepare`): who makes it waits for the lock that is held here.

    Args:
        jars: what Spark is given besides its own, in the order of its class path.
        environ: the environment to find the cache with; this process's by default.
        tell: is told that it has to be made, and why it could not be.
    """
    home, folder = cache_home(environ), _folder(java, jars, environ)
    if folder.is_dir():
        return
    with locked(home):
        if folder.is_dir():  # Another process may have made it while this one waited.
            return
        _remove_orphans(folder.parent)
        if problem := _unable(java):
            tell(f"{_WITHOUT}: {problem}")
            return
        tell("running the job once, so that Spark starts in half the time from now on (30 s)")
        with scratch(home) as made:
            archive = made / "image" / _ARCHIVE
            archive.parent.mkdir()
            if problem := _run(archive, made / "log", environ):
                tell(f"{_WITHOUT}: {problem}")
                return
            note = archive.parent / _PACKAGE
            note.write_text("\n".join(_package_key(_package())), encoding="utf-8")
            put_in_place(archive.parent, folder)


def _folder(java: Java, jars: Sequence[Path], environ: Mapping[str, str] | None) -> Path:
    try:
        release = (java.home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    parts = [str(_REVISION), str(java.home), release, version("pyspark")]
    parts += [*_package_key(_package()), *class_path_key(jars)]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache_home(environ) / "spark" / key


def _package() -> Path:
    """PySpark's folder, whose jars come first on the class path."""
    spec = find_spec("pyspark")
    return Path() if spec is None or spec.origin is None else Path(spec.origin).parent


def _package_key(package: Path) -> list[str]:
    return [str(package), *class_path_key(sorted((package / "jars").glob("*.jar")))]


def _remove_orphans(images: Path) -> None:
    """Archives of environments that are gone or were made anew; each takes 100 MB."""
    for image in images.iterdir() if images.is_dir() else ():
        note = image / _PACKAGE
        if not note.is_file():
            continue
        package, *jars = note.read_text(encoding="utf-8").splitlines()
        if [package, *jars] != _package_key(Path(package)):
            for path in (image / _ARCHIVE, note):
                path.unlink(missing_ok=True)
            image.rmdir()


def _run(archive: Path, log: Path, environ: Mapping[str, str] | None) -> str | None:
    """Make it in a process of its own; None, or what went wrong."""
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "spu_assigner.stream.spark_image", str(archive)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if environ is None else dict(environ),
                timeout=MAKE_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"the run that makes it did not end within {MAKE_SECONDS_MAX:.0f} s"
        except OSError as reason:
            return str(reason)
    if done.returncode == 0 and archive.is_file():
        return None
    said = log.read_text(encoding="utf-8", errors="replace")
    return cause_in(said) or f"the run that makes it ended with status {done.returncode}"


def cause_in(log: str) -> str | None:
    """Why the run made no archive: our own word, else an exception's, else the JVM's.

    The end of a log is no cause: Spark goes on to report while it is being stopped.
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
    from spu_assigner.stream.broker import EmbeddedBroker
    from spu_assigner.stream.demo import Play
    from spu_assigner.stream.job import start
    from spu_assigner.stream.scenario import examples
    from spu_assigner.stream.settings import Settings
    from spu_assigner.stream.topics import create_topics

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
        job.await_termination()  # tells why


def main() -> int:
    """The command `python -m spu_assigner.stream.spark_image ARCHIVE`; its exit status."""
    try:
        _make(Path(sys.argv[1]))
    except AssignerError as reason:
        print(f"{_MARK}{reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
