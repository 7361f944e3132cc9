"""What `follow` and `adopt` print: events and sums on standard output, the rest on standard error.

How things stand is reported when it changes, not at each look.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import click
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    Event,
    SpuJoined,
    SpuLeft,
    TopicAdopted,
    TopicCreate,
    TopicRelease,
)
from spu_assigner.core.base.resources import BYTES
from spu_assigner.schemas.json_lines.lines import event_to_json
from spu_assigner.stream.client.announced import LABEL, entries_of, entry_text
from spu_assigner.stream.clusters.follow.brokers import MembershipDecision, Sightings
from spu_assigner.stream.clusters.follow.topic_facts import TopicEvent
from spu_assigner.stream.clusters.follow.topics import TopicsDecision
from spu_assigner.stream.clusters.plan.model import TopicReason
from spu_assigner.stream.common.printable import counted, listed, printable
from spu_assigner.stream.common.quantities import bytes_text
from spu_assigner.stream.kafka.config.command_options import Form

OFF_BROKER: Final = (
    "an SPU that has left takes no topic: let it join again, or move the topic off its broker "
    "(`spu-assigner drain BROKER"
)
_VERBS: Final = {  # of an event that would be sent, and of one that was
    SpuJoined: ("would join", "joined"),
    SpuLeft: ("would leave", "left  "),
    TopicAdopted: ("would adopt", "adopted"),
    TopicCreate: ("would place", "asks to place"),
    TopicRelease: ("would release", "released"),
}


class FollowOutput:
    """Prints, and remembers what was reported."""

    def __init__(self, command: str, form: Form, *, dry_run: bool = False) -> None:
        self._command = command
        self._form = form
        self._dry_run = dry_run
        self._standing: dict[str, Collection[Hashable]] = {}  # by kind: what was reported of it

    def say(self, text: str) -> None:
        """A line on standard error."""
        click.echo(f"{self._command}: {printable(text)}", err=True)

    def report(self, kind: str, *texts: str, about: Collection[Hashable] = ()) -> None:
        """How things of one kind stand now: a line for each that is new, by what it is about."""
        before = self._standing.get(kind, ())
        self._standing[kind] = about = about or texts
        for each, text in zip(about, texts, strict=True):
            if each not in before:
                self.say(text)

    def blind(self, reason: str) -> None:
        """Once for each time: the reasons vary, and what follows does not."""
        text = f"cannot see the watched cluster: {reason}; nobody leaves"
        self.report("sight", text, about=["blind"])

    def sees(self) -> None:
        """The watched cluster shows itself, perhaps again."""
        if self._standing.pop("sight", ()):
            self.say("sees the watched cluster again")

    def brokers(self, decision: MembershipDecision, sight: Sightings) -> None:
        """What is not done about brokers, and why."""
        if not sight.is_clear:
            return
        for broker in self._standing.get("away", ()):
            if broker in sight.racks:
                self.say(f"sees broker {broker} again")
        awaited = {} if decision.held else decision.awaited
        missed = (
            f"misses broker {broker}; to leave in {seconds:.0f} s unless seen again"
            for broker, seconds in awaited.items()
        )
        self.report("away", *missed, about=awaited)
        alone = (f"leaves broker {each} alone: {why}" for each, why in decision.left_alone.items())
        self.report("broker", *alone)
        away = sorted((*decision.held, *decision.awaited))
        text = (
            f"holds back the leave of {brokers_text(away)}: more than half are missing at once, "
            "which is rather a fault of the view; if they are gone, say --allow-mass-leave"
        )
        self.report("held brokers", *([text] if decision.held else []))

    def topics(self, decision: TopicsDecision) -> None:
        """What is not done about topics, and why."""
        alone = [f"leaves topic {each.topic} alone: {each.reason}" for each in decision.left]
        self.report("topic", *alone)
        unplaced = (
            f"does not place topic {each.topic}, which is adopted as it is: {each.reason}"
            for each in decision.unplaced
        )
        self.report("unplaced", *unplaced)
        text = (
            f"holds back the release of {listed(decision.held)}: more than half of the topics "
            "are gone at once; if they are, run `adopt --forget-gone`"
        )
        self.report("held topics", *([text] if decision.held else []))

    def event(self, event: Event, more: str = "") -> None:
        """An event that was sent, or would be."""
        if self._form == "json":
            click.echo(event_to_json(event))
        else:
            verb = _VERBS[type(event)][0 if self._dry_run else 1]
            click.echo(f"{verb}  {_event_text(event)}{more}")

    def adopted(self, report: AdoptReport) -> None:
        """What became of one round of `adopt`, or would; of JSON only events are output."""
        topics = report.topics
        for event in report.events if self._dry_run else report.accepted:
            why = topics.reasons.get(event.topic) if isinstance(event, TopicAdopted) else None
            self.event(event, f"; it {why}" if self._dry_run and why else "")
        lines = [
            *(
                f"! {x.topic}  {x.reason}"
                for x in (*topics.left, *report.rejected, *report.changed)
            ),
            *(f"? {x.topic}  {x.reason}" for x in topics.pending if self._dry_run),
        ]
        if not topics.released:
            lines += (f". {x}  is gone from Kafka; --forget-gone releases it" for x in topics.gone)
        for line in (*lines, _sum_text(report, dry_run=self._dry_run)):
            click.echo(printable(line), err=self._form == "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptReport:
    """What one round of `adopt` decided, and what became of it."""

    joins: tuple[SpuJoined, ...]
    topics: TopicsDecision
    accepted: tuple[SpuJoined | TopicEvent, ...] = ()
    rejected: tuple[TopicReason, ...] = ()  # by the job
    changed: tuple[TopicReason, ...] = ()  # by others, while they were adopted
    unanswered: int = 0

    @property
    def events(self) -> tuple[SpuJoined | TopicEvent, ...]:
        """All that is to be sent."""
        return (*self.joins, *self.topics.events)

    def answered(self, accepted: Collection[str], rejected: Mapping[str, str]) -> AdoptReport:
        """The same once events were answered, by their ids; of those rejected why."""
        return replace(
            self,
            accepted=tuple(each for each in self.events if each.event_id in accepted),
            rejected=tuple(
                _rejection(each, rejected[each.event_id])
                for each in self.events
                if each.event_id in rejected
            ),
            unanswered=len(self.events) - len(accepted) - len(rejected),
        )

    def topics_of(self, kind: type[TopicAdopted | TopicRelease]) -> list[str]:
        """The topics of accepted events of one kind."""
        return [event.topic for event in self.accepted if isinstance(event, kind)]


def _rejection(event: SpuJoined | TopicEvent, why: str) -> TopicReason:
    """Why the job rejects an event, and what to do about an SPU that it does not know."""
    if isinstance(event, SpuJoined):
        return TopicReason(topic=f"SPU {event.spu_id}", reason=why)
    if f"({Code.MANUAL_UNKNOWN_SPU})" in why:
        why = f"{why}; {OFF_BROKER} --foreign {event.topic}`)"
    return TopicReason(topic=event.topic, reason=why)


def brokers_text(ids: Sequence[int]) -> str:
    """Some brokers, in a line."""
    return f"{'broker' if len(ids) == 1 else 'brokers'} {listed(ids)}"


def _event_text(event: Event) -> str:
    match event:
        case TopicAdopted(replicas=lists, demand=demand):
            lengths = sorted({len(row) for row in lists})
            *few, most = map(str, lengths)
            replicas = f"{', '.join(few)} or {most}" if few else most
            size = (demand or {}).get(BYTES)
            of_bytes = "" if size is None else f" of {bytes_text(size)}"
            text = f"{counted(len(lists), 'partition')} of {replicas} replica"
            return f"topic {event.topic}: {text}{'' if lengths == [1] else 's'}{of_bytes}"
        case TopicCreate():
            partitions = counted(event.partitions, "partition")
            return f"topic {event.topic}: {partitions}, {event.replication_factor} replicas of each"
        case TopicRelease():
            return f"topic {event.topic}: it is gone from Kafka"
        case SpuJoined():
            rack = "no rack" if event.rack is None else f"rack {printable(event.rack)}"
            has = [f"{name} {amount}" for name, amount in sorted((event.resources or {}).items())]
            entries = entries_of(event.labels, event.taints)
            has += [entry_text(*each) for each in entries.items() if each[0] != LABEL]
            known = [rack, counted(event.cores, "core"), f"{event.capacity} slots", *has]
            return f"SPU {event.spu_id}: {', '.join(known)}"
        case _:
            return f"SPU {getattr(event, 'spu_id', '')}"


def _sum_text(report: AdoptReport, *, dry_run: bool) -> str:
    topics = report.topics
    first = f"{counted(len(report.topics_of(TopicAdopted)), 'topic')} adopted"
    if dry_run:
        nothing = "" if report.events else "nothing to do: "
        joins, adopted = counted(len(report.joins), "broker"), counted(len(topics.adopted), "topic")
        first = f"{nothing}{joins} to join, {adopted} to adopt"
    released = topics.released if dry_run else report.topics_of(TopicRelease)
    counts = (
        (len(released), "to release" if dry_run else "released"),
        (report.unanswered, "not answered"),
        (len(report.rejected), "rejected"),
        (len(topics.equal), "as mapped before"),
        (len(topics.pending), "changed here, for `apply` to carry out"),
        (len(topics.left), "left alone"),
        (len(topics.gone) - len(topics.released), "gone"),
    )
    return ", ".join([first, *(f"{count} {what}" for count, what in counts if count)])
