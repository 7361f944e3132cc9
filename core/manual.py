"""Reads the replica lists of a manual request: what an operator wrote, in a file or inline.

Two forms are read, both of the source documents: a list of `{"id": 0, "replicas": [0, 1, 2]}`, and
the object `{"partitions": [such entries]}`. Only the shape is judged here; whether the SPUs exist
and have room, the cluster knows.

The first fault wins. Before all: the form and the number of partitions. Then partition by
partition: the entry, its id, an empty list, too long a list, a length unlike the first, duplicates,
ids that are none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeGuard

from spu_assigner.core.errors import Code
from spu_assigner.core.limits import PARTITIONS_MAX, REPLICATION_FACTOR_MAX, SPU_ID_MAX
from spu_assigner.core.replicas import ReplicaLists
from spu_assigner.core.shown import shown

_ENTRY_KEYS: Final = {"id", "replicas"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualFault:
    """Why the lists are refused."""

    code: Code
    message: str  # names partition and value, and what to do


def read_lists(raw: object) -> ReplicaLists | ManualFault:
    """The replica lists of `raw`, which came out of JSON or Avro, or its first fault."""
    entries = raw
    if isinstance(raw, dict):
        if raw.keys() != {"partitions"}:
            return _malformed(f"the object has the fields {shown(sorted(map(str, raw)))}")
        entries = raw["partitions"]
    if not isinstance(entries, list):
        return _malformed(f"found {shown(entries)}")
    if not 1 <= len(entries) <= PARTITIONS_MAX:
        return ManualFault(
            code=Code.INVALID_PARTITIONS,
            message=f"the replica lists name {len(entries)} partitions; "
            f"name 1 to {PARTITIONS_MAX}, each with its list",
        )
    lists: list[list[int]] = []
    for partition, entry in enumerate(entries):
        if not isinstance(entry, dict) or entry.keys() != _ENTRY_KEYS:
            return _malformed(f"entry {partition} is {shown(entry)}")
        if not _is_integer(entry["id"]) or entry["id"] != partition:
            return ManualFault(
                code=Code.MANUAL_PARTITION_IDS,
                message=f"entry {partition} has the id {shown(entry['id'])}; "
                f"number the partitions 0, 1, 2, … in order: {partition} is next",
            )
        replicas = entry["replicas"]
        if not isinstance(replicas, list):
            return _malformed(f"partition {partition} has the replicas {shown(replicas)}")
        fault = _list_fault(partition, replicas, len(lists[0]) if lists else len(replicas))
        if fault is not None:
            return fault
        lists.append(replicas)
    return ReplicaLists.of_lists(lists)


def _list_fault(partition: int, replicas: list[object], length: int) -> ManualFault | None:
    """What is wrong with one list, all of which must have `length` SPUs."""
    if not replicas:
        return ManualFault(
            code=Code.MANUAL_EMPTY_LIST,
            message=f"partition {partition} has no replicas; name at least one SPU, leader first",
        )
    if len(replicas) > REPLICATION_FACTOR_MAX:
        return ManualFault(
            code=Code.INVALID_REPLICATION_FACTOR,
            message=f"partition {partition} has {len(replicas)} replicas; "
            f"name at most {REPLICATION_FACTOR_MAX}",
        )
    if len(replicas) != length:
        return ManualFault(
            code=Code.MANUAL_UNEVEN_LISTS,
            message=f"partition {partition} has {len(replicas)} replicas and partition 0 has "
            f"{length}; name as many for each partition",
        )
    ids = [value for value in replicas if _is_integer(value)]
    if len(set(ids)) < len(ids):
        twice = next(value for place, value in enumerate(ids) if value in ids[:place])
        return ManualFault(
            code=Code.MANUAL_DUPLICATE_SPU,
            message=f"partition {partition} names SPU {shown(twice)} more than once; "
            "name each SPU once in a list",
        )
    for value in replicas:
        if not _is_integer(value) or not 0 <= value <= SPU_ID_MAX:
            return ManualFault(
                code=Code.MANUAL_INVALID_SPU,
                message=f"partition {partition} names the SPU {shown(value)}; "
                f"an SPU id is an integer from 0 to {SPU_ID_MAX}",
            )
    return None


def _malformed(found: str) -> ManualFault:
    return ManualFault(
        code=Code.MANUAL_MALFORMED,
        message=f'{found}; expected a list of {{"id": 0, "replicas": [0, 1, 2]}}, '
        'or the object {"partitions": [such entries]}',
    )


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
