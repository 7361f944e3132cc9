"""Which events a cluster has seen: the last hashes, in slots used in turn."""

from __future__ import annotations

from typing import Final

from spu_assigner.core.base.limits import EVENT_IDS_REMEMBERED

SEEN_BLOCK: Final = 16  # slots of the memory that are published together


class Memory:
    """The last EVENT_IDS_REMEMBERED event hashes of a cluster, in slots used in turn."""

    __slots__ = ("_slots", "count", "known")

    def __init__(self) -> None:
        self._slots: list[int | None] = [None] * EVENT_IDS_REMEMBERED
        self.known: set[int | None] = set()  # the same hashes, for a look-up
        self.count = 0  # ever remembered

    def add(self, hashed: int) -> int:
        """Remember, and forget what was in the slot.

        Returns the number of the block that changed.
        """
        count, slots, known = self.count, self._slots, self.known
        slot = count % EVENT_IDS_REMEMBERED
        known.discard(slots[slot])
        slots[slot] = hashed
        known.add(hashed)
        self.count = count + 1
        return slot // SEEN_BLOCK

    def block(self, block: int) -> tuple[int, ...]:
        """What is in the slots of a block, in order."""
        slots = self._slots[block * SEEN_BLOCK : (block + 1) * SEEN_BLOCK]
        return tuple(hashed for hashed in slots if hashed is not None)

    def restore(self, block: int, hashes: tuple[int, ...]) -> None:
        """Put a block back."""
        first = block * SEEN_BLOCK
        slots = slice(first, first + len(hashes))
        self.known.difference_update(self._slots[slots])
        self._slots[slots] = hashes
        self.known.update(hashes)
