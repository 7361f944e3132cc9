"""What a shard sends and keeps of waiting requests and of SPUs that are forgotten."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import get_args

import pytest
from spu_assigner.core.base.constraints import Constraints, SpreadLevel, Taint, TaintEffect
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy, SpuEvent, SpuId
from spu_assigner.core.base.records import SpuChanged, Wait, Waiting
from spu_assigner.schemas.messages.codec import decode_record, encode_event, encode_record
from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.job.shard import batch as shard_batch_module
from spu_assigner.stream.job.shard.batch import Options
from spu_assigner.stream.job.shard.bundle import KINDS, Bundle, InputSource, Message, MessageKind
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.input_batch import Batch
from spu_assigner.stream.job.shard.state_log import Entries, Shard, Write
from spu_assigner.stream.job.shard.tally import REQUESTS
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE
from support.events.builders import Events
from support.model.pictures import picture
from support.shard.stores import DictStore, begin, run_batch

OPTIONS = Options(
    topic_prefix="",
    default_policy=Policy.FLUVIO,
    wire=Wire.CONFLUENT,
)
WAITING = Waiting(
    cluster_id="c1",
    topic="t",
    sequence=0,
    kind=Wait.CREATE,
    cause="e1",
    policy=Policy.FLUVIO,
    partitions=2,
    replication_factor=3,
)
SPU = SpuChanged(
    cluster_id="c1",
    spu_id=7,
    online=False,
    rack=None,
    cores=1,
    capacity=9,
    labels=(),
    registration=0,
    core_weights=(2,),
)


class Runner:
    """A shard and its store; each call of `send` is a batch."""

    def __init__(self) -> None:
        self.store = DictStore()
        self.shard = Shard(Clusters())
        self._offsets = itertools.count()

    def send(self, *sent: Event) -> list[Message]:
        batch = Batch.of_rows(
            [
                (
                    InputSource.SPU_EVENTS
                    if isinstance(event, SpuEvent)
                    else InputSource.TOPIC_EVENTS,
                    0,
                    offset := next(self._offsets),
                    offset,
                    event.cluster_id.encode(),
                    encode_event(event),
                )
                for event in sent
            ]
        )
        bundles = run_batch(self.shard, self.store, batch, OPTIONS)
        return [message for data in bundles for message in Bundle(data).messages()]

    def reloaded(self) -> Clusters:
        """What another worker would read from the store."""
        clusters = Clusters()
        begin(Shard(clusters), self.store)
        return clusters


def state_messages(messages: list[Message], kind: MessageKind) -> dict[bytes | None, object]:
    """Entries of a kind by key; None: a tombstone."""
    return {
        each.key: None if each.value is None else decode_record(each.value)
        for each in messages
        if each.kind == kind
    }


def test_a_waiting_create_is_kept_until_it_is_served() -> None:
    """Another worker goes on with it after a crash, and the topic holds no served request."""
    runner, events = Runner(), Events()
    sent = runner.send(
        events.join(0), events.create("t", 2, 2, on_shortage=OnShortage.WAIT, policy=Policy.FLUVIO)
    )
    found = state_messages(sent, MessageKind.WAITING_STATE)
    assert list(found) == [b"c1/waiting/t"]
    waiting = found[b"c1/waiting/t"]
    assert isinstance(waiting, Waiting)
    assert (waiting.topic, waiting.kind, waiting.partitions) == ("t", Wait.CREATE, 2)
    assert runner.reloaded()["c1"].waiting == {"t": waiting}
    sent = runner.send(events.join(1))
    assert state_messages(sent, MessageKind.WAITING_STATE) == {b"c1/waiting/t": None}
    assert MessageKind.REPLICA_MAP in {message.kind for message in sent}
    again = runner.reloaded()["c1"]
    assert again.waiting == {}
    assert list(again.topics) == ["t"]


def test_a_decommissioned_spu_that_holds_nothing_leaves_a_tombstone() -> None:
    """It is forgotten, in the state and in the topic."""
    runner, events = Runner(), Events()
    runner.send(*events.joins(0, 7))
    sent = runner.send(events.leave(7, mode=LeaveMode.DECOMMISSION))
    assert state_messages(sent, MessageKind.SPU_STATE)[b"c1/spu/7"] is None
    assert sorted(runner.reloaded()["c1"].spus) == [0]


def test_a_batch_of_large_maps_is_written_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few events may be answered by gigabytes: the shard server holds a piece of them, not all."""
    held = 1_000_000
    monkeypatch.setattr(shard_batch_module, "HELD_SIZE_MAX", held)
    most = 0
    commit = Shard.commit

    def noting(self: Shard[Clusters], entries: Entries) -> Iterator[Write]:
        nonlocal most
        most = sum(len(value or b"") for value in entries.values())
        return commit(self, entries)

    monkeypatch.setattr(Shard, "commit", noting)
    runner, events = Runner(), Events()
    runner.send(*events.joins(*range(4), capacity=10**8))
    runner.send(*[events.create(f"t{number}", 100_000, 3) for number in range(10)])
    assert runner.store.size > 5 * held
    assert 0 < most < held
    assert picture(runner.reloaded()["c1"]) == picture(runner.shard.copy["c1"])


