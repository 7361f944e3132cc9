"""Which process a checkpoint belongs to, noted in the checkpoint itself.

Two jobs of one query share its checkpoint, and Kafka reports to the older one that it is fenced
only when it sends. An idle one would plan the next batch first and write it where its successor is
to write its own. So each job notes its start, and looks whether a later one did.

    .owners/<number>-<run>.starting    a process that is about to take the transactional id
    .owners/<number>-<run>             the process that took it

Rules:
- A number is higher than all that were there when its note was written; of two processes that
  choose the same one, the one that sees the other's chooses again.
- Whoever starts waits until lower ones that are starting have taken the id or given up, and takes
  it then. So ids are taken in the order of the numbers, and a higher number that took it proves
  that Kafka has shut the lower ones out.
- Kafka is the authority, and is asked too (`transactional_id.py`). Where these notes cannot be
  read, or are missing, they shut no process out. They are removed by the next one that starts.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JError
from spu_assigner.stream.job.checkpoint.files import (
    CheckpointError,
    Files,
    LocalFiles,
    SparkFiles,
    is_local,
)
from spu_assigner.stream.job.marker_check import FencedError

FOLDER: Final = ".owners"  # hidden: a checkpoint that was never run on has nothing else of a job's
LOOK_SECONDS: Final = 1.0  # between looks at a folder of this machine: some 20 µs each
REMOTE_LOOK_SECONDS: Final = 5.0  # elsewhere a look is a request
STARTING_SECONDS_MAX: Final = 30.0  # as long as Kafka is waited for; one that was killed stays
_PAUSE_SECONDS: Final = 0.05
_CHOICES_MAX: Final = 100  # of a number; others choose at the same time
_STARTING: Final = ".starting"
_NAME: Final = re.compile(r"(\d{1,18})-([0-9a-f]{32})(\.starting)?")


class _Note(NamedTuple):
    number: int
    name: str
    is_own: bool
    is_starting: bool


class Ownership:
    """One process's notes in one checkpoint."""

    def __init__(self, files: Files, checkpoint: str, *, query: str) -> None:
        self._files = files
        self._folder = f"{checkpoint}/{FOLDER}"
        self._query = query
        self._run = uuid.uuid4().hex
        self._number: int | None = None  # None: the id was not taken yet

    @property
    def look_seconds(self) -> float:
        """How long to wait between two looks."""
        return LOOK_SECONDS if isinstance(self._files, LocalFiles) else REMOTE_LOOK_SECONDS

    def take(self, take_id: Callable[[], None]) -> None:
        """Become the owner by `take_id`, again where this process was it; or raise FencedError."""
        self._require_none_after(self._number)
        number = self._choose()
        try:
            self._await_lower(number)
            self._require_none_after(self._number)
            take_id()
            self._require_none_after(number)
            self._write(f"{number}-{self._run}")
        finally:
            self._remove(f"{number}-{self._run}{_STARTING}")
        self._number = number
        for other in self._notes():
            if other.number < number:
                self._remove(other.name)

    def check(self) -> None:
        """Raise FencedError if a later process is the owner, as far as the notes can be read."""
        with suppress(OSError, Py4JError):
            self._require_none_after(self._number)

    def _choose(self) -> int:
        """Write a note of a number that is higher than all others."""
        for _ in range(_CHOICES_MAX):
            number = max((each.number for each in self._notes()), default=0) + 1
            name = f"{number}-{self._run}{_STARTING}"
            self._write(name)
            if all(each.number < number for each in self._notes() if not each.is_own):
                return number
            self._remove(name)
            time.sleep(_PAUSE_SECONDS * os.urandom(1)[0] / 256)  # Not all at the same time again.
        raise CheckpointError(
            f"{_CHOICES_MAX} times another process started on {self._folder} at the same moment; "
            "start one"
        )

    def _await_lower(self, number: int) -> None:
        """Wait until those that began before have taken the id, or given up."""
        deadline = time.monotonic() + STARTING_SECONDS_MAX
        while time.monotonic() < deadline:
            notes = self._notes()
            taken = {each.number for each in notes if not each.is_starting}
            if {each.number for each in notes if each.number < number} <= taken:
                return
            time.sleep(_PAUSE_SECONDS)

    def _require_none_after(self, number: int | None) -> None:
        if number is None:
            return
        newest = max((each for each in self._notes() if not each.is_starting), default=None)
        if newest is None or newest.number <= number:
            return
        try:  # For a person; by the notes' names alone the answer is the same.
            lines = self._files.lines(f"{self._folder}/{newest.name}") or ()
            said = json.loads("".join(lines))
            other = f"process {said['process']} on {said['host']}, started {said['started']}"
        except (ValueError, LookupError, TypeError):
            other = "started since"
        raise FencedError(
            f"another process has taken over query {self._query!r} ({other}); the one that was "
            "started last continues, this one must stop"
        )

    def _notes(self) -> list[_Note]:
        return [
            _Note(int(found[1]), found[0], found[2] == self._run, found[3] is not None)
            for found in map(_NAME.fullmatch, self._files.names(self._folder) or ())
            if found is not None
        ]

    def _write(self, name: str) -> None:
        said = {
            "process": os.getpid(),
            "host": socket.gethostname(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._files.write(f"{self._folder}/{name}", json.dumps(said) + "\n")

    def _remove(self, name: str) -> None:
        self._files.remove(f"{self._folder}/{name}")


def files_of(spark: Any, checkpoint: str) -> Files:
    """What to read and write a checkpoint's notes with: the JVM, unless it is on this machine. A
    path without a scheme is where Hadoop's settings say."""
    if not is_local(checkpoint):
        return SparkFiles(spark)
    place = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(checkpoint)
    system = place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    return LocalFiles() if system.getUri().getScheme() == "file" else SparkFiles(spark)
