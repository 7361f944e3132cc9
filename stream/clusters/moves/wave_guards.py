"""What surrounds a wave: the cluster's health before it, the throttle while it goes on."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Final

from spu_assigner.schemas.messages.wire import MovedPartition, ThrottleValue
from spu_assigner.stream.clusters.moves.progress import MovesOutput
from spu_assigner.stream.clusters.moves.reassigning import (
    MIN_IN_SYNC,
    NOT_ALIVE,
    RIGHTS,
    MovesError,
    Partition,
    Reassigner,
)
from spu_assigner.stream.clusters.moves.status import HEALTH_FIX, health_of, lagging_topics
from spu_assigner.stream.clusters.moves.throttle import (
    RATES,
    ForeignThrottleError,
    Place,
    clearing,
    forgotten_lines,
    owed_lines,
    place,
    to_record,
    wave_values,
    where_text,
)
from spu_assigner.stream.common.printable import counted

SEEN_SECONDS_MAX: Final = 3.0  # from the controller's answer to what a broker shows: milliseconds
LOOK_SECONDS: Final = 0.1


class UnhealthyError(MovesError):
    """The cluster does not bear that anything is moved now."""


class RefusedThrottleError(MovesError):
    """Kafka does not take a throttle, or a broker dies before it has it.

    Args:
        places: of the settings that Kafka refuses: they are as they were.
    """

    def __init__(self, message: str, places: Collection[Place]) -> None:
        super().__init__(message)
        self.places = places


def require_health(
    kafka: Reassigner,
    planned: Collection[Partition],
    *,
    copies: int,
    under_replicated_max: int | None,
    force: bool,
) -> int:
    """How many partitions are under-replicated, if the cluster is healthy.

    Args:
        planned: the partitions that are to be moved, now or later.
        copies: moves that are at least to be begun: each makes a partition under-replicated.
        force: go on though partitions are offline, or too few replicas in sync.

    Raises:
        UnhealthyError: it is not, or would not be with so many copies more.
    """
    ongoing, shapes = kafka.ongoing(), kafka.shapes()
    places: list[Place] = [(topic, MIN_IN_SYNC) for topic in lagging_topics(shapes)]
    settings = kafka.settings(places, with_defaults=True)
    least = {str(where): int(value) for (where, _), value in settings.items() if value}
    health = health_of(shapes, ongoing, least_in_sync=least, planned=planned)
    fault = health.fault()
    if fault is not None and not force:
        raise UnhealthyError(f"Kafka is not healthy: {fault}; {HEALTH_FIX}")
    most = under_replicated_max
    if most is not None and health.under_replicated + copies > most:
        raise UnhealthyError(
            f"{counted(health.under_replicated, 'under-replicated partition')}, and with one move "
            f"more there would be more than --max-under-replicated {most}; wait until they have "
            "caught up, or give more"
        )
    return health.under_replicated


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
        self._is_used = False

    def of_wave(
        self, wave: Sequence[MovedPartition], recorded: tuple[ThrottleValue, ...]
    ) -> tuple[ThrottleValue, ...]:
        """What is to be recorded before it is set for a wave, with what is recorded already.

        Nothing is set on a broker that is not alive: it copies nothing.

        Raises:
            ForeignThrottleError: somebody else has set one.
        """
        if self._rate is None:
            return recorded
        wanted = wave_values(wave, self._rate)
        deadline = time.monotonic() + SEEN_SECONDS_MAX
        while True:
            try:
                current = self._kafka.settings(wanted)
                values = {at: value for at, value in wanted.items() if at in current}
                return to_record(values, current, recorded, force=self._force)
            except ForeignThrottleError:
                # It may be that of the wave before, which a broker still shows.
                if not self._is_used or time.monotonic() > deadline:
                    raise
            time.sleep(LOOK_SECONDS)

    def is_another_rate(self, recorded: Sequence[ThrottleValue]) -> bool:
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
        known = {place(each): each for each in recorded}
        current = self._kafka.settings(known)
        changes = {
            at: each.value
            for each in throttles
            for at in [place(each)]
            if at not in known or (at in current and current[at] in (each.value, each.before))
        }
        self._is_used = self._is_used or bool(changes)
        failures = self._kafka.change(changes)
        refused = {at: reason for at, reason in failures.items() if reason != NOT_ALIVE}
        if refused:
            (where, setting), reason = next(iter(refused.items()))
            raise RefusedThrottleError(
                f"the throttle cannot be set: {where_text(where)} refuses {setting} "
                f"({' '.join(reason.split())}); {RIGHTS}, or run without --throttle; nothing more "
                "was begun",
                refused.keys() - known.keys(),
            )
        if failures:
            where, _ = next(iter(failures))
            raise RefusedThrottleError(
                f"the throttle cannot be set: {where_text(where)} is not alive any more; start "
                "it, or run again to go on without it; nothing more was begun",
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
            found = clearing(recorded, self._kafka.settings(map(place, recorded)))
            if not found.changed or time.monotonic() > deadline:
                break
            time.sleep(LOOK_SECONDS)  # It may be what a broker shows that lags behind.
        for where, setting in found.changed:
            self._output.say(
                f"apply: {where_text(where)}: somebody else has changed {setting} meanwhile; it is "
                "left as it is"
            )
        self._is_used = True  # A broker may still show what is removed here.
        failures = self._kafka.change(found.changes)
        topics = {where for where, _ in failures if isinstance(where, str)}
        there = {topic for topic, _ in self._kafka.shapes(topics)}
        failures = {
            at: why for at, why in failures.items() if isinstance(at[0], int) or at[0] in there
        }
        owed = {*found.owed, *(at for at, why in failures.items() if why == NOT_ALIVE)}
        texts = [
            f"{where_text(where)}: {setting} could not be removed ({' '.join(reason.split())}); "
            "run again to remove it"
            for (where, setting), reason in failures.items()
            if (where, setting) not in owed
        ]
        forgotten = {at for at in owed if at[0] in self._forgotten}
        for line in forgotten_lines(forgotten, recorded):
            self._output.say(f"apply: {line}")
        owed -= forgotten
        kept = owed | failures.keys() - forgotten
        left = tuple(each for each in recorded if place(each) in kept)
        return left, [*owed_lines(owed, left), *texts]
