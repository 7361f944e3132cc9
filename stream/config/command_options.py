"""Options that several commands share, so that they are spelt and explained alike.

Imports nothing heavy: the commands' modules are loaded for their help as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import click
from spu_assigner.stream.config.settings import SPECS, Settings

Command = Callable[..., Any]
Form = Literal["table", "json"]  # for people, or for programs

_SHORT: Final = {"bootstrap_servers": ["-b"], "topic_prefix": ["--prefix"]}
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


def settings_options(command: Command) -> Command:
    """An option for each setting of the job, from the table of settings."""
    for spec in reversed(SPECS):
        if spec.is_secret:
            continue  # A command line is seen by everybody on the machine.
        default = f" [default: {spec.default}]" if spec.default else ""
        what = f"{spec.what[0].upper()}{spec.what[1:]}; also {spec.variable}.{default}"
        # Whether a broker was named decides whether one is started, so this one is asked here.
        variable = spec.variable if spec.name == "bootstrap_servers" else None
        names = [spec.flag, *_SHORT.get(spec.name, ())]
        command = click.option(*names, spec.name, metavar="TEXT", envvar=variable, help=what)(
            command
        )
    return command


def is_broker_named(flags: Mapping[str, Any], settings: Settings) -> bool:
    """Whether somebody said where Kafka is; if nobody does, `run` starts a broker of its own.

    Args:
        flags: as `settings_options` gives them, with what the environment says.
    """
    default = Settings().bootstrap_servers
    return flags["bootstrap_servers"] is not None or settings.bootstrap_servers != default


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
