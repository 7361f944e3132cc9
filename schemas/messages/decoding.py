"""Events, records and entries from Avro bytes without the frame: one function for each type.

`BUILDERS` make them from decoded fields. `HOT_READERS` go straight from the bytes of the current
schema, for the two types whose number decides the speed of the job and of its start: requests for
topics and replica maps. Both give the same, which tests hold them to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    ClusterRebalance,
    LeaveMode,
    Policy,
    SpuJoined,
    SpuLeft,
    TopicCreate,
    TopicDelete,
    TopicGrow,
    TopicRelease,
)
from spu_assigner.core.base.records import (
    Chain,
    ChainEntry,
    Order,
    Reason,
    ReplicaMap,
    RingChange,
    RingEvent,
    SeenEntry,
    SpuChanged,
    Status,
    TopicStatus,
    Wait,
    Waiting,
)
from spu_assigner.schemas.avro.strict_reading import (
    Reader,
    undecodable,
)
from spu_assigner.schemas.messages.create_reading import shape_of, topic_create_reader
from spu_assigner.schemas.messages.map_reading import (
    hashes_of,
    reason_fields,
    replica_map_reader,
    with_factor,
)
from spu_assigner.schemas.messages.replica_lists import even_lists_of, lists_of
from spu_assigner.schemas.messages.wire import (
    AppliedTopic,
    CommitMarker,
    DeadLetter,
    Origin,
    PartitionOffsets,
    PartitionPosition,
    RecoveredFrom,
)

Fields = dict[str, Any]
Builder = Callable[[Fields], Any]


def _spu_left(fields: Fields) -> SpuLeft:
    fields["mode"] = LeaveMode[fields["mode"]]
    return SpuLeft(**fields)


def _topic_create(fields: Fields) -> TopicCreate:
    return TopicCreate(**shape_of(fields))


def _replica_map(fields: Fields) -> ReplicaMap:
    fields["policy"] = Policy[fields["policy"]]
    fields["replicas"] = lists_of(fields["replicas"])
    fields["cores"] = None if fields["cores"] is None else lists_of(fields["cores"])
    fields["own_events"] = hashes_of(fields["own_events"])
    if fields["reason"] is not None:
        fields["reason"] = Reason(**reason_fields(fields["reason"]))
    return with_factor(fields)


def _topic_status(fields: Fields) -> TopicStatus:
    replicas = fields["replicas"]
    fields["status"] = Status[fields["status"]]
    fields["code"] = _code(fields["code"])
    fields["replicas"] = None if replicas is None else even_lists_of(replicas)
    return TopicStatus(**fields)


def _ring_event(fields: Fields) -> RingEvent:
    fields["change"] = RingChange[fields["change"]]
    fields["code"] = _code(fields["code"])
    return RingEvent(**fields)


def _code(code: str | None) -> Code | None:
    if code is None:
        return None
    try:
        return Code(code)
    except ValueError:
        raise undecodable(f"a code is {code!r}; this release knows none of that name") from None


def _spu_changed(fields: Fields) -> SpuChanged:
    fields["labels"] = tuple(sorted(fields["labels"].items()))
    fields["core_weights"] = tuple(fields["core_weights"])
    return SpuChanged(**fields)


def _waiting(fields: Fields) -> Waiting:
    policy = fields["policy"]
    fields["kind"] = Wait[fields["kind"]]
    fields["policy"] = None if policy is None else Policy[policy]
    return Waiting(**fields)


def _chain_entry(fields: Fields) -> ChainEntry:
    fields["chains"] = tuple(
        (
            Order[each["order"]],
            Chain(cycle=each["cycle"], lead=each["lead"], moved=each["moved"]),
        )
        for each in fields["chains"]
    )
    return ChainEntry(**fields)


def _seen_entry(fields: Fields) -> SeenEntry:
    fields["hashes"] = hashes_of(fields["hashes"])
    return SeenEntry(**fields)


def _commit_marker(fields: Fields) -> CommitMarker:
    fields["offsets"] = {
        topic: tuple(PartitionOffsets(**each) for each in partitions)
        for topic, partitions in fields["offsets"].items()
    }
    fields["positions"] = {
        topic: tuple(PartitionPosition(**each) for each in partitions)
        for topic, partitions in fields["positions"].items()
    }
    if (lost := fields["recovered_from"]) is not None:
        fields["recovered_from"] = RecoveredFrom(**lost)
    return CommitMarker(**fields)


def _applied_topic(fields: Fields) -> AppliedTopic:
    fields["origin"] = Origin[fields["origin"]]
    return AppliedTopic(**fields)


BUILDERS: Final[dict[str, Builder]] = {
    "SpuJoined": lambda fields: SpuJoined(**fields),
    "SpuLeft": _spu_left,
    "TopicCreate": _topic_create,
    "TopicDelete": lambda fields: TopicDelete(**fields),
    "TopicRelease": lambda fields: TopicRelease(**fields),
    "TopicGrow": lambda fields: TopicGrow(**fields),
    "ClusterRebalance": lambda fields: ClusterRebalance(**fields),
    "ReplicaMap": _replica_map,
    "TopicStatus": _topic_status,
    "RingEvent": _ring_event,
    "SpuState": _spu_changed,
    "WaitingState": _waiting,
    "ChainState": _chain_entry,
    "SeenState": _seen_entry,
    "DeadLetter": lambda fields: DeadLetter(**fields),
    "CommitMarker": _commit_marker,
    "AppliedTopic": _applied_topic,
}
HOT_READERS: Final[dict[str, Callable[[Any], Reader]]] = {
    "TopicCreate": topic_create_reader,
    "ReplicaMap": replica_map_reader,
}
