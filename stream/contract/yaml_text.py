"""YAML of plain data, for people: mappings, lists, text, whole numbers, true, false, null.

Written by ourselves, so that no package is needed only to print one document. Rules:

- same data, same text; keys keep their order
- what fits on a line stands on one, as `{a: 1}` or `[1, 2]`, unless it holds a mapping and is not
  empty; the rest is indented by two
- text is plain only where no reader of YAML 1.1 or 1.2 could take it for anything else
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from spu_assigner.core.base.errors import InvariantError

WIDTH: Final = 100
FOLDED_WIDTH_MIN: Final = 40  # of text deep inside, which then goes beyond WIDTH

_WORD: Final = re.compile(r"[A-Za-z_$/][A-Za-z0-9_.$/-]*")
_PLAIN: Final = re.compile(rf"{_WORD.pattern}(?: [A-Za-z0-9(][A-Za-z0-9_.,;/()'+-]*)*")
# What some reader takes for a truth value or for nothing, whatever its letters' case.
_TAKEN: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def to_yaml(document: Mapping[str, Any]) -> str:
    """The text of a document, one line feed at its end.

    Raises:
        InvariantError: it holds something else than plain data.
    """
    return "\n".join(_mapping(document, 0)) + "\n"


def _mapping(data: Mapping[str, Any], depth: int) -> Iterator[str]:
    lead = "  " * depth
    for key, value in data.items():
        yield from _entry(f"{lead}{_quoted(key, _WORD)}:", value, depth)


def _entry(lead: str, value: Any, depth: int) -> Iterator[str]:
    """What follows a key: on its line, or indented below."""
    flow = _flow(value)
    if flow is not None and (len(lead) + 1 + len(flow) <= WIDTH or not isinstance(value, str)):
        yield f"{lead} {flow}"
        return
    match value:
        case str() if _can_be_a_block(value):
            yield from _block(lead, value, depth + 1)
        case str():
            yield f"{lead} {flow}"
        case Mapping():
            yield lead
            yield from _mapping(value, depth + 1)
        case _:
            yield lead
            yield from _items(value, depth + 1)


def _items(data: Sequence[Any], depth: int) -> Iterator[str]:
    lead = "  " * depth
    for value in data:
        if isinstance(value, Mapping) and value and _flow(value) is None:
            first, *others = _mapping(value, depth + 1)
            yield f"{lead}- {first.lstrip()}"
            yield from others
        else:
            yield from _entry(f"{lead}-", value, depth)


def _flow(value: Any) -> str | None:
    """A value on one line; None: it must not, or does not fit."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return _quoted(value, _PLAIN)
        case Mapping():
            return None if value else "{}"
        case Sequence():
            return _flow_list(value)
        case _:
            raise InvariantError(f"YAML of {value!r} is asked for; expected plain data")


def _flow_list(value: Sequence[Any]) -> str | None:
    parts = []
    for each in value:
        # Commas and the like mean something inside brackets, so that only words are plain there.
        part = _quoted(each, _WORD) if isinstance(each, str) else _flow(each)
        if part is None or part == "{}":
            return None
        parts.append(part)
    text = f"[{', '.join(parts)}]"
    return text if len(text) <= WIDTH // 2 or not value else None


def _quoted(text: str, plain: re.Pattern[str]) -> str:
    """Text as it is if it may be plain, else in double quotes."""
    if plain.fullmatch(text) and text.lower() not in _TAKEN:
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def _can_be_a_block(text: str) -> bool:
    """Whether lines as they are, or folded, give this text again."""
    if " " not in text and "\n" not in text:
        return False
    lines = text.split("\n")
    return (
        all(line.isprintable() and line == line.rstrip() for line in lines)
        and bool(lines[0])
        and bool(lines[-1])
        and not lines[0].startswith(" ")
        and "  " not in text
    )


def _block(lead: str, text: str, depth: int) -> Iterator[str]:
    """Text of several lines as it is; one long line folded at its spaces."""
    indent = "  " * depth
    if "\n" in text:
        yield f"{lead} |-"
        for line in text.split("\n"):
            yield f"{indent}{line}" if line else ""
        return
    yield f"{lead} >-"
    width = max(FOLDED_WIDTH_MIN, WIDTH - len(indent))
    for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
        yield f"{indent}{line}"
