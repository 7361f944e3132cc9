"""What an audit reports: findings, how far it has checked, and what could not be checked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, NamedTuple

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.job.shard.bundle import KINDS
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, REPLICA_MAP

OUTPUTS: Final = tuple(dict.fromkeys(topic for topic, _ in KINDS.values()))
COMPACTED: Final = frozenset({REPLICA_MAP, ASSIGNER_STATE})

FINDINGS_KEPT_MAX: Final = 1_000  # all are counted
CHECKPOINT_SHOWN: Final = 8  # letters of a checkpoint's id
SHOWN_MAX: Final = 240  # letters of a value in a finding

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
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def at(self) -> Where:
        """Where in Kafka the message is."""
        return Where(self.topic, self.partition, self.offset, self.key)


NOWHERE: Final = Where()


class FindingKind(Enum):
    """What a finding is of; the value says what to do about it."""

    MARKER = "the audit topic was written to or cut by hand: compare it with a backup of it"
    COMMITS = "trust the audit's last marker: make a new checkpoint with `spu-assigner recover`"
    COUNT = "see the other findings of this batch; without one, compare the topics with a backup"
    DIGEST = "a message of this batch is not as it was sent: compare the topics with a backup"
    STRAY = "find who else may write to this topic, and have its readers drop what has this ce_id"
    TWICE = "have readers drop the later one by its ce_id; find who else may write there"
    MISPLACED = "of a compacted topic the last message of a key counts: restore it from a backup"
    MISSING = "if the job runs, verify again first; else restore it from a backup"
    ALTERED = "do not act on it; what was expected is what the job decided"
    UNEXPECTED = "do not act on it: it does not follow from the events that came in"
    INPUT = "find out who deletes from or writes to the input topics"
    DELETED = "keep the checkpoint safe; set the topic's cleanup.policy back to compact"
    REPLAY = "the inputs are not those that the job has read; see the findings before this one"


class How(StrEnum):
    """How far a batch was checked."""

    REPLAYED = "replayed"  # from the inputs, every message compared
    DIGEST = "digest"  # and count
    PARTLY = "partly"  # the messages that are still there


class Label(NamedTuple):
    """A batch by the names that people know."""

    checkpoint_id: str
    batch: int

    def __str__(self) -> str:
        return f"batch {self.batch} of checkpoint {self.checkpoint_id[:CHECKPOINT_SHOWN]}"


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
    batch: Label | None = None  # that is checked: what is reported is of it
    checked: Counter[How] = field(default_factory=Counter)  # batches
    _unchecked: dict[str, list[Label]] = field(default_factory=lambda: defaultdict(list))

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong."""
        return self.finding_count == 0

    def add(
        self,
        kind: FindingKind,
        found: str,
        expected: str,
        at: Where = NOWHERE,
        batch: Label | None = None,
    ) -> None:
        """Add a finding, of the batch that is checked if no other is named."""
        self.finding_count += 1
        if len(self.findings) < FINDINGS_KEPT_MAX:
            self.findings.append(AuditFinding(kind, batch or self.batch, at, found, expected))

    def not_checked(self, why: str) -> None:
        """Something could not be checked: of the batch that is checked, or at all."""
        self._unchecked[why] += [] if self.batch is None else [self.batch]

    def unchecked(self) -> Iterator[str]:
        """What could not be checked and why, a line each."""
        for why, batches in self._unchecked.items():
            ends = dict.fromkeys((*batches[:1], *batches[-1:]))
            yield f"{' to '.join(map(str, ends))}: {why}" if batches else why


def difference(found: object, expected: object) -> tuple[str, str]:
    """Both; bytes from where they differ on."""
    if isinstance(found, bytes) and isinstance(expected, bytes):
        pairs = enumerate(zip(found, expected, strict=False))
        begin = next((at for at, (one, other) in pairs if one != other), 0)
        found, expected = found[begin:], expected[begin:]
    return short(found), short(expected)


def short(value: object) -> str:
    """A value in as many letters as anyone reads."""
    return repr(value)[:SHOWN_MAX]
