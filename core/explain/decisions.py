"""Why a replica list is as it is: the decisions that made it, recomputed and with names.

A record carries numbers (`Reason`). Here the ring at the time is rebuilt (`past_ring`), the step is
placed anew (`replay_placement`) and must give the very lists of the record; then each replica is
told: which position of which order was looked at, and who was passed over and why. What cannot be
known from the outputs is said in `unknown`, and never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spu_assigner.core.base.events import Policy, SpuId
from spu_assigner.core.base.records import Mode, Order, Reason, ReplicaMap, Wait, Waiting
from spu_assigner.core.decision.answers import Refusal
from spu_assigner.core.decision.requests import automatic
from spu_assigner.core.decision.waiting import request_of
from spu_assigner.core.explain.moves import Load, MoveExplanations, MoveStep
from spu_assigner.core.explain.replay_placement import (
    RULE_OF,
    ChainStep,
    Passed,
    ReplayedPlacement,
    Taken,
    Why,
    racks_of,
    replay_balanced,
    replay_placement,
)
from spu_assigner.core.explain.ring_history import PastRing, RingGroup, find_ring
from spu_assigner.core.policies.planner import ORDER_OF
from spu_assigner.core.state.cluster_state import ClusterState

ORDER_OF_MODE: Final = {
    **{mode: ORDER_OF[rule] for mode, rule in RULE_OF.items()},
    Mode.LISTS: Order.ID,
    Mode.BALANCED: Order.BALANCED,
    Mode.REPAIR: Order.BALANCED,
    Mode.REBALANCE: Order.BALANCED,
}
CHANGES: Final = (Mode.REPAIR, Mode.REBALANCE)  # of lists that were there


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedMap:
    """A map of the topic that can still be read."""

    key: str  # of the event that made it, as in `RingGroup`
    map: ReplicaMap


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementDecision:
    """One revision that set this partition's list."""

    revision: int
    cause: str
    reason: Reason | None
    replicas: tuple[int, ...]
    before: tuple[int, ...] | None  # the list of the revision before, where that is retained
    step: ChainStep | None  # where in its order it was placed; None: by no order, or not known
    replica_steps: tuple[Taken, ...]  # one for each replica
    moves: tuple[MoveStep, ...]
    absent: tuple[Passed, ...]  # who of the cluster was not in the ring
    absent_unnamed: int  # how many more
    loads: tuple[Load, ...]  # of those concerned, where shares decide; as of `KnownOutputs.state`
    loads_are_of_then: bool  # that state is the one before the decision
    recomputed: bool  # the placement was repeated and gave the recorded lists
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What made one replica list, as far as it is retained, the oldest decision first."""

    cluster_id: str
    topic: str
    policy: Policy
    partition: int
    replicas: tuple[int, ...]
    decisions: tuple[PlacementDecision, ...]
    is_whole: bool  # the decision that placed the partition first is among them


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOutputs:
    """What is known of a cluster: its state, and what led there.

    Where the state is the one that the decision was made on (`is_before`), no ring event is needed
    but those of the step itself, and everything can be named.
    """

    state: ClusterState
    groups: Sequence[RingGroup] = ()  # up to the state, oldest first
    is_whole: bool = False  # the groups begin with the cluster; else the oldest have expired
    is_before: bool = False
    step_events: RingGroup | None = None  # with `is_before`: whom the step saturated


def explain(
    outputs: KnownOutputs, maps: Sequence[RetainedMap], partitions: Iterable[int] | None = None
) -> list[Explanation]:
    """Explain the lists of a living topic.

    Args:
        outputs: of the topic's cluster, now.
        maps: revisions of the topic's present life, the newest last; at least one.
        partitions: which to explain; all if None. They must be in the newest map.
    """
    newest = maps[-1].map
    lists = _lists(newest)
    explained = []
    for number, retained in enumerate(maps):
        earlier = maps[number - 1].map if number else None
        is_next = earlier is not None and earlier.revision + 1 == retained.map.revision
        explained.append(
            MapExplanation(
                outputs, retained, _lists(earlier) if earlier is not None and is_next else None
            )
        )
    explanations = []
    for partition in range(len(lists)) if partitions is None else partitions:
        decisions = tuple(each.decision(partition) for each in explained if each.has_set(partition))
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


def why_it_waits(state: ClusterState, waiting: Waiting) -> Refusal | None:
    """What stands in the way of a create that waits; None: nothing any more."""
    request = request_of(waiting)
    if waiting.kind is not Wait.CREATE or request.policy is None:
        return None
    refusal = automatic(state, request, request.policy)
    return refusal if isinstance(refusal, Refusal) else None


def _lists(replica_map: ReplicaMap) -> list[list[int]]:
    return [] if replica_map.replicas is None else replica_map.replicas.tolist()


class MapExplanation:
    """One map: which lists it set, and how.

    `lists_before` are those of the revision before; None: there was none, or it is not retained.
    """

    def __init__(
        self, outputs: KnownOutputs, retained: RetainedMap, lists_before: list[list[int]] | None
    ) -> None:
        self._outputs = outputs
        self._retained = retained
        self._map = retained.map
        self._lists = _lists(self._map)
        self._cores = None if self._map.cores is None else self._map.cores.tolist()
        self._lists_before = lists_before
        reason = self._map.reason
        self._moved = {move.partition for move in reason.moves} if reason is not None else set()
        self._racks: dict[int, str] = {}  # before the step, as far as they are certain
        self._found: (
            tuple[PastRing | None, ReplayedPlacement | None, MoveExplanations | None] | None
        ) = None

    def partitions(self) -> list[int]:
        """Those whose list this map set."""
        return [partition for partition in range(len(self._lists)) if self.has_set(partition)]

    def has_set(self, partition: int) -> bool:
        """Whether this revision gave the partition its list."""
        if partition >= len(self._lists):
            return False
        reason = self._map.reason
        if reason is None or reason.mode in CHANGES:
            if partition in self._moved:
                return True
            before = self._lists_before
            if before is not None:
                return partition >= len(before) or before[partition] != self._lists[partition]
            return reason is None
        return partition >= reason.first_partition

    def decision(self, partition: int) -> PlacementDecision:
        """How the list came to be; only for a partition that the map set."""
        reason, row = self._map.reason, self._lists[partition]
        unknown: list[str] = []
        taken: tuple[Taken, ...] = ()
        step = None
        past, replayed, move_explanations = self._rebuilt()
        if reason is None:
            unknown.append("the release that wrote this revision recorded no reason")
        elif past is None and reason.mode is not Mode.LISTS:
            unknown.append(_no_ring(reason))
        recomputed = replayed is not None and replayed.fault is None
        if replayed is not None and reason is not None:
            if replayed.fault is not None:
                unknown.append(replayed.fault)
            elif reason.mode in RULE_OF:
                step, taken = replayed.step_of(partition - reason.first_partition, row)
        if not taken:
            taken = tuple(self._plainly(partition, reason))
        before = self._lists_before
        absent, unnamed = _absent(reason, past)
        if step is not None:
            absent = (*absent, *step.filled)
        moves = () if move_explanations is None else move_explanations.of(partition)
        if moves and all(move.is_as_ruled for move in moves):
            recomputed = True
        elif any(move.is_as_ruled is False for move in moves):
            unknown.append(
                "the rule, applied anew, chooses another SPU than the recorded; this should not "
                "be: please report it with the record"
            )
        return PlacementDecision(
            revision=self._map.revision,
            cause=self._map.cause,
            reason=reason,
            replicas=tuple(row),
            before=None if before is None or partition >= len(before) else tuple(before[partition]),
            step=step,
            replica_steps=taken,
            moves=moves,
            absent=absent,
            absent_unnamed=unnamed,
            loads=self._loads(reason, row, moves),
            loads_are_of_then=self._outputs.is_before,
            recomputed=recomputed,
            unknown=tuple(unknown),
        )

    def _rebuilt(self) -> tuple[PastRing | None, ReplayedPlacement | None, MoveExplanations | None]:
        """The ring before the step, and the step repeated; looked for once."""
        if self._found is not None:
            return self._found
        outputs, reason = self._outputs, self._map.reason
        past, replayed, moves = None, None, None
        if reason is not None and reason.mode is not Mode.LISTS:
            past = find_ring(
                outputs.state,
                outputs.groups,
                reason,
                order=ORDER_OF_MODE[reason.mode],
                key=self._retained.key,
                is_whole=outputs.is_whole,
            )
            if past is not None and reason.mode in RULE_OF:
                replayed = replay_placement(self._map, past.ring, self._own_group())
            elif past is not None and reason.mode is Mode.BALANCED and outputs.is_before:
                replayed = replay_balanced(self._map, outputs.state, past.ring)
        if past is not None:
            self._racks = {
                int(spu_id): spu.rack or ""
                for spu_id, spu in outputs.state.spus.items()
                if spu_id not in past.described_since
            } | racks_of(past.ring)
        if reason is not None and reason.mode in CHANGES:
            moves = MoveExplanations(
                outputs.state,
                None if past is None else past.ring,
                self._racks,
                reason.moves,
                mode=reason.mode,
                lists=self._lists,
                lists_before=self._lists_before,
                is_before=outputs.is_before,
            )
        self._found = past, replayed, moves
        return self._found

    def _own_group(self) -> RingGroup | None:
        outputs = self._outputs
        if outputs.is_before:
            return outputs.step_events
        own = [group for group in outputs.groups if group.key == self._retained.key]
        return own[0] if own else None

    def _plainly(self, partition: int, reason: Reason | None) -> list[Taken]:
        """The replicas, without how they were found."""
        cores = None if self._cores is None else self._cores[partition]
        show_racks = reason is not None and reason.mode in (Mode.BALANCED, *CHANGES)
        return [
            Taken(
                spu_id=spu_id,
                rack=self._racks.get(spu_id) if show_racks else None,
                core=None if cores is None else cores[number],
            )
            for number, spu_id in enumerate(self._lists[partition])
        ]

    def _loads(
        self, reason: Reason | None, row: list[int], moves: tuple[MoveStep, ...]
    ) -> tuple[Load, ...]:
        """Of the SPUs concerned, where shares of capacity decide: what they hold in the state."""
        if reason is None or reason.mode not in (Mode.BALANCED, *CHANGES):
            return ()
        state = self._outputs.state
        moved = [spu_id for move in moves for spu_id in (move.gone, move.taken)]
        concerned = sorted({*row, *(spu_id for spu_id in moved if spu_id is not None)})
        return tuple(
            Load(
                spu_id=spu_id,
                count=state.ledger.count(spu_id),
                capacity=state.spus[SpuId(spu_id)].capacity,
            )
            for spu_id in concerned
            if SpuId(spu_id) in state.spus
        )


def _absent(reason: Reason | None, past: PastRing | None) -> tuple[tuple[Passed, ...], int]:
    """Who was not in the ring, and how many more there were than can be named."""
    if reason is None:
        return (), 0
    if past is None:
        return (), reason.offline + reason.saturated
    whys = dict.fromkeys(past.saturated, Why.SATURATED)
    whys |= dict.fromkeys(past.offline, Why.OFFLINE) | dict.fromkeys(past.leaving, Why.LEAVING)
    named = tuple(Passed(spu_id=spu_id, why=why) for spu_id, why in sorted(whys.items()))
    return named, past.unnamed


def _no_ring(reason: Reason) -> str:
    return (
        f"the ring of then ({reason.ring_size} SPUs, fingerprint {reason.ring_fingerprint:016x}) "
        "cannot be rebuilt: racks or places in the ring have changed in a way that the retained "
        "ring events do not tell"
    )
