"""Options of many commands, written once on the group, as kubectl's global flags are.

Each may stand before the command or anywhere after it, on those commands that take it; any other
command rejects it. A command says so with `takes`, and is given the values by name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

Function = Callable[..., Any]

OUTPUT_DEFAULT: Final = "table"
SHARED: Final = (
    click.Option(
        ["--bootstrap-servers", "-b"],
        metavar="SERVERS",
        help="Kafka's brokers, HOST:PORT; also KAFKA_BOOTSTRAP_SERVERS.",
    ),
    click.Option(
        ["--topic-prefix"],
        help="What precedes the name of each topic; also SPU_ASSIGNER_TOPIC_PREFIX.",
    ),
    click.Option(
        ["--config"],
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="A settings file; also SPU_ASSIGNER_CONFIG.",
    ),
    click.Option(
        ["--output", "-o"],
        type=click.Choice(["table", "json"]),
        default=OUTPUT_DEFAULT,
        show_default=True,
        help="Text for people, or one JSON object a line.",
    ),
)
SHARED_NAMES: Final = frozenset(str(option.name) for option in SHARED)


def takes(*names: str) -> Callable[[Function], Function]:
    """The command is given the values of these shared options, None where one was not given."""

    def decorated(function: Function) -> Function:
        @wraps(function)
        def given(**own: Any) -> Any:
            return function(**{name: shared_value(name) for name in names}, **own)

        vars(given)["shared_options"] = taken_by(function) | frozenset(names)
        return given

    return decorated


def shared_value(name: str) -> Any:
    """The value of a shared option in the call that runs; None, or the default, without one."""
    context = click.get_current_context(silent=True)
    values = {} if context is None else context.find_root().params
    return values.get(name, OUTPUT_DEFAULT if name == "output" else None)


def taken_by(function: object) -> frozenset[str]:
    """The names of the shared options that a command takes."""
    found: frozenset[str] = getattr(function, "shared_options", frozenset())
    return found


class SharedOptionsGroup(click.Group):
    """A group that reads the shared options also where they are given after the command."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params.extend(SHARED)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the shared options from wherever they stand.

        Raises:
            UsageError: one has no value, or was given to a command that does not take it.
        """
        command, place = self._called(ctx, args)
        if command is None:
            return super().parse_args(ctx, args)
        names = taken_by(command.callback)
        taken = [option for option in SHARED if option.name in names]
        if taken:
            spelt = ", ".join(option.opts[0] for option in taken)
            command.epilog = f"Also {spelt}: see {ctx.command_path} --help."
        if ctx.resilient_parsing:  # A shell asks, and this process answers nothing else.
            command.params.extend(taken)
        try:
            shared, own = _divided(args[place + 1 :], taken, ctx)
            rest = super().parse_args(ctx, [*args[:place], *shared, args[place], *own])
            for option in SHARED:
                source = ctx.get_parameter_source(str(option.name))
                if option not in taken and source is ParameterSource.COMMANDLINE:
                    raise click.UsageError(f"{args[place]} takes no {option.opts[0]}", ctx)
        except click.UsageError as error:
            vars(error)["exit_code"] = getattr(command, "usage_status", error.exit_code)
            raise
        return rest

    def _called(self, ctx: click.Context, args: list[str]) -> tuple[click.Command | None, int]:
        """The command that is called, and where its name, or that of its group, stands."""
        with_value = {name for option in SHARED for name in option.opts}
        command: click.Command | None = self
        place, index = -1, 0
        while index < len(args) and isinstance(command, click.Group):
            word = args[index]
            if not word.startswith("-"):
                command = command.get_command(ctx, word)
                place = index if place < 0 else place
            index += 2 if word in with_value else 1
        return (None if isinstance(command, click.Group) else command), place


def _divided(
    args: list[str], options: list[click.Option], ctx: click.Context
) -> tuple[list[str], list[str]]:
    """What gives one of these options, and all else."""
    names = {name for option in options for name in option.opts}
    shared: list[str] = []
    own: list[str] = []
    words = iter(args)
    for word in words:
        if word == "--":
            return shared, [*own, word, *words]
        if word in names:
            value = next(words, None)
            if value is None:
                if ctx.resilient_parsing:
                    continue
                raise click.BadOptionUsage(word, f"Option {word!r} requires an argument", ctx)
            shared += [word, value]
        elif (word.partition("=")[0] if word.startswith("--") else word[:2]) in names:
            shared.append(word)
        else:
            own.append(word)
    return shared, own
