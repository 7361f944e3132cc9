"""A step of the past, computed again from what its map records; the same lists must come out.

It is placed by the function that decided it. SPUs that became saturated on the way, which the
reason names, have as many free slots as they took replicas. To explain a list a cursor goes to it
from the step's first list, and loses those SPUs where they left the ring.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Final

import numpy as np
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.events import TopicCreate
from spu_assigner.core.base.records import Mode, Reason, RecordedRing, ReplicaMap
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.decision.answers import Rejection
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
from spu_assigner.core.policies.planner import Demand, ShortRingError, cursor_for, place
from spu_assigner.core.policies.striped import place_striped, stripes_seed
from spu_assigner.core.rules.rendezvous import by_score, pair_hashes, scores
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ledger import NO_LIMIT
from spu_assigner.core.state.ring import Ring, ids_of_text, ring_of_text

RULE_OF: Final = {mode: rule for rule, mode in MODE_OF.items()}


class NotRepeatedError(Exception):
    """Computed again, other lists come out than the recorded: a defect."""


def replay(replica_map: ReplicaMap, ring: RecordedRing) -> RuleReplay | StripesReplay | None:
    """Place the step of a map again; None: it is of no policy that places by a rule.

    Raises:
        NotRepeatedError: other lists come out than the recorded.
    """
    reason, rows = recorded(replica_map)
    try:
        if reason.mode is Mode.STRIPED:
            return StripesReplay(replica_map, reason, rows, ring)
        if reason.mode in RULE_OF:
            return RuleReplay(replica_map, reason, rows, ring_of_text(ring.members))
    except ShortRingError:
        raise NotRepeatedError from None
    return None


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
    try:
        again = automatic(state, request, replica_map.policy, first_partition=first)
    except Rejection:
        raise NotRepeatedError from None
    if not np.array_equal(again.replicas.matrix, rows):
        raise NotRepeatedError


def recorded(replica_map: ReplicaMap) -> tuple[Reason, IdMatrix]:
    """The reason and the lists of the step."""
    reason, lists = replica_map.reason, replica_map.replicas
    if reason is None or lists is None:
        raise InvariantError(f"map of {replica_map.topic!r} has no placement to repeat")
    return reason, lists.matrix[reason.first_partition :, : replica_map.replication_factor]


class RuleReplay:
    """A step that was placed by a rule of the ring; its lists are explained one by one."""

    def __init__(self, replica_map: ReplicaMap, reason: Reason, rows: IdMatrix, ring: Ring) -> None:
        self._demand = Demand(
            rule=RULE_OF[reason.mode],
            topic=replica_map.topic,
            partitions=len(rows),
            replicas=rows.shape[1],
            start=reason.start_index if reason.is_named else None,
            shift=reason.shift,
        )
        is_scored = self._demand.rule in SCORING
        self._index = reason.first_partition if is_scored else reason.start_index or 0
        self._ring = ring
        free = _free_slots(reason, rows)
        slots = [free.get(spu_id, NO_LIMIT) for spu_id in ring.ids.tolist()]
        if rows.shape[1] > ring.size:
            raise NotRepeatedError
        plan = place(ring, self._demand, self._index, np.array(slots) if free else None)
        self._placed = plan.replicas.matrix
        _check_leaders(self._placed, rows)
        self._leaves = _last_lists(rows, free)
        self._lasts = sorted({*self._leaves.values()})
        self._restart()

    def _restart(self) -> None:
        self._cursor, self._done = cursor_for(self._ring, self._demand, self._index), 0
        self._left: list[int] = []  # SPUs that left the ring
        self._read_ring()

    def _read_ring(self) -> None:
        ids: list[int] = self._cursor.ring.order(ORDER_OF[self._cursor.rule]).tolist()
        self._places = {spu_id: position for position, spu_id in enumerate(ids)}
        self._racks = self._cursor.ring.racks_of_members()

    def _go_to(self, partition: int) -> None:
        """Let the cursor stand where a list was placed."""
        if partition < self._done:
            self._restart()
        for last in self._lasts[bisect_left(self._lasts, self._done) :]:
            if last >= partition:
                break
            self._move(last)
            self._walk(self._cursor, last)
            self._done += 1
            self._left += [spu_id for spu_id, left in self._leaves.items() if left == last]
            self._read_ring()
        self._move(partition)

    def _move(self, partition: int) -> None:
        self._cursor.index = self._cursor.moved(partition - self._done, self._demand.replicas)
        self._done = partition

    def _walk(self, cursor: Cursor, partition: int) -> list[tuple[int, tuple[int, ...]]]:
        """Let a cursor pass a list: for each replica its position, and the SPUs that the list had
        saturated before."""
        found = []
        gone: list[int] = []
        row: list[int] = self._placed[partition].tolist()
        is_pointer = cursor.rule is PlacementRule.POINTER
        for spu_id in row:
            position = cursor.index % len(cursor.order) if is_pointer else self._places[spu_id]
            found.append((position, tuple(gone) if is_pointer else ()))
            cursor.index += is_pointer
            if self._leaves.get(spu_id) == partition:
                gone.append(spu_id)
                if is_pointer:
                    cursor.drop((spu_id,))
        if not is_pointer:
            cursor.index += 1
            if gone:
                cursor.drop(tuple(sorted(gone)))
        return found

    def explain(
        self, partition: int, row: Sequence[int], cores: Sequence[int] | None
    ) -> tuple[ChainStep | ScoreStep, tuple[Taken, ...]]:
        """One list of the step; `partition` counts from 0 at its first."""
        self._go_to(partition)
        cursor, placed = self._cursor, self._placed[partition].tolist()
        rule, size = cursor.rule, len(cursor.order)
        filled = _filled(self._left)
        if rule in SCORING:
            scored = self._scored(placed)
            return ScoreStep(ring_size=size, filled=filled), _as_led(scored, row)
        turn = cursor.index // size
        is_shifted = rule in (PlacementRule.SHIFTED, PlacementRule.SHIFTED_OVER_RACKS)
        found = self._walk(copy(cursor), partition)
        step = ChainStep(
            order=ORDER_OF[rule],
            ring_size=size,
            index=cursor.index,
            cycle=turn,
            position=found[0][0],
            gap=turn % (size - len(row) + 1) if rule is PlacementRule.ROUND_ROBIN else None,
            shift=cursor.shift + turn if is_shifted else None,
            filled=filled,
        )
        passed: Sequence[Sequence[Passed]] = [_filled(gone) for _, gone in found]
        if rule is PlacementRule.SHIFTED_OVER_RACKS and size > 1:
            passed = self._passed_over(placed, step.shift or 0)
        taken = [
            Taken(
                spu_id=spu_id,
                core=None if cores is None else cores[row.index(spu_id)],
                position=position,
                passed=tuple(passed[number]),
            )
            for number, (spu_id, (position, _)) in enumerate(zip(placed, found, strict=True))
        ]
        return step, _as_led(taken, row)

    def _scored(self, row: Sequence[int]) -> list[Taken]:
        """How each replica of a list was found by score."""
        cursor, ring = self._cursor, self._cursor.ring
        hashes = pair_hashes(cursor.topic, cursor.index, 1, ring.ids)
        of_columns = scores(hashes, ring.weights())[0].tolist()
        columns = by_score(hashes, ring.weights())[0]
        order = ring.ids[columns].tolist()
        taken: list[Taken] = []
        for number, spu_id in enumerate(row):
            place = order.index(spu_id)
            on_rack = {self._racks[each]: each for each in reversed(row[:number])}
            taken.append(
                Taken(
                    spu_id=spu_id,
                    position=place,
                    score=float(f"{of_columns[columns[place]]:.6g}"),
                    passed=tuple(
                        Passed(spu_id=each, why=Why.SAME_RACK, beside=on_rack[self._racks[each]])
                        for each in order[:place]
                        if each not in row[:number]
                    ),
                )
            )
        return taken

    def _passed_over(self, row: Sequence[int], shift: int) -> list[list[Passed]]:
        """For each replica the SPUs that Kafka's walk over racks passed over on the way to it."""
        order: list[int] = self._cursor.order.tolist()
        rack_of, size = self._racks, len(order)
        rack_count = len({*rack_of.values()})
        first = self._cursor.index % size
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


