"""Where in a text of JSON its values stand: what an editor is sent to.

Containers are opened one by one, when they are asked for, and their values passed over in one go:
a place costs what the containers on the way to it hold, once. The text is JSON already.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from spu_assigner.schemas.errors import LineError
from spu_assigner.schemas.json_lines.json_object import DIGITS_MAX, no_number, repeated_field

VISITED_MAX: Final = 1_000_000  # more than 8 MiB hold, unless of the smallest

Path = tuple[int | str, ...]  # names in objects and indexes in lists

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_WORD: Final = re.compile(r"[^\s,\]}]*")
_SCANNER: Final = json.JSONDecoder(parse_int=len, parse_float=len)  # numbers are passed over
_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")


@dataclass(frozen=True, slots=True)
class Member:
    """A value in an object or a list."""

    key: int | str
    begins: int  # of the name in an object, else of the value
    value: int


def field_of(path: Path) -> str:
    """A path as messages spell it: `replicas[3].id`."""
    spelt = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return spelt.removeprefix(".")


class Places:
    """The places of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._opened: dict[int, list[Member]] = {}
        self._keyed: dict[int, dict[int | str, Member]] = {}

    def begins(self, path: Path) -> int:
        """Where that begins to which the path leads, its name included.

        Followed as far as it goes; of a name that is repeated the last one counts.
        """
        begins = at = self._after_space(0)
        try:
            for key in path:
                member = self._by_key(at).get(key)
                if member is None:
                    break
                begins, at = member.begins, member.value
        except RecursionError:  # Deeper than it can be read from here: so near is near enough.
            pass
        return begins

    def line_and_column(self, position: int) -> tuple[int, int]:
        """Both from 1, in characters, as editors count."""
        line = bisect_right(self._line_starts, position)
        return line, position - self._line_starts[line - 1] + 1

    def slips(self) -> Iterator[tuple[Path, LineError]]:
        """Names that are repeated and numbers that are none, among the first VISITED_MAX values."""
        below: list[tuple[Path, int]] = [((), self._after_space(0))]
        visited = 0
        while below:
            path, at = below.pop()
            names: set[int | str] = set()
            for member in self._members(at):
                visited += 1
                if visited > VISITED_MAX:
                    return
                here = (*path, member.key)
                if member.key in names:
                    error = repeated_field(str(member.key), member.begins)
                    error.field = field_of(here)
                    yield here, error
                names.add(member.key)
                if self.text[member.value] in "{[":
                    below.append((here, member.value))
                elif (word := self._no_number(member.value)) is not None:
                    yield here, no_number(word, field=field_of(here), position=member.value)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.text))]

    def _no_number(self, at: int) -> str | None:
        if self.text[at] not in "-0123456789NI":
            return None
        word = self._word(at)
        if word in _NO_NUMBERS or len(word.lstrip("-")) > DIGITS_MAX:
            return word
        is_float = not word.lstrip("-").isdigit()
        return word if is_float and math.isinf(float(word)) else None

    def _word(self, at: int) -> str:
        found = _WORD.match(self.text, at)
        return "" if found is None else found[0]

    def _after_space(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        return at if found is None else found.end()

    def _by_key(self, at: int) -> dict[int | str, Member]:
        if at not in self._keyed:
            self._keyed[at] = {member.key: member for member in self._members(at)}
        return self._keyed[at]

    def _members(self, at: int) -> list[Member]:
        """What the container that begins here holds; nothing if it is none."""
        if at not in self._opened:
            self._opened[at] = list(self._open(at))
        return self._opened[at]

    def _open(self, at: int) -> Iterator[Member]:
        text = self.text
        if text[at : at + 1] not in ("{", "["):
            return
        is_object = text[at] == "{"
        begins = self._after_space(at + 1)
        index = 0
        while text[begins] not in "}]":
            key: int | str = index
            value = begins
            if is_object:
                key, after = _SCANNER.raw_decode(text, begins)
                value = self._after_space(self._after_space(after) + 1)  # behind the colon
            end = _SCANNER.raw_decode(text, value)[1]
            yield Member(key, begins, value)
            index += 1
            begins = self._after_space(end)
            if text[begins] == ",":
                begins = self._after_space(begins + 1)
