"""The worker's side of a shard server: what goes there and back for a batch.

    worker     the head of the shard's state (empty: there is none), then the batch, Arrow's stream
    server     NEEDED, with the numbers of the segments that it lacks, mostly none: see `state_log`
    worker     these segments, in order (empty: it is not there)
    server     BUNDLE and WRITE as they come, then DONE or FAILED

Each is one message of bytes. None can name a class or run anything, so that bytes of others (the
values of messages, the entries of the state) are never more than bytes.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from spu_assigner.core.base.errors import AssignerError, InvariantError
from spu_assigner.stream.common.private_files import MASK, private_folder
from spu_assigner.stream.shard.batch import Options
from spu_assigner.stream.shard.state_log import HEAD, Store, segment_key, unpack_entries

START_SECONDS_MAX: Final = 60.0  # it takes half a second; a machine under load may need much longer
RESTART_SECONDS: Final = 0.2  # for another worker's server to begin to listen
# The C library raises the size from which memory goes back to the system at once with each large
# piece that is freed: what was read at a start would lie among what lives on, and never go back.
_MEMORY: Final = {"MALLOC_MMAP_THRESHOLD_": str(128 * 1024)}
_SERVER: Final = "spu_assigner.stream.shard.server"
RETRIED: Final = "Spark runs the task again, with a new server"

# The first byte of what the server sends.
NEEDED: Final = b"N"
BUNDLE: Final = b"B"
WRITE: Final = b"W"
DONE: Final = b"D"
FAILED: Final = b"F"
NUMBERS: Final = struct.Struct(">qq")  # of the segments needed: the first, and the one after

_connections: dict[tuple[str, int], Connection] = {}  # this process's, to shard servers


class ShardServerError(AssignerError):
    """A shard server failed; the task fails with it, and Spark repeats it."""


def process_on_server(
    label: int, store: Store, rows: Sequence[Any], options: Options, *, secret: str
) -> Iterator[bytes]:
    """Have the shard's server process a batch against the store: gives bundles.

    Args:
        rows: the batch, as Arrow's record batches.
        secret: of this run, whose servers are found by it.

    Raises:
        ShardServerError: it failed; the message says why.
    """
    request = store.get(HEAD) or b"", arrow_stream(rows)
    connection, needed = _ask(label, request, options, secret)
    done = False
    try:
        for number in range(*NUMBERS.unpack(_body(needed, NEEDED))):
            connection.send_bytes(store.get(segment_key(number)) or b"")
        while (answer := connection.recv_bytes()) != DONE:
            if answer.startswith(WRITE):
                for key, value in unpack_entries(answer[1:]):
                    store.write(key.decode(), value)
            else:
                yield _body(answer, BUNDLE)
        done = True
    except (EOFError, OSError) as reason:
        raise ShardServerError(
            f"the server of shard {label} is gone: {reason!r}; {RETRIED}"
        ) from reason
    finally:
        if not done:  # Nobody reads what the server still sends.
            _connections.pop((secret, label), connection).close()


def servers_folder(secret: str) -> Path:
    """Where a run's shard servers are found.

    Short, since a socket's path is at most 108 bytes; the secret's rest does not follow from it.
    """
    return Path(tempfile.gettempdir()) / f"spu-assigner-{os.getuid()}-{secret[:8]}"


def arrow_stream(rows: Sequence[Any]) -> memoryview:
    """Record batches as one stream of Arrow's."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows[0].schema) as writer:
        for piece in rows:
            writer.write_batch(piece)
    return memoryview(sink.getvalue())


def _body(answer: bytes, tag: bytes) -> bytes:
    if answer.startswith(FAILED):
        raise ShardServerError(answer[1:].decode())
    if not answer.startswith(tag):
        raise InvariantError(f"a shard server sends {answer[:1]!r}; expected {tag!r}")
    return answer[1:]


def _ask(
    label: int, request: tuple[bytes, memoryview], options: Options, secret: str
) -> tuple[Connection, bytes]:
    """Send a request to the server, which is started if there is none; gives its first answer."""
    known = _connections.get((secret, label))
    if known is not None:
        with suppress(EOFError, OSError):  # It may have ended since.
            return known, _exchange(known, request)
    connection = _connections[secret, label] = _connect(label, options, secret)
    try:
        return connection, _exchange(connection, request)
    except (EOFError, OSError) as reason:
        raise ShardServerError(
            f"the server of shard {label} ended at once: {reason!r}; {RETRIED}"
        ) from reason


def _exchange(connection: Connection, request: tuple[bytes, memoryview]) -> bytes:
    for part in request:
        connection.send_bytes(part)
    return connection.recv_bytes()


def _connect(label: int, options: Options, secret: str) -> Connection:
    folder = servers_folder(secret)
    deadline = time.monotonic() + START_SECONDS_MAX
    server: subprocess.Popen[bytes] | None = None
    while time.monotonic() < deadline:
        with suppress(OSError):
            return Client(str(folder / str(label)), family="AF_UNIX", authkey=secret.encode())
        status = None if server is None else server.poll()
        if server is None:
            private_folder(folder)
            server = _start(label, options, secret)
        elif status == 0:  # Another worker has started one: it will listen, or is ending.
            time.sleep(RESTART_SECONDS)
            server = None
        elif status is not None:
            raise ShardServerError(f"the server of shard {label} ended with {status}; {RETRIED}")
        time.sleep(0.005)
    raise ShardServerError(
        f"the server of shard {label} did not listen within {START_SECONDS_MAX:.0f} s; {RETRIED}"
    )


def _start(label: int, options: Options, secret: str) -> subprocess.Popen[bytes]:
    server = subprocess.Popen(
        [sys.executable, "-m", _SERVER, str(label), str(os.getppid())],
        stdin=subprocess.PIPE,  # others can read a command line
        stdout=subprocess.DEVNULL,  # a worker's own is a protocol of Spark's
        umask=MASK,
        env={**os.environ, **_MEMORY},
    )
    if server.stdin is None:
        raise InvariantError("a shard server was started without a pipe to its standard input")
    server.stdin.write(json.dumps({"secret": secret, **asdict(options)}).encode())
    server.stdin.close()
    return server
