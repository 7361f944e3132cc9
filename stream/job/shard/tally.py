"""What a shard's part of a batch came to, in numbers: the last bundle carries it to the driver.

Deciding happens where the shard is, on a cluster on other machines; what is counted is shown by the
driver, and only once the batch is committed. So the numbers go the way the answers go. They are no
part of a batch's digest: what is looked at never decides whether a batch is the same.

Rules: a batch costs what it touched, and no more than `MEASURED_MAX` clusters; what is left over
comes with the shard's next batches. To find what could be better takes all lists of a cluster: one
cluster is searched at least, others within `SEARCH_SECONDS`, then none for `REST` times as long.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from operator import add, sub
from typing import TYPE_CHECKING, Final, get_args

import msgspec
from msgspec.structs import asdict
from spu_assigner.core.base.events import Event, SpuJoined, SpuLeft, TopicAdopted

if TYPE_CHECKING:  # The driver takes the numbers and loads nothing that decides.
    from spu_assigner.core.constraints.improvable import Improvable
    from spu_assigner.core.state.cluster_state import ClusterState
    from spu_assigner.stream.job.shard.clusters import Clusters

MEASURED_MAX: Final = 256  # clusters; some 20 µs each
SEARCH_SECONDS: Final = 0.002  # of a batch; a cluster takes 0.1 ms, one of 900,000 replicas 150
REST: Final = 50  # so that it takes 2 % of the time

# What an answer is to, a label of metrics: the event's name without what it is about.
REQUESTS: Final[Mapping[type[Event], str]] = {
    **{each: re.sub("^(Spu|Topic|Cluster)", "", each.__name__).lower() for each in get_args(Event)},
    SpuJoined: "join",
    SpuLeft: "leave",
    TopicAdopted: "adopt",
}
EARLIER: Final = "earlier"  # something that had to wait: the event at hand made room for it
Answered = tuple[str, str, str]  # request, status, code or ""


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers of one cluster, or of several together."""

    ring: int = 0  # SPUs that may take new replicas
    saturated: int = 0  # online SPUs without a free slot that are not cordoned
    offline: int = 0  # SPUs that are known and not online; leaving ones too
    capacity: int = 0  # replica slots of the online SPUs
    used: int = 0  # replicas on the online SPUs
    replicas: int = 0  # on all SPUs
    partitions: int = 0  # that have a replica list
    topics: int = 0
    waiting: int = 0  # creates and repairs for which there is no room yet
    cordoned: int = 0  # online SPUs that take no new replicas until they are uncordoned
    demoted: int = 0  # SPUs that lead nothing where another can
    few_racks: int = 0  # lists on fewer racks than the ring has for them
    broken_rules: int = 0  # lists that break a hard rule of their topic
    one_leader: int = 0  # topics of several partitions that one SPU leads, and others could

    def __add__(self, other: Figures) -> Figures:
        return Figures(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: Figures) -> Figures:
        return Figures(*map(sub, astuple(self), astuple(other)))

    @property
    def share(self) -> float:
        """How much of the online SPUs' capacity is used; 0 where there is none."""
        return self.used / self.capacity if self.capacity else 0.0


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one shard's part of a batch."""

    answers: dict[Answered, int] = {}  # messages of `topic-status`
    dead_letters: dict[str, int] = {}  # by code
    repeated: int = 0  # events that were remembered, and changed nothing
    clusters: dict[str, Figures] = {}  # measured after the batch
    # Of these where SPUs have resources: the largest share that is used on an SPU, by resource.
    shares: dict[str, dict[str, float]] = {}
    cluster_count: int = 0  # that the shard knows


def search(clusters: Clusters) -> Mapping[str, Improvable]:
    """What could be better, looked for in clusters that have changed if there is time now."""
    from spu_assigner.core.constraints.improvable import Improvable, improvable

    began = now = time.monotonic()
    while clusters.unsearched and clusters.rests_until <= began and now <= began + SEARCH_SECONDS:
        name = next(iter(clusters.unsearched))
        del clusters.unsearched[name]
        could = improvable(clusters.of(name)) if name in clusters else Improvable()
        if could != clusters.improvable.pop(name, Improvable()):
            clusters.unmeasured[name] = None
        if could != Improvable():
            clusters.improvable[name] = could
        now = time.monotonic()
    if now > began:
        clusters.rests_until = now + REST * (now - began)
    return clusters.improvable


def figures_of(state: ClusterState, could: Improvable | None) -> Figures:
    """The cluster's numbers now. O(SPUs), besides counting the maps whose count was put off."""
    capacity, used, replicas, partitions = state.ledger.totals()
    offline, cordoned, saturated = map(len, state.ledger.outside_ring())
    return Figures(
        ring=state.ring.size,
        saturated=saturated,
        offline=offline,
        capacity=capacity,
        used=used,
        replicas=replicas,
        partitions=partitions,
        topics=len(state.topics),
        waiting=len(state.waiting),
        cordoned=cordoned,
        demoted=len(state.demoted),
        **(asdict(could) if could else {}),
    )
