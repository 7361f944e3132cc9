"""Making topics as their maps say: what `spu-assigner apply` does with a plan.

Rules: Kafka is first asked about everything (validate only), then made to do it; what it refuses is
reported, and all else goes on. After a request that nobody answered no more is sent. A creation is
recorded as intended before it is requested, and as done, by Kafka's id of the topic, before it is
reported. In the end it is looked whether every broker shows what was planned: that counts, not what
was answered, so that a lost answer or another run at the same time does no harm, and whoever looks
afterwards sees it. Lists of existing partitions are not changed here: that moves data, and Kafka's
own tool does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.clusters.plan.applied import record_of
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.clusters.plan.model import ChangeKind, TopicChange, TopicsPlan
from spu_assigner.stream.clusters.plan.target_cluster import Target, TopicFailure, lost
from spu_assigner.stream.kafka.connection_diagnosis import UnreachableError

SEEN_SECONDS_MAX: Final = 30.0  # from the controller's answer to what brokers show: milliseconds
POLL_SECONDS: Final = 0.05
CHANGES_MAX: Final = 50  # topics of a request that makes them: reported and recorded together
PARTITIONS_MAX: Final = 2_000  # of a request; Kafka's controller refuses 10,000 records at once


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyReport:
    """What became of a plan."""

    created: tuple[str, ...] = ()
    grown: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    failed: tuple[TopicFailure, ...] = ()  # topics that are not as planned


def apply_plan(
    plan: TopicsPlan,
    target: Target,
    ledger: AppliedLedger,
    report: Callable[[TopicChange], None] = lambda change: None,
) -> ApplyReport:
    """Do all of a plan but its moves, and look whether it was done.

    Args:
        ledger: where it is recorded what was made.
        report: called with each change as soon as one broker shows that it was made.

    Raises:
        ClientError: nothing can be recorded; then nothing more is created.
    """
    creates = plan.of(ChangeKind.CREATE)
    grows = [change for change in plan.of(ChangeKind.CHANGE) if change.added]
    deletes = plan.of(ChangeKind.DELETE)
    if not (creates or grows or deletes):
        return ApplyReport()
    run = _ApplyRun(plan.cluster_id, target, ledger, report)
    run.request(creates, dry=True)
    run.request(grows, dry=True)
    for changes in (creates, grows, deletes):
        run.request([change for change in changes if change.topic not in run.failed])
    changes = [*creates, *grows, *deletes]
    missing = _missing(target, changes, run.failed)
    run.finish([change for change in changes if change.topic not in missing])
    for change in changes:
        if change.topic in missing and change.topic not in run.failed:
            run.failed[change.topic] = TopicFailure(
                topic=change.topic,
                kind=change.kind,
                reason=f"Kafka accepted it, but its brokers do not show it after "
                f"{SEEN_SECONDS_MAX:.0f} s; look with `spu-assigner plan`",
                is_accepted=True,
            )
    return ApplyReport(
        created=tuple(change.topic for change in creates if change.topic not in missing),
        grown=tuple(change.topic for change in grows if change.topic not in missing),
        deleted=tuple(change.topic for change in deletes if change.topic not in missing),
        failed=tuple(run.failed[topic] for topic in sorted(missing)),
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
        self._report = report
        self._reported: set[str] = set()

    def request(self, changes: Sequence[TopicChange], *, dry: bool = False) -> None:
        """Make changes of one kind, or only ask whether Kafka would."""
        is_lost = False
        for batch in _batches(changes):
            is_create = batch[0].kind is ChangeKind.CREATE and not dry
            if is_create and not is_lost:
                self._ledger.record([self._record(each, Origin.INTENT, None) for each in batch])
            failures = [*map(lost, batch)] if is_lost else self._target.send(batch, dry=dry)
            is_lost = len(failures) == len(batch) and all(each.is_lost for each in failures)
            self.failed |= {failure.topic: failure for failure in failures}
            if is_create:
                # Another run, or somebody else, has made it: whose it is we do not know.
                self._ledger.withdraw(each.topic for each in failures if each.is_overtaken)
            if not dry:
                self._show(batch)

    def finish(self, changes: Sequence[TopicChange]) -> None:
        """What all brokers show in the end and was not reported yet.

        A creation whose answer was lost keeps its intent: the next run looks into it.
        """
        self._show([change for change in changes if change.topic not in self._reported])
        for change in changes:
            self._report_once(change)

    def _show(self, changes: Sequence[TopicChange]) -> None:
        """Record and report what one broker shows to be done, of what was not refused."""
        ids = self._target.done([each for each in changes if each.topic not in self.failed])
        done = [change for change in changes if change.topic in ids]
        self._ledger.record(
            [
                self._record(change, Origin.CREATED, ids[change.topic])
                for change in done
                if change.kind is ChangeKind.CREATE
            ]
        )
        self._ledger.forget(each.topic for each in done if each.kind is ChangeKind.DELETE)
        for change in done:
            self._report_once(change)

    def _report_once(self, change: TopicChange) -> None:
        if change.topic not in self._reported:
            self._reported.add(change.topic)
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


def _missing(
    target: Target, changes: Sequence[TopicChange], failed: Mapping[str, TopicFailure]
) -> set[str]:
    """The topics that are not as planned, once every broker shows all that was accepted."""
    deadline = time.monotonic() + SEEN_SECONDS_MAX
    overtaken = {topic for topic, failure in failed.items() if failure.is_overtaken}
    missing = _missing_at(target, changes, failed.keys() - overtaken, overtaken, deadline)
    given_up = frozenset(missing)
    for broker in target.each_broker():
        # One that does not answer is on its way out: it is not waited for.
        with suppress(UnreachableError):
            missing |= _missing_at(broker, changes, given_up, frozenset(), deadline)
    return missing


def _missing_at(
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
        missing = {each.topic for each in changes if not each.is_done(cluster.rows(each.topic))}
        begun = {
            change.topic
            for change in changes
            if change.topic in overtaken and (cluster.rows(change.topic) or ()) != change.before
        }
        if missing <= given_up | begun or time.monotonic() > deadline:
            return missing
        time.sleep(POLL_SECONDS)
