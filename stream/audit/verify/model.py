"""What an audit reads and what it reports: messages as they lie in Kafka, findings, a report.

A finding is something that must not be. What merely could not be checked (inputs that have expired,
messages that compaction took) is no finding, but is reported as well, with the batches it holds
for: an audit never checks less without saying so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from itertools import groupby
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

Headers = tuple[tuple[str, bytes | None], ...]


class VerifyError(AssignerError):
    """There is nothing to verify."""

    exit_status = 2


class Read(NamedTuple):
    """One message as it lies in Kafka."""

    topic: str  # without the prefix
    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Where(NamedTuple):
    """Where a finding is that is at no message."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    key: bytes | None = None


NOWHERE: Final = Where()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One partition as it was read: committed messages, in the order of offsets."""

    topic: str  # without the prefix
    partition: int
    begin: int  # the first offset that is not deleted
    end: int  # the offset up to which it was read
    messages: Iterable[Read]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that an audit looks at.

    The parts may be gone through more than once. Outputs are read before the audit is read to its
    `end`, so that each batch they hold has its marker there.
    """

    query: str
    prefix: str
    audit: Part
    commits: Part
    outputs: Sequence[Part]
    inputs: Sequence[Part]
    # Markers from this offset of the audit on are later than the audit's fixed end: their batches
    # are not checked. None: all are.
    end_offset: int | None = None


class FindingKind(Enum):
    """What a finding is of; the value says what to do about it."""

    MARKER = (  # it is unreadable, or does not fit the one before
        "the audit topic was written to or cut by hand: compare it with a replica or backup of it; "
        "other findings are about the outputs themselves"
    )
    COMMITS = (  # assigner-commits does not say what assigner-audit says
        "stop the job before it resumes from a wrong marker; trust the audit's last marker, and "
        "rebuild the checkpoint from the outputs with `spu-assigner recover`"
    )
    COUNT = (  # a batch has more or fewer messages than its marker says
        "look for findings of single messages of this batch; without one, compare the topics with "
        "a replica or backup of them"
    )
    DIGEST = (
        "some message of this batch is not as it was sent: compare the topics with a replica or "
        "backup of them"
    )
    STRAY = (  # a message that is in no batch
        "the query did not write it: find who else may write to this topic, and have its readers "
        "drop what has this ce_id"
    )
    TWICE = "have readers drop the later one by its ce_id; find who else may write there"
    MISPLACED = (  # in another order or partition than it was sent to
        "for a compacted topic the last message of a key is what counts: restore its key from a "
        "replica or backup, or delete the topic in question and create it again"
    )
    MISSING = (
        "restore it from a replica or backup, or request the same again under a new event id; if "
        "the job runs, run verify again first"
    )
    ALTERED = "do not act on it; what was expected is what the job decided"
    UNEXPECTED = "do not act on it: it does not follow from the events that came in"
    INPUT = "find out who deletes from or writes to the input topics"
    DELETED = (  # of a compacted topic, otherwise than by compaction
        "state can no longer be rebuilt from this topic: keep the checkpoint safe, and set the "
        "topic's cleanup.policy back to compact (`spu-assigner topics check`)"
    )
    REPLAY = (  # it failed
        "the inputs are not those that the job has read; see the findings before this one"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """One thing that must not be."""

    kind: FindingKind
    batch: int | None
    checkpoint_id: str | None
    topic: str | None  # without the prefix
    partition: int | None
    offset: int | None
    key: bytes | None
    found: str
    expected: str


class How(StrEnum):
    """How far a batch was checked."""

    REPLAYED = "replayed from the inputs, every message compared"
    DIGEST = "compared with count and digest"
    PARTLY = "in part, the messages that are still there"


class Label(NamedTuple):
    """A batch by the names that people know."""

    checkpoint_id: str
    batch: int


@dataclass(slots=True)
class AuditReport:
    """The result; filled during the audit."""

    query: str
    findings: list[AuditFinding] = field(default_factory=list)  # the first FINDINGS_KEPT_MAX
    finding_count: int = 0
    messages: int = 0  # of the outputs, that were looked at
    labels: list[Label] = field(default_factory=list)  # of each batch, in the order of the audit
    _how: dict[How, list[int]] = field(default_factory=lambda: defaultdict(list))
    _unchecked: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def is_right(self) -> bool:
        return self.finding_count == 0

    @property
    def last(self) -> Label | None:
        """The fixed end."""
        return self.labels[-1] if self.labels else None

    def add(
        self,
        kind: FindingKind,
        found: str,
        expected: str,
        at: Read | Where = NOWHERE,
        *,
        batch: int | Label | None = None,
    ) -> None:
        """Add a finding, with its place and its batch (by index, or by name)."""
        self.finding_count += 1
        if len(self.findings) == FINDINGS_KEPT_MAX:
            return
        if isinstance(batch, int):
            batch = self.labels[batch] if 0 <= batch < len(self.labels) else None
        self.findings.append(
            AuditFinding(
                kind=kind,
                batch=None if batch is None else batch.batch,
                checkpoint_id=None if batch is None else batch.checkpoint_id,
                topic=at.topic,
                partition=at.partition,
                offset=at.offset,
                key=at.key,
                found=found,
                expected=expected,
            )
        )

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
        """`batches 0–311, 313`, by checkpoint if there are several."""
        spans: defaultdict[str, list[str]] = defaultdict(list)
        labels = [self.labels[index] for index in indices]
        # Within a checkpoint, batches that follow each other differ from their places alike.
        for _, group in groupby(
            enumerate(labels), lambda each: (each[1].checkpoint_id, each[1].batch - each[0])
        ):
            run = [label for _, label in group]
            first, last = run[0].batch, run[-1].batch
            spans[run[0].checkpoint_id].append(f"{first}" if first == last else f"{first}–{last}")
        several = len({label.checkpoint_id for label in self.labels}) > 1
        texts = [
            ", ".join(texts) + (f" of {checkpoint_id[:CHECKPOINT_SHOWN]}" if several else "")
            for checkpoint_id, texts in spans.items()
        ]
        return f"{'batch' if len(indices) == 1 else 'batches'} {'; '.join(texts)}"
