"""All messages of a job's topics, in a temporary database: what an audit looks at.

Kafka gives messages partition by partition, an audit goes batch by batch: a marker names the input
offsets that its batch has read, and the `ce_id` of an output the event it follows from.

The audit topic is read first, since its last marker is the fixed end, and again after all others,
so that every batch of which a message was seen has its marker.
"""

from __future__ import annotations

import re
import sqlite3
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from typing import Any, Final, NamedTuple

from spu_assigner.stream.audit.verify.model import (
    COMPACTED,
    OUTPUTS,
    AuditReport,
    FindingKind,
    Label,
    Place,
    Read,
    VerifyError,
    Where,
    short,
)
from spu_assigner.stream.job.shard.bundle import KINDS, MessageKind
from spu_assigner.stream.job.shard.input_batch import Row
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.cloud_events import output_headers, rfc3339
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import ClientError
from spu_assigner.stream.kafka.topics import ASSIGNER_AUDIT, ASSIGNER_COMMITS, INPUTS

GROWN_MIN: Final = 16  # messages in other partitions: then partitions were added, no fault

_TABLES: Final = """
    PRAGMA journal_mode = OFF;
    CREATE TABLE inputs (source INT, partition INT, position INT, time_ms INT, key, value);
    CREATE TABLE outputs (
        id INTEGER PRIMARY KEY, topic, partition INT, position INT, key, value, shard INT,
        sequence INT, kind INT, ce_id, time_ms INT, fault, source INT, event_partition INT,
        event_position INT, is_read INT
    );
    CREATE INDEX inputs_read ON inputs (source, partition, position);
    CREATE INDEX outputs_of_events ON outputs (source, event_partition, event_position);
    CREATE INDEX outputs_read ON outputs (topic, partition, position);
"""
_COLUMNS: Final = (  # those of `Output`
    "id, topic, partition, position, key, value IS NULL, shard, sequence, kind, ce_id, time_ms, "
    "fault"
)
_NUMBER: Final = rb"(0|[1-9]\d{0,17})"
_CE_ID: Final = re.compile(rb"([^/]+)/" + _NUMBER + b"/" + _NUMBER + b"/" + _NUMBER)
_KINDS: Final[dict[tuple[str, bytes | None], MessageKind]] = {
    (topic, f"io.spuassigner.v1.{name}".encode()): kind for kind, (topic, name) in KINDS.items()
}


class Output(NamedTuple):
    """A message of an output topic, without its value."""

    row: int  # in the history
    topic: str
    partition: int
    offset: int
    key: bytes | None
    is_gone: bool  # a tombstone
    shard: int
    sequence: int
    kind: int
    ce_id: bytes
    time_ms: int
    fault: str | None  # its headers are not such as the job writes; then the fields above may lie

    @property
    def at(self) -> Where:
        """Where in Kafka the message is."""
        return Where(self.topic, self.partition, self.offset, self.key)

    @property
    def place(self) -> Place:
        """The topic, with its prefix, and partition."""
        return self.topic, self.partition


