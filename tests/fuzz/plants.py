"""Faults that are planted on purpose, to see that the fuzzer finds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spu_assigner.core.base.events import LeaveMode, SpuLeft
from spu_assigner.core.decision import membership
from spu_assigner.schemas.json_lines import json_object
from spu_assigner.schemas.messages import codec
from spu_assigner.stream.client import assignment_file
from spu_assigner.stream.job.shard import batch as shard_batch


@dataclass(frozen=True, kw_only=True)
class Plant:
    """One fault."""

    target: str  # that has to find it
    plant: Callable[[], None]


def _accept_trailing_bytes() -> None:
    def read(read_value: Any, data: bytes, position: int) -> Any:
        try:
            return read_value(data, position)[0]
        except IndexError:
            return codec_read(read_value, data, position)

    codec_read = codec.read_whole
    setattr(codec, "read_whole", read)  # noqa: B010 — a fault, planted


def _stumble_over_names_given_twice() -> None:
    def repeated_field(name: str) -> None:
        raise KeyError(name)

    setattr(json_object, "_repeated_field", repeated_field)  # noqa: B010 — a fault, planted


def _stumble_over_depth() -> None:
    def is_deeper_than(value: Any, depth: int) -> bool:
        return bool(value) and (depth < 4 or is_deeper_than(value[0], depth - 1))

    setattr(assignment_file, "is_deeper_than", is_deeper_than)  # noqa: B010 — a fault, planted


def _forget_to_repair() -> None:
    original = membership.leave

    def leave(state: Any, event: SpuLeft) -> Any:
        if event.mode is LeaveMode.DECOMMISSION and state.ledger.count(event.spu_id) > 3:
            raise KeyError(event.spu_id)
        return original(state, event)

    setattr(membership, "leave", leave)  # noqa: B010 — a fault, planted


def _stumble_over_tombstones() -> None:
    original = shard_batch.decode_event

    def decode(value: bytes | None, *, kind: Any) -> Any:
        if value is None:
            raise TypeError("a value is None")
        return original(value, kind=kind)

    setattr(shard_batch, "decode_event", decode)  # noqa: B010 — a fault, planted


PLANTS = {
    "trailing bytes are accepted": Plant(target="decoder", plant=_accept_trailing_bytes),
    "a name given twice raises": Plant(target="jsonl", plant=_stumble_over_names_given_twice),
    "depth is looked for in the wrong place": Plant(
        target="manual_file", plant=_stumble_over_depth
    ),
    "a large decommission raises": Plant(target="core", plant=_forget_to_repair),
    "a tombstone raises": Plant(target="shard_batch", plant=_stumble_over_tombstones),
}
