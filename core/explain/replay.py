"""A step of a rule, computed again from what its map records; the same lists must come out.

It is placed by the function that decided it: the reason names the ring's members, as the rule read
them, and the SPUs that the step saturated, which have as many free slots as they took replicas. A
cursor goes from list to list, and loses those SPUs where they left the ring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import pairwise

import numpy as np
from msgspec.structs import replace
from spu_assigner.core.base.records import Mode, Reason, RecordedRing, ReplicaMap
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix
from spu_assigner.core.explain.placement_decision import Passed, PlacementStep, Taken, Why
from spu_assigner.core.policies.cursor import RULES, Cursor, ShortRingError, place
from spu_assigner.core.policies.striped import place_striped, stripes_seed
from spu_assigner.core.rules.rendezvous import by_score, pair_hashes, scores
from spu_assigner.core.state.ledger import NO_LIMIT
from spu_assigner.core.state.ring import Ring, ids_of_text, ring_of_text

Explained = tuple[PlacementStep, tuple[Taken, ...]]


class NotRepeatedError(Exception):
    """Computed again, other lists come out than the recorded: a defect."""


def replay(
    replica_map: ReplicaMap, reason: Reason, rows: IdMatrix, partitions: Sequence[int]
) -> list[Explained]:
    """Place the step of a map again; empty: it is of no policy that places by a rule.

    Args:
        rows: the lists of the step.
        partitions: which of them to explain, ascending, counted from 0.

    Raises:
        NotRepeatedError: other lists come out than the recorded.
    """
    ring, filled = reason.ring, ids_of_text(reason.filled)
    if ring is None or reason.mode not in (*RULES, Mode.STRIPED):
        return []
    free = dict(Counter(rows[np.isin(rows, filled)].tolist()))
    if len(free) < len(filled):
        raise NotRepeatedError
    try:
        if reason.mode is Mode.STRIPED:
            return _striped(replica_map, reason, ring, rows, free, partitions=partitions)
        step = _RuleReplay(replica_map, reason, ring_of_text(ring.members), rows, free)
    except ShortRingError:
        raise NotRepeatedError from None
    return list(step.explained(partitions))


def _striped(
    replica_map: ReplicaMap,
    reason: Reason,
    ring: RecordedRing,
    rows: IdMatrix,
    free: Mapping[int, int],
    *,
    partitions: Sequence[int],
) -> list[Explained]:
    """Lists of a step of `kraft`."""
    ignore_rack, index = replica_map.ignore_rack, reason.start_index or 0
    members = ring_of_text(ring.members).racks_of_members(ignore_rack=ignore_rack)
    fenced = ring_of_text(ring.fenced).racks_of_members(ignore_rack=ignore_rack)
    placed, _ = place_striped(
        members,
        fenced,
        seed=stripes_seed(replica_map.cluster_id, replica_map.topic, index),
        partitions=len(rows),
        replicas=rows.shape[1],
        free=free,
    )
    _check_leaders(placed, rows)
    leaves = _last_lists(placed, free.keys() - fenced.keys())
    explained = []
    for partition in partitions:
        gone = [spu_id for spu_id, last in leaves.items() if last < partition]
        step = PlacementStep(ring_size=len(members) - len(gone), filled=(*gone,), index=index)
        row = placed[partition].tolist()
        taken = [Taken(spu_id=spu_id, is_offline=spu_id in fenced) for spu_id in row]
        explained.append((step, _as_led(taken, rows[partition])))
    return explained


class _RuleReplay:
    """A step that was placed by an order of the ring."""

    def __init__(
        self,
        replica_map: ReplicaMap,
        reason: Reason,
        ring: Ring,
        rows: IdMatrix,
        free: Mapping[int, int],
    ) -> None:
        self._rows, self._replicas = rows, rows.shape[1]
        if self._replicas > ring.size:
            raise NotRepeatedError
        index = reason.first_partition if RULES[reason.mode].is_scored else reason.start_index or 0
        self._cursor = Cursor(ring, reason.mode, index, replica_map.topic)
        if reason.is_named:
            self._cursor.start_at(index, reason.shift)
        slots = [free.get(spu_id, NO_LIMIT) for spu_id in ring.ids.tolist()]
        lists = place(
            copy(self._cursor),
            partitions=len(rows),
            replicas=self._replicas,
            free=np.array(slots) if free else None,
        )
        self._placed = lists.matrix
        _check_leaders(self._placed, rows)
        self._leaves = _last_lists(self._placed, free)
        self._left: list[int] = []  # SPUs that left the ring
        self._read_ring()

    def _read_ring(self) -> None:
        ids: list[int] = self._cursor.ring.order(self._cursor.row.order).tolist()
        self._positions = {spu_id: position for position, spu_id in enumerate(ids)}
        self._racks = self._cursor.ring.racks_of_members()

    def explained(self, partitions: Sequence[int]) -> Iterator[Explained]:
        """Each of these lists of the step; the cursor goes from list to list."""
        for begin, partition in pairwise((0, *partitions)):
            for earlier in range(begin, partition):
                self._pass(earlier)
            yield self._explained(partition)

    def _explained(self, partition: int) -> Explained:
        cursor, row = self._cursor, self._rows[partition]
        step = PlacementStep(ring_size=cursor.ring.size, filled=(*self._left,))
        if cursor.row.is_scored:
            return step, _as_led([*self._scored(partition)], row)
        placed = self._placed[partition].tolist()
        found = [Taken(spu_id=spu_id, position=self._positions[spu_id]) for spu_id in placed]
        turn = cursor.index // step.ring_size
        if cursor.rule is Mode.RACK_SHIFTED:
            found = self._passed_over(found, cursor.shift + turn)
        step = replace(
            step,
            order=cursor.row.order,
            index=cursor.index,
            cycle=turn,
            position=found[0].position,
            gap=turn % (step.ring_size - len(row) + 1) if cursor.rule is Mode.ROUND_ROBIN else None,
            shift=cursor.shift + turn if cursor.row.is_shifted else None,
        )
        return step, _as_led(found, row)

    def _pass(self, partition: int) -> None:
        """Let the cursor pass a list, and lose the SPUs that it saturated."""
        row = self._placed[partition].tolist()
        # A pointer loses an SPU at the very replica that saturates it.
        for group in [[spu_id] for spu_id in row] if self._cursor.rule is Mode.POINTER else [row]:
            self._cursor.index += 1
            gone = sorted(spu_id for spu_id in group if self._leaves.get(spu_id) == partition)
            if gone:
                self._cursor.drop(gone)
                self._left += gone
                self._read_ring()

    def _scored(self, partition: int) -> Iterator[Taken]:
        """How each replica of a list was found by score."""
        cursor, ring = self._cursor, self._cursor.ring
        hashes = pair_hashes(cursor.topic, cursor.index, 1, ring.ids)
        values = scores(hashes, ring.weights)[0].tolist()
        columns = by_score(hashes, ring.weights)[0].tolist()
        order = ring.ids[columns].tolist()
        row = self._placed[partition].tolist()
        for number, spu_id in enumerate(row):
            position, before = order.index(spu_id), row[:number]
            yield Taken(
                spu_id=spu_id,
                position=position,
                score=float(f"{values[columns[position]]:.6g}"),
                passed=self._passed(
                    (each for each in order[:position] if each not in before), before
                ),
            )

    def _passed_over(self, found: list[Taken], shift: int) -> list[Taken]:
        """The replicas with the SPUs that Kafka's walk over racks passed over before each."""
        order: list[int] = self._cursor.order.tolist()
        size, row = len(order), [taken.spu_id for taken in found]
        first, at = order.index(row[0]), shift * len({*self._racks.values()})
        walked = found[:1]
        for number, taken in enumerate(found[1:], 1):
            passed = []
            while (spu_id := order[(first + 1 + at % (size - 1)) % size]) != taken.spu_id:
                passed.append(spu_id)
                at += 1
            at += 1
            walked.append(replace(taken, passed=self._passed(passed, row[:number])))
        return walked

    def _passed(self, spu_ids: Iterable[int], before: Sequence[int]) -> tuple[Passed, ...]:
        """SPUs that were passed over by a list: it has them already, or others on their racks."""
        on_rack = {self._racks[spu_id]: spu_id for spu_id in reversed(before)}
        return tuple(
            Passed(spu_id=spu_id, why=Why.IN_LIST)
            if spu_id in before
            else Passed(spu_id=spu_id, why=Why.SAME_RACK, beside=on_rack[self._racks[spu_id]])
            for spu_id in spu_ids
        )


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


def _as_led(taken: Sequence[Taken], row: IdArray) -> tuple[Taken, ...]:
    """The replicas in the order of the list, whose leader may stand in for a demoted SPU."""
    of_spu = {each.spu_id: each for each in taken}
    leader, *others = (of_spu[spu_id] for spu_id in row.tolist())
    if leader is not taken[0]:
        demoted = Passed(spu_id=taken[0].spu_id, why=Why.DEMOTED)
        leader = replace(leader, passed=(*leader.passed, demoted))
    return (leader, *others)
