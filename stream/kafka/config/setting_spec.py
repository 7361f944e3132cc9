"""What there is to know of one setting: it is written beside its field, and read from there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from spu_assigner.core.base.errors import AssignerError

_Text = TypeVar("_Text", bound=str)


class SettingsError(AssignerError):
    """A setting has a value that cannot be."""

    exit_status = 2

    def __init__(self, source: str, *, found: str, expected: str) -> None:
        self.source = source  # the flag, variable, or file's entry that gave it
        super().__init__(f"{source} is {found}; expected {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What there is to know of one setting; docs/settings.md has the reason of each default."""

    name: str  # of the field, and in the file
    variable: str
    default: str  # as one would write it in the environment
    read: Callable[[str], Any]  # raises ValueError
    expected: str
    what: str
    is_secret: bool  # no flag, never in the settings file: the variable, or a private file

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def file_variable(self) -> str:
        """Of a secret: the variable that names the file it stands in."""
        return f"{self.variable}_FILE"

    @property
    def file_name(self) -> str:
        """The name in the settings file; of a secret, that of its file's path."""
        return f"{self.name}_file" if self.is_secret else self.name


def setting(
    read: Callable[[str], Any],
    default: str = "",
    *,
    expected: str,
    what: str,
    variable: str | None = None,
    is_secret: bool = False,
) -> Any:
    """A field of a dataclass that is a setting; its variable is `SPU_ASSIGNER_` and its name."""
    facts = {"read": read, "default": default, "expected": expected, "what": what}
    facts |= {"variable": variable, "is_secret": is_secret}
    return field(default=None if is_secret else read(default), metadata=facts)


def choice(kind: Iterable[_Text], default: str, what: str) -> Any:
    """A setting that is one of these, in upper or lower case."""
    by_name = {text.upper(): text for text in kind}

    def read(text: str) -> _Text:
        if text.upper() not in by_name:
            raise ValueError(text)
        return by_name[text.upper()]

    return setting(read, default, expected=", ".join(by_name.values()), what=what)


def specs_of(kind: type[Any]) -> tuple[Spec, ...]:
    """The settings among a dataclass's fields, in their order."""
    return tuple(
        Spec(
            **{"name": each.name, **each.metadata}
            | {"variable": each.metadata["variable"] or f"SPU_ASSIGNER_{each.name.upper()}"}
        )
        for each in fields(kind)
        if each.metadata
    )


def satisfying(is_legal: Callable[[str], object]) -> Callable[[str], str]:
    """Reads what a test lets pass."""

    def read(text: str) -> str:
        if not is_legal(text):
            raise ValueError(text)
        return text

    return read


def matching(pattern: str) -> Callable[[str], str]:
    """Reads what matches as a whole."""
    return satisfying(re.compile(pattern).fullmatch)


def integer(least: int, most: int) -> Callable[[str], int]:
    """Reads a whole number in a range."""
    digits = satisfying(
        lambda text: re.fullmatch(r"[0-9]{1,9}", text) and least <= int(text) <= most
    )
    return lambda text: int(digits(text))


def or_empty(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Reads nothing as None."""
    return lambda text: read(text) if text else None


PATH_EXPECTED = "a file's path, without any of : , { } $"


def file_path(text: str) -> Path:
    """Reads a path that a reference of Kafka's configuration providers can hold."""
    return Path(matching(r"[^:,{}$]+")(text)).absolute()
