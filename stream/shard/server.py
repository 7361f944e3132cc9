"""Shard servers: a process for each shard, with the decoded copy of its state between batches.

Spark hands a shard to whichever of its Python workers is idle, and ends workers that were idle for
a minute. A copy in the worker would thus be held as often as there are workers, be outdated in most
of them, and be gone after a quiet minute. So the workers only carry: rows and the head of the state
to the shard's server, bundles and state entries back (`shard/server_client.py`).

A server is started by the first worker that needs it and is found by a socket in a folder that only
this user can enter. It ends with the daemon that Spark's workers descend from, or when no worker
has asked for an hour. Nobody reports failures to it: tokens in the state say whether its copy is to
be trusted (`shard/state_log.py`).
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, wait
from typing import Final

import pyarrow as pa
from spu_assigner.core.base.events import Policy
from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.shard.batch import Options, process
from spu_assigner.stream.shard.clusters import Clusters
from spu_assigner.stream.shard.input_batch import Batch
from spu_assigner.stream.shard.server_client import (
    BUNDLE,
    DONE,
    FAILED,
    NEEDED,
    NUMBERS,
    WRITE,
    servers_folder,
)
from spu_assigner.stream.shard.spill import remove_left
from spu_assigner.stream.shard.state_log import Shard, pack_entry

IDLE_SECONDS_MAX: Final = 3_600.0
LOOK_SECONDS: Final = 5.0  # between two looks at whether Spark is still there
YOUNG_OBJECTS_MAX: Final = 10_000  # before Python looks for cycles: topics live on, and are in none


def serve(label: int, options: Options, *, secret: str, daemon: int) -> None:
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
            _serve(listener, Shard(Clusters()), options, daemon)
    finally:
        remove_left(folder, label)
        with suppress(OSError):
            (folder / f"{label}.lock").unlink()
            folder.rmdir()  # if this was the last one


def _serve(listener: Listener, shard: Shard[Clusters], options: Options, daemon: int) -> None:
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
                _answer(worker, shard, options)
            except (EOFError, OSError):  # The worker is gone, or its task was ended.
                workers.remove(worker)
                worker.close()
            asked = time.monotonic()


def _answer(worker: Connection, shard: Shard[Clusters], options: Options) -> None:
    head, rows = worker.recv_bytes(), worker.recv_bytes()
    segments: Iterator[bytes] = iter(())
    try:
        needed = shard.begin(head or None)
        worker.send_bytes(NEEDED + NUMBERS.pack(needed.start, needed.stop))
        segments = (worker.recv_bytes() for _ in needed)
        shard.take(segments)
        batch = Batch.of_arrow(pa.ipc.open_stream(rows).read_all())
        for part in process(shard, batch, options):
            if isinstance(part, bytes):
                worker.send_bytes(BUNDLE + part)
            else:
                worker.send_bytes(WRITE + pack_entry(part[0].encode(), part[1]))
    except (EOFError, OSError):
        raise
    except Exception as reason:  # It is the worker that fails with it, and the query that stops.
        for _ in segments:
            pass  # A worker sends all before it reads the answer.
        text = f"{type(reason).__name__}: {reason}\n{traceback.format_exc()}"
        worker.send_bytes(FAILED + text.encode(errors="backslashreplace"))
    else:
        worker.send_bytes(DONE)


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main() -> None:
    """`python -m spu_assigner.stream.shard.server LABEL DAEMON`; on standard input, as JSON, the
    run's secret and options."""

    def end(_number: int, _frame: object) -> None:
        sys.exit(0)  # by way of every `finally`

    gc.set_threshold(YOUNG_OBJECTS_MAX)
    signal.signal(signal.SIGHUP, end)  # how Spark's daemon ends its group
    signal.signal(signal.SIGTERM, end)
    given = json.load(sys.stdin)
    options = Options(
        topic_prefix=given["topic_prefix"],
        default_policy=Policy(given["default_policy"]),
        wire=Wire(given["wire"]),
    )
    serve(int(sys.argv[1]), options, secret=given["secret"], daemon=int(sys.argv[2]))


if __name__ == "__main__":
    main()
