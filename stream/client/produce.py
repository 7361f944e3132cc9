"""`spu-assigner produce`: send events to Kafka, one by flags or many from JSON Lines.

Events go to the topic they belong to, keyed by cluster, and are acknowledged by all replicas. With
`--wait` the answers are shown too, read from before the first event was sent.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
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
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.stream.client.assignment_file import read_assignment
from spu_assigner.stream.client.produce_options import (
    constraints,
    labels,
    lists_of,
    taints,
    with_kept,
)
from spu_assigner.stream.client.sending import WAIT_SECONDS, send_events
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
    from spu_assigner.stream.kafka.config.command_options import Form


PROGRAM: Final = "spu-assigner produce"


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
        return send_events(
            _events_of(source), connection=connection, output=output, wait=wait, program=PROGRAM
        )


def _events_of(source: BinaryIO) -> Iterator[tuple[str, Event | None]]:
    """Each event with the name of its line; None for one that was reported as bad."""
    number = 0
    for lines in chunks_of_lines(source):
        for line in lines:
            number += 1
            try:
                event = event_of_line(line)
            except DecodeError as error:
                click.echo(f"{PROGRAM}: line {number}: {error.message}", err=True)
                yield f"line {number}", None
            else:
                if event is not None:
                    yield f"line {number}", event


def _send_one(kind: Callable[..., Event], given: dict[str, Any]) -> int:
    options = {name: given.pop(name) for name in ("connection", "output", "wait")}
    try:
        event = kind(occurred_at=time.time_ns() // 1_000_000, **given)
    except InvalidEventError as error:
        raise click.UsageError(str(error)) from error
    return send_events([("the event", event)], **options, program=PROGRAM)
