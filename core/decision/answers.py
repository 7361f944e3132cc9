"""The parts that answers are made of, and how a ring and its chains change with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from spu_assigner.core.base.bounded_repr import bounded_repr
from spu_assigner.core.base.chains import Chain, Order
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, SpuId, TopicCreate
from spu_assigner.core.base.limits import INDEX_MAX, KAFKA_OWN
from spu_assigner.core.base.records import (
    Answer,
    ChainsChanged,
    Record,
    RecordedRing,
    ReplicaMap,
    RingChange,
    RingEvent,
    SpuChanged,
    Status,
    TopicStatus,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import Ring, members_text, ranges_text

_ANSWERS: Final = (ReplicaMap, TopicStatus, RingEvent)
CLUSTER_TOPIC: Final = ""  # what a status names that answers for the cluster


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not, and what to do."""

    code: Code
    message: str


def status(
    state: ClusterState,
    topic: str,
    answer: Status,
    cause: str,
    *,
    refusal: Refusal | None = None,
    replicas: ReplicaLists | None = None,
    moves: int | None = None,
) -> TopicStatus:
    """The answer to a request; `refusal` says why it is no grant."""
    return TopicStatus(
        cluster_id=state.cluster_id,
        topic=topic,
        status=answer,
        code=None if refusal is None else refusal.code,
        message=None if refusal is None else refusal.message,
        replicas=replicas,
        cause=cause,
        moves=moves,
    )


def rejected(state: ClusterState, topic: str, refusal: Refusal, cause: str) -> TopicStatus:
    """The request is not met."""
    return status(state, topic, Status.REJECTED, cause, refusal=refusal)


def ignored(state: ClusterState, spu_id: int, refusal: Refusal, cause: str) -> RingEvent:
    """The membership event is not followed."""
    return RingEvent(
        cluster_id=state.cluster_id,
        spu_id=spu_id,
        change=RingChange.IGNORED,
        code=refusal.code,
        message=refusal.message,
        ring_size=state.ring.size,
        cause=cause,
    )


def unknown_topic(state: ClusterState, topic: str) -> Refusal:
    """The refusal of what changes a living topic, where there is none of that name."""
    waits = ": it still waits" if topic in state.waiting else ""
    return Refusal(Code.TOPIC_UNKNOWN, f"no topic {topic!r} in cluster {state.cluster_id!r}{waits}")


def refuse_name(
    topic: str, reserved_names: frozenset[str], *, advice: str = "choose another name"
) -> Refusal | None:
    """Why no topic of the assigner's may be called so; None: it may."""
    if topic.startswith(KAFKA_OWN):
        found = f"begins with {KAFKA_OWN!r}, as Kafka's own topics do"
    elif topic in reserved_names:
        found = "is one of the assigner's own topics"
    else:
        return None
    return Refusal(Code.RESERVED_NAME, f"topic {topic!r} {found}; {advice}")


def refuse_start(event: TopicCreate, policy: Policy) -> Refusal | None:
    """Why a create of this policy cannot have the start that it names; None: it can."""
    if event.start_index is not None:
        if policy not in (Policy.FLUVIO, Policy.KAFKA):
            found = f"start_index with policy {policy.value!r}"
            return Refusal(
                Code.INVALID_START_INDEX,
                f"{found}; it is for 'fluvio' and 'kafka' only, leave it out",
            )
        if not 0 <= event.start_index <= INDEX_MAX:
            return Refusal(
                Code.INVALID_START_INDEX,
                f"start_index is {bounded_repr(event.start_index)}; expected 0 to {INDEX_MAX}",
            )
    if event.shift is not None:
        if policy is not Policy.KAFKA or event.start_index is None:
            return Refusal(
                Code.INVALID_SHIFT,
                "shift is for policy 'kafka' with a start_index only; leave it out",
            )
        if not 0 <= event.shift <= INDEX_MAX:
            return Refusal(
                Code.INVALID_SHIFT,
                f"shift is {bounded_repr(event.shift)}; expected 0 to {INDEX_MAX}",
            )
    return None


def refuse_number(code: Code, field: str, value: int, largest: int) -> Refusal:
    """The refusal of a number that is out of its limits."""
    return Refusal(code, f"{field} is {bounded_repr(value)}; expected 1 to {largest}")


