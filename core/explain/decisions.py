"""Why a replica list is as it is: the decisions that made it, with names.

A map records what its step was decided on (`Reason`): the ring's members, as the rule read them,
and the SPUs that were not in it. So the step of a policy that places by a rule is placed again
(`replay`) and must give the very lists of the record; then each replica is explained: which
position of which order was read, and which SPUs were skipped and why. Of `balanced`, repairs and
rebalances moves and loads are shown. What is not known is named in `unknown`. For a caller that
has the events the state before each decision is at hand, so everything can be named.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import InvariantError, Rejection
from spu_assigner.core.base.events import DEFAULT_POLICY, Event, Policy, SpuId
from spu_assigner.core.base.records import (
    Answer,
    Mode,
    Move,
    Reason,
    Record,
    RecordedRing,
    ReplicaMap,
    Wait,
    Waiting,
)
from spu_assigner.core.constraints.kept_rules import describe_rules
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.decision.requests import automatic
from spu_assigner.core.decision.shortage import lacking
from spu_assigner.core.decision.waiting import request_of
from spu_assigner.core.explain.placement_decision import (
    AmountHeld,
    Explanation,
    Load,
    Passed,
    PlacementDecision,
    Taken,
    Why,
)
from spu_assigner.core.explain.replay import Explained, NotRepeatedError, replay
from spu_assigner.core.policies.cursor import RULES_OF
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import ids_of_text, ring_of_text

CHANGES: Final = (  # of lists that were there
    *(Mode.REPAIR, Mode.REBALANCE, Mode.REPLICATION, Mode.DEMOTION, Mode.DEMAND, Mode.CONSTRAINTS),
)
BY_SHARES: Final = (Mode.BALANCED, Mode.BALANCED_ROUNDS, Mode.CONSTRAINED)
Reasons = list[tuple[int, PlacementDecision]]  # by partition, of those whose list the map set
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
    before: tuple[int, list[list[int]]] = 0, []  # the revision before, and its lists
    for replica_map in maps:
        is_next = before[0] == replica_map.revision - 1 > 0
        by_map.append(explain_map(state, replica_map, before[1] if is_next else None, wanted))
        before = replica_map.revision, _lists(replica_map)
    return [
        Explanation(
            cluster_id=newest.cluster_id,
            topic=newest.topic,
            policy=newest.policy,
            partition=partition,
            replicas=tuple(lists[partition]),
            decisions=decisions,
            is_whole=any(each.reason.mode not in CHANGES for each in decisions),
        )
        for partition in wanted
        for decisions in [tuple(each[partition] for each in by_map if partition in each)]
    ]


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
        before: the lists of the revision before; None: there was none, or it is not retained.
        wanted: the partitions to explain; all if None.
        is_before: the state is that on which the map was decided; else it is that of now.
    """
    reason, lists = replica_map.reason, _lists(replica_map)
    if reason is None or replica_map.replicas is None:
        raise InvariantError(f"map of {replica_map.topic!r} has no placement to explain")
    partitions = [
        partition
        for partition in _partitions_set(reason, lists, before)
        if wanted is None or partition in wanted
    ]
    if not partitions:
        return {}
    unknown: list[str] = []
    first, ring, need = reason.first_partition, reason.ring, replica_map.need
    rows = replica_map.replicas.matrix[first:, : replica_map.replication_factor]
    explained: Sequence[Explained] = ()
    try:
        explained = replay(replica_map, reason, rows, [each - first for each in partitions])
    except NotRepeatedError:
        unknown.append(NOT_REPEATED)
    racks = _racks_read(state, replica_map, reason)
    if racks is None:
        unknown.append("the names of the racks of then: SPUs are on other racks now")
    is_weighed = reason.mode in (*BY_SHARES, *CHANGES)
    lacks: list[str] = []
    if need is not None and is_before:
        lacks = [f"demand: {each}" for each in lacking(state, state.ring.ids.tolist(), need)]
    absent = () if ring is None else tuple(_absent(state, ring, is_before=is_before))
    ring_size = None if ring is None else ring_of_text(ring.members).size
    moves_of: dict[int, list[Move]] = {}
    for move in reason.moves:
        moves_of.setdefault(move.partition, []).append(move)
    cores = None if replica_map.cores is None else replica_map.cores.tolist()
    decisions = {}
    for number, partition in enumerate(partitions):
        row, moves = lists[partition], moves_of.get(partition, [])
        step, taken = explained[number] if explained else (None, [Taken(spu_id=i) for i in row])
        filled = () if step is None else step.filled
        decisions[partition] = PlacementDecision(
            revision=replica_map.revision,
            cause=replica_map.cause,
            reason=reason,
            replicas=tuple(row),
            before=None if before is None or partition >= len(before) else tuple(before[partition]),
            ring_size=ring_size,
            step=step,
            replica_steps=tuple(
                replace(
                    each,
                    rack=None if racks is None else racks.get(each.spu_id),
                    core=None if cores is None else cores[partition][place],
                )
                for place, each in enumerate(taken)
            ),
            moves=tuple(moves),
            absent=(*absent, *(Passed(spu_id=i, why=Why.FILLED) for i in filled)),
            loads=tuple(_loads(state, replica_map, row, moves)) if is_weighed else (),
            loads_are_of_then=is_before,
            recomputed=step is not None,
            unknown=tuple(unknown),
            rules=(*describe_rules(state, replica_map, row), *lacks),
        )
    return decisions


