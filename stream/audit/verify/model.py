"""What an audit reports: findings, and how far it has checked.

What merely could not be checked (inputs that have expired, messages that compaction took) is no
finding, but is reported as well, with the batches it holds for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, NamedTuple

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.kafka.topics import (
    ASSIGNER_STATE,
    DEAD_LETTER,
    REPLICA_MAP,
    RING_EVENTS,
    SPU_EVENTS,
    TOPIC_EVENTS,
    TOPIC_STATUS,
)

INPUTS: Final = (SPU_EVENTS, TOPIC_EVENTS)
OUTPUTS: Final = (REPLICA_MAP, TOPIC_STATUS, RING_EVENTS, DEAD_LETTER, ASSIGNER_STATE)
COMPACTED: Final = frozenset({REPLICA_MAP, ASSIGNER_STATE})

FINDINGS_KEPT_MAX: Final = 1_000  # all are counted; nobody reads more of them
CHECKPOINT_SHOWN: Final = 8  # letters of a checkpoint's id
SHOWN_MAX: Final = 60  # bytes of a value in a finding

Headers = tuple[tuple[str, bytes | None], ...]
Place = tuple[str, int]  # a topic without the prefix, a partition


class VerifyError(AssignerError):
    """There is nothing to verify."""

    exit_status = 2


class Where(NamedTuple):
    """Where a message is, or a finding that is at none."""

    topic: str | None = None  # without the prefix
    partition: int | None = None
    offset: int | None = None
    key: bytes | None = None


class Read(NamedTuple):
    """One message as it lies in Kafka."""

    topic: str  # without the prefix
    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def at(self) -> Where:
        return Where(self.topic, self.partition, self.offset, self.key)


NOWHERE: Final = Where()


class FindingKind(Enum):
    """What a finding is of; the value says what to do about it."""

    # A marker is unreadable, or does not fit the one before.
    MARKER = "the audit topic was written to or cut by hand: compare it with a backup of it"
    # assigner-commits does not say what assigner-audit says.
    COMMITS = (
        "stop the job before it resumes from a wrong marker; trust the audit's last marker, and "
        "make a new checkpoint with `spu-assigner recover`"
    )
    # A batch has more or fewer messages than its marker says, or others than were sent.
    COUNT = "see the other findings of this batch; without one, compare the topics with a backup"
    DIGEST = "a message of this batch is not as it was sent: compare the topics with a backup"
    # A message is in no batch.
    STRAY = (
        "the query did not write it: find who else may write to this topic, and have its readers "
        "drop what has this ce_id"
    )
    TWICE = "have readers drop the later one by its ce_id; find who else may write there"
    # In another order or partition than it was sent to.
    MISPLACED = (
        "for a compacted topic the last message of a key is what counts: restore its key from a "
        "backup, or delete the topic in question and create it again"
    )
    MISSING = (
        "restore it from a backup, or request the same again under a new event id; if the job "
        "runs, run verify again first"
    )
    ALTERED = "do not act on it; what was expected is what the job decided"
    UNEXPECTED = "do not act on it: it does not follow from the events that came in"
    INPUT = "find out who deletes from or writes to the input topics"
    # Of a compacted topic, otherwise than by compaction.
    DELETED = (
        "state can no longer be rebuilt from this topic: keep the checkpoint safe, and set its "
        "cleanup.policy back to compact (`spu-assigner topics check`)"
    )
    # The replay failed.
    REPLAY = "the inputs are not those that the job has read; see the findings before this one"


class How(StrEnum):
    """How far a batch was checked."""

    REPLAYED = "replayed from the inputs, every message compared"
    DIGEST = "compared with count and digest"
    PARTLY = "in part, the messages that are still there"


class Label(NamedTuple):
    """A batch by the names that people know."""

    checkpoint_id: str
    batch: int


class AuditFinding(NamedTuple):
    """One thing that must not be."""

    kind: FindingKind
    batch: Label | None
    at: Where
    found: str
    expected: str


@dataclass(slots=True)
class AuditReport:
    """The result; filled during the audit."""

    query: str
    findings: list[AuditFinding] = field(default_factory=list)  # the first FINDINGS_KEPT_MAX
    finding_count: int = 0
    messages: int = 0  # of the outputs, that were looked at
    labels: list[Label] = field(default_factory=list)  # of each batch; the last is the fixed end
    _how: dict[How, list[int]] = field(default_factory=lambda: defaultdict(list))
    _unchecked: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def is_right(self) -> bool:
        return self.finding_count == 0

    def add(
        self,
        kind: FindingKind,
        found: str,
        expected: str,
        at: Where = NOWHERE,
        *,
        batch: int | Label | None = None,
    ) -> None:
        """Add a finding, with its place and its batch (by index, or by name)."""
        self.finding_count += 1
        if len(self.findings) < FINDINGS_KEPT_MAX:
            label = self.labels[batch] if isinstance(batch, int) else batch
            self.findings.append(AuditFinding(kind, label, at, found, expected))

    def checked(self, index: int, how: How) -> None:
        self._how[how].append(index)

    def not_checked(self, why: str, index: int | None = None) -> None:
        """Something could not be checked: of one batch, or at all."""
        indices = self._unchecked[why]
        if index is not None:
            indices.append(index)

    def how(self) -> Iterator[tuple[How, int, str]]:
        """How batches were checked: the way, how many, which."""
        for how in How:
            if indices := self._how.get(how):
                yield how, len(indices), self._ranges(indices)

    def unchecked(self) -> Iterator[str]:
        """What could not be checked and why, a line each."""
        for why, indices in self._unchecked.items():
            yield f"{self._ranges(indices)}: {why}" if indices else why

    def _ranges(self, indices: list[int]) -> str:
        """`batches 0–311, 313`; with the checkpoint of each if there are several."""
        runs: list[list[int]] = []
        for index in indices:
            if runs and runs[-1][-1] == index - 1:
                runs[-1][1:] = [index]
            else:
                runs.append([index])
        shown = ", ".join("–".join(map(self._name, run)) for run in runs)
        return f"{'batch' if len(indices) == 1 else 'batches'} {shown}"

    def _name(self, index: int) -> str:
        checkpoint_id, batch = self.labels[index]
        is_only = self.labels[0].checkpoint_id == self.labels[-1].checkpoint_id
        return f"{batch}" if is_only else f"{batch} of {checkpoint_id[:CHECKPOINT_SHOWN]}"


def difference(found: object, expected: object) -> tuple[str, str]:
    """Both; long bytes from where they differ on."""
    if isinstance(found, bytes) and isinstance(expected, bytes) and len(found) > SHOWN_MAX:
        pairs = enumerate(zip(found, expected, strict=False))
        at = next((place for place, (one, other) in pairs if one != other), len(expected))
        return _from(at, found), _from(at, expected)
    return short(found), short(expected)


def _from(at: int, data: bytes) -> str:
    return f"of {len(data)} bytes, from {at} on {data[at : at + 16].hex()}"


def short(value: object) -> str:
    """A value in as many letters as anyone reads."""
    text = repr(value)
    return text if len(text) <= 4 * SHOWN_MAX else f"{text[: 4 * SHOWN_MAX]}…"
