"""Reads the replica lists of a manual request: what an operator wrote, in a file or inline.

Two forms are read, both of the source documents: a list of `{"id": 0, "replicas": [0, 1, 2]}`, and
the object `{"partitions": [such entries]}`. Only the shape is judged here; whether the SPUs exist
and have room, the cluster knows. A request is refused for its first fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeGuard

from spu_assigner.core.base.errors import Code, Rejection, bounded_repr
from spu_assigner.core.base.limits import PARTITIONS_MAX, REPLICATION_FACTOR_MAX, SPU_ID_MAX
from spu_assigner.core.base.replica_lists import ReplicaLists

_ENTRY_KEYS: Final = {"id", "replicas"}
_FORMS: Final = (
    'a list of {"id": 0, "replicas": [0, 1, 2]}, or the object {"partitions": [such entries]}'
)


class ManualFault(Rejection):
    """Why lists are refused: partition and value, and what to do."""

    def __init__(self, code: Code, message: str, path: tuple[int | str, ...] = ()) -> None:
        """`path`: from the list of the partitions to what is wrong in it."""
        super().__init__(code, message)
        self.path = path


def read_lists(raw: object) -> ReplicaLists:
    """The replica lists of `raw`, which came out of JSON or Avro.

    Raises:
        ManualFault: the first of `list_faults`.
    """
    for fault in list_faults(raw):
        raise fault
    return ReplicaLists.of_lists([entry["replicas"] for entry in entries_of(raw)])


def entries_of(raw: Any) -> Any:
    """What should be the list of the partitions, in either form."""
    return raw.get("partitions") if isinstance(raw, dict) else raw


def list_faults(raw: object) -> Iterator[ManualFault]:
    """Every fault of the lists, in their order.

    After an id out of order the count continues from it: one slip is one fault.
    """
    if isinstance(raw, dict) and raw.keys() != {"partitions"}:
        yield _malformed(f"the object has the fields {bounded_repr(sorted(map(str, raw)))}")
        if "partitions" not in raw:
            return
    entries = entries_of(raw)
    if not isinstance(entries, list):
        yield _malformed(f"found {bounded_repr(entries)}")
        return
    if not 1 <= len(entries) <= PARTITIONS_MAX:
        yield _wrong_count(entries)
        return
    first: tuple[int, int] | None = None  # partition and length of the first list that has SPUs
    next_id = 0
    for partition, entry in enumerate(entries):
        if not isinstance(entry, dict) or entry.keys() != _ENTRY_KEYS:
            yield _malformed(f"entry {partition} is {bounded_repr(entry)}", partition)
            next_id += 1
            continue
        given, replicas = entry["id"], entry["replicas"]
        if not _is_integer(given) or given != next_id:
            found = f"entry {partition} has the id {bounded_repr(given)}"
            message = f"{found}; number the partitions 0, 1, 2, … in order: {next_id} is next"
            yield ManualFault(Code.MANUAL_PARTITION_IDS, message, (partition, "id"))
        next_id = (given if _is_integer(given) else next_id) + 1
        if not isinstance(replicas, list):
            found = f"partition {partition} has the replicas {bounded_repr(replicas)}"
            yield _malformed(found, partition, "replicas")
            continue
        if first is None and replicas:
            first = partition, len(replicas)
        yield from _faults_of_list(partition, replicas, path=(partition, "replicas"), first=first)


def plain_list_faults(lists: Sequence[Sequence[object]]) -> Iterator[ManualFault]:
    """Every fault of the lists of a living topic, plain ones of any lengths."""
    if not 1 <= len(lists) <= PARTITIONS_MAX:
        yield _wrong_count(lists)
        return
    for partition, replicas in enumerate(lists):
        yield from _faults_of_list(partition, replicas, path=(partition,))


def _wrong_count(lists: Sequence[object]) -> ManualFault:
    found = f"the replica lists name {len(lists)} partitions"
    message = f"{found}; name 1 to {PARTITIONS_MAX}, each with its list"
    return ManualFault(Code.INVALID_PARTITIONS, message)


def _faults_of_list(
    partition: int,
    replicas: Sequence[object],
    *,
    path: tuple[int | str, ...],
    first: tuple[int, int] | None = None,
) -> Iterator[ManualFault]:
    """What is wrong with one list; with `first`, it must have as many SPUs as the first."""
    if not replicas:
        message = f"partition {partition} has no replicas; name at least one SPU, leader first"
        yield ManualFault(Code.MANUAL_EMPTY_LIST, message, path)
        return
    has = f"partition {partition} has {len(replicas)} replicas"
    if len(replicas) > REPLICATION_FACTOR_MAX:
        message = f"{has}; name at most {REPLICATION_FACTOR_MAX}"
        yield ManualFault(Code.INVALID_REPLICATION_FACTOR, message, path)
        return
    if first is not None and len(replicas) != first[1]:
        message = f"{has} and partition {first[0]} has {first[1]}; name as many for each partition"
        yield ManualFault(Code.MANUAL_UNEVEN_LISTS, message, path)
    seen: set[int] = set()
    for place, value in enumerate(replicas):
        if not _is_integer(value):
            continue
        if value in seen:
            names = f"partition {partition} names SPU {bounded_repr(value)} more than once"
            message = f"{names}; name each SPU once in a list"
            yield ManualFault(Code.MANUAL_DUPLICATE_SPU, message, (*path, place))
        seen.add(value)
    for place, value in enumerate(replicas):
        if not is_spu_id(value):
            names = f"partition {partition} names the SPU {bounded_repr(value)}"
            message = f"{names}; an SPU id is an integer from 0 to {SPU_ID_MAX}"
            yield ManualFault(Code.MANUAL_INVALID_SPU, message, (*path, place))


def _malformed(found: str, *path: int | str) -> ManualFault:
    return ManualFault(Code.MANUAL_MALFORMED, f"{found}; expected {_FORMS}", path)


def is_spu_id(value: object) -> TypeGuard[int]:
    """Whether an SPU may be called so."""
    return _is_integer(value) and 0 <= value <= SPU_ID_MAX


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
