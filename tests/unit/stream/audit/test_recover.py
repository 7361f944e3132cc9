"""What is made of published messages, without Kafka and Spark."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from spu_assigner.schemas.messages.wire import PartitionPosition, RecoveredFrom
from spu_assigner.stream.audit.rebuild import write_state
from spu_assigner.stream.audit.verify.model import COMPACTED
from spu_assigner.stream.job.checkpoint.recovered import Recovery, starting_offsets
from spu_assigner.stream.job.query import shard_labels
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.published import (
    DamagedOutputError,
    PublishedError,
    PublishedState,
    UnsoundError,
)
from support.events.builders import Events
from support.events.histories import written
from support.events.one_cluster import picture
from support.pages.ui_pages import outputs
from support.shard.checkpoint_state import read_shards


@pytest.fixture
def lived() -> tuple[Clusters, PublishedState]:
    """What a job has decided, and what it has published of it."""
    writer, published = written(3, batches=12), PublishedState("p.")
    for (topic, partition), reads in writer.topics.logs.items():
        for read in reads if topic in COMPACTED else ():
            published.take(topic, read.key or b"", read.value, place=(partition, read.offset))
    return writer.clusters, published


@pytest.mark.parametrize("shards", [1, 3, 8])
def test_each_cluster_is_in_the_shard_where_the_job_looks(
    lived: tuple[Clusters, PublishedState], tmp_path: Path, shards: int
) -> None:
    """All states are equal, whatever the number of shards."""
    clusters, published = lived
    write_state(tmp_path / "state", published, shards=shards)
    table = pq.read_table(tmp_path / "state")
    rows = list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    assert table.column_names == ["shard", "key", "value"]
    assert {row[0] for row in rows} <= set(shard_labels(shards))
    restored = read_shards(rows)
    assert {name: picture(restored[name]) for name in restored} == {
        name: picture(clusters[name]) for name in clusters
    }


def test_what_is_checked_is_the_state_itself(lived: tuple[Clusters, PublishedState]) -> None:
    """In any order of keys: the latest value counts."""
    clusters, published = lived
    assert published.cluster_ids == sorted(clusters)
    for name in Random(1).sample(published.cluster_ids, len(clusters)):
        assert picture(published.restored(name)) == picture(clusters[name])


@pytest.mark.parametrize("key", [b"", b"nobody", b"\xff/spu/1", b"/spu/1"])
def test_a_key_that_is_not_the_jobs_is_reported(key: bytes) -> None:
    """Somebody else writes there; what he has overwritten is not known."""
    reported = r"p\.assigner-state has under key .* \(partition 3, offset 7\) a key that is none"
    with pytest.raises(DamagedOutputError, match=reported):
        PublishedState("p.").take("assigner-state", key, b"x", place=(3, 7))


EVENTS, OTHERS = Events("c1"), Events("c2")
MESSAGES = outputs(
    [
        [*EVENTS.joins(0, 1, 2), *OTHERS.joins(0, 1), EVENTS.create("a", 2, 2)],
        [OTHERS.create("b", 3, 2)],
    ]
)
VALUES = {(each.topic, each.its_key): each.its_value for each in MESSAGES}
MAP, STATUS = VALUES["replica-map", b"c2/b"], VALUES["topic-status", b"c2/b"]


@pytest.mark.parametrize(
    ("topic", "key", "value", "error", "reported"),
    [
        ("replica-map", b"c2/b", b"no map", DamagedOutputError, "b'c2/b' .partition 3, offset 9"),
        ("replica-map", b"c1/b", MAP, DamagedOutputError, "b'c1/b' .* belongs under b'c2/b'"),
        ("assigner-state", b"c1/spu/9", STATUS, DamagedOutputError, "expected a map or an entry"),
        ("assigner-state", b"c1/spu/0", None, UnsoundError, "topic a is on SPU 0, which is not"),
    ],
    ids=["damaged", "under another key", "of another kind", "missing"],
)
def test_what_others_wrote_or_deleted_is_reported(
    topic: str, key: bytes, value: bytes | None, error: type[PublishedError], reported: str
) -> None:
    """Somebody else has written into the topic, or a disk has."""
    published = PublishedState("p.")
    for each in MESSAGES:
        if each.topic in COMPACTED:
            published.take(each.topic, each.its_key or b"", each.its_value, place=(0, 0))
    published.take(topic, key, value, place=(3, 9))
    with pytest.raises(error, match=reported):
        list(map(published.restored, published.cluster_ids))


def test_a_recovery_is_read_as_it_was_written() -> None:
    """Another release may read it."""
    recovery = Recovery(
        release="9.9",
        query="q",
        prefix="p.",
        checkpoint_id="new",
        recovered_from=RecoveredFrom(checkpoint_id="old", batch=7),
        positions={"p.spu-events": (PartitionPosition(partition=2, next=5),), "p.x": ()},
        shards=3,
        state_sha256="00",
        topic_ids={"p.spu-events": "id"},
    )
    assert Recovery.from_json(recovery.to_json()) == recovery


def test_a_partition_without_a_position_is_read_whole() -> None:
    """It is new, or never had a message."""
    positions = {"t": (PartitionPosition(partition=1, next=5),)}
    assert starting_offsets(positions, "t", partitions=3) == {"0": -2, "1": 5, "2": -2}
    assert starting_offsets(positions, "other", partitions=1) == {"0": -2}
