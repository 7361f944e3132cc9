"""How moves are carried out, and the options that say so; the commands that move share them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click
from spu_assigner.stream.kafka.config.command_options import BYTE_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOptions:
    """How moves are carried out."""

    rate: int | None = None  # bytes a second of a broker; None: no throttle
    force: bool = False  # though the cluster is not healthy, or somebody's throttle is in the way


def moves_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How partitions are moved; the command is given it as `move_options`."""

    @click.option(
        "--throttle",
        metavar="RATE",
        type=BYTE_RATE,
        help="Bytes that a broker may copy in a second, as 50MB/s; removed in the end.",
    )
    @click.option(
        "--force",
        is_flag=True,
        help="Move though partitions are offline or too few replicas in sync; replace a throttle "
        "of somebody else's, which is restored.",
    )
    @wraps(command)
    def with_options(*, throttle: int | None, force: bool, **given: Any) -> Any:
        return command(move_options=MoveOptions(rate=throttle, force=force), **given)

    return with_options
