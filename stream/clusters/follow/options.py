"""What `follow` and `adopt` are asked for."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.limits import KAFKA_OWN


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """What a command was asked for; the defaults of brokers are those of `adopt`."""

    cluster_id: str
    is_adopt: bool = False  # one round: brokers join that were never announced, and none leaves
    kafka_cluster: str = ""  # the watched cluster's own id, once it was seen
    own: frozenset[str] = frozenset()  # the product's topics, with the prefix
    accept_cluster: bool = False  # although the SPUs were announced as another cluster's brokers
    dry_run: bool = False
    once: bool = False
    interval_seconds: float = 5.0
    wait_seconds: float = 60.0  # for which nothing may be answered

    # Brokers.
    grace_seconds: float = math.inf
    cores: int | None = None  # of each broker; None: as announced last
    capacity: int | None = None
    resources: Mapping[str, int] = field(default_factory=dict)
    labels_file: Path | None = None  # of labels and taints by broker
    excluded_brokers: frozenset[int] = frozenset()  # these are no business of ours
    take_over: bool = False  # SPUs that others joined
    allow_mass_leave: bool = False

    # Topics.
    globs: tuple[str, ...] = ()  # none: no topic is looked at
    excluded: tuple[str, ...] = ()  # globs, too; they count more
    pinned: bool | None = None  # None: as its map says; of a new one no
    policy: Policy | None = None  # None: as its map says; of a new one the job's default
    overwrite: bool = False  # also adopt what was changed, deleted, released or reserved here
    forget_gone: bool = False  # release what is gone
    place_new: bool = False  # new topics that are empty are placed by the job, and moved there

    def of(self, kafka_cluster: str, own: Collection[str]) -> FollowOptions:
        """The same, of a watched cluster and the product's topics."""
        return replace(self, kafka_cluster=kafka_cluster, own=frozenset(own))

    def is_meant(self, topic: str) -> bool:
        """Whether a topic is to be looked at: Kafka's own and the product's are not."""
        return (
            not topic.startswith(KAFKA_OWN)
            and topic not in self.own
            and any(fnmatchcase(topic, glob) for glob in self.globs)
            and not any(fnmatchcase(topic, glob) for glob in self.excluded)
        )
