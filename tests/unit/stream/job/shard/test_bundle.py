"""Bundles: what is packed comes back, and the digest does not depend on where they end."""

from __future__ import annotations

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.stream.job.shard import bundle as bundle_module
from spu_assigner.stream.job.shard.bundle import (
    BUNDLE_SIZE,
    Bundle,
    Bundler,
    InputSource,
    Message,
    MessageKind,
    SourceRange,
    merged_ranges,
)

messages = st.builds(
    Message,
    kind=st.sampled_from([int(kind) for kind in MessageKind]),
    id=st.binary(max_size=40),
    key=st.none() | st.binary(max_size=300),
    value=st.none() | st.binary(max_size=2_000),
    time_ms=st.integers(0, 2**50),
)


def read(partition: int, first: int, last: int, count: int) -> SourceRange:
    return SourceRange(
        source=InputSource.TOPIC_EVENTS, partition=partition, first=first, last=last, count=count
    )


def pack(sent: list[Message], ranges: list[SourceRange]) -> list[bytes]:
    bundler = Bundler()
    for message in sent:
        bundler.put(*message)
    return [*bundler.full, bundler.close(ranges)]


def digest(bundles: list[bytes]) -> str:
    return hashlib.sha256(b"".join(Bundle(data).digestible for data in bundles)).hexdigest()


@given(st.lists(messages, max_size=30))
def test_what_was_packed_comes_back(sent: list[Message]) -> None:
    """A key or value that is null stays apart from one that is empty."""
    ranges = [read(0, 3, 9, 7)]
    bundles = pack(sent, ranges)
    assert [message for data in bundles for message in Bundle(data).messages()] == sent
    assert sum(Bundle(data).count for data in bundles) == len(sent)
    assert [each for data in bundles for each in Bundle(data).ranges] == ranges


def test_the_digest_is_the_same_wherever_bundles_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another release may pack otherwise, and must know the batch again."""
    sent = [Message(0, b"e%d" % number, b"k", bytes(100), 1) for number in range(500)]
    before = pack(sent, [])
    monkeypatch.setattr(bundle_module, "BUNDLE_SIZE", BUNDLE_SIZE // 100)
    after = pack(sent, [])
    assert len(after) > len(before)
    assert digest(after) == digest(before)


def test_the_digest_distinguishes_order_and_time() -> None:
    """Whatever a reader can see of a batch is in its digest."""
    one, two = Message(0, b"e", b"k", b"v", 1), Message(0, b"f", b"k", b"w", 1)
    digests = {
        digest(pack(sent, []))
        for sent in ([one, two], [two, one], [one, two._replace(time_ms=2)], [one])
    }
    assert len(digests) == 4


def test_a_bundle_of_another_format_is_refused() -> None:
    """Workers and driver may be of different releases while a cluster is being upgraded."""
    data = pack([], [])[0]
    with pytest.raises(InvariantError, match="format 9"):
        Bundle(b"\x09" + data[1:])


@pytest.mark.parametrize("summary", [b"[]", b"\xff", b"\x92\x90\xc3"])
def test_a_bundle_with_another_summary_is_refused(summary: bytes) -> None:
    """As one whose tally has other fields."""
    header = pack([], [])[0][:5] + struct.pack(">II", len(summary), 0)
    with pytest.raises(InvariantError, match="summary cannot be read"):
        Bundle(header + summary)


def test_ranges_of_shards_add_up() -> None:
    """Two shards read the same partition; the marker names the partition."""
    spus = SourceRange(source=InputSource.SPU_EVENTS, partition=0, first=0, last=0, count=1)
    ranges = [read(1, 5, 9, 3), read(0, 2, 2, 1), read(1, 4, 8, 2), spus]
    assert merged_ranges(ranges) == [spus, read(0, 2, 2, 1), read(1, 4, 9, 5)]
