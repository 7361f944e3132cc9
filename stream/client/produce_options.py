"""The options of `produce`: one for each field of an event that has a help here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any, Final, get_args

import click
from msgspec import NODEFAULT
from msgspec.structs import FieldInfo, fields
from spu_assigner.core.base.constraints import Constraints, Taint, TaintEffect
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import Event
from spu_assigner.core.base.limits import MANUAL_FILE_SIZE_MAX, MESSAGE_SIZE_MAX
from spu_assigner.schemas.errors import DecodeError, LineError
from spu_assigner.schemas.json_lines.json_object import REASSIGNMENT, is_reassignment, strict_value
from spu_assigner.schemas.json_lines.kinds import MANUAL_DEPTH_MAX, is_deeper_than
from spu_assigner.schemas.json_lines.lines import constraints_from_json
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.kafka.config.command_options import BYTE_SIZE, amounts

Option = Callable[[Callable[..., Any]], Callable[..., Any]]

_FORMS: Final = (
    'a list like [{"id": 0, "replicas": [0, 1, 2]}], or an object {"partitions": [such a list]}'
)
EFFECTS: Final = ", ".join(effect.value for effect in TaintEffect)
_HELP: Final = {
    "spu_id": "The SPU.",
    "rack": "Its rack.",
    "cores": "Its cores.",
    "capacity": "Its replica slots. [default: cores * 7000 - 2]",
    "labels": "May be repeated.",
    "resources": "What it has of a resource beside replica slots.",
    "taints": f"Which replicas it keeps away; {EFFECTS}. May be repeated.",
    "mode": "offline: it keeps its replicas; decommission: replica maps use it no longer. Its "
    "broker holds them until they are moved: `apply --moves`, or `drain` for all of it.",
    "topic": "The topic.",
    "partitions": "The number of partitions.",
    "replication_factor": "Replicas of each partition.",
    "policy": "The rule that places it, or that an adopted topic grows by. [default: the job's; "
    "manual with --replica-assignment; of a known topic its own]",
    "replicas": "The replica lists.",
    "validate_only": "Show the map, assign nothing.",
    "on_shortage": "What to do while there are too few SPUs.",
    "pinned": "Rebalances leave it where it is.",
    "demand": "What each replica of a partition needs of a resource.",
    "constraints": "What the topic demands of its SPUs ({}: nothing): an object as in JSON Lines, "
    """or a file that holds it, such as '{"require":["tier = ssd"]}'.""",
    "max_moves": "Replicas that may move, at most.",
    "max_bytes": "Bytes that may move, at most, such as 50GB.",
    "band_percent": "Above the fair dominant share.  [default: 5]",
    "band": "Replicas from the fair share, 0 or 1.  [default: 1]",
}


class AssignmentFileError(AssignerError):
    """The file holds no replica lists."""

    exit_status = 2

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f"replica assignment {str(path)!r} {reason}")


def options_of(kind: type[Event]) -> Iterator[Option]:
    """The options that give the fields of an event; what is not given is None."""
    for field in fields(kind):
        if field.name in _HELP:
            yield _option(field)


def _option(field: FieldInfo) -> Option:
    args = get_args(field.type)
    hint = args[0] if type(None) in args else field.type
    name, what = f"--{field.name.replace('_', '-')}", _HELP[field.name]
    if hint == Mapping[str, int]:
        return amounts(name, what, required=field.required)
    if field.default not in (None, NODEFAULT, False, ()):
        what = f"{what}  [default: {field.default}]"
    given: dict[str, Any] = {"type": hint}
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        given = {"type": click.Choice([each.value for each in hint])}
    elif hint is bool:
        given = {"is_flag": True}
    elif field.name == "max_bytes":
        given = {"type": BYTE_SIZE}
    elif hint in _BY_TYPE:
        name, given = _BY_TYPE[hint]
    return click.option(name, field.name, **{"required": field.required, "help": what, **given})


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
    if wrong := ["".join(pair) for pair in pairs if not pair[0] or not pair[1]]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=VALUE")
    return {name: value for name, _equals, value in pairs} or None


def taints_of(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[Taint, ...]:
    """The taints that a repeated option names, as kubectl writes them."""
    taints = []
    for text in texts:
        name, _colon, effect = text.rpartition(":")
        key, _equals, value = name.partition("=")
        if not key or effect.lower() not in list(TaintEffect):
            raise click.BadParameter(
                f"{text!r} is no taint; expected KEY=VALUE:EFFECT or KEY:EFFECT, the effect one of "
                f"{EFFECTS}"
            )
        taints.append(Taint(key, value, TaintEffect(effect.lower())))
    return tuple(taints)


def changes_of(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[Any, str | None]:
    """The labels, or of `spu-taint` the taints, that words set and remove, as kubectl's do."""
    is_taint = context.command.name == "spu-taint"

    def entries(words: Iterable[str]) -> dict[Any, str]:
        if not is_taint:
            return _labels_of(context, parameter, tuple(words)) or {}
        taints = taints_of(context, parameter, tuple(words))
        return {(taint.key, taint.effect): taint.value for taint in taints}

    gone = [text for text in texts if text[1:].endswith("-") and (is_taint or "=" not in text)]
    names = [text[:-1] for text in gone if not (is_taint and {":", "="} & {*text})]
    removed = entries(text[:-1] for text in gone if text[:-1] not in names)
    removed |= dict.fromkeys(product(names, TaintEffect) if is_taint else names, "")
    named = entries(text for text in texts if text not in gone)
    if both := named.keys() & removed.keys():
        raise click.BadParameter(f"{both.pop()!r} is both set and removed; expected one of these")
    return {**named, **dict.fromkeys(removed)}


