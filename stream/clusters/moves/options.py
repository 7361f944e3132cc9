"""How moves are carried out, and the options that say so; the commands that move share them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import click
from spu_assigner.core.base.limits import SPU_ID_MAX
from spu_assigner.stream.clusters.moves.waves import CONCURRENCY, concurrency_under
from spu_assigner.stream.kafka.config.command_options import BYTE_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOptions:
    """How moves are carried out."""

    concurrency: int = CONCURRENCY  # of a broker
    rate: int | None = None  # bytes a second of a broker; None: no throttle
    force: bool = False  # though the cluster is not healthy, or somebody's throttle is in the way
    forgotten: frozenset[int] = frozenset()  # brokers that never come back: they owe nothing


_OPTIONS: Final = (
    click.option(
        "--concurrency",
        metavar="N",
        type=click.IntRange(1, 1_000),
        help=f"Moves of a broker at once; {CONCURRENCY}, fewer under a low --throttle.",
    ),
    click.option(
        "--throttle",
        metavar="RATE",
        type=BYTE_RATE,
        help="Bytes that a broker may copy in a second, as 50MB/s; removed in the end.",
    ),
    click.option(
        "--force",
        is_flag=True,
        help="Move though partitions are offline or too few replicas in sync; replace a throttle "
        "of somebody else's, which is restored.",
    ),
    click.option(
        "--forget-throttle",
        "forgotten",
        metavar="BROKER",
        type=click.IntRange(0, SPU_ID_MAX),
        multiple=True,
        help="A broker that never comes back: its throttle is not waited for.",
    ),
)


def moves_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How partitions are moved; the command is given it as `move_options`, None where not said."""

    @wraps(command)
    def with_options(
        *,
        concurrency: int | None,
        throttle: int | None,
        force: bool,
        forgotten: tuple[int, ...],
        **given: Any,
    ) -> Any:
        found = MoveOptions(
            concurrency=concurrency_under(throttle) if concurrency is None else concurrency,
            rate=throttle,
            force=force,
            forgotten=frozenset(forgotten),
        )
        is_said = concurrency is not None or found != MoveOptions()
        return command(move_options=found if is_said else None, **given)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options
