"""What a state is made of, as records: current maps and entries, from which `restore` makes it
again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spu_assigner.core.base.chains import Order
from spu_assigner.core.base.entries import ChainEntry, Entry, SeenEntry
from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.limits import EVENT_IDS_REMEMBERED
from spu_assigner.core.base.records import ReplicaMap, SpuChanged
from spu_assigner.core.state.memory import SEEN_BLOCK

if TYPE_CHECKING:
    from spu_assigner.core.state.cluster_state import ClusterState

_BLOCKS: Final = -(-EVENT_IDS_REMEMBERED // SEEN_BLOCK)


def parts_of(state: ClusterState) -> tuple[ReplicaMap | Entry, ...]:
    """All parts of a state in a fixed order, maps last; equal states have equal parts. O(replicas).

    Of a map all is there that the state keeps: not `cause`, `chain_index` and `reason`.
    """
    blocks = [seen_entry(state, block) for block in range(_BLOCKS)]
    return (
        *(spu_entry(state, spu_id) for spu_id in sorted(state.spus)),
        *sorted(state.waiting.values(), key=lambda waiting: waiting.sequence),
        chain_entry(state),
        *(block for block in blocks if block.hashes),
        *(map_of(state, name) for name in sorted(state.topics)),
    )


def spu_entry(state: ClusterState, spu_id: SpuId) -> SpuChanged:
    """All that is known of an SPU."""
    return replace(state.spus[spu_id], core_weights=tuple(state.core_weights[spu_id]))


def chain_entry(state: ClusterState) -> ChainEntry:
    """Where all orders go on, and how many events were seen."""
    return ChainEntry(
        cluster_id=state.cluster_id,
        chains=tuple((order, state.chains[order]) for order in Order),
        registration_next=state.registration_next,
        seen_count=state.memory.count,
        retries=state.retries,
    )


def seen_entry(state: ClusterState, block: int) -> SeenEntry:
    """The remembered events in a block of slots."""
    hashes = state.memory.block(block)
    return SeenEntry(cluster_id=state.cluster_id, block=block, hashes=hashes)


def map_of(state: ClusterState, name: str) -> ReplicaMap:
    """The map of a living topic, with all of it that the state keeps."""
    topic = state.topics[name]
    wanted = topic.wanted_lengths
    return ReplicaMap(
        cluster_id=state.cluster_id,
        topic=name,
        revision=topic.revision,
        policy=topic.policy,
        replicas=topic.replicas.lists(),
        cores=None if topic.cores is None else topic.cores.lists(),
        chain_index=None,
        cause="",
        replication_factor=topic.replication_factor,
        ignore_rack=topic.ignore_rack,
        own_events=(topic.created_by, *topic.changed_by),
        pinned=topic.pinned,
        wanted_lengths=None if wanted is None else tuple(wanted),
        need=topic.need,
        constraints=topic.constraints,
    )
