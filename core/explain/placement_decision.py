"""What is reported of one revision of one replica list: which step gave it, and how."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Move, Order, Reason
from spu_assigner.core.base.resources import dominant_share


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """An SPU that was passed over."""

    spu_id: int
    why: Why
    beside: int | None = None  # of SAME_RACK, the SPU of the list that is on that rack


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """How one replica was found. Of `rendezvous` the order is that of the scores."""

    spu_id: int
    rack: str | None = None  # "" for none; None where racks were not read, or are others now
    core: int | None = None  # its core, of `redpanda`
    position: int | None = None  # in the order, from 0; None: not known, or there was no order
    score: float | None = None  # its score in 6 digits, where SPUs were taken by score
    is_offline: bool = False  # whether it was offline, as `kraft` permits
    passed: tuple[Passed, ...] = ()  # SPUs that were passed over on the way to it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementStep:
    """On what ring a rule placed a list, and where in its order the list begins."""

    ring_size: int  # of the ring when this partition's turn came
    filled: tuple[int, ...]  # SPUs that left the ring earlier in the step
    index: int | None = None  # of the chain, the request, or the draws (`kraft`); None: by score
    order: Order | None = None  # that was read; None: drawn, or taken by score, as all below
    cycle: int | None = None  # the index divided by the size of the ring
    position: int | None = None  # the leader's position in the order
    gap: int | None = None  # between the leader and its followers, of `fluvio` without racks
    shift: int | None = None  # the shift of the followers, of `kafka`


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountHeld:
    """What is used of a resource on an SPU."""

    resource: str
    used: int  # by the replicas that are there
    capacity: int  # what the SPU has of it
    needed: int  # by the replica of the list on this SPU; else by one that does not lead


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What an SPU holds of what it can."""

    spu_id: int
    count: int  # replicas
    capacity: int  # replica slots
    amounts: tuple[AmountHeld, ...] = ()  # of each resource, where the topic has a demand

    def dominant(self, *, replicas: int = 0) -> tuple[float, AmountHeld | None]:
        """The dominant share, with so many more of these replicas, and of what; None: of slots."""
        used = [(x.resource, x.used + replicas * x.needed, x.capacity) for x in self.amounts]
        share, name = dominant_share([(None, self.count + replicas, self.capacity), *used])
        return share, next((each for each in self.amounts if each.resource == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementDecision:
    """One revision that set this partition's list."""

    revision: int  # of the map
    cause: str
    reason: Reason  # what the map records of the step
    replicas: tuple[int, ...]  # the list that the step gave, leader first
    before: tuple[int, ...] | None  # the list of the revision before, where that is retained
    ring_size: int | None  # of the ring before the step; None: no ring was read
    step: PlacementStep | None  # where a rule placed the list; None: none did
    replica_steps: tuple[Taken, ...]  # how each replica was found
    moves: tuple[Move, ...]  # replicas that left or came, of a list that was there
    absent: tuple[Passed, ...]  # SPUs of the cluster that were not in the ring
    loads: tuple[Load, ...]  # what the SPUs concerned hold, where shares decide
    loads_are_of_then: bool  # loads and racks are those before the decision; else those of now
    recomputed: bool  # whether the placement was repeated and gave the recorded lists
    unknown: tuple[str, ...]  # what cannot be known, and why
    rules: tuple[str, ...]  # the rules that bind the topic now, and what SPUs lack for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What made one replica list, as far as it is retained, the oldest decision first."""

    cluster_id: str
    topic: str
    policy: Policy
    partition: int
    replicas: tuple[int, ...]
    decisions: tuple[PlacementDecision, ...]
    is_whole: bool  # the decision that placed the partition first is among them