def _racks_read(
    state: ClusterState, replica_map: ReplicaMap, reason: Reason
) -> dict[int, str] | None:
    """The rack of each SPU, where racks were read; None: they are others now.

    A ring is recorded by rack without the racks' names: those of now are given, if its members are
    grouped as they were.
    """
    now = {int(spu_id): spu.rack or "" for spu_id, spu in state.spus.items()}
    if reason.mode in (*BY_SHARES, *CHANGES):
        return now
    is_striped = reason.mode is Mode.STRIPED and not replica_map.ignore_rack
    is_over_racks = any(reason.mode in modes[1:] for modes in RULES_OF.values())
    if reason.ring is None or not (is_striped or is_over_racks):
        return {}
    members, fenced = map(ring_of_text, (reason.ring.members, reason.ring.fenced))
    then = members.racks_of_members() | fenced.racks_of_members()
    names = {then[spu_id]: rack for spu_id, rack in now.items() if spu_id in then}
    is_same = all(names[then[spu_id]] == rack for spu_id, rack in now.items() if spu_id in then)
    if not is_same or len({*names.values()}) < len(names):
        return None
    if is_striped and not any(names.values()):
        return {}
    return {spu_id: names[number] for spu_id, number in then.items() if number in names}


def _absent(state: ClusterState, ring: RecordedRing, *, is_before: bool) -> Iterator[Passed]:
    """The SPUs that were not in the ring, by id."""
    whys = dict.fromkeys(ids_of_text(ring.offline), Why.OFFLINE)
    whys |= dict.fromkeys(state.leaving.intersection(whys) if is_before else (), Why.LEAVING)
    whys |= dict.fromkeys(ids_of_text(ring.saturated), Why.SATURATED)
    whys |= dict.fromkeys(ids_of_text(ring.cordoned), Why.CORDONED)
    for spu_id, why in sorted(whys.items()):
        yield Passed(spu_id=int(spu_id), why=why)


def _lists(replica_map: ReplicaMap) -> list[list[int]]:
    return [] if replica_map.replicas is None else replica_map.replicas.tolist()


def _partitions_set(
    reason: Reason, lists: list[list[int]], before: list[list[int]] | None
) -> Iterable[int]:
    """The partitions to which a map gave their list."""
    if reason.mode not in CHANGES:
        return range(reason.first_partition, len(lists))
    moved = {move.partition for move in reason.moves}
    return [
        partition
        for partition, row in enumerate(lists)
        if partition in moved
        or (before is not None and (partition >= len(before) or before[partition] != row))
    ]


def _loads(
    state: ClusterState, replica_map: ReplicaMap, row: list[int], moves: Sequence[Move]
) -> Iterator[Load]:
    """What the SPUs concerned hold in the state, and what a replica of the topic needs of them."""
    need = replica_map.need
    moved = {spu_id for move in moves for spu_id in (move.gone, move.taken) if spu_id is not None}
    for spu_id in sorted({*row, *moved} & state.spus.keys()):
        spu = state.spus[SpuId(spu_id)]
        amounts: list[AmountHeld] = []
        if need is not None:
            needed = {name: each[spu_id == row[0]] for name, *each in need.by_name()}
            has, used = dict(spu.resources), state.ledger.used(spu_id)
            amounts = [
                AmountHeld(
                    resource=name,
                    used=used.get(name, 0),
                    capacity=has.get(name, 0),
                    needed=needed.get(name, 0),
                )
                for name in sorted({*has, *used, *needed})
            ]
        count = state.ledger.count(spu.spu_id)
        yield Load(spu_id=spu_id, count=count, capacity=spu.capacity, amounts=tuple(amounts))


class ExplainingAssigner:
    """As `Assigner`, but each map comes with the decision for each list that it set."""

    def __init__(self, default_policy: Policy = DEFAULT_POLICY) -> None:
        self.assigner = Assigner(default_policy)

    def apply(self, event: Event) -> list[tuple[Answer, Reasons]]:
        """Decide and apply; the answers in their fixed order, without reasons but for maps."""
        reasons: dict[int, Reasons] = {}  # by the identity of the map

        def explain(state: ClusterState, decided: Sequence[Record]) -> None:
            for record in decided:
                if isinstance(record, ReplicaMap) and record.replicas is not None:
                    topic = state.topics.get(record.topic)
                    before = None if topic is None else topic.replicas.lists().tolist()
                    found = explain_map(state, record, before, is_before=True)
                    reasons[id(record)] = [*found.items()]

        records = self.assigner.records(event, witness=explain)
        return [(answer, reasons.get(id(answer), [])) for answer in answers(records)]
