"""The replication throttle of a wave: which settings, whose they are, what becomes of them.

Rules: a rate on each broker of a partition that copies something, the partitions on their topics,
as Kafka's own tool does. What is set is recorded first, with what was there before. It is taken
back only while it is what was recorded: a value that somebody else has set since then is theirs. Of
a broker that is not alive it is not known, and stays recorded until it is.
Pure functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.messages.wire import MovedPartition, ThrottleValue
from spu_assigner.stream.clusters.moves.waves import adding

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"

# Of a broker or a topic, and the setting's name: what it is set to; None: it is not set. Without a
# place: it is of a broker that is not alive.
Place = tuple[int | str, str]
Values = Mapping[Place, str | None]


class ForeignThrottleError(AssignerError):
    """Somebody else has set a throttle on what is to be moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearing:
    """How recorded settings are taken back."""

    changes: Values  # what is to be set; None: to be removed
    changed: tuple[Place, ...] = ()  # somebody else has changed them since: they are left alone
    owed: tuple[Place, ...] = ()  # of brokers that are not alive: to be taken back later


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
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for move in moves:
        if received := adding(move):
            brokers.update(move.before, received)
            leaders.setdefault(move.topic, []).extend(_replicas(move.partition, move.before))
            followers.setdefault(move.topic, []).extend(_replicas(move.partition, received))
    values: dict[Place, str] = {(id_, name): str(rate) for id_ in sorted(brokers) for name in RATES}
    for setting, replicas in ((LEADERS, leaders), (FOLLOWERS, followers)):
        values |= {(topic, setting): ",".join(each) for topic, each in sorted(replicas.items())}
    return values


def _replicas(partition: int, brokers: Sequence[int]) -> list[str]:
    return [f"{partition}:{broker}" for broker in brokers]


def to_record(
    values: Mapping[Place, str], current: Values, recorded: Iterable[ThrottleValue], *, force: bool
) -> tuple[ThrottleValue, ...]:
    """What is to be recorded before `values` are set; what is recorded already stays as it is.

    Args:
        current: what is set at these places now.
        recorded: of this run, or of one that was killed.
        force: replace what somebody else has set; it is set again afterwards.

    Raises:
        ForeignThrottleError: somebody else has set one, and `force` is not given.
    """
    known = {place(each): each for each in recorded}
    foreign = {at: value for at in values if at not in known and (value := current.get(at))}
    if foreign and not force:
        (where, setting), value = next(iter(foreign.items()))
        more = f", and {len(foreign) - 1} more settings" if len(foreign) > 1 else ""
        raise ForeignThrottleError(
            f"{where_text(where)} has {setting}={value:.80}{more}, which no run of `apply --moves` "
            "has set; remove it (`kafka-reassign-partitions --verify` does, or `kafka-configs "
            "--delete-config`), or give --force to replace it for as long as partitions are moved"
        )
    added = (
        ThrottleValue(
            broker=where if isinstance(where, int) else None,
            topic=where if isinstance(where, str) else None,
            setting=setting,
            value=value,
            before=foreign.get((where, setting)),
        )
        for (where, setting), value in values.items()
        if (where, setting) not in known
    )
    return (*known.values(), *added)


def clearing(recorded: Iterable[ThrottleValue], current: Values) -> Clearing:
    """How recorded settings are taken back, where they are what was recorded."""
    changes: dict[Place, str | None] = {}
    changed: list[Place] = []
    owed: list[Place] = []
    for each in recorded:
        at = place(each)
        if at not in current:
            owed.append(at)
        elif current[at] in (each.value, each.before):
            changes[at] = each.before  # Also where it is so: a broker may lag behind.
        else:
            changed.append(at)
    return Clearing(changes=changes, changed=tuple(changed), owed=tuple(owed))


def owed_lines(owed: Collection[Place], recorded: Iterable[ThrottleValue]) -> list[str]:
    """What each broker that is not alive may still have of a throttle, and what to do."""
    return [
        f"{where_text(where)} is not alive and may still have {settings}; start it and run again, "
        f"which sets them as before, or give --forget-throttle {where} if it never comes back"
        for where, settings in _texts(owed, recorded).items()
    ]


def forgotten_lines(forgotten: Collection[Place], recorded: Iterable[ThrottleValue]) -> list[str]:
    """What each broker that never comes back may still have, if it does all the same."""
    return [
        f"forgets that {where_text(where)} may still have {settings}; should it come back, set "
        "them as before with `kafka-configs`"
        for where, settings in _texts(forgotten, recorded).items()
    ]


def _texts(places: Collection[Place], recorded: Iterable[ThrottleValue]) -> dict[int | str, str]:
    """The recorded settings at these places, with the values of before."""
    texts: dict[int | str, list[str]] = {}
    for each in recorded:
        if (at := place(each)) in places:
            was = "not set" if each.before is None else each.before
            texts.setdefault(at[0], []).append(f"{each.setting}={each.value} (before: {was})")
    return {where: " and ".join(settings) for where, settings in texts.items()}


def where_text(where: int | str) -> str:
    """Whose setting it is."""
    return f"broker {where}" if isinstance(where, int) else f"topic {where}"
