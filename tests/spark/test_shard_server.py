"""Shard servers, without Spark: the copy outlives the worker, and nothing else outlives Spark."""

from __future__ import annotations

import os
import pickle
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from spu_assigner.core.base.events import Event, Policy, SpuJoined
from spu_assigner.schemas.messages.codec import decode_record, encode_event
from spu_assigner.schemas.messages.wire import DeadLetter, Wire
from spu_assigner.stream.shard import server_client
from spu_assigner.stream.shard.batch import Options
from spu_assigner.stream.shard.bundle import Bundle, InputSource, Message, MessageKind
from spu_assigner.stream.shard.server_client import ShardServerError, process_on_server
from support.events.builders import Events
from support.job.stores import DictStore

LABEL = 3
OPTIONS = Options(topic_prefix="", default_policy=Policy.FLUVIO, wire=Wire.CONFLUENT)


class Bomb:
    """What makes a pickle dangerous: reading it runs something."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self._mark,)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """What stands for Spark's daemon: shard servers end with it."""
    process = subprocess.Popen(["sleep", "600"])
    monkeypatch.setattr(os, "getppid", lambda: process.pid)
    yield process
    process.kill()
    process.wait()
    for connection in server_client._connections.values():
        connection.close()
    server_client._connections.clear()


@pytest.fixture
def secret(daemon: subprocess.Popen[bytes]) -> str:
    return secrets.token_hex(16)


def run(
    store: DictStore, secret: str, *events: Event, first: int = 0, value: bytes | None = None
) -> Iterator[bytes]:
    """A batch of these, or of this message."""
    messages = [(event.cluster_id.encode(), encode_event(event)) for event in events]
    keys, values = zip(*(messages or [(b"c1", value)]), strict=True)
    count = len(keys)
    is_spu = [isinstance(event, SpuJoined) for event in events] or [False]
    rows = pa.RecordBatch.from_pydict(
        {
            "source": [int(InputSource.TOPIC_EVENTS) - spu for spu in is_spu],
            "partition": [0] * count,
            "offset": list(range(first, first + count)),
            "time_ms": [1_700_000_000_000] * count,
            "key": list(keys),
            "value": list(values),
        }
    )
    return process_on_server(LABEL, store, [rows], OPTIONS, secret=secret)


def sent(store: DictStore, secret: str, *events: Event, **given: Any) -> list[Message]:
    """What a batch sends."""
    bundles = run(store, secret, *events, **given)
    return [message for data in bundles for message in Bundle(data).messages()]


def maps_given(store: DictStore, secret: str, *events: Event, first: int = 0) -> list[bytes | None]:
    """The keys of the maps that a batch gives."""
    messages = sent(store, secret, *events, first=first)
    return [message.key for message in messages if message.kind == MessageKind.REPLICA_MAP]


def process_id(secret: str) -> int:
    """The server that holds the lock."""
    folder = server_client.servers_folder(secret)
    inode = (folder / f"{LABEL}.lock").stat().st_ino
    for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
        fields = line.split()
        if fields[5].endswith(f":{inode}"):
            return int(fields[4])
    raise LookupError(inode)


@pytest.mark.smoke
def test_the_copy_is_there_for_the_next_worker(secret: str) -> None:
    """A new worker means a new connection, not reading the state again."""
    store, events = DictStore(), Events()
    creates = [events.create(f"t{number}", 500, 2) for number in range(12)]
    assert len(maps_given(store, secret, *events.joins(0, 1), *creates)) == 12
    server_client._connections.pop((secret, LABEL)).close()
    assert maps_given(store, secret, events.create("last"), first=99) == [b"c1/last"]
    assert store.read == ["head", "head"]


@pytest.mark.smoke
def test_a_server_that_was_killed_is_replaced(secret: str) -> None:
    """The next one reads the state."""
    store, events = DictStore(), Events()
    creates = [events.create(f"t{number}", 500, 2) for number in range(12)]
    assert len(maps_given(store, secret, *events.joins(0, 1), *creates)) == 12
    segments = sorted(store.current.keys() - {"head"})
    assert segments
    os.kill(process_id(secret), signal.SIGKILL)
    assert maps_given(store, secret, events.create("last"), first=99) == [b"c1/last"]
    assert store.read == ["head", "head", *segments]


def test_what_fails_in_the_server_fails_the_task(secret: str) -> None:
    """The state is of another release: the query must stop, and say so."""
    store, events = DictStore(), Events()
    store.current["head"] = b"\x09" + bytes(100)
    with pytest.raises(ShardServerError, match="ShardFormatError: a shard's state has format 9"):
        list(run(store, secret, events.join(0)))
    del store.current["head"]
    assert maps_given(store, secret, events.join(0), events.create("t"), first=0) == [b"c1/t"]


def test_a_segment_that_is_damaged_fails_the_task_and_not_the_next_one(secret: str) -> None:
    """Those after it are on their way to the server by then, and are no request."""
    store, events = DictStore(), Events()
    for number in range(3):
        creates = [events.create(f"t{number}-{each}", 500, 2) for each in range(12)]
        joins = events.joins(0, 1, capacity=100_000) if number == 0 else []
        assert len(maps_given(store, secret, *joins, *creates, first=100 * number)) == 12
    server_client._connections.pop((secret, LABEL)).close()
    os.kill(process_id(secret), signal.SIGKILL)
    damaged = store.current["seg-000000000000"]
    store.current["seg-000000000000"] = damaged[:-1]
    with pytest.raises(ShardServerError, match="ShardDamagedError: a piece of a shard's state"):
        list(run(store, secret, events.create("last"), first=900))
    store.current["seg-000000000000"] = damaged
    assert maps_given(store, secret, events.create("last"), first=900) == [b"c1/last"]


def test_a_pickle_among_the_bytes_stays_bytes(secret: str, tmp_path: Path) -> None:
    """A producer of events, or who can write the checkpoint, must not run code in the job."""
    mark = tmp_path / "it ran"
    bomb = pickle.dumps(Bomb(mark))
    pickle.loads(bomb)
    assert mark.exists(), "the bomb itself must work"
    mark.unlink()
    store = DictStore()
    [message] = sent(store, secret, value=bomb)
    letter = decode_record(message.value or b"")
    assert isinstance(letter, DeadLetter)
    assert letter.raw == bomb
    store.current["head"] = bomb
    with pytest.raises(ShardServerError, match="ShardFormatError"):
        list(run(store, secret, Events().join(0), first=9))
    assert not mark.exists()


def test_a_task_that_is_given_up_leaves_a_usable_server(secret: str) -> None:
    """Spark ends tasks in the middle; what was half done is not trusted."""
    store, events = DictStore(), Events()
    list(run(store, secret, *events.joins(0, 1)))
    store.commit()
    many = [events.create(f"t{number}", 5_000, 2, policy=Policy.REDPANDA) for number in range(2)]
    given_up = run(store, secret, *many, first=50)
    next(given_up, None)
    given_up.close()  # type: ignore[attr-defined]  # it is a generator
    store.abort()
    assert maps_given(store, secret, events.create("t"), first=9) == [b"c1/t"]


def test_a_server_ends_with_sparks_daemon(secret: str, daemon: subprocess.Popen[bytes]) -> None:
    """No process and no folder is left behind."""
    list(run(DictStore(), secret, Events().join(0)))
    folder = server_client.servers_folder(secret)
    assert folder.stat().st_mode & 0o777 == 0o700
    daemon.kill()
    daemon.wait()
    deadline = time.monotonic() + 60  # It looks every LOOK_SECONDS.
    while folder.exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
