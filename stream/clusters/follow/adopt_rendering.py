"""What `adopt` prints, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from spu_assigner.core.base.events import TopicAdopted
from spu_assigner.core.base.resources import BYTES
from spu_assigner.schemas.json_lines.lines import event_to_json
from spu_assigner.stream.clusters.follow.adopt import AdoptReport
from spu_assigner.stream.clusters.follow.adoption import AdoptionDecision
from spu_assigner.stream.clusters.follow.rendering import join_text, size_text
from spu_assigner.stream.clusters.plan.model import TopicReason
from spu_assigner.stream.common.printable import counted, printable
from spu_assigner.stream.common.quantities import bytes_text


def dry_run_lines(report: AdoptReport) -> Iterator[str]:
    """What would be sent, a line for each event; and what would not, and why."""
    decision = report.decision
    yield from (f"+ SPU {join.spu_id}  {join_text(join)}" for join in report.joins)
    for event in decision.adopted:
        revision = decision.revisions.get(event.topic)
        why = "has no map" if revision is None else f"differs from revision {revision} of its map"
        if event.topic in decision.resized:
            why = f"holds other bytes than revision {revision} of its map says"
        yield f"{'+' if revision is None else '~'} {event.topic}  {size_text(event)}: {why}"
    yield from (f"- {event.topic}  gone from Kafka: is released" for event in decision.released)
    yield from _problem_lines(report)
    yield from (f"? {each.topic}  {each.reason}" for each in decision.pending)
    parts = [
        counted(len(report.joins), "broker") + " to join",
        counted(len(decision.adopted), "topic") + " to adopt" + _bytes_text(decision.adopted),
        *([f"{len(decision.released)} to release"] if decision.released else []),
        *_other_counts(decision),
    ]
    yield ("nothing to do: " if report.is_nothing_to_do else "") + ", ".join(parts)


def report_lines(report: AdoptReport) -> Iterator[str]:
    """What was done, and what was not, and why."""
    rejected = {each.topic for each in report.rejected}
    for join in report.joins:
        if f"SPU {join.spu_id}" not in rejected:
            yield f"joined  SPU {join.spu_id}: {join_text(join)}"
    yield from _problem_lines(report)
    parts = [
        counted(len(report.adopted), "topic") + " adopted" + _bytes_text(_done(report)),
        *([f"{len(report.released)} released"] if report.released else []),
        *([f"{report.unanswered} not answered"] if report.unanswered else []),
        *([f"{len(report.rejected)} rejected"] if report.rejected else []),
        *_other_counts(report.decision),
    ]
    yield ", ".join(parts)


def report_json(report: AdoptReport, *, dry_run: bool) -> dict[str, object]:
    """The same for programs; the events as `simulate` reads them."""
    decision = report.decision
    given: list[Any] = [*report.joins, *decision.events]
    return {
        "kafka_cluster": report.kafka_cluster,
        "dry_run": dry_run,
        "events": [json.loads(event_to_json(event)) for event in given],
        "joined": [] if dry_run else [join.spu_id for join in report.joins],
        "adopted": report.adopted,
        "released": report.released,
        "rejected": _reasons(report.rejected),
        "changed": _reasons(report.changed),
        "unanswered": report.unanswered,
        "sized": _sized(decision.adopted if dry_run else _done(report)),
        "as_mapped": len(decision.equal),
        "pending": _reasons(decision.pending),
        "left": _reasons(decision.left),
        "gone": decision.gone,
    }


def _done(report: AdoptReport) -> list[TopicAdopted]:
    topics = set(report.adopted)
    return [event for event in report.decision.adopted if event.topic in topics]


def _sized(events: Sequence[TopicAdopted]) -> dict[str, int]:
    """How many topics say their bytes, and these in all their replicas."""
    sizes = [
        event.demand[BYTES] * sum(map(len, event.replicas))
        for event in events
        if event.demand and BYTES in event.demand
    ]
    return {"topics": len(sizes), BYTES: sum(sizes)}


def _bytes_text(events: Sequence[TopicAdopted]) -> str:
    sized = _sized(events)
    if not sized["topics"]:
        return ""
    return f" ({sized['topics']:,} with their bytes: {bytes_text(sized[BYTES])} in all replicas)"


def _problem_lines(report: AdoptReport) -> Iterator[str]:
    for each in (*report.decision.left, *report.rejected, *report.changed):
        yield f"! {each.topic}  {printable(each.reason)}"
    if not any(each.topic in report.decision.gone for each in report.decision.released):
        for topic in report.decision.gone:
            yield f". {topic}  is gone from Kafka; --forget-gone releases it"


def _other_counts(decision: AdoptionDecision) -> list[str]:
    counts = (
        (len(decision.equal), "as mapped before"),
        (len(decision.pending), "changed here, for `apply` to carry out"),
        (len(decision.left), "left alone"),
        (len(decision.gone) - len(decision.released), "gone"),
    )
    return [f"{count} {what}" for count, what in counts if count]


def _reasons(reasons: Sequence[TopicReason]) -> list[dict[str, str]]:
    return [{"topic": each.topic, "reason": each.reason} for each in reasons]
