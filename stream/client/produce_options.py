"""Options of `produce` whose values are more than a word: lists, taints, constraints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import click
from spu_assigner.core.base.constraints import Constraints, Taint, TaintEffect
from spu_assigner.core.base.limits import MESSAGE_SIZE_MAX
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.json_lines.lines import constraints_from_json
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.kafka.config.connection import Connection

Option = Callable[[Callable[..., Any]], Callable[..., Any]]

EFFECTS: Final = ", ".join(effect.value for effect in TaintEffect)


def choice(name: str, kind: type[StrEnum], *, default: str | None = None, help: str) -> Option:
    """An option that names a member of an enum."""
    return click.option(
        name,
        type=click.Choice([each.value for each in kind]),
        callback=lambda _ctx, _parameter, value: None if value is None else kind(value),
        default=default,
        show_default=default is not None,
        help=help,
    )


def _lists_of(_: click.Context, __: click.Parameter, text: str) -> tuple[tuple[int, ...], ...]:
    """The replica lists that an option holds, in the notation of Kafka's own tool."""
    try:
        return tuple(tuple(map(int, row.split(":"))) for row in text.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no list of SPU ids for each partition; expected such as 0:1,1:2:0"
        ) from None


def _labels_of(
    _: click.Context, __: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str] | None:
    """The labels that a repeated option names; None: it names none."""
    pairs = [text.partition("=") for text in texts]
    if wrong := [name for name, equals, _ in pairs if not name or not equals]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=VALUE")
    return {name: value for name, _equals, value in pairs} or None


def taints_of(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[Taint, ...]:
    """The taints that a repeated option names, as kubectl writes them."""
    taints = []
    for text in texts:
        name, _colon, effect = text.rpartition(":")
        key, _equals, value = name.partition("=")
        if not key or effect not in list(TaintEffect):
            raise click.BadParameter(
                f"{text!r} is no taint; expected KEY=VALUE:EFFECT or KEY:EFFECT, the effect one of "
                f"{EFFECTS}"
            )
        taints.append(Taint(key, value, TaintEffect(effect)))
    return tuple(taints)


def _constraints_of(_: click.Context, __: click.Parameter, text: str | None) -> Constraints | None:
    """The constraints that an option holds or names the file of."""
    if text is None:
        return None
    try:
        if text.lstrip().startswith("{"):
            return constraints_from_json(text)
        return constraints_from_json(read_plain_file(Path(text), size_max=MESSAGE_SIZE_MAX))
    except FileRefusedError as reason:
        said = f"{reason}; expected an object of JSON, or a file that holds one"
        raise click.BadParameter(said) from reason
    except DecodeError as reason:
        raise click.BadParameter(reason.message) from reason


labels: Final = click.option(
    "--label",
    "labels",
    multiple=True,
    callback=_labels_of,
    metavar="NAME=VALUE",
    help="May be repeated.",
)
taints: Final = click.option(
    "--taint",
    "taints",
    multiple=True,
    callback=taints_of,
    metavar="KEY=VALUE:EFFECT",
    help=f"Which replicas it keeps away; {EFFECTS}. May be repeated.",
)
lists: Final = click.option(
    "--replicas",
    required=True,
    callback=_lists_of,
    metavar="0:1,1:2:0",
    help="The SPU ids of each partition, leader first; partitions by commas, SPUs by colons.",
)
manual_lists: Final = click.option(
    "--replica-assignment",
    "replicas",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Manual replica lists: a JSON list of {id, replicas}, or {partitions: that list}.",
)


def constraints(*, required: bool = False) -> Option:
    """The option that names the constraints of a topic."""
    return click.option(
        "--constraints",
        required=required,
        callback=_constraints_of,
        metavar="JSON|FILE",
        help="What the topic demands of its SPUs: an object as in JSON Lines, or a file that holds "
        """it, such as '{"require":["tier = ssd"],"spread":[{"label":"zone","max":1}]}'.""",
    )


def with_kept(connection: Connection, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a join that describe its SPU, from what is known of it where they are empty."""
    from spu_assigner.stream.client.announced import read_described
    from spu_assigner.stream.client.spu_description import described_over

    before = read_described(connection, given["cluster_id"], given["spu_id"])
    named: dict[str, Any] = {name: given[name] or {} for name in ("labels", "resources")}
    named |= {name: given[name] for name in ("rack", "cores", "capacity", "taints")}
    return described_over(before, **named).fields()
