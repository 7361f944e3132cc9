"""A placement of the past, computed again on the ring of then: it must give the recorded lists.

SPUs that became saturated on the way left the ring after the last replica that they took; the ring
events of the same event name them. So the step falls into stretches of partitions, each on one
ring; within a stretch each list is explained replica by replica.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from spu_assigner.core.balanced.by_need import has_room_for_all, place_by_need
from spu_assigner.core.balanced.failover import order_followers
from spu_assigner.core.balanced.policy import place_balanced
from spu_assigner.core.balanced.rounds import place_in_rounds
from spu_assigner.core.base.chains import Order
from spu_assigner.core.base.constraints import NO_CONSTRAINTS
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.events import TopicCreate
from spu_assigner.core.base.records import Mode, Reason, ReplicaMap, RingChange
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists
from spu_assigner.core.constraints.rule_table import binding_constraints
from spu_assigner.core.decision.answers import Refusal
from spu_assigner.core.decision.assignment import by_constraints, resource_loads
from spu_assigner.core.decision.requests import balanced_loads
from spu_assigner.core.explain.ring_history import Passed, RingGroup, Why
from spu_assigner.core.policies.cursor import (
    MODE_OF,
    ORDER_OF,
    SCORING,
    Cursor,
    PlacementRule,
)
from spu_assigner.core.policies.planner import Demand, cursor_for
from spu_assigner.core.rules.rendezvous import by_score, in_rounds, pair_hashes, scores
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.leading import led_by_others
from spu_assigner.core.state.ring import Ring

RULE_OF: Final = {mode: rule for rule, mode in MODE_OF.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """How one replica was found. Of `rendezvous` the order is that of the scores."""

    spu_id: int
    rack: str | None = None
    """Its rack, where racks were looked at."""
    core: int | None = None
    """Its core, of `redpanda`."""
    position: int | None = None
    """Its position in the order, from 0; None: not found by an order, or not known."""
    score: float | None = None
    """Its score in 6 digits, where SPUs were taken by score."""
    is_offline: bool = False
    """Whether it was offline, as `kraft` permits."""
    passed: tuple[Passed, ...] = ()
    """SPUs that were passed over on the way to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainStep:
    """Where in its order a list begins."""

    order: Order
    """The order that was read."""
    ring_size: int
    """Of the ring when this partition's turn came."""
    index: int
    """The index of the chain, or of the request's own cursor."""
    cycle: int
    """The index divided by the size of the ring."""
    position: int
    """The leader's position in the order."""
    gap: int | None = None
    """The gap between the leader and its followers, of `fluvio` without racks."""
    shift: int | None = None
    """The shift of the followers, of `kafka`."""
    filled: tuple[Passed, ...] = ()
    """SPUs that left the ring earlier in the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreStep:
    """On what ring a list was found by score."""

    ring_size: int
    """Of the ring when this partition's turn came."""
    filled: tuple[Passed, ...] = ()
    """SPUs that left the ring earlier in the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Partitions of the step placed on one ring."""

    first: int  # partition, from 0 at the step's first
    cursor: Cursor
    places: Mapping[int, int]  # of each SPU in the order, however the cursor is turned
    racks: Mapping[int, str]  # of each SPU
    filled: tuple[int, ...]  # who left before
    by_replica: tuple[int, ...] | None = None  # the positions, of a list in which somebody left
    left_before: tuple[tuple[int, ...], ...] = ()  # likewise: who had left before each replica
    # Lists that a demoted SPU would lead, counted from the first, and the place it has instead.
    swaps: Mapping[int, int] = field(default_factory=dict)


Replayed = Sequence[Stretch] | str  # or why the recorded lists did not come out


