"""The values that `plan --desired` works on: desired topics, what is known of them, and a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spu_assigner.core.base.constraints import Constraints, given_constraints
from spu_assigner.core.base.events import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredTopic:
    """One topic of the file."""

    name: str
    partitions: int
    replication_factor: int
    policy: Policy | None = None  # None: the job's default for a new topic, any for a known one
    config: Mapping[str, str] = field(default_factory=dict)  # Kafka's settings; only compared
    constraints: Constraints | None = None  # None: none for a new topic, any for a known one


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopic:
    """One topic as the job has published it: its map, or its create that waits."""

    partitions: int
    replication_factor: int
    policy: Policy | None  # None: of a create that named none
    lengths: tuple[int, ...] | None = None  # of each list, where an adopted topic's differ
    short: Mapping[int, int] = field(default_factory=dict)  # replicas of lists that wait for more
    constraints: Constraints | None = None  # None: no rules of its own


def differs_in_constraints(topic: DesiredTopic, known: KnownTopic) -> bool:
    """Whether a file names other rules than a known topic has."""
    named = topic.constraints
    return named is not None and given_constraints(named) != known.constraints


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopics:
    """All that the job has published of one cluster."""

    mapped: Mapping[str, KnownTopic] = field(default_factory=dict)
    waiting: Mapping[str, KnownTopic] = field(default_factory=dict)  # creates without a map


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTopics:
    """What Kafka has, Kafka's own topics and the product's aside."""

    partitions: Mapping[str, int] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of those asked for
    hidden: frozenset[str] = frozenset()  # of the file's, which this user may not see
    gone: frozenset[str] = frozenset()  # likewise, which were there and are no more
