"""Secrets: from the environment or from a file that its owner alone can read, and never shown.

A reference says to Kafka's own configuration providers where the secret stands.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.config.setting_spec import SettingsError, Spec, matching

SIZE_MAX: Final = 64 * 1024  # bytes of a password's, key's or certificate's file
CA_SIZE_MAX: Final = 8 * 1024 * 1024  # all authorities of a machine are a quarter of a MiB
_PATH: Final = r"[^:,{}$]+"  # what Kafka's references cannot hold
_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_KEY: Final = b"-----BEGIN PRIVATE KEY-----"
_PBES2: Final = bytes.fromhex("06092a864886f70d01050d")  # its name in DER (RFC 8018)
_LOCKED_KEY: Final = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Secret:
    """A secret and where it stands; its representation tells the place alone."""

    value: str
    variable: str | None = None
    file: Path | None = None  # if it stands in no variable

    def __repr__(self) -> str:
        return f"Secret({self.reference})"

    @property
    def reference(self) -> str:
        """The place, for Kafka's providers."""
        return f"${{env:{self.variable}}}" if self.file is None else file_reference(self.file)

    @property
    def quote(self) -> str:
        """A quotation mark that does not occur in it."""
        return "'" if '"' in self.value else '"'


def file_reference(file: Path) -> str:
    """A whole file, for Kafka's directory provider."""
    return f"${{dir:{file.parent}:{file.name}}}"


def read_secret(
    spec: Spec, *, environ: Mapping[str, str], written: Mapping[str, object], file: Path | None
) -> tuple[Secret | None, str]:
    """A secret and what gave it: the variable, the file that a variable or the settings file names.

    Raises:
        SettingsError: it is given twice, or the file is open to others; the secret is not shown.
    """
    has_value, has_file = bool(environ.get(spec.variable)), bool(environ.get(spec.file_variable))
    if has_value and has_file:
        raise SettingsError(
            setting=spec.name,
            source=spec.variable,
            value=None,
            found=f"set, and {spec.file_variable} too",
            expected="one of them",
        )
    if has_value:
        return _checked(spec, environ[spec.variable], spec.variable), spec.variable
    if has_file:
        return _from_file(spec, environ[spec.file_variable], spec.file_variable)
    if spec.file_name in written:
        return _from_file(spec, written[spec.file_name], f"{spec.file_name} in {file}")
    return None, spec.variable


def _checked(spec: Spec, value: str, source: str, file: Path | None = None) -> Secret:
    is_legal = value.isprintable() and "\\" not in value and not {"'", '"'} <= set(value)
    if not is_legal or not value:
        raise SettingsError(
            setting=spec.name,
            source=source,
            value=None,
            found="a secret that Kafka's clients cannot all be given" if value else "empty",
            expected="one line without a backslash, and not with both kinds of quotes",
        )
    if spec.name == "ssl_key_password" and not value.isascii():
        raise SettingsError(
            setting=spec.name,
            source=source,
            value=None,
            found="a password that Java cannot open a key with: not all of it is ASCII",
            expected="ASCII characters: give the key another password",
        )
    return Secret(value=value, variable=None if file else spec.variable, file=file)


def _from_file(spec: Spec, named: object, source: str) -> tuple[Secret, str]:
    try:
        path = Path(matching(_PATH)(str(named))).absolute()
    except ValueError:
        raise SettingsError(
            setting=spec.name,
            source=source,
            value=named,
            expected="a file's path, without any of : , { } $",
        ) from None
    data = private_bytes(path, setting=spec.name, source=source)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise SettingsError(
            setting=spec.name, source=source, value=None, found="no UTF-8", expected="text"
        ) from None
    value = text.removesuffix("\n").removesuffix("\r")
    if value != text and spec.name == "ssl_key_password":  # Java would take the line end for a part
        raise SettingsError(
            setting=spec.name,
            source=source,
            value=None,
            found=f"{path}, which ends with a line end",
            expected="the password alone: write it with `printf %s`",
        )
    return _checked(spec, value, source, path), source


def private_bytes(path: Path, *, setting: str, source: str) -> bytes:
    """What stands in a file that belongs to this user and that nobody else may touch.

    Raises:
        SettingsError: it is open to others, another's, or cannot be read.
    """
    return _bytes(path, setting=setting, source=source, is_private=True, size_max=SIZE_MAX)


def certificate(path: Path, *, setting: str, source: str) -> None:
    """Return if the file holds certificates.

    Raises:
        SettingsError: it does not.
    """
    data = _bytes(path, setting=setting, source=source, is_private=False, size_max=CA_SIZE_MAX)
    if _CERTIFICATE not in data:
        raise SettingsError(
            setting=setting,
            source=source,
            value=str(path),
            found=f"{path}, which holds no certificate",
            expected=f"PEM, with a line {_CERTIFICATE.decode()}",
        )


def private_key(path: Path, *, setting: str, source: str) -> bool:
    """Whether the key in the file is encrypted.

    Raises:
        SettingsError: it holds no key that both kinds of clients read, or is open to others.
    """
    data = private_bytes(path, setting=setting, source=source)
    if _LOCKED_KEY not in data and _KEY not in data:
        raise SettingsError(
            setting=setting,
            source=source,
            value=None,
            found=f"{path}, which holds no key in PKCS#8",
            expected=f"what `openssl pkcs8 -topk8 -nocrypt -in {path}` makes of it",
        )
    if _LOCKED_KEY in data and _PBES2 in _der(data):
        raise SettingsError(
            setting=setting,
            source=source,
            value=None,
            found=f"{path}, encrypted by PBES2, which Kafka's client in Java cannot open",
            expected="a key without a password, in a file of mode 0600, or what "
            f"`openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in {path}` makes of it",
        )
    return _LOCKED_KEY in data


def _der(pem: bytes) -> bytes:
    body = pem.partition(_LOCKED_KEY)[2].partition(b"-----")[0]
    try:
        return base64.b64decode(body)
    except ValueError:
        return b""  # Whoever opens it will say so.


def _bytes(path: Path, *, setting: str, source: str, is_private: bool, size_max: int) -> bytes:
    try:
        return read_plain_file(path, size_max=size_max, is_private=is_private)
    except FileRefusedError as reason:
        raise SettingsError(
            setting=setting,
            source=source,
            value=str(path),
            found=f"{path}, which {reason.reason}",
            expected="a file of this user's with mode 0600" if is_private else "a file to read",
        ) from reason
