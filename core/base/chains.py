"""Where the next assignment of each order starts."""

from __future__ import annotations

from spu_assigner.core.base.structs import FastStrEnum, FrozenStruct


class Order(FastStrEnum):
    """An order of the ring; each keeps its own chain index."""

    ID = "id"
    DIAGONAL = "diagonal"  # Fluvio's, over racks
    ALTERNATION = "alternation"  # Kafka's, over racks
    REGISTRATION = "registration"  # Redpanda's
    BALANCED = "balanced"  # by id, with an index of its own


class Chain(FrozenStruct, frozen=True, kw_only=True):
    """Where the next assignment of an order starts: index = cycle * ring size + position of `lead`.

    It names the SPU rather than a position, so a ring that grows or is reordered needs no change of
    it.
    """

    cycle: int = 0  # how often the order was passed through
    lead: int | None = None  # the SPU; None: no assignment has moved it, or the ring was emptied
    moved: bool = False  # by an assignment; else its index is 0
