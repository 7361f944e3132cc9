"""Shard servers, without Spark: the copy outlives the worker, and nothing else outlives Spark."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from spu_assigner.core.base.events import Event, Policy, SpuJoined
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.shard import server
from spu_assigner.stream.shard.batch import Batch, Options
from spu_assigner.stream.shard.bundle import Bundle, InputSource, MessageKind
from spu_assigner.stream.shard.server import ShardServerError, process_on_server
from support.events.builders import Events

LABEL = 3


class DictStore(dict[str, bytes]):
    """Spark's state of one shard."""

    reads = 0
    listings = 0

    def get(self, key: str) -> bytes | None:  # type: ignore[override]  # no default is ever asked for
        self.reads += 1
        return super().get(key)

    def put(self, key: str, value: bytes) -> None:
        self[key] = value

    def remove(self, key: str) -> None:
        del self[key]

    def items(self) -> Iterator[tuple[str, bytes]]:  # type: ignore[override]  # as Spark's
        self.listings += 1
        return iter(list(super().items()))


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """What stands for Spark's daemon: shard servers end with it."""
    process = subprocess.Popen(["sleep", "600"])
    monkeypatch.setattr(os, "getppid", lambda: process.pid)
    yield process
    process.kill()
    process.wait()
    for connection in server._connections.values():
        connection.close()
    server._connections.clear()


@pytest.fixture
def options(daemon: subprocess.Popen[bytes]) -> Options:
    return Options(
        query_name="q",
        topic_prefix="",
        default_policy=Policy.FLUVIO,
        wire=Wire.CONFLUENT,
        server_secret=secrets.token_hex(16),
    )


def batch_of(*events: Event, first: int) -> Batch:
    count = len(events)
    sources = [
        InputSource.SPU_EVENTS if isinstance(event, SpuJoined) else InputSource.TOPIC_EVENTS
        for event in events
    ]
    return Batch(
        source=np.array(sources, dtype=np.int64),
        partition=np.zeros(count, dtype=np.int64),
        offset=np.arange(first, first + count, dtype=np.int64),
        time_ms=np.full(count, 1_700_000_000_000, dtype=np.int64),
        keys=[event.cluster_id.encode() for event in events],
        values=[encode_event(event) for event in events],
    )


def maps_given(
    store: DictStore, options: Options, *events: Event, first: int = 0
) -> list[bytes | None]:
    """The keys of the maps that a batch gives."""
    return [
        message.key
        for data in process_on_server(LABEL, store, batch_of(*events, first=first), options)
        for message in Bundle(data).messages()
        if message.kind == MessageKind.REPLICA_MAP
    ]


def process_id(options: Options) -> int:
    """The server that holds the lock."""
    folder = server.servers_folder(options.server_secret or "")
    inode = (folder / f"{LABEL}.lock").stat().st_ino
    for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
        fields = line.split()
        if fields[5].endswith(f":{inode}"):
            return int(fields[4])
    raise LookupError(inode)


@pytest.mark.smoke
def test_the_copy_is_there_for_the_next_worker(options: Options) -> None:
    """A new worker means a new connection, not reading the state again."""
    store, events = DictStore(), Events()
    creates = [events.create(f"t{number}", 500, 2) for number in range(12)]
    assert len(maps_given(store, options, *events.joins(0, 1), *creates)) == 12
    server._connections.pop((options.server_secret or "", LABEL)).close()
    assert maps_given(store, options, events.create("last"), first=99) == [b"c1/last"]
    assert (store.reads, store.listings) == (2, 0)


@pytest.mark.smoke
def test_a_server_that_was_killed_is_replaced(options: Options) -> None:
    """The next one reads the state."""
    store, events = DictStore(), Events()
    creates = [events.create(f"t{number}", 500, 2) for number in range(12)]
    assert len(maps_given(store, options, *events.joins(0, 1), *creates)) == 12
    os.kill(process_id(options), signal.SIGKILL)
    assert maps_given(store, options, events.create("last"), first=99) == [b"c1/last"]
    assert store.listings == 1


def test_what_fails_in_the_server_fails_the_task(options: Options) -> None:
    """The state is of another release: the query must stop, and say so."""
    store, events = DictStore(), Events()
    store["head"] = b"\x09" + bytes(100)
    with pytest.raises(ShardServerError, match="ShardFormatError: a shard's state has format 9"):
        list(process_on_server(LABEL, store, batch_of(events.join(0), first=0), options))
    del store["head"]
    assert maps_given(store, options, events.join(0), events.create("t"), first=0) == [b"c1/t"]


def test_a_task_that_is_given_up_leaves_a_usable_server(options: Options) -> None:
    """Spark ends tasks in the middle; what was half done is not trusted."""
    store, events = DictStore(), Events()
    list(process_on_server(LABEL, store, batch_of(*events.joins(0, 1), first=0), options))
    before = dict(store)
    many = [events.create(f"t{number}", 5_000, 2, policy=Policy.REDPANDA) for number in range(2)]
    given_up = process_on_server(LABEL, store, batch_of(*many, first=50), options)
    next(given_up, None)
    given_up.close()  # type: ignore[attr-defined]  # it is a generator
    store.clear()
    store.update(before)
    assert maps_given(store, options, events.create("t"), first=9) == [b"c1/t"]


def test_a_server_ends_with_sparks_daemon(
    options: Options, daemon: subprocess.Popen[bytes]
) -> None:
    """No process and no folder is left behind."""
    list(process_on_server(LABEL, DictStore(), batch_of(Events().join(0), first=0), options))
    folder = server.servers_folder(options.server_secret or "")
    assert folder.stat().st_mode & 0o777 == 0o700
    daemon.kill()
    daemon.wait()
    deadline = time.monotonic() + 60  # It looks every LOOK_SECONDS.
    while folder.exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
