"""The stateful step under Spark's own tester, which needs no JVM."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester
from spu_assigner.core.base.events import Event, Policy, SpuEvent
from spu_assigner.core.base.records import ReplicaMap, RingEvent, TopicStatus
from spu_assigner.schemas.messages.codec import decode_record, encode_event
from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.shard import processor
from spu_assigner.stream.shard.batch import Options
from spu_assigner.stream.shard.bundle import Bundle, InputSource, Message, MessageKind
from spu_assigner.stream.shard.clusters import Clusters, read_shards
from spu_assigner.stream.shard.input_batch import Batch
from spu_assigner.stream.shard.processor import STATE_VARIABLE, AssignerProcessor
from spu_assigner.stream.shard.state_log import Shard, Store
from support.events.builders import Events
from support.job.stores import run_batch

pytestmark = pytest.mark.smoke
LABEL = 7
_offsets = itertools.count()


_shards: dict[str, Shard[Clusters]] = {}  # by the secret of their run


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard server is a claim of `test_shard_server`."""

    def run(
        _label: int, store: Store, rows: Sequence[Any], options: Options, *, secret: str
    ) -> Iterator[bytes]:
        shard = _shards.setdefault(secret, Shard(Clusters()))
        return run_batch(shard, store, Batch.of_arrow(pa.Table.from_batches(rows)), options)

    monkeypatch.setattr(processor, "process_on_server", run)


@pytest.fixture
def tester(request: pytest.FixtureRequest) -> TwsTester:
    return make_tester(request.node.name)


def make_tester(secret: str) -> TwsTester:
    options = Options(topic_prefix="", default_policy=Policy.FLUVIO, wire=Wire.CONFLUENT)
    return TwsTester(AssignerProcessor(options, secret=secret))


Row = dict[str, object]


def row(
    event: Event | None = None,
    *,
    key: bytes | None = None,
    value: bytes | None = None,
    time_ms: int = 1_700_000_000_000,
) -> Row:
    """A message as Spark's source gives it; of an event, under its own key."""
    is_spu = isinstance(event, SpuEvent)
    return {
        "shard": LABEL,
        "source": int(InputSource.SPU_EVENTS if is_spu else InputSource.TOPIC_EVENTS),
        "partition": 0,
        "offset": next(_offsets),
        "time_ms": time_ms,
        "key": key if event is None else event.cluster_id.encode(),
        "value": value if event is None else encode_event(event),
    }


def batch(tester: TwsTester, *rows: Row) -> list[Message]:
    """What a batch sends, in order."""
    out = tester.testInPandas(LABEL, pd.DataFrame(list(rows)))
    assert set(out["shard"]) == {LABEL}
    assert list(out["sequence"]) == list(range(len(out)))
    return [message for data in out["bundle"] for message in Bundle(data).messages()]


def maps(messages: list[Message]) -> dict[bytes, object]:
    """Replica lists by key."""
    found: dict[bytes, object] = {}
    for message in messages:
        if message.kind == MessageKind.REPLICA_MAP:
            record = None if message.value is None else decode_record(message.value)
            assert record is None or isinstance(record, ReplicaMap)
            assert message.key is not None
            lists = None if record is None or record.replicas is None else record.replicas.tolist()
            found[message.key] = lists
    return found


def test_events_in_answers_out(tester: TwsTester) -> None:
    """The whole way: ring events under the cluster, map and status under cluster and topic."""
    events = Events()
    sent = batch(tester, *map(row, [*events.joins(0, 1), events.create("t", 2, 2)]))
    kinds = [message.kind for message in sent]
    answers = [decode_record(message.value or b"") for message in sent[:4]]
    assert kinds[:4] == [
        MessageKind.RING_EVENT,
        MessageKind.RING_EVENT,
        MessageKind.REPLICA_MAP,
        MessageKind.TOPIC_STATUS,
    ]
    assert [type(answer) for answer in answers] == [RingEvent, RingEvent, ReplicaMap, TopicStatus]
    assert [message.key for message in sent[:4]] == [b"c1", b"c1", b"c1/t", b"c1/t"]
    assert maps(sent) == {b"c1/t": [[0, 1], [1, 0]]}


