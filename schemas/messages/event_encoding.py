"""Events as Avro bytes, without the frame: one function for each type.

Their numbers are as the producer gave them, so they are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from spu_assigner.core.base.bounded_repr import bounded_repr
from spu_assigner.core.base.events import (
    BaseEvent,
    BaseTopicEvent,
    ClusterRebalance,
    Event,
    LeaveMode,
    OnShortage,
    Policy,
    SpuJoined,
    SpuLeft,
    TopicCreate,
    TopicDelete,
    TopicGrow,
    TopicRelease,
)
from spu_assigner.schemas.avro.strict_reading import INT_MAX, INT_MIN
from spu_assigner.schemas.avro.writing import (
    LONG_MAX,
    LONG_MIN,
    array_bytes,
    boolean_byte,
    long_bytes,
    nullable_long,
    nullable_text,
    text_bytes,
)
from spu_assigner.schemas.errors import EncodeError

# The order of symbols in the schemas is that of the enums; a test holds them together.
_POLICIES: Final = {policy: long_bytes(index) for index, policy in enumerate(Policy)}
_LEAVE_MODES: Final = {mode: long_bytes(index) for index, mode in enumerate(LeaveMode)}
_SHORTAGES: Final = {word: long_bytes(index) for index, word in enumerate(OnShortage)}


def _int(name: str, value: int) -> bytes:
    if not INT_MIN <= value <= INT_MAX:
        raise EncodeError(f"{name} is {bounded_repr(value)}; expected {INT_MIN} to {INT_MAX}")
    return long_bytes(value)


def _nullable_int(name: str, value: int | None) -> bytes:
    return b"\x00" if value is None else b"\x02" + _int(name, value)


def _common(event: BaseEvent) -> bytes:
    at = event.occurred_at
    if at is not None and not LONG_MIN <= at <= LONG_MAX:
        raise EncodeError(f"occurred_at is {bounded_repr(at)}; expected 64 bits")
    return text_bytes(event.event_id) + text_bytes(event.cluster_id) + nullable_long(at)


def _topic_common(event: BaseTopicEvent) -> bytes:
    return _common(event) + text_bytes(event.topic)


def _spu_joined(event: SpuJoined) -> bytes:
    labels = event.labels
    return b"".join(
        (
            _common(event),
            _int("spu_id", event.spu_id),
            nullable_text(event.rack),
            _int("cores", event.cores),
            _nullable_int("capacity", event.capacity),
            b"\x00" if labels is None else b"\x02" + _labels(labels),
        )
    )


def _labels(labels: Mapping[str, str]) -> bytes:
    return array_bytes([text_bytes(name) + text_bytes(text) for name, text in labels.items()])


def _spu_left(event: SpuLeft) -> bytes:
    return _common(event) + _int("spu_id", event.spu_id) + _LEAVE_MODES[event.mode]


def _topic_create(event: TopicCreate) -> bytes:
    return b"".join(
        (
            _topic_common(event),
            _int("partitions", event.partitions),
            _int("replication_factor", event.replication_factor),
            b"\x00" if event.policy is None else b"\x02" + _POLICIES[event.policy],
            boolean_byte(event.ignore_rack),
            _nullable_int("start_index", event.start_index),
            _nullable_int("shift", event.shift),
            b"\x00" if event.replicas is None else b"\x02" + _manual(event.replicas),
            boolean_byte(event.validate_only),
            _SHORTAGES[event.on_shortage],
        )
    )


def _manual(replicas: Any) -> bytes:
    """Manual lists; the list form and the object form are one in Avro."""
    match replicas:
        case list() as entries:
            pass
        case {"partitions": list() as entries, **others} if not others:
            pass
        case _:
            raise EncodeError("replicas is neither a list nor an object with partitions alone")
    return array_bytes([_manual_list(index, entry) for index, entry in enumerate(entries)])


def _manual_list(index: int, entry: Any) -> bytes:
    match entry:
        case {"id": partition, "replicas": list() as ids, **others} if not others:
            return _manual_long(index, partition) + array_bytes(
                [_manual_long(index, each) for each in ids]
            )
    raise EncodeError(f"replicas entry {index} is not an object of id and replicas alone")


def _manual_long(index: int, value: Any) -> bytes:
    if type(value) is not int or not LONG_MIN <= value <= LONG_MAX:
        raise EncodeError(
            f"replicas entry {index} holds {bounded_repr(value)}; expected a number of 64 bits"
        )
    return long_bytes(value)


def _topic_grow(event: TopicGrow) -> bytes:
    return _topic_common(event) + _int("partitions", event.partitions)


def _cluster_rebalance(event: ClusterRebalance) -> bytes:
    return _common(event) + _int("max_moves", event.max_moves)


# By type: the name of its schema, and its bytes.

EVENT_BODIES: Final[dict[type[Event], tuple[str, Callable[[Any], bytes]]]] = {
    SpuJoined: ("SpuJoined", _spu_joined),
    SpuLeft: ("SpuLeft", _spu_left),
    TopicCreate: ("TopicCreate", _topic_create),
    TopicDelete: ("TopicDelete", _topic_common),
    TopicRelease: ("TopicRelease", _topic_common),
    TopicGrow: ("TopicGrow", _topic_grow),
    ClusterRebalance: ("ClusterRebalance", _cluster_rebalance),
}
