"""Why bytes or a line make no event. Each becomes one dead letter; the stream continues."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from spu_assigner.core.base.errors import AssignerError

MESSAGE_LENGTH_MAX: Final = 500  # characters; a message may quote what came, which may be 1 MiB


class DeadLetterCode(StrEnum):
    """What is wrong with a message, so that no answer can be addressed."""

    NULL_VALUE = "NULL_VALUE"  # a tombstone; these topics take none
    TOO_LARGE = "TOO_LARGE"
    UNDECODABLE = "UNDECODABLE"  # neither of the two encodings, or not what its schema says
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"  # a schema id or fingerprint that the registry does not hold
    WRONG_TYPE = "WRONG_TYPE"  # a known schema, but no event of this topic
    TRAILING_BYTES = "TRAILING_BYTES"
    INVALID_EVENT = "INVALID_EVENT"  # decodes, but has no legal name to answer under
    KEY_MISSING = "KEY_MISSING"
    KEY_MISMATCH = "KEY_MISMATCH"  # the message's key is not its cluster_id
    BAD_EVENT = "BAD_EVENT"  # a line of JSON that makes no event


class DecodeError(AssignerError):
    """Bytes or a line make no event, or no record."""

    def __init__(self, code: DeadLetterCode, message: str) -> None:
        self.code = code
        self.message = shortened(message)
        super().__init__(f"{code}: {self.message}")


class LineFault(StrEnum):
    """What is wrong with a line of JSON that makes no event."""

    NO_JSON = "no_json"  # not one JSON object in UTF-8
    TOO_LONG = "too_long"
    TOO_DEEP = "too_deep"
    UNKNOWN_TYPE = "unknown_type"
    ABSENT_FIELD = "absent_field"
    UNKNOWN_FIELD = "unknown_field"
    REPEATED_FIELD = "repeated_field"
    WRONG_VALUE = "wrong_value"
    ILLEGAL_NAME = "illegal_name"


class LineError(DecodeError):
    """A line makes no event, and where it goes wrong."""

    def __init__(self, fault: LineFault, message: str, *, field: str = "") -> None:
        self.fault = fault
        self.field = field  # empty: the line as a whole
        super().__init__(DeadLetterCode.BAD_EVENT, message)


class SchemaError(AssignerError):
    """A schema or the registry of them breaks one of the rules of `schemas.avro`."""


class EncodeError(AssignerError):
    """An event cannot be written as Avro: the schema cannot hold it, or it has too many bytes."""


def shortened(message: str) -> str:
    """The message, cut in its middle when it quotes more than anyone reads."""
    if len(message) <= MESSAGE_LENGTH_MAX:
        return message
    half = MESSAGE_LENGTH_MAX // 2 - 2
    return f"{message[:half]} … {message[-half:]}"
