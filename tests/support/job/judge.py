"""Holds what a job has written against the core, piece by piece, as a reader of its topics sees it.

The order in which events were applied is taken from the markers, the messages from the input
topics; the core says what each event is answered, and at the end `spu-assigner simulate` too. What
does not fit is listed in `faults` and counted by kind; nothing is raised, since a run that is to
fail is judged by the same judge.

Memory: the present state, what is in flight, and about 70 bytes for each output message (its id).
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spu_assigner.core import Assigner, ReplicaMap, RingEvent, TopicStatus
from spu_assigner.core.base.records import Answer, Entry
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.json_lines.lines import answer_to_json, event_to_json
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import CommitMarker, DeadLetter
from support.events.story import event_of
from support.job.streams import AUDIT, INPUTS, OUTPUTS, Read, Streams, marker_of, merged
from support.model.pictures import picture

SHOWN_SECONDS = 60.0  # until a committed transaction is seen whole; it takes milliseconds
FAULTS_REPORTED_MAX = 20  # one fault may bring thousands

Place = tuple[str, bytes | None]  # topic without prefix, key


def place_of(answer: Answer) -> Place:
    """Where an answer is to be found."""
    match answer:
        case RingEvent():
            return "ring-events", answer.cluster_id.encode()
        case TopicStatus():
            return "topic-status", f"{answer.cluster_id}/{answer.topic}".encode()
        case ReplicaMap():
            return "replica-map", f"{answer.cluster_id}/{answer.topic}".encode()


def value_of(answer: Answer) -> Answer | None:
    """What is to be found there; None: a tombstone."""
    return None if isinstance(answer, ReplicaMap) and answer.replicas is None else answer


def restored(cluster_ids: Iterable[str], values: Iterable[bytes | None]) -> Mapping[str, Any]:
    """Pictures of the clusters as the latest maps and entries make them."""
    clusters: dict[str, ClusterState] = defaultdict(lambda: ClusterState("?"))
    for cluster_id in cluster_ids:
        clusters[cluster_id] = ClusterState(cluster_id)
    for value in values:
        if value is not None:
            record = decode_record(value)
            assert isinstance(record, ReplicaMap | Entry)
            clusters[record.cluster_id].restore(record)
    return {name: picture(state) for name, state in clusters.items()}


class Judge:
    """Reads along with a job; `look` any time, `settle` when everything sent has been applied."""

    def __init__(self, streams: Streams, prefix: str, folder: Path) -> None:
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.applied = 0  # input messages
        self.batch = -1  # of the last marker
        self.assigner = Assigner()
        self._prefix = prefix
        self._audit = streams.tail(AUDIT)
        self._input = streams.tail(*INPUTS)
        self._output = streams.tail(*OUTPUTS)
        self._unread: dict[tuple[str, int], deque[Read]] = defaultdict(deque)
        self._following: dict[tuple[str, int], int] = defaultdict(int)  # the next offset to apply
        self._expected: dict[Place, deque[Any]] = defaultdict(deque)
        self._given: dict[Place, deque[Any]] = defaultdict(deque)
        self._revisions: dict[bytes | None, int] = {}
        self._latest: dict[Place, bytes] = {}
        self._ids: set[int] = set()
        self._events = (folder / "events.jsonl").open("w", encoding="utf-8")
        self._answers = hashlib.sha256()

    def look(self, *, at_all: bool = False) -> None:
        """Read and judge what has come: if markers have come, unless all is to be looked at."""
        markers = [marker_of(read.value) for read in self._audit.more()]
        is_due = self.counts["messages"] < self.counts["messages due"]
        if not (markers or is_due or at_all):
            return
        for read in self._input.more():  # All that those markers name, and what is still to come.
            self._unread[read.topic, read.partition].append(read)
        for marker in markers:
            self._apply(marker)
        for read in self._output.more():
            self._take(read)
        for place in list(self._given):
            self._compare(place)

    def settle(self) -> None:
        """All that was sent is applied, and nothing runs: nothing may be left over.

        Kafka shows a transaction's messages partition by partition, so its marker may be there a
        moment before them.
        """
        self.look(at_all=True)
        deadline = time.monotonic() + SHOWN_SECONDS
        while self.counts["messages"] < self.counts["messages due"]:
            if time.monotonic() > deadline:
                break
            self.look()
        for kind, left in (("missing", self._expected), ("not due", self._given)):
            for (topic, key), values in left.items():
                for value in values:
                    self._fault(kind, f"{topic} {key!r}: {_short(value)}")
            left.clear()
        for (topic, partition), reads in self._unread.items():
            if reads:
                message = (
                    f"{topic}/{partition} from offset {reads[0].offset}: {len(reads)} messages"
                )
                self._fault("in no marker", message)
        if self.counts["messages"] != self.counts["messages due"]:
            due, found = self.counts["messages due"], self.counts["messages"]
            self._fault("count", f"the markers have {due} messages, there are {found}")
        own = {name: picture(state) for name, state in self.assigner.clusters.items()}
        if restored(self.assigner.clusters, self._latest.values()) != own:
            self._fault("state", "the outputs give another state than the core has")
        self._simulate()

    def close(self) -> None:
        self._events.close()
        for tail in (self._audit, self._input, self._output):
            tail.close()

    def _apply(self, marker: CommitMarker) -> None:
        self.counts["markers"] += 1
        if marker.batch <= self.batch:
            self._fault("second markers", f"batch {marker.batch} has been committed already")
            return
        if marker.batch != self.batch + 1:
            self._fault("gaps", f"the marker of batch {marker.batch} follows on {self.batch}")
        self.batch = marker.batch
        self.counts["messages due"] += marker.count
        parts = [
            list(self._read_part(topic, part.partition, part.first, part.last))
            for topic in INPUTS
            for part in marker.offsets.get(f"{self._prefix}{topic}", ())
        ]
        for topic in INPUTS:
            for position in marker.positions.get(f"{self._prefix}{topic}", ()):
                following = self._following[topic, position.partition]
                if position.next != following:
                    message = (
                        f"{topic}/{position.partition} at {position.next}, read to {following}"
                    )
                    self._fault("positions", f"batch {marker.batch}: {message}")
        for read in merged(parts, marker.shards):
            self._answer(read)

    def _read_part(self, topic: str, partition: int, first: int, last: int) -> Iterator[Read]:
        place = topic, partition
        if first != self._following[place]:
            message = f"{topic}/{partition}: {first} follows on {self._following[place] - 1}"
            self._fault("gaps" if first > self._following[place] else "duplicates", message)
        unread = self._unread[place]
        while unread and unread[0].offset <= last:
            read = unread.popleft()
            if read.offset >= first:
                yield read
        self._following[place] = last + 1

    def _answer(self, read: Read) -> None:
        self.applied += 1
        event = event_of(read)
        if event is None:
            self._expected[_letter_of(*read.place)].append(read.key)
            return
        self._events.write(f"{event_to_json(event)}\n")
        for answer in self.assigner.apply(event):
            self._expected[place_of(answer)].append(value_of(answer))
            self._answers.update(f"{answer_to_json(answer)}\n".encode())

    def _take(self, read: Read) -> None:
        name = hashlib.blake2b(read.ce_id or b"", digest_size=8).digest()
        identity = int.from_bytes(name, "big")
        if read.ce_id is None or identity in self._ids:
            self._fault("duplicates", f"{read.place} {read.key!r}: ce_id {read.ce_id!r} again")
            return
        self._ids.add(identity)
        self.counts["messages"] += 1
        place = read.topic, read.key
        if read.topic in ("replica-map", "assigner-state"):
            if read.value is None:
                self._latest.pop(place, None)
            else:
                self._latest[place] = read.value
        if read.topic == "assigner-state":
            return
        record = None if read.value is None else decode_record(read.value)
        if read.topic == "replica-map":
            self._follow_revision(read, record)
        if isinstance(record, DeadLetter):
            topic = record.source_topic.removeprefix(self._prefix)
            source = topic, record.source_partition, record.source_offset
            self._given[_letter_of(*source)].append(read.key)
        else:
            self._given[place].append(record)

    def _follow_revision(self, read: Read, record: object) -> None:
        if not isinstance(record, ReplicaMap):
            self._revisions.pop(read.key, None)  # A tombstone: the next life begins with 1.
            return
        before = self._revisions.get(read.key, 0)
        if record.revision != before + 1:
            kind = "gaps" if record.revision > before else "duplicates"
            self._fault(kind, f"{read.key!r}: revision {record.revision} follows on {before}")
        self._revisions[read.key] = record.revision

    def _compare(self, place: Place) -> None:
        expected, given = self._expected[place], self._given[place]
        while expected and given:
            due, found = expected.popleft(), given.popleft()
            if due != found:
                message = f"{place}: {_short(found)}, expected {_short(due)}"
                self._fault("other than the core's", message)
        for left in (self._expected, self._given):
            if not left[place]:
                del left[place]

    def _simulate(self) -> None:
        """`spu-assigner simulate` gives the same answers, line by line."""
        self._events.flush()
        with subprocess.Popen(
            [sys.executable, "-m", "spu_assigner.stream.cli", "simulate", self._events.name],
            stdout=subprocess.PIPE,
        ) as program:
            assert program.stdout is not None
            answers = hashlib.sha256()
            for lines in iter(lambda: program.stdout.read(1 << 20), b""):
                answers.update(lines)
        if program.returncode != 0 or answers.digest() != self._answers.digest():
            self._fault("simulate", f"status {program.returncode}, other lines than the core's")

    def _fault(self, kind: str, message: str) -> None:
        self.counts["faults"] += 1
        self.counts[kind] += 1
        if len(self.faults) < FAULTS_REPORTED_MAX:
            self.faults.append(f"{kind}: {message}")


def _letter_of(topic: str, partition: int, offset: int) -> Place:
    """A place for each dead letter: those without a key are written to any partition."""
    return "dead-letter", f"{topic}/{partition}/{offset}".encode()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
