"""Why a replica list is as it is: the decisions that made it, with names.

A map records what its step was decided on (`Reason`): the ring's members, as the rule read them,
and the SPUs that were not in it. So the step of a policy that places by a rule is placed again
(`replay`) and must give the very lists of the record; then each replica is explained: which
position of which order was read, and which SPUs were skipped and why. Of `balanced`, repairs and
rebalances, which weigh what all SPUs hold, the loads are shown, and where the state before the step
is at hand it is decided again. What cannot be known is reported in `unknown`, and never guessed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from spu_assigner.core.base.events import SpuId
from spu_assigner.core.base.records import (
    Mode,
    Reason,
    RecordedRing,
    ReplicaMap,
    Wait,
    Waiting,
)
from spu_assigner.core.constraints.kept_rules import describe_rules
from spu_assigner.core.decision.answers import Rejection
from spu_assigner.core.decision.requests import automatic
from spu_assigner.core.decision.waiting import request_of
from spu_assigner.core.explain.loads import Load, describe_room, load_of
from spu_assigner.core.explain.moves import is_changed_so, move_steps
from spu_assigner.core.explain.placement_decision import (
    Explanation,
    MoveStep,
    Passed,
    PlacementDecision,
    PlacementStep,
    Taken,
    Why,
)
from spu_assigner.core.explain.replay import (
    NotRepeatedError,
    RuleReplay,
    StripesReplay,
    decide_again,
    replay,
)
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import ids_of_text, ring_of_text

# Of lists that were there.
CHANGES: Final = (
    *(Mode.REPAIR, Mode.REBALANCE, Mode.REPLICATION, Mode.DEMOTION),
    Mode.DEMAND,
    Mode.CONSTRAINTS,
)
BY_SHARES: Final = (Mode.BALANCED, Mode.BALANCED_ROUNDS, Mode.CONSTRAINED)
OVER_RACKS: Final = (Mode.RACK_WALK, Mode.RACK_SHIFTED, Mode.RACK_SCORED)
GIVEN: Final = (Mode.LISTS, Mode.ADOPTED)  # lists that the event named, so no ring was read
NOT_REPEATED: Final = (
    "computed again from the record, other lists come out than the recorded; this should not be: "
    "please report it with the record"
)


def explain(
    state: ClusterState, maps: Sequence[ReplicaMap], partitions: Iterable[int] | None = None
) -> list[Explanation]:
    """Explain the lists of a living topic.

    Args:
        state: the topic's cluster, now.
        maps: revisions of the topic's present life, the newest last; at least one.
        partitions: which to explain; all if None. They must be in the newest map.
    """
    newest = maps[-1]
    lists = _lists(newest)
    wanted = range(len(lists)) if partitions is None else list(partitions)
    by_map = []
    earlier: ReplicaMap | None = None
    for replica_map in maps:
        is_next = earlier is not None and earlier.revision + 1 == replica_map.revision
        before = _lists(earlier) if earlier is not None and is_next else None
        by_map.append(explain_map(state, replica_map, before, wanted))
        earlier = replica_map
    explanations = []
    for partition in wanted:
        decisions = tuple(each[partition] for each in by_map if partition in each)
        explanations.append(
            Explanation(
                cluster_id=newest.cluster_id,
                topic=newest.topic,
                policy=newest.policy,
                partition=partition,
                replicas=tuple(lists[partition]),
                decisions=decisions,
                is_whole=any(
                    each.reason is not None and each.reason.mode not in CHANGES
                    for each in decisions
                ),
            )
        )
    return explanations


def why_it_waits(state: ClusterState, waiting: Waiting) -> Rejection | None:
    """What stands in the way of a create that waits; None: nothing any more."""
    request = request_of(waiting)
    if waiting.kind is not Wait.CREATE or request.policy is None:
        return None
    try:
        automatic(state, request, request.policy)
    except Rejection as why:
        return why
    return None


def explain_map(
    state: ClusterState,
    replica_map: ReplicaMap,
    before: list[list[int]] | None,
    wanted: Container[int] | None = None,
    *,
    is_before: bool = False,
) -> dict[int, PlacementDecision]:
    """How the lists that one map set came to be, by partition.

    Args:
        state: of the topic's cluster.
        replica_map: the map.
        before: the lists of the revision before; None: there was none, or it is not retained.
        wanted: the partitions to explain; all if None.
        is_before: the state is the one that the map was decided on; else it is that of now.
    """
    lists = _lists(replica_map)
    partitions = [
        partition
        for partition in _partitions_set(replica_map.reason, lists, before)
        if wanted is None or partition in wanted
    ]
    if not partitions:
        return {}
    step = _Step(state, replica_map, before, partitions, is_before=is_before)
    return {partition: step.decision(partition) for partition in partitions}


class _Step:
    """What all lists of one map have in common."""

    def __init__(
        self,
        state: ClusterState,
        replica_map: ReplicaMap,
        before: list[list[int]] | None,
        partitions: Sequence[int],
        *,
        is_before: bool,
    ) -> None:
        self._state, self._map, self._before = state, replica_map, before
        self._is_before = is_before
        self._lists = _lists(replica_map)
        self._cores = None if replica_map.cores is None else replica_map.cores.tolist()
        self._unknown: list[str] = []
        self._replayed: RuleReplay | StripesReplay | None = None
        self._is_repeated = False
        self._moves: Mapping[int, list[MoveStep]] = {}
        need = replica_map.need if is_before else None
        self._lacks = () if need is None else tuple(describe_room(state, need))
        reason = replica_map.reason
        self._ring = None if reason is None else reason.ring
        self._mode = None if reason is None else reason.mode
        if reason is None:
            self._unknown.append("the release that wrote this revision recorded no reason")
        elif reason.ring is None and reason.mode not in GIVEN:
            self._unknown.append("the release that wrote this revision recorded no ring")
        elif reason.ring is not None:
            self._repeat(reason, reason.ring)
        if reason is not None and reason.mode in CHANGES:
            self._moves = move_steps(
                replica_map, state, before, frozenset(partitions), is_before=is_before
            )
        self._racks = self._rack_names()

    def _repeat(self, reason: Reason, ring: RecordedRing) -> None:
        """Compute the step again, where the record or the state before it permits that."""
        try:
            self._replayed = replay(self._map, ring)
            self._is_repeated = self._replayed is not None
            if self._is_before and reason.mode in BY_SHARES:
                decide_again(self._map, self._state)
                self._is_repeated = True
        except NotRepeatedError:
            self._unknown.append(NOT_REPEATED)
        if self._is_before and reason.mode in (Mode.REPAIR, Mode.REPLICATION):
            self._is_repeated = is_changed_so(self._state, self._map, reason.mode)
            self._unknown += [] if self._is_repeated else [NOT_REPEATED]

    def _rack_names(self) -> dict[int, str]:
        """The rack of each SPU, where racks were read.

        A ring is recorded by rack without the racks' names: those of now are given, if its members
        are grouped as they were.
        """
        names = {int(spu_id): spu.rack or "" for spu_id, spu in self._state.spus.items()}
        if self._mode in (*BY_SHARES, *CHANGES):
            return names
        is_striped = self._mode is Mode.STRIPED and not self._map.ignore_rack
        if self._ring is None or not (is_striped or self._mode in OVER_RACKS):
            return {}
        numbers = {
            spu_id: number
            for text in (self._ring.members, self._ring.fenced)
            for spu_id, number in ring_of_text(text).racks_of_members().items()
        }
        by_number: dict[str, set[str]] = {}
        for spu_id, number in numbers.items():
            by_number.setdefault(number, set()).update([names[spu_id]] if spu_id in names else [])
        found = {number: min(of) for number, of in sorted(by_number.items()) if of}
        if max(map(len, by_number.values()), default=0) > 1 or [*found.values()] != sorted(
            {*found.values()}
        ):
            self._unknown.append("the names of the racks of then: SPUs are on other racks now")
            return {}
        if is_striped and not any(found.values()):
            return {}
        return {id_: found[number] for id_, number in numbers.items() if number in found}

    def decision(self, partition: int) -> PlacementDecision:
        reason, row, before = self._map.reason, self._lists[partition], self._before
        cores = None if self._cores is None else self._cores[partition]
        moves = tuple(self._moves.get(partition, ()))
        step: PlacementStep | None = None
        absent = tuple(_absent(self._state, self._ring, is_before=self._is_before))
        if reason is not None and self._replayed is not None:
            place = partition - reason.first_partition
            step, taken = self._replayed.explain(place, row, cores)
            absent += step.filled
        else:
            taken = tuple(
                Taken(spu_id=spu_id, core=None if cores is None else cores[number])
                for number, spu_id in enumerate(row)
            )
        by_shares = self._mode in (*BY_SHARES, *CHANGES)
        members = None if self._ring is None else ring_of_text(self._ring.members)
        return PlacementDecision(
            revision=self._map.revision,
            cause=self._map.cause,
            reason=reason,
            replicas=tuple(row),
            before=None if before is None or partition >= len(before) else tuple(before[partition]),
            ring_size=None if members is None else members.size,
            step=step,
            replica_steps=tuple(replace(each, rack=self._racks.get(each.spu_id)) for each in taken),
            moves=moves,
            absent=absent,
            loads=_loads(self._state, self._map, row, moves) if by_shares else (),
            loads_are_of_then=self._is_before,
            recomputed=self._is_repeated,
            unknown=tuple(self._unknown),
            rules=(*describe_rules(self._state, self._map, row), *self._lacks),
        )


def _absent(state: ClusterState, ring: RecordedRing | None, *, is_before: bool) -> Iterable[Passed]:
    """The SPUs that were not in the ring, by id."""
    if ring is None:
        return []
    whys = dict.fromkeys(ids_of_text(ring.offline), Why.OFFLINE)
    whys |= dict.fromkeys(state.leaving.intersection(whys) if is_before else (), Why.LEAVING)
    whys |= dict.fromkeys(ids_of_text(ring.saturated), Why.SATURATED)
    whys |= dict.fromkeys(ids_of_text(ring.cordoned), Why.CORDONED)
    return [Passed(spu_id=int(spu_id), why=why) for spu_id, why in sorted(whys.items())]


def _lists(replica_map: ReplicaMap) -> list[list[int]]:
    return [] if replica_map.replicas is None else replica_map.replicas.tolist()


def _partitions_set(
    reason: Reason | None, lists: list[list[int]], before: list[list[int]] | None
) -> Iterable[int]:
    """The partitions to which a map gave their list."""
    if reason is not None and reason.mode not in CHANGES:
        return range(reason.first_partition, len(lists))
    if before is None and reason is None:
        return range(len(lists))
    moved = set() if reason is None else {move.partition for move in reason.moves}
    return [
        partition
        for partition, row in enumerate(lists)
        if partition in moved
        or (before is not None and (partition >= len(before) or before[partition] != row))
    ]


def _loads(
    state: ClusterState, replica_map: ReplicaMap, row: list[int], moves: Sequence[MoveStep]
) -> tuple[Load, ...]:
    """What the SPUs concerned hold in the state."""
    moved = [spu_id for move in moves for spu_id in (move.gone, move.taken) if spu_id is not None]
    return tuple(
        load_of(state, spu_id, replica_map.need, leads=spu_id == row[0])
        for spu_id in sorted({*row, *moved})
        if SpuId(spu_id) in state.spus
    )
