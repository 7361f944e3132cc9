"""Why a replica list is as it is: the decisions that made it, recomputed and with names.

A record carries numbers (`Reason`). Here the ring at the time is rebuilt (`ring_history`), the step
is placed again (`replay_placement`) and must give the very lists of the record; then each replica
is explained: which position of which order was looked at, and who was skipped and why. What cannot
be known from the outputs is said in `unknown`, and never guessed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spu_assigner.core.base.chains import Order
from spu_assigner.core.base.events import Policy, SpuId
from spu_assigner.core.base.records import Mode, Reason, ReplicaMap, RingChange, Wait, Waiting
from spu_assigner.core.constraints.kept_rules import describe_rules
from spu_assigner.core.decision.answers import Refusal
from spu_assigner.core.decision.requests import automatic
from spu_assigner.core.decision.waiting import request_of
from spu_assigner.core.explain.loads import Load, describe_room, load_of
from spu_assigner.core.explain.moves import MoveStep, move_steps
from spu_assigner.core.explain.placement_decision import PlacementDecision, PlacementStep
from spu_assigner.core.explain.replay_placement import (
    RULE_OF,
    Replayed,
    Taken,
    explain_list,
    racks_of,
    replay_balanced,
    replay_constrained,
    replay_placement,
)
from spu_assigner.core.explain.replay_striped import (
    OfflineThen,
    StripedStep,
    explain_striped,
    replay_striped,
)
from spu_assigner.core.explain.ring_history import (
    OVER_RACKS,
    Passed,
    PastRing,
    RingGroup,
    Why,
    find_ring,
)
from spu_assigner.core.policies.cursor import ORDER_OF
from spu_assigner.core.policies.striped import free_slots, offline_spus
from spu_assigner.core.state.cluster_state import ClusterState

NAMED_MAX: Final = 10  # SPUs in a message
ORDER_OF_MODE: Final = {
    **{mode: ORDER_OF[rule] for mode, rule in RULE_OF.items()},
    Mode.LISTS: Order.ID,
    Mode.ADOPTED: Order.ID,
    Mode.BALANCED: Order.BALANCED,
    Mode.BALANCED_ROUNDS: Order.BALANCED,
    Mode.CONSTRAINED: Order.BALANCED,
    Mode.REPAIR: Order.BALANCED,
    Mode.REBALANCE: Order.BALANCED,
    Mode.REPLICATION: Order.BALANCED,
    Mode.DEMOTION: Order.BALANCED,
    Mode.STRIPED: Order.ALTERNATION,
    Mode.DEMAND: Order.BALANCED,
    Mode.CONSTRAINTS: Order.BALANCED,
}
# Of lists that were there.
CHANGES: Final = (
    *(Mode.REPAIR, Mode.REBALANCE, Mode.REPLICATION, Mode.DEMOTION),
    Mode.DEMAND,
    Mode.CONSTRAINTS,
)
BY_SHARES: Final = (Mode.BALANCED, Mode.BALANCED_ROUNDS)
GIVEN: Final = (Mode.LISTS, Mode.ADOPTED)  # lists that the event named, so no ring was asked


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedMap:
    """A map of the topic that can still be read."""

    key: str  # of the event that made it, as in `RingGroup`
    map: ReplicaMap


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
    is_before: bool = False  # then the groups are those of the step itself: whom it saturated


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
    wanted = range(len(lists)) if partitions is None else list(partitions)
    by_map = []
    earlier: ReplicaMap | None = None
    for retained in maps:
        is_next = earlier is not None and earlier.revision + 1 == retained.map.revision
        before = _lists(earlier) if earlier is not None and is_next else None
        by_map.append(explain_map(outputs, retained, before, wanted))
        earlier = retained.map
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


def why_it_waits(state: ClusterState, waiting: Waiting) -> Refusal | None:
    """What stands in the way of a create that waits; None: nothing any more."""
    request = request_of(waiting)
    if waiting.kind is not Wait.CREATE or request.policy is None:
        return None
    refusal = automatic(state, request, request.policy)
    return refusal if isinstance(refusal, Refusal) else None


def explain_map(
    outputs: KnownOutputs,
    retained: RetainedMap,
    before: list[list[int]] | None,
    wanted: Container[int] | None = None,
) -> dict[int, PlacementDecision]:
    """How the lists that one map set came to be, by partition.

    Args:
        outputs: of the topic's cluster.
        retained: the map.
        before: the lists of the revision before; None: there was none, or it is not retained.
        wanted: the partitions to explain; all if None.
    """
    lists, reason = _lists(retained.map), retained.map.reason
    partitions = [
        partition
        for partition in _partitions_set(reason, lists, before)
        if wanted is None or partition in wanted
    ]
    if not partitions:
        return {}
    past = _ring_before(outputs, retained)
    racks: dict[int, str] = {}  # before the step, as far as they are certain
    if past is not None:
        racks = {
            int(spu_id): spu.rack or ""
            for spu_id, spu in outputs.state.spus.items()
            if spu_id not in past.described_since
        } | racks_of(past.ring)
    moves: dict[int, list[MoveStep]] = {}
    if reason is not None and reason.mode in CHANGES:
        moves = move_steps(
            reason.moves,
            frozenset(partitions),
            mode=reason.mode,
            state=outputs.state,
            ring=None if past is None else past.ring,
            racks=racks,
            lists=lists,
            lists_before=before,
            is_before=outputs.is_before,
            replica_map=retained.map,
        )
    replayed = None if past is None else _replayed(outputs, retained, past)
    cores = None if retained.map.cores is None else retained.map.cores.tolist()
    need = retained.map.need if outputs.is_before else None
    lacks = () if need is None else tuple(describe_room(outputs.state, need))
    return {
        partition: _decision(
            outputs,
            retained.map,
            partition,
            row=lists[partition],
            cores=None if cores is None else cores[partition],
            before=None if before is None or partition >= len(before) else before[partition],
            past=past,
            racks=racks,
            replayed=replayed,
            moves=tuple(moves.get(partition, ())),
            lacks=lacks,
        )
        for partition in partitions
    }


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


def _ring_before(outputs: KnownOutputs, retained: RetainedMap) -> PastRing | None:
    reason = retained.map.reason
    if reason is None or reason.mode in GIVEN:
        return None
    return find_ring(
        outputs.state,
        () if outputs.is_before else outputs.groups,
        reason,
        order=ORDER_OF_MODE[reason.mode],
        key=retained.key,
        is_whole=outputs.is_whole,
    )


def _replayed(
    outputs: KnownOutputs, retained: RetainedMap, past: PastRing
) -> Replayed | StripedStep | None:
    """The step placed again; None: that cannot be done."""
    reason = retained.map.reason
    own = next((group for group in outputs.groups if group.key == retained.key), None)
    if reason is not None and reason.mode in RULE_OF:
        demoted = _ever_demoted(outputs)
        return replay_placement(retained.map, past.ring, own, demoted=demoted)
    if reason is not None and reason.mode is Mode.STRIPED:
        return replay_striped(
            retained.map,
            past.ring,
            own,
            offline=_offline_then(outputs, retained.map, past),
            demoted=_ever_demoted(outputs),
        )
    if not outputs.is_before or reason is None:
        return None
    if reason.mode is Mode.CONSTRAINED:
        return replay_constrained(retained.map, outputs.state)
    if reason.mode in BY_SHARES:
        return replay_balanced(retained.map, outputs.state, past.ring)
    return None


def _offline_then(
    outputs: KnownOutputs, replica_map: ReplicaMap, past: PastRing
) -> OfflineThen | None:
    """The SPUs that were offline before a step of `kraft`; None: not all are known."""
    state, ignore_rack = outputs.state, replica_map.ignore_rack
    if outputs.is_before:
        offline = offline_spus(state, ignore_rack=ignore_rack)
        partitions = 0 if replica_map.replicas is None else len(replica_map.replicas)
        return OfflineThen(racks=offline, free=free_slots(state, offline, partitions))
    ids = [each.spu_id for each in past.absent if each.why is Why.OFFLINE]
    if past.unnamed or not all(SpuId(spu_id) in state.spus for spu_id in ids):
        return None
    racks = {spu_id: state.spus[SpuId(spu_id)].rack or "" for spu_id in ids}
    return OfflineThen(racks=dict.fromkeys(ids, "") if ignore_rack else racks, free=None)


def _ever_demoted(outputs: KnownOutputs) -> frozenset[int]:
    """Who is demoted, or was as far as ring events say; before the step, just who was."""
    changes = (RingChange.DEMOTED, RingChange.UNDEMOTED)
    named = {
        event.spu_id
        for group in outputs.groups
        for event in group.events
        if event.change in changes
    }
    return frozenset(named.union(outputs.state.demoted))


def _ring_unknown(outputs: KnownOutputs, reason: Reason) -> str:
    """Why nothing is said of the ring that a decision was made on."""
    text = (
        f"the ring of then ({reason.ring_size} SPUs, fingerprint {reason.ring_fingerprint:016x}) "
        "cannot be rebuilt: racks, capacities or places in the ring have changed in a way that the "
        "retained ring events do not show"
    )
    joined = {
        event.spu_id
        for group in outputs.groups
        for event in group.events
        if event.change is RingChange.JOINED
    }
    gone = sorted(joined - {int(spu_id) for spu_id in outputs.state.spus})
    if not gone or ORDER_OF_MODE[reason.mode] not in OVER_RACKS:
        return text
    named = ", ".join(map(str, gone[:NAMED_MAX])) + (", …" if len(gone) > NAMED_MAX else "")
    return f"{text}; on which racks these SPUs were, which are gone for good, is not known: {named}"


def _decision(
    outputs: KnownOutputs,
    replica_map: ReplicaMap,
    partition: int,
    *,
    row: list[int],
    cores: list[int] | None,
    before: list[int] | None,
    past: PastRing | None,
    racks: Mapping[int, str],
    replayed: Replayed | StripedStep | None,
    moves: tuple[MoveStep, ...],
    lacks: tuple[str, ...],
) -> PlacementDecision:
    reason = replica_map.reason
    by_shares = reason is not None and reason.mode in (*BY_SHARES, Mode.CONSTRAINED, *CHANGES)
    unknown: list[str] = []
    if reason is None:
        unknown.append("the release that wrote this revision recorded no reason")
    elif past is None and reason.mode not in GIVEN:
        unknown.append(_ring_unknown(outputs, reason))
    if isinstance(replayed, str):
        unknown.append(replayed)
    if any(move.is_as_ruled is False for move in moves):
        unknown.append(
            "the rule, applied again, chooses another SPU than the recorded; this should not be: "
            "please report it with the record"
        )
    absent: tuple[Passed, ...] = ()
    unnamed = 0
    if past is not None:
        absent, unnamed = past.absent, past.unnamed
    elif reason is not None:
        unnamed = reason.offline + reason.saturated
    step: PlacementStep | None = None
    taken = tuple(
        Taken(
            spu_id=spu_id,
            rack=racks.get(spu_id) if by_shares else None,
            core=None if cores is None else cores[number],
        )
        for number, spu_id in enumerate(row)
    )
    if reason is not None and isinstance(replayed, StripedStep):
        step, taken = explain_striped(replayed, partition - reason.first_partition, row)
        absent += step.filled
    elif reason is not None and replayed and not isinstance(replayed, str | StripedStep):
        step, taken = explain_list(replayed, partition - reason.first_partition, row, cores)
        absent += step.filled
    is_repeated = replayed is not None and not isinstance(replayed, str)
    return PlacementDecision(
        revision=replica_map.revision,
        cause=replica_map.cause,
        reason=reason,
        replicas=tuple(row),
        before=None if before is None else tuple(before),
        step=step,
        replica_steps=taken,
        moves=moves,
        absent=absent,
        absent_unnamed=unnamed,
        loads=_loads(outputs.state, replica_map, row, moves) if by_shares else (),
        loads_are_of_then=outputs.is_before,
        recomputed=is_repeated or (bool(moves) and all(move.is_as_ruled for move in moves)),
        unknown=tuple(unknown),
        rules=(*describe_rules(outputs.state, replica_map, row), *lacks),
    )


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
