"""Which brokers are announced as joined or left: decided without Kafka and without a clock.

Rules:
- A broker that is seen and was never announced joins. One that is back, or that has changed, joins
  again. What neither the broker nor the settings say of it (a rack, cores, a capacity, labels and
  taints that the file of labels does not name) stays as it was announced last.
- A broker leaves (`OFFLINE`) once it was missing in every look for the grace time. Time in which
  nothing could be seen does not count: that we do not see a cluster says nothing of its brokers.
- If more than half of those that should be there are missing, nobody leaves, unless that is
  allowed: so many at once are rather a fault of the view.
- An SPU that others joined, or made to leave, is theirs and left alone; those that they joined can
  be taken over. A join by others of an SPU that is online and ours describes it again: it stays
  ours.
- `adopt` has those join that were never announced, and does nothing else.
- An event is never sent twice: whoever sends has read before what others have sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spu_assigner.core.base.events import LeaveMode, SpuJoined, SpuLeft
from spu_assigner.core.base.limits import RACK_LENGTH_MAX
from spu_assigner.stream.client.announced import (
    LABEL,
    MARK,
    Announced,
    Announcement,
    LabelsOfBrokers,
    described_over,
)
from spu_assigner.stream.clusters.follow.options import FollowOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Sightings:
    """What the looks at a cluster have shown so far.

    Its own clock stands still while nothing can be seen: it goes on between two looks, neither far
    apart, that both saw the cluster.
    """

    racks: Mapping[int, str | None] = field(default_factory=dict)  # by id: who is there
    seconds: float = 0.0
    missing_since: Mapping[int, float] = field(default_factory=dict)  # of who was there before
    looked_at: float | None = None  # the caller's clock; None: the last look saw nothing

    @property
    def is_clear(self) -> bool:
        """Whether the last look could see the brokers."""
        return self.looked_at is not None

    def after(self, racks: Mapping[int, str | None] | None, *, now: float, gap: float) -> Sightings:
        """The same after another look.

        Args:
            racks: of the brokers that are there, by id; None or empty: nothing could be seen.
            now: a clock in seconds that never goes back.
            gap: two looks that are further apart say nothing of the time between them.
        """
        if not racks:
            return replace(self, looked_at=None)
        since_last = gap + 1 if self.looked_at is None else now - self.looked_at
        seconds = self.seconds + (since_last if since_last <= gap else 0.0)
        missing = {**dict.fromkeys(self.racks, seconds), **self.missing_since}
        return Sightings(
            racks=dict(racks),
            seconds=seconds,
            missing_since={each: since for each, since in missing.items() if each not in racks},
            looked_at=now,
        )

    def missing_for(self, broker: int) -> float | None:
        """For how long a broker was missing in every look; None: it is there."""
        if broker in self.racks:
            return None
        return self.seconds - self.missing_since.get(broker, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipDecision:
    """What is to be sent, and what is not."""

    events: tuple[Announcement, ...] = ()
    held: tuple[int, ...] = ()  # they are to leave, but too many are missing
    awaited: Mapping[int, float] = field(default_factory=dict)  # missing: seconds to the leave
    left_alone: Mapping[int, str] = field(default_factory=dict)  # brokers that differ, and why


def decide_brokers(
    announced: Mapping[int, Announced],
    sight: Sightings,
    options: FollowOptions,
    labels: LabelsOfBrokers,
    *,
    occurred_at: int,
) -> MembershipDecision:
    """What follows from the present look, whose time no other has; nothing if it saw nothing."""
    if not sight.is_clear:
        return MembershipDecision()

    def common(broker: int, deed: str) -> dict[str, Any]:
        event_id = f"{MARK}/{broker}/{deed}/{occurred_at}"
        of = {"cluster_id": options.cluster_id, "occurred_at": occurred_at, "spu_id": broker}
        return {"event_id": event_id, **of}

    left_alone: dict[int, str] = {}
    events: list[Announcement] = []
    for broker, rack in sorted(sight.racks.items()):
        known = announced.get(broker)
        if options.is_adopt and known is not None:
            continue
        if (reason := _why_not(broker, rack, known, options)) is not None:
            left_alone[broker] = reason
            continue
        described = described_over(
            None if known is None else known.described,
            {**labels.get(broker, {}), LABEL: options.kafka_cluster},
            rack=rack,
            cores=options.cores,
            capacity=options.capacity,
            resources=options.resources,
        )
        if known is None or not known.online or known.described != described:
            events.append(SpuJoined(**common(broker, "joined"), **described.fields()))
    wanted = [
        broker
        for broker, known in sorted(announced.items())
        if known.online and known.is_own and broker not in options.excluded_brokers
    ]
    gone = {each: time for each in wanted if (time := sight.missing_for(each)) is not None}
    due = [broker for broker, seconds in gone.items() if seconds >= options.grace_seconds]
    is_mass = len(gone) > 1 and 2 * len(gone) > len(wanted)
    held = tuple(due) if is_mass and not options.allow_mass_leave else ()
    if not held:
        events += [SpuLeft(**common(each, "left"), mode=LeaveMode.OFFLINE) for each in due]
    return MembershipDecision(
        events=tuple(events),
        held=held,
        awaited={
            broker: options.grace_seconds - seconds
            for broker, seconds in gone.items()
            if broker not in due
        },
        left_alone=left_alone,
    )


def _why_not(
    broker: int, rack: str | None, known: Announced | None, options: FollowOptions
) -> str | None:
    """Why nothing is announced of a broker that is there; None: it is ours to announce."""
    if broker in options.excluded_brokers:
        return "it is excluded"
    if rack is not None and len(rack) > RACK_LENGTH_MAX:
        return f"its rack has {len(rack)} characters; expected {RACK_LENGTH_MAX} at most"
    if known is None or known.is_own:
        return None
    if not known.online:
        return "somebody else made it leave; it comes back when he joins it"
    return None if options.take_over else "somebody else joined it; --adopt takes it over"
