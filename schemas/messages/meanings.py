"""What the schemas mean: the classes of records, the words of enums, and what else is held in
another form than the schema's.
"""

from __future__ import annotations

from operator import methodcaller
from typing import Any, Final, get_args

from spu_assigner.core.base.constraints import (
    Constraints,
    Preference,
    SpreadLevel,
    Taint,
    TaintEffect,
    Toleration,
)
from spu_assigner.core.base.errors import Code, bounded_repr
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
from spu_assigner.core.base.limits import PARTITIONS_MAX
from spu_assigner.core.base.records import (
    Answer,
    Chain,
    ChainEntry,
    Entry,
    Mode,
    Move,
    Order,
    Reason,
    RecordedRing,
    ReplicaMap,
    Retries,
    RingChange,
    RingEvent,
    SeenEntry,
    SpuChanged,
    Status,
    TopicStatus,
    Wait,
    Waiting,
)
from spu_assigner.core.base.resources import Need
from spu_assigner.schemas.avro.meaning import Form, Meaning
from spu_assigner.schemas.avro.readers import compile_reader
from spu_assigner.schemas.avro.strict_reading import array_reader, read_long, undecodable
from spu_assigner.schemas.avro.writing import LONG_MAX, LONG_MIN
from spu_assigner.schemas.errors import EncodeError
from spu_assigner.schemas.messages.replica_lists import lists_bytes, read_even_lists, read_lists
from spu_assigner.schemas.messages.wire import (
    AppliedTopic,
    CommitMarker,
    DeadLetter,
    MovedPartition,
    MovesRun,
    MovesState,
    Origin,
    PartitionOffsets,
    PartitionPosition,
    RecoveredFrom,
    ThrottleValue,
)

Message = Answer | Entry | DeadLetter | CommitMarker | AppliedTopic | MovesRun

EVENT_TYPES: Final[dict[str, type[Event]]] = {cls.__name__: cls for cls in get_args(Event)}
MESSAGE_TYPES: Final[dict[str, type[Message]]] = {
    "ReplicaMap": ReplicaMap,
    "TopicStatus": TopicStatus,
    "RingEvent": RingEvent,
    "SpuState": SpuChanged,
    "WaitingState": Waiting,
    "ChainState": ChainEntry,
    "SeenState": SeenEntry,
    "DeadLetter": DeadLetter,
    "CommitMarker": CommitMarker,
    "AppliedTopic": AppliedTopic,
    "MovesRun": MovesRun,
}
TYPE_NAMES: Final[dict[type[Event | Message], str]] = {
    cls: name for name, cls in (EVENT_TYPES | MESSAGE_TYPES).items()
}
_PARTS: Final = (
    *(Reason, RecordedRing, Move, Need, Retries),
    *(PartitionOffsets, PartitionPosition, RecoveredFrom, MovedPartition, ThrottleValue),
    *(Taint, Constraints, Toleration, Preference, SpreadLevel),
)
_ENUMS: Final = (
    *(LeaveMode, OnShortage, Policy, Status, RingChange, Order, Mode, Wait),
    *(Origin, MovesState, TaintEffect),
)


def _code(code: str) -> Code:
    try:
        return Code(code)
    except ValueError:
        raise undecodable(f"a code is {code!r}; this release knows none of that name") from None


def _manual_lists(replicas: Any) -> list[dict[str, Any]]:
    """Manual lists; the list form and the object form are one in Avro."""
    match replicas:
        case list() as entries:
            pass
        case {"partitions": list() as entries, **others} if not others:
            pass
        case _:
            raise EncodeError(
                "replicas holds no lists; expected a list, or an object with partitions alone"
            )
    for index, entry in enumerate(entries):
        match entry:
            case {"id": partition, "replicas": list() as ids, **others} if not others:
                _check_longs(index, [partition, *ids])
            case _:
                said = f"replicas entry {index} is not an object of id and replicas alone"
                raise EncodeError(said)
    return entries


def _check_longs(index: int, values: list[Any]) -> None:
    for value in values:
        if type(value) is not int or not LONG_MIN <= value <= LONG_MAX:
            raise EncodeError(
                f"replicas entry {index} holds {bounded_repr(value)}; expected a number of 64 bits"
            )


_MANUAL_LIST: Final = {
    "type": "record",
    "name": "ManualList",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "replicas", "type": {"type": "array", "items": "long"}},
    ],
}
_HASH: Final = Form(  # 64 bits, unsigned
    load=int.from_bytes, dump=methodcaller("to_bytes", 8, "big")
)
_BY_TOPIC: Final = Form(dump=lambda members: {topic: members[topic] for topic in sorted(members)})
_PAIRS: Final = Form(load=lambda amounts: tuple(sorted(amounts.items())), dump=dict)
_LISTS: Final = Form(read=read_lists, write=lists_bytes)

MEANING: Final = Meaning(
    classes=EVENT_TYPES | MESSAGE_TYPES | {cls.__name__: cls for cls in _PARTS},
    enums={cls.__name__: cls for cls in _ENUMS},
    forms={
        "EventHash": _HASH,
        "Chain": Form(
            load=lambda read: (read.pop("order"), Chain(**read)),
            dump=lambda pair: {
                "order": pair[0],
                "cycle": pair[1].cycle,
                "lead": pair[1].lead,
                "moved": pair[1].moved,
            },
        ),
        # A request for too many partitions is refused by their number alone. Kept whole, half a
        # million empty lists, which a message of 1 MiB can hold, would take 130 MB.
        "TopicCreate.replicas": Form(
            read=array_reader(compile_reader(_MANUAL_LIST), kept_max=PARTITIONS_MAX),
            dump=_manual_lists,
        ),
        "TopicAdopted.replicas": Form(
            read=array_reader(
                array_reader(read_long, load=tuple), load=tuple, kept_max=PARTITIONS_MAX
            )
        ),
        "ReplicaMap.replicas": _LISTS,
        "ReplicaMap.cores": _LISTS,
        "TopicStatus.code": Form(load=_code),
        "TopicStatus.replicas": Form(read=read_even_lists, write=lists_bytes),
        "RingEvent.code": Form(load=_code),
        "SpuState.labels": _PAIRS,
        "SpuState.resources": _PAIRS,
        "Need.demand": _PAIRS,
        "Need.leader_demand": _PAIRS,
        "CommitMarker.offsets": _BY_TOPIC,
        "CommitMarker.positions": _BY_TOPIC,
    },
    array=tuple,
)