def explain_list(
    stretches: Sequence[Stretch], partition: int, row: Sequence[int], cores: Sequence[int] | None
) -> tuple[ChainStep | ScoreStep, tuple[Taken, ...]]:
    """One list of a step; `partition` counts from 0 at the step's first."""
    stretch = stretches[bisect_right(stretches, partition, key=lambda each: each.first) - 1]
    swap = stretch.swaps.get(partition - stretch.first, 0)
    row, cores = _swapped(row, swap), None if cores is None else _swapped(cores, swap)
    cursor, rule, size = stretch.cursor, stretch.cursor.rule, len(stretch.cursor.order)
    if rule in SCORING:
        scored = _scored(stretch, cursor.index + partition - stretch.first, row)
        by_score = ScoreStep(ring_size=size, filled=filled_before(stretch.filled))
        return by_score, led_by_another(scored, swap)
    advance = len(row) if rule is PlacementRule.POINTER else 1
    index = cursor.index + (partition - stretch.first) * advance
    turn = index // size
    is_shifted = rule in (PlacementRule.SHIFTED, PlacementRule.SHIFTED_OVER_RACKS)
    step = ChainStep(
        order=ORDER_OF[rule],
        ring_size=size,
        index=index,
        cycle=turn,
        position=stretch.places[row[0]],
        gap=turn % (size - len(row) + 1) if rule is PlacementRule.ROUND_ROBIN else None,
        shift=cursor.shift + turn if is_shifted else None,
        filled=filled_before(stretch.filled),
    )
    passed: Sequence[Sequence[Passed]] = [()] * len(row)
    if rule is PlacementRule.SHIFTED_OVER_RACKS and size > 1:
        passed = _walked(stretch, first=index % size, shift=step.shift or 0, row=row)
    if stretch.left_before:
        passed = [filled_before(left) for left in stretch.left_before]
    has_racks = rule in (PlacementRule.WALK, PlacementRule.SHIFTED_OVER_RACKS)
    positions = stretch.by_replica or [stretch.places[spu_id] for spu_id in row]
    taken = [
        Taken(
            spu_id=spu_id,
            rack=stretch.racks[spu_id] if has_racks else None,
            core=None if cores is None else cores[number],
            position=positions[number],
            passed=tuple(passed[number]),
        )
        for number, spu_id in enumerate(row)
    ]
    return step, led_by_another(taken, swap)


def _scored(stretch: Stretch, partition: int, row: Sequence[int]) -> list[Taken]:
    """How each replica of a list was found by score."""
    cursor, ring = stretch.cursor, stretch.cursor.ring
    hashes = pair_hashes(cursor.topic, partition, 1, ring.ids)
    of_columns = scores(hashes, ring.weights())[0].tolist()
    columns = by_score(hashes, ring.weights())[0]
    order = ring.ids[columns].tolist()
    has_racks = cursor.rule is PlacementRule.SCORED_OVER_RACKS
    places = list(range(len(row)))
    if has_racks:
        places = in_rounds(ring.rack_numbers(ring.ids)[columns][np.newaxis], len(row))[0].tolist()
    taken: list[Taken] = []
    for number, place in enumerate(places):
        on_rack = {stretch.racks[spu_id]: spu_id for spu_id in reversed(row[:number])}
        better = [spu_id for spu_id in order[:place] if spu_id not in row[:number]]
        taken.append(
            Taken(
                spu_id=order[place],
                rack=stretch.racks[order[place]] if has_racks else None,
                position=place,
                score=float(f"{of_columns[columns[place]]:.6g}"),
                passed=tuple(
                    Passed(spu_id=spu_id, why=Why.SAME_RACK, beside=on_rack[stretch.racks[spu_id]])
                    for spu_id in better
                ),
            )
        )
    return taken


def led_by_another(taken: Sequence[Taken], swap: int) -> tuple[Taken, ...]:
    """The replicas as they are now, where a demoted SPU gave the lead to the one at this place."""
    if not swap:
        return tuple(taken)
    swapped = _swapped(taken, swap)
    demoted = Passed(spu_id=taken[0].spu_id, why=Why.DEMOTED)
    swapped[0] = replace(swapped[0], passed=(*swapped[0].passed, demoted))
    return tuple(swapped)


def _swapped(items: Sequence[Any], place: int) -> list[Any]:
    """The items with the first and the one at this place changed."""
    swapped = list(items)
    swapped[0], swapped[place] = swapped[place], swapped[0]
    return swapped


def filled_before(spu_ids: Sequence[int]) -> tuple[Passed, ...]:
    """Those as what they are for later lists of a step that saturated them."""
    return tuple(Passed(spu_id=spu_id, why=Why.FILLED) for spu_id in spu_ids)


def racks_of(ring: Ring) -> dict[int, str]:
    """The rack of each member, "" for none."""
    ids: list[int] = ring.ids.tolist()
    return dict(zip(ids, ring.racks().tolist(), strict=True))


