"""Whether a state that was put together from what was published is whole.

One that was read back may lack a part, or hold an old one: much of that shows, because the parts
name each other. What does not: a map of a topic whose SPUs are known, but for `redpanda`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from spu_assigner.core.base.limits import REDPANDA_CORE0_WEIGHT
from spu_assigner.core.base.records import Wait
from spu_assigner.core.base.replica_lists import PADDING
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.core_weights import held_by_cores
from spu_assigner.core.state.memory import BLOCKS, SEEN_BLOCK


def faults(state: ClusterState) -> Iterator[str]:
    """What contradicts itself in a state, each as `found; expected`. O(replicas)."""
    yield from _memory_faults(state)
    yield from _topic_faults(state)
    yield from _spu_faults(state)
    yield from _waiting_faults(state)


def _memory_faults(state: ClusterState) -> Iterator[str]:
    count = state.memory.count
    for block in range(BLOCKS):
        found = len(state.memory.block(block))
        expected = min(max(count - block * SEEN_BLOCK, 0), SEEN_BLOCK)
        if found != expected:
            yield (
                f"block {block} of the remembered events has {found}; "
                f"expected {expected} after {count} events"
            )


def _topic_faults(state: ClusterState) -> Iterator[str]:
    for name, topic in state.topics.items():
        if unknown := sorted({*topic.replicas.ids()} - state.spus.keys() - {PADDING}):
            yield f"topic {name} is on SPU {unknown[0]}, which is not known; expected known SPUs"
        if topic.revision < 1:
            yield f"topic {name} has revision {topic.revision}; expected 1 or more"
        shape = topic.replicas.matrix().shape
        if topic.cores is not None and topic.cores.matrix().shape != shape:
            yield f"topic {name} has cores for other replicas; expected one for each"


def _spu_faults(state: ClusterState) -> Iterator[str]:
    by_core: Counter[int] = Counter()
    for topic in state.topics.values():
        for (spu_id, _), count in held_by_cores(topic).items():
            by_core[spu_id] += count
    registered: dict[int, int] = {}
    for spu_id, spu in state.spus.items():
        if not 0 <= spu.registration < state.registration_next:
            yield (
                f"SPU {spu_id} is registered as number {spu.registration}; "
                f"expected less than {state.registration_next}, the next one"
            )
        other = registered.setdefault(spu.registration, spu_id)
        if other != spu_id:
            yield f"SPUs {other} and {spu_id} are registered as one; expected numbers of their own"
        weights, expected = spu.core_weights, by_core[spu_id] + REDPANDA_CORE0_WEIGHT
        if len(weights) != spu.cores or sum(weights) != expected:
            yield (
                f"SPU {spu_id} has core weights {weights[:8]}; expected {spu.cores} of them, and "
                f"{expected} in all"
            )
        if spu.leaving and (spu.online or state.ledger.count(spu_id) == 0):
            yield f"SPU {spu_id} is leaving, and is online or holds nothing; expected neither"


def _waiting_faults(state: ClusterState) -> Iterator[str]:
    sequences: dict[int, str] = {}
    for name, waiting in state.waiting.items():
        is_there = name in state.topics
        if (waiting.kind is Wait.CREATE) is is_there:
            there = "is there" if is_there else "is not there"
            yield f"topic {name} {there}, and its {waiting.kind} waits; expected the contrary"
        other = sequences.setdefault(waiting.sequence, name)
        if other != name:
            yield f"topics {other} and {name} wait at one place; expected places of their own"
