"""What goes wrong, by name.

A request that cannot be met is no error: its `Rejection` is answered with a `TopicStatus` or a
`RingEvent` that carries the `Code`.
"""

from __future__ import annotations

from enum import StrEnum
from reprlib import Repr
from typing import Final

SHOWN_BITS_MAX: Final = 128  # of a wrong integer in a message, more than any id has


class _Brief(Repr):
    """Any value, however long or deep, spelt out in bounded time and length."""

    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > SHOWN_BITS_MAX:  # Python refuses to spell out the longest
            return f"<an integer of {x.bit_length()} bits>"
        return super().repr_int(x, level)


bounded_repr = _Brief().repr

_LONG: Final = _Brief()
_LONG.maxstring = 160
long_repr: Final = _LONG.repr  # of texts of which more is worth seeing


class AssignerError(Exception):
    """The root of every error this product raises itself."""


class InvalidEventError(AssignerError):
    """A value that its field cannot hold, or a name to which no answer can be addressed."""

    def __init__(self, *, field: str, value: object, expected: str) -> None:
        self.field = field
        """Where the value was given, such as `partitions` or `constraints.spread[0].max`."""
        self.value = value
        """What was found."""
        self.expected = expected
        """What the field can hold, in words."""
        super().__init__(f"{field} is {bounded_repr(value)}; expected {expected}")


class InvalidStateError(AssignerError):
    """A text is no saved state, or not a whole one."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        """What was found, and what was expected."""
        super().__init__(f"no saved state: {fault}; give what `state_to_json` wrote")


class InvariantError(AssignerError):
    """The state contradicts itself; going on would spread the damage."""


class Code(StrEnum):
    """Why a request was not met, or an event ignored."""

    INVALID_PARTITIONS = "INVALID_PARTITIONS"
    INVALID_REPLICATION_FACTOR = "INVALID_REPLICATION_FACTOR"
    INVALID_START_INDEX = "INVALID_START_INDEX"
    INVALID_SHIFT = "INVALID_SHIFT"
    INVALID_REPLICAS = "INVALID_REPLICAS"  # for a policy other than manual, or none for it
    MANUAL_PARTITION_IDS = "MANUAL_PARTITION_IDS"
    MANUAL_EMPTY_LIST = "MANUAL_EMPTY_LIST"
    MANUAL_UNEVEN_LISTS = "MANUAL_UNEVEN_LISTS"
    MANUAL_DUPLICATE_SPU = "MANUAL_DUPLICATE_SPU"
    MANUAL_INVALID_SPU = "MANUAL_INVALID_SPU"
    MANUAL_UNKNOWN_SPU = "MANUAL_UNKNOWN_SPU"
    MANUAL_SPU_FULL = "MANUAL_SPU_FULL"
    MANUAL_MALFORMED = "MANUAL_MALFORMED"  # neither the list form nor the object form
    RACKS_INCOMPLETE = "RACKS_INCOMPLETE"
    INSUFFICIENT_SPUS = "INSUFFICIENT_SPUS"
    INSUFFICIENT_CAPACITY = "INSUFFICIENT_CAPACITY"
    MAP_TOO_LARGE = "MAP_TOO_LARGE"
    TOPIC_EXISTS = "TOPIC_EXISTS"
    TOPIC_COLLIDES = "TOPIC_COLLIDES"  # differs from another in dots and underscores alone
    TOPIC_UNKNOWN = "TOPIC_UNKNOWN"
    SPU_UNKNOWN = "SPU_UNKNOWN"
    INVALID_SPU_ID = "INVALID_SPU_ID"
    INVALID_CORES = "INVALID_CORES"
    INVALID_CAPACITY = "INVALID_CAPACITY"
    INVALID_RACK = "INVALID_RACK"
    TOO_MANY_SPUS = "TOO_MANY_SPUS"
    TOO_MANY_WAITING = "TOO_MANY_WAITING"
    MANUAL_SPU_LEAVING = "MANUAL_SPU_LEAVING"
    MANUAL_TOPIC = "MANUAL_TOPIC"  # it was placed by hand: it does not grow
    INVALID_MAX_MOVES = "INVALID_MAX_MOVES"
    INVALID_MAX_BYTES = "INVALID_MAX_BYTES"
    INVALID_BAND_PERCENT = "INVALID_BAND_PERCENT"
    INVALID_BAND = "INVALID_BAND"
    RESERVED_NAME = "RESERVED_NAME"  # Kafka's own, or one of the product's topics
    SPU_UNCHANGED = "SPU_UNCHANGED"  # it is cordoned or demoted already, or is neither
    MANUAL_SPU_CORDONED = "MANUAL_SPU_CORDONED"
    INVALID_RESOURCES = "INVALID_RESOURCES"  # of an SPU: too many, a name or an amount
    INVALID_DEMAND = "INVALID_DEMAND"  # of a topic: likewise
    UNKNOWN_RESOURCE = "UNKNOWN_RESOURCE"  # no SPU of the cluster has it
    INVALID_TAINTS = "INVALID_TAINTS"  # of an SPU
    INVALID_CONSTRAINTS = "INVALID_CONSTRAINTS"  # no selectors, unknown topics, a policy without
    UNSATISFIABLE = "UNSATISFIABLE"  # the constraints and the cluster permit no list
    SOURCE_OFFLINE = "SOURCE_OFFLINE"  # the only copy is on an SPU that is offline
    TOO_COMPLEX = "TOO_COMPLEX"  # it takes more work than one event may
    TOO_MANY_MOVES = "TOO_MANY_MOVES"  # it moves more replicas than one event may


class Rejection(AssignerError):  # noqa: N818 — the answer to a request, not a fault of ours
    """A request cannot be met: raised where that is found, made an answer by `decide`."""

    def __init__(self, code: Code, message: str) -> None:
        self.code = code
        self.message = message
        """What was found, what was expected and what to do."""
        super().__init__(message)
