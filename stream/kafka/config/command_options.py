"""Options that several commands share, so that they are spelt and explained alike.

Imports nothing heavy: the commands' modules are loaded for their help as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce, wraps
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, cast

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import is_legal_name, name_fault
from spu_assigner.core.base.resources import amounts_fault
from spu_assigner.stream.common.quantities import byte_rate, byte_size
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.config.settings import SPECS, Settings, has_target

Command = Callable[..., Any]
Form = Literal["table", "json"]  # for people, or for programs


class BytesType(click.ParamType[int]):
    """Bytes, or bytes per second, as people write them."""

    def __init__(self, name: str, read: Callable[[str], int]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The value in bytes, or bytes per second; fails where the text is none."""
        try:
            return value if isinstance(value, int) else self._read(value)
        except ValueError as reason:
            self.fail(str(reason), param, ctx)


BYTE_RATE: Final = BytesType("rate", byte_rate)  # such as 50MB/s
BYTE_SIZE: Final = BytesType("size", byte_size)  # such as 50GB
CONNECTION_OPTIONS: Final = frozenset({"bootstrap_servers", "topic_prefix", "config"})
FILE: Final = click.Path(path_type=Path, allow_dash=True)
TABLE_WIDTH: Final = 120  # where there is no terminal to ask


def errors_end_with(status: int) -> type[click.Command]:
    """A command that ends with this status for every error, wrong usage too: others are answers."""

    class Ending(click.Command):
        def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
            with ending():
                return super().parse_args(ctx, args)

        def invoke(self, ctx: click.Context) -> Any:
            with ending():
                return super().invoke(ctx)

    @contextmanager
    def ending() -> Iterator[None]:
        try:
            yield
        except (click.ClickException, AssignerError) as error:
            vars(error).update(exit_code=status, exit_status=status)
            raise

    return Ending


@contextmanager
def reading(file: Path) -> Iterator[BinaryIO]:
    """A file to read bytes from, `-` being standard input; a usage error if it cannot be read."""
    try:
        source = cast(BinaryIO, click.open_file(str(file), "rb"))
    except OSError as error:
        message = f"cannot read {str(file)!r}: {error.strerror}"
        raise click.BadParameter(message, param_hint="FILE") from error
    with source:
        yield source


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one, in their order."""
    return lambda command: reduce(lambda found, option: option(found), reversed(options), command)


def broker_options(command: Command) -> Command:
    """How to reach Kafka; the command is given it as `connection`."""

    @wraps(command)
    def connected(*, bootstrap_servers: str | None, topic_prefix: str | None, **given: Any) -> Any:
        flags = {"bootstrap_servers": bootstrap_servers, "topic_prefix": topic_prefix}
        connection = _warned(load_settings(flags).connection())
        return command(connection=connection, **given)

    return settings_options("bootstrap_servers", "topic_prefix")(connected)


def with_target(command: Command) -> Command:
    """The Kafka cluster whose topics are meant; the command is given it as `target_connection`.

    It is None where that is the job's: the environment names no other one.
    """

    @wraps(command)
    def targeted(**given: Any) -> Any:
        target = None
        if has_target():
            target = _warned(Settings.load(is_target=True).connection(), "target: ")
        return command(target_connection=target, **given)

    return targeted


def _warned(connection: Connection, what: str = "") -> Connection:
    if (warning := connection.security.warning) is not None:
        click.echo(f"warning: {what}{warning}", err=True)
    return connection


def cluster_option(what: str) -> Callable[[Command], Command]:
    """The cluster that is meant; the command is given it as `cluster_id`."""

    def checked(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
        if not is_legal_name(value):
            expected = "1 to 249 of [a-zA-Z0-9._-], not '.' or '..'"
            raise click.BadParameter(f"{value!r} is not {expected}{name_fault(value)}")
        return value

    return click.option("--cluster", "cluster_id", required=True, callback=checked, help=what)


def globs_option(
    option: str, name: str, what: str, default: tuple[str, ...] = ()
) -> Callable[[Command], Command]:
    """Topics by globs, as often as it is given; the command is given them as `name`."""
    return click.option(option, name, metavar="GLOB", multiple=True, default=default, help=what)


def seconds_option(
    option: str,
    name: str,
    what: str,
    *,
    default: float,
    least: float = 0.0,
    most: float = 86_400.0,
    is_positive: bool = False,  # least itself is wrong usage
) -> Callable[[Command], Command]:
    """A time in seconds; the command is given it as `name`."""
    span = click.FloatRange(least, most, min_open=is_positive)
    return click.option(
        option, name, metavar="SECONDS", type=span, default=default, show_default=True, help=what
    )


def settings_options(*names: str) -> Callable[[Command], Command]:
    """An option for each of these settings, and `--config`.

    The command is given each by its name, None where it was not given.
    """
    options = (
        click.option(
            *((spec.flag, "-b") if spec.name == "bootstrap_servers" else (spec.flag,)),
            spec.name,
            metavar="TEXT",
            help=f"{spec.what[0].upper()}{spec.what[1:]}; also {spec.variable}."
            + (f" [default: {spec.default}]" if spec.default else ""),
        )
        for spec in SPECS
        if spec.name in names
    )
    return with_options(*options, _CONFIG)


_CONFIG: Final = click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    expose_value=False,
    callback=lambda context, _, file: context.meta.update(config=file),
    help="A settings file; also SPU_ASSIGNER_CONFIG.",
)


def load_settings(flags: Mapping[str, Any]) -> Settings:
    """The settings of a command by the flags of `settings_options`, and by `--config`."""
    context = click.get_current_context(silent=True)
    file: Path | None = None if context is None else context.meta.get("config")
    return Settings.load(flags=flags, file=file)


def is_broker_named(flags: Mapping[str, Any], settings: Settings) -> bool:
    """Whether Kafka's address was given; if not, `run` starts a broker of its own."""
    (spec,) = (spec for spec in SPECS if spec.name == "bootstrap_servers")
    is_said = flags[spec.name] is not None or spec.variable in os.environ
    return is_said or settings.bootstrap_servers != spec.default


def table_width() -> int | None:
    """Of a table; None: as wide as the terminal."""
    return None if sys.stdout.isatty() else TABLE_WIDTH


output_option: Final = click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Text for people (the default), or one JSON object a line.",
)


def json_option(command: Command) -> Command:
    """As `output_option`; the command gets `is_json`, whether JSON is the output."""

    @wraps(command)
    def chosen(*, output: Form, **given: Any) -> Any:
        return command(is_json=output == "json", **given)

    return output_option(chosen)


def amounts(
    option: str, what: str, *, required: bool = False, checked: bool = False
) -> Callable[[Command], Command]:
    """An option that names amounts of resources.

    Args:
        checked: amounts that the job would reject are wrong usage; where none is given, {}.
    """

    def read(
        _: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]
    ) -> dict[str, int] | None:
        found: dict[str, int] = {}
        for pair in pairs:
            name, _equals, amount = pair.partition("=")
            try:
                found[name] = int(amount)
            except ValueError:
                raise click.BadParameter(
                    f"{pair!r} is no amount of a resource; expected such as disk_bytes=1000000"
                ) from None
        fault = amounts_fault(parameter.human_readable_name, found) if checked else None
        if fault is not None:
            raise click.BadParameter(fault)
        return found if checked else found or None

    return click.option(
        option,
        multiple=True,
        required=required,
        callback=read,
        metavar="NAME=AMOUNT",
        help=f"{what} May be repeated.",
    )