class StripesReplay:
    """A step of `kraft` that was placed again."""

    def __init__(
        self, replica_map: ReplicaMap, reason: Reason, rows: IdMatrix, ring: RecordedRing
    ) -> None:
        ignore_rack, self._index = replica_map.ignore_rack, reason.start_index or 0
        members = ring_of_text(ring.members).racks_of_members(ignore_rack=ignore_rack)
        fenced = ring_of_text(ring.fenced).racks_of_members(ignore_rack=ignore_rack)
        free = _free_slots(reason, rows)
        plan = place_striped(
            members,
            fenced,
            seed=stripes_seed(replica_map.cluster_id, replica_map.topic, self._index),
            partitions=len(rows),
            replicas=rows.shape[1],
            free=free,
        )
        _check_leaders(plan.matrix, rows)
        self._placed = plan.matrix
        self._size, self._offline = len(members), fenced.keys()
        self._leaves = _last_lists(rows, members.keys() & free)

    def explain(
        self, partition: int, row: Sequence[int], cores: Sequence[int] | None
    ) -> tuple[StripeStep, tuple[Taken, ...]]:
        """One list of the step; `partition` counts from 0 at its first."""
        gone = sorted(spu_id for spu_id, last in self._leaves.items() if last < partition)
        placed = self._placed[partition].tolist()
        taken = [Taken(spu_id=spu_id, is_offline=spu_id in self._offline) for spu_id in placed]
        step = StripeStep(ring_size=self._size - len(gone), index=self._index, filled=_filled(gone))
        return step, _as_led(taken, row)


