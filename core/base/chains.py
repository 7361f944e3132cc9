"""Where the next assignment of each order starts."""

from __future__ import annotations

from typing import NamedTuple

from spu_assigner.core.base.fast_str_enum import FastStrEnum


class Order(FastStrEnum):
    """An order of the ring; each keeps its own chain index."""

    ID = "id"
    DIAGONAL = "diagonal"
    """Fluvio's, over racks."""
    ALTERNATION = "alternation"
    """Kafka's, over racks."""
    REGISTRATION = "registration"
    """Redpanda's."""
    BALANCED = "balanced"
    """By id, with an index of its own."""


class Chain(NamedTuple):
    """Where the next assignment of an order starts: index = cycle * ring size + position of `lead`.

    It names the SPU rather than a position, so a ring that grows or is reordered needs no change of
    it.
    """

    cycle: int = 0
    lead: int | None = None
    """None: no assignment has moved it (index 0), or the ring was emptied."""
    moved: bool = False
