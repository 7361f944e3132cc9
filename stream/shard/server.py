"""Shard servers: a process for each shard, with the decoded copy of its state between batches.

Spark hands a shard to whichever of its Python workers is idle, and ends workers that were idle for
a minute. A copy in the worker would thus be held as often as there are workers, lag behind in most
of them, and be gone after a quiet minute. So the workers only carry: rows and state entries to the
shard's server, bundles and state entries back.

A server is started by the first worker that needs it and is found by a socket in a folder that only
this user can enter. It ends with the daemon that Spark's workers descend from, or when nobody has
asked for an hour. It need not be told of failures: tokens in the state say whether its copy is to
be trusted (`shard/state_log.py`). What the two exchange is plain bytes
(`shard/protocol.py`), since half of it comes out of Kafka and the checkpoint.
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path
from typing import Final

from spu_assigner.core.base.errors import AssignerError, InvariantError
from spu_assigner.stream.common.private_files import MASK, private_folder
from spu_assigner.stream.shard import protocol
from spu_assigner.stream.shard.batch import Batch, Options, process
from spu_assigner.stream.shard.clusters import Clusters
from spu_assigner.stream.shard.spill import remove_left
from spu_assigner.stream.shard.state_log import Shard, Store

START_SECONDS_MAX: Final = 60.0  # it takes half a second; a machine under load may need much longer
IDLE_SECONDS_MAX: Final = 3_600.0
RESTART_SECONDS: Final = 0.2  # for another worker's server to begin to listen
LOOK_SECONDS: Final = 5.0  # between two looks at whether Spark is still there
YOUNG_OBJECTS_MAX: Final = 10_000  # before Python looks for cycles: topics live on, and are in none
# The C library raises the size from which memory goes back to the system at once with each large
# piece that is freed: what was read at a start would lie among what lives on, and never go back.
_MEMORY: Final = {"MALLOC_MMAP_THRESHOLD_": str(128 * 1024)}
ITEMS_SIZE: Final = 4 * 1024 * 1024  # state entries are handed over in pieces of about this size

_connections: dict[tuple[str, int], Connection] = {}  # this process's, to shard servers


class ShardServerError(AssignerError):
    """A shard server failed; the task fails with it, and Spark repeats it."""


# The worker's side.


def process_on_server(label: int, store: Store, batch: Batch, options: Options) -> Iterator[bytes]:
    """Have the shard's server process a batch against the store: gives bundles.

    Raises:
        ShardServerError: it failed; the message says why.
    """
    secret = options.server_secret or ""
    connection, request = _ask(secret, label, protocol.ProcessBatch(batch, options))
    try:
        while not isinstance(request, protocol.BatchDone):
            match request:
                case protocol.BundleReady(bundle):
                    yield bundle
                case protocol.GetState(key):
                    _send(connection, protocol.StateValue(store.get(key)))
                case protocol.PutState(key, value):
                    store.put(key, value)
                case protocol.RemoveState(key):
                    store.remove(key)
                case protocol.ListState():
                    _send_items(connection, store)
                case protocol.BatchFailed(error, trace):
                    raise ShardServerError(f"{error}\n{trace}")
                case _:
                    raise InvariantError(f"a shard server sends {type(request).__name__}")
            request = _receive(connection)
    except (EOFError, OSError) as reason:
        raise ShardServerError(f"the server of shard {label} is gone: {reason!r}") from reason
    finally:
        # What the server still sends belongs to nobody.
        if not isinstance(request, protocol.BatchDone):
            _connections.pop((secret, label), connection).close()


def _ask(
    secret: str, label: int, question: protocol.ShardMessage
) -> tuple[Connection, protocol.ShardMessage]:
    """Put a question to a server, which is started if there is none; gives its first request."""
    known = _connections.get((secret, label))
    if known is not None:
        with suppress(EOFError, OSError):  # It may have ended since.
            _send(known, question)
            return known, _receive(known)
    connection = _connections[secret, label] = _connect(secret, label)
    try:
        _send(connection, question)
        return connection, _receive(connection)
    except (EOFError, OSError) as reason:
        raise ShardServerError(f"the server of shard {label} ended at once: {reason!r}") from reason


def _connect(secret: str, label: int) -> Connection:
    folder = servers_folder(secret)
    with suppress(OSError):
        return _client(folder, label, secret)
    private_folder(folder)
    server = _start(secret, label)
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        with suppress(OSError):
            return _client(folder, label, secret)
        status = server.poll()
        if status == 0:  # There was one already: it will listen, or was ending and is gone now.
            time.sleep(RESTART_SECONDS)
            with suppress(OSError):
                return _client(folder, label, secret)
            private_folder(folder)
            server = _start(secret, label)
        elif status is not None:
            raise ShardServerError(f"the server of shard {label} ended with {status}")
        time.sleep(0.005)
    raise ShardServerError(
        f"the server of shard {label} was not there in {START_SECONDS_MAX:.0f} s"
    )


def _start(secret: str, label: int) -> subprocess.Popen[bytes]:
    server = subprocess.Popen(
        [sys.executable, "-m", __name__, str(label), str(os.getppid())],
        stdin=subprocess.PIPE,  # the secret: others can read a command line
        stdout=subprocess.DEVNULL,  # a worker's own is a protocol of Spark's
        umask=MASK,
        env={**os.environ, **_MEMORY},
    )
    if server.stdin is None:
        raise InvariantError("a pipe was asked for and is not there")
    server.stdin.write(secret.encode())
    server.stdin.close()
    return server


def _client(folder: Path, label: int, secret: str) -> Connection:
    return Client(str(folder / str(label)), family="AF_UNIX", authkey=secret.encode())


def servers_folder(secret: str) -> Path:
    """Where a run's shard servers are found.

    Short, since a socket's path is at most 108 bytes; no part of the secret tells the rest.
    """
    return Path(tempfile.gettempdir()) / f"spu-assigner-{os.getuid()}-{secret[:8]}"


def _send_items(connection: Connection, store: Store) -> None:
    piece: list[tuple[str, bytes]] = []
    size = 0
    for key, value in store.items():
        piece.append((key, value))
        size += len(value)
        if size >= ITEMS_SIZE:
            _send(connection, protocol.StatePiece(piece))
            piece, size = [], 0
    if piece:
        _send(connection, protocol.StatePiece(piece))
    _send(connection, protocol.StatePiece(()))


def _send(connection: Connection, message: protocol.ShardMessage) -> None:
    connection.send_bytes(protocol.encode(message))


def _receive(connection: Connection) -> protocol.ShardMessage:
    return protocol.decode(connection.recv_bytes())


# The server's side.


class WorkersStore:
    """The state, as the worker at the other end reads and writes it.

    Writing is not answered: should it fail there, the state has no trace of this batch's token.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, key: str) -> bytes | None:
        _send(self._connection, protocol.GetState(key))
        answer = _receive(self._connection)
        if not isinstance(answer, protocol.StateValue):
            raise InvariantError(f"a worker answers GetState with {type(answer).__name__}")
        return answer.value

    def put(self, key: str, value: bytes) -> None:
        _send(self._connection, protocol.PutState(key, value))

    def remove(self, key: str) -> None:
        _send(self._connection, protocol.RemoveState(key))

    def items(self) -> Iterator[tuple[str, bytes]]:
        _send(self._connection, protocol.ListState())
        while True:
            answer = _receive(self._connection)
            if not isinstance(answer, protocol.StatePiece):
                raise InvariantError(f"a worker answers ListState with {type(answer).__name__}")
            if not answer.entries:
                return
            yield from answer.entries


