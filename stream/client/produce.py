"""`spu-assigner produce`: send events to Kafka, one by flags or many from JSON Lines.

Events go to the topic they belong to, keyed by cluster, and are acknowledged by all replicas. With
`--wait` the answers are shown too, read from before the first event was sent.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, get_args

import click
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.stream.client.assignment_file import read_assignment
from spu_assigner.stream.client.produce_options import (
    Option,
    choice,
    constraints,
    labels,
    lists,
    manual_lists,
    taints,
    with_kept,
)
from spu_assigner.stream.client.sending import WAIT_SECONDS, send_events
from spu_assigner.stream.common.json_line_reading import chunks_of_lines, event_of_line
from spu_assigner.stream.kafka.config.command_options import (
    BYTE_SIZE,
    FILE,
    amounts,
    broker_options,
    output_option,
    reading,
)
from spu_assigner.stream.kafka.config.connection import Connection

if TYPE_CHECKING:
    from spu_assigner.stream.kafka.config.command_options import Form


PROGRAM: Final = "spu-assigner produce"
_KINDS: Final[dict[str, Callable[..., Event]]] = {  # `SpuJoined` is sent by `spu-joined`
    re.sub(r"\B(?=[A-Z])", "-", kind.__name__).lower(): kind for kind in get_args(Event)
}
_CALL: Final[tuple[Option, ...]] = (  # the options of every command here
    click.option(
        "--wait",
        is_flag=False,
        flag_value=WAIT_SECONDS,
        default=None,
        type=click.FloatRange(min=0, min_open=True, max=86_400),
        metavar="[SECONDS]",
        help=f"Wait for the answer and show it, {WAIT_SECONDS:.0f} s unless said otherwise.",
    ),
    output_option,
    broker_options,
)
_COMMON: Final[tuple[Option, ...]] = (  # the fields of every event
    click.option("--cluster", "cluster_id", required=True, help="The cluster."),
    click.option(
        "--event-id",
        default=lambda: str(uuid.uuid4()),
        help="An id of its own; an event whose id was seen is not answered again. "
        "[default: a random UUID]",
    ),
)
_SPU: Final = click.option("--spu-id", type=int, required=True, help="The SPU.")
_TOPIC: Final = click.option("--topic", required=True, help="The topic.")
_NEED: Final = "What each replica of a partition needs of a resource."


@click.group()
def produce() -> None:
    """Send events to Kafka.

    Exit status: 0 sent (and, with --wait, granted); 1 not sent, refused or ignored; 2 wrong usage;
    3 not answered in time.
    """


def _command(name: str, about: str, *options: Option) -> None:
    """Add the command that sends one event; its options give the event's fields."""

    def send(connection: Connection, output: Form, wait: float | None, **given: Any) -> int:
        if given.pop("keep", False):
            given |= with_kept(connection, given)
        if isinstance(file := given.get("replicas"), Path):
            given["replicas"] = read_assignment(file)
        named = {field: value for field, value in given.items() if value is not None}
        try:
            event = _KINDS[name](occurred_at=time.time_ns() // 1_000_000, **named)
        except InvalidEventError as error:
            raise click.UsageError(str(error)) from error
        return send_events(
            [("the event", event)], connection=connection, output=output, wait=wait, program=PROGRAM
        )

    command: Callable[..., Any] = send
    for option in reversed((*options, *_COMMON, *_CALL)):
        command = option(command)
    produce.command(name, help=about)(command)


_command(
    "spu-joined",
    """An SPU is there: new, changed, or back.

    A join describes its SPU whole: without --keep, an SPU that is known loses the labels, taints,
    resources, rack and capacity that are not named here. The answer (--wait) names what it lost.
    """,
    _SPU,
    click.option("--rack", help="Its rack."),
    click.option("--cores", type=int, help="Its cores.  [default: 1]"),
    click.option("--capacity", type=int, help="Its replica slots. [default: cores * 7000 - 2]"),
    labels,
    amounts("--resources", "What it has of a resource beside replica slots."),
    taints,
    click.option(
        "--keep",
        is_flag=True,
        help="What is not named stays as announced last, by spu-events and assigner-state.",
    ),
)
_command(
    "spu-left",
    """An SPU is gone, for a while or for good.

    With --mode decommission --wait, status 0 says that no replica map uses the SPU. It does not say
    that its broker may be switched off: Kafka moves no replica by itself.
    """,
    _SPU,
    choice(
        "--mode",
        LeaveMode,
        default=LeaveMode.OFFLINE.value,
        help="offline: it keeps its replicas; decommission: replica maps use it no longer. Its "
        "broker holds them until they are moved: `apply --moves`, or `drain` for all of it.",
    ),
)
_command(
    "spu-cordon",
    "An SPU is to take no new replicas until it is uncordoned; it keeps what it has.",
    _SPU,
)
_command("spu-uncordon", "A cordoned SPU may take new replicas again.", _SPU)
_command("spu-demote", "An SPU is to lead nothing where another can, until it is undemoted.", _SPU)
_command("spu-undemote", "A demoted SPU may lead again; a rebalance gives it leads.", _SPU)
_command(
    "topic-create",
    "Request a new topic.",
    _TOPIC,
    click.option("--partitions", type=int, default=1, show_default=True),
    click.option("--replication-factor", type=int, default=1, show_default=True),
    choice("--policy", Policy, help="[default: the job's; manual with --replica-assignment]"),
    manual_lists,
    click.option("--validate-only", is_flag=True, help="Show the map, assign nothing."),
    choice(
        "--on-shortage",
        OnShortage,
        default=OnShortage.REJECT.value,
        help="What to do while there are too few SPUs.",
    ),
    amounts("--demand", _NEED),
    constraints(),
)
_command("topic-delete", "A topic is no longer wanted.", _TOPIC)
_command(
    "topic-release",
    "A topic is to be forgotten; its data stay in Kafka.",
    _TOPIC,
)
_command(
    "topic-adopted",
    "A topic is in Kafka already, as it is; nothing moves because of it.",
    _TOPIC,
    lists,
    choice(
        "--policy",
        Policy,
        help="What it grows by. [default: the job's; of a known topic its own]",
    ),
    click.option("--pinned", is_flag=True, help="Rebalances leave it where it is."),
    amounts("--demand", f"{_NEED}  [default: as known]"),
)
_command(
    "topic-grow",
    "A topic is to have more partitions.",
    _TOPIC,
    click.option("--partitions", type=int, required=True, help="The new total."),
)
_command(
    "topic-replication",
    "Each partition of a topic is to have more or fewer replicas.",
    _TOPIC,
    click.option(
        "--replication-factor", type=int, required=True, help="Replicas of each partition."
    ),
)
_command(
    "topic-demand",
    "A topic needs other amounts of resources than was known; no replica moves because of it.",
    _TOPIC,
    amounts("--demand", _NEED, required=True),
)
_command(
    "topic-constraints",
    "A topic demands something else of its SPUs from now on ({}: nothing); no replica moves.",
    _TOPIC,
    constraints(required=True),
)
_command(
    "cluster-rebalance",
    "A cluster is to be evened out.",
    click.option("--max-moves", type=int, required=True, help="Replicas that may move, at most."),
    click.option("--max-bytes", type=BYTE_SIZE, help="Bytes that may move, at most, such as 50GB."),
    click.option("--band-percent", type=int, help="Above the fair dominant share.  [default: 5]"),
    click.option("--band", type=int, help="Replicas from the fair share, 0 or 1.  [default: 1]"),
)


@produce.command()
@click.argument("file", type=FILE)
@_CALL[0]
@output_option
@broker_options
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