def test_state_entries_are_published_once_a_batch(tester: TwsTester) -> None:
    """The last word of the batch on each SPU, chain and block of memory, each under its key."""
    events = Events()
    sent = batch(tester, *map(row, [*events.joins(0, 1), events.create("t", 2, 2)]))
    keys = [message.key for message in sent[4:]]
    assert keys == [b"c1/spu/0", b"c1/spu/1", b"c1/chains/all", b"c1/seen/0"]


def test_ids_are_places_and_the_same_again(tester: TwsTester) -> None:
    """A consumer knows a repeated message by its CloudEvents id."""
    events = Events()
    rows = [*map(row, events.joins(0, 1))]
    once = batch(tester, *rows)
    again = batch(make_tester("another"), *rows)
    assert once == again
    assert once[0].id == f"spu-events/0/{rows[0]['offset']}/0".encode()
    assert len({message.id for message in once}) == len(once)


def test_the_next_batch_goes_on_where_this_one_stopped(tester: TwsTester) -> None:
    """The chain index is state."""
    events = Events()
    batch(tester, *map(row, [*events.joins(0, 1, 2), events.create("a", 2, 1)]))
    assert maps(batch(tester, row(events.create("b", 2, 1)))) == {b"c1/b": [[2], [0]]}


def test_a_new_process_goes_on_from_the_state(tester: TwsTester) -> None:
    """After a restart the copy in memory is gone; what Spark keeps is enough."""
    events = Events()
    batch(tester, *map(row, [*events.joins(0, 1, 2), events.create("a", 2, 1)]))
    _shards.clear()
    sent = batch(tester, *map(row, [events.create("b", 2, 1), events.delete("a")]))
    assert maps(sent) == {b"c1/b": [[2], [0]], b"c1/a": None}


def test_the_state_can_be_read_by_others(tester: TwsTester) -> None:
    """Rows of Spark's statestore reader and our codec give the clusters back."""
    events = Events()
    batch(tester, *map(row, [*events.joins(0, 1), events.create("a"), events.create("b")]))
    batch(tester, row(events.delete("a")))
    stored = tester.peekMapState(STATE_VARIABLE, LABEL)
    clusters = read_shards((LABEL, key[0], value[0]) for key, value in stored.items())
    assert sorted(clusters["c1"].topics) == ["b"]
    assert sorted(clusters["c1"].spus) == [0, 1]


def test_clusters_do_not_influence_each_other(tester: TwsTester) -> None:
    """Several clusters share a shard."""
    first, second = Events("c1"), Events("c2")
    rows = map(row, [first.join(0), second.join(5), first.create("t"), second.create("t")])
    assert maps(batch(tester, *rows)) == {b"c1/t": [[0]], b"c2/t": [[5]]}


def test_a_batch_of_nothing_but_poison_says_what_it_read(tester: TwsTester) -> None:
    """The marker has offsets also when nobody is answered."""
    bad = row(key=None, value=b"?")
    out = tester.testInPandas(LABEL, pd.DataFrame([bad, row(key=b"c1", value=None)]))
    [read] = Bundle(out["bundle"].iloc[-1]).ranges
    assert (read.source, read.first, read.count) == (InputSource.TOPIC_EVENTS, bad["offset"], 2)


def test_a_large_batch_comes_in_several_bundles(tester: TwsTester) -> None:
    """One row of unbounded size would break Arrow's and the JVM's limits."""
    events = Events()
    rows = [row(event) for event in events.joins(*range(20), capacity=1_000_000)]
    rows += [row(events.create(f"t{number}", 3_000, 3)) for number in range(120)]
    out = tester.testInPandas(LABEL, pd.DataFrame(rows))
    assert len(out) > 1


def test_a_worker_freezes_once_what_outlives_its_tasks(
    tester: TwsTester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark collects garbage after each task, through all that was not set aside."""
    batch(tester, row(Events().join(0)))
    worker = tester.processor
    monkeypatch.setattr(processor, "_is_frozen", False)
    gc.unfreeze()  # pytest had set aside what was imported by then, pandas with it.
    before = gc.get_freeze_count()
    try:
        worker.close()
        aside = gc.get_freeze_count()
        assert aside > before + 10_000  # pandas alone
        later = [[] for _ in range(1_000)]
        worker.close()
        assert gc.get_freeze_count() <= aside  # Some that were set aside may have ended since.
        assert len(later) == 1_000
    finally:
        gc.unfreeze()
