"""Words of the domain as enumerations that are looked up as fast as the strings they are."""

from __future__ import annotations

from enum import StrEnum


class FastStrEnum(StrEnum):
    """A `StrEnum` with the hash of its string.

    An enumeration's own hash is a call of Python's for each look into a dict, several in each
    event.
    """

    __hash__ = str.__hash__