def ring_event(
    state: ClusterState,
    spu_id: int,
    change: RingChange,
    size: int,
    cause: str,
    *,
    resource: str | None = None,
) -> RingEvent:
    """What became of an SPU; `size` is the ring's after it."""
    return RingEvent(
        cluster_id=state.cluster_id,
        spu_id=spu_id,
        change=change,
        code=None,
        message=None,
        ring_size=size,
        cause=cause,
        resource=resource,
    )


def recorded_ring(
    state: ClusterState,
    order: Order,
    *,
    is_weighted: bool = False,
    fenced: Mapping[int, str] | None = None,
) -> RecordedRing:
    """What a reason says of the ring; made once for each ring and order.

    Args:
        state: before the step.
        order: that the rule read.
        is_weighted: whether it read capacities too.
        fenced: the offline SPUs that `kraft` read too, each with its rack.
    """
    ring = state.ring
    key = RecordedRing, order, is_weighted
    known: RecordedRing | None = ring.kept.get(key)
    if known is None:
        parts = {}
        if ring.size < len(state.spus):
            outside = map(ranges_text, state.ledger.outside_ring())
            parts = dict(zip(("offline", "cordoned", "saturated"), outside, strict=True))
        known = RecordedRing(members=ring.text(order, is_weighted=is_weighted), **parts)
        ring.kept[key] = known
    if not fenced:
        return known
    racks = [*ring.racks().tolist(), *fenced.values()]
    number_of = {rack: number for number, rack in enumerate(sorted(set(racks)))}
    numbers = np.array([number_of[rack] for rack in racks], dtype=np.int32)
    return replace(
        known,
        members=members_text(ring.ids, numbers[: ring.size]),
        fenced=members_text(np.array([*fenced], dtype=np.int32), numbers[ring.size :]),
    )


def ring_without(
    ring: Ring, chains: Mapping[Order, Chain], gone: tuple[int, ...]
) -> tuple[Ring, dict[Order, Chain]]:
    """The ring and its chains after some members leave together."""
    return ring.without(gone), {
        order: ring.chain_without(order, chain, gone) for order, chain in chains.items()
    }


def ring_with(
    state: ClusterState,
    changed: Mapping[SpuId, SpuChanged],
    entering: Iterable[int],
    ring: Ring,
    chains: Mapping[Order, Chain],
) -> tuple[Ring, dict[Order, Chain]]:
    """The ring and its chains after SPUs have entered it or were described again."""
    if changed:
        ring = ring.with_members(entering, {**state.spus, **changed})
    return ring, {order: ring.chain_entered(order, chain) for order, chain in chains.items()}


def chains_changed(
    state: ClusterState, chains: Mapping[Order, Chain], registration_next: int | None = None
) -> list[Record]:
    """The record of chains that differ from the state's; none if none does."""
    before = state.chains
    changed = tuple([pair for pair in chains.items() if pair[1] is not before[pair[0]]])
    if registration_next is None:
        registration_next = state.registration_next
    if not changed and registration_next == state.registration_next:
        return []
    return [
        ChainsChanged(
            cluster_id=state.cluster_id, chains=changed, registration_next=registration_next
        )
    ]


def with_final_size(records: Sequence[Record], size: int) -> tuple[Record, ...]:
    """The records of one event, each of its ring events with the ring's size after the event."""
    return tuple(
        replace(record, ring_size=size)
        if isinstance(record, RingEvent) and record.ring_size != size
        else record
        for record in records
    )


def answers(records: Sequence[Record]) -> tuple[Answer, ...]:
    """The answers among the records of one event: maps by topic, statuses, ring events by SPU id.

    The records themselves are in the order in which they apply.
    """
    found = [record for record in records if isinstance(record, _ANSWERS)]
    if len(found) > 1:
        found.sort(key=_place_among_answers)
    return tuple(found)


def _place_among_answers(answer: Answer) -> tuple[int, str, int]:
    match answer:
        case ReplicaMap():
            return 0, answer.topic, answer.revision
        case TopicStatus():
            return 1, "", 0
        case RingEvent():
            return 2, "", answer.spu_id
