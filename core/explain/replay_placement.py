"""A placement of the past, placed anew on the ring of then: it must give the recorded lists.

SPUs that became saturated on the way left the ring after the last replica that they took; the ring
events of the same event name them. So the step falls into stretches of partitions, each on one
ring; within a stretch each list is told replica by replica.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np
from spu_assigner.core.balanced.policy import place_balanced
from spu_assigner.core.base.records import Order, Reason, ReplicaMap, RingChange
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix
from spu_assigner.core.explain.ring_history import RingGroup
from spu_assigner.core.policies.planner import (
    MODE_OF,
    ORDER_OF,
    Cursor,
    Demand,
    PlacementRule,
    cursor_for,
)
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import Ring

RULE_OF: Final = {mode: rule for rule, mode in MODE_OF.items()}


class Why(StrEnum):
    """Why an SPU was passed over."""

    OFFLINE = "offline"  # or leaving, where that is not known
    LEAVING = "leaving"
    SATURATED = "saturated"
    FILLED = "filled"  # saturated by an earlier replica of the same step
    SAME_RACK = "same_rack"
    IN_LIST = "in_list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """An SPU that was passed over."""

    spu_id: int
    why: Why
    beside: int | None = None  # of SAME_RACK: who in the list is on that rack


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """How one replica was found."""

    spu_id: int
    rack: str | None = None  # where racks were looked at
    core: int | None = None
    position: int | None = None  # in the order, from 0; None: not found by an order, or not known
    passed: tuple[Passed, ...] = ()  # on the way to it


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainStep:
    """Where in its order a list begins."""

    order: Order
    ring_size: int  # when this partition's turn came
    index: int  # of the chain, or of the request's own cursor
    cycle: int
    position: int  # of the leader in the order
    gap: int | None = None  # fluvio without racks: between the leader and its followers
    shift: int | None = None  # kafka: of the followers
    filled: tuple[Passed, ...] = ()  # who left the ring earlier in the step


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """Partitions of the step placed on one ring."""

    first: int  # partition, from 0 at the step's first
    cursor: Cursor
    places: Mapping[int, int]  # of each SPU in the order, however the cursor is turned
    order: list[int]  # as the cursor is turned
    racks: Mapping[int, str]  # of each SPU
    rack_count: int
    filled: tuple[int, ...]  # who left before
    by_replica: tuple[int, ...] | None = None  # the positions, of a list in which somebody left
    left_before: tuple[tuple[int, ...], ...] = ()  # likewise: who had left before each replica


@dataclass(frozen=True, slots=True)
class _Leave:
    """An SPU leaves the ring behind this cell of the step, counted row by row."""

    cell: int
    spu_id: int


class ReplayedPlacement:
    """A step placed anew. `fault` says why the recorded lists did not come out."""

    def __init__(
        self, replica_map: ReplicaMap, stretches: Sequence[_Stretch], fault: str | None = None
    ) -> None:
        self.fault = fault
        self._map = replica_map
        self._stretches = stretches
        self._firsts = [stretch.first for stretch in stretches]

    def step_of(self, partition: int, row: Sequence[int]) -> tuple[ChainStep, tuple[Taken, ...]]:
        """One list of the step; `partition` counts from 0 at the step's first."""
        stretch = self._stretches[bisect_right(self._firsts, partition) - 1]
        cursor, replicas = stretch.cursor, len(row)
        index = cursor.index + (partition - stretch.first) * _advance(cursor.rule, replicas)
        size = len(cursor.order)
        place_of = stretch.places
        gap = shift = None
        turn = index // size
        if cursor.rule is PlacementRule.ROUND_ROBIN:
            gap = turn % (size - replicas + 1)
        elif cursor.rule in (PlacementRule.SHIFTED, PlacementRule.SHIFTED_OVER_RACKS):
            shift = cursor.shift + turn
        step = ChainStep(
            order=ORDER_OF[cursor.rule],
            ring_size=size,
            index=index,
            cycle=turn,
            position=place_of[row[0]],
            gap=gap,
            shift=shift,
            filled=tuple(Passed(spu_id=spu_id, why=Why.FILLED) for spu_id in stretch.filled),
        )
        passed: list[list[Passed]] = [[] for _ in row]
        racks: list[str | None] = [None] * replicas
        if cursor.rule in (PlacementRule.WALK, PlacementRule.SHIFTED_OVER_RACKS):
            racks = [stretch.racks[spu_id] for spu_id in row]
        if cursor.rule is PlacementRule.SHIFTED_OVER_RACKS and size > 1:
            passed = _walked(stretch, first=index % size, shift=step.shift or 0, row=row)
        for number, left in enumerate(stretch.left_before):
            passed[number] = [Passed(spu_id=spu_id, why=Why.FILLED) for spu_id in left]
        cores = self._cores(partition)
        positions = stretch.by_replica or [place_of[spu_id] for spu_id in row]
        return step, tuple(
            Taken(
                spu_id=spu_id,
                rack=racks[number],
                core=None if cores is None else cores[number],
                position=positions[number],
                passed=tuple(passed[number]),
            )
            for number, spu_id in enumerate(row)
        )

    def _cores(self, partition: int) -> list[int] | None:
        reason = self._map.reason
        if self._map.cores is None or reason is None:
            return None
        row: list[int] = self._map.cores.matrix[reason.first_partition + partition].tolist()
        return row