def _walked(stretch: Stretch, *, first: int, shift: int, row: Sequence[int]) -> list[list[Passed]]:
    """For each replica whom Kafka's walk over racks passed over on the way to it."""
    order: list[int] = stretch.cursor.order.tolist()
    rack_of, size = stretch.racks, len(order)
    rack_count = len({*rack_of.values()})
    chosen = [order[first]]
    passed: list[list[Passed]] = [[], []]
    at = shift * rack_count
    while len(chosen) < len(row):
        candidate = order[(first + 1 + at % (size - 1)) % size]
        at += 1
        on_rack = {rack_of[spu_id]: spu_id for spu_id in reversed(chosen)}
        if candidate in chosen:
            passed[-1].append(Passed(spu_id=candidate, why=Why.IN_LIST))
        elif rack_of[candidate] in on_rack and len(on_rack) < rack_count:
            beside = on_rack[rack_of[candidate]]
            passed[-1].append(Passed(spu_id=candidate, why=Why.SAME_RACK, beside=beside))
        else:
            chosen.append(candidate)
            passed.append([])
    return passed


def replay_placement(
    replica_map: ReplicaMap, ring: Ring, group: RingGroup | None, *, demoted: Set[int]
) -> Replayed:
    """Place the step of a map again.

    Args:
        replica_map: with a reason whose mode is in `RULE_OF`.
        ring: before the step.
        group: the ring events of the same event; None: it had none, or they are not retained.
        demoted: who was perhaps demoted then.
    """
    reason, rows = recorded(replica_map)
    filled = sorted(
        {
            event.spu_id
            for event in (() if group is None else group.events)
            if event.change is RingChange.SATURATED and event.cause == replica_map.cause
        }
    )
    stretches = None
    if rows.shape[1] <= ring.size and np.isin(filled, rows).all():
        topic = replica_map.topic
        stretches = _placed(rows, ring, reason, topic=topic, filled=filled, demoted=demoted)
    if stretches is not None:
        return stretches
    if group is None:
        return (
            "placed again on the ring of then, other lists come out than the recorded: SPUs may "
            "have become saturated on the way, and no ring events that would name them are retained"
        )
    return should_not_be(reason, rows)


def replay_balanced(replica_map: ReplicaMap, state: ClusterState, ring: Ring) -> Replayed:
    """Place the step of a `balanced` map again, on the state that it was made on."""
    reason, rows = recorded(replica_map)
    loads = balanced_loads(state, state.loads(ring.ids), ignore_rack=replica_map.ignore_rack)
    partitions, replicas = rows.shape
    start = reason.start_index or 0
    if reason.mode is Mode.BALANCED_ROUNDS:
        placed = place_in_rounds(loads, partitions=partitions, replicas=replicas, start=start)
        if placed is None:
            return should_not_be(reason, rows)
        order_followers(state, placed, ignore_rack=replica_map.ignore_rack, may_exchange=True)
        return () if np.array_equal(placed, rows) else should_not_be(reason, rows)
    may_exchange = int((loads.capacities - loads.replicas).min()) > partitions
    if replica_map.need is None:
        again = place_balanced(loads, partitions=partitions, replicas=replicas, start=start)
    else:
        resources = resource_loads(state, ring, loads, replica_map.need)
        may_exchange = may_exchange and has_room_for_all(resources, partitions)
        again = place_by_need(
            loads, resources, partitions=partitions, replicas=replicas, start=start
        )
    order_followers(state, again, ignore_rack=replica_map.ignore_rack, may_exchange=may_exchange)
    again = led_by_others(state, ReplicaLists(again)).matrix
    return () if np.array_equal(again, rows) else should_not_be(reason, rows)


def replay_constrained(replica_map: ReplicaMap, state: ClusterState) -> Replayed:
    """Place the step of a map with constraints again, on the state that it was made on."""
    reason, rows = recorded(replica_map)
    need = replica_map.need
    request = TopicCreate(
        event_id=replica_map.cause,
        cluster_id=replica_map.cluster_id,
        topic=replica_map.topic,
        partitions=len(rows),
        replication_factor=rows.shape[1],
        ignore_rack=replica_map.ignore_rack,
        demand=None if need is None else dict(need.demand),
        leader_demand=None if need is None else dict(need.leader_demand),
    )
    constraints = binding_constraints(state, replica_map.topic, replica_map.constraints)
    again = by_constraints(state, request, constraints or NO_CONSTRAINTS)
    is_same = not isinstance(again, Refusal) and np.array_equal(again, rows)
    return () if is_same else should_not_be(reason, rows)


def recorded(replica_map: ReplicaMap) -> tuple[Reason, IdMatrix]:
    """The reason and the lists of the step."""
    reason, lists = replica_map.reason, replica_map.replicas
    if reason is None or lists is None:
        raise InvariantError(f"map of {replica_map.topic!r} has no placement to repeat")
    return reason, lists.matrix[reason.first_partition :, : replica_map.replication_factor]


