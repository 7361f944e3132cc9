"""Options of `produce` that name amounts of resources: NAME=AMOUNT, repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def _amounts_of(
    _: click.Context, __: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, int] | None:
    """The amounts of resources that a repeated option names."""
    amounts: dict[str, int] = {}
    for pair in pairs:
        name, _equals, amount = pair.partition("=")
        try:
            amounts[name] = int(amount)
        except ValueError:
            raise click.BadParameter(
                f"{pair!r} is no amount of a resource; expected such as disk_bytes=1000000"
            ) from None
    return amounts or None


def amounts_option(option: str, what: str, *, required: bool = False) -> Callable[..., Any]:
    """One of them; the command is given a dict, or None where it is not named."""
    return click.option(
        option,
        multiple=True,
        required=required,
        callback=_amounts_of,
        metavar="NAME=AMOUNT",
        help=f"{what} May be repeated.",
    )
