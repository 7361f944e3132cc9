"""Whether a batch, or a checkpoint, follows the last marker in Kafka; if not, what to do.

Rules:
- The marker's own batch is sent already: the same bytes must come out, and nothing is sent.
- The next one is sent. Without a marker only the first one is.
- Anything else means that checkpoint and Kafka do not fit together. Resuming would lose or repeat
  answers, so the query stops, and the error says what was found and what to do.
- The sink checks this when it has taken the transactional id, and is the authority. The checkpoint
  is checked before as well (`start_checks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.job.checkpoint.files import RECOVER
from spu_assigner.stream.job.checkpoint.recovered import AGAIN, Recovery, RecoveryError


class SinkError(AssignerError):
    """A batch could not be sent; nothing of it is visible."""


class FencedError(SinkError):
    """Another process has taken over this query's output."""


class TransactionExpiredError(SinkError):
    """A transaction was open for longer than Kafka permits, so Kafka has aborted it."""


class MarkerGapError(SinkError):
    """The checkpoint and the last marker in Kafka do not fit together."""


class ForeignCheckpointError(SinkError):
    """The last marker belongs to another checkpoint."""


class DigestMismatchError(SinkError):
    """A repeated batch does not hold what was sent the first time."""


def is_sent(marker: CommitMarker, last: CommitMarker | None, *, topic: str) -> bool:
    """Whether a batch is in Kafka already, by the last marker of `topic`; raises if neither."""
    if last is not None:
        check_checkpoint(marker.checkpoint_id, last)
    require_next(marker.batch, last, query=marker.query, topic=topic)
    if last is None or marker.batch != last.batch:
        return False
    if (marker.digest, marker.count) != (last.digest, last.count):
        raise DigestMismatchError(
            f"batch {marker.batch} was sent with {last.count} messages, digest "
            f"{last.digest[:16]}…; repeated it has {marker.count}, {marker.digest[:16]}…, and "
            f"nothing of it was sent: {_why_other(marker, last)}"
        )
    return True


def require_next(batch: int, last: CommitMarker | None, *, query: str, topic: str) -> None:
    """Raise MarkerGapError unless a batch is that of the last marker, or the one after it."""
    if last is None:
        if batch == 0:
            return
        raise MarkerGapError(
            f"the checkpoint is at batch {batch}, but {topic} has no marker of query "
            f"{query!r}; give the job the Kafka cluster, topic prefix and query name that "
            "the checkpoint had before, or start with a new checkpoint, which answers every event "
            "again"
        )
    if batch not in (last.batch, last.batch + 1):
        why = (
            "an older copy of the checkpoint is in use, bring back the latest one"
            if batch < last.batch
            else "markers are missing, so the outputs were set back or belong to another run; "
            "bring back the topics that go with the checkpoint"
        )
        raise MarkerGapError(
            f"the checkpoint is at batch {batch}, the last marker of query {query!r} at "
            f"{last.batch}; expected {last.batch} or {last.batch + 1}: {why}, or {RECOVER}"
        )


def check_checkpoint(checkpoint_id: str | None, last: CommitMarker) -> None:
    """Raise ForeignCheckpointError if the last marker is of another one; None: of a new one."""
    if last.checkpoint_id == checkpoint_id:
        return
    mine = "a new one" if checkpoint_id is None else checkpoint_id
    raise ForeignCheckpointError(
        f"the last marker of query {last.query!r} (batch {last.batch}) is of checkpoint "
        f"{last.checkpoint_id}, and this is {mine}: its answers would be given twice; resume "
        f"that checkpoint, or {RECOVER}, or choose another query name and topic prefix"
    )


@contextmanager
def as_recovery(recovery: Recovery | None, place: str) -> Iterator[None]:
    """Report a recovery that does not go with the last marker as such."""
    try:
        yield
    except ForeignCheckpointError as reason:
        if recovery is None:
            raise
        raise RecoveryError(
            f"the recovery of checkpoint {place} was not finished, or another checkpoint has been "
            f"run since ({reason}); {AGAIN}, to the same folder"
        ) from reason


def _why_other(marker: CommitMarker, last: CommitMarker) -> str:
    """What differs, as far as the markers show it, and what to do."""
    if marker.offsets != last.offsets:
        return (
            "it read other messages than before, so an older copy of the checkpoint is in use, or "
            f"a damaged one; bring back the latest copy, or {RECOVER}"
        )
    then, now = last.release, marker.release
    if then != now:
        return (
            f"it was sent by release {then}, this is {now} and gives other bytes; start once with "
            f"release {then} and stop it with Ctrl-C after its next batch, then start {now} "
            f"again; or {RECOVER}"
        )
    if last.default_policy != marker.default_policy:
        return (
            f"it was sent with default_policy {last.default_policy}, now it is "
            f"{marker.default_policy}; start once with the former and change it after the next "
            "batch"
        )
    return (
        f"release {now} gave other bytes for the same messages, so the state, a setting or the "
        "code is another; start with what was in use then (`wire` and all other settings), bring "
        f"back the latest copy of the checkpoint, or {RECOVER}"
    )
