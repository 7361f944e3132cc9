"""The decoded copy of a shard: a start decodes no more than is asked for, and nothing wrongly."""

from __future__ import annotations

import random

import pytest
from spu_assigner.core import Assigner
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.events import Event
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages import codec
from spu_assigner.schemas.messages.codec import encode_record
from spu_assigner.stream.job.shard import clusters as clusters_module
from spu_assigner.stream.job.shard.clusters import Clusters, map_key, output_key, state_key
from support.events.builders import Events
from support.events.one_cluster import picture

Stored = list[tuple[bytes, bytes | None]]


def life(cluster_id: str, topics: int = 6) -> tuple[ClusterState, Stored]:
    """A cluster, and what was published of it: all values of all keys in order."""
    events = Events(cluster_id)
    sent: list[Event] = [*events.joins(0, 1, 2), events.join(3, capacity=4)]
    sent += [events.create(f"t{number}", 4, 2) for number in range(topics)]
    sent += [events.delete("t1"), events.grow("t2", 7), events.leave(3)]
    assigner, stored = Assigner(), Stored()
    for event in sent:
        for record in assigner.apply(event):
            if isinstance(record, ReplicaMap):
                key = map_key(f"{cluster_id}/{record.topic}".encode())
                stored.append((key, None if record.replicas is None else encode_record(record)))
        entries = assigner.clusters[cluster_id].take_entries()
        stored += [(state_key(output_key(entry)), encode_record(entry)) for entry in entries]  # type: ignore[arg-type]
    return assigner.clusters[cluster_id], stored


def latest(stored: Stored) -> Stored:
    """What a log that was cleaned to the end holds."""
    return [(key, value) for key, value in dict(stored).items() if value is not None]


def restored(stored: Stored) -> Clusters:
    clusters = Clusters()
    for key, value in stored:
        clusters.restore(key, value)
    return clusters


@pytest.mark.parametrize("seed", range(5))
def test_what_is_put_aside_is_decoded_to_the_state_in_any_order(seed: int) -> None:
    """A store gives its segments in an order of its own, maps before their SPUs too."""
    state, stored = life("c1")
    shuffled = latest(stored)
    random.Random(seed).shuffle(shuffled)
    assert picture(restored(shuffled)["c1"]) == picture(state)


@pytest.mark.parametrize("read", [0, 1, 20, 45])
def test_a_cluster_that_lags_behind_takes_over_the_rest_read_or_unread(read: int) -> None:
    """Tombstones and newer maps meet what is put aside as they meet what is decoded."""
    state, stored = life("c1")
    clusters = restored(stored[:read])
    if read % 2:
        assert "c1" in clusters
        clusters.of("c1")
    for key, value in stored[read:]:
        clusters.restore(key, value)
    assert picture(clusters["c1"]) == picture(state)


def test_a_look_up_decodes_its_own_cluster_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer after a start must not wait for what other clusters hold."""
    decoded = []

    def noting(value: bytes) -> object:
        record = codec.decode_record(value)
        decoded.append(record.cluster_id)  # type: ignore[union-attr]
        return record

    monkeypatch.setattr(clusters_module, "decode_record", noting)
    clusters = restored([*life("c1")[1], *life("c2")[1]])
    assert decoded == []
    assert (sorted(clusters), len(clusters), "c2" in clusters) == (["c1", "c2"], 2, True)
    clusters.of("c1")
    assert set(decoded) == {"c1"}
    count = len(decoded)
    assert clusters["c1"] is clusters.of("c1")
    assert len(decoded) == count
    assert (sorted(clusters), len(clusters), "c3" in clusters) == (["c1", "c2"], 2, False)


def test_damage_stops_its_own_cluster_each_time() -> None:
    """A cluster that was decoded in part must not be taken for a small one by the next event."""
    (key, value), *others = latest(life("c1")[1])
    assert value is not None
    clusters = restored([*others, (key, value[:-1]), *life("c2")[1]])
    for _ in range(2):
        with pytest.raises(DecodeError):
            clusters.of("c1")
    assert picture(clusters["c2"]) == picture(life("c2")[0])
    clusters.restore(key, value)  # A newer value takes the place of the damaged one.
    assert picture(clusters["c1"]) == picture(life("c1")[0])


def test_a_record_under_another_clusters_key_is_refused() -> None:
    """Else a cluster would be given topics that are not its own."""
    key, value = latest(life("c1")[1])[0]
    clusters = restored([(key.replace(b"c1", b"c2"), value)])
    with pytest.raises(InvariantError, match="the state holds a record of 'c1' under"):
        clusters.of("c2")
