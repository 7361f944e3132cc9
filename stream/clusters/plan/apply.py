"""Making topics as their maps say: what `spu-assigner apply` does with a plan.

Rules: what Kafka refuses is reported, and all else goes on. A request that nobody answers ends the
run. A creation is recorded as intended before it is requested, and as done, by Kafka's id of the
topic, before it is reported. What counts is that a broker shows what was planned, not what was
answered, so that a lost answer or another run at the same time does no harm. Lists of existing
partitions are not changed here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.clusters.plan.applied import record_of
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.clusters.plan.model import (
    AppliedPlan,
    ChangeKind,
    TopicChange,
    TopicFailure,
    TopicsPlan,
)
from spu_assigner.stream.clusters.plan.target_cluster import Target

OTHERS_SECONDS_MAX: Final = 5.0  # for another run to record what it has made
POLL_SECONDS: Final = 0.05
BATCH_SECONDS_MAX: Final = 5.0  # from the controller's answer to what a broker shows: milliseconds
SEEN_SECONDS_MAX: Final = 30.0  # the same once all was sent
CHANGES_MAX: Final = 50  # topics of a request that makes them: reported and recorded together
PARTITIONS_MAX: Final = 2_000  # of a request; Kafka's controller refuses 10,000 records at once


def apply_plan(
    plan: TopicsPlan,
    target: Target,
    ledger: AppliedLedger,
    report: Callable[[TopicChange], None] = lambda change: None,
) -> AppliedPlan:
    """Do all of a plan but its moves, and look whether it was done.

    Args:
        ledger: where it is recorded what was made.
        report: called with each change as soon as one broker shows that it was made.

    Raises:
        ClientError, TargetError: nothing can be recorded, or Kafka does not answer; then nothing
            more is created, and the next run looks into the intents.
    """
    creates = plan.of(ChangeKind.CREATE)
    grows = [change for change in plan.of(ChangeKind.CHANGE) if change.added]
    deletes = plan.of(ChangeKind.DELETE)
    if not (creates or grows or deletes):
        return AppliedPlan(plan=plan)
    run = _ApplyRun(plan.cluster_id, target, ledger, report)
    for changes in (creates, grows, deletes):
        run.request(changes)
    run.finish([*creates, *grows, *deletes])
    return AppliedPlan(
        plan=plan,
        created=tuple(change.topic for change in creates if change.topic in run.done),
        grown=tuple(change.topic for change in grows if change.topic in run.done),
        deleted=tuple(change.topic for change in deletes if change.topic in run.done),
        failed=tuple(run.failed[topic] for topic in sorted(run.failed.keys() - run.done)),
    )


class _ApplyRun:
    """What was done so far: it is recorded, then reported."""

    def __init__(
        self,
        cluster_id: str,
        target: Target,
        ledger: AppliedLedger,
        report: Callable[[TopicChange], None],
    ) -> None:
        self.failed: dict[str, TopicFailure] = {}
        self._cluster_id = cluster_id
        self._target = target
        self._ledger = ledger
        self.done: set[str] = set()  # as a broker shows it; it is recorded and reported
        self._report = report

    def request(self, changes: Sequence[TopicChange]) -> None:
        """Make changes of one kind."""
        for batch in _batches(changes):
            is_create = batch[0].kind is ChangeKind.CREATE
            if is_create:
                self._ledger.record([self._record(each, Origin.INTENT, None) for each in batch])
            failures = self._target.send(batch)
            self.failed |= {failure.topic: failure for failure in failures}
            if is_create:  # Kafka refuses them.
                self._ledger.withdraw(each.topic for each in failures if not each.is_overtaken)
            accepted = [each for each in batch if each.topic not in self.failed]
            self._show(accepted, BATCH_SECONDS_MAX)

    def finish(self, changes: Sequence[TopicChange]) -> None:
        """Take over what a broker shows in the end, unless Kafka refused it."""
        failed = self.failed.items()
        refused = {topic for topic, failure in failed if not failure.is_overtaken}
        left = [each for each in changes if each.topic not in self.done | refused]
        self._show(left, SEEN_SECONDS_MAX)
        reason = f"Kafka accepted it, and shows something else after {SEEN_SECONDS_MAX:.0f} s"
        for each in left:
            failure = TopicFailure(topic=each.topic, kind=each.kind, reason=reason)
            self.failed.setdefault(each.topic, failure)
        self._settle([topic for topic, failure in failed if failure.is_overtaken])

    def _settle(self, overtaken: Iterable[str]) -> None:
        """Withdraw intents of topics that others have made; another run's intent has the same key,
        so it is left until that run has recorded its topic."""
        topics, deadline = sorted(overtaken), time.monotonic() + OTHERS_SECONDS_MAX
        while topics and time.monotonic() < deadline:
            if self._ledger.read().records.keys() >= {*topics}:
                break
            time.sleep(POLL_SECONDS)
        self._ledger.withdraw(topics)

    def _show(self, changes: Sequence[TopicChange], seconds: float) -> None:
        """Record and report what a broker shows to be done within so many seconds."""
        ids = self._target.done(changes, seconds)
        done = [change for change in changes if change.topic in ids]
        self._ledger.record(
            [
                self._record(change, Origin.CREATED, ids[change.topic])
                for change in done
                if change.kind is ChangeKind.CREATE and change.topic not in self.failed
            ]
        )
        self._ledger.forget(each.topic for each in done if each.kind is ChangeKind.DELETE)
        for change in done:
            self.done.add(change.topic)
            self._report(change)

    def _record(self, change: TopicChange, origin: Origin, topic_id: str | None) -> AppliedTopic:
        now_ms = int(time.time() * 1000)
        cluster_id = self._cluster_id
        return record_of(change, origin, cluster_id=cluster_id, topic_id=topic_id, now_ms=now_ms)


def _batches(changes: Iterable[TopicChange]) -> Iterator[list[TopicChange]]:
    """Pieces that the controller takes at once."""
    batch: list[TopicChange] = []
    count = 0
    for change in changes:
        size = len(change.added)
        if batch and (len(batch) >= CHANGES_MAX or count + size > PARTITIONS_MAX):
            yield batch
            batch, count = [], 0
        batch.append(change)
        count += size
    if batch:
        yield batch
