"""Whether a Kafka cluster bears that partitions are moved."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from spu_assigner.stream.clusters.moves.reassigning import (
    MIN_IN_SYNC,
    MovesError,
    Ongoing,
    PartitionShape,
    Reassigner,
)
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.kafka.log_dirs import Partition

HEALTH_FIX: Final = "start the brokers that are missing, or give --force"


class UnhealthyError(MovesError):
    """The cluster does not bear that anything is moved now."""


def require_health(
    kafka: Reassigner, planned: Collection[Partition], *, force: bool = False
) -> int:
    """The number of under-replicated partitions; raises UnhealthyError for a `health_fault`."""
    ongoing, shapes = kafka.ongoing(), kafka.shapes()
    lagging = sum(lags(each, ongoing.get(at)) for at, each in shapes.items())
    topics = sorted({topic for (topic, _), each in shapes.items() if lags(each)})
    settings = kafka.settings([(topic, MIN_IN_SYNC) for topic in topics], with_defaults=True)
    least = {str(where): int(value) for (where, _), value in settings.items() if value}
    fault = health_fault(shapes, least_in_sync=least, planned=planned)
    if fault is not None and not force:
        raise UnhealthyError(f"Kafka is not healthy: {fault}; {HEALTH_FIX}")
    return lagging


def health_fault(
    shapes: Mapping[Partition, PartitionShape],
    *,
    least_in_sync: Mapping[str, int],
    planned: Collection[Partition],
) -> str | None:
    """Why nothing should be moved now; of what is planned itself, only that it has no leader."""
    offline = [at for at, each in shapes.items() if each.leader is None]
    under_min = [
        (topic, number)
        for (topic, number), each in shapes.items()
        if each.leader is not None
        and (topic, number) not in planned
        and len(each.in_sync) < min(least_in_sync.get(topic, 1), len(each.replicas))
    ]
    for places, what in (
        (offline, "no leader"),
        (under_min, "fewer replicas in sync than min.insync.replicas"),
    ):
        if places:
            have = "has" if len(places) == 1 else "have"
            names = [f"{topic}-{number}" for topic, number in sorted(places)]
            return f"{counted(len(places), 'partition')} {have} {what} ({listed(names, 3)})"
    return None


def lags(shape: PartitionShape, ongoing: Ongoing | None = None) -> bool:
    """Whether some replica is not in sync; one that is only being added does not count."""
    added = () if ongoing is None else ongoing.adding
    return not {*shape.replicas} - {*added} <= {*shape.in_sync}
