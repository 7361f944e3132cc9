"""What a recovered checkpoint holds before its job runs: the state its first batch begins with.

    metadata                  Spark's own, with the query's id, which Spark takes over; it says
                              as well that the rest must be there
    recovery/state.parquet    rows (shard, key, value): each shard's log (`job/shard/state_log.py`)
    recovery/recovery.json    what the state is of, with its SHA-256; it is written after the state

Rules:
- Nothing in it ever changes: batch 0 may be repeated, and must begin with the same state.
- It is used until Spark has noted batch 0 as done. From then on the state is Spark's, and
  `recovery/` is only a record of what happened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from spu_assigner.schemas.messages.wire import RecoveredFrom
from spu_assigner.stream.job.checkpoint.files import (
    Checkpoint,
    CheckpointError,
    Files,
    Positions,
    batches_in,
    positions_from_json,
    positions_to_json,
)

FOLDER: Final = "recovery"
STATE_FILE: Final = f"{FOLDER}/state.parquet"
NOTE_FILE: Final = f"{FOLDER}/recovery.json"
METADATA_FILE: Final = "metadata"
STATE_SCHEMA: Final = "shard int, key string, value binary"
RECOVERED: Final = '"recovered":true'  # in the metadata, where Spark passes it over
AGAIN: Final = "run `spu-assigner recover` again"

_VERSION: Final = 1


class RecoveryError(CheckpointError):
    """A recovered checkpoint cannot be started from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a recovered state is of."""

    release: str  # that made it
    query: str
    prefix: str  # of the topics it was made from
    checkpoint_id: str  # of the recovered checkpoint
    recovered_from: RecoveredFrom
    positions: Positions  # the input's, with the last batch
    shards: int
    state_sha256: str  # of the file of the state
    topic_ids: Mapping[str, str]  # Kafka's, of the input topics

    def to_json(self) -> str:
        """As it is written."""
        positions = positions_to_json(self.positions)
        return json.dumps({"version": _VERSION, **asdict(self), "positions": positions}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ValueError, TypeError, LookupError or AttributeError: it is none."""
        fields: dict[str, Any] = json.loads(text)
        version = fields.pop("version")
        if version != _VERSION:
            raise ValueError(f"it has version {version}, this release reads {_VERSION}")
        fields["recovered_from"] = RecoveredFrom(**fields["recovered_from"])
        fields["positions"] = positions_from_json(fields["positions"])
        return cls(**fields)


def pending_recovery(
    files: Files, place: str, checkpoint: Checkpoint, *, query: str, prefix: str
) -> Recovery | None:
    """What the first batch of a checkpoint begins with; None: it was not recovered, or has run."""
    if batches_in(files, f"{place}/commits"):
        return None
    lines = files.lines(f"{place}/{NOTE_FILE}")
    if lines is None:
        if RECOVERED in "".join(files.lines(f"{place}/{METADATA_FILE}") or ()):
            raise RecoveryError(
                f"{place}/{NOTE_FILE} is missing, and the first batch begins from it; "
                f"{AGAIN}, with a new folder"
            )
        return None
    try:
        recovery = Recovery.from_json("\n".join(lines))
    except (ValueError, TypeError, LookupError, AttributeError) as reason:
        raise RecoveryError(
            f"{place}/{NOTE_FILE} cannot be used ({reason}); {AGAIN}, with a new folder"
        ) from reason
    if (recovery.query, recovery.prefix) != (query, prefix):
        raise RecoveryError(
            f"checkpoint {place} was recovered for query {recovery.query!r} and topic prefix "
            f"{recovery.prefix!r}, and the settings say {query!r} and {prefix!r}; name these, or "
            "another checkpoint"
        )
    if recovery.checkpoint_id != checkpoint.id:
        raise RecoveryError(
            f"the recovery of checkpoint {place} was not finished (it is for id "
            f"{recovery.checkpoint_id}, found {checkpoint.id}); {AGAIN}"
        )
    found = files.sha256(f"{place}/{STATE_FILE}")
    if found != recovery.state_sha256:
        raise RecoveryError(
            f"{place}/{STATE_FILE} is {'missing' if found is None else 'damaged'}: SHA-256 "
            f"{found}, expected {recovery.state_sha256}; {AGAIN}, with a new folder"
        )
    return recovery


def starting_offsets(positions: Positions, topic: str, *, partitions: int) -> dict[str, int]:
    """Where to read a topic from, for each partition that it has now; -2: from its beginning. A
    partition that never had a message, or is new, is read whole."""
    known = {each.partition: each.next for each in positions.get(topic, ())}
    return {str(number): known.get(number, -2) for number in range(partitions)}