def racks_of(ring: Ring) -> dict[int, str]:
    """The rack of each member, "" for none."""
    ids: list[int] = ring.ids.tolist()
    return dict(zip(ids, ring.racks().tolist(), strict=True))


def _advance(rule: PlacementRule, replicas: int) -> int:
    return replicas if rule is PlacementRule.POINTER else 1


def _walked(stretch: _Stretch, *, first: int, shift: int, row: Sequence[int]) -> list[list[Passed]]:
    """For each replica whom Kafka's walk over racks passed over on the way to it."""
    order, rack_of, rack_count = stretch.order, stretch.racks, stretch.rack_count
    size = len(order)
    chosen = [order[first]]
    passed: list[list[Passed]] = [[]]
    waiting: list[Passed] = []
    at = shift * rack_count
    while len(chosen) < len(row):
        candidate = order[(first + 1 + at % (size - 1)) % size]
        at += 1
        on_rack = {rack_of[spu_id]: spu_id for spu_id in reversed(chosen)}
        if candidate in chosen:
            waiting.append(Passed(spu_id=candidate, why=Why.IN_LIST))
        elif rack_of[candidate] in on_rack and len(on_rack) < rack_count:
            beside = on_rack[rack_of[candidate]]
            waiting.append(Passed(spu_id=candidate, why=Why.SAME_RACK, beside=beside))
        else:
            chosen.append(candidate)
            passed.append(waiting)
            waiting = []
    return passed


def replay_placement(
    replica_map: ReplicaMap, ring: Ring, group: RingGroup | None
) -> ReplayedPlacement:
    """Place the step of a map anew.

    Args:
        replica_map: with a reason whose mode is in `RULE_OF`.
        ring: before the step.
        group: the ring events of the same event; None: it had none, or they are not retained.
    """
    reason, lists = replica_map.reason, replica_map.replicas
    if reason is None or lists is None:
        return ReplayedPlacement(replica_map, (), "there is no placement to repeat")
    rows = lists.matrix[reason.first_partition :, : replica_map.replication_factor]
    replicas = rows.shape[1]
    filled = _filled(replica_map, group)
    if replicas <= ring.size and np.isin(filled, rows).all():
        stretches = _placed(rows, ring, reason, filled)
        if stretches is not None:
            return ReplayedPlacement(replica_map, stretches)
    return ReplayedPlacement(replica_map, (), _fault(rows, reason, is_whole=group is not None))


def replay_balanced(replica_map: ReplicaMap, state: ClusterState, ring: Ring) -> ReplayedPlacement:
    """Place the step of a `balanced` map anew, on the state that it was made on."""
    reason, lists = replica_map.reason, replica_map.replicas
    if reason is None or lists is None:
        return ReplayedPlacement(replica_map, (), "there is no placement to repeat")
    rows = lists.matrix[reason.first_partition :, : replica_map.replication_factor]
    loads = state.loads(ring.ids)
    again = place_balanced(
        loads.without_racks() if replica_map.ignore_rack else loads,
        partitions=len(rows),
        replicas=rows.shape[1],
        start=reason.start_index or 0,
    )
    if np.array_equal(again, rows):
        return ReplayedPlacement(replica_map, ())
    return ReplayedPlacement(replica_map, (), _fault(rows, reason, is_whole=True))


