"""What `plan` and `apply` do with `--desired`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from spu_assigner.core.base.events import (
    Event,
    TopicConstraints,
    TopicCreate,
    TopicGrow,
    TopicReplication,
)
from spu_assigner.core.base.limits import PRODUCT_NAMES
from spu_assigner.schemas.json_lines.lines import event_to_json
from spu_assigner.stream.client.sending import send_events
from spu_assigner.stream.clusters.desired.decision import DesiredEvents, desired_events
from spu_assigner.stream.clusters.desired.topics_file import DesiredFileError, read_desired
from spu_assigner.stream.common.printable import counted, listed, printable
from spu_assigner.stream.job.shard.published import read_cluster_state
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin

if TYPE_CHECKING:
    from spu_assigner.stream.kafka.config.command_options import Form

_KINDS: Final[dict[type[Event], str]] = {
    TopicCreate: "to create",
    TopicGrow: "to grow",
    TopicReplication: "to replicate otherwise",
    TopicConstraints: "to constrain otherwise",
}


def find_desired(
    file: Path, cluster_id: str, *, connection: Connection, target: Connection
) -> DesiredEvents:
    """What makes the topics as those of the file, now; faults of the file end the command."""
    try:
        desired = read_desired(file, cluster_id)
    except DesiredFileError as error:
        click.echo("\n".join(error.faults), err=True)
        raise click.exceptions.Exit(1) from error
    state = read_cluster_state(connection, cluster_id)
    reserved = frozenset(f"{connection.prefix}{name}" for name in PRODUCT_NAMES)
    in_kafka = topics_of(target) - state.topics.keys()
    found = desired_events([*desired], state, in_kafka=in_kafka, reserved=reserved)
    found.configs = {create.topic: config for create, config in desired.items()}
    return found


def topics_of(connection: Connection) -> set[str]:
    """The topics that Kafka has."""
    with DiagnosedAdmin(connection.client()) as admin:
        return {name for name, topic in admin.metadata().topics.items() if topic.partitions}


def plan_desired(found: DesiredEvents, cluster_id: str, *, is_json: bool) -> int:
    """Show what would be sent; returns the exit status of `plan`."""
    text = json.dumps(desired_json(cluster_id, found), separators=(",", ":"))
    for line in [text] if is_json else desired_lines(found):
        click.echo(line)
    return 1 if found.refused else 2 if found.changes else 0


def apply_desired(
    found: DesiredEvents, connection: Connection, *, is_json: bool, wait: float
) -> int:
    """Send what `plan` shows, and wait for the answers; returns the exit status of `apply`."""
    output: Form = "json" if is_json else "table"
    if not (found.changes or is_json):
        return plan_desired(found, "", is_json=False)
    for topic, reason in found.refused.items():
        click.echo(f"apply: {topic}: {reason}", err=True)
    named = [(event.event_id, event) for event in found.events]
    status = send_events(named, connection=connection, output=output, wait=wait, program="apply")
    return status or (1 if found.refused else 0)


def desired_json(cluster_id: str, found: DesiredEvents) -> dict[str, object]:
    """What was found, for programs."""
    reasons = {"refused": found.refused, "waiting": found.waiting}
    return {
        "cluster_id": cluster_id,
        "events": [json.loads(event_to_json(event)) for event in found.events],
        **{
            name: [{"topic": topic, "reason": reason} for topic, reason in each.items()]
            for name, each in reasons.items()
        },
        "extra": found.extra,
        "unchanged": found.unchanged,
    }


def desired_lines(found: DesiredEvents) -> Iterator[str]:
    """A line for each topic that is not as desired, and the sum."""
    for event, about in found.changes:
        yield f"{'+' if isinstance(event, TopicCreate) else '~'} {event.topic}  {about}"
    yield from (f"! {topic}  {reason}" for topic, reason in found.refused.items())
    yield from (f"? {topic}  {reason}" for topic, reason in found.waiting.items())
    if found.extra:
        yield f". {printable(listed(found.extra))}  in the cluster and not in the file; left alone"
    if found.unchanged:
        yield f"= {counted(found.unchanged, 'topic')} mapped as desired"
    counts = Counter(type(event) for event in found.events)
    parts = [(counts[kind], what) for kind, what in _KINDS.items()]
    parts += [
        (len(found.refused), "that cannot be as desired"),
        (len(found.waiting), "waiting"),
        (len(found.extra), "not in the file"),
    ]
    total = ", ".join(f"{number} {what}" for number, what in parts if number)
    yield total if found.changes else f"nothing to do{total and ': '}{total}"
