"""Constraints that contradict each other, whatever SPUs there are.

What is decided: what `require` and `forbid` say of one label, as far as they are conditions that
must hold (of a `forbid` with several conditions: whether `require` makes all of them hold); labels
whose values are too few for the replicas, by `max` of `spread` or since they are ids; a `min` of
`spread` that is too large for a list; of a living topic also one that demands more replicas of a
list than it has, for the values that the SPUs so far have; topics that are named to be with and to
be apart from, also by the constraints of those that are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from spu_assigner.core.base.constraints import Constraints, constraint_faults
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, Policy, TopicConstraints, TopicCreate
from spu_assigner.core.base.selectors import Requirement, selector_of
from spu_assigner.core.constraints.kept_rules import kept_rules
from spu_assigner.core.placement.conflict import needed
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.client.lint.json_positions import Path, field_of
from spu_assigner.stream.client.lint.refusals import Refusal
from spu_assigner.stream.common.printable import listed

_ID: Final = "spu_id"  # the label that every SPU has, each with a value of its own


@dataclass(frozen=True, slots=True)
class _Rule:
    """A hard rule of the event."""

    path: Path
    text: str
    conditions: tuple[Requirement, ...]
    is_forbidden: bool

    def __str__(self) -> str:
        return f"{field_of(self.path)} {self.text!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """What the rules say of one label of an SPU that meets them."""

    is_there: bool = False
    is_absent: bool = False
    allowed: frozenset[str] | None = None  # if it is there; None: any
    excluded: frozenset[str] = frozenset()

    def with_condition(self, condition: Requirement) -> _Values:
        values = condition.values
        if not condition.is_met_by_presence:
            if values is None:
                return replace(self, is_absent=True)
            return replace(self, excluded=self.excluded | values)
        if values is None:
            return replace(self, is_there=True)
        allowed = values if self.allowed is None else self.allowed & values
        return replace(self, is_there=True, allowed=allowed)

    @property
    def possible(self) -> frozenset[str] | None:
        """The values that the label may have, "" if it is absent; None: not known."""
        if self.is_absent:
            return frozenset({""})
        if not self.is_there or self.allowed is None:
            return None
        return self.allowed - self.excluded

    @property
    def is_contradictory(self) -> bool:
        return self.is_there and (self.is_absent or self.possible == frozenset())

    def imply(self, condition: Requirement) -> bool:
        """Whether an SPU with such a label meets the condition."""
        values = condition.values
        if condition.is_met_by_presence:
            if not self.is_there:
                return False
            return values is None or (self.possible is not None and self.possible <= values)
        if self.is_absent:
            return True
        if values is None:
            return False
        return values <= self.excluded or (
            self.allowed is not None and not (self.allowed - self.excluded) & values
        )


def contradiction_of(
    event: Event, state: ClusterState, refusal: Refusal | None
) -> tuple[str, Path, str] | None:
    """The rule, the place and the message of what contradicts itself in an event's constraints;
    None: it has none, or they have another fault, or nothing is known to be wrong.

    Args:
        state: of the cluster after the event.
        refusal: why the core refuses the event.
    """
    if not isinstance(event, TopicCreate | TopicConstraints) or event.constraints is None:
        return None
    if any(constraint_faults(event.constraints, topic=event.topic)):
        return None
    if refusal is not None and refusal[0] is Code.INVALID_CONSTRAINTS:
        return None
    topic = state.topics.get(event.topic)
    if isinstance(event, TopicCreate):
        factor = event.replication_factor
    else:
        factor = 0 if topic is None else topic.replication_factor
    found = contradiction(event.constraints, factor)
    if found is not None:
        is_error = isinstance(event, TopicCreate) and refusal is not None
        return "contradicting-constraints" if is_error else "constraints-never-met", *found
    if refusal is not None:
        return None
    found = _too_many_values(state, event)
    if found is not None:
        return "constraints-never-met", *found

    def known(name: str) -> Constraints | None:
        return state.topics[name].constraints if name in state.topics else None

    found = topic_contradiction(event.topic, event.constraints, known)
    return None if found is None else ("constraints-never-met", *found)


def names_unknown_topic(event: Event, state: ClusterState, default_policy: Policy) -> bool:
    """Whether all that is wrong with invalid constraints is that a topic is not there."""
    if not isinstance(event, TopicCreate | TopicConstraints) or event.constraints is None:
        return False
    if any(constraint_faults(event.constraints, topic=event.topic)):
        return False
    if isinstance(event, TopicCreate):
        return (event.policy or default_policy) is Policy.BALANCED
    return event.topic in state.topics and state.topics[event.topic].policy is Policy.BALANCED


def contradiction(constraints: Constraints, replication_factor: int) -> tuple[Path, str] | None:
    """Why no list can meet well-formed constraints, whatever SPUs there are, and the last of the
    rules that it takes; None: nothing is known to be wrong.

    Args:
        replication_factor: of the topic; 0: it is not known.
    """
    for at, topic in enumerate(constraints.together_with):
        if topic in constraints.apart_from:
            path: Path = ("constraints", "together_with", at)
            return path, f"{field_of(path)} is {topic!r}, which apart_from names, too"
    rules = list(_rules(constraints))
    if _is_contradictory(rules):
        conflict = needed(rules, _is_contradictory)
        path = conflict[-1].path
        return path, f"no SPU can meet {' and '.join(map(str, conflict))}"
    return _too_few(constraints, rules, replication_factor) or _too_many(
        constraints, replication_factor
    )


def _rules(constraints: Constraints) -> Iterator[_Rule]:
    for name in ("require", "forbid"):
        for at, text in enumerate(getattr(constraints, name)):
            path = ("constraints", name, at)
            yield _Rule(path, text, selector_of(text), is_forbidden=name == "forbid")


def _values(rules: Sequence[_Rule]) -> Mapping[str, _Values]:
    """What the rules say of each label."""
    found = {_ID: _Values(is_there=True)}
    for rule in rules:
        conditions = rule.conditions
        if rule.is_forbidden:
            if len(conditions) > 1:
                continue
            is_met = conditions[0].is_met_by_presence
            conditions = (conditions[0]._replace(is_met_by_presence=not is_met),)
        for condition in conditions:
            before = found.get(condition.key, _Values())
            found[condition.key] = before.with_condition(condition)
    return found


def _is_contradictory(rules: Sequence[_Rule]) -> bool:
    values = _values(rules)
    return any(each.is_contradictory for each in values.values()) or any(
        rule.is_forbidden
        and all(values.get(each.key, _Values()).imply(each) for each in rule.conditions)
        for rule in rules
        if len(rule.conditions) > 1
    )


def _too_few(
    constraints: Constraints, rules: Sequence[_Rule], replication_factor: int
) -> tuple[Path, str] | None:
    values = _values(rules)
    levels = [(level.label, level.max) for level in constraints.spread]
    for at, (label, most) in enumerate([*levels, (_ID, 1)]):
        possible = values.get(label, _Values()).possible
        if most is None or possible is None or len(possible) * most >= replication_factor:
            continue
        is_short = partial(_is_short, label=label, most=most, wanted=replication_factor)
        known = needed(rules, is_short)
        said = " and ".join(map(str, known))
        path = ("constraints", "spread", at) if at < len(levels) else known[-1].path
        values_said = listed([each or "absent" for each in sorted(possible)])
        return path, (
            f"{said}: {label} can be {values_said}, with at most {most} of the "
            f"{replication_factor} replicas of a list each"
        )
    return None


def _too_many(constraints: Constraints, replication_factor: int) -> tuple[Path, str] | None:
    """Of a `min` that no list can meet, whatever values there are: there is one, at least."""
    for at, level in enumerate(constraints.spread):
        path: Path = ("constraints", "spread", at)
        if level.min is not None and 0 < replication_factor < level.min:
            said = f"{field_of(path)}.min is {level.min}, and a list has {replication_factor}"
            return path, f"{said} replica{'' if replication_factor == 1 else 's'}"
        if level.label == _ID and (level.min or 0) > 1:
            return path, f"{field_of(path)}.min is {level.min}, and an SPU has 1 replica of a list"
    return None


def _too_many_values(
    state: ClusterState, event: TopicCreate | TopicConstraints
) -> tuple[Path, str] | None:
    """Of a `min` that demands more replicas than the lists of a living topic have."""
    topic = state.topics.get(event.topic)
    if topic is None or topic.constraints != event.constraints:
        return None
    rules = kept_rules(state, event.topic)
    levels = () if rules is None else rules.table.constraints.spread
    for rule in () if rules is None else rules.hard:
        count = sum(rule.mins.values())
        if rule.level is None or count <= topic.replication_factor:
            continue
        at = [level.label for level in levels].index(rule.level.label)
        path: Path = ("constraints", "spread", at)
        return path, (
            f"{field_of(path)} demands {count} replicas of a list, min for each value of the SPUs "
            f"that the rules permit, and it has {topic.replication_factor}"
        )
    return None


def _is_short(rules: Sequence[_Rule], *, label: str, most: int, wanted: int) -> bool:
    possible = _values(rules).get(label, _Values()).possible
    return possible is not None and len(possible) * most < wanted


def topic_contradiction(
    topic: str, constraints: Constraints, known: Callable[[str], Constraints | None]
) -> tuple[Path, str] | None:
    """Which topics cannot be kept apart, since one is to be with the other by way of a third.

    Args:
        known: gives the constraints of another topic.
    """
    ways: dict[str, list[str]] = {topic: [topic]}  # topics whose SPUs it keeps to, and by whom
    apart: dict[str, tuple[str, ...]] = {}
    left = [topic]
    while left:
        name = left.pop(0)
        rules = constraints if name == topic else known(name)
        if rules is None:
            continue
        apart[name] = rules.apart_from
        for other in rules.together_with:
            if other not in ways:
                ways[other] = [*ways[name], other]
                left.append(other)
    for name, others in apart.items():
        for other in others:
            if other in ways and name != other:
                chains = (ways[each] for each in (name, other) if each != topic)
                named = " and ".join(" with ".join(map(repr, chain)) for chain in chains)
                said = f"{named} cannot be: {name!r} is to be apart from {other!r}"
                return ("constraints", "together_with"), said
    return None
