"""What `follow` prints: events on standard output, how things stand on standard error; a bar.

How things stand is reported when it changes, not at each look.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from spu_assigner.core.base.events import SpuJoined, TopicAdopted, TopicCreate, TopicRelease
from spu_assigner.core.base.resources import BYTES
from spu_assigner.schemas.json_lines.lines import event_to_json
from spu_assigner.stream.client.spu_description import Announcement
from spu_assigner.stream.clusters.follow.decision import MembershipDecision, Sightings
from spu_assigner.stream.common.printable import counted, listed, printable
from spu_assigner.stream.common.quantities import bytes_text
from spu_assigner.stream.kafka.config.command_options import Form

if TYPE_CHECKING:  # What it imports is heavy, and `--help` needs none of it.
    from spu_assigner.stream.clusters.follow.followed_topics import FollowedEvent, TopicsTurn


class FollowOutput:
    """Prints, and remembers what was reported."""

    def __init__(self, form: Form, *, dry_run: bool = False) -> None:
        self._form = form
        self._dry_run = dry_run
        self._reported: dict[str, str | None] = {}  # by what it is about
        self._missing: list[int] = []

    def say(self, text: str) -> None:
        """A line on standard error."""
        click.echo(f"follow: {printable(text)}", err=True)

    def report(self, about: str, text: str | None) -> None:
        """How one thing stands, if that is new; None: there is nothing to say of it."""
        if text is not None and self._reported.get(about) != text:
            self.say(text)
        self._reported[about] = text

    def blind(self, reason: str) -> None:
        """Once for each time: the reasons vary, and what follows does not."""
        if self._reported.get("sight") is None:
            self.report("sight", f"cannot see the watched cluster: {reason}; nobody leaves")

    def sees(self) -> None:
        """The watched cluster shows itself, perhaps again."""
        if self._reported.get("sight") is not None:
            self.say("sees the watched cluster again")
            self._reported["sight"] = None

    def decided(self, decision: MembershipDecision, sight: Sightings) -> None:
        """What is not done, and why."""
        if not sight.is_clear:
            return
        missing = sorted((*decision.awaited, *decision.held))
        if back := [broker for broker in self._missing if broker in sight.racks]:
            self.say(f"sees {brokers_text(back)} again")
        held = (
            f"holds back the leave of {brokers_text(missing)}: more than half are missing at once, "
            "which is rather a fault of the view; if they are gone, say --allow-mass-leave"
        )
        self.report("held", held if decision.held else None)
        new = [broker for broker in missing if broker not in self._missing]
        if new and not decision.held:
            seconds = max(decision.awaited.values())
            self.say(f"misses {brokers_text(new)}; to leave in {seconds:.0f} s unless seen again")
        self._missing = missing
        alone = {
            f"broker {broker}": f"leaves broker {broker} alone: {why}"
            for broker, why in decision.left_alone.items()
        }
        before = [about for about in self._reported if about.startswith("broker ")]
        for about in dict.fromkeys([*alone, *before]):
            self.report(about, alone.get(about))

    def topics(self, turn: TopicsTurn) -> None:
        """What is not done about topics, and why."""
        alone = {
            f"topic {each.topic}": f"leaves topic {each.topic} alone: {printable(each.reason)}"
            for each in turn.left
        }
        alone |= {
            f"topic {each.topic} placed": f"does not place topic {each.topic}, which is adopted as "
            f"it is: {printable(each.reason)}"
            for each in turn.unplaced
        }
        before = [about for about in self._reported if about.startswith("topic ")]
        for about in dict.fromkeys([*alone, *before]):
            self.report(about, alone.get(about))
        held = (
            f"holds back the release of {listed(turn.held)}: more than half of the topics are gone "
            "at once; if they are, run `adopt --forget-gone`"
        )
        self.report("topics held", held if turn.held else None)

    def event(
        self, event: Announcement | FollowedEvent, *, missing_for: float | None = None
    ) -> None:
        """An event that was sent, or would be."""
        if self._form == "json":
            click.echo(event_to_json(event))
        elif isinstance(event, TopicAdopted):
            verb = "would adopt" if self._dry_run else "adopted"
            click.echo(f"{verb}  topic {event.topic}: {size_text(event)}")
        elif isinstance(event, TopicCreate):
            verb = "would place" if self._dry_run else "asks to place"
            counts = f"{event.partitions} partitions, {event.replication_factor} replicas of each"
            click.echo(f"{verb}  topic {event.topic}: {counts}")
        elif isinstance(event, TopicRelease):
            verb = "would release" if self._dry_run else "released"
            click.echo(f"{verb}  topic {event.topic}: it is gone from Kafka")
        elif isinstance(event, SpuJoined):
            verb = "would join" if self._dry_run else "joined"
            click.echo(f"{verb}  SPU {event.spu_id}: {join_text(event)}")
        else:
            verb = "would leave" if self._dry_run else "left  "
            click.echo(f"{verb}  SPU {event.spu_id}: missing for {missing_for or 0:.0f} s")


def size_text(event: TopicAdopted) -> str:
    """Partitions and replicas of a topic that is adopted, and their bytes if it says them."""
    lengths = sorted({len(row) for row in event.replicas})
    replicas = " or ".join(filter(None, [", ".join(map(str, lengths[:-1])), str(lengths[-1])]))
    partitions = "1 partition" if len(event.replicas) == 1 else f"{len(event.replicas)} partitions"
    size = (event.demand or {}).get(BYTES)
    of_bytes = "" if size is None else f" of {bytes_text(size)}"
    return f"{partitions} of {replicas} replica{'' if lengths == [1] else 's'}{of_bytes}"


def join_text(event: SpuJoined) -> str:
    """What a join says of an SPU."""
    rack = "no rack" if event.rack is None else f"rack {printable(event.rack)}"
    cores = "1 core" if event.cores == 1 else f"{event.cores} cores"
    has = [f"{name} {amount}" for name, amount in sorted((event.resources or {}).items())]
    return ", ".join([rack, cores, f"{event.capacity} slots", *has])


def brokers_text(ids: Sequence[int]) -> str:
    """Some brokers, in a line."""
    return f"{'broker' if len(ids) == 1 else 'brokers'} {listed(ids)}"


class Progress:
    """Counts answers to what was sent: a bar on a terminal, else one line at the start.

    Args:
        command: who is at work.
        is_quiet: show nothing.
    """

    def __init__(self, command: str, *, is_quiet: bool = False) -> None:
        self._command = command
        self._is_quiet = is_quiet
        self._bar: Any = None

    @contextmanager
    def shown(self, count: int) -> Iterator[None]:
        """While so many events are sent and answered."""
        if self._is_quiet:
            yield
        elif sys.stderr.isatty():
            with click.progressbar(length=count, label=self._command, file=sys.stderr) as bar:
                self._bar = bar
                try:
                    yield
                finally:
                    self._bar = None
        else:
            click.echo(
                f"{self._command}: sends {counted(count, 'event')} and waits for answers", err=True
            )
            sys.stderr.flush()
            yield

    def add(self, count: int) -> None:
        """So many more were answered."""
        if self._bar is not None:
            self._bar.update(count)
