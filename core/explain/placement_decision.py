"""What is reported of one revision of one replica list: which step gave it, and how."""

from __future__ import annotations

from enum import StrEnum

from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Move, Order, Reason
from spu_assigner.core.base.resources import dominant_share
from spu_assigner.core.base.structs import FrozenStruct


class Why(StrEnum):
    """Why an SPU was passed over, or was not in the ring."""

    OFFLINE = "offline"  # or leaving, where that is not known
    LEAVING = "leaving"
    SATURATED = "saturated"
    CORDONED = "cordoned"
    DEMOTED = "demoted"  # passed over as a leader alone
    FILLED = "filled"  # saturated by an earlier replica of the same step
    SAME_RACK = "same_rack"
    IN_LIST = "in_list"


class Passed(FrozenStruct, frozen=True, kw_only=True):
    """An SPU that was passed over."""

    spu_id: int
    why: Why
    """The reason."""
    beside: int | None = None
    """Of SAME_RACK, the SPU of the list that is on that rack."""


class Taken(FrozenStruct, frozen=True, kw_only=True):
    """How one replica was found. Of `rendezvous` the order is that of the scores."""

    spu_id: int
    rack: str | None = None
    """Its rack, "" for none; None where racks were not read, or have changed since."""
    core: int | None = None
    """Its core, of `redpanda`."""
    position: int | None = None
    """Its position in the order, from 0; None: not found by an order, or not known."""
    score: float | None = None
    """Its score in 6 digits, where SPUs were taken by score."""
    is_offline: bool = False
    """Whether it was offline, as `kraft` permits."""
    passed: tuple[Passed, ...] = ()
    """SPUs that were passed over on the way to it."""


class PlacementStep(FrozenStruct, frozen=True, kw_only=True):
    """On what ring a rule placed a list, and where in its order the list begins."""

    ring_size: int
    """Of the ring when this partition's turn came."""
    filled: tuple[int, ...]
    """SPUs that left the ring earlier in the step."""
    index: int | None = None
    """Of the chain, or the request's own; of `kraft` that of the draws; None: taken by score."""
    order: Order | None = None
    """The order that was read; None: SPUs were drawn, or taken by score, as all below."""
    cycle: int | None = None
    """The index divided by the size of the ring."""
    position: int | None = None
    """The leader's position in the order."""
    gap: int | None = None
    """The gap between the leader and its followers, of `fluvio` without racks."""
    shift: int | None = None
    """The shift of the followers, of `kafka`."""


class AmountHeld(FrozenStruct, frozen=True, kw_only=True):
    """What is used of a resource on an SPU."""

    resource: str
    """Its name."""
    used: int
    """By the replicas that are there."""
    capacity: int
    """What the SPU has of it."""
    needed: int
    """By the replica of the list on this SPU; else by one that does not lead."""


class Load(FrozenStruct, frozen=True, kw_only=True):
    """What an SPU holds of what it can."""

    spu_id: int
    count: int
    """Replicas."""
    capacity: int
    """Replica slots."""
    amounts: tuple[AmountHeld, ...] = ()
    """Each resource that there is, where the topic has a demand."""

    def dominant(self, *, replicas: int = 0) -> tuple[float, AmountHeld | None]:
        """The dominant share, with so many more of these replicas, and of what; None: of slots."""
        used = [(x.resource, x.used + replicas * x.needed, x.capacity) for x in self.amounts]
        share, name = dominant_share([(None, self.count + replicas, self.capacity), *used])
        return share, next((each for each in self.amounts if each.resource == name), None)


class PlacementDecision(FrozenStruct, frozen=True, kw_only=True):
    """One revision that set this partition's list."""

    revision: int
    """Of the map."""
    cause: str
    reason: Reason
    """What the map records of the step."""
    replicas: tuple[int, ...]
    """The list that the step gave, leader first."""
    before: tuple[int, ...] | None
    """The list of the revision before, where that is retained."""
    ring_size: int | None
    """Of the ring before the step; None: no ring was read."""
    step: PlacementStep | None
    """Where a rule placed the list; None: none did."""
    replica_steps: tuple[Taken, ...]
    """How each replica was found."""
    moves: tuple[Move, ...]
    """Replicas that left or came, of a list that was there."""
    absent: tuple[Passed, ...]
    """SPUs of the cluster that were not in the ring."""
    loads: tuple[Load, ...]
    """What the SPUs concerned hold, where shares decide."""
    loads_are_of_then: bool
    """Whether loads, and racks beside them, are those before the decision; else those of now."""
    recomputed: bool
    """Whether the placement was repeated and gave the recorded lists."""
    unknown: tuple[str, ...]
    """What cannot be known, and why."""
    rules: tuple[str, ...]
    """The rules that bind the topic now, and what SPUs lack for it."""


class Explanation(FrozenStruct, frozen=True, kw_only=True):
    """What made one replica list, as far as it is retained, the oldest decision first."""

    cluster_id: str
    topic: str
    policy: Policy
    partition: int
    replicas: tuple[int, ...]
    decisions: tuple[PlacementDecision, ...]
    is_whole: bool  # the decision that placed the partition first is among them
