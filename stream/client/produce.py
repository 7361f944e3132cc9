"""`spu-assigner produce`: send events to Kafka, one by flags or many from JSON Lines.

Events go to the topic they belong to, keyed by cluster, and are acknowledged by all replicas. With
`--wait` the answers are shown too, read from before the first event was sent.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, get_args

import click
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.events import Event, SpuJoined, SpuLeft
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.stream.client.produce_options import EFFECTS, Option, changes_of, options_of
from spu_assigner.stream.client.sending import WAIT_SECONDS, send_events
from spu_assigner.stream.common.json_line_reading import event_of_line, lines_of
from spu_assigner.stream.kafka.config.command_options import (
    FILE,
    Form,
    broker_options,
    output_option,
    reading,
    with_options,
)
from spu_assigner.stream.kafka.config.connection import Connection

PROGRAM: Final = "spu-assigner produce"
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
_KEEP: Final = click.option(
    "--keep",
    is_flag=True,
    help="What is not named stays as announced last, by spu-events and assigner-state.",
)
_MORE: Final[dict[type[Event], str]] = {  # help beyond the event's own description
    SpuJoined: "A join describes its SPU whole: without --keep, an SPU that is known loses the "
    "labels, taints, resources, rack and capacity that are not named here. The answer (--wait) "
    "names what it lost.",
    SpuLeft: "With --mode decommission --wait, status 0 says that no replica map uses the SPU. It "
    "does not say that its broker may be switched off: Kafka moves no replica by itself.",
}


@click.group()
def produce() -> None:
    """Send events to Kafka.

    Exit status: 0 sent (and, with --wait, granted); 1 not sent, refused or ignored; 2 wrong usage;
    3 not answered in time.
    """


def _add_command(kind: type[Event]) -> None:
    """Add the command that sends one event; its options give the event's fields."""

    def send(connection: Connection, output: Form, wait: float | None, **given: Any) -> int:
        if given.pop("keep", False):
            from spu_assigner.stream.client.spu_patch import with_kept

            given |= with_kept(connection, given)
        named = {field: value for field, value in given.items() if value is not None}
        try:
            event = kind(occurred_at=time.time_ns() // 1_000_000, **named)
        except InvalidEventError as error:
            raise click.UsageError(str(error)) from error
        return send_events(
            [("the event", event)], connection=connection, output=output, wait=wait, program=PROGRAM
        )

    keep = (_KEEP,) if kind is SpuJoined else ()
    options = with_options(*options_of(kind), *keep, *_COMMON, *_CALL)
    name = re.sub(r"\B(?=[A-Z])", "-", kind.__name__).lower()
    produce.command(name, help=f"{kind.__doc__}\n\n{_MORE.get(kind, '')}")(options(send))


for _kind in get_args(Event):
    _add_command(_kind)


def _add_patch(name: str, words: str, what: str, effects: str = "") -> None:
    """Add a command that sets and removes labels or taints of an SPU."""

    def send(**given: Any) -> int:
        from spu_assigner.stream.client.spu_patch import send_patch

        return send_patch(program=PROGRAM, **given)

    spu = click.argument("spu_id", metavar="SPU", type=click.IntRange(min=0))
    given = click.argument("changes", metavar=words, nargs=-1, required=True, callback=changes_of)
    text = (
        f"Set or remove (-) {what} of an SPU, as kubectl does.\n\nWhat is not named is announced "
        f"as it was last; the SPU must be online.{effects}"
    )
    produce.command(name, help=text)(with_options(spu, given, *_COMMON, *_CALL)(send))


_add_patch("spu-label", "NAME=VALUE|NAME- ...", "labels")
_add_patch("spu-taint", "KEY[=VALUE]:EFFECT[-]|KEY- ...", "taints", f" EFFECT: {EFFECTS}.")


@produce.command()
@click.argument("file", type=FILE)
@with_options(*_CALL)
def events(file: Path, **asked: Any) -> int:
    """Send the events of FILE (- for standard input), JSON Lines as for `simulate`.

    A line that is not an event is reported with its number, and the others are sent; the exit
    status is 1 then. To name no time with --wait, put FILE first.
    """
    with reading(file) as source:
        return send_events(_events_of(source), program=PROGRAM, **asked)


def _events_of(source: BinaryIO) -> Iterator[tuple[str, Event | None]]:
    """Each event with the name of its line; None for one that was reported as bad."""
    for number, line in enumerate(lines_of(source), start=1):
        try:
            event = event_of_line(line)
        except DecodeError as error:
            click.echo(f"{PROGRAM}: line {number}: {error.message}", err=True)
            yield f"line {number}", None
        else:
            if event is not None:
                yield f"line {number}", event
