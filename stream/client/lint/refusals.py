"""Why the core refuses an event: on a state, or whatever the state."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from spu_assigner.core.base.constraints import NO_CONSTRAINTS
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
from spu_assigner.schemas.json_lines.kinds import path_of
from spu_assigner.stream.client.lint.json_positions import Path

Refusal = tuple[Code, str]

# The field that a refusal is about; and the legal values that the event is decided with again.
_FIELDS: Final[Mapping[Code, str]] = {
    Code.INVALID_PARTITIONS: "partitions",
    Code.INVALID_REPLICATION_FACTOR: "replication_factor",
    Code.INVALID_START_INDEX: "start_index",
    Code.INVALID_SHIFT: "shift",
    Code.INVALID_REPLICAS: "policy",
    Code.INVALID_SPU_ID: "spu_id",
    Code.INVALID_CORES: "cores",
    Code.INVALID_CAPACITY: "capacity",
    Code.INVALID_RACK: "rack",
    Code.INVALID_MAX_MOVES: "max_moves",
    Code.INVALID_MAX_BYTES: "max_bytes",
    Code.INVALID_BAND_PERCENT: "band_percent",
    Code.INVALID_BAND: "band",
    Code.MAP_TOO_LARGE: "partitions",
    Code.RESERVED_NAME: "topic",
    Code.TOPIC_EXISTS: "topic",
    Code.TOPIC_COLLIDES: "topic",
    Code.TOPIC_UNKNOWN: "topic",
    Code.MANUAL_TOPIC: "topic",
    Code.SPU_UNKNOWN: "spu_id",
    Code.SPU_UNCHANGED: "spu_id",
    Code.INSUFFICIENT_SPUS: "replication_factor",
    Code.INSUFFICIENT_CAPACITY: "replication_factor",
    Code.RACKS_INCOMPLETE: "policy",
    Code.TOO_MANY_SPUS: "spu_id",
    Code.TOO_MANY_WAITING: "on_shortage",
    Code.INVALID_RESOURCES: "resources",
    Code.INVALID_DEMAND: "demand",
    Code.UNKNOWN_RESOURCE: "demand",
    Code.INVALID_TAINTS: "taints",
    Code.INVALID_CONSTRAINTS: "constraints",
    Code.UNSATISFIABLE: "constraints",
    Code.SOURCE_OFFLINE: "spu_id",
    Code.TOO_COMPLEX: "partitions",
}
FIXES: Final[Mapping[Code, Sequence[Mapping[str, Any]]]] = {  # tried one after the other
    Code.INVALID_PARTITIONS: [{"partitions": 1}],
    Code.INVALID_REPLICATION_FACTOR: [{"replication_factor": 1}],
    Code.INVALID_START_INDEX: [{"start_index": 0}, {"start_index": None}],
    Code.INVALID_SHIFT: [{"shift": None}],
    Code.INVALID_SPU_ID: [{"spu_id": 0}],
    Code.INVALID_CORES: [{"cores": 1}],
    Code.INVALID_CAPACITY: [{"capacity": None}],
    Code.INVALID_RACK: [{"rack": None}],
    Code.INVALID_MAX_MOVES: [{"max_moves": 0}],
    Code.INVALID_MAX_BYTES: [{"max_bytes": None}],
    Code.INVALID_BAND_PERCENT: [{"band_percent": None}],
    Code.INVALID_BAND: [{"band": None}],
    Code.INVALID_RESOURCES: [{"resources": None}],
    Code.INVALID_DEMAND: [{"demand": {}, "leader_demand": None}],
    Code.UNKNOWN_RESOURCE: [{"demand": {}, "leader_demand": None}],
    Code.INVALID_TAINTS: [{"taints": ()}],
    Code.INVALID_CONSTRAINTS: [{"constraints": NO_CONSTRAINTS}],
    Code.UNSATISFIABLE: [{"constraints": NO_CONSTRAINTS}],
}


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


def place_of(code: Code, message: str) -> tuple[str, Path]:
    """The field that a refusal is about, and the way there: inside it, if the message says so."""
    field = _FIELDS.get(code, "")
    if field in ("taints", "constraints") and (found := re.match(rf"{field}[][.\w]+", message)):
        return found[0], path_of(found[0])
    # The name of a resource may hold anything that the path to a field is made of.
    if found := re.match(r"(demand|leader_demand|resources)(?:\.(\S+))? ", message):
        return found[0].strip(), tuple(part for part in found.groups() if part)
    return field, (field,)


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
