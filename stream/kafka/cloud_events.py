"""The headers of what the job writes: CloudEvents 1.0 in Kafka's binary mode, and the order.

`shard` and `sequence` say where a message stands in its batch: the shards follow each other by
their numbers, in each its messages by theirs, from 0. A batch's digest is taken in this order.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from spu_assigner.schemas.messages.wire import CommitMarker

Headers = list[tuple[str, bytes]]

TOPIC_RELEASED: Final = "TopicReleased"  # of a tombstone: the topic is released, not deleted
RELEASED_TYPE: Final = f"io.spuassigner.v1.{TOPIC_RELEASED}".encode()  # the same, as `ce_type`


def marker_headers(marker: CommitMarker, time_ms: int) -> Headers:
    """Those of a marker: which batch of which checkpoint it is of, and when that was sent."""
    ce_id = f"{marker.query}/{marker.checkpoint_id}/{marker.batch}".encode()
    return output_headers(marker.query, "CommitMarker", ce_id, time_ms, (0, 0))[:-2]


def output_headers(
    query: str, type_name: str, ce_id: bytes, time_ms: int, place: tuple[int, int]
) -> Headers:
    """Those of any other output, in their order; `place`: shard and sequence."""
    version, source, kind, content = _constant(query, type_name)
    return [
        version,
        ("ce_id", ce_id),
        source,
        kind,
        ("ce_time", rfc3339(time_ms)),
        content,
        ("shard", b"%d" % place[0]),
        ("sequence", b"%d" % place[1]),
    ]


@lru_cache(maxsize=64)
def _constant(query: str, type_name: str) -> tuple[tuple[str, bytes], ...]:
    """What the messages of one type have in common."""
    return (
        ("ce_specversion", b"1.0"),
        ("ce_source", f"/spu-assigner/{query}".encode()),
        ("ce_type", f"io.spuassigner.v1.{type_name}".encode()),
        ("content-type", b"application/avro"),
    )


def tombstone_is_release(headers: Iterable[tuple[str, bytes | str | None]] | None) -> bool:
    """Whether a tombstone of `replica-map` is a release's, by its headers; else a delete's."""
    return ("ce_type", RELEASED_TYPE) in (headers or ())


@lru_cache(maxsize=4_096)  # Answers of a batch share their times; 3 us each otherwise.
def rfc3339(time_ms: int) -> bytes:
    """A time as CloudEvents write it."""
    seconds, milliseconds = divmod(time_ms, 1000)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z".encode()
