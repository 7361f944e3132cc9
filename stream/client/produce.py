"""`spu-assigner produce`: send events to Kafka, one by flags or many from JSON Lines.

Events go to the topic they belong to, keyed by cluster, and are acknowledged by all replicas. With
`--wait` the answers are shown too, read from before the first event was sent.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.events import (
    ClusterRebalance,
    Event,
    LeaveMode,
    OnShortage,
    Policy,
    SpuCordon,
    SpuDemote,
    SpuJoined,
    SpuLeft,
    SpuUncordon,
    SpuUndemote,
    TopicAdopted,
    TopicConstraints,
    TopicCreate,
    TopicDelete,
    TopicDemand,
    TopicGrow,
    TopicRelease,
    TopicReplication,
)
from spu_assigner.schemas.errors import DecodeError, EncodeError
from spu_assigner.stream.client.assignment_file import read_assignment
from spu_assigner.stream.client.produce_options import (
    constraints,
    labels,
    lists_of,
    taints,
    with_kept,
)
from spu_assigner.stream.common.json_line_reading import chunks_of_lines, event_of_line
from spu_assigner.stream.kafka.config.command_options import (
    BYTE_SIZE,
    FILE,
    Command,
    amounts,
    broker_options,
    output_option,
    reading,
)
from spu_assigner.stream.kafka.config.connection import Connection

if TYPE_CHECKING:
    from spu_assigner.stream.client.pending_answers import Awaited
    from spu_assigner.stream.kafka.client import Received, SentMessage
    from spu_assigner.stream.kafka.config.command_options import Form


WAIT_SECONDS: Final = 30.0  # a job that has just been started answers within it
NOT_ANSWERED: Final = 3  # exit status
IDS_NAMED: Final = 5  # of the unanswered, in the message


@click.group()
def produce() -> None:
    """Send events to Kafka.

    Exit status: 0 sent (and, with --wait, granted); 1 not sent, refused or ignored; 2 wrong usage;
    3 not answered in time.
    """


def _sending(command: Command) -> Command:
    """The options of every command here."""
    wait = click.option(
        "--wait",
        is_flag=False,
        flag_value=WAIT_SECONDS,
        default=None,
        type=click.FloatRange(min=0, min_open=True, max=86_400),
        metavar="[SECONDS]",
        help=f"Wait for the answer and show it, {WAIT_SECONDS:.0f} s unless said otherwise.",
    )
    return wait(output_option(broker_options(command)))


def _common(command: Command) -> Command:
    """The fields of every event."""
    cluster = click.option("--cluster", "cluster_id", required=True, help="The cluster.")
    event_id = click.option(
        "--event-id",
        default=lambda: str(uuid.uuid4()),
        help="An id of its own; an event whose id was seen is not answered again. "
        "[default: a random UUID]",
    )
    return cluster(event_id(_sending(command)))


_spu = click.option("--spu-id", type=int, required=True, help="The SPU.")
_topic = click.option("--topic", required=True, help="The topic.")


@produce.command("spu-joined")
@_spu
@click.option("--rack", help="Its rack.")
@click.option("--cores", type=int, help="Its cores.  [default: 1]")
@click.option("--capacity", type=int, help="Its replica slots. [default: cores * 7000 - 2]")
@labels
@amounts("--resources", "What it has of a resource beside replica slots.")
@taints
@click.option(
    "--keep",
    is_flag=True,
    help="What is not named stays as announced last, by spu-events and assigner-state.",
)
@_common
def spu_joined(keep: bool, **given: Any) -> int:
    """An SPU is there: new, changed, or back.

    A join describes its SPU whole: without --keep, an SPU that is known loses the labels, taints,
    resources, rack and capacity that are not named here. The answer (--wait) names what it lost.
    """
    if keep:
        given |= with_kept(given)
    elif given["cores"] is None:
        given["cores"] = 1
    return _send_one(SpuJoined, given)


@produce.command("spu-left")
@_spu
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in LeaveMode]),
    default=LeaveMode.OFFLINE.value,
    show_default=True,
    help="offline: it keeps its replicas; decommission: replica maps use it no longer. Its broker "
    "holds them until they are moved: `apply --moves`, or `drain` for all of it.",
)
@_common
def spu_left(mode: str, **given: Any) -> int:
    """An SPU is gone, for a while or for good.

    With --mode decommission --wait, status 0 says that no replica map uses the SPU. It does not say
    that its broker may be switched off: Kafka moves no replica by itself.
    """
    return _send_one(SpuLeft, {**given, "mode": LeaveMode(mode)})


@produce.command("spu-cordon")
@_spu
@_common
def spu_cordon(**given: Any) -> int:
    """An SPU is to take no new replicas until it is uncordoned; it keeps what it has."""
    return _send_one(SpuCordon, given)


@produce.command("spu-uncordon")
@_spu
@_common
def spu_uncordon(**given: Any) -> int:
    """A cordoned SPU may take new replicas again."""
    return _send_one(SpuUncordon, given)


@produce.command("spu-demote")
@_spu
@_common
def spu_demote(**given: Any) -> int:
    """An SPU is to lead nothing where another can, until it is undemoted."""
    return _send_one(SpuDemote, given)


@produce.command("spu-undemote")
@_spu
@_common
def spu_undemote(**given: Any) -> int:
    """A demoted SPU may lead again; a rebalance gives it leads."""
    return _send_one(SpuUndemote, given)


@produce.command("topic-create")
@_topic
@click.option("--partitions", type=int, default=1, show_default=True)
@click.option("--replication-factor", type=int, default=1, show_default=True)
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in Policy]),
    help="[default: the job's; manual with --replica-assignment]",
)
@click.option(
    "--replica-assignment",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Manual replica lists: a JSON list of {id, replicas}, or {partitions: that list}.",
)
@click.option("--validate-only", is_flag=True, help="Show the map, assign nothing.")
@click.option(
    "--on-shortage",
    type=click.Choice([choice.value for choice in OnShortage]),
    default=OnShortage.REJECT.value,
    show_default=True,
    help="What to do while there are too few SPUs.",
)
@amounts("--demand", "What each replica of a partition needs of a resource.")
@constraints()
@_common
def topic_create(
    policy: str | None, replica_assignment: Path | None, on_shortage: str, **given: Any
) -> int:
    """Request a new topic."""
    return _send_one(
        TopicCreate,
        {
            **given,
            "policy": None if policy is None else Policy(policy),
            "replicas": None if replica_assignment is None else read_assignment(replica_assignment),
            "on_shortage": OnShortage(on_shortage),
        },
    )


@produce.command("topic-delete")
@_topic
@_common
def topic_delete(**given: Any) -> int:
    """A topic is no longer wanted."""
    return _send_one(TopicDelete, given)


@produce.command("topic-release")
@_topic
@_common
def topic_release(**given: Any) -> int:
    """A topic is to be forgotten; its data stay in Kafka."""
    return _send_one(TopicRelease, given)


@produce.command("topic-adopted")
@_topic
@click.option(
    "--replicas",
    required=True,
    callback=lists_of,
    metavar="0:1,1:2:0",
    help="The SPU ids of each partition, leader first; partitions by commas, SPUs by colons.",
)
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in Policy]),
    help="What it grows by. [default: the job's; of a known topic its own]",
)
@click.option("--pinned", is_flag=True, help="Rebalances leave it where it is.")
@amounts("--demand", "What each replica of a partition needs of a resource.  [default: as known]")
@_common
def topic_adopted(policy: str | None, **given: Any) -> int:
    """A topic is in Kafka already, as it is; nothing moves because of it."""
    return _send_one(TopicAdopted, {**given, "policy": None if policy is None else Policy(policy)})


@produce.command("topic-grow")
@_topic
@click.option("--partitions", type=int, required=True, help="The new total.")
@_common
def topic_grow(**given: Any) -> int:
    """A topic is to have more partitions."""
    return _send_one(TopicGrow, given)


@produce.command("topic-replication")
@_topic
@click.option("--replication-factor", type=int, required=True, help="Replicas of each partition.")
@_common
def topic_replication(**given: Any) -> int:
    """Each partition of a topic is to have more or fewer replicas."""
    return _send_one(TopicReplication, given)


@produce.command("topic-demand")
@_topic
@amounts("--demand", "What each replica of a partition needs of a resource.", required=True)
@_common
def topic_demand(**given: Any) -> int:
    """A topic needs other amounts of resources than was known; no replica moves because of it."""
    return _send_one(TopicDemand, given)


@produce.command("topic-constraints")
@_topic
@constraints(required=True)
@_common
def topic_constraints(**given: Any) -> int:
    """A topic demands something else of its SPUs from now on ({}: nothing); no replica moves."""
    return _send_one(TopicConstraints, given)


@produce.command("cluster-rebalance")
@click.option("--max-moves", type=int, required=True, help="Replicas that may move, at most.")
@click.option("--max-bytes", type=BYTE_SIZE, help="Bytes that may move, at most, such as 50GB.")
@click.option("--band-percent", type=int, help="Above the fair dominant share.  [default: 5]")
@click.option("--band", type=int, help="Replicas from the fair share, 0 or 1.  [default: 1]")
@_common
def cluster_rebalance(**given: Any) -> int:
    """A cluster is to be evened out."""
    return _send_one(ClusterRebalance, given)


@produce.command("events")
@click.argument("file", type=FILE)
@_sending
def events(file: Path, connection: Connection, output: Form, wait: float | None) -> int:
    """Send the events of FILE (- for standard input), JSON Lines as for `simulate`.

    A line that is no event is reported with its number, and the others are sent; the exit status is
    1 then. To name no time with --wait, put FILE first.
    """
    with reading(file) as source:
        return _send(_events_of(source), connection, output, wait)


def _events_of(source: BinaryIO) -> Iterator[tuple[str, Event | None]]:
    """Each event with the name of its line; None for one that was reported as bad."""
    number = 0
    for lines in chunks_of_lines(source):
        for line in lines:
            number += 1
            try:
                event = event_of_line(line)
            except DecodeError as error:
                _complain(f"line {number}: {error.message}")
                yield f"line {number}", None
            else:
                if event is not None:
                    yield f"line {number}", event


def _send_one(kind: Callable[..., Event], given: dict[str, Any]) -> int:
    connection, output, wait = (given.pop(name) for name in ("connection", "output", "wait"))
    try:
        event = kind(occurred_at=time.time_ns() // 1_000_000, **given)
    except InvalidEventError as error:
        raise click.UsageError(str(error)) from error
    return _send([("the event", event)], connection, output, wait)


def _send(
    named: Iterable[tuple[str, Event | None]],
    connection: Connection,
    output: Form,
    wait: float | None,
) -> int:
    """Send, and wait if asked to; returns the exit status."""
    from spu_assigner.stream.client.pending_answers import ANSWER_TOPICS, Awaited
    from spu_assigner.stream.client.rendering import received_line, sent_line
    from spu_assigner.stream.kafka.client import Reader, Sender

    failures = 0
    awaited = Awaited()

    def report_sent(sent: SentMessage) -> None:
        nonlocal failures
        if wait is not None:
            awaited.sent(sent)
        if sent.error is None:
            click.echo(sent_line(sent, output))
        else:
            failures += 1
            _complain(f"event {sent.event_id} was not sent: {sent.error}")

    def report_received(received: Received) -> None:
        click.echo(received_line(received, output))

    with ExitStack() as stack:
        sender = Sender(connection, report_sent)
        # Made before anything is sent, so that it sees every answer.
        reader = None
        if wait is not None:
            reader = stack.enter_context(Reader(connection, ANSWER_TOPICS))
        for name, event in named:
            if event is None:
                failures += 1
                continue
            if wait is not None:
                awaited.expect(event)
            try:
                sender.send(event)
            except EncodeError as error:
                failures += 1
                awaited.give_up(event.event_id)
                _complain(f"{name}: {error}")
        sender.flush()
        in_time = reader is None or awaited.wait(reader, seconds=wait or 0, report=report_received)
    for cluster_id, spu_ids in awaited.drained.items():
        _complain(_drained(cluster_id, spu_ids))
    if not in_time:
        _complain(_not_answered(awaited, wait or 0, connection))
        return NOT_ANSWERED
    return 1 if failures or awaited.refused else 0


def _not_answered(awaited: Awaited, seconds: float, connection: Connection) -> str:
    from spu_assigner.stream.kafka.open_transactions import why_unanswered

    names = awaited.unanswered or awaited.waiting
    named = ", ".join(names[:IDS_NAMED]) + (", …" if len(names) > IDS_NAMED else "")
    if not awaited.unanswered:
        return f"still waiting for SPUs or slots after {seconds:g} s: {named}; they stay in line"
    return (
        f"not answered within {seconds:g} s: {named}; {why_unanswered(connection)} "
        "The job answers what was sent also when it starts later. An event whose id was used "
        "before is not answered"
    )


def _drained(cluster_id: str, spu_ids: list[int]) -> str:
    """What is true of SPUs that left the maps, and what is still to do."""
    named = ", ".join(map(str, spu_ids[:IDS_NAMED])) + (", …" if len(spu_ids) > IDS_NAMED else "")
    return (
        f"cluster {cluster_id}: replica maps no longer use SPU {named}; in Kafka its replicas stay "
        "on the broker until they are moved: run `spu-assigner drain "
        f"{spu_ids[0]} --cluster {cluster_id}`, which moves all that the broker holds, Kafka's own "
        "topics included, and switch the broker off when it ends with 0"
    )


def _complain(message: str) -> None:
    click.echo(f"spu-assigner produce: {message}", err=True)
