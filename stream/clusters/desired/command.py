"""What `plan` and `apply` do with `--desired`, or with a plan that was saved of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.consistency_check import faults
from spu_assigner.stream.clusters.desired.asking import without_rejected
from spu_assigner.stream.clusters.desired.decision import (
    DesiredChanges,
    desired_changes,
    event_of,
    reserved_names,
)
from spu_assigner.stream.clusters.desired.known import (
    KafkaLook,
    known_topics,
    read_answered,
    read_seen,
    read_state,
)
from spu_assigner.stream.clusters.desired.model import DesiredTopic, SeenTopics
from spu_assigner.stream.clusters.desired.rendering import (
    DesiredPlan,
    SavedDesiredPlan,
    desired_json,
    desired_lines,
    require_planned,
)
from spu_assigner.stream.clusters.desired.topics_file import (
    DesiredFileError,
    UnreadableTopicsError,
    read_desired,
)
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.connection_diagnosis import UnreachableError

if TYPE_CHECKING:
    from spu_assigner.stream.clusters.desired.sending import SendReport

NOT_ANSWERED: Final = 3  # exit status, as that of `produce --wait`
IDS_NAMED: Final = 5


class UnseenKafkaError(AssignerError):
    """The topics in Kafka cannot be looked at, so nothing is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRequest:
    """What is to be compared."""

    connection: Connection  # to the job's topics
    cluster_id: str
    look: Callable[[], KafkaLook]  # at the Kafka cluster that holds the topics

    def plan(
        self, topics: tuple[DesiredTopic, ...], *, must_see_kafka: bool, is_decided: bool = False
    ) -> DesiredPlan:
        """What makes the cluster's topics as these, now.

        Args:
            must_see_kafka: fail where topics in Kafka cannot be looked at; else that is a warning.
            is_decided: leave what is to be accepted to the job; else the core is asked, with the
                state as it is published.

        Raises:
            ClientError, DamagedOutputError, ClusterUnknownError: the job's topics cannot be read.
            UnseenKafkaError: the topics in Kafka cannot be looked at, and must be.
        """
        state = read_state(self.connection, self.cluster_id)
        seen = self._seen(topics, must_see_kafka=must_see_kafka)
        prefix = self.connection.prefix
        found = desired_changes(self.cluster_id, topics, known_topics(state), seen, prefix=prefix)
        if found.changes and not is_decided:
            found = self._without_rejected(found, state)
        names = {change.event.topic for change in found.changes}
        answered = read_answered(self.connection, self.cluster_id, names)
        return DesiredPlan(
            cluster_id=self.cluster_id,
            topics=topics,
            found=found,
            events=tuple(event_of(change, answered) for change in found.changes),
            has_seen_kafka=seen is not None,
        )

    def _without_rejected(self, found: DesiredChanges, state: ClusterState) -> DesiredChanges:
        """What the job accepts; a state that it changed while it was read is not asked."""
        if fault := next(faults(state), None):
            click.echo(
                f"warning: not asked whether the job accepts it: its state changed meanwhile "
                f"({fault}); run this again",
                err=True,
            )
            return found
        return without_rejected(found, state, reserved=reserved_names(self.connection.prefix))

    def _seen(self, topics: tuple[DesiredTopic, ...], *, must_see_kafka: bool) -> SeenTopics | None:
        """What Kafka has; None, with a warning, where it cannot be reached and need not be."""
        try:
            return read_seen(self.look(), topics)
        except UnreachableError as reason:
            if must_see_kafka:
                raise UnseenKafkaError(
                    f"nothing was sent: {reason}; the topics in Kafka must be seen, since one that "
                    "is there without a map is not to be created"
                ) from reason
            cause = str(reason).partition("; ")[0]
            click.echo(f"warning: topics in Kafka were not looked at: {cause}", err=True)
            return None