def _free_slots(reason: Reason, rows: IdMatrix) -> dict[int, int]:
    """Of the SPUs that the step saturated: as many as they took."""
    filled = ids_of_text(reason.filled)
    held = Counter(rows[np.isin(rows, filled)].tolist())
    if len(held) < len(filled):
        raise NotRepeatedError
    return dict(held)


def _last_lists(rows: IdMatrix, spu_ids: Iterable[int]) -> dict[int, int]:
    """For each SPU the last list that holds it, in ascending order of id."""
    return {
        spu_id: int(np.flatnonzero((rows == spu_id).any(axis=1))[-1]) for spu_id in sorted(spu_ids)
    }


def _check_leaders(placed: IdMatrix, found: IdMatrix) -> None:
    """Lists may differ in this alone: one that a demoted SPU would lead is led by another."""
    differs = (placed != found).any(axis=1)
    placed, found = placed[differs], found[differs]
    is_led_so = placed[:, 0] != found[:, 0]
    if not (is_led_so.all() and (np.sort(placed) == np.sort(found)).all()):
        raise NotRepeatedError


def _as_led(taken: Sequence[Taken], row: Sequence[int]) -> tuple[Taken, ...]:
    """The replicas in the order of the list, whose leader may stand in for a demoted SPU."""
    of_spu = {each.spu_id: each for each in taken}
    leader, *others = (of_spu[spu_id] for spu_id in row)
    if leader is not taken[0]:
        demoted = Passed(spu_id=taken[0].spu_id, why=Why.DEMOTED)
        leader = replace(leader, passed=(*leader.passed, demoted))
    return (leader, *others)


def _filled(spu_ids: Iterable[int]) -> tuple[Passed, ...]:
    """SPUs as what they are for later lists of the step that saturated them."""
    return tuple(Passed(spu_id=spu_id, why=Why.FILLED) for spu_id in spu_ids)
