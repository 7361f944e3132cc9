"""`ClusterRebalance`: the plan of `rebalance` as records, with what follows for ring and chains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import inf

import numpy as np
from spu_assigner.core.base.errors import Code, Rejection
from spu_assigner.core.base.events import ClusterRebalance, Policy, SpuId
from spu_assigner.core.base.limits import BAND, BAND_PERCENT, RESOURCE_REPLICAS_MAX, RULED_LISTS_MAX
from spu_assigner.core.base.records import Mode, Move, Record, Status
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists
from spu_assigner.core.base.resources import BYTES, Need
from spu_assigner.core.constraints.moving import MovingRules
from spu_assigner.core.decision.answers import CLUSTER_TOPIC, counted, status
from spu_assigner.core.decision.checks import check_ranges
from spu_assigner.core.decision.ring_changes import revised
from spu_assigner.core.rebalance.planning import Rebalance, plan_rebalance
from spu_assigner.core.rebalance.repairing import Repairs, repair_lists
from spu_assigner.core.rebalance.resource_goal import ResourceGoal, TopicNeed
from spu_assigner.core.rebalance.ruled_lists import RuledTopics
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.leading import LeaderChoice
from spu_assigner.core.state.ledger import Loads


def rebalance(state: ClusterState, event: ClusterRebalance) -> list[Record]:
    """The maps that change, ring events, and one status with the number of moves.

    Its message also counts the topics that do not move: manual and pinned ones. Where topics say
    what they need of resources, it has the bytes and the largest dominant share.
    """
    check_ranges(event, "max_moves", "max_bytes", "band_percent", "band")
    fixed = {  # and why
        name: "pinned" if topic.pinned else "manual"
        for name, topic in state.topics.items()
        if topic.pinned or topic.policy is Policy.MANUAL
    }
    names = sorted(state.topics.keys() - fixed.keys())
    plan, repairs = _planned(state, event, names)
    message = _said_of(plan, repairs)
    if fixed:
        left = counted(len(fixed), f"{' or '.join(sorted({*fixed.values()}))} topic")
        message += f"; {left} left alone"
    cause, moves = event.event_id, len(plan.moves)
    answer = status(state, CLUSTER_TOPIC, Status.ASSIGNED, cause, message=message, moves=moves)
    moves_of: dict[str, list[Move]] = {}
    for each in plan.moves:
        move = Move(partition=each.partition, gone=each.gone, taken=each.taken)
        moves_of.setdefault(names[each.topic], []).append(move)
    lists = {
        names[at]: ReplicaLists(matrix, ragged=bool((matrix < 0).any()))
        for at, matrix in plan.changed.items()
    }
    return revised(state, cause, Mode.REBALANCE, lists, answer, moves=moves_of)


def _planned(
    state: ClusterState, event: ClusterRebalance, names: Sequence[str]
) -> tuple[Rebalance, Repairs]:
    """What is to change, the repairs included."""
    moving = MovingRules(state, names)
    spus = sorted(state.spus.items())
    ids = [int(i) for i, spu in spus if spu.online and (not spu.is_closed or i in moving.opened)]
    _check_size(state, names)
    open_ids, ledger = np.array(ids, dtype=np.int32), state.ledger
    loads = Loads(
        ids=open_ids,
        capacities=ledger.capacities(open_ids),
        replicas=ledger.counts(open_ids),
        leaders=ledger.leaders(open_ids),
    )
    matrices = [state.topics[name].replicas.matrix() for name in names]
    repairs = repair_lists(
        state,
        names,
        matrices,
        moving,
        loads,
        sizes=[_size(state.topics[name].need) for name in names],
        max_moves=event.max_moves,
        max_bytes=event.max_bytes,
    )
    held, led = [[count[i] for i in ids] for count in (repairs.changes[None], repairs.leads)]
    loads = replace(loads, replicas=loads.replicas + held, leaders=loads.leaders + led)
    numbers: dict[str, int] = {}  # of racks
    plan = plan_rebalance(
        [repairs.matrices.get(at, matrix) for at, matrix in enumerate(matrices)],
        loads,
        racks={int(i): numbers.setdefault(spu.rack or "", len(numbers)) for i, spu in spus},
        max_moves=event.max_moves - len(repairs.moves),
        band=BAND if event.band is None else event.band,
        goal=_goal(state, event, names, loads, repairs),
        ruled=_ruled(state, names, moving, loads),
    )
    return _with_repairs(plan, repairs, matrices), repairs


def _ruled(
    state: ClusterState, names: Sequence[str], moving: MovingRules, loads: Loads
) -> RuledTopics:
    """What binds the topics that may move, beside racks and capacities."""
    shared = LeaderChoice(state)
    constraints = [state.topics[name].constraints if state.barred else None for name in names]
    return RuledTopics(
        rules=[moving.of(name, loads.ids) for name in names],
        closed=np.isin(loads.ids, sorted(moving.opened)),
        choices=[
            LeaderChoice(state, each) if each is not None and each.tolerations else shared
            for each in constraints
        ],
    )


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
    moves, repairing = len(plan.moves), len(repairs.moves)
    said = f"{counted(moves, 'replica')}{size} {'moves' if moves == 1 else 'move'}"
    if repairing:
        said += f" ({repairing} to repair lists, {moves - repairing} to even out)"
    gets, its = ("gets", "its") if plan.reorders == 1 else ("get", "their")
    said += f", {counted(plan.reorders, 'list')} {gets} another leader from among {its} replicas"
    if repairs.left:
        lists = f"{counted(repairs.left, 'list')} {'is' if repairs.left == 1 else 'are'}"
        said += f"; {lists} left to be repaired, beyond the limits of the request"
    if plan.is_cut:
        said += "; the search ended at its limit: ask again, which may find more"
    if shares is not None:
        was, now, fair = map(_percent, shares)
        said += f"; the largest dominant share is {now}, was {was}, and {fair} is fair"
    return said


def _check_size(state: ClusterState, names: Sequence[str]) -> None:
    """The lists under rules, or replicas by their resources, must not be too many to weigh."""
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
            raise Rejection(
                Code.TOO_COMPLEX,
                f"topics {found.format(count)} one request may weigh {limit}: pin topics that are "
                "to stay (topic_adopted with pinned)",
            )


def _goal(
    state: ClusterState,
    event: ClusterRebalance,
    names: Sequence[str],
    loads: Loads,
    repairs: Repairs,
) -> ResourceGoal:
    """What to come to after the repairs."""
    needs = [topic.need for topic in state.topics.values() if topic.need is not None]
    resources = sorted({name for need in needs for name, _, _ in need.by_name()})
    capacities, used = [], []
    for spu_id, slots, count in zip(
        loads.ids.tolist(), loads.capacities.tolist(), loads.replicas.tolist(), strict=True
    ):
        has, uses = dict(state.spus[SpuId(spu_id)].resources), Counter(state.ledger.used(spu_id))
        uses.update({name: repairs.changes[name][spu_id] for name in resources})
        capacities.append([slots, *[has.get(name, 0) for name in resources]])
        used.append([count, *[uses[name] for name in resources]])
    return ResourceGoal(
        needs=[_topic_need(state.topics[name].need, resources) for name in names],
        capacities=np.array(capacities, dtype=object),
        used=np.array(used, dtype=object),
        band_percent=BAND_PERCENT if event.band_percent is None else event.band_percent,
        bytes_max=inf if event.max_bytes is None else event.max_bytes - repairs.size,
        decides=bool(needs),
    )


def _topic_need(need: Need | None, resources: Sequence[str]) -> TopicNeed:
    """Of a replica: a slot, and what the topic says."""
    amounts = {} if need is None else {name: pair for name, *pair in need.by_name()}
    of_each = [amounts.get(name, (0, 0)) for name in resources]
    return TopicNeed(
        follower=[1, *[follower for follower, _ in of_each]],
        leader=[1, *[leader for _, leader in of_each]],
        size=_size(need),
    )


def _size(need: Need | None) -> int:
    """The bytes of a replica; 0 where its topic does not say."""
    return 0 if need is None else dict(need.demand).get(BYTES, 0)


def _percent(share: Fraction) -> str:
    """Rounded to a tenth, by integers."""
    tenths = (share.numerator * 2_000 + share.denominator) // (share.denominator * 2)
    return f"{tenths // 10}.{tenths % 10} %"
