"""What an audit reads and what it tells: messages as they lie in Kafka, findings, a report.

A finding is something that must not be. What merely could not be looked at (inputs that have
expired, messages that compaction took) is no finding, but is told as well, with the batches it
holds for: an audit never checks less without saying so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
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
    """There is nothing to judge."""

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
    # are not judged. None: all are.
    judged_to: int | None = None


class FindingKind(StrEnum):
    """What a finding is of."""

    MARKER = "MARKER"  # it is unreadable, or does not fit the one before
    COMMITS = "COMMITS"  # assigner-commits does not say what assigner-audit says
    COUNT = "COUNT"  # a batch has more or fewer messages than its marker says
    DIGEST = "DIGEST"
    STRAY = "STRAY"  # a message that is in no batch
    TWICE = "TWICE"
    MISPLACED = "MISPLACED"  # in another order or partition than it was sent to
    MISSING = "MISSING"
    ALTERED = "ALTERED"
    UNEXPECTED = "UNEXPECTED"  # the replay gives no such message
    INPUT = "INPUT"  # the input is not what the marker says was read
    DELETED = "DELETED"  # of a compacted topic, otherwise than by compaction
    REPLAY = "REPLAY"  # it broke off


TO_DO: Final = {
    FindingKind.MARKER: "the audit topic was written to or cut by hand: compare it with a replica "
    "or backup of it; the outputs themselves are judged by the other findings",
    FindingKind.COMMITS: "stop the job before it goes on from a wrong marker; the audit's last "
    "marker is the one to go by, `spu-assigner recover` begins from the outputs",
    FindingKind.COUNT: "look for findings of single messages of this batch; without one, compare "
    "the topics with a replica or backup of them",
    FindingKind.DIGEST: "some message of this batch is not as it was sent: compare the topics with "
    "a replica or backup of them",
    FindingKind.STRAY: "the query did not write it: find who else may write to this topic, and "
    "have its readers drop what has this ce_id",
    FindingKind.TWICE: "have readers drop the later one by its ce_id; find who else may "
    "write there",
    FindingKind.MISPLACED: "for a compacted topic the last message of a key is what counts: read "
    "its key anew from a replica or backup, or delete the topic in question and create it again",
    FindingKind.MISSING: "bring it back from a replica or backup, or ask for the same again under "
    "a new event id; if the job runs, run verify again first",
    FindingKind.ALTERED: "do not act on it; what was expected is what the job decided",
    FindingKind.UNEXPECTED: "do not act on it: it does not follow from the events that came in",
    FindingKind.INPUT: "find out who deletes from or writes to the input topics",
    FindingKind.DELETED: "state can no longer be rebuilt from this topic: keep the checkpoint "
    "safe, and set the topic's cleanup.policy back to compact (`spu-assigner topics check`)",
    FindingKind.REPLAY: "the inputs are not those that the job has read; see the findings before "
    "this one",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """One thing that must not be."""

    kind: FindingKind
    found: str
    expected: str
    batch: int | None = None
    checkpoint_id: str | None = None
    topic: str | None = None  # without the prefix
    partition: int | None = None
    offset: int | None = None
    key: bytes | None = None

    @property
    def to_do(self) -> str:
        return TO_DO[self.kind]


class How(StrEnum):
    """How far a batch was checked."""

    REPLAYED = "replayed from the inputs, every message compared"
    DIGEST = "held against count and digest"
    PARTLY = "in part, the messages that are still there"


@dataclass(frozen=True, slots=True)
class Label:
    """A batch by the names that people know."""

    checkpoint_id: str
    batch: int


def finding_of(read: Read, kind: FindingKind, found: str, expected: str) -> AuditFinding:
    """A finding at a message."""
    return AuditFinding(
        kind=kind,
        found=found,
        expected=expected,
        topic=read.topic,
        partition=read.partition,
        offset=read.offset,
        key=read.key,
    )


@dataclass(slots=True)
class AuditReport:
    """What came out; filled while it is judged."""

    query: str
    findings: list[AuditFinding] = field(default_factory=list)  # the first FINDINGS_KEPT_MAX
    finding_count: int = 0
    messages: int = 0  # of the outputs, that were looked at
    labels: list[Label] = field(default_factory=list)  # of each batch, in the order of the audit
    last: Label | None = None  # the fixed end
    _how: dict[How, list[int]] = field(default_factory=lambda: defaultdict(list))
    _unchecked: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def is_right(self) -> bool:
        return self.finding_count == 0

    def add(self, finding: AuditFinding, index: int | None = None) -> None:
        """Take a finding; with the batch that it is of, if it does not name it itself."""
        if index is not None and 0 <= index < len(self.labels):
            label = self.labels[index]
            finding = replace(finding, batch=label.batch, checkpoint_id=label.checkpoint_id)
        self.finding_count += 1
        if len(self.findings) < FINDINGS_KEPT_MAX:
            self.findings.append(finding)

    def checked(self, index: int, how: How) -> None:
        self._how[how].append(index)

    def not_checked(self, why: str, index: int | None = None) -> None:
        """Something could not be looked at: of one batch, or at all."""
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
        spans: dict[str, list[tuple[int, int]]] = {}
        for index in indices:
            label = self.labels[index]
            own = spans.setdefault(label.checkpoint_id, [])
            if own and own[-1][1] + 1 == label.batch:
                own[-1] = (own[-1][0], label.batch)
            else:
                own.append((label.batch, label.batch))
        several = len({label.checkpoint_id for label in self.labels}) > 1
        texts = []
        for checkpoint_id, found in spans.items():
            text = ", ".join(
                f"{first}" if first == last else f"{first}–{last}" for first, last in found
            )
            texts.append(f"{text} of {checkpoint_id[:CHECKPOINT_SHOWN]}" if several else text)
        one = len(indices) == 1
        return f"{'batch' if one else 'batches'} {'; '.join(texts)}"
