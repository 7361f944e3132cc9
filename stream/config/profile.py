"""The job's two profiles: answers soon, or many at once.

A profile is a set of values that belong together. What each is worth is measured by `make
profiles`: the job beside the same one with the other profile's value.

The number of shards is fixed by a checkpoint at its first start. A profile that is named
and wants another number is refused; where none is named, the job takes the default profile's other
values in however many shards there are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SHARDS_AT_FIRST_MAX: Final = 8  # every batch costs a task a shard; more only when asked for


class Profile(StrEnum):
    """What a job is to be good at."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What a profile sets."""

    shards_max: int  # of a new checkpoint, which has one for each core, at most so many
    in_one_task: bool  # where there is one shard, its task reads the input too
    topic_events_per_batch: int  # at most, where the settings do not say
    batch_interval_ms: int  # at least, from a batch of several events to the next one


DEFAULT_PROFILE: Final = Profile.THROUGHPUT
TUNINGS: Final[Mapping[Profile, Tuning]] = {
    Profile.LATENCY: Tuning(
        # A batch of one event costs a task and a commit of the state for each shard.
        shards_max=1,
        # No shuffle between reading and answering: a stage less to plan, start and clear up.
        in_one_task=True,
        # In a backlog a new request waits for the earlier ones, and for its batch.
        topic_events_per_batch=20_000,
        batch_interval_ms=0,
    ),
    Profile.THROUGHPUT: Tuning(
        # Shards work side by side, each in a process of its own.
        shards_max=SHARDS_AT_FIRST_MAX,
        # Input partitions are read side by side as well.
        in_one_task=False,
        # Each batch has a cost that does not depend on its events: to plan, start tasks, commit.
        topic_events_per_batch=50_000,
        # For the same reason: under a steady load batches would follow each other at once, and what
        # they cost would be most of the job's work.
        batch_interval_ms=500,
    ),
}


def tuning(profile: Profile | None) -> Tuning:
    """A profile's values; None: no profile was named."""
    return TUNINGS[profile or DEFAULT_PROFILE]


def shards_at_first(profile: Profile | None) -> int:
    """How many shards a new checkpoint is given where the settings do not say."""
    return min(os.cpu_count() or 1, tuning(profile).shards_max)


def suits(profile: Profile, shards: int) -> bool:
    """Whether a state in so many shards is as the profile keeps it.

    One shard or several is what matters: a checkpoint may come from a machine with other cores.
    """
    if shards == 1:
        return shards_at_first(profile) == 1
    return tuning(profile).shards_max > 1
