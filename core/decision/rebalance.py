"""`ClusterRebalance`: the plan of `rebalance` as records, with what follows for ring and chains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from spu_assigner.core.base.errors import Code, bounded_repr
from spu_assigner.core.base.events import ClusterRebalance, Policy, SpuId
from spu_assigner.core.base.limits import (
    AMOUNT_MAX,
    BAND,
    BAND_MAX,
    BAND_PERCENT,
    BAND_PERCENT_MAX,
    MOVES_MAX,
    REBALANCE_MOVES_MAX,
    RESOURCE_REPLICAS_MAX,
    RULED_LISTS_MAX,
)
from spu_assigner.core.base.records import Mode, Move, Record, Status
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists
from spu_assigner.core.base.resources import BYTES, Need
from spu_assigner.core.constraints.moving import MovingRules
from spu_assigner.core.decision.answers import CLUSTER_TOPIC, Rejection, rejected, status
from spu_assigner.core.decision.repair import revised
from spu_assigner.core.decision.ring_changes import ring_after
from spu_assigner.core.rebalance.planning import Rebalance, TooManyMovesError, plan_rebalance
from spu_assigner.core.rebalance.repairing import Repairs, repair_lists
from spu_assigner.core.rebalance.resource_goal import ResourceGoal, TopicNeed, add
from spu_assigner.core.rebalance.ruled_lists import RuledTopics
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.core_weights import held_by_cores, weights_after
from spu_assigner.core.state.leading import LeaderChoice
from spu_assigner.core.state.ledger import Loads


def rebalance(state: ClusterState, event: ClusterRebalance) -> list[Record]:
    """The maps that change, ring events, and one status with the number of moves.

    Its message also counts the topics that do not move: manual and pinned ones. Where topics say
    what they need of resources, it has the bytes and the largest dominant share.
    """
    names = [name for name in sorted(state.topics) if _why_left(state, name) is None]
    found = _refuse(event) or _planned(state, event, names)
    if isinstance(found, Rejection):
        return [rejected(state, CLUSTER_TOPIC, found, event.event_id)]
    plan, repairs = found
    left_alone = [why for name in state.topics if (why := _why_left(state, name)) is not None]
    message = _said_of(plan, repairs) + _left_alone(left_alone)
    answer = status(state, CLUSTER_TOPIC, Status.ASSIGNED, event.event_id, moves=len(plan.moves))
    return [*_records(state, plan, names, event.event_id), replace(answer, message=message)]


def _why_left(state: ClusterState, name: str) -> str | None:
    """Why a topic does not move; None: it may."""
    topic = state.topics[name]
    if topic.pinned:
        return "pinned"
    return "manual" if topic.policy is Policy.MANUAL else None


def _planned(
    state: ClusterState, event: ClusterRebalance, names: Sequence[str]
) -> tuple[Rebalance, Repairs] | Rejection:
    """What is to change, the repairs included; or why too much would."""
    moving = MovingRules(state, names)
    open_ids = [
        i
        for i in sorted(state.spus)
        if state.spus[i].online and (not state.spus[i].is_closed or i in moving.opened)
    ]
    if not names or not open_ids:
        return Rebalance(changed={}, moves=(), reorders=0), Repairs()
    if (refusal := _refuse_size(state, names)) is not None:
        return refusal
    loads = state.loads(np.array(open_ids, dtype=np.int32))
    goal = _goal(state, event, names, loads)
    matrices = [state.topics[name].replicas.matrix() for name in names]
    repairs = repair_lists(
        state,
        names,
        matrices,
        moving,
        loads,
        sizes=[0] * len(names) if goal is None else [need.size for need in goal.needs],
        max_moves=event.max_moves,
        max_bytes=event.max_bytes,
    )
    loads, goal = _after(repairs, matrices, loads, goal)
    try:
        plan = plan_rebalance(
            [repairs.matrices.get(at, matrix) for at, matrix in enumerate(matrices)],
            loads,
            racks=_other_racks(state, loads),
            max_moves=event.max_moves - len(repairs.moves),
            band=BAND if event.band is None else event.band,
            choice=LeaderChoice(state) if state.demoted else None,
            goal=goal,
            ruled=_ruled(state, names, moving, loads),
        )
    except TooManyMovesError as error:
        return Rejection(
            Code.TOO_MANY_MOVES,
            f"to even out takes at least {error.moves} moves; one request may take "
            f"{REBALANCE_MOVES_MAX}: ask with max_moves {REBALANCE_MOVES_MAX}, and again until "
            "nothing moves",
        )
    return _with_repairs(plan, repairs, matrices), repairs


def _ruled(
    state: ClusterState, names: Sequence[str], moving: MovingRules, loads: Loads
) -> RuledTopics | None:
    """What binds the topics that may move; None: nothing but racks and capacities."""
    if not state.constrained and not state.demoted:
        return None
    rules = [moving.of(name, loads.ids) for name in names]
    if not any(rules) and not moving.opened:
        return None
    constraints = [state.topics[name].constraints if state.barred else None for name in names]
    return RuledTopics(
        rules=rules,
        closed=np.isin(loads.ids, sorted(moving.opened)),
        choices={
            number: LeaderChoice(state, each)
            for number, each in enumerate(constraints)
            if each is not None and each.tolerations
        },
    )


def _after(
    repairs: Repairs, matrices: Sequence[IdMatrix], loads: Loads, goal: ResourceGoal | None
) -> tuple[Loads, ResourceGoal | None]:
    """What SPUs hold after the repairs, and how many bytes may be moved then."""
    place = {spu_id: at for at, spu_id in enumerate(loads.ids.tolist())}
    replicas, leaders = loads.replicas.copy(), loads.leaders.copy()
    used = [] if goal is None else [list(amounts) for amounts in goal.used]
    for index, after in repairs.matrices.items():
        for row, column in np.argwhere(after != matrices[index]).tolist():
            for matrix, more in ((matrices[index], -1), (after, 1)):
                at = place[int(matrix[row, column])]
                replicas[at] += more
                leaders[at] += more * (column == 0)
                if goal is not None:
                    need = goal.needs[index]
                    add(used[at], need.follower if column else need.leader, more)
    if goal is not None:
        left = None if goal.bytes_max is None else goal.bytes_max - repairs.size
        goal = replace(goal, used=used, bytes_max=left)
    return replace(loads, replicas=replicas, leaders=leaders), goal


def _with_repairs(plan: Rebalance, repairs: Repairs, matrices: Sequence[IdMatrix]) -> Rebalance:
    """The plan after the repairs, and they before it; a replica that both move moves once."""
    moves, size = list(repairs.moves), plan.size + repairs.size
    at_of = {(move.topic, move.partition, move.taken): at for at, move in enumerate(moves)}
    for move in plan.moves:
        at = at_of.get((move.topic, move.partition, move.gone))
        if at is None:
            moves.append(move)
        else:
            moves[at] = replace(moves[at], taken=move.taken)
    lists = repairs.matrices | plan.changed
    changed = {at: lists[at] for at in sorted(lists) if not np.array_equal(lists[at], matrices[at])}
    return replace(plan, moves=tuple(moves), changed=changed, size=size)


def _said_of(plan: Rebalance, repairs: Repairs) -> str:
    shares, size = plan.shares, "" if plan.shares is None else f" of {plan.size} bytes"
    is_one = len(plan.moves) == 1
    said = f"1 replica{size} moves" if is_one else f"{len(plan.moves)} replicas{size} move"
    if repairs.moves:
        count = len(repairs.moves)
        said += f" ({count} to repair lists, {len(plan.moves) - count} to even out)"
    if plan.reorders == 1:
        said += ", 1 list gets another leader from among its replicas"
    else:
        said += f", {plan.reorders} lists get another leader from among their replicas"
    if repairs.left:
        lists = "1 list is" if repairs.left == 1 else f"{repairs.left} lists are"
        said += f"; {lists} left to be repaired, beyond the limits of the request"
    if plan.is_cut:
        said += "; the search ended at its limit: ask again, which may find more"
    if shares is not None:
        said += (
            f"; the largest dominant share is {_percent(shares.after)}, was "
            f"{_percent(shares.before)}, and {_percent(shares.fair)} is fair"
        )
    return said


def _left_alone(whys: Sequence[str]) -> str:
    """What is said of the topics that do not move."""
    if not whys:
        return ""
    kinds = [kind for kind in ("manual", "pinned") if kind in whys]
    return f"; {len(whys)} {' or '.join(kinds)} topic{'' if len(whys) == 1 else 's'} left alone"


def _refuse(event: ClusterRebalance) -> Rejection | None:
    for code, field, value, limit in (
        (Code.INVALID_MAX_MOVES, "max_moves", event.max_moves, MOVES_MAX),
        (Code.INVALID_MAX_BYTES, "max_bytes", event.max_bytes or 0, AMOUNT_MAX),
        (Code.INVALID_BAND_PERCENT, "band_percent", event.band_percent or 0, BAND_PERCENT_MAX),
        (Code.INVALID_BAND, "band", event.band or 0, BAND_MAX),
    ):
        if not 0 <= value <= limit:
            return Rejection(code, f"{field} is {bounded_repr(value)}; expected 0 to {limit}")
    return None


def _refuse_size(state: ClusterState, names: Sequence[str]) -> Rejection | None:
    """Why so many lists under rules, or replicas by their resources, are not weighed."""
    sizes = {name: state.topics[name].replicas.matrix().shape for name in names}
    lists = sum(rows for name, (rows, _) in sizes.items() if name in state.constrained)
    replicas = 0
    if any(topic.need is not None for topic in state.topics.values()):
        replicas = sum(rows * width for rows, width in sizes.values())
    for count, limit, found in (
        (replicas, RESOURCE_REPLICAS_MAX, "that may move have {} replicas; by resources"),
        (lists, RULED_LISTS_MAX, "with constraints have {} lists;"),
    ):
        if count > limit:
            return Rejection(
                Code.TOO_COMPLEX,
                f"topics {found.format(count)} one request may weigh {limit}: pin topics that are "
                "to stay (topic_adopted with pinned)",
            )
    return None


def _goal(
    state: ClusterState, event: ClusterRebalance, names: Sequence[str], loads: Loads
) -> ResourceGoal | None:
    """What to come to where any topic says what it needs; None: numbers of replicas decide."""
    needs = [topic.need for topic in state.topics.values() if topic.need is not None]
    resources = sorted({name for need in needs for name, _, _ in need.by_name()})
    if not needs:
        return None
    capacities, used = [], []
    for spu_id, slots, count in zip(
        loads.ids.tolist(), loads.capacities.tolist(), loads.replicas.tolist(), strict=True
    ):
        has, uses = dict(state.spus[SpuId(spu_id)].resources), state.ledger.used(spu_id)
        capacities.append([slots, *[has.get(name, 0) for name in resources]])
        used.append([count, *[uses.get(name, 0) for name in resources]])
    return ResourceGoal(
        needs=[_topic_need(state.topics[name].need, resources) for name in names],
        capacities=capacities,
        used=used,
        band_percent=BAND_PERCENT if event.band_percent is None else event.band_percent,
        bytes_max=event.max_bytes,
    )


def _topic_need(need: Need | None, resources: Sequence[str]) -> TopicNeed:
    """Of a replica: a slot, and what the topic says. Without a size it counts as 0 bytes."""
    amounts = {} if need is None else {name: pair for name, *pair in need.by_name()}
    of_each = [amounts.get(name, (0, 0)) for name in resources]
    return TopicNeed(
        follower=[1, *[follower for follower, _ in of_each]],
        leader=[1, *[leader for _, leader in of_each]],
        size=amounts.get(BYTES, (0, 0))[0],
    )


def _percent(share: Fraction) -> str:
    """Rounded to a tenth, by integers."""
    tenths = (share.numerator * 2_000 + share.denominator) // (share.denominator * 2)
    return f"{tenths // 10}.{tenths % 10} %"


def _other_racks(state: ClusterState, loads: Loads) -> dict[int, int]:
    """Rack numbers of the SPUs that `loads` does not have, counted on from those that it has."""
    known = dict(zip(loads.ids.tolist(), loads.racks.tolist(), strict=True))
    number_of = {state.spus[SpuId(i)].rack or "": number for i, number in known.items()}
    return {
        i: number_of.setdefault(state.spus[i].rack or "", len(number_of))
        for i in sorted(state.spus)
        if i not in known
    }


def _records(
    state: ClusterState, plan: Rebalance, names: Sequence[str], cause: str
) -> list[Record]:
    """The SPUs that come back into the ring first, then maps, ring events and chains."""
    moves_of: dict[int, list[Move]] = {}
    changes: Counter[int] = Counter()  # of counts, by SPU
    for each in plan.moves:
        move = Move(partition=each.partition, gone=each.gone, taken=each.taken)
        moves_of.setdefault(each.topic, []).append(move)
        changes.update({each.taken: 1})
        changes.subtract({each.gone: 1})
    after = ring_after(state, changes)
    records: list[Record] = list(after.described.values())
    weights: dict[SpuId, list[int]] = dict(state.core_weights)
    for index, matrix in plan.changed.items():
        replicas = ReplicaLists(matrix, ragged=bool((matrix < 0).any()))
        changed = revised(
            state,
            names[index],
            cause=cause,
            replicas=replicas,
            mode=Mode.REBALANCE,
            moves=moves_of.get(index, ()),
            ring=after.ring,
            chains=after.chains,
            weights=weights,
        )
        records.append(changed)
        if changed.cores is not None:
            held = held_by_cores(replicas.matrix, changed.cores.matrix)
            before = state.topics[names[index]].held_by_cores()
            weights.update(weights_after(weights, before, held))
    return [*records, *after.records(state, cause)]
