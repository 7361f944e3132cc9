"""Shard servers: two processes for each shard, with decoded copies of its state between batches.

Spark's step (`stream/local/jvm/spark_extension/ShardProcessor.java`) decides nothing: it carries
rows and the head of the state to the shard's servers, and bundles and state entries back. Each of
the two has half of the shard's clusters, by their names, and is said the same:

    step       the head of its part of the state (empty: there is none)
               the rows, in pieces (`input_batch.py`), then an empty message
    server     NEEDED, with the numbers of the segments that it lacks, mostly none: see `state_log`
    step       these segments, in order (empty: it is not there)
    server     BUNDLE and WRITE as they come, ALIVE between them, then DONE or FAILED

Each is one message of bytes. None can name a class or run anything, so that bytes of others (the
values of messages, the entries of the state) are never more than bytes.

A server is started by the first task that needs it, or before by the job, all of them together:
one that forks the others, which share with it what was imported. It is found by a socket in a
folder that only this user can enter. It ends when its standard input does, which is the end of the
executor or of what forked it, whatever it is doing then, or after an hour without a request. No
failure is reported to it: tokens in the state say whether its copy is to be trusted
(`job/shard/state_log.py`).

Both sides have a time limit. A task that neither reads nor writes in the middle of a request loses
its connection, so that the next task is answered. A server says ALIVE while it decides one event
after the other, and the task passes that on as a sign of life from inside the batch; one that says
nothing is stuck in an event, and is killed by the task, which fails.
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Final

import msgspec
from spu_assigner.stream.common.private_files import MASK, private_folder
from spu_assigner.stream.job.shard.batch import process
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.input_batch import Batch
from spu_assigner.stream.job.shard.options import Options
from spu_assigner.stream.job.shard.spill import remove_left, spill
from spu_assigner.stream.job.shard.state_log import Shard, Write, pack_entry

# The first byte of what the server sends.
NEEDED: Final = b"N"
BUNDLE: Final = b"B"
WRITE: Final = b"W"
ALIVE: Final = b"L"
DONE: Final = b"D"
FAILED: Final = b"F"
NUMBERS: Final = struct.Struct(">qq")  # of the segments needed: the first, and the one after

IDLE_SECONDS_MAX: Final = 3_600.0
ALIVE_SECONDS: Final = 1.0  # between two signs of life, as far as events are decided
# A task hands on what it reads and stores the answer, for which Hadoop may wait for minutes.
TASK_SECONDS_MAX: Final = 600
TASKS_MAX: Final = 64  # that may wait to be accepted: attempts of one task, mostly one
Spilled = Callable[[Iterator[bytes | Write]], Iterator[bytes | Write]]
YOUNG_OBJECTS_MAX: Final = 10_000  # before Python looks for cycles: topics live on, and are in none


def serve(label: int, folder: Path, options: Options, *, spills: bool) -> None:
    """Answer tasks, one after the other, until standard input ends or requests do."""
    private_folder(folder)
    path = folder / str(label)
    lock = os.fdopen(os.open(folder / f"{label}.lock", os.O_RDWR | os.O_CREAT, 0o600), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # Another task has started one at the same time.
    lock.truncate(0)
    lock.write(str(os.getpid()))  # Who looks for the shard's process finds it here.
    lock.flush()
    path.unlink(missing_ok=True)
    threading.Thread(target=_end_with_input, args=(folder, label), daemon=True).start()
    try:
        with Listener(str(path), family="AF_UNIX", backlog=TASKS_MAX) as listener:
            spilled = partial(spill, folder=folder, label=label) if spills else iter
            _serve(listener, Shard(Clusters()), options, spilled)
    finally:
        _remove_traces(folder, label)


def _end_with_input(folder: Path, label: int) -> None:
    """End this process when its standard input ends, also in the middle of a decision."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    _remove_traces(folder, label)
    os._exit(0)


def _remove_traces(folder: Path, label: int) -> None:
    remove_left(folder, label)
    with suppress(OSError):
        (folder / str(label)).unlink(missing_ok=True)
        (folder / f"{label}.lock").unlink()
        folder.rmdir()  # if this was the last one


