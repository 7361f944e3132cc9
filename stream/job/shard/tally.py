"""What a shard's part of a batch came to, in numbers: the last bundle carries it to the driver.

Deciding happens where the shard is, on a cluster on other machines; what is counted is shown by the
driver, and only once the batch is committed. So the numbers go the way the answers go. They are no
part of a batch's digest: what is looked at never decides whether a batch is the same.

Rules: a batch costs what it touched, and no more than `MEASURED_MAX` clusters; what is left over
comes with the shard's next batches. Bytes are JSON, since it is little, and read by this release
alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Final

from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.events import (
    ClusterRebalance,
    Event,
    SpuCordon,
    SpuDemote,
    SpuJoined,
    SpuLeft,
    SpuUncordon,
    SpuUndemote,
    TopicAdopted,
    TopicConstraints,
    TopicCreate,
    TopicDelete,
    TopicDemand,
    TopicGrow,
    TopicRelease,
    TopicReplication,
)
from spu_assigner.core.base.structs import FastStrEnum
from spu_assigner.stream.job.shard.figures import Figures

MEASURED_MAX: Final = 256  # clusters; some 20 µs each


class RequestKind(FastStrEnum):
    """What an answer is to."""

    CREATE = "create"
    DELETE = "delete"
    RELEASE = "release"
    ADOPT = "adopt"
    GROW = "grow"
    REPLICATION = "replication"
    DEMAND = "demand"
    CONSTRAINTS = "constraints"
    REBALANCE = "rebalance"
    JOIN = "join"
    LEAVE = "leave"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    DEMOTE = "demote"
    UNDEMOTE = "undemote"
    EARLIER = "earlier"  # something that had to wait: the event at hand made room for it


REQUESTS: Final[Mapping[type[Event], RequestKind]] = {
    TopicCreate: RequestKind.CREATE,
    TopicDelete: RequestKind.DELETE,
    TopicRelease: RequestKind.RELEASE,
    TopicAdopted: RequestKind.ADOPT,
    TopicGrow: RequestKind.GROW,
    TopicReplication: RequestKind.REPLICATION,
    TopicDemand: RequestKind.DEMAND,
    TopicConstraints: RequestKind.CONSTRAINTS,
    ClusterRebalance: RequestKind.REBALANCE,
    SpuJoined: RequestKind.JOIN,
    SpuLeft: RequestKind.LEAVE,
    SpuCordon: RequestKind.CORDON,
    SpuUncordon: RequestKind.UNCORDON,
    SpuDemote: RequestKind.DEMOTE,
    SpuUndemote: RequestKind.UNDEMOTE,
}
Answered = tuple[str, str, str]  # request, status, code or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The numbers of one shard's part of a batch."""

    events: int = 0  # what is no event included
    answers: Counter[Answered] = field(default_factory=Counter)  # messages of `topic-status`
    dead_letters: Counter[str] = field(default_factory=Counter)  # by code
    repeated: int = 0  # events that were remembered, and changed nothing
    clusters: Mapping[str, Figures] = field(default_factory=dict)  # measured after the batch
    # Of these where SPUs have resources: the largest share that is used on an SPU, by resource.
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    cluster_count: int = 0  # that the shard knows

    def to_bytes(self) -> bytes:
        counts = {
            "events": self.events,
            "answers": [[*answered, number] for answered, number in self.answers.items()],
            "dead_letters": list(self.dead_letters.items()),
            "repeated": self.repeated,
            "clusters": {name: astuple(figures) for name, figures in self.clusters.items()},
            "shares": self.shares,
            "cluster_count": self.cluster_count,
        }
        return json.dumps(counts, separators=(",", ":")).encode()

    @classmethod
    def of_bytes(cls, data: bytes) -> Tally:
        """The tally that the bytes are.

        Raises:
            InvariantError: they were not made by this release.
        """
        try:
            counts: dict[str, Any] = json.loads(data)
            return cls(
                events=counts["events"],
                answers=Counter({(a, b, c): number for a, b, c, number in counts["answers"]}),
                dead_letters=Counter(dict(counts["dead_letters"])),
                repeated=counts["repeated"],
                clusters={
                    name: Figures(**dict(zip(_FIGURES, numbers, strict=True)))
                    for name, numbers in counts["clusters"].items()
                },
                shares=counts["shares"],
                cluster_count=counts["cluster_count"],
            )
        except (ValueError, KeyError, TypeError) as reason:
            raise InvariantError(f"{len(data)} bytes are no tally of a batch: {reason}") from reason


_FIGURES: Final = tuple(Figures.__dataclass_fields__)
