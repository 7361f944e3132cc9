"""Making topics as their maps say: what `spu-assigner apply` does with a plan.

Rules: what Kafka refuses is reported, and all else goes on. A request that nobody answers ends the
run. A creation is recorded as intended before it is requested, and as done, by Kafka's id of the
topic, before it is reported. What counts is that a broker shows what was planned, not what was
answered, so that a lost answer or another run at the same time does no harm. Lists of existing
partitions are not changed here.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.clusters.moves.reassigning import MIN_IN_SYNC, Reassigner
from spu_assigner.stream.clusters.moves.runner import MovesRunner
from spu_assigner.stream.clusters.plan.applied import adopted, record_of
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.clusters.plan.model import (
    AppliedPlan,
    ChangeKind,
    TopicChange,
    TopicFailure,
    TopicsPlan,
)
from spu_assigner.stream.clusters.plan.rendering import (
    apply_lines,
    deletion_text,
    done_line,
    json_text,
    left_lines,
    move_lines,
    moves_json,
)
from spu_assigner.stream.clusters.plan.sources import PlanRequest, plan_now
from spu_assigner.stream.clusters.plan.target_cluster import Target
from spu_assigner.stream.common.printable import counted, listed

OTHERS_SECONDS_MAX: Final = 5.0  # for another run to record what it has made
POLL_SECONDS: Final = 0.05
SEEN_SECONDS_MAX: Final = 30.0  # from the controller's answer to what a broker shows: milliseconds
KNOWN_SECONDS_MAX: Final = 1.0  # until the first of new topics has its settings
CHANGES_MAX: Final = 50  # topics of a request that makes them: reported and recorded together
PARTITIONS_MAX: Final = 2_000  # of a request; Kafka's controller refuses 10,000 records at once


class NotConfirmedError(AssignerError):
    """Topics would be deleted, and nobody has said that they are to be."""


def apply_now(
    request: PlanRequest,
    saved: TopicsPlan | None,
    runner: MovesRunner | None,
    *,
    is_json: bool,
    is_sure: bool,
) -> int:
    """Apply what is planned now, or is left of a saved plan, and report; the exit status."""

    def report(change: TopicChange) -> None:
        if not is_json:
            click.echo(done_line(change))

    with request.target() as target:
        plan, found = plan_now(request, target, saved)
        if not is_sure:
            _confirm(plan.of(ChangeKind.DELETE))
        notes = found.notes
        found.ledger.record(notes.records)
        found.ledger.forget(notes.forgotten)
        found.ledger.record(adopted(plan, found.applied))
        applied = apply_plan(plan, target, found.ledger, report)
    moves = None if runner is None else runner.carry_out(plan.moved_partitions())
    applied = replace(
        applied,
        found=notes.topics(Origin.FOUND),
        released=notes.topics(Origin.RELEASED),
        moves=None if moves is None else moves_json(moves),
    )
    for line in [json_text(applied)] if is_json else apply_lines(applied):
        click.echo(line)
    left = [*left_lines(applied), *(() if moves is None else move_lines(moves))]
    for line in [*_warnings(applied, request), *left]:
        click.echo(f"apply: {line}", err=True)
    return 1 if left or not (moves is None or moves.is_whole) else 0


def _confirm(deletes: Sequence[TopicChange]) -> None:
    """Return if deletions are wanted, with all the data that they concern; raise if not."""
    if not deletes:
        return
    for change in deletes:
        click.echo(f"- {change.topic}  {deletion_text(change)}", err=True)
    records = sum(change.records or 0 for change in deletes)
    what = f"{counted(len(deletes), 'topic')} with {counted(records, 'record')}"
    if not sys.stdin.isatty():
        raise NotConfirmedError(
            f"{what} would be deleted, and there is no terminal to ask on; nothing was done. Give "
            "--yes to delete them"
        )
    if not click.confirm(f"Delete {what}?", err=True):
        raise NotConfirmedError(f"{what} are not to be deleted; nothing was done")


def _warnings(applied: AppliedPlan, request: PlanRequest) -> Iterator[str]:
    """What is wrong with the settings of topics that were created, or that the request names."""
    plan, configs = applied.plan, request.configs or {}
    lists = {**plan.unchanged, **{each.topic: each.after for each in plan.changes}}
    there = lists.keys() - {each.topic for each in applied.failed}
    topics = applied.created if request.configs is None else sorted(there)
    places = [(topic, name) for topic in topics for name in (MIN_IN_SYNC, *configs.get(topic, ()))]
    if not topics:
        return
    with Reassigner(request.ledger_connection()) as kafka:
        begun = time.monotonic()
        while True:  # A broker may not know a new topic yet; without the right none is known.
            found = kafka.settings(places, with_defaults=True)
            known = [found[topic, MIN_IN_SYNC] is not None for topic in topics]
            seconds = SEEN_SECONDS_MAX if any(known) else KNOWN_SECONDS_MAX
            if all(known) or time.monotonic() > begun + seconds:
                break
            time.sleep(POLL_SECONDS)
    few: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for topic in topics:
        least, factor = int(found[topic, MIN_IN_SYNC] or 0), min(map(len, lists[topic]))
        if factor <= least:
            few[factor, least].append(topic)
        for name, value in configs.get(topic, {}).items() if least else ():
            if found[topic, name] != value:
                yield (
                    f"warning: {topic}: {name} is {found[topic, name]} in Kafka and {value} in the "
                    "file; it stays: `kafka-configs --alter` changes it"
                )
    for (factor, least), names in few.items():
        refused, down = "producers with acks=all are refused", "while a broker of theirs is down,"
        what = f"{down} {refused}, and" if factor == least else f"{refused}; {down}"
        yield (
            f"warning: {listed(names)}: replication factor {factor}, {MIN_IN_SYNC} {least}: {what} "
            "drain and rebalance do not begin; raise the factor, or lower the setting"
        )


def apply_plan(
    plan: TopicsPlan,
    target: Target,
    ledger: AppliedLedger,
    report: Callable[[TopicChange], None] = lambda change: None,
) -> AppliedPlan:
    """Do all of a plan but its moves; each is reported as soon as one broker shows it. Where
    nothing can be recorded, or Kafka does not answer, nothing more is created."""
    run = _ApplyRun(plan.cluster_id, target, ledger, report)
    grows = [change for change in plan.of(ChangeKind.CHANGE) if change.added]
    created, grown, deleted = (
        run.request(changes)
        for changes in (plan.of(ChangeKind.CREATE), grows, plan.of(ChangeKind.DELETE))
    )
    run.settle()
    failed = tuple(run.failed[topic] for topic in sorted(run.failed))
    return AppliedPlan(plan=plan, created=created, grown=grown, deleted=deleted, failed=failed)


class _ApplyRun:
    """What is done is recorded, then reported."""

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
        self._overtaken: set[str] = set()  # topics that another run has made first

    def request(self, changes: Sequence[TopicChange]) -> tuple[str, ...]:
        """Make changes of one kind; the topics of those that a broker shows as made."""
        shown: list[str] = []
        for batch in _batches(changes):
            is_create = batch[0].kind is ChangeKind.CREATE
            if is_create:
                self._ledger.record([self._record(each, Origin.INTENT, None) for each in batch])
            failures = {each.topic: each for each in self._target.send(batch)}
            refused = {each.topic for each in failures.values() if not each.is_overtaken}
            if is_create:
                self._ledger.withdraw(each for each in failures if each in refused)
                self._overtaken |= failures.keys() - refused
            accepted = [each for each in batch if each.topic not in refused]
            ids = self._target.done(accepted, SEEN_SECONDS_MAX)
            done = [each for each in batch if each.topic in ids]
            if is_create:
                made = (each for each in done if each.topic not in failures)
                self._ledger.record(
                    [self._record(each, Origin.CREATED, ids[each.topic]) for each in made]
                )
            self._ledger.forget(each.topic for each in done if each.kind is ChangeKind.DELETE)
            for each in done:
                shown.append(each.topic)
                self._report(each)
            reason = f"Kafka accepted it, and shows something else after {SEEN_SECONDS_MAX:.0f} s"
            for each in batch:
                if each.topic not in ids:
                    unseen = TopicFailure(topic=each.topic, kind=each.kind, reason=reason)
                    self.failed[each.topic] = failures.get(each.topic, unseen)
        return tuple(shown)

    def settle(self) -> None:
        """Withdraw intents of topics that others have made. Another run's intent has the same key:
        it is left until that run has recorded its topic."""
        deadline = time.monotonic() + OTHERS_SECONDS_MAX
        while self._overtaken and time.monotonic() < deadline:
            if self._ledger.read().records.keys() >= self._overtaken:
                break
            time.sleep(POLL_SECONDS)
        self._ledger.withdraw(sorted(self._overtaken))

    def _record(self, change: TopicChange, origin: Origin, topic_id: str | None) -> AppliedTopic:
        topic, rows = change.topic, change.after
        return record_of(self._cluster_id, topic, origin, topic_id=topic_id, rows=rows)


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