def _fault(rows: IdMatrix, reason: Reason, *, is_whole: bool) -> str:
    """Why nothing came out that equals the record; `is_whole`: all that decided it was at hand."""
    if not is_whole:
        return (
            "placed anew on the ring of then, other lists come out than the recorded: SPUs may "
            "have become saturated on the way, and no ring events that would name them are retained"
        )
    return (
        f"placed anew on the ring of then from index {reason.start_index}, other lists come out "
        f"than the {len(rows)} recorded; this should not be: please report it with the record"
    )


def _filled(replica_map: ReplicaMap, group: RingGroup | None) -> list[int]:
    """Whom the step filled: of the ring events of the event, the saturations with its own cause."""
    return sorted(
        {
            event.spu_id
            for event in (() if group is None else group.events)
            if event.change is RingChange.SATURATED and event.cause == replica_map.cause
        }
    )


def _placed(
    rows: IdMatrix, ring: Ring, reason: Reason, filled: Sequence[int]
) -> list[_Stretch] | None:
    """The stretches of the step; None: other lists come out than the recorded."""
    replicas = rows.shape[1]
    demand = Demand(
        rule=RULE_OF[reason.mode],
        partitions=len(rows),
        replicas=replicas,
        start=reason.start_index if reason.is_named else None,
        shift=reason.shift,
    )
    cursor = cursor_for(ring, demand, reason.start_index or 0)
    stretches: list[_Stretch] = []
    gone: tuple[int, ...] = ()
    done = 0
    leaves = _leaves(rows, filled)
    while done < len(rows):
        is_pointer = cursor.rule is PlacementRule.POINTER
        row = leaves[0].cell // replicas if leaves else len(rows)
        count = row - done if is_pointer or not leaves else row - done + 1
        if count:
            if cursor.ring.size < replicas:
                return None
            if not np.array_equal(cursor.rows(count, replicas)[0], rows[done : done + count]):
                return None
            stretches.append(_stretch(done, cursor, gone))
            cursor.index = cursor.moved(count, replicas)
            done += count
        now = [leave for leave in leaves if leave.cell // replicas == row]
        leaves = leaves[len(now) :]
        if is_pointer and now:
            stretch = _replica_by_replica(rows[row], cursor, gone, row, now)
            if stretch is None:
                return None
            stretches.append(stretch)
            done += 1
        elif now:
            cursor.drop(tuple(leave.spu_id for leave in now))
        gone += tuple(sorted(leave.spu_id for leave in now))
    return stretches


def _leaves(rows: IdMatrix, filled: Sequence[int]) -> list[_Leave]:
    """When each of these took its last replica of the step."""
    flat = rows.ravel()
    found = [_Leave(int(np.flatnonzero(flat == spu_id)[-1]), spu_id) for spu_id in filled]
    return sorted(found, key=lambda leave: leave.cell)


def _stretch(first: int, cursor: Cursor, gone: tuple[int, ...]) -> _Stretch:
    ids: list[int] = cursor.ring.order(ORDER_OF[cursor.rule]).tolist()
    racks = racks_of(cursor.ring)
    return _Stretch(
        first=first,
        cursor=copy(cursor),
        places={spu_id: position for position, spu_id in enumerate(ids)},
        order=cursor.order.tolist(),
        racks=racks,
        rack_count=len(set(racks.values())),
        filled=gone,
    )


def _replica_by_replica(
    row: IdArray, cursor: Cursor, gone: tuple[int, ...], number: int, leaves: Sequence[_Leave]
) -> _Stretch | None:
    """A list of `redpanda` in which SPUs left the ring at the replica that filled them."""
    stretch = _stretch(number, cursor, gone)
    full = {leave.spu_id for leave in leaves}
    positions: list[int] = []
    left: list[tuple[int, ...]] = []
    since: list[int] = []
    for spu_id in row.tolist():
        size = len(cursor.order)
        if size == 0 or int(cursor.order[cursor.index % size]) != spu_id:
            return None
        positions.append(cursor.index % size)
        left.append(tuple(since))
        cursor.index += 1
        if spu_id in full:
            cursor.drop((spu_id,))
            since.append(spu_id)
    return replace(stretch, by_replica=tuple(positions), left_before=tuple(left))
