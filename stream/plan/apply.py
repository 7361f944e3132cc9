"""Making topics as their maps say: what `spu-assigner apply` does with a plan.

Rules: Kafka is first asked about everything (validate only), then made to do it; what it refuses is
reported, and all else goes on. A creation is recorded as intended before it is requested, and as
done, by Kafka's id of the topic, before it is reported. In the end it is looked whether every
broker shows what was planned: that counts, not what was answered, so that a lost answer or another
run at the same time does no harm, and whoever looks afterwards sees it. Lists of existing
partitions are not changed here: that moves data, and Kafka's own tool does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from spu_assigner.stream.kafka.connection_diagnosis import UnreachableError
from spu_assigner.stream.plan.applied_store import AppliedLedger
from spu_assigner.stream.plan.model import ChangeKind, KafkaCluster, TopicChange, TopicsPlan
from spu_assigner.stream.plan.requests import BatchOutcome, Failure
from spu_assigner.stream.plan.target_cluster import Target

SEEN_SECONDS_MAX: Final = 30.0  # from the controller's answer to what brokers tell: milliseconds
POLL_SECONDS: Final = 0.05
CREATE, ALTER, DELETE = "Create", "Alter", "Delete"  # deeds, by Kafka's names of the rights


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyReport:
    """What became of a plan."""

    created: tuple[str, ...] = ()
    grown: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    failed: tuple[FailedTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTopic:
    """A topic that is not as planned, and what Kafka says."""

    topic: str
    deed: str  # CREATE, ALTER, DELETE, or "Describe" where Kafka accepted it
    failure: Failure


def apply_plan(
    plan: TopicsPlan,
    target: Target,
    ledger: AppliedLedger,
    tell: Callable[[Sequence[TopicChange]], None] = lambda changes: None,
) -> ApplyReport:
    """Do all of a plan but its moves, and look whether it was done.

    Args:
        ledger: where it is recorded what was made.
        tell: called with what one broker shows to be done, as soon as it does.

    Raises:
        ClientError, TopicsError: nothing can be recorded; then nothing more is created.
        UnreachableError: no broker answers.
    """
    creates = plan.of(ChangeKind.CREATE)
    grows = [change for change in plan.of(ChangeKind.CHANGE) if change.added]
    deletes = plan.of(ChangeKind.DELETE)
    if not (creates or grows or deletes):
        return ApplyReport()
    work = _Work(target=target, ledger=ledger, tell=tell)
    refused = _gathered(CREATE, target.create(creates, dry=True))
    refused |= _gathered(ALTER, target.grow(grows, dry=True))
    work.failed |= refused
    for batch in target.create(_without(creates, refused), dry=False, before=ledger.intend):
        work.take(CREATE, batch)
    for batch in target.grow(_without(grows, refused), dry=False):
        work.take(ALTER, batch)
    for batch in target.delete(deletes):
        work.take(DELETE, batch)
    changes = [*creates, *grows, *deletes]
    missing = _look(target, changes, work.failed.values())
    work.finish([change for change in changes if change.topic not in missing])
    for change in changes:
        if change.topic in missing and change.topic not in work.failed:
            failure = Failure(
                topic=change.topic,
                reason=f"Kafka accepted it, but its brokers do not show it after "
                f"{SEEN_SECONDS_MAX:.0f} s; look with `spu-assigner plan`",
            )
            work.failed[change.topic] = FailedTopic(
                topic=change.topic, deed="Describe", failure=failure
            )
    return ApplyReport(
        created=_done(creates, missing),
        grown=_done(grows, missing),
        deleted=_done(deletes, missing),
        failed=tuple(work.failed[topic] for topic in sorted(missing)),
    )


class _Work:
    """What was done so far: it is recorded, then reported."""

    def __init__(
        self,
        *,
        target: Target,
        ledger: AppliedLedger,
        tell: Callable[[Sequence[TopicChange]], None],
    ) -> None:
        self.failed: dict[str, FailedTopic] = {}
        self._target = target
        self._ledger = ledger
        self._tell = tell
        self._told: set[str] = set()

    def take(self, deed: str, batch: BatchOutcome) -> None:
        """What became of a request: what is shown to be done is recorded and reported."""
        self.failed |= _gathered(deed, [batch])
        # Another run, or somebody else, has made it: whose it is we do not know.
        overtaken = [each.topic for each in batch.failures if each.is_overtaken]
        self._ledger.withdraw(overtaken if deed == CREATE else ())
        self._show([change for change in batch.changes if change.topic not in self.failed])

    def finish(self, changes: Sequence[TopicChange]) -> None:
        """What all brokers show in the end and was not reported yet.

        A creation whose answer was lost keeps its intent: the next run looks into it.
        """
        left = [change for change in changes if change.topic not in self._told]
        self._show([change for change in left if change.topic not in self.failed])
        self._report([change for change in left if change.topic not in self._told])

    def _show(self, changes: Sequence[TopicChange]) -> None:
        ids = self._target.done(changes)
        done = [change for change in changes if change.topic in ids]
        self._ledger.created([each for each in done if each.kind is ChangeKind.CREATE], ids)
        self._ledger.forget(each.topic for each in done if each.kind is ChangeKind.DELETE)
        self._report(done)

    def _report(self, changes: Sequence[TopicChange]) -> None:
        if changes:
            self._told |= {change.topic for change in changes}
            self._tell(changes)


def _gathered(deed: str, batches: Iterable[BatchOutcome]) -> dict[str, FailedTopic]:
    return {
        failure.topic: FailedTopic(topic=failure.topic, deed=deed, failure=failure)
        for batch in batches
        for failure in batch.failures
    }


def _without(changes: Sequence[TopicChange], refused: dict[str, FailedTopic]) -> list[TopicChange]:
    return [change for change in changes if change.topic not in refused]


def _look(
    target: Target, changes: Sequence[TopicChange], failed: Collection[FailedTopic]
) -> set[str]:
    """The topics that are not as planned, once every broker shows all that was accepted."""
    deadline = time.monotonic() + SEEN_SECONDS_MAX
    overtaken = {each.topic for each in failed if each.failure.is_overtaken}
    given_up = {each.topic for each in failed} - overtaken
    missing = _missing(target, changes, given_up, overtaken, deadline)
    lost = frozenset(missing)
    for broker in target.each_broker():
        # One that does not answer is on its way out: it is not waited for.
        with suppress(UnreachableError):
            missing |= _missing(broker, changes, lost, frozenset(), deadline)
    return missing


def _missing(
    target: Target,
    changes: Sequence[TopicChange],
    given_up: Set[str],
    overtaken: Set[str],
    deadline: float,
) -> set[str]:
    """The topics that are not as planned, once the others are, or the time is up.

    Args:
        given_up: they are not waited for.
        overtaken: they are waited for until what others have done is seen.
    """
    while True:
        cluster = target.look(())
        missing = {change.topic for change in changes if not _is_done(change, cluster)}
        begun = {
            change.topic
            for change in changes
            if change.topic in overtaken and _is_begun(change, cluster)
        }
        if missing <= given_up | begun or time.monotonic() > deadline:
            return missing
        time.sleep(POLL_SECONDS)


def _is_begun(change: TopicChange, cluster: KafkaCluster) -> bool:
    """Whether a topic is not any more as it was when the change was planned."""
    rows = cluster.rows(change.topic)
    return (() if rows is None else rows) != change.before


def _is_done(change: TopicChange, cluster: KafkaCluster) -> bool:
    rows = cluster.rows(change.topic)
    if change.kind is ChangeKind.DELETE or rows is None:
        return change.kind is ChangeKind.DELETE and rows is None
    return rows[len(change.before) :] == change.added


def _done(changes: Sequence[TopicChange], missing: set[str]) -> tuple[str, ...]:
    return tuple(change.topic for change in changes if change.topic not in missing)
