"""What a shard sends and keeps of waiting requests and of SPUs that are forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest
from spu_assigner.core.base.constraints import Constraints, SpreadLevel, Taint, TaintEffect
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.events import Event, OnShortage, Policy, SpuId
from spu_assigner.stream.job.shard import batch as shard_batch_module
from spu_assigner.stream.job.shard.bundle import Message
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.state_log import Entries, Shard, Write
from spu_assigner.stream.job.shard.tally import REQUESTS
from support.events.builders import Events
from support.events.one_cluster import picture
from support.shard.stores import OneShard, begin


def sent(shard: OneShard, *events: Event) -> list[Message]:
    """What one batch of these is answered with."""
    return [message for bundle in shard.bundles(events) for message in bundle.messages()]


def reloaded(shard: OneShard) -> Clusters:
    """What another worker would read from the store."""
    clusters = Clusters()
    begin(Shard(clusters), shard.store)
    return clusters


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
    shard, events = OneShard(), Events()
    sent(shard, *events.joins(*range(4), capacity=10**8))
    sent(
        shard,
        *[events.create(f"t{number}", 100_000, 3, policy=Policy.FLUVIO) for number in range(10)],
    )
    assert shard.store.size > 5 * held
    assert 0 < most < held
    assert picture(reloaded(shard)["c1"]) == picture(shard.clusters["c1"])


@pytest.mark.parametrize("key", [b"sc1/other/0", b"sc1", b"xc1/t", b"mc1"])
def test_a_tombstone_of_what_cannot_go_is_refused(key: bytes) -> None:
    """Who wrote it is not this program."""
    with pytest.raises(InvariantError, match="the state holds a tombstone under"):
        Clusters().restore(key, None)


def test_each_kind_of_event_is_counted_under_a_name_of_its_own() -> None:
    """Dashboards and alerts go by them."""
    assert set(REQUESTS) == set(get_args(Event))
    labels = "adopt constraints cordon create delete demand demote grow join leave rebalance"
    labels += " release replication uncordon undemote"
    assert " ".join(sorted(REQUESTS.values())) == labels


def test_a_shard_keeps_what_spus_have_and_what_topics_need() -> None:
    """A shard that is loaded again knows what is used of each resource, what waits for it, and
    from whom it keeps replicas away."""
    shard, events = OneShard(), Events()
    taint = Taint("pool", "pay", TaintEffect.EVICT)
    spus = [events.join(spu_id, resources={"disk": 10}) for spu_id in range(2)]
    sent(shard, *spus, events.join(2, taints=(taint,)))
    rules = Constraints(require=("spu_id notin (0)",), spread=(SpreadLevel("rack"),))
    need = {"demand": {"disk": 4}, "leader_demand": {"disk": 5}}
    given = {"policy": Policy.BALANCED, "constraints": rules, **need}
    waits = events.create("u", 1, 2, on_shortage=OnShortage.WAIT, **given)
    sent(shard, events.create("t", 1, 1, **given), waits)
    before, after = shard.clusters.of("c1"), reloaded(shard)["c1"]
    assert picture(after) == picture(before)
    assert after.spus[SpuId(2)].taints == (taint,)
    assert dict(after.ledger.used(1)) == {"disk": 5}
    assert after.topics["t"].constraints == rules == after.waiting["u"].constraints
    assert after.waiting["u"].need == after.topics["t"].need
