"""What `follow-brokers` says: events on standard output, how things stand on standard error.

How things stand is told when it changes, not at each look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

import click
from spu_assigner.core.base.events import SpuJoined
from spu_assigner.schemas.json_lines.lines import event_to_json
from spu_assigner.stream.common.printable import printable

if TYPE_CHECKING:
    from spu_assigner.stream.follow.decision import (
        Announced,
        Announcement,
        MembershipDecision,
        Sightings,
    )
    from spu_assigner.stream.follow.kafka import ClusterSnapshot

Form = Literal["table", "json"]
NAMED_MAX: Final = 10  # brokers, in a line


class Teller:
    """Tells, and remembers what it has told."""

    def __init__(self, form: Form, *, dry_run: bool = False) -> None:
        self._form = form
        self._dry_run = dry_run
        self._told: dict[str, str | None] = {}  # by what it is about
        self._missing: tuple[int, ...] = ()
        self._crowded: set[int] = set()  # brokers, warned of

    def watches(self, look: ClusterSnapshot, cluster_id: str) -> None:
        self._say(
            f"watches Kafka cluster {printable(look.kafka_cluster)}, "
            f"{_brokers(sorted(look.racks))}, for cluster {printable(cluster_id)}"
        )

    def leads(self, announced: Mapping[int, Announced], *, dry_run: bool) -> None:
        own = sum(known.is_own and known.online for known in announced.values())
        others = sum(not known.is_own and known.online for known in announced.values())
        what = "dry run, nothing is sent" if dry_run else "leads"
        self._note("election", f"{what}; {own} SPUs joined by this command, {others} by others")

    def stands_by(self, is_mine: bool | None) -> None:
        known = "another follower leads" if is_mine is False else "waits for the group"
        self._note("election", f"stands by: {known}")

    def blind(self, reason: str) -> None:
        """Told once for each time: the reasons vary, and what follows does not."""
        if self._told.get("sight") is None:
            self._note(
                "sight", f"cannot see the watched cluster: {printable(reason)}; nobody leaves"
            )

    def sees(self) -> None:
        if self._told.get("sight") is not None:
            self._told["sight"] = None
            self._say("sees the watched cluster again")

    def trouble(self, reason: str | None) -> None:
        self._note("trouble", None if reason is None else printable(reason))

    def sizes(self, reason: str | None) -> None:
        """What is wrong with the file of sizes."""
        self._note("sizes", None if reason is None else printable(reason))

    def crowded(self, broker: int, *, held: int, capacity: int) -> None:
        """That Kafka has used more than half of what a broker joins with; once for each."""
        if broker in self._crowded:
            return
        self._crowded.add(broker)
        self._say(
            f"warning: broker {broker} holds {held:,} replicas in Kafka already, more than half of "
            f"the {capacity:,} slots that it joins with, and it takes no new ones once they are "
            "assigned; set --capacity, or --sizes for single brokers"
        )

    def uncounted(self, reason: str) -> None:
        """That nobody knows whether a capacity is too small."""
        self._note("count", f"cannot count the replicas that brokers hold: {printable(reason)}")

    def decided(self, decision: MembershipDecision, sight: Sightings) -> None:
        """What is not done, and why."""
        if not sight.is_clear:
            return
        missing = (*decision.awaited, *decision.held)
        back = [broker for broker in self._missing if broker in sight.racks]
        if back:
            self._say(f"sees {_brokers(back)} again")
        if decision.held:
            self._note(
                "held",
                f"holds back the leave of {_brokers(sorted(missing))}: more than half are missing "
                "at once, which is rather a fault of the view; if they are gone, say "
                "--allow-mass-leave",
            )
        elif new := sorted(set(missing) - set(self._missing)):
            seconds = max(decision.awaited.values())
            self._say(f"misses {_brokers(new)}; to leave in {seconds:.0f} s unless seen again")
        if not decision.held:
            self._told["held"] = None
        self._missing = tuple(sorted(missing))
        for broker, why in decision.left_alone.items():
            self._note(f"alone {broker}", f"leaves broker {broker} alone: {why}")
        for key in [key for key in self._told if key.startswith("alone ")]:
            if int(key.removeprefix("alone ")) not in decision.left_alone:
                del self._told[key]

    def event(self, event: Announcement, *, missing_for: float | None) -> None:
        """An event that was sent, or would be."""
        if self._form == "json":
            click.echo(event_to_json(event))
            return
        verb = "would " if self._dry_run else ""
        if isinstance(event, SpuJoined):
            rack = "no rack" if event.rack is None else f"rack {printable(event.rack)}"
            cores = "1 core" if event.cores == 1 else f"{event.cores} cores"
            word = "join" if self._dry_run else "joined"
            line = f"{verb}{word}  SPU {event.spu_id}: {rack}, {cores}, {event.capacity} slots"
        else:
            word = "leave" if self._dry_run else "left  "
            line = f"{verb}{word}  SPU {event.spu_id}: missing for {missing_for or 0:.0f} s"
        click.echo(line)

    def _note(self, key: str, text: str | None) -> None:
        if text is not None and self._told.get(key) != text:
            self._say(text)
        self._told[key] = text

    def _say(self, text: str) -> None:
        click.echo(f"follow-brokers: {text}", err=True)


def _brokers(ids: list[int]) -> str:
    named = ", ".join(map(str, ids[:NAMED_MAX]))
    more = f" and {len(ids) - NAMED_MAX} more" if len(ids) > NAMED_MAX else ""
    return f"{'broker' if len(ids) == 1 else 'brokers'} {named}{more}"
