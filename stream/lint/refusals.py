"""Why the core refuses an event: on a state, or whatever the state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    Event,
    Policy,
    SpuJoined,
    TopicCreate,
    TopicGrow,
    TopicReplication,
)
from spu_assigner.core.base.records import Record, RingChange, RingEvent, Status, TopicStatus
from spu_assigner.core.decision.machine import decide, step
from spu_assigner.core.state.cluster_state import ClusterState

Refusal = tuple[Code, str]


def refusal_of(event: Event, records: Sequence[Record]) -> Refusal | None:
    """Why the event that these records answer is refused or ignored; None: it is not."""
    for record in records:
        match record:
            case TopicStatus(cause=cause) if cause != event.event_id:
                pass  # It answers what has waited.
            case TopicStatus(status=Status.REJECTED, code=Code() as code, message=str(message)):
                return code, message
            case RingEvent(change=RingChange.IGNORED, code=Code() as code, message=str(message)):
                return code, message
            case _:
                pass
    return None


@cache
def _one_topic() -> ClusterState:
    """A cluster with one topic of one partition, to ask what is refused in any."""
    state = ClusterState("any")
    for event in (
        SpuJoined(event_id="join", cluster_id="any", spu_id=0),
        TopicCreate(event_id="create", cluster_id="any", topic="any"),
    ):
        step(state, event, default_policy=Policy.BALANCED)
    return state


def refusal_of_grow(partitions: int) -> Refusal | None:
    """Why no topic, however small, can be grown to so many."""
    asked = TopicGrow(event_id="grow", cluster_id="any", topic="any", partitions=partitions)
    refusal = _refusal_of_any(asked)
    return refusal if refusal is not None and refusal[0] is Code.INVALID_PARTITIONS else None


def refusal_of_factor(factor: int) -> Refusal | None:
    """Why no topic can have so many replicas."""
    asked = TopicReplication(
        event_id="factor", cluster_id="any", topic="any", replication_factor=factor
    )
    refusal = _refusal_of_any(asked)
    is_wrong = refusal is not None and refusal[0] is Code.INVALID_REPLICATION_FACTOR
    return refusal if is_wrong else None


def refusal_of_id(spu_id: int) -> Refusal | None:
    """Why no SPU can have such an id."""
    asked = SpuJoined(event_id="id", cluster_id="any", spu_id=spu_id)
    return _refusal_of_any(asked)


def _refusal_of_any(asked: Event) -> Refusal | None:
    return refusal_of(asked, decide(_one_topic(), asked, default_policy=Policy.BALANCED))
