"""The demonstration: the scenario through Kafka, and what came back beside the documents' tables.

`Play` sends events and gathers their answers, `compare` compares, `show` prints, `report` does both
for all. Nothing depends on timing: the end is reached when every event is answered.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.records import ReplicaMap, RingChange, RingEvent, Status, TopicStatus
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.job.run.scenario import Example, ScenarioStep

if TYPE_CHECKING:
    from rich.console import Console
    from spu_assigner.stream.kafka.client import Received, SentMessage
    from spu_assigner.stream.kafka.config.connection import Connection

ANSWER_SECONDS_MAX: Final = 180.0  # the first batch of a cold Spark on a busy machine
UNANSWERED_NAMED: Final = 8
WIDTH: Final = 120  # of tables, where there is no terminal to ask
_INTO_RING: Final = (RingChange.JOINED, RingChange.RESTORED)
_OUT_OF_RING: Final = (RingChange.LEFT, RingChange.SATURATED)


class DemoError(AssignerError):
    """The demonstration could not be played to its end."""


@dataclass(slots=True)
class DemoAnswers:
    """What came back from Kafka."""

    statuses: dict[str, list[TopicStatus]] = field(default_factory=lambda: defaultdict(list))
    maps: dict[str, list[ReplicaMap]] = field(default_factory=lambda: defaultdict(list))
    ring: dict[str, list[RingEvent]] = field(default_factory=lambda: defaultdict(list))
    letters: dict[str, list[DeadLetter]] = field(default_factory=lambda: defaultdict(list))
    members: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    tombstones: set[str] = field(default_factory=set)  # cluster/topic

    def take(self, answer: ReplicaMap | TopicStatus | RingEvent) -> None:
        """Keep one answer, by the event that caused it."""
        match answer:
            case TopicStatus():
                self.statuses[answer.cause].append(answer)
            case ReplicaMap():
                self.maps[answer.cause].append(answer)
            case RingEvent():
                self.ring[answer.cause].append(answer)
                if answer.resource is not None:
                    pass  # It stays where it is.
                elif answer.change in _INTO_RING:
                    self.members[answer.cluster_id].add(answer.spu_id)
                elif answer.change in _OUT_OF_RING:
                    self.members[answer.cluster_id].discard(answer.spu_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing found beside what was expected."""

    what: str  # a topic, or what was asked
    partition: int | None = None  # of replica lists
    found: str
    expected: str
    note: str = ""

    @property
    def is_equal(self) -> bool:
        return self.found == self.expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One example, compared: its ring at the end, its replica lists, its answers."""

    example: Example
    rows: tuple[Row, ...]


class Play:
    """One performance: `send` all steps, then `gather` their answers.

    The answers are read from where the topics ended when the performance was made.
    """

    def __init__(self, connection: Connection, examples: Sequence[Example]) -> None:
        from spu_assigner.stream.client.pending_answers import ANSWER_TOPICS, Awaited
        from spu_assigner.stream.kafka.client import Reader, Sender

        self.examples = examples
        self._steps = [*_steps(examples, joins=True), *_steps(examples, joins=False)]
        self._awaited = Awaited()
        self._found = DemoAnswers()
        self._events_by_place: dict[tuple[str, int, int], str] = {}
        self._reader = Reader(connection, ANSWER_TOPICS)
        self._sender = Sender(connection, self._sent)

    def send(self) -> int:
        """Send everything, all joins before all requests; returns the number of messages.

        Raises:
            DemoError: something could not be sent.
        """
        from spu_assigner.stream.kafka.topics import TOPIC_EVENTS

        for cluster_id, step in self._steps:
            if isinstance(step.event, bytes):
                self._awaited.expect_id(step.event_id)
                self._sender.send_raw(
                    TOPIC_EVENTS, key=cluster_id, value=step.event, event_id=step.event_id
                )
            else:
                self._awaited.expect(step.event)
                self._sender.send(step.event)
        self._sender.flush()
        return len(self._steps)

    def gather(self, check: Callable[[], None]) -> DemoAnswers:
        """Wait until everything is answered; `check` is called meanwhile and may raise.

        Raises:
            DemoError: something was not answered in time; it says what.
        """
        with self._reader as reader:
            is_whole = self._awaited.wait(
                reader, seconds=ANSWER_SECONDS_MAX, report=self._received, check=check
            )
        if not is_whole:
            missing = self._awaited.unanswered
            named = ", ".join(missing[:UNANSWERED_NAMED])
            raise DemoError(
                f"{len(missing)} of {len(self._steps)} messages were not answered within "
                f"{ANSWER_SECONDS_MAX:.0f} s: {named}; check that the job runs on the same topics"
            )
        return self._found

    def _sent(self, sent: SentMessage) -> None:
        if sent.error is not None:
            raise DemoError(
                f"event {sent.event_id} could not be sent: {sent.error}; "
                "check that all of Kafka's brokers run, and start again"
            )
        self._awaited.sent(sent)
        self._events_by_place[sent.topic, sent.partition, sent.offset] = sent.event_id or ""

    def _received(self, received: Received) -> None:
        answer = received.answer
        if received.fault is not None:
            raise DemoError(
                f"a message on {received.topic} cannot be read: {received.fault}; "
                "expected messages of a job of this release: choose another topic prefix"
            )
        if answer is None:
            self._found.tombstones.add(received.key)
        elif isinstance(answer, DeadLetter):
            place = (answer.source_topic, answer.source_partition, answer.source_offset)
            self._found.letters[self._events_by_place[place]].append(answer)
        else:
            self._found.take(answer)


def _steps(examples: Iterable[Example], *, joins: bool) -> list[tuple[str, ScenarioStep]]:
    return [
        (example.cluster_id, step)
        for example in examples
        for step in example.steps
        if step.is_join == joins
    ]


def compare(example: Example, found: DemoAnswers) -> Comparison:
    """Compare what came back with what the documents say."""
    members = sorted(found.members[example.cluster_id])
    rows = [Row(what="ring", found=_ids(members), expected=_ids(example.ring))]
    for step in example.steps:
        if step.replicas is not None:
            rows += _list_rows(step, found)
        if not step.is_join:  # These show in the ring.
            answer = _found_answer(example, step, found)
            expected, note = step.answer or "", _note(step, found)
            rows.append(Row(what=step.topic, found=answer, expected=expected, note=note))
    return Comparison(example=example, rows=tuple(rows))


def _list_rows(step: ScenarioStep, found: DemoAnswers) -> list[Row]:
    """Row by row: the map of an assigned request, or the one in a validated one's status."""
    given: list[tuple[ReplicaLists | None, ReplicaLists | None]]
    if step.answer == Status.VALIDATED:
        given = [(status.replicas, None) for status in found.statuses[step.event_id]]
    else:
        given = [(answer.replicas, answer.cores) for answer in found.maps[step.event_id]]
    both = given[0] if len(given) == 1 else (None, None)
    lists = [None if each is None else each.tolist() for each in both]
    pairs = zip_longest(
        _described(*lists), _described(step.replicas, step.cores), fillvalue="nothing"
    )
    return [
        Row(what=step.topic, partition=partition, found=one, expected=other)
        for partition, (one, other) in enumerate(pairs)
    ]


