"""State does not grow with history: what is kept is in proportion to what lives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.codec import encode_record
from spu_assigner.stream.job.shard.bundle import MessageKind
from support.events.builders import Events
from support.events.simulation import publish
from support.project.case_share import share_of
from support.shard.stores import OneShard

CYCLES: Final = share_of(12_000)
SAMPLE_EVERY: Final = min(1_000, CYCLES // 2)
GROWTH_MAX: Final = 1.01  # numbers that count events take a byte more now and then
USUAL: Final = (Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA)


def one_cycle(build: Events, cycle: int) -> Iterator[Event]:
    """A topic comes, grows and goes; every tenth time an SPU too, with requests that wait for it.

    Names and ids are never used twice; all of one length, so that sizes can be compared.
    """
    name, spu_id = f"topic-{cycle:05d}", 20_000 + cycle
    policy = Policy.BALANCED if cycle % 8 == 0 else USUAL[cycle % len(USUAL)]
    yield build.create(name, 3, 2, policy=policy)
    if cycle % 4 == 0:
        yield build.grow(name, 4)
    if cycle % 10 == 0:
        for number in range(2):  # one of them is served by the join, the other withdrawn
            waiting, replicas = f"{name}.{number}", 5 + 3 * number
            yield build.create(waiting, 1, replicas, on_shortage=OnShortage.WAIT)
        yield build.join(spu_id, rack="abc"[cycle % 3], cores=2, capacity=40)
        yield build.leave(spu_id, mode=LeaveMode.DECOMMISSION)  # `….0` is short and waits on
        yield build.leave(0)
        yield build.join(0, rack="a", cores=2, capacity=40)
        for number in range(2):
            yield build.delete(f"{name}.{number}")
    yield build.delete(name)


@pytest.mark.thorough
def test_what_is_kept_is_flat_over_thousands_of_lives_of_topics() -> None:
    """Of what is published the latest value of each key, of the state every collection."""
    build, state = Events(), ClusterState("c1")
    published: dict[tuple[str, str], Any] = {}
    samples: list[tuple[int, int, dict[str, int]]] = []
    statuses: set[str] = set()
    for spu_id in range(4):
        step(
            state,
            build.join(spu_id, rack="abca"[spu_id], cores=2, capacity=40),
            default_policy=Policy.FLUVIO,
        )
    for cycle in range(CYCLES + 1):
        if cycle % SAMPLE_EVERY == 0:
            sizes = [len(encode_record(value)) for value in published.values()]
            samples.append((len(published), sum(sizes), collections_of(state)))
        for event in one_cycle(build, cycle):
            for record in step(state, event, default_policy=Policy.FLUVIO):
                if isinstance(record, ReplicaMap):
                    published["map", record.topic] = record
                statuses.add(str(getattr(record, "status", "")))
        publish(published, state)
    assert statuses >= {"assigned", "deleted", "waiting"}
    keys, size, collections = samples[1]
    for later in samples[2:]:
        assert (later[0], later[2]) == (keys, collections)
        assert later[1] <= size * GROWTH_MAX


def collections_of(state: ClusterState) -> dict[str, int]:
    """How many things each collection of a state holds, its own parts' included."""
    found = {}
    parts = {"state": state, "ledger": state.ledger, "memory": state.memory, "ring": state.ring}
    for part, holder in parts.items():
        for name, value in fields_of(holder):
            if isinstance(value, dict | set | list | tuple | np.ndarray):
                found[f"{part}.{name}"] = len(value)
    return found


def fields_of(value: object) -> list[tuple[str, Any]]:
    """The attributes of an object, in slots or not."""
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    names += getattr(value, "__dict__", {})
    return [(name, getattr(value, name)) for name in names if hasattr(value, name)]


def test_names_that_only_get_rejections_leave_nothing_behind() -> None:
    """Whoever may write to `topic-events` may invent names."""
    shard, build = OneShard(), Events()
    for part in range(4):
        names = [f"invented-{part}-{number}" for number in range(250)]
        [bundle] = shard.bundles([build.create("t", 1, 1, cluster_id=name) for name in names])
        kinds = {message.kind for message in bundle.messages()}
        assert kinds == {MessageKind.TOPIC_STATUS}
        assert len(shard.clusters) == 0
    assert shard.stored() == {}


def test_a_forgotten_cluster_leaves_the_copy_the_store_and_what_is_published() -> None:
    """In the batch that empties it, and after a start from what is stored."""
    shard, build = OneShard(), Events()
    shard.bundles([build.join(0), build.create("t", 1, 1), build.join(1, cluster_id="c2")])
    assert sorted(shard.clusters) == ["c1", "c2"]
    [bundle] = shard.bundles([build.delete("t"), build.leave(0, mode=LeaveMode.DECOMMISSION)])
    gone = {message.key for message in bundle.messages() if message.value is None}
    assert gone == {b"c1/t", b"c1/spu/0", b"c1/chains/all", b"c1/seen/0"}
    assert sorted(shard.clusters) == ["c2"]
    assert {key[1:3] for key in shard.stored()} == {b"c2"}
    again = OneShard(shard.store)
    again.bundles([build.join(2, cluster_id="c2")])
    assert sorted(again.clusters) == ["c2"]
