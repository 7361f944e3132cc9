"""What is said of one revision of one replica list: which step gave it, and how."""

from __future__ import annotations

from dataclasses import dataclass

from spu_assigner.core.base.records import Reason
from spu_assigner.core.explain.loads import Load
from spu_assigner.core.explain.moves import MoveStep
from spu_assigner.core.explain.replay_placement import ChainStep, ScoreStep, Taken
from spu_assigner.core.explain.replay_striped import StripeStep
from spu_assigner.core.explain.ring_history import Passed

PlacementStep = ChainStep | ScoreStep | StripeStep


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementDecision:
    """One revision that set this partition's list."""

    revision: int
    """Of the map."""
    cause: str
    """The id of the event that it follows from."""
    reason: Reason | None
    """What the map records of the step; None: nothing."""
    replicas: tuple[int, ...]
    """The list that the step gave, leader first."""
    before: tuple[int, ...] | None
    """The list of the revision before, where that is retained."""
    step: PlacementStep | None
    """Where in its order the list was placed; None: by none, or not known."""
    replica_steps: tuple[Taken, ...]
    """How each replica was found."""
    moves: tuple[MoveStep, ...]
    """What went and came, of a list that was there."""
    absent: tuple[Passed, ...]
    """SPUs of the cluster that were not in the ring."""
    absent_unnamed: int
    """How many more were not in the ring, which cannot be named."""
    loads: tuple[Load, ...]
    """What the SPUs concerned hold, where shares decide."""
    loads_are_of_then: bool
    """Whether the loads are those before the decision; else those of now."""
    recomputed: bool
    """Whether the placement was repeated and gave the recorded lists."""
    unknown: tuple[str, ...]
    """What cannot be known, and why."""
    rules: tuple[str, ...] = ()
    """The rules that bind the topic now, and what SPUs lack for it."""
