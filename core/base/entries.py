"""What `assigner-state` carries: with the current maps, all that makes the state of a cluster."""

from __future__ import annotations

from enum import StrEnum

from spu_assigner.core.base.chains import Chain, Order
from spu_assigner.core.base.records import Retries, SpuChanged, Waiting
from spu_assigner.core.base.structs import FrozenStruct


class ChainEntry(FrozenStruct, frozen=True, kw_only=True):
    """All chain indexes of a cluster, as `assigner-state` keeps them."""

    cluster_id: str
    chains: tuple[tuple[Order, Chain], ...]  # every order, in the order of `Order`
    registration_next: int  # the number of the next SPU that registers
    seen_count: int  # events ever remembered; the next takes slot seen_count % EVENT_IDS_REMEMBERED
    retries: Retries | None = None  # what is left to be tried of what waits


class SeenEntry(FrozenStruct, frozen=True, kw_only=True):
    """Sixteen slots of the memory of event ids, as `assigner-state` keeps them."""

    cluster_id: str
    block: int  # holds slots 16 * block … 16 * block + 15
    hashes: tuple[int, ...]  # up to 16, the filled slots; 64 bits, unsigned


class EntryKind(StrEnum):
    """Entries that can be gone; the word is part of their key."""

    SPU = "spu"
    WAITING = "waiting"
    CHAINS = "chains"
    SEEN = "seen"


class EntryGone(FrozenStruct, frozen=True, kw_only=True):
    """What `assigner-state` said of this is no more: a tombstone."""

    cluster_id: str
    kind: EntryKind
    name: str  # the SPU id, the topic, "all" chains, or the block of remembered ids


Entry = SpuChanged | Waiting | ChainEntry | SeenEntry
