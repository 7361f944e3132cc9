"""Shard servers, without Spark: the copy outlives the worker, and nothing else outlives Spark."""

from __future__ import annotations

import pickle  # noqa: TID251  # shows that it is never read
import subprocess
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Connection
from pathlib import Path

import pytest
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import DeadLetter, Wire
from spu_assigner.stream.job.shard.bundle import Bundle, InputSource, Message, MessageKind
from spu_assigner.stream.job.shard.input_batch import Batch
from spu_assigner.stream.job.shard.options import Options
from spu_assigner.stream.job.shard.server import NEEDED
from support.events.builders import Events
from support.shard.shard_server import ShardFailedError, ShardServer, changed_python
from support.shard.stores import TIME_MS, DictStore, batch_bytes, batch_of

LABEL = 3
OPTIONS = Options(topic_prefix="", default_policy=Policy.FLUVIO, wire=Wire.CONFLUENT)


class Bomb:
    """What makes a pickle dangerous: reading it runs something."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self._mark,)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ShardServer]:
    made = ShardServer(tmp_path / "servers", LABEL, OPTIONS)
    yield made
    made.hang_up()
    made.end()
    made.process.wait()


@pytest.fixture
def changed(tmp_path: Path) -> Iterator[Callable[..., ShardServer]]:
    """Makes a server with a change of its module; killed afterwards if it still runs."""
    made: list[ShardServer] = []

    def make(change: str = "", *, spills: bool = False) -> ShardServer:
        python = changed_python(tmp_path, change)
        made.append(ShardServer(tmp_path / "servers", LABEL, OPTIONS, spills=spills, python=python))
        return made[-1]

    yield make
    for each in made:
        each.hang_up()
        each.process.kill()
        each.process.wait()


def batch(*events: Event, first: int = 0, value: bytes | None = None) -> Batch:
    """The messages of these, or this one."""
    if events:
        return batch_of(events, first)
    return Batch.of_rows([(InputSource.TOPIC_EVENTS, 0, first, TIME_MS, b"c1", value)])


def sent(server: ShardServer, store: DictStore, *batches: Batch) -> list[Message]:
    """What a batch sends."""
    bundles = server.run(store, *batches)
    return [message for data in bundles for message in Bundle(data).messages()]


def maps_given(
    server: ShardServer, store: DictStore, *events: Event, first: int = 0
) -> list[bytes | None]:
    """The keys of the maps that a batch gives."""
    messages = sent(server, store, batch(*events, first=first))
    return [message.key for message in messages if message.kind == MessageKind.REPLICA_MAP]


@pytest.mark.smoke
def test_a_server_that_was_killed_is_replaced(server: ShardServer) -> None:
    """The next one reads the state; a new worker means a new connection, and no reading."""
    store, events = DictStore(), Events()
    creates = [events.create(f"t{number}", 500, 2) for number in range(12)]
    assert len(maps_given(server, store, *events.joins(0, 1), *creates)) == 12
    segments = sorted(store.current.keys() - {"head"})
    assert segments
    server.hang_up()
    assert maps_given(server, store, events.create("next"), first=98) == [b"c1/next"]
    assert store.read == ["head", "head"]
    server.kill()
    assert maps_given(server, store, events.create("last"), first=99) == [b"c1/last"]
    assert store.read[:3] == ["head", "head", "head"]
    assert {*segments} <= {*store.read[3:]}


def test_a_segment_that_is_damaged_fails_the_task_and_not_the_next_one(server: ShardServer) -> None:
    """Those after it are on their way to the server by then, and are no request."""
    store, events = DictStore(), Events()
    for number in range(3):
        creates = [events.create(f"t{number}-{each}", 500, 2) for each in range(12)]
        joins = events.joins(0, 1, capacity=100_000) if number == 0 else []
        assert len(maps_given(server, store, *joins, *creates, first=100 * number)) == 12
    server.kill()
    damaged = store.current["seg-000000000000"]
    store.current["seg-000000000000"] = damaged[:-1]
    with pytest.raises(ShardFailedError, match="ShardDamagedError: a piece of a shard's state"):
        list(server.run(store, batch(events.create("last"), first=900)))
    store.current["seg-000000000000"] = damaged
    assert maps_given(server, store, events.create("last"), first=900) == [b"c1/last"]


def test_a_pickle_among_the_bytes_stays_bytes(server: ShardServer, tmp_path: Path) -> None:
    """A producer of events, or who can write the checkpoint, must not run code in the job."""
    mark = tmp_path / "it ran"
    bomb = pickle.dumps(Bomb(mark))
    pickle.loads(bomb)
    assert mark.exists(), "the bomb itself must work"
    mark.unlink()
    store = DictStore()
    [message] = sent(server, store, batch(value=bomb))
    letter = decode_record(message.value or b"")
    assert isinstance(letter, DeadLetter)
    assert letter.raw == bomb
    store.current["head"] = bomb
    with pytest.raises(ShardFailedError, match="ShardFormatError"):
        list(server.run(store, batch(Events().join(0), first=9)))
    assert not mark.exists()


def test_a_batch_in_pieces_is_one_batch(server: ShardServer) -> None:
    """Rows of a batch may be larger than an array of the JVM."""
    events = Events()
    joins, create = events.joins(0, 1), events.create("t", 1, 2)
    pieces = [batch(create, first=5), batch(*joins), batch(value=None, first=6)]
    messages = sent(server, DictStore(), *pieces)
    assert [message.key for message in messages[:5]] == [b"c1", b"c1", b"c1/t", b"c1/t", b"c1"]
    assert messages[4].kind == MessageKind.DEAD_LETTER


@pytest.mark.smoke
def test_a_server_in_a_long_decision_ends_with_its_executor(
    changed: Callable[..., ShardServer],
) -> None:
    """Else it would compute on for a job that is no more, for as long as the decision takes."""
    endless = """