class History(ExitStack):
    """Messages by batch, until it is closed."""

    def __init__(self, query: str, prefix: str) -> None:
        super().__init__()
        self.query = query
        self.prefix = prefix
        self.output_count = 0
        self.markers: list[Read] = []  # of the audit, in its order
        self.commits: list[Read] = []
        # Of each topic, without the prefix, and partition: the first offset that is not deleted,
        # and the offset up to which it was read.
        self.spans: dict[Place, tuple[int, int]] = {}
        self.end_offset = sys.maxsize  # of the audit: batches of later markers are not checked
        self._sources = {(prefix + name).encode(): number for number, name in enumerate(INPUTS)}
        self._database = sqlite3.connect("")  # a file that is unlinked
        self.callback(self._database.close)
        self._database.executescript(_TABLES)

    def add(self, read: Read) -> None:
        """Keep a message; those of a partition come in the order of offsets."""
        if read.topic == ASSIGNER_AUDIT:
            self.markers.append(read)
        elif read.topic == ASSIGNER_COMMITS:
            self.commits.append(read)
        elif read.topic in INPUTS:
            place = (INPUTS.index(read.topic), read.partition, read.offset)
            row = (*place, read.time_ms, read.key, read.value)
            self._run("INSERT INTO inputs VALUES (?, ?, ?, ?, ?, ?)", *row)
        else:
            self.output_count += 1
            marks = ", ".join("?" * 14)
            row = (*read[:3], read.key, read.value, *self._described(read))
            self._run(f"INSERT INTO outputs VALUES (NULL, {marks}, NULL)", *row)

    def inputs(self, place: Place, first: int, last: int) -> list[Row]:
        """The messages of an input partition between two offsets, in their order."""
        asked = "SELECT * FROM inputs WHERE source = ? AND partition = ? AND position BETWEEN ? "
        given = (INPUTS.index(place[0]), place[1], first, last)
        return self._run(asked + "AND ? ORDER BY position", *given).fetchall()

    def outputs(self, reads: Mapping[Place, tuple[int, ...]]) -> list[Output]:
        """What follows from the events of these ranges (first, last, …), in its order."""
        found: list[Output] = []
        for (topic, partition), (first, last, *_) in reads.items():
            where = "WHERE source = ? AND event_partition = ? AND event_position BETWEEN ? AND ?"
            given = (INPUTS.index(topic), partition, first, last)
            self._run(f"UPDATE outputs SET is_read = 1 {where}", *given)
            found += self._select(where, *given)
        return sorted(found, key=lambda each: (each.shard, each.sequence, each.offset))

    def unread_outputs(self) -> Iterator[Output]:
        """Those that no call of `outputs` has given."""
        return self._select("WHERE is_read IS NULL")

    def value(self, output: Output) -> bytes | None:
        """The value of a message."""
        [(value,)] = self._run("SELECT value FROM outputs WHERE id = ?", output.row)
        return value  # type: ignore[no-any-return]

    def next_offset(self, place: Place, offset: int) -> int:
        """Where the next message of an output partition is; its end if there is none."""
        asked = "SELECT min(position) FROM outputs WHERE topic = ? AND partition = ? AND "
        [(found,)] = self._run(asked + "position > ?", *place, offset)
        return self.spans[place][1] if found is None else int(found)

    def _select(self, where: str, *given: int) -> Iterator[Output]:
        return map(Output._make, self._run(f"SELECT {_COLUMNS} FROM outputs {where}", *given))

    def _run(self, statement: str, *given: Any) -> sqlite3.Cursor:
        """Run a statement; a disk that is full is reported as such."""
        try:
            return self._database.execute(statement, given)
        except sqlite3.OperationalError as reason:
            raise VerifyError(
                f"the messages cannot be put into a temporary file ({reason}); name a folder that "
                "has room for what the topics hold with TMPDIR"
            ) from reason

    def _described(self, read: Read) -> tuple[Any, ...]:
        """What an output's headers say, from its shard on."""
        headers = dict(read.headers)
        ce_id, kind = headers.get("ce_id") or b"", _KINDS.get((read.topic, headers.get("ce_type")))
        match = _CE_ID.fullmatch(ce_id)
        event = (-1, 0, 0)
        if match is not None and match[1] in self._sources:
            event = self._sources[match[1]], int(match[2]), int(match[3])
        place = _number(headers.get("shard")), _number(headers.get("sequence"))
        time_ms = time_ms_of(headers.get("ce_time"))
        is_ours = (
            kind is not None
            and time_ms is not None
            and [*read.headers] == output_headers(self.query, KINDS[kind][1], ce_id, time_ms, place)
        )
        fault = None if is_ours else f"headers {short(read.headers)}"
        return *place, kind or 0, ce_id, time_ms, fault, *event


