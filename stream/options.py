"""Options that several commands share, so that they are spelt and explained alike.

Imports nothing heavy: the commands' modules are loaded for their help as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO, Final

import click
from spu_assigner.stream.settings import Settings

Command = Callable[..., Any]

FILE: Final = click.Path(path_type=Path, allow_dash=True)


@contextmanager
def reading(file: Path) -> Iterator[BinaryIO]:
    """A file to read bytes from, `-` being standard input; a usage error if it cannot be read."""
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    try:
        source = file.open("rb")
    except OSError as error:
        message = f"cannot read {str(file)!r}: {error.strerror}"
        raise click.BadParameter(message, param_hint="FILE") from error
    with source:
        yield source


def broker_options(command: Command) -> Command:
    """How to reach Kafka; the command is given it as `connection`."""

    @wraps(command)
    def connected(
        *,
        bootstrap_servers: str | None,
        topic_prefix: str | None,
        config: Path | None,
        **given: Any,
    ) -> Any:
        settings = Settings.load(
            flags={"bootstrap_servers": bootstrap_servers, "topic_prefix": topic_prefix},
            file=config,
        )
        connection = settings.connection()
        if connection.security.warning is not None:
            click.echo(f"warning: {connection.security.warning}", err=True)
        return command(connection=connection, **given)

    for option in (
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            help="A settings file; also SPU_ASSIGNER_CONFIG.",
        ),
        click.option(
            "--topic-prefix",
            "--prefix",
            metavar="TEXT",
            help="What precedes the name of each topic; also SPU_ASSIGNER_TOPIC_PREFIX.",
        ),
        click.option(
            "--bootstrap-servers",
            "-b",
            metavar="HOST:PORT",
            help="Kafka's brokers; also KAFKA_BOOTSTRAP_SERVERS. [default: 127.0.0.1:9092]",
        ),
    ):
        connected = option(connected)
    return connected


def output_option(command: Command) -> Command:
    """Text for people, or lines of JSON for programs."""
    return click.option(
        "--output",
        "-o",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Text for people, or one JSON object a line.",
    )(command)