def _serve(listener: Listener, shard: Shard[Clusters], options: Options, spilled: Spilled) -> None:
    door = listener._listener._socket  # type: ignore[attr-defined]  # to wait for with the others
    tasks: list[Connection] = []
    while (ready := wait([door, *tasks], IDLE_SECONDS_MAX)) or _has_forked():
        if door in ready:
            with suppress(OSError, EOFError):
                tasks.append(_limited(listener.accept()))
        for task in [task for task in tasks if task in ready]:
            try:
                _answer(task, shard, options, spilled)
            except (EOFError, OSError):  # The task was ended, or stands still.
                tasks.remove(task)
                task.close()


def _limited(task: Connection) -> Connection:
    """A connection whose every read and write fails after `TASK_SECONDS_MAX`."""
    with socket.socket(fileno=os.dup(task.fileno())) as door:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            door.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", TASK_SECONDS_MAX, 0))
    return task


def _pulse(task: Connection) -> Callable[[], None]:
    """Sends a sign of life at most once in `ALIVE_SECONDS`; called between events."""
    due = time.monotonic() + ALIVE_SECONDS

    def alive() -> None:
        nonlocal due
        if time.monotonic() >= due:
            task.send_bytes(ALIVE)  # Fails if the task was ended: nothing waits any more.
            due = time.monotonic() + ALIVE_SECONDS

    return alive


def _answer(task: Connection, shard: Shard[Clusters], options: Options, spilled: Spilled) -> None:
    head = task.recv_bytes()
    pieces = list(iter(task.recv_bytes, b""))
    segments: Iterator[bytes] = iter(())
    try:
        needed = shard.begin(head or None)
        task.send_bytes(NEEDED + NUMBERS.pack(needed.start, needed.stop))
        segments = (task.recv_bytes() for _ in needed)
        shard.take(segments)
        batch = Batch.of_bytes(pieces)
        for part in spilled(process(shard, batch, options, alive=_pulse(task))):
            if isinstance(part, bytes):
                task.send_bytes(BUNDLE + part)
            else:
                task.send_bytes(WRITE + pack_entry(part[0].encode(), part[1]))
    except (EOFError, OSError):
        raise
    except Exception as reason:  # It is the task that fails with it, and the query that stops.
        for _ in segments:
            pass  # A task sends all before it reads the answer.
        text = f"{type(reason).__name__}: {reason}\n{traceback.format_exc()}"
        task.send_bytes(FAILED + text.encode(errors="backslashreplace"))
    else:
        task.send_bytes(DONE)


def _line() -> bytes:
    """A line of standard input, read byte by byte: what reads ahead would wait for the end."""
    line = b""
    while (byte := os.read(sys.stdin.fileno(), 1)) not in (b"", b"\n"):
        line += byte
    return line


def _forked(labels: Sequence[str]) -> str:
    """The label of this process: the first, or in a child one of the others."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # none is waited for
    gc.freeze()  # what is shared now is not written to by a look for cycles
    reading, writing = os.pipe()  # this process has the end that is written, until it ends
    for label in labels[1:]:
        if os.fork() == 0:
            os.close(writing)
            os.dup2(reading, sys.stdin.fileno())
            return label
    return labels[0]


def _has_forked() -> bool:
    """Whether servers live that would end with this process."""
    with suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        return True
    return False


def main() -> None:
    """`python -m spu_assigner.stream.job.shard.server LABEL…`, a server for each; on standard input
    it is given the folder on a line, then `options_to_json`'s on another."""
    os.umask(MASK)
    gc.set_threshold(YOUNG_OBJECTS_MAX)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # by way of every `finally`
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job, which then ends this
    folder = Path(_line().decode())
    options, spills = msgspec.json.decode(_line(), type=tuple[Options, bool])
    serve(int(_forked(sys.argv[1:])), folder, options, spills=spills)


if __name__ == "__main__":
    main()
