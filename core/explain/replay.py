"""A step of the past, computed again from what its map records; the same lists must come out.

SPUs that became saturated on the way, which the reason names, left the ring after the last replica
that they took. So a step falls into stretches of partitions, each on one ring; within a stretch
each list is explained replica by replica.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.events import TopicCreate
from spu_assigner.core.base.records import Mode, Reason, RecordedRing, ReplicaMap
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.decision.answers import Refusal
from spu_assigner.core.decision.requests import automatic
from spu_assigner.core.explain.placement_decision import (
    ChainStep,
    Passed,
    ScoreStep,
    StripeStep,
    Taken,
    Why,
)
from spu_assigner.core.policies.cursor import (
    MODE_OF,
    ORDER_OF,
    SCORING,
    Cursor,
    PlacementRule,
)
from spu_assigner.core.policies.planner import Demand, ShortRingError, cursor_for
from spu_assigner.core.policies.striped import place_striped, stripes_seed
from spu_assigner.core.rules.rendezvous import by_score, in_rounds, pair_hashes, scores
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import Ring, ids_of_text, ring_of_text

RULE_OF: Final = {mode: rule for rule, mode in MODE_OF.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Partitions of a step that were placed on one ring."""

    first: int  # partition, from 0 at the step's first
    cursor: Cursor
    left: tuple[int, ...]  # SPUs that left the ring before
    places: Mapping[int, int]  # of each SPU in the order, however the cursor is turned
    racks: Mapping[int, str]  # of each SPU, by number
    by_replica: tuple[int, ...] | None = None  # the positions, of a list in which SPUs left
    left_before: tuple[tuple[int, ...], ...] = ()  # likewise: the ones before each replica
    # Lists that a demoted SPU would lead, counted from the first, and the place it has instead.
    swaps: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StripedStep:
    """A step of `kraft` that was placed again."""

    index: int
    size: int  # of the ring
    offline: frozenset[int]  # SPUs that were read beside the ring
    leaves: Mapping[int, int]  # SPUs that it saturated, with the list that took the last slot
    swaps: Mapping[int, int]  # lists that a demoted SPU would lead, and its place in them


Replayed = Sequence[Stretch] | StripedStep


class NotRepeatedError(Exception):
    """Placed again, other lists come out than the recorded: a defect."""


def replay(replica_map: ReplicaMap, ring: RecordedRing) -> Replayed | None:
    """Place the step of a map again; None: it is of no policy that places by a rule.

    Raises:
        NotRepeatedError: other lists come out than the recorded.
    """
    reason, rows = recorded(replica_map)
    found: Replayed | None
    if reason.mode is Mode.STRIPED:
        found = _striped(replica_map, reason, rows, ring)
    elif reason.mode in RULE_OF:
        found = _by_rule(replica_map, reason, rows, ring_of_text(ring.members))
    else:
        return None
    if found is None:
        raise NotRepeatedError
    return found


def decide_again(replica_map: ReplicaMap, state: ClusterState) -> None:
    """Decide the step of a map again, on the state that it was decided on.

    Raises:
        NotRepeatedError: other lists come out than the recorded.
    """
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
        constraints=replica_map.constraints,
    )
    first = reason.first_partition
    again = automatic(state, request, replica_map.policy, first_partition=first)
    if isinstance(again, Refusal) or not np.array_equal(again.replicas.matrix, rows):
        raise NotRepeatedError


def recorded(replica_map: ReplicaMap) -> tuple[Reason, IdMatrix]:
    """The reason and the lists of the step."""
    reason, lists = replica_map.reason, replica_map.replicas
    if reason is None or lists is None:
        raise InvariantError(f"map of {replica_map.topic!r} has no placement to repeat")
    return reason, lists.matrix[reason.first_partition :, : replica_map.replication_factor]


def explain_list(
    found: Replayed, partition: int, row: Sequence[int], cores: Sequence[int] | None
) -> tuple[ChainStep | ScoreStep | StripeStep, tuple[Taken, ...]]:
    """One list of a step; `partition` counts from 0 at the step's first."""
    if isinstance(found, StripedStep):
        return _explain_striped(found, partition, row)
    stretch = found[bisect_right(found, partition, key=lambda each: each.first) - 1]
    swap = stretch.swaps.get(partition - stretch.first, 0)
    row, cores = _swapped(row, swap), None if cores is None else _swapped(cores, swap)
    cursor, rule, size = stretch.cursor, stretch.cursor.rule, len(stretch.cursor.order)
    if rule in SCORING:
        scored = _scored(stretch, cursor.index + partition - stretch.first, row)
        by_score = ScoreStep(ring_size=size, filled=_filled(stretch.left))
        return by_score, _led_by_another(scored, swap)
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
        filled=_filled(stretch.left),
    )
    passed: Sequence[Sequence[Passed]] = [()] * len(row)
    if rule is PlacementRule.SHIFTED_OVER_RACKS and size > 1:
        passed = _walked(stretch, first=index % size, shift=step.shift or 0, row=row)
    if stretch.left_before:
        passed = [_filled(left) for left in stretch.left_before]
    positions = stretch.by_replica or [stretch.places[spu_id] for spu_id in row]
    taken = [
        Taken(
            spu_id=spu_id,
            core=None if cores is None else cores[number],
            position=positions[number],
            passed=tuple(passed[number]),
        )
        for number, spu_id in enumerate(row)
    ]
    return step, _led_by_another(taken, swap)