def test_entries_and_their_tombstones_are_taken_over_in_the_order_they_were_written() -> None:
    """A load meets tombstones after what they outdate."""
    clusters = Clusters()
    clusters.restore(b"sc1/waiting/t", encode_record(WAITING))
    clusters.restore(b"sc1/spu/7", encode_record(SPU))
    assert clusters["c1"].waiting == {"t": WAITING}
    assert list(clusters["c1"].spus) == [7]
    clusters.restore(b"sc1/waiting/t", None)
    clusters.restore(b"sc1/spu/7", None)
    assert clusters["c1"].waiting == {}
    assert list(clusters["c1"].spus) == []


@pytest.mark.parametrize("key", [b"sc1/other/0", b"sc1", b"xc1/t", b"mc1"])
def test_a_tombstone_of_what_cannot_go_is_refused(key: bytes) -> None:
    """Who wrote it is not this program."""
    with pytest.raises(InvariantError, match="the state holds a tombstone under"):
        Clusters().restore(key, None)


def test_every_kind_of_message_has_a_topic() -> None:
    """The sink looks it up by the kind's number."""
    assert sorted(KINDS) == list(MessageKind)
    assert KINDS[MessageKind.WAITING_STATE] == (ASSIGNER_STATE, "WaitingState")


def test_each_kind_of_event_is_counted_under_a_name_of_its_own() -> None:
    """An answer to an event without one would end the job."""
    assert set(REQUESTS) == set(get_args(Event))
    assert len(set(REQUESTS.values())) == len(REQUESTS)


def test_a_shard_keeps_what_spus_have_and_topics_need() -> None:
    """A shard that is loaded again knows what is used of each resource, and what waits for it."""
    runner, events = Runner(), Events()
    runner.send(*(events.join(spu_id, resources={"disk": 10}) for spu_id in range(2)))
    need = {"demand": {"disk": 4}, "leader_demand": {"disk": 5}}
    waits = events.create("u", 3, 2, on_shortage=OnShortage.WAIT, policy=Policy.BALANCED, **need)
    runner.send(events.create("t", 1, 2, policy=Policy.BALANCED, **need), waits)
    before = runner.shard.copy.of("c1")
    after = runner.reloaded()["c1"]
    assert picture(after) == picture(before)
    assert {spu_id: dict(after.ledger.used(spu_id)) for spu_id in (0, 1)} in (
        {0: {"disk": 4}, 1: {"disk": 5}},
        {0: {"disk": 5}, 1: {"disk": 4}},
    )
    assert after.waiting["u"].need == after.topics["t"].need


def test_a_shard_keeps_taints_and_constraints() -> None:
    """A shard that is loaded again keeps replicas away from whom it did before."""
    runner, events = Runner(), Events()
    taint = Taint("pool", "pay", TaintEffect.EVICT)
    runner.send(*events.joins(0, 1), events.join(2, taints=(taint,)))
    rules = Constraints(require=("spu_id notin (0)",), spread=(SpreadLevel("rack"),))
    given = {"policy": Policy.BALANCED, "constraints": rules}
    waits = events.create("u", 1, 2, on_shortage=OnShortage.WAIT, **given)
    runner.send(events.create("t", 1, 1, **given), waits)
    before = runner.shard.copy.of("c1")
    after = runner.reloaded()["c1"]
    assert picture(after) == picture(before)
    assert after.spus[SpuId(2)].taints == (taint,)
    assert after.ring.ids.tolist() == [0, 1]
    assert after.topics["t"].replicas.lists().tolist() == [[1]]
    assert after.topics["t"].constraints == rules == after.waiting["u"].constraints
