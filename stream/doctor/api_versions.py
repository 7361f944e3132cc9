"""Asking a broker what it can do: Kafka's request `ApiVersions`, which needs no user and no right.

Kafka's client library asks it as well, and does not tell the answer.
Source: Kafka's protocol guide, ApiVersions version 3, and KIP-482 for its encoding.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.config.security import tls_context

SIZE_MAX: Final = 1024 * 1024  # of an answer; a broker of Kafka 4.2 sends half a KiB

_API_VERSIONS: Final = 18
_VERSION: Final = 3
_UNSUPPORTED_VERSION: Final = 35
_CORRELATION: Final = 1
_FINALIZED_FEATURES: Final = 2  # a tag
_SOFTWARE: Final = b"spu-assigner"

# Request: (its key, the version that is needed, what for)
NEEDED: Final[Mapping[str, tuple[int, int, str]]] = {
    "InitProducerId": (22, 1, "transactions"),
    "AddPartitionsToTxn": (24, 1, "transactions"),
    "EndTxn": (26, 1, "transactions"),
    "DescribeConfigs": (32, 1, "looking at topics"),
    "Metadata": (3, 10, "topic ids, Kafka 2.8"),
}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a broker says of itself."""

    versions: Mapping[int, int]  # by a request's key, the newest that it takes
    features: Mapping[str, int]  # that its cluster has agreed on, by name the level

    def lacks(self) -> list[str]:
        """What of NEEDED it does not take."""
        return [
            f"{name} version {version} ({why})"
            for name, (key, version, why) in NEEDED.items()
            if self.versions.get(key, -1) < version
        ]


def ask_abilities(settings: Mapping[str, Any], host: str, port: int, seconds: float) -> Abilities:
    """Ask one broker.

    Args:
        settings: of a Kafka client.
        seconds: for each step.

    Raises:
        OSError: it does not answer, or not as this client is set to speak.
        ValueError: it does not answer as Kafka does.
    """
    with socket.create_connection((host, port), seconds) as plain:
        if not str(settings.get("security.protocol", "")).endswith("SSL"):
            return _asked(plain)
        context = tls_context(settings)
        with context.wrap_socket(plain, server_hostname=host) as secured:
            return _asked(secured)


def _asked(connection: socket.socket) -> Abilities:
    connection.sendall(_request())
    (size,) = struct.unpack(">i", _received(connection, 4))
    if not 0 < size <= SIZE_MAX:
        raise ValueError(f"an answer of {size} bytes")
    return parse(_received(connection, size))


def _request() -> bytes:
    name = struct.pack(">h", len(_SOFTWARE)) + _SOFTWARE
    head = struct.pack(">hhi", _API_VERSIONS, _VERSION, _CORRELATION) + name + b"\0"
    release = RELEASE.encode()
    body = bytes([len(_SOFTWARE) + 1]) + _SOFTWARE + bytes([len(release) + 1]) + release + b"\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


def _received(connection: socket.socket, size: int) -> bytes:
    pieces = []
    while size:
        piece = connection.recv(size)
        if not piece:
            raise ConnectionResetError("the connection was closed")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def parse(answer: bytes) -> Abilities:
    """Read an answer, without its size.

    Raises:
        ValueError: it is none.
    """
    data = _Data(answer)
    if data.integer(4) != _CORRELATION:
        raise ValueError("it answers another request")
    error = data.integer(2)
    if error == _UNSUPPORTED_VERSION:  # Before Kafka 2.4; in the form of version 0.
        versions = dict(data.triple() for _ in range(data.integer(4)))
        return Abilities(versions=versions, features={})
    if error:
        raise ValueError(f"error {error}")
    versions = dict(data.array(lambda: data.tagged(data.triple)))
    data.integer(4)  # how long to wait with the next request
    features: dict[str, int] = {}
    for _ in range(data.varint()):
        tag, end = data.varint(), data.varint()
        end += data.at
        if tag == _FINALIZED_FEATURES:
            features = dict(data.array(lambda: data.tagged(data.feature)))
        data.at = end
    return Abilities(versions=versions, features=features)


class _Data:
    """Bytes that are read from their beginning."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def integer(self, size: int) -> int:
        """A signed one of so many bytes."""
        return int.from_bytes(self._bytes(size), "big", signed=True)

    def varint(self) -> int:
        """An unsigned one, seven bits a byte."""
        value = shift = 0
        while True:
            byte = self._bytes(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def array(self, read: Callable[[], _T]) -> list[_T]:
        """A compact one: its length plus one, then its elements."""
        return [read() for _ in range(self.varint() - 1)]

    def tagged(self, read: Callable[[], _T]) -> _T:
        """What is followed by tagged fields, which are passed over."""
        value = read()
        for _ in range(self.varint()):
            self.varint()
            self._bytes(self.varint())
        return value

    def triple(self) -> tuple[int, int]:
        """A request's key and the newest version of it; the oldest is between."""
        key, _, newest = (self.integer(2) for _ in range(3))
        return key, newest

    def feature(self) -> tuple[str, int]:
        """A name and the highest level; the lowest follows."""
        name = self._bytes(self.varint() - 1).decode()
        highest, _ = self.integer(2), self.integer(2)
        return name, highest

    def _bytes(self, size: int) -> bytes:
        piece = self._data[self.at : self.at + size]
        if size < 0 or len(piece) < size:
            raise ValueError("it ends too early")
        self.at += size
        return piece