def _constraints_of(_: click.Context, __: click.Parameter, text: str | None) -> Constraints | None:
    """The constraints that an option holds or names the file of."""
    if text is None:
        return None
    try:
        is_json = text.lstrip().startswith("{")
        read = text if is_json else read_plain_file(Path(text), size_max=MESSAGE_SIZE_MAX)
        return constraints_from_json(read)
    except FileRefusedError as reason:
        said = f"{reason}; expected an object of JSON, or a file that holds one"
        raise click.BadParameter(said) from reason
    except DecodeError as reason:
        raise click.BadParameter(reason.message) from reason


def read_assignment(path: Path) -> Any:
    """The manual lists of a file, in either of the documents' forms, as they are there: the core
    names the first fault of the lists themselves.
    """
    try:
        data = read_plain_file(path, size_max=MANUAL_FILE_SIZE_MAX, follows_link=False)
    except FileRefusedError as error:
        raise AssignmentFileError(path, error.reason) from error
    try:
        value = strict_value(data.decode("utf-8").removeprefix("\ufeff"))
        is_too_deep = is_deeper_than(value, MANUAL_DEPTH_MAX)
    except RecursionError:
        is_too_deep = True
    except (LineError, ValueError) as error:
        reason = error.message if isinstance(error, LineError) else str(error)
        raise AssignmentFileError(path, f"cannot be read: {reason}; expected {_FORMS}") from error
    if is_too_deep:
        raise AssignmentFileError(path, f"is nested too deeply; expected {_FORMS}")
    if is_reassignment(value):
        raise AssignmentFileError(path, f"{REASSIGNMENT}; expected {_FORMS}")
    is_object = isinstance(value, dict) and list(value) == ["partitions"]
    if not isinstance(value["partitions"] if is_object else value, list):
        raise AssignmentFileError(path, f"is neither form; expected {_FORMS}")
    return value


_BY_TYPE: Final[dict[Any, tuple[str, dict[str, Any]]]] = {  # its name, and how it is read
    Mapping[str, str]: (
        "--label",
        {"multiple": True, "callback": _labels_of, "metavar": "NAME=VALUE"},
    ),
    tuple[Taint, ...]: (
        "--taint",
        {"multiple": True, "callback": taints_of, "metavar": "KEY=VALUE:EFFECT"},
    ),
    tuple[tuple[int, ...], ...]: (
        "--replicas",
        {
            "callback": _lists_of,
            "metavar": "0:1,1:2:0",
            "help": "The SPU ids of each partition, leader first; partitions by commas, SPUs by "
            "colons.",
        },
    ),
    Any: (
        "--replica-assignment",
        {
            "type": click.Path(path_type=Path),
            "callback": lambda _, __, file: file and read_assignment(file),
            "metavar": "FILE",
            "help": "Replica lists by hand: a JSON list of {id, replicas}, or {partitions: that "
            "list}.",
        },
    ),
    Constraints: ("--constraints", {"callback": _constraints_of, "metavar": "JSON|FILE"}),
}
