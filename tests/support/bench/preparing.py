"""What neighbours stand on and the project does not: made once, kept in the project's cache.

Jars come as the product's own do (`stream/local/jvm/jars.py`), Python packages from a lock with
hashes into a virtual environment of their own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from spu_assigner.stream.local.jvm.build_cache import cache_home, locked
from spu_assigner.stream.local.jvm.jars import ensure
from spu_assigner.stream.local.jvm.java import Java

JAVA_RELEASE: Final = "17"  # the oldest that the project runs on
_DONE: Final = "done"  # a file in a folder that is whole
_SECONDS_MAX: Final = 900.0


class CannotRunError(Exception):
    """What a contestant needs cannot be had on this machine; the message says what and why."""


def compiled(source: Path, java: Java) -> tuple[Path, list[Path]]:
    """A Java program's classes, and the jars of Kafka Streams that it stands on.

    Raises:
        CannotRunError: there is no compiler, or it refuses the program.
        AssignerError: the jars cannot be had.
    """
    jars = ensure("kafka-streams")
    javac = compiler_of(java)
    content = [source.read_bytes(), *(str(jar).encode() for jar in jars)]
    with _made("streams", content) as folder:
        if folder is not None:
            path = os.pathsep.join(map(str, jars))
            _run([javac, "--release", JAVA_RELEASE, "-cp", path, "-d", folder, source])
    return _folder("streams", content), jars


def compiler_of(java: Java) -> Path:
    """The compiler of the Java that runs it, else any; a packaged Java has none."""
    own = java.home / "bin" / "javac"
    found = own if own.exists() else shutil.which("javac")
    if found is None:
        raise CannotRunError(
            f"no javac beside {java.executable} or on the PATH; install a JDK, {JAVA_RELEASE} or 21"
        )
    return Path(found)


def environment(lock: Path) -> Path:
    """The interpreter of a virtual environment that holds what is locked.

    Raises:
        CannotRunError: it cannot be made.
    """
    content = _environment_content(lock)
    with _made(lock.stem, content) as folder:
        if folder is not None:
            _run([sys.executable, "-m", "venv", folder])
            pip = [folder / "bin" / "python", "-m", "pip", "--no-input", "install", "--quiet"]
            _run([*pip, "--require-hashes", "--requirement", lock])
    return _folder(lock.stem, content) / "bin" / "python"


def _environment_content(lock: Path) -> list[bytes]:
    return [lock.read_bytes(), sys.version.encode()]


def _folder(name: str, content: Sequence[bytes]) -> Path:
    key = hashlib.sha256(b"\n".join(content)).hexdigest()[:12]
    return cache_home() / "neighbours" / f"{name}-{key}"


@contextmanager
def _made(name: str, content: Sequence[bytes]) -> Iterator[Path | None]:
    """The empty folder to be filled in the block, None if that was done before."""
    folder = _folder(name, content)
    if (folder / _DONE).exists():
        yield None
        return
    with locked(cache_home()):
        if (folder / _DONE).exists():  # Another process has made it while this one waited.
            yield None
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield folder
        (folder / _DONE).touch()


def _run(command: Sequence[str | Path]) -> None:
    try:
        done = subprocess.run(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as reason:
        raise CannotRunError(f"{command[0]} took longer than {_SECONDS_MAX:.0f} s") from reason
    if done.returncode:
        last_line = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[
            -1
        ]
        raise CannotRunError(f"{Path(command[0]).name} ended with {done.returncode}: {last_line}")
