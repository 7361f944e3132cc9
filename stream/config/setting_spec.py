"""What a row of the table of settings is, and how its text is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spu_assigner.core.base.bounded_repr import bounded_repr
from spu_assigner.core.base.errors import AssignerError


class SettingsError(AssignerError):
    """A setting has a value that cannot be."""

    exit_status = 2

    def __init__(
        self, *, setting: str, source: str, value: object, expected: str, found: str | None = None
    ) -> None:
        self.setting = setting
        self.source = source  # the flag, variable, or file's entry that gave it
        self.value = value  # None where it is secret
        self.expected = expected
        found = found or (repr(value) if isinstance(value, str) else bounded_repr(value))
        super().__init__(f"{source} is {found}; expected {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What there is to know of one setting."""

    name: str  # of the field, and in the file
    variable: str
    default: str  # as one would write it in the environment
    read: Callable[[str], Any]  # raises ValueError
    expected: str
    what: str
    reason: str  # of the default
    is_secret: bool = False  # no flag, never in the settings file: the variable, or a private file
    flag_prefix: str = "--"

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return self.flag_prefix + self.name.replace("_", "-")

    @property
    def file_variable(self) -> str:
        """Of a secret: the variable that names the file it stands in."""
        return f"{self.variable}_FILE"

    @property
    def file_name(self) -> str:
        """The same in the settings file."""
        return f"{self.name}_file"


def integer(least: int, most: int) -> Callable[[str], int]:
    """Reads a whole number in a range."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise ValueError(text)
        return int(text)

    return read


def or_empty(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Reads nothing as None."""
    return lambda text: read(text) if text else None


def matching(pattern: str) -> Callable[[str], str]:
    """Reads what matches as a whole."""

    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(text)
        return text

    return read
