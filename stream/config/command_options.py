"""Options that several commands share, so that they are spelt and explained alike.

Imports nothing heavy: the commands' modules are loaded for their help as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import click
from spu_assigner.stream.config.settings import FILE_VARIABLE, SPECS, Settings

Command = Callable[..., Any]
Form = Literal["table", "json"]  # for people, or for programs

_METAVARS: Final = {"bootstrap_servers": "HOST:PORT"}
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

    return settings_options("bootstrap_servers", "topic_prefix")(connected)


def settings_options(*names: str) -> Callable[[Command], Command]:
    """An option for each of these settings, by default for all, and one for a settings file.

    The command is given each by its name, None where it was not given, and the file as `config`.
    """
    options = [
        click.option(
            spec.flag,
            *_SHORT.get(spec.name, ()),
            spec.name,
            metavar=_METAVARS.get(spec.name, "TEXT"),
            help=f"{spec.what[0].upper()}{spec.what[1:]}; also {spec.variable}."
            + (f" [default: {spec.default}]" if spec.default else ""),
        )
        for spec in SPECS
        # No secret: a command line is seen by everybody on the machine.
        if not spec.is_secret and (not names or spec.name in names)
    ]
    file = click.option(
        "--config",
        type=click.Path(path_type=Path),
        help=f"A settings file; also {FILE_VARIABLE}.",
    )

    def decorated(command: Command) -> Command:
        for option in (file, *reversed(options)):
            command = option(command)
        return command

    return decorated


def is_broker_named(flags: Mapping[str, Any], settings: Settings) -> bool:
    """Whether somebody said where Kafka is; if nobody does, `run` starts a broker of its own.

    Args:
        flags: as `settings_options` gives them.
    """
    (spec,) = (spec for spec in SPECS if spec.name == "bootstrap_servers")
    is_said = flags[spec.name] is not None or spec.variable in os.environ
    return is_said or settings.bootstrap_servers != spec.default


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