def _scored(stretch: Stretch, partition: int, row: Sequence[int]) -> list[Taken]:
    """How each replica of a list was found by score."""
    cursor, ring = stretch.cursor, stretch.cursor.ring
    hashes = pair_hashes(cursor.topic, partition, 1, ring.ids)
    of_columns = scores(hashes, ring.weights())[0].tolist()
    columns = by_score(hashes, ring.weights())[0]
    order = ring.ids[columns].tolist()
    places = list(range(len(row)))
    if cursor.rule is PlacementRule.SCORED_OVER_RACKS:
        places = in_rounds(ring.rack_numbers(ring.ids)[columns][np.newaxis], len(row))[0].tolist()
    taken: list[Taken] = []
    for number, place in enumerate(places):
        on_rack = {stretch.racks[spu_id]: spu_id for spu_id in reversed(row[:number])}
        better = [spu_id for spu_id in order[:place] if spu_id not in row[:number]]
        taken.append(
            Taken(
                spu_id=order[place],
                position=place,
                score=float(f"{of_columns[columns[place]]:.6g}"),
                passed=tuple(
                    Passed(spu_id=spu_id, why=Why.SAME_RACK, beside=on_rack[stretch.racks[spu_id]])
                    for spu_id in better
                ),
            )
        )
    return taken


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


def _by_rule(
    replica_map: ReplicaMap, reason: Reason, rows: IdMatrix, ring: Ring
) -> list[Stretch] | None:
    """The stretches of the step; None: other lists come out than the recorded."""
    replicas = rows.shape[1]
    filled = ids_of_text(reason.filled)
    if replicas > ring.size or not np.isin(filled, rows).all():
        return None
    demand = Demand(
        rule=RULE_OF[reason.mode],
        topic=replica_map.topic,
        partitions=len(rows),
        replicas=replicas,
        start=reason.start_index if reason.is_named else None,
        shift=reason.shift,
    )
    first = reason.first_partition if demand.rule in SCORING else reason.start_index or 0
    cursor = cursor_for(ring, demand, first)
    is_pointer = cursor.rule is PlacementRule.POINTER
    leaves: dict[int, list[int]] = {}  # by the list in which they took their last replica
    for spu_id, last in _last_lists(rows, filled).items():
        leaves.setdefault(last, []).append(spu_id)
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
            swaps = _leaders_passed(placed, rows[done : done + count])
            if swaps is None:
                return None
            stretches.append(replace(_stretch(done, cursor, gone), swaps=swaps))
            cursor.index = cursor.moved(count, replicas)
            done += count
        if leaving and is_pointer:
            row: list[int] = rows[last].tolist()
            for place in range(replicas):  # Where the SPU is that would lead, if it is demoted.
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


def _last_lists(rows: IdMatrix, filled: Sequence[int]) -> dict[int, int]:
    """For each SPU the last list that holds it."""
    return {spu_id: int(np.flatnonzero((rows == spu_id).any(axis=1))[-1]) for spu_id in filled}


def _leaders_passed(placed: IdMatrix, found: IdMatrix) -> dict[int, int] | None:
    """The lists in which a demoted SPU gave the lead away, with its place now.

    None: the lists differ in something else.
    """
    swaps = {}
    for number in np.flatnonzero((placed != found).any(axis=1)).tolist():
        was, now = placed[number].tolist(), found[number].tolist()
        if was[0] not in now or _swapped(was, now.index(was[0])) != now:
            return None
        swaps[number] = now.index(was[0])
    return swaps


def _stretch(first: int, cursor: Cursor, gone: tuple[int, ...]) -> Stretch:
    ids: list[int] = cursor.ring.order(ORDER_OF[cursor.rule]).tolist()
    return Stretch(
        first=first,
        cursor=copy(cursor),
        places={spu_id: position for position, spu_id in enumerate(ids)},
        racks=cursor.ring.racks_of_members(),
        left=gone,
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


def _striped(
    replica_map: ReplicaMap, reason: Reason, rows: IdMatrix, ring: RecordedRing
) -> StripedStep | None:
    """The step of `kraft`; None: other lists come out than the recorded."""
    ignore_rack, index = replica_map.ignore_rack, reason.start_index or 0
    members = ring_of_text(ring.members).racks_of_members(ignore_rack=ignore_rack)
    fenced = ring_of_text(ring.fenced).racks_of_members(ignore_rack=ignore_rack)
    filled, held = ids_of_text(reason.filled), Counter(rows.ravel().tolist())
    try:
        plan = place_striped(
            members,
            fenced,
            seed=stripes_seed(replica_map.cluster_id, replica_map.topic, index),
            partitions=len(rows),
            replicas=rows.shape[1],
            free={spu_id: held[spu_id] for spu_id in filled},
        )
    except ShortRingError:
        return None
    swaps = _leaders_passed(plan.matrix, rows)
    if swaps is None:
        return None
    leaves = {spu: last for spu, last in _last_lists(rows, filled).items() if spu in members}
    return StripedStep(
        index=index, size=len(members), offline=frozenset(fenced), leaves=leaves, swaps=swaps
    )


def _explain_striped(
    found: StripedStep, partition: int, row: Sequence[int]
) -> tuple[StripeStep, tuple[Taken, ...]]:
    gone = sorted(spu_id for spu_id, last in found.leaves.items() if last < partition)
    swap = found.swaps.get(partition, 0)
    taken = [
        Taken(spu_id=spu_id, is_offline=spu_id in found.offline) for spu_id in _swapped(row, swap)
    ]
    step = StripeStep(ring_size=found.size - len(gone), index=found.index, filled=_filled(gone))
    return step, _led_by_another(taken, swap)


def _led_by_another(taken: Sequence[Taken], swap: int) -> tuple[Taken, ...]:
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


def _filled(spu_ids: Sequence[int]) -> tuple[Passed, ...]:
    """Those as what they are for later lists of a step that saturated them."""
    return tuple(Passed(spu_id=spu_id, why=Why.FILLED) for spu_id in spu_ids)