class PartitionOrder:
    """Kafka's order in each partition is that of batches, shards and sequences.

    What was deleted or compacted is known by where the order has come to.
    """

    def __init__(self, history: History, report: AuditReport) -> None:
        self._history = history
        self._report = report
        self.reached: dict[Place, int] = {}  # the offset of the last message of each partition
        self._begins = {
            place: begin for place, (begin, _) in history.spans.items() if place[0] in OUTPUTS
        }
        self._counts = Counter(topic for topic, _ in self._begins)  # of partitions
        self._misfits: defaultdict[str, list[tuple[Label | None, Output]]] = defaultdict(list)

    def follow(self, output: Output) -> None:
        """The next message."""
        last = self.reached.get(output.place, -1)
        if output.offset < last:
            found = f"before offset {last}"
            self._report.add(FindingKind.MISPLACED, found, "behind it", output.at)
        self.reached[output.place] = output.offset
        misfits = self._misfits[output.topic]
        belongs = self._partition(output.topic, output.key) if output.key else output.partition
        if belongs != output.partition and len(misfits) < GROWN_MIN:
            misfits.append((self._report.batch, output))

    def _partition(self, topic: str, key: bytes | None) -> int:
        """Where a key belongs; a message without one may lie anywhere."""
        return zlib.crc32(key or b"") % self._counts[topic]

    def may_have_expired(self, topic: str | None = None, key: bytes | None = None) -> bool:
        """Whether the next message, of a topic and key if they are known, may have been deleted by
        retention: then nothing of its partition was seen yet."""
        number = self._partition(topic, key) if topic and key else None
        return any(
            begin > 0 and place[0] not in COMPACTED and place not in self.reached
            for place, begin in self._begins.items()
            if topic in (None, place[0]) and number in (None, place[1])
        )

    def room(self, before: dict[Place, int], outputs: list[Output]) -> int:
        """How many more messages of a batch may have been compacted away: Kafka's offsets have no
        other holes but the mark that ends a transaction, and what was aborted."""
        counts = Counter(output.place for output in outputs)
        room = 0
        for place in (each for each in self._begins if each[0] in COMPACTED):
            behind = self._begins[place] - 1
            end = self._history.next_offset(place, self.reached.get(place, behind))
            marks = (place in before) + (counts[place] > 0)
            room += max(0, end - before.get(place, behind) - 1 - counts[place] - marks)
        return room

    def end(self) -> None:
        """Report what lies in another partition than its key's, unless many do."""
        for topic, misfits in self._misfits.items():
            count = self._counts[topic]
            if len(misfits) == GROWN_MIN:
                found = f"{topic} does not lie as in {count} partitions: some were added"
                self._report.not_checked(found)
            for batch, output in misfits if len(misfits) < GROWN_MIN else ():
                expected = f"partition {self._partition(topic, output.key)}, of {count}, by its key"
                found = f"in partition {output.partition}"
                self._report.add(FindingKind.MISPLACED, found, expected, output.at, batch)


def read_history(connection: Connection, history: History) -> None:
    """Read everything; raises VerifyError if Kafka cannot be reached or topics are missing."""

    def drain(reader: Reader) -> None:
        for topic, message in reader.drain_messages():
            partition, offset = int(message.partition() or 0), int(message.offset() or 0)
            headers: Any = tuple(message.headers() or ())
            read = (message.timestamp()[1], message.key(), message.value(), headers)
            history.add(Read(topic, partition, offset, *read))

    rest = [*OUTPUTS, *INPUTS, ASSIGNER_COMMITS]
    try:
        with Reader(connection, [ASSIGNER_AUDIT], from_beginning=True) as audit:
            drain(audit)
            history.end_offset = audit.spans()[ASSIGNER_AUDIT, 0][1]
            with Reader(connection, rest, from_beginning=True) as others:
                others.settle()
                drain(others)
                history.spans |= others.spans()
            audit.settle()
            drain(audit)
            history.spans |= audit.spans()
    except ClientError as reason:
        raise VerifyError(str(reason)) from reason


def _number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) < 10 else -1


def time_ms_of(ce_time: bytes | None) -> int | None:
    """A `ce_time` in milliseconds; None: it is no time as this job writes it."""
    try:
        moment = datetime.fromisoformat((ce_time or b"").decode())
        time_ms = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
    return time_ms if rfc3339(time_ms) == ce_time else None
