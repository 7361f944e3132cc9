"""Which events a cluster has seen: the last hashes, in slots used in turn; a topic's own."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from spu_assigner.core.base.limits import EVENT_IDS_REMEMBERED
from spu_assigner.core.rules.rendezvous import text_hash
from spu_assigner.core.state.topic import Topic

SEEN_BLOCK: Final = 16  # slots of the memory that are published together
BLOCKS: Final = -(-EVENT_IDS_REMEMBERED // SEEN_BLOCK)
OWN_EVENTS_MAX: Final = 16  # of a topic: what made it, and the last that changed it


# 64 bits that stand for an event id: asked for when an event is decided and when it is applied.
event_hash: Final = lru_cache(maxsize=16)(text_hash)


def own_events_after(topic: Topic | None, event_id: str) -> tuple[int, ...]:
    """The events that a topic remembers as its own, with one more; a new one needs none."""
    if topic is None:
        return ()
    return (topic.created_by, *(*topic.changed_by, event_hash(event_id))[1 - OWN_EVENTS_MAX :])


class Memory:
    """The last EVENT_IDS_REMEMBERED event hashes of a cluster, in slots used in turn."""

    __slots__ = ("_slots", "count", "known")

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self.known: set[int | None] = set()  # the same hashes, for a look-up
        self.count = 0  # ever remembered

    def add(self, hashed: int) -> int:
        """Remember, and forget what was in the slot; returns the block that changed."""
        slot = self.count % EVENT_IDS_REMEMBERED
        self.known.discard(self._slots.get(slot))
        self._slots[slot] = hashed
        self.known.add(hashed)
        self.count += 1
        return slot // SEEN_BLOCK

    def block(self, block: int) -> tuple[int, ...]:
        """What is in the slots of a block, in order."""
        slots = range(block * SEEN_BLOCK, (block + 1) * SEEN_BLOCK)
        return tuple([self._slots[slot] for slot in slots if slot in self._slots])

    def restore(self, block: int, hashes: tuple[int, ...]) -> None:
        """Put a block back; without hashes it is empty."""
        first = block * SEEN_BLOCK
        for slot in range(first, first + SEEN_BLOCK):
            self.known.discard(self._slots.pop(slot, None))
        self._slots.update(enumerate(hashes, first))
        self.known.update(hashes)