def plan_desired(
    request: DesiredRequest,
    file: Path,
    *,
    is_json: bool,
    out: Path | None,
    write: Callable[[Path, dict[str, Any]], None],
) -> int:
    """Show what would be sent; returns the exit status of `plan`."""
    topics = _read(file)
    if topics is None:
        return 1
    plan = request.plan(topics, must_see_kafka=False)
    document = desired_json(plan)
    if out is not None:
        write(out, document)
    if is_json:
        click.echo(json.dumps(document, separators=(",", ":")))
    else:
        for line in desired_lines(plan):
            click.echo(line)
    if plan.found.refused:
        return 1
    return 2 if plan.events else 0


def _read(file: Path) -> tuple[DesiredTopic, ...] | None:
    """The topics of a file; None: why not was reported, all of its faults with a line for each."""
    try:
        return read_desired(file)
    except UnreadableTopicsError as error:
        click.echo(f"{click.get_current_context().command_path}: {error}", err=True)
        return None
    except DesiredFileError as error:
        for fault in error.faults:
            click.echo(fault, err=True)
        return None


def apply_desired(
    request: DesiredRequest,
    source: Path | SavedDesiredPlan,
    *,
    seconds: float,
    is_json: bool,
) -> int:
    """Send what makes the cluster's topics as desired, and wait for the answers.

    Args:
        source: the file of desired topics, or a plan that was made of it.

    Returns the exit status of `apply`.
    """
    from spu_assigner.stream.client.rendering import received_line, sent_line
    from spu_assigner.stream.clusters.desired.sending import AnswerReader, SendReport

    topics = source.topics if isinstance(source, SavedDesiredPlan) else _read(source)
    if topics is None:
        return 1
    answers: list[Any] = []
    with AnswerReader(request.connection) as answering:
        # Of a file the job decides: it may know of SPUs whose joins were sent before.
        is_decided = not isinstance(source, SavedDesiredPlan)
        plan = request.plan(topics, must_see_kafka=True, is_decided=is_decided)
        if isinstance(source, SavedDesiredPlan):
            require_planned(plan, source)
        report = SendReport(sent=(), failed=(), refused=0, unanswered=())
        if plan.events:
            report = answering.send_all(
                plan.events,
                seconds=seconds,
                report_sent=lambda sent: None if is_json else click.echo(sent_line(sent, "table")),
                report_received=lambda found: (
                    answers.append(json.loads(received_line(found, "json")))
                    if is_json
                    else click.echo(received_line(found, "table"))
                ),
            )
    if is_json:
        click.echo(json.dumps(_report_json(plan, report, answers), separators=(",", ":")))
    elif not plan.events:
        for line in desired_lines(plan):
            click.echo(line)
    return _report_rest(plan, report, request.connection, seconds=seconds, is_json=is_json)


def _report_json(plan: DesiredPlan, report: SendReport, answers: list[Any]) -> dict[str, Any]:
    refused = [{"topic": each.topic, "reason": each.reason} for each in plan.found.refused]
    return {
        "cluster_id": plan.cluster_id,
        "sent": report.sent,
        "failed": report.failed,
        "unanswered": report.unanswered,
        "rejected": report.refused,
        "refused": refused,
        "unchanged": plan.found.unchanged,
        "answers": answers,
    }


def _report_rest(
    plan: DesiredPlan,
    report: SendReport,
    connection: Connection,
    *,
    seconds: float,
    is_json: bool,
) -> int:
    """Report what was not done, and return the exit status."""
    from spu_assigner.stream.kafka.open_transactions import why_unanswered

    for failure in report.failed:
        click.echo(f"apply: {failure}; run it again", err=True)
    if plan.events and not is_json:
        for each in plan.found.refused:
            click.echo(f"apply: {each.topic}: {each.reason}", err=True)
    if report.unanswered:
        named = ", ".join(report.unanswered[:IDS_NAMED])
        more = ", …" if len(report.unanswered) > IDS_NAMED else ""
        click.echo(
            f"apply: not answered within {seconds:g} s: {named}{more}; "
            f"{why_unanswered(connection)} Run this again: what was sent is not done twice",
            err=True,
        )
        return NOT_ANSWERED
    return 1 if report.failed or report.refused or plan.found.refused else 0
