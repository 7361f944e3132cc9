"""What a topic demands of the SPUs that it is on, and what SPUs say against new replicas: taints.

Hard, so that a list that breaks one is never given: `require`, `forbid`, `apart_from`,
`together_with`, `max` and `min` of a level of `spread`, and taints that are not tolerated. Soft, a
score: how even the levels of `spread` are, `prefer`, `leaders`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from spu_assigner.core.base.errors import bounded_repr
from spu_assigner.core.base.limits import (
    LABEL_LENGTH_MAX,
    PREFERENCE_WEIGHT_MAX,
    REPLICATION_FACTOR_MAX,
    RULES_MAX,
    SPREAD_LEVELS_MAX,
    TAINTS_MAX,
    is_legal_name,
    name_fault,
)
from spu_assigner.core.base.selectors import SelectorError, selector_of
from spu_assigner.core.base.typed_fields import TypedFields


class TaintEffect(StrEnum):
    """What a taint keeps away from an SPU, unless a topic tolerates it."""

    NO_NEW_REPLICAS = "no_new_replicas"
    """What is there stays."""
    NO_LEADERS = "no_leaders"
    """Replicas may come, and follow."""
    EVICT = "evict"
    """Nothing comes, and what is there moves away."""


class Taint(TypedFields, frozen=True, order=True):
    """What an SPU says against replicas."""

    key: str
    """1 to 256 characters."""
    value: str
    """Up to 256 characters."""
    effect: TaintEffect
    """What is kept away."""


class Toleration(TypedFields, frozen=True):
    """A taint with this key and value does not matter; without a value: with any value."""

    key: str
    """Of the taint."""
    value: str | None = None
    """Of the taint; None: any."""


class Preference(TypedFields, frozen=True):
    """SPUs that are selected score so much; less than 0: they are avoided."""

    select: str
    """A selector."""
    weight: int
    """1 to 1,000, or the same below 0."""


class SpreadLevel(TypedFields, frozen=True):
    """The replicas of a list are as even over the values of a label as can be.

    An SPU without the label counts as having the value "".
    """

    label: str
    """Its name; `rack` and `spu_id` are those of the SPU."""
    max: int | None = None
    """Replicas of a list for each value, at most: a hard rule."""
    min: int | None = None
    """At least, for each value that an SPU of the cluster may have: likewise."""


class Constraints(TypedFields, frozen=True):
    """The rules of a topic; each field is empty where there is no such rule."""

    tolerations: tuple[Toleration, ...] = ()
    """Taints that do not matter to the topic."""
    require: tuple[str, ...] = ()
    """Selectors that must all hold."""
    forbid: tuple[str, ...] = ()
    """Selectors of which none may hold."""
    prefer: tuple[Preference, ...] = ()
    """SPUs that are preferred, or avoided, where racks leave a choice."""
    spread: tuple[SpreadLevel, ...] = ()
    """Levels over which each list is spread, the outermost first."""
    apart_from: tuple[str, ...] = ()
    """Topics: no SPU in common."""
    together_with: tuple[str, ...] = ()
    """Topics: no SPU that does not hold them."""
    leaders: tuple[str, ...] = ()
    """Selectors: the first that any SPU of a list meets leads it."""


NO_CONSTRAINTS: Final = Constraints()


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> list[Taint]:
    """The taints that matter to a topic."""
    return [
        taint
        for taint in taints
        if not any(
            each.key == taint.key and each.value in (None, taint.value) for each in tolerations
        )
    ]


def has_effect(
    taints: Sequence[Taint], effect: TaintEffect, tolerations: Sequence[Toleration] = ()
) -> bool:
    """Whether a taint with this effect matters to a topic."""
    return any(taint.effect is effect for taint in untolerated(taints, tolerations))


def given_constraints(constraints: Constraints | None) -> Constraints | None:
    """The constraints that an event names; None: it names no rule."""
    return None if constraints == NO_CONSTRAINTS else constraints


def taint_faults(taints: Sequence[Taint]) -> Iterator[str]:
    """What is wrong with the taints of an SPU as they came."""
    if len(taints) > TAINTS_MAX:
        yield f"taints has {len(taints)} entries; expected at most {TAINTS_MAX}"
    for at, taint in enumerate(taints):
        yield from _length_faults(f"taints[{at}].key", taint.key)
        yield from _length_faults(f"taints[{at}].value", taint.value, least=0)
    if len({(taint.key, taint.effect) for taint in taints}) < len(taints):
        yield "taints names a key twice with one effect; expected each once"


def constraint_faults(constraints: Constraints, *, topic: str) -> Iterator[str]:
    """What is wrong with the constraints of a topic as they came."""
    for name in Constraints.__struct_fields__:
        count = len(getattr(constraints, name))
        most = SPREAD_LEVELS_MAX if name == "spread" else RULES_MAX
        if count > most:
            yield f"constraints.{name} has {count} entries; expected at most {most}"
    for name in ("require", "forbid", "leaders"):
        for at, text in enumerate(getattr(constraints, name)):
            yield from _selector_faults(f"constraints.{name}[{at}]", text)
    for name in ("apart_from", "together_with"):
        for at, other in enumerate(getattr(constraints, name)):
            if not is_legal_name(other) or other == topic:
                found = f"constraints.{name}[{at}] is {bounded_repr(other)}"
                yield f"{found}; expected the name of another topic{name_fault(other)}"
    for at, toleration in enumerate(constraints.tolerations):
        field = f"constraints.tolerations[{at}]"
        yield from _length_faults(f"{field}.key", toleration.key)
        yield from _length_faults(f"{field}.value", toleration.value or "", least=0)
    for at, preference in enumerate(constraints.prefer):
        field = f"constraints.prefer[{at}]"
        yield from _selector_faults(f"{field}.select", preference.select)
        if not 1 <= abs(preference.weight) <= PREFERENCE_WEIGHT_MAX:
            found = f"{field}.weight is {bounded_repr(preference.weight)}"
            yield f"{found}; expected 1 to {PREFERENCE_WEIGHT_MAX}, or the same below 0"
    yield from _spread_faults(constraints.spread)


def _spread_faults(spread: Sequence[SpreadLevel]) -> Iterator[str]:
    for at, level in enumerate(spread):
        field = f"constraints.spread[{at}]"
        yield from _length_faults(f"{field}.label", level.label)
        for name, limit in (("max", level.max), ("min", level.min)):
            if limit is not None and not 1 <= limit <= REPLICATION_FACTOR_MAX:
                found = f"{field}.{name} is {bounded_repr(limit)}"
                yield f"{found}; expected 1 to {REPLICATION_FACTOR_MAX}, or none"
        if level.max is not None and level.min is not None and level.min > level.max:
            yield f"{field}.min is {level.min}, more than its max; expected at most {level.max}"
    if len({level.label for level in spread}) < len(spread):
        yield "constraints.spread names a label twice; expected each once"


def _selector_faults(field: str, text: str) -> Iterator[str]:
    try:
        selector_of(text)
    except SelectorError as error:
        yield f"{field}: {error}"


def _length_faults(field: str, text: str, *, least: int = 1) -> Iterator[str]:
    if not least <= len(text) <= LABEL_LENGTH_MAX:
        yield f"{field} has {len(text)} characters; expected {least} to {LABEL_LENGTH_MAX}"
