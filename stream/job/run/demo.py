"""The demonstration: the scenario through Kafka, and what came back beside the documents' tables.

    python -m spu_assigner.stream.job.run.demo

`run --demo` starts a job for it; this program plays it to a job that runs, as a step of the
container stack, with the settings of the environment. Nothing depends on timing: the end is reached
when every event is answered. The scenario is the source documents' own examples, as events with the
answers that they must get; `scenario.yaml` says where each is from.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import BaseTopicEvent, Event, SpuJoined
from spu_assigner.core.base.records import ReplicaMap, RingChange, RingEvent, Status, TopicStatus
from spu_assigner.schemas.json_lines.lines import event_from_json
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.client.pending_answers import ANSWER_TOPICS, Awaited
from spu_assigner.stream.kafka.client import Reader, Received, Sender, SentMessage
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import check_topics
from spu_assigner.stream.kafka.topics import TOPIC_EVENTS

ANSWER_SECONDS_MAX: Final = 180.0  # the first batch of a cold Spark on a busy machine
UNANSWERED_NAMED: Final = 8
WIDTH: Final = 120  # of tables, where there is no terminal to ask


class DemoError(AssignerError):
    """The demonstration could not be played to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioStep:
    """One message, and the whole answer that it must get."""

    event_id: str  # of raw bytes too: a name for them
    event: Event | bytes  # bytes: sent as they are, to topic-events, with the cluster as key
    answer: str | None = None  # None: of a join, which shows in the ring
    replicas: list[list[int]] | None = None  # one replica list for each partition
    cores: list[list[int]] | None = None  # parallel to replicas

    @property
    def is_join(self) -> bool:
        """Whether an SPU joins in this step."""
        return isinstance(self.event, SpuJoined)

    @property
    def topic(self) -> str:
        """The topic that is requested; a name for what requests none."""
        if isinstance(self.event, bytes):
            return "bytes"
        if isinstance(self.event, BaseTopicEvent):
            return self.event.topic
        return self.event.cluster_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One cluster's life."""

    cluster_id: str
    title: str
    source: str
    steps: list[ScenarioStep]  # joins first
    ring: list[int]  # at the end, ascending


def examples(prefix: str = "") -> list[Example]:
    """All examples; ids start with `prefix`, so that they can be played again."""
    text = Path(__file__).with_name("scenario.yaml").read_text("utf-8")
    return [_example(prefix, **given) for given in yaml.safe_load(text)]


def _example(
    prefix: str,
    *,
    joins: list[dict[str, Any]],
    requests: list[dict[str, Any]],
    cluster_id: str,
    **said: Any,
) -> Example:
    cluster_id = prefix + cluster_id
    events = [
        {"event": {"type": "spu_joined", **join, "spu_id": spu_id}}
        for join in joins
        for spu_id in join.pop("spu_ids")
    ]
    steps = []
    for number, step in enumerate([*events, *requests], 1):
        ids = {"cluster_id": cluster_id, "event_id": f"{cluster_id}.{number}"}
        event: Event | bytes
        if "bytes" in step:
            event = step.pop("bytes").encode()
        else:
            event = event_from_json(json.dumps({**step.pop("event"), **ids}))
        steps.append(ScenarioStep(event_id=ids["event_id"], event=event, **step))
    return Example(cluster_id=cluster_id, steps=steps, **said)


DemoAnswer = ReplicaMap | TopicStatus | RingEvent | DeadLetter


@dataclass(slots=True)
class DemoAnswers:
    """What came back from Kafka."""

    by_event: dict[str, list[DemoAnswer]] = field(default_factory=lambda: defaultdict(list))
    members: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    tombstones: set[str] = field(default_factory=set)  # cluster/topic

    def take(self, event_id: str, answer: DemoAnswer) -> None:
        """Keep one answer, by the event that caused it."""
        self.by_event[event_id].append(answer)
        if isinstance(answer, RingEvent) and answer.resource is None:
            if answer.change in (RingChange.JOINED, RingChange.RESTORED):
                self.members[answer.cluster_id].add(answer.spu_id)
            elif answer.change in (RingChange.LEFT, RingChange.SATURATED):
                self.members[answer.cluster_id].discard(answer.spu_id)


