"""Secrets: from the environment or from a file that its owner alone can read, and never shown.

A reference says to Kafka's own configuration providers where the secret stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.kafka.config.setting_spec import (
    PATH_EXPECTED,
    SettingsError,
    Spec,
    file_path,
)

SIZE_MAX: Final = 64 * 1024  # bytes of a password's, key's or certificate's file
_LEGAL: Final = "one line without a backslash, and not with both kinds of quotes"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Secret:
    """A secret and where it stands; its representation shows the place alone."""

    value: str
    variable: str | None = None
    file: Path | None = None  # if it stands in no variable

    def __repr__(self) -> str:
        return f"Secret({self.reference})"

    @property
    def reference(self) -> str:
        """The place, for Kafka's providers."""
        return f"${{env:{self.variable}}}" if self.file is None else file_reference(self.file)


def file_reference(file: Path) -> str:
    """A whole file, for Kafka's directory provider."""
    return f"${{dir:{file.parent}:{file.name}}}"


def read_secret(
    spec: Spec, *, environ: Mapping[str, str], written: Mapping[str, object], file: Path | None
) -> tuple[Secret | None, str]:
    """A secret and what gave it: the variable, or the file that it or the settings file names."""
    value, named = environ.get(spec.variable), environ.get(spec.file_variable)
    if value and named:
        found = f"set, and {spec.file_variable} too"
        raise SettingsError(spec.variable, found=found, expected="one of them")
    if value:
        source, secret = spec.variable, Secret(value=value, variable=spec.variable)
    elif named:
        source = spec.file_variable
        secret = _from_file(named, source)
    elif spec.file_name in written:
        source = f"{spec.file_name} in {file}"
        secret = _from_file(str(written[spec.file_name]), source)
    else:
        return None, spec.variable
    if not secret.value:
        raise SettingsError(source, found="empty", expected=_LEGAL)
    if not secret.value.isprintable() or "\\" in secret.value or {"'", '"'} <= set(secret.value):
        found = "a secret that Kafka's clients cannot all be given"
        raise SettingsError(source, found=found, expected=_LEGAL)
    return secret, source


def _from_file(named: str, source: str) -> Secret:
    try:
        path = file_path(named)
    except ValueError:
        raise SettingsError(source, found=repr(named), expected=PATH_EXPECTED) from None
    data = read_file(path, source, is_private=True)
    text = data.decode(errors="surrogateescape")  # What is no UTF-8 is not printable.
    return Secret(value=text.removesuffix("\n").removesuffix("\r"), file=path)


def read_file(
    path: Path, source: str, *, size_max: int = SIZE_MAX, is_private: bool = False
) -> bytes:
    """What stands in a file that a setting names."""
    try:
        return read_plain_file(path, size_max=size_max, is_private=is_private)
    except FileRefusedError as reason:
        expected = "a file of this user's with mode 0600" if is_private else "a file to read"
        found = f"{path}, which {reason.reason}"
        raise SettingsError(source, found=found, expected=expected) from reason
