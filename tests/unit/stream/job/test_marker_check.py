"""What follows the last marker, and what is said where it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spu_assigner.schemas.messages.wire import CommitMarker, PartitionOffsets
from spu_assigner.stream.job.marker_check import (
    DigestMismatchError,
    ForeignCheckpointError,
    MarkerGapError,
    check_checkpoint,
    is_sent,
)


def read(last: int) -> dict[str, tuple[PartitionOffsets, ...]]:
    return {"in": (PartitionOffsets(partition=0, first=0, last=last, count=last + 1),)}


SENT = CommitMarker(
    query="q",
    checkpoint_id="one",
    batch=7,
    count=3,
    digest="ab" * 32,
    offsets=read(4),
    release="1.0.0.dev0",
    shards=2,
    default_policy="balanced",
    positions={},
    topic_ids={},
)


def test_the_next_batch_is_to_be_sent_and_the_same_one_is_not() -> None:
    """Also by another release: where it gives the same bytes there is nothing to report."""
    assert not is_sent(replace(SENT, batch=8, digest="cd" * 32), SENT, topic="t")
    assert is_sent(replace(SENT, release="0.9.0"), SENT, topic="t")


def test_without_a_marker_only_the_first_batch_is_sent() -> None:
    """A later one has answered before, under another name or in another cluster."""
    assert not is_sent(replace(SENT, batch=0), None, topic="t")
    with pytest.raises(MarkerGapError, match=r"at batch 7, but t has no marker of query 'q'"):
        is_sent(SENT, None, topic="t")


@pytest.mark.parametrize(
    ("batch", "message"),
    [(6, "an older copy of the checkpoint is in use"), (9, "markers are missing")],
)
def test_a_gap_to_either_side_is_reported_with_its_cause_and_ways_out(
    batch: int, message: str
) -> None:
    """Behind: the checkpoint is old. Ahead: it is Kafka that was set back."""
    with pytest.raises(MarkerGapError) as refused:
        is_sent(replace(SENT, batch=batch), SENT, topic="t")
    assert message in str(refused.value)
    assert "expected 7 or 8" in str(refused.value)
    assert "spu-assigner recover" in str(refused.value)


@pytest.mark.parametrize("checkpoint_id", [None, "two"])
def test_another_checkpoint_is_refused(checkpoint_id: str | None) -> None:
    """Deleted, or another one: the events would be answered twice."""
    with pytest.raises(ForeignCheckpointError, match=r"of checkpoint one, .*spu-assigner recover"):
        check_checkpoint(checkpoint_id, SENT)
    with pytest.raises(ForeignCheckpointError):
        is_sent(replace(SENT, checkpoint_id="two", batch=8), SENT, topic="t")


@pytest.mark.parametrize(
    ("sent", "repeated", "message"),
    [
        (
            replace(SENT, release="0.2.9"),
            SENT,
            "sent by release 0.2.9, this is 1.0.0.dev0 and gives other bytes; start once with "
            "release 0.2.9 and stop it with Ctrl-C",
        ),
        (
            replace(SENT, default_policy="kafka"),
            SENT,
            "with default_policy kafka, now it is balanced",
        ),
        (SENT, replace(SENT, offsets=read(5)), "read other messages than before, so an older copy"),
        (SENT, SENT, "release 1.0.0.dev0 gave other bytes for the same messages"),
    ],
)
def test_other_bytes_for_the_same_batch_are_reported_with_what_differs(
    sent: CommitMarker, repeated: CommitMarker, message: str
) -> None:
    """The markers show which of release, setting, input or state it was."""
    with pytest.raises(DigestMismatchError) as refused:
        is_sent(replace(repeated, digest="cd" * 32), sent, topic="t")
    assert message in str(refused.value)
    assert "batch 7 was sent with 3 messages" in str(refused.value)


def test_a_count_that_differs_is_refused_as_a_digest_is() -> None:
    """Both are held against the marker."""
    with pytest.raises(DigestMismatchError):
        is_sent(replace(SENT, count=4), SENT, topic="t")
