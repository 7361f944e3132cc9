"""What is known of an SPU by what was announced of it: the values, without Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from spu_assigner.core.base.constraints import Taint
from spu_assigner.core.base.events import SpuJoined, SpuLeft
from spu_assigner.core.base.limits import default_capacity

MARK: Final = "follow"  # the ids of the events of `follow` begin so
LABEL: Final = "kafka-cluster"  # of the SPUs it joins: the id of the watched cluster

Announcement = SpuJoined | SpuLeft


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a join says of an SPU."""

    rack: str | None
    cores: int
    capacity: int
    labels: Mapping[str, str]
    resources: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

    def fields(self) -> dict[str, Any]:
        """The same, as fields of a `SpuJoined`."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return given | {"labels": self.labels or None, "resources": self.resources or None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What was announced last of an SPU."""

    online: bool
    is_decommissioned: bool  # its last leave was for good; no when it is online
    is_own: bool  # by `follow`, and not by somebody else
    kafka_cluster: str | None  # of one that is own, whose broker it was joined as, where known
    described: Described | None  # None: of its joins nothing is left


def described_over(
    before: Described | None,
    *,
    rack: str | None,
    cores: int | None,
    capacity: int | None,
    labels: Mapping[str, str],
    resources: Mapping[str, int],
    taints: Sequence[Taint] = (),
) -> Described:
    """What a join says that takes over from `before` what is not named.

    A capacity is taken over with the number of cores that it was announced with.
    """
    known = before or Described(rack=None, cores=1, capacity=default_capacity(1), labels={})
    if cores is None:
        cores = known.cores
    if capacity is None:
        capacity = known.capacity if cores == known.cores else default_capacity(cores)
    named = {(taint.key, taint.effect) for taint in taints}
    kept = [each for each in known.taints if (each.key, each.effect) not in named]
    return Described(
        rack=known.rack if rack is None else rack,
        cores=cores,
        capacity=capacity,
        labels=dict(sorted({**known.labels, **labels}.items())),
        resources={**known.resources, **resources},
        taints=(*kept, *taints),
    )
