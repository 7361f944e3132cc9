"""The replication throttle of a wave: which settings, whose they are, what becomes of them.

Rules: a rate on each broker of a partition that copies something, the partitions on their topics,
as Kafka's own tool does. What is set is recorded first, with what was there before. It is taken
back only while it is what was recorded: a value that somebody else has set since then is theirs. Of
a broker that is not alive it is not known: it is owed, and stays recorded until the broker is back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from spu_assigner.schemas.messages.wire import MovedPartition, ThrottleValue
from spu_assigner.stream.clusters.moves.reassigning import (
    NOT_ALIVE,
    RIGHTS,
    MovesError,
    Place,
    Reassigner,
    Values,
)
from spu_assigner.stream.clusters.moves.status import say
from spu_assigner.stream.clusters.moves.waves import adding

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
SEEN_SECONDS_MAX: Final = 3.0  # from the controller's answer to what a broker shows: milliseconds
LOOK_SECONDS: Final = 0.1


class ForeignThrottleError(MovesError):
    """Somebody else has set a throttle on what is to be moved."""


class RefusedThrottleError(MovesError):
    """Kafka does not take a throttle, or a broker dies before it has it."""


class WaveThrottle:
    """The throttle of one wave after the other."""

    def __init__(self, kafka: Reassigner, *, rate: int | None, force: bool) -> None:
        self._kafka = kafka
        self._rate = rate
        self._force = force
        self._own: dict[Place, str] = {}  # what was set or removed: brokers may still show it

    def of_wave(
        self, wave: Iterable[MovedPartition], owed: Iterable[ThrottleValue]
    ) -> tuple[ThrottleValue, ...]:
        """What is to be recorded, and then set, for a wave besides what is owed.

        Nothing is set on a broker that is not alive: it copies nothing.

        Raises:
            ForeignThrottleError: somebody else has set one, and it is not to be replaced.
        """
        wanted = {} if self._rate is None else wave_values(wave, self._rate)
        for each in owed:
            wanted.pop(place(each), None)
        own = self._own
        current = self._shown(
            wanted, lambda found: not any(value and own.get(at) == value for at, value in found)
        )
        foreign = {at: value for at, value in current.items() if value}
        if foreign and not self._force:
            raise ForeignThrottleError(_foreign_text(foreign))
        return tuple(
            ThrottleValue(
                broker=where if isinstance(where, int) else None,
                topic=where if isinstance(where, str) else None,
                setting=setting,
                value=wanted[where, setting],
                before=before or None,
            )
            for (where, setting), before in current.items()
        )

    def set(self, throttles: Iterable[ThrottleValue]) -> dict[Place, str]:
        """Set what was recorded; what was not set, and why.

        Of a broker that dies just then it is not known (NOT_ALIVE); what it refuses is as it was.
        """
        changes = {place(each): each.value for each in throttles}
        self._own |= changes
        return self._kafka.change(changes)

    def remove(
        self, recorded: Sequence[ThrottleValue]
    ) -> tuple[tuple[ThrottleValue, ...], dict[int | str, str]]:
        """Take back what is recorded; what could not be, and a line for each broker or topic."""
        if not recorded:
            return (), {}
        # What others seem to have changed may be what a broker shows that lags behind.
        values = {place(each): each for each in recorded}
        current = self._shown(values, lambda found: all(_is_ours(values[at], v) for at, v in found))
        ours = {at for at, value in current.items() if _is_ours(values[at], value)}
        self._own |= {at: values[at].value for at in ours}
        # Also what looks removed: a broker may lag behind.
        failures = self._kafka.change({at: values[at].before for at in ours})
        topics = {where for where, _ in failures if isinstance(where, str)}
        there = {topic for topic, _ in self._kafka.shapes(topics)}
        left: dict[Place, str] = {}
        for at in values:
            where, setting = at
            if at not in current:
                left[at] = NOT_ALIVE
            elif at not in ours:
                say(
                    f"{_text(where)}: somebody else has changed {setting} meanwhile; it is left as "
                    "it is"
                )
            elif at in failures and (isinstance(where, int) or where in there):
                left[at] = " ".join(failures[at].split())
        lines: dict[int | str, str] = {}
        for where, _ in left:
            owed = [at for at in left if at[0] == where]
            lines[where] = _owed_text([values[at] for at in owed], left[owed[0]])
        return tuple(values[at] for at in left), lines

    def _shown(
        self,
        places: Iterable[Place],
        is_settled: Callable[[Iterable[tuple[Place, str | None]]], bool],
    ) -> Values:
        """What is set there, once that is settled: brokers may lag behind what they have taken."""
        deadline = time.monotonic() + SEEN_SECONDS_MAX
        while True:
            current = self._kafka.settings(places)
            if is_settled(current.items()) or time.monotonic() > deadline:
                return current
            time.sleep(LOOK_SECONDS)


def refused_text(failures: Mapping[Place, str]) -> str:
    """Why a throttle cannot be set, by what `WaveThrottle.set` gives."""
    refused = [at for at, reason in failures.items() if reason != NOT_ALIVE]
    where, setting = [*refused, *failures][0]
    what = f"the throttle cannot be set: {_text(where)}"
    if not refused:
        return (
            f"{what} is not alive any more; start it, or run again to go on without it; nothing "
            "more was begun"
        )
    reason = " ".join(failures[where, setting].split())
    return (
        f"{what} refuses {setting} ({reason}); {RIGHTS}, or run without --throttle; nothing more "
        "was begun"
    )


def place(value: ThrottleValue) -> Place:
    """Where a recorded value is set."""
    where = value.topic if value.broker is None else value.broker
    if where is None:
        raise ValueError(f"{value.setting} of neither a broker nor a topic")
    return where, value.setting


def wave_values(moves: Iterable[MovedPartition], rate: int) -> dict[Place, str]:
    """What a throttle of so many bytes a second sets for a wave."""
    brokers: set[int] = set()
    replicas: dict[Place, list[str]] = {}
    for move in moves:
        if received := adding(move):
            brokers.update(move.before, received)
            for setting, ids in ((LEADERS, move.before), (FOLLOWERS, received)):
                found = replicas.setdefault((move.topic, setting), [])
                found.extend(f"{move.partition}:{broker}" for broker in ids)
    return {
        **{(broker, name): str(rate) for broker in sorted(brokers) for name in RATES},
        **{at: ",".join(each) for at, each in replicas.items()},
    }


def _is_ours(recorded: ThrottleValue, value: str | None) -> bool:
    """Whether nobody else has changed a setting since it was recorded."""
    return value in (recorded.value, recorded.before)


def _foreign_text(foreign: Mapping[Place, str | None]) -> str:
    (where, setting), value = next(iter(foreign.items()))
    more = f", and {len(foreign) - 1} more settings" if len(foreign) > 1 else ""
    return (
        f"{_text(where)} has {setting}={value:.80}{more}, which no run of `apply --moves` has "
        "set; remove it (`kafka-reassign-partitions --verify` does, or `kafka-configs "
        "--delete-config`), or give --force to replace it for as long as partitions are moved"
    )


def _owed_text(values: Sequence[ThrottleValue], reason: str) -> str:
    """What one broker or topic may still have, and what to do."""
    had = " and ".join(
        f"{each.setting}={each.value} (before: {each.before or 'not set'})" for each in values
    )
    where = _text(place(values[0])[0])
    if reason == NOT_ALIVE:
        return (
            f"{where} is not alive and may still have {had}; the next run after its start sets "
            "them as before"
        )
    return f"{where} still has {had} ({reason}); run again to set it as before"


def _text(where: int | str) -> str:
    """Whose setting it is."""
    return f"broker {where}" if isinstance(where, int) else f"topic {where}"
