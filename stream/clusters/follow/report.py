"""What `follow` and `adopt` print: events and sums on standard output, the rest on standard error.

How things stand is reported when it changes, not at each look.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import click
import msgspec
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
from spu_assigner.stream.clusters.follow.brokers import MembershipDecision, Sightings
from spu_assigner.stream.clusters.follow.topic_facts import TopicEvent
from spu_assigner.stream.clusters.follow.topics import TopicsDecision
from spu_assigner.stream.clusters.plan.model import TopicReason
from spu_assigner.stream.common.printable import counted, listed, printable
from spu_assigner.stream.common.quantities import bytes_text
from spu_assigner.stream.kafka.config.command_options import Form

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
        self._reported: dict[str, str] = {}  # by what it is about

    def say(self, text: str) -> None:
        """A line on standard error."""
        click.echo(f"{self._command}: {printable(text)}", err=True)

    def report(self, about: str, text: str | None) -> None:
        """How one thing stands, if that is new; None: there is nothing to say of it."""
        if text is None:
            self._reported.pop(about, None)
        elif self._reported.get(about) != text:
            self.say(text)
            self._reported[about] = text

    def _stand(self, kind: str, lines: Mapping[str, str | None]) -> None:
        """How all things of one kind stand; what is about them begins with it."""
        before = [about for about in self._reported if about.startswith(kind)]
        for about in dict.fromkeys([*lines, *before]):
            self.report(about, lines.get(about))

    def blind(self, reason: str) -> None:
        """Once for each time: the reasons vary, and what follows does not."""
        if "sight" not in self._reported:
            self.report("sight", f"cannot see the watched cluster: {reason}; nobody leaves")

    def sees(self) -> None:
        """The watched cluster shows itself, perhaps again."""
        if "sight" in self._reported:
            self.say("sees the watched cluster again")
            self.report("sight", None)

    def brokers(self, decision: MembershipDecision, sight: Sightings) -> None:
        """What is not done about brokers, and why."""
        if not sight.is_clear:
            return
        lines: dict[str, str | None] = {
            f"broker {broker}": f"leaves broker {broker} alone: {why}"
            for broker, why in decision.left_alone.items()
        }
        for broker, seconds in () if decision.held else decision.awaited.items():
            text = f"misses broker {broker}; to leave in {seconds:.0f} s unless seen again"
            lines[f"broker {broker} away"] = self._reported.get(f"broker {broker} away", text)
        if decision.held:
            away = sorted((*decision.held, *decision.awaited))
            lines["broker held"] = (
                f"holds back the leave of {brokers_text(away)}: more than half are missing at "
                "once, which is rather a fault of the view; if they are gone, say "
                "--allow-mass-leave"
            )
        for broker in sight.racks:
            if f"broker {broker} away" in self._reported:
                self.say(f"sees broker {broker} again")
        self._stand("broker ", lines)

    def topics(self, decision: TopicsDecision) -> None:
        """What is not done about topics, and why."""
        lines: dict[str, str | None] = {
            f"topic {each.topic}": f"leaves topic {each.topic} alone: {each.reason}"
            for each in decision.left
        }
        for each in decision.unplaced:
            lines[f"topic {each.topic} placed"] = (
                f"does not place topic {each.topic}, which is adopted as it is: {each.reason}"
            )
        if decision.held:
            lines["topic  held"] = (
                f"holds back the release of {listed(decision.held)}: more than half of the topics "
                "are gone at once; if they are, run `adopt --forget-gone`"
            )
        self._stand("topic ", lines)

    def event(self, event: Event, more: str = "") -> None:
        """An event that was sent, or would be."""
        if self._form == "json":
            click.echo(event_to_json(event))
        else:
            verb = _VERBS[type(event)][0 if self._dry_run else 1]
            click.echo(f"{verb}  {_event_text(event)}{more}")

    def adopted(self, report: AdoptReport) -> None:
        """What became of one round of `adopt`, or would."""
        if self._form == "json":
            click.echo(_report_json(report, dry_run=self._dry_run))
            return
        topics = report.topics
        for event in report.events if self._dry_run else report.accepted:
            why = topics.reasons.get(event.topic) if isinstance(event, TopicAdopted) else None
            self.event(event, f"; it {why}" if self._dry_run and why else "")
        for each in (*topics.left, *report.rejected, *report.changed):
            click.echo(f"! {each.topic}  {printable(each.reason)}")
        for each in topics.pending if self._dry_run else ():
            click.echo(f"? {each.topic}  {each.reason}")
        for name in () if topics.released else topics.gone:
            click.echo(f". {name}  is gone from Kafka; --forget-gone releases it")
        click.echo(_sum_text(report, dry_run=self._dry_run))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptReport:
    """What one round of `adopt` decided, and what became of it."""

    kafka_cluster: str
    joins: tuple[SpuJoined, ...]
    topics: TopicsDecision
    accepted: tuple[Event, ...] = ()
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
                TopicReason(
                    topic=f"SPU {each.spu_id}" if isinstance(each, SpuJoined) else each.topic,
                    reason=rejected[each.event_id],
                )
                for each in self.events
                if each.event_id in rejected
            ),
            unanswered=len(self.events) - len(accepted) - len(rejected),
        )

    def topics_of(self, kind: type[TopicAdopted | TopicRelease]) -> list[str]:
        """The topics of accepted events of one kind."""
        return [event.topic for event in self.accepted if isinstance(event, kind)]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left that was asked for."""
        return not (self.topics.left or self.rejected or self.changed or self.unanswered)


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


def _report_json(report: AdoptReport, *, dry_run: bool) -> str:
    """The same for programs; the events as `simulate` reads them."""
    topics = report.topics
    document = {
        "kafka_cluster": report.kafka_cluster,
        "dry_run": dry_run,
        "events": [msgspec.Raw(event_to_json(event).encode()) for event in report.events],
        "joined": [each.spu_id for each in report.accepted if isinstance(each, SpuJoined)],
        "adopted": report.topics_of(TopicAdopted),
        "released": report.topics_of(TopicRelease),
        "rejected": report.rejected,
        "changed": report.changed,
        "unanswered": report.unanswered,
        "as_mapped": len(topics.equal),
        "pending": topics.pending,
        "left": topics.left,
        "gone": topics.gone,
    }
    return msgspec.json.encode(document).decode()