def _described(replicas: list[list[int]] | None, cores: list[list[int]] | None) -> list[str]:
    rows = [str(row) for row in replicas or ()]
    on_cores = [f" on cores {row}" for row in cores or ()] or [""] * len(rows)
    return [f"{row}{core}" for row, core in zip(rows, on_cores, strict=False)]


def _found_answer(example: Example, step: ScenarioStep, found: DemoAnswers) -> str:
    """In the words of the scenario; whatever is missing or double shows."""
    statuses = found.statuses[step.event_id]
    is_gone = f"{example.cluster_id}/{step.topic}" in found.tombstones
    is_forgotten = any(each.status in (Status.DELETED, Status.RELEASED) for each in statuses)
    maps = len(found.maps[step.event_id])
    is_mapped = step.replicas is not None and step.answer != Status.VALIDATED
    texts = [
        *(f"dead letter {letter.code}" for letter in found.letters[step.event_id]),
        *(f"{each.status} {each.code or ''}".rstrip() for each in statuses),
        *["a map"] * (maps - is_mapped),
        *["tombstone"] * (is_gone and is_forgotten),
        *(f"SPU {event.spu_id} {event.change}" for event in found.ring[step.event_id]),
    ]
    return ", ".join(texts) or "nothing"


def _note(step: ScenarioStep, found: DemoAnswers) -> str:
    messages = [
        *(status.message for status in found.statuses[step.event_id]),
        *(letter.message for letter in found.letters[step.event_id]),
    ]
    return next((message for message in messages if message), "")


def _ids(ids: Iterable[int]) -> str:
    return " ".join(map(str, ids)) or "empty"


def report(examples: Iterable[Example], found: DemoAnswers) -> bool:
    """Print every example, compared, and a summary; whether nothing differs."""
    from rich.console import Console

    comparisons = [compare(example, found) for example in examples]
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    for comparison in comparisons:
        show(comparison, console)
    console.print()
    console.print(summarise(comparisons))
    return is_equal(comparisons)


def show(comparison: Comparison, console: Console) -> None:
    """Print one example as a table: what came back beside what was expected."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    example = comparison.example
    console.print(f"\n[bold]{escape(example.title)}[/bold]")
    console.print(escape(f"cluster {example.cluster_id}; {example.source}"))
    table = Table(box=box.SIMPLE)
    expected = "expected" if "hand" in example.source else "document"
    for title in ("topic", "partition", "on Kafka", expected, ""):
        table.add_column(title, overflow="fold")
    good, bad = ("equal", "DIFFERS") if console.options.ascii_only else ("✓", "✗ differs")
    last = ""
    for row in comparison.rows:
        what, last = "" if row.what == last else row.what, row.what
        found = f"{row.found}\n{row.note}" if row.note else row.found
        partition = "" if row.partition is None else str(row.partition)
        mark = f"[green]{good}[/green]" if row.is_equal else f"[red]{bad}[/red]"
        table.add_row(escape(what), partition, escape(found), escape(row.expected), mark)
    console.print(table)


def summarise(comparisons: Sequence[Comparison]) -> str:
    """One line: everything is equal, or what differs."""
    rows = [row for comparison in comparisons for row in comparison.rows]
    lists = sum(row.partition is not None for row in rows)
    wrong = sum(not row.is_equal for row in rows)
    total = f"{lists} replica lists and {len(rows) - lists} rings and answers"
    if wrong:
        return f"{wrong} of {total} DIFFER from what was expected."
    return f"All {total} are equal to what was expected."


def is_equal(comparisons: Iterable[Comparison]) -> bool:
    """Whether nothing differs."""
    return all(row.is_equal for comparison in comparisons for row in comparison.rows)