def decide_for_ever(*_, **__):
    while True:
        pass
    yield
server.process = decide_for_ever"""
    server = changed(endless)
    _begin(server.connected())
    server.end()
    assert server.process.wait(60) == 0
    assert not server.folder.exists()


@pytest.mark.parametrize("stands_still", ["writing", "reading"])
def test_a_task_that_stands_still_does_not_hold_up_the_next_one(
    changed: Callable[..., ShardServer], stands_still: str
) -> None:
    """In the middle of a request: its thread hangs, or nobody has closed what it left behind."""
    server = changed("server.TASK_SECONDS_MAX = 1")
    store, events = DictStore(), Events()
    list(server.run(store, batch(*events.joins(0, 1, capacity=10**6))))
    store.commit()
    if stands_still == "writing":
        stuck = _another(server)
        stuck.send_bytes(store.get("head") or b"")  # and no rows
    else:
        creates = [events.create(f"t{number}", 20_000, 2) for number in range(20)]
        stuck = _begin(_another(server), batch(*creates, first=50), store.get("head"))
    assert maps_given(server, store, events.create("t"), first=9) == [b"c1/t"]
    with pytest.raises((EOFError, OSError)):
        list(iter(stuck.recv_bytes, None))
    stuck.close()


def test_a_server_says_that_it_lives_while_it_decides(changed: Callable[..., ShardServer]) -> None:
    """Between events: one that is stuck in an event says nothing."""
    server = changed("server.ALIVE_SECONDS = 0")
    store, events = DictStore(), Events()
    creates = [events.create(f"t{number}", 1, 1) for number in range(3)]
    assert len(maps_given(server, store, *events.joins(0, 1), *creates)) == 3
    assert server.signs == 5


def test_a_decision_that_nobody_waits_for_any_more_is_given_up(
    changed: Callable[..., ShardServer], tmp_path: Path
) -> None:
    """A task that was ended is noticed between two events, not at the end of all."""
    decided = tmp_path / "decided"
    counted = f"""
step = batch.step
def counted_step(*args, **given):
    with open({str(decided)!r}, "a") as file:
        file.write(".")
    return step(*args, **given)
batch.step = counted_step
server.ALIVE_SECONDS = 0"""
    server = changed(counted)
    store, events = DictStore(), Events()
    list(server.run(store, batch(*events.joins(0, 1, capacity=10**6))))
    store.commit()
    creates = [events.create(f"t{number}", 1, 1) for number in range(5_000)]
    _begin(_another(server), batch(*creates, first=50), store.get("head")).close()
    assert maps_given(server, store, events.create("t"), first=9) == [b"c1/t"]
    assert decided.stat().st_size < len(creates)


def _another(server: ShardServer) -> Connection:
    return Client(str(server.folder / str(server.label)), family="AF_UNIX")


def _begin(
    connection: Connection, rows: Batch | None = None, head: bytes | None = None
) -> Connection:
    """Ask for a batch up to where the server decides, and read no answer."""
    connection.send_bytes(head or b"")
    connection.send_bytes(batch_bytes(rows or batch(Events().join(0))))
    connection.send_bytes(b"")
    assert connection.recv_bytes().startswith(NEEDED)
    return connection


def test_a_second_server_of_a_shard_ends_at_once(server: ShardServer) -> None:
    """Two attempts of a task may start one each."""
    store = DictStore()
    list(server.run(store, batch(Events().join(0))))
    other = ShardServer(server.folder, LABEL, OPTIONS)
    assert other.process.wait(60) == 0
    assert list(server.run(store, batch(Events().join(1), first=9)))


def test_a_server_without_requests_stays_for_those_it_forked(
    changed: Callable[..., ShardServer],
) -> None:
    """They end with it, and one may be deciding."""
    server = changed("""
import sys
sys.argv.insert(1, "99")  # the first, which forks the one that is asked
serve = server.serve
def impatient(label, *given, **more):
    server.IDLE_SECONDS_MAX = 0.01 if label == 99 else 3_600
    serve(label, *given, **more)
server.serve = impatient""")
    store = DictStore()
    list(server.run(store, batch(Events().join(0))))
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(1)
