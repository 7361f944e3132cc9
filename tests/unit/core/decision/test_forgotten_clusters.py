"""Nothing is kept of a cluster that has no SPU, no topic and no waiting request."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.events import LeaveMode
from spu_assigner.core.base.records import ClusterGone, EntryGone
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState, evolve
from support.events.one_cluster import OneCluster
from support.model.pictures import picture

GONE = LeaveMode.DECOMMISSION


def test_a_cluster_whose_last_spu_is_gone_is_as_one_that_never_was() -> None:
    """After 40 remembered events; for who replays the records, too."""
    life, replayed = OneCluster(), ClusterState("c1")
    build = life.build
    events = [build.join(0), build.create("t", 3, 1), *(build.delete("no") for _ in range(36))]
    for event in (*events, build.delete("t"), build.leave(0, mode=GONE)):
        records = step(life.state, event, default_policy=life.default)
        for record in records:
            evolve(replayed, record)
    assert isinstance(records[-1], ClusterGone)
    assert picture(life.state) == picture(ClusterState("c1")) == picture(replayed)


def test_a_cluster_that_comes_again_within_a_batch_is_published_as_it_is() -> None:
    life, before = OneCluster(), ClusterState("c1")
    life.join(*range(40))
    stored = list(life.state.take_entries())
    for number in range(40):
        life.leave(number, GONE)
    assert life.state.is_empty
    life.join(7)
    for entry in [*stored, *life.state.take_entries()]:
        if isinstance(entry, EntryGone):
            before.forget_entry(entry.kind, entry.name)
        else:
            before.restore(entry)
    assert picture(before) == picture(life.state)


@pytest.mark.parametrize("kept", ["offline", "waiting", "topic"])
def test_an_spu_that_is_offline_a_topic_and_a_create_that_waits_keep_a_cluster(kept: str) -> None:
    life = OneCluster()
    join = life.build.join(0)
    life.apply(join)
    if kept == "waiting":
        life.wait("w", 1, 5)
    if kept == "topic":
        life.create("t", 1, 1)
    life.leave(0, LeaveMode.OFFLINE if kept == "offline" else GONE)
    assert life.apply(join) == []