class Row(NamedTuple):
    """One thing found beside what was expected."""

    what: str  # a topic, or what was asked
    partition: int | None  # of replica lists
    found: str
    expected: str
    note: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether the answer is the expected one."""
        return self.found == self.expected


class Play:
    """One performance: `send` all steps, then `gather` their answers. The answers are read from
    where the topics ended when the performance was made."""

    def __init__(self, connection: Connection, examples: Sequence[Example]) -> None:
        self.examples = examples
        self._awaited = Awaited()
        self._found = DemoAnswers()
        self._events_by_place: dict[tuple[str, int, int], str] = {}
        self._reader = Reader(connection, ANSWER_TOPICS)
        self._sender = Sender(connection, self._sent)

    def send(self) -> int:
        """Send everything, all joins before all requests; returns the number of messages."""
        steps = [(each.cluster_id, step) for each in self.examples for step in each.steps]
        for cluster_id, step in sorted(steps, key=lambda step: not step[1].is_join):
            if isinstance(step.event, bytes):
                self._awaited.expect_id(step.event_id)
                self._sender.send_raw(
                    TOPIC_EVENTS, key=cluster_id, value=step.event, event_id=step.event_id
                )
            else:
                self._awaited.expect(step.event)
                self._sender.send(step.event)
        self._sender.flush()
        return len(steps)

    def gather(self, check: Callable[[], None]) -> DemoAnswers:
        """Wait until everything is answered; `check` is called meanwhile and may raise."""
        with self._reader as reader:
            is_whole = self._awaited.wait(
                reader, seconds=ANSWER_SECONDS_MAX, report=self._received, check=check
            )
        if not is_whole:
            missing = self._awaited.unanswered
            raise DemoError(
                f"{len(missing)} of {sum(len(each.steps) for each in self.examples)} messages were "
                f"not answered within {ANSWER_SECONDS_MAX:.0f} s: "
                f"{', '.join(missing[:UNANSWERED_NAMED])}; check that the job runs on the same "
                "topics"
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
            self._found.take(self._events_by_place[place], answer)
        else:
            self._found.take(answer.cause, answer)


def compare(example: Example, found: DemoAnswers) -> list[Row]:
    """What came back beside what the documents say: the ring at its end, lists and answers."""
    members = sorted(found.members[example.cluster_id])
    rows = [Row("ring", None, _ids(members), _ids(example.ring))]
    for step in example.steps:
        if step.is_join:  # It shows in the ring.
            continue
        given = found.by_event[step.event_id]
        if step.replicas is not None:
            lists = zip_longest(
                _lists_found(step, given),
                _described(step.replicas, step.cores),
                fillvalue="nothing",
            )
            rows += [Row(step.topic, number, *both) for number, both in enumerate(lists)]
        has_tombstone = f"{example.cluster_id}/{step.topic}" in found.tombstones
        notes = (each.message for each in given if isinstance(each, TopicStatus | DeadLetter))
        rows.append(
            Row(
                step.topic,
                None,
                _answer_found(step, given, has_tombstone=has_tombstone),
                step.answer or "",
                next(filter(None, notes), ""),
            )
        )
    return rows


def _lists_found(step: ScenarioStep, given: Sequence[DemoAnswer]) -> list[str]:
    """Those of the map of an assigned request, or of a validated one's status."""
    kind = TopicStatus if step.answer == Status.VALIDATED else ReplicaMap
    match [each for each in given if isinstance(each, kind)]:
        case [ReplicaMap() | TopicStatus() as one] if one.replicas is not None:
            cores = one.cores if isinstance(one, ReplicaMap) else None
            return _described(one.replicas.tolist(), None if cores is None else cores.tolist())
    return []


def _described(replicas: list[list[int]], cores: list[list[int]] | None) -> list[str]:
    if cores is None:
        return [str(row) for row in replicas]
    return [f"{row} on cores {on}" for row, on in zip(replicas, cores, strict=False)]


def _answer_found(step: ScenarioStep, given: Sequence[DemoAnswer], *, has_tombstone: bool) -> str:
    """In the words of the scenario; whatever is missing or double shows."""
    statuses = [each for each in given if isinstance(each, TopicStatus)]
    is_forgotten = any(each.status in (Status.DELETED, Status.RELEASED) for each in statuses)
    maps = sum(isinstance(each, ReplicaMap) for each in given)
    is_mapped = step.replicas is not None and step.answer != Status.VALIDATED
    texts = [
        *(f"dead letter {each.code}" for each in given if isinstance(each, DeadLetter)),
        *(f"{each.status} {each.code or ''}".rstrip() for each in statuses),
        *["a map"] * (maps - is_mapped),
        *["tombstone"] * (has_tombstone and is_forgotten),
        *(f"SPU {each.spu_id} {each.change}" for each in given if isinstance(each, RingEvent)),
    ]
    return ", ".join(texts) or "nothing"


def _ids(ids: Iterable[int]) -> str:
    return " ".join(map(str, ids)) or "empty"


def report(played: Iterable[Example], found: DemoAnswers) -> bool:
    """Print every example, compared, and a summary; whether nothing differs."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    rows: list[Row] = []
    for example in played:
        own = compare(example, found)
        show(example, own, console)
        rows += own
    console.print()
    console.print(summarise(rows))
    return all(row.is_equal for row in rows)


def show(example: Example, rows: Iterable[Row], console: Console) -> None:
    """Print one example as a table: what came back beside what was expected."""
    console.print(f"\n[bold]{escape(example.title)}[/bold]")
    console.print(escape(f"cluster {example.cluster_id}; {example.source}"))
    expected = "expected" if "hand" in example.source else "document"
    table = Table("topic", "partition", "on Kafka", expected, "", box=box.SIMPLE)
    for column in table.columns:
        column.overflow = "fold"
    last = ""
    for row in rows:
        what, last = "" if row.what == last else row.what, row.what
        found = f"{row.found}\n{row.note}" if row.note else row.found
        partition = "" if row.partition is None else str(row.partition)
        mark = "[green]equal[/green]" if row.is_equal else "[red]DIFFERS[/red]"
        table.add_row(escape(what), partition, escape(found), escape(row.expected), mark)
    console.print(table)


def summarise(rows: Sequence[Row]) -> str:
    """One line: everything is equal, or what differs."""
    lists = sum(row.partition is not None for row in rows)
    wrong = sum(not row.is_equal for row in rows)
    total = f"{lists} replica lists and {len(rows) - lists} rings and answers"
    if wrong:
        return f"{wrong} of {total} DIFFER from what was expected."
    return f"All {total} are equal to what was expected."


def main() -> int:
    """Play to a job that runs; exit status 0 if every map and every answer is as expected."""
    try:
        connection = Settings.load().connection()
        check_topics(connection.client(), prefix=connection.prefix)
        play = Play(connection, examples(f"play-{uuid.uuid4().hex[:6]}."))
        sent = f"{play.send()} messages sent to Kafka, waiting for their answers"
        print(sent, file=sys.stderr)
        found = play.gather(lambda: None)
    except AssignerError as error:
        print(f"spu-assigner: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0 if report(play.examples, found) else 1


if __name__ == "__main__":
    sys.exit(main())