def serve(label: int, *, secret: str, daemon: int) -> None:
    """Answer workers, one after the other, until Spark's daemon is gone or nobody asks any more."""
    folder = servers_folder(secret)
    path = folder / str(label)
    lock = os.open(folder / f"{label}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # Another worker has started one at the same time.
    os.truncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())  # Who looks for the shard's process finds it here.
    path.unlink(missing_ok=True)
    try:
        with Listener(str(path), family="AF_UNIX", authkey=secret.encode()) as listener:
            _serve(listener, Shard(Clusters()), daemon)
    finally:
        remove_left(folder, label)
        with suppress(OSError):
            (folder / f"{label}.lock").unlink()
            folder.rmdir()  # if this was the last one


def _serve(listener: Listener, shard: Shard, daemon: int) -> None:
    door = listener._listener._socket  # type: ignore[attr-defined]  # to wait for with the others
    workers: list[Connection] = []
    asked = time.monotonic()
    while time.monotonic() - asked < IDLE_SECONDS_MAX and _is_alive(daemon):
        ready = wait([door, *workers], LOOK_SECONDS)
        if door in ready:
            with suppress(OSError, EOFError, AuthenticationError):
                workers.append(listener.accept())
        for worker in [worker for worker in workers if worker in ready]:
            try:
                _answer(worker, shard)
            except (EOFError, OSError):  # The worker is gone, or its task was ended.
                workers.remove(worker)
                worker.close()
            asked = time.monotonic()


def _answer(worker: Connection, shard: Shard) -> None:
    question = _receive(worker)
    if not isinstance(question, protocol.ProcessBatch):
        raise InvariantError(f"a worker begins with {type(question).__name__}")
    try:
        batch, options = question.batch, question.options
        for bundle in process(shard, WorkersStore(worker), batch, options):
            _send(worker, protocol.BundleReady(bundle))
    except (EOFError, OSError):
        raise
    except Exception as reason:  # It is the worker that fails with it, and the query that stops.
        error = f"{type(reason).__name__}: {reason}"
        _send(worker, protocol.BatchFailed(error, traceback.format_exc()))
    else:
        _send(worker, protocol.BatchDone())


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main() -> None:
    """`python -m spu_assigner.stream.shard.server LABEL DAEMON`, the secret on standard input."""

    def end(_number: int, _frame: object) -> None:
        sys.exit(0)  # by way of every `finally`

    gc.set_threshold(YOUNG_OBJECTS_MAX)
    signal.signal(signal.SIGHUP, end)  # how Spark's daemon ends its group
    signal.signal(signal.SIGTERM, end)
    secret = sys.stdin.read()
    serve(int(sys.argv[1]), secret=secret, daemon=int(sys.argv[2]))


if __name__ == "__main__":
    main()
