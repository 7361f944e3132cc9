"""The replication throttle of a wave: which settings, whose they are, what becomes of them.

Rules: a rate on each broker of a partition that copies something, the partitions on their topics,
as Kafka's own tool does. What is set is recorded first, with what was there before. It is taken
back only while it is what was recorded: a value that somebody else has set since then is theirs. Of
a broker that is not alive it is not known, and stays recorded until it is.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from spu_assigner.schemas.messages.wire import MovedPartition, ThrottleValue
from spu_assigner.stream.clusters.moves.progress import MovesOutput
from spu_assigner.stream.clusters.moves.reassigning import (
    NOT_ALIVE,
    RIGHTS,
    MovesError,
    Place,
    Reassigner,
    Values,
)
from spu_assigner.stream.clusters.moves.waves import adding

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
SEEN_SECONDS_MAX: Final = 3.0  # from the controller's answer to what a broker shows: milliseconds
LOOK_SECONDS: Final = 0.1


class ForeignThrottleError(MovesError):
    """Somebody else has set a throttle on what is to be moved."""


class RefusedThrottleError(MovesError):
    """Kafka does not take a throttle, or a broker dies before it has it.

    Args:
        places: of the settings that Kafka refuses: they are as they were.
    """

    def __init__(self, message: str, places: Collection[Place]) -> None:
        super().__init__(message)
        self.places = places


class WaveThrottle:
    """The throttle of one wave after the other.

    Args:
        rate: bytes a second of a broker; None: no throttle.
        force: replace what somebody else has set; it is set again afterwards.
        forgotten: brokers that never come back: what they may still have is not kept in mind.
    """

    def __init__(
        self,
        kafka: Reassigner,
        output: MovesOutput,
        *,
        rate: int | None,
        force: bool,
        forgotten: Collection[int] = (),
    ) -> None:
        self._kafka = kafka
        self._output = output
        self._rate = rate
        self._force = force
        self._forgotten = forgotten
        self._own: dict[Place, str] = {}  # what was set or removed: brokers may still show it

    def of_wave(
        self, wave: Iterable[MovedPartition], recorded: tuple[ThrottleValue, ...]
    ) -> tuple[ThrottleValue, ...]:
        """What is to be recorded before it is set for a wave; what is recorded already stays.

        Nothing is set on a broker that is not alive: it copies nothing.

        Raises:
            ForeignThrottleError: somebody else has set one, and it is not to be replaced.
        """
        wanted = {} if self._rate is None else wave_values(wave, self._rate)
        for each in recorded:
            wanted.pop(place(each), None)
        deadline = time.monotonic() + SEEN_SECONDS_MAX
        while True:
            current = self._kafka.settings(wanted)
            foreign = {at: value for at, value in current.items() if value}
            is_own = any(self._own.get(at) == value for at, value in foreign.items())
            if not is_own or time.monotonic() > deadline:
                break
            time.sleep(LOOK_SECONDS)
        if foreign and not self._force:
            raise ForeignThrottleError(_foreign_text(foreign))
        added = (
            ThrottleValue(
                broker=where if isinstance(where, int) else None,
                topic=where if isinstance(where, str) else None,
                setting=setting,
                value=wanted[where, setting],
                before=before or None,
            )
            for (where, setting), before in current.items()
        )
        return (*recorded, *added)

    def is_another_rate(self, recorded: Iterable[ThrottleValue]) -> bool:
        """Whether a run that was killed has set another rate than this one is given."""
        rates = {each.value for each in recorded if each.setting in RATES}
        return self._rate is not None and not rates <= {str(self._rate)}

    def set(self, throttles: Sequence[ThrottleValue], recorded: Sequence[ThrottleValue]) -> None:
        """Set a throttle.

        Args:
            recorded: what was recorded before this wave: what of it somebody else has changed
                since is left as it is, and what a broker that is not alive has.

        Raises:
            RefusedThrottleError: Kafka refuses, or a broker died just now.
        """
        known = {place(each) for each in recorded}
        current = self._kafka.settings(known)
        changes = {
            place(each): each.value
            for each in throttles
            if place(each) not in known or _is_ours(each, current)
        }
        self._own |= changes
        failures = self._kafka.change(changes)
        refused = {at: reason for at, reason in failures.items() if reason != NOT_ALIVE}
        if refused:
            (where, setting), reason = next(iter(refused.items()))
            raise RefusedThrottleError(
                f"the throttle cannot be set: {_text(where)} refuses {setting} "
                f"({' '.join(reason.split())}); {RIGHTS}, or run without --throttle; nothing more "
                "was begun",
                refused.keys() - known,
            )
        if failures:
            where, _ = next(iter(failures))
            raise RefusedThrottleError(
                f"the throttle cannot be set: {_text(where)} is not alive any more; start it, or "
                "run again to go on without it; nothing more was begun",
                (),
            )

    def remove(
        self, recorded: Sequence[ThrottleValue]
    ) -> tuple[tuple[ThrottleValue, ...], list[str]]:
        """Take back what is recorded; what could not be, and a line for each."""
        if not recorded:
            return (), []
        deadline = time.monotonic() + SEEN_SECONDS_MAX
        while True:
            current = self._kafka.settings(map(place, recorded))
            ours = [each for each in recorded if _is_ours(each, current)]
            # What others seem to have changed may be what a broker shows that lags behind.
            if len(ours) == len(current) or time.monotonic() > deadline:
                break
            time.sleep(LOOK_SECONDS)
        self._own |= {place(each): each.value for each in ours}
        # Also what looks removed: a broker may lag behind.
        failures = self._kafka.change({place(each): each.before for each in ours})
        topics = {where for where, _ in failures if isinstance(where, str)}
        there = {topic for topic, _ in self._kafka.shapes(topics)}
        left: list[ThrottleValue] = []
        dead: dict[int | str, list[ThrottleValue]] = {}
        lines: list[str] = []
        for each in recorded:
            where, setting = at = place(each)
            if at not in current or failures.get(at) == NOT_ALIVE:
                dead.setdefault(where, []).append(each)
            elif at in failures and (isinstance(where, int) or where in there):
                left.append(each)
                reason = " ".join(failures[at].split())
                lines.append(
                    f"{_text(where)}: {setting} could not be removed ({reason}); run again to "
                    "remove it"
                )
            elif each not in ours:
                self._output.say(
                    f"apply: {_text(where)}: somebody else has changed {setting} meanwhile; it is "
                    "left as it is"
                )
        for where, values in dead.items():
            had = " and ".join(map(_value_text, values))
            if where in self._forgotten:
                self._output.say(
                    f"apply: forgets that {_text(where)} may still have {had}; should it come "
                    "back, set them as before with `kafka-configs`"
                )
                continue
            left += values
            lines.append(
                f"{_text(where)} is not alive and may still have {had}; start it and run again, "
                f"which sets them as before, or give --forget-throttle {where} if it never comes "
                "back"
            )
        return tuple(left), lines


def place(value: ThrottleValue) -> Place:
    """Where a recorded value is set.

    Raises:
        ValueError: it names neither a broker nor a topic.
    """
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


def _is_ours(value: ThrottleValue, current: Values) -> bool:
    """Whether a setting is known, and nobody else has changed it since it was recorded."""
    at = place(value)
    return at in current and current[at] in (value.value, value.before)


def _foreign_text(foreign: Mapping[Place, str | None]) -> str:
    (where, setting), value = next(iter(foreign.items()))
    more = f", and {len(foreign) - 1} more settings" if len(foreign) > 1 else ""
    return (
        f"{_text(where)} has {setting}={value:.80}{more}, which no run of `apply --moves` has "
        "set; remove it (`kafka-reassign-partitions --verify` does, or `kafka-configs "
        "--delete-config`), or give --force to replace it for as long as partitions are moved"
    )


def _value_text(value: ThrottleValue) -> str:
    was = "not set" if value.before is None else value.before
    return f"{value.setting}={value.value} (before: {was})"


def _text(where: int | str) -> str:
    """Whose setting it is."""
    return f"broker {where}" if isinstance(where, int) else f"topic {where}"
