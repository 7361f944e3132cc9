"""Nothing is kept of a cluster that has no SPU, no topic and no waiting request."""

from __future__ import annotations

from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
from spu_assigner.core.base.records import ClusterGone, EntryGone, Record
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState, evolve
from support.events.builders import Events
from support.model.pictures import picture

GONE = LeaveMode.DECOMMISSION


def emptied(state: ClusterState, events: Events) -> list[Record]:
    """The records of a life that ends with the last SPU, after 40 remembered events."""
    life: list[Event] = [events.join(0), events.create("t", 3, 1)]
    life += [events.delete("unknown") for _ in range(36)]
    life += [events.delete("t"), events.leave(0, mode=GONE)]
    records: list[Record] = []
    for event in life:
        records += step(state, event, default_policy=Policy.BALANCED)
    return records


def test_a_cluster_whose_last_spu_is_gone_is_as_one_that_never_was() -> None:
    state, events = ClusterState("c1"), Events()
    records = emptied(state, events)
    assert isinstance(records[-1], ClusterGone)
    assert picture(state) == picture(ClusterState("c1"))
    replayed = ClusterState("c1")
    for record in records:
        evolve(replayed, record)
    assert picture(replayed) == picture(state)


def test_a_cluster_that_comes_again_within_a_batch_is_published_as_it_is() -> None:
    """Blocks of ids that the earlier life had and this one has not are taken back."""
    state, events = ClusterState("c1"), Events()
    for number in range(40):
        step(state, events.join(number), default_policy=Policy.BALANCED)
    before = ClusterState("c1")
    stored = list(state.take_entries())
    for number in range(40):
        step(state, events.leave(number, mode=GONE), default_policy=Policy.BALANCED)
    assert state.is_empty
    step(state, events.join(7), default_policy=Policy.BALANCED)
    for entry in [*stored, *state.take_entries()]:
        if isinstance(entry, EntryGone):
            before.forget_entry(entry.kind, entry.name)
        else:
            before.restore(entry)
    assert picture(before) == picture(state)


def test_an_spu_that_is_offline_a_topic_and_a_create_that_waits_keep_a_cluster() -> None:
    """Then a repeated event is remembered."""
    for kept in ("offline", "waiting", "topic"):
        state, events = ClusterState("c1"), Events()
        join = events.join(0)
        step(state, join, default_policy=Policy.BALANCED)
        if kept == "waiting":
            wait = events.create("w", 1, 5, on_shortage=OnShortage.WAIT)
            step(state, wait, default_policy=Policy.BALANCED)
        if kept == "topic":
            step(state, events.create("t", 1, 1), default_policy=Policy.BALANCED)
        mode = LeaveMode.OFFLINE if kept == "offline" else GONE
        step(state, events.leave(0, mode=mode), default_policy=Policy.BALANCED)
        assert step(state, join, default_policy=Policy.BALANCED) == (), kept
