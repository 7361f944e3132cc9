"""A shard server without Spark: what the step of Spark's query says to it, said by a test."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Final

from spu_assigner.stream.job.shard.input_batch import Batch
from spu_assigner.stream.job.shard.options import Options, options_to_json
from spu_assigner.stream.job.shard.server import ALIVE, BUNDLE, DONE, FAILED, NEEDED, NUMBERS, WRITE
from spu_assigner.stream.job.shard.state_log import HEAD, segment_key, unpack_entries
from support.shard.stores import DictStore, batch_bytes

START_SECONDS_MAX: Final = 60.0


class ShardFailedError(Exception):
    """The server says that a batch failed, and why."""


class ShardServer:
    """A server, and the connection of the tasks that use it."""

    def __init__(
        self,
        folder: Path,
        label: int,
        options: Options,
        *,
        spills: bool = False,
        python: str = sys.executable,
    ) -> None:
        self.folder = folder
        self.label = label
        self.signs = 0  # of life, in the last batch
        self._options = options
        self._spills = spills
        self._python = python
        self._connection: Connection | None = None
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [self._python, "-m", "spu_assigner.stream.job.shard.server", str(self.label)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert process.stdin is not None
        text = f"{self.folder}\n{options_to_json(self._options, spills=self._spills)}\n"
        process.stdin.write(text.encode())
        process.stdin.flush()
        return process

    def kill(self) -> None:
        """Kill it; the next task starts another one."""
        self.process.kill()
        self.process.wait()
        self.process = self._started()
        self.hang_up()

    def end(self) -> None:
        """What Spark's executor does when it ends, however it ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def hang_up(self) -> None:
        """A later task has a connection of its own."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def run(self, store: DictStore, *batches: Batch) -> Iterator[bytes]:
        """A batch, in as many pieces: gives the bundles.

        Raises:
            ShardFailedError: the server failed.
        """
        connection, done = self.connected(), False
        self.signs = 0
        try:
            connection.send_bytes(store.get(HEAD) or b"")
            for batch in batches:
                connection.send_bytes(batch_bytes(batch))
            connection.send_bytes(b"")
            for number in range(*NUMBERS.unpack(_body(connection.recv_bytes(), NEEDED))):
                connection.send_bytes(store.get(segment_key(number)) or b"")
            while (answer := connection.recv_bytes()) != DONE:
                if answer == ALIVE:
                    self.signs += 1
                elif answer.startswith(WRITE):
                    for key, value in unpack_entries(answer[1:]):
                        store.write(key.decode(), value)
                else:
                    yield _body(answer, BUNDLE)
            done = True
        finally:
            if not done:  # Nobody reads what the server still sends.
                self.hang_up()

    def connected(self) -> Connection:
        """The connection of the tasks, which is made where there is none."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while self._connection is None:
            assert time.monotonic() < deadline, "it does not listen"
            with suppress(OSError):
                path = self.folder / str(self.label)
                self._connection = Client(str(path), family="AF_UNIX")
            time.sleep(0.005)
        return self._connection


def _body(answer: bytes, tag: bytes) -> bytes:
    if answer.startswith(FAILED):
        raise ShardFailedError(answer[1:].decode())
    assert answer.startswith(tag), answer[:1]
    return answer[1:]


def changed_python(folder: Path, change: str) -> str:
    """An interpreter whose shard servers run with a change of their module `server`."""
    program = folder / "changed_server.py"
    program.write_text(
        f"from spu_assigner.stream.job.shard import batch, server\n{change}\nserver.main()\n",
        encoding="utf-8",
    )
    python = folder / "changed-python"
    # As it is called: -m spu_assigner.stream.job.shard.server LABEL…
    script = f'#!/bin/sh\nshift 2\nexec {sys.executable} {program} "$@"\n'
    python.write_text(script, encoding="utf-8")
    python.chmod(0o700)
    return str(python)