def should_not_be(reason: Reason, rows: IdMatrix) -> str:
    return (
        f"placed again on the ring of then from index {reason.start_index}, other lists come out "
        f"than the {len(rows)} recorded; this should not be: please report it with the record"
    )


def _placed(
    rows: IdMatrix,
    ring: Ring,
    reason: Reason,
    *,
    topic: str,
    filled: Sequence[int],
    demoted: Set[int],
) -> list[Stretch] | None:
    """The stretches of the step; None: other lists come out than the recorded."""
    replicas = rows.shape[1]
    demand = Demand(
        rule=RULE_OF[reason.mode],
        topic=topic,
        partitions=len(rows),
        replicas=replicas,
        start=reason.start_index if reason.is_named else None,
        shift=reason.shift,
    )
    first = reason.first_partition if demand.rule in SCORING else reason.start_index or 0
    cursor = cursor_for(ring, demand, first)
    is_pointer = cursor.rule is PlacementRule.POINTER
    # By the list in which each of these took its last replica of the step.
    leaves: dict[int, list[int]] = {}
    for spu_id in filled:
        leaves.setdefault(int(np.flatnonzero((rows == spu_id).any(axis=1))[-1]), []).append(spu_id)
    stretches: list[Stretch] = []
    gone: tuple[int, ...] = ()
    done = 0
    for last in [*sorted(leaves), len(rows)]:
        leaving = leaves.get(last, [])
        count = last - done + (bool(leaving) and not is_pointer)
        if count:
            if cursor.ring.size < replicas:
                return None
            placed = cursor.rows(count, replicas)[0]
            swaps = leaders_passed(placed, rows[done : done + count], demoted)
            if swaps is None:
                return None
            stretches.append(replace(_stretch(done, cursor, gone), swaps=swaps))
            cursor.index = cursor.moved(count, replicas)
            done += count
        if leaving and is_pointer:
            row: list[int] = rows[last].tolist()
            places = (0, *(at for at, spu_id in enumerate(row) if at and spu_id in demoted))
            for place in places:  # Where the SPU is that would lead, if it is demoted.
                tried = copy(cursor)
                stretch = _replica_by_replica(_swapped(row, place), tried, gone, last, leaving)
                if stretch is not None:
                    break
            else:
                return None
            cursor = tried
            stretches.append(replace(stretch, swaps={0: place} if place else {}))
            done += 1
        elif leaving:
            cursor.drop(tuple(leaving))
        gone += tuple(leaving)
    return stretches


def leaders_passed(placed: IdMatrix, found: IdMatrix, demoted: Set[int]) -> dict[int, int] | None:
    """The lists in which a demoted SPU gave the lead away, with its place now.

    None: the lists differ in something else.
    """
    swaps = {}
    for number in np.flatnonzero((placed != found).any(axis=1)).tolist():
        was, now = placed[number].tolist(), found[number].tolist()
        if was[0] not in demoted or was[0] not in now or _swapped(was, now.index(was[0])) != now:
            return None
        swaps[number] = now.index(was[0])
    return swaps


def _stretch(first: int, cursor: Cursor, gone: tuple[int, ...]) -> Stretch:
    ids: list[int] = cursor.ring.order(ORDER_OF[cursor.rule]).tolist()
    return Stretch(
        first=first,
        cursor=copy(cursor),
        places={spu_id: position for position, spu_id in enumerate(ids)},
        racks=racks_of(cursor.ring),
        filled=gone,
    )


def _replica_by_replica(
    row: Sequence[int], cursor: Cursor, gone: tuple[int, ...], number: int, leaving: Sequence[int]
) -> Stretch | None:
    """A list of `redpanda` in which SPUs left the ring at the replica that filled them."""
    stretch = _stretch(number, cursor, gone)
    positions: list[int] = []
    left: list[tuple[int, ...]] = []
    for place, spu_id in enumerate(row):
        size = len(cursor.order)
        if size == 0 or int(cursor.order[cursor.index % size]) != spu_id:
            return None
        positions.append(cursor.index % size)
        left.append(tuple(each for each in row[:place] if each in leaving))
        cursor.index += 1
        if spu_id in leaving:
            cursor.drop((spu_id,))
    return replace(stretch, by_replica=tuple(positions), left_before=tuple(left))
