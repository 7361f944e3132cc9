"""The object of JSON that a line must hold: strict, each name once, numbers that are numbers.

Imports nothing beyond `core` and the standard library, for `simulate` answers in milliseconds.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NoReturn

from spu_assigner.core.base.limits import MANUAL_FILE_SIZE_MAX
from spu_assigner.schemas.errors import LineError, LineFault

DIGITS_MAX: Final = 4_300  # of a number, Python's own limit
QUOTE_LENGTH_MAX: Final = 80  # characters of a value shown in a message


REASSIGNMENT: Final = (
    "is a reassignment in Kafka's form, as `spu-assigner plan --reassignment-file` writes it; "
    "`kafka-reassign-partitions --reassignment-json-file` takes it"
)


def is_reassignment(value: object) -> bool:
    """Whether a value of JSON is what Kafka's own tool moves partitions by."""
    entries = value.get("partitions") if isinstance(value, dict) else None
    first = entries[0] if isinstance(entries, list) and entries else None
    return isinstance(first, dict) and "topic" in first and "partition" in first


def members_of(line: str | bytes) -> dict[str, Any]:
    """The members of the line's object, each name once."""
    return _object(line, _DECODER)


def lenient_members(line: str | bytes, note: Callable[[LineError], None]) -> dict[str, Any]:
    """The same where names are repeated and numbers are none, to look for other faults, too.

    Each repeated name is noted; a number that is none is NaN or infinite, which no field may hold.
    """

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                note(_repeated_field(name))
            found[name] = value
        return found

    return _object(line, json.JSONDecoder(object_pairs_hook=members, parse_int=_lenient_integer))


def strict_value(text: str) -> Any:
    """Whatever the text holds, each name once and numbers that are numbers.

    Raises:
        LineError: a name is given again, or a number is none.
        ValueError, RecursionError: no JSON, too many digits, or nested too deeply.
    """
    return _DECODER.decode(text)


def _object(line: str | bytes, decoder: json.JSONDecoder) -> dict[str, Any]:
    if len(line) > MANUAL_FILE_SIZE_MAX:
        said = f"the line has {len(line)} characters; at most {MANUAL_FILE_SIZE_MAX} are read"
        raise LineError(LineFault.TOO_LONG, said)
    try:
        text = line if isinstance(line, str) else line.decode("utf-8")
        value = decoder.decode(text)
    except UnicodeDecodeError as error:
        said = f"byte {error.start} is no UTF-8; expected one JSON object in UTF-8"
        raise LineError(LineFault.NO_JSON, said) from error
    except json.JSONDecodeError as error:
        said = f"no JSON at character {error.pos}: {error.msg}; expected one JSON object"
        if text.startswith("\ufeff"):
            said = "the line begins with a byte order mark (BOM); expected one JSON object alone"
        raise LineError(LineFault.NO_JSON, said) from error
    except RecursionError as error:
        said = "nested too deeply; expected one JSON object"
        raise LineError(LineFault.TOO_DEEP, said) from error
    except ValueError as error:
        said = f"a number has too many digits; expected a whole number of at most {DIGITS_MAX}"
        raise LineError(LineFault.WRONG_VALUE, said) from error
    if not isinstance(value, dict):
        said = f"the line is {quoted(value)}; expected one JSON object"
        raise LineError(LineFault.NO_JSON, said)
    return value


def _repeated_field(name: str) -> LineError:
    """A member's name is given again in one object."""
    said = f"field {quoted(name)} is given more than once; expected it once"
    return LineError(LineFault.REPEATED_FIELD, said, field=name)


def _no_number(text: str) -> NoReturn:
    """A number is none of JSON's, or has too many digits."""
    said = f"found {text[:QUOTE_LENGTH_MAX]}; expected a whole number"
    raise LineError(LineFault.WRONG_VALUE, said)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise _repeated_field(next(name for name, count in counts.items() if count > 1))
    return members


def _finite(text: str) -> float:
    number = float(text)
    return _no_number(text) if math.isinf(number) else number


def _lenient_integer(text: str) -> float:
    return int(text) if len(text) <= DIGITS_MAX else math.inf


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_finite
)


def quoted(value: object) -> str:
    """A value as a message shows it."""
    match value:
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            text = json.dumps(value)
            if len(text) <= QUOTE_LENGTH_MAX:
                return text
            return f"{text[:QUOTE_LENGTH_MAX]}… ({len(text)} characters)"
