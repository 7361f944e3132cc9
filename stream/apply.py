"""Making topics as their maps say: what `spu-assigner apply` does with a plan.

Rules: Kafka is first asked about everything (validate only), then made to do it; what it refuses is
told, and all else goes on. In the end it is looked whether every broker shows what was planned:
that counts, not what was answered, so that a lost answer or another run at the same time does no
harm, and whoever looks afterwards sees it. Lists of existing partitions are not changed here: that
moves data, and Kafka's own tool does it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from spu_assigner.stream.plan_cluster import Failure, Target
from spu_assigner.stream.plan_model import Change, KafkaCluster, Kind, Plan
from spu_assigner.stream.reach import UnreachableError

SEEN_SECONDS_MAX: Final = 30.0  # from the controller's answer to what brokers tell: milliseconds
POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of a plan."""

    created: tuple[str, ...] = ()
    grown: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    failed: tuple[Failed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A topic that is not as planned, and what Kafka says."""

    topic: str
    deed: str  # as one says it: "Create", "Alter", "Delete"; Kafka's name of the right, too
    failure: Failure


def apply_plan(plan: Plan, target: Target) -> Report:
    """Do all of a plan but its moves, and look whether it was done.

    Raises:
        UnreachableError: no broker answers.
    """
    creates = plan.of(Kind.CREATE)
    grows = [change for change in plan.of(Kind.CHANGE) if change.added]
    deletes = plan.of(Kind.DELETE)
    if not (creates or grows or deletes):
        return Report()
    refused = _gathered("Create", target.create(creates, dry=True))
    refused |= _gathered("Alter", target.grow(grows, dry=True))
    failed = dict(refused)
    failed |= _gathered("Create", target.create(_without(creates, refused), dry=False))
    failed |= _gathered("Alter", target.grow(_without(grows, refused), dry=False))
    failed |= _gathered("Delete", target.delete(deletes))
    missing = _look(target, [*creates, *grows, *deletes], failed)
    for change in [*creates, *grows, *deletes]:
        if change.topic in missing and change.topic not in failed:
            failure = Failure(
                topic=change.topic,
                reason=f"Kafka accepted it, but its brokers do not show it after "
                f"{SEEN_SECONDS_MAX:.0f} s; look with `spu-assigner plan`",
            )
            failed[change.topic] = Failed(topic=change.topic, deed="Describe", failure=failure)
    return Report(
        created=_done(creates, missing),
        grown=_done(grows, missing),
        deleted=_done(deletes, missing),
        failed=tuple(failed[topic] for topic in sorted(missing)),
    )


def _gathered(deed: str, batches: Iterable[Sequence[Failure]]) -> dict[str, Failed]:
    return {
        failure.topic: Failed(topic=failure.topic, deed=deed, failure=failure)
        for failures in batches
        for failure in failures
    }


def _without(changes: Sequence[Change], refused: dict[str, Failed]) -> list[Change]:
    return [change for change in changes if change.topic not in refused]


def _look(target: Target, changes: Sequence[Change], failed: dict[str, Failed]) -> set[str]:
    """The topics that are not as planned, once every broker shows all that was accepted."""
    deadline = time.monotonic() + SEEN_SECONDS_MAX
    missing = _missing(target, changes, failed.keys(), deadline)
    lost = frozenset(missing)
    for broker in target.each_broker():
        # One that does not answer is on its way out: it is not waited for.
        with suppress(UnreachableError):
            missing |= _missing(broker, changes, lost, deadline)
    return missing


def _missing(
    target: Target, changes: Sequence[Change], failed: Set[str], deadline: float
) -> set[str]:
    while True:
        cluster = target.look(())
        missing = {change.topic for change in changes if not _is_done(change, cluster)}
        if missing <= failed or time.monotonic() > deadline:
            return missing
        time.sleep(POLL_SECONDS)


def _is_done(change: Change, cluster: KafkaCluster) -> bool:
    rows = cluster.rows(change.topic)
    if change.kind is Kind.DELETE or rows is None:
        return change.kind is Kind.DELETE and rows is None
    return rows[len(change.before) :] == change.added


def _done(changes: Sequence[Change], missing: set[str]) -> tuple[str, ...]:
    return tuple(change.topic for change in changes if change.topic not in missing)
