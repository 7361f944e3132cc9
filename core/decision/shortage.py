"""Why a request cannot be had: too few SPUs, too little room, or rules that conflict."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import SpuId, TopicCreate
from spu_assigner.core.base.resources import Need
from spu_assigner.core.constraints.rule_table import BoundRules, HardRule, topic_rules
from spu_assigner.core.constraints.spu_labels import bits
from spu_assigner.core.constraints.work import LOOKS_MAX
from spu_assigner.core.decision.answers import Refusal
from spu_assigner.core.placement.conflict import RuledRequest, conflict_of
from spu_assigner.core.placement.request import slack
from spu_assigner.core.policies.planner import ShortRingError
from spu_assigner.core.state.cluster_state import ClusterState


def shortage(state: ClusterState, event: TopicCreate, found: int, *, offline: int = 0) -> Refusal:
    """Of a ring that is too small; `offline`: SPUs outside it that could take replicas too."""
    need = event.replication_factor - found - (offline if found else 0)
    closed = state.closed_count
    if event.replication_factor <= state.online_count:
        full = state.saturated_count
        and_closed = f", {closed} are cordoned or tainted" if closed else ""
        return Refusal(
            Code.INSUFFICIENT_CAPACITY,
            f"replication_factor {event.replication_factor} needs {need} more SPUs with a free "
            f"slot: {full} of {state.online_count} online SPUs are saturated{and_closed}; "
            f"add SPUs or capacity, {'uncordon SPUs, ' if closed else ''}or delete topics",
        )
    and_offline = f", and {offline} SPUs are offline and cannot lead" if offline else ""
    return Refusal(
        Code.INSUFFICIENT_SPUS,
        f"replication_factor {event.replication_factor} needs {need} more SPUs: "
        f"the ring has {found}{and_offline}; add SPUs or ask for fewer replicas",
    )


def short_on_the_way(short: ShortRingError) -> Refusal:
    """Of a ring that became too small within the request."""
    need = short.needed - short.found
    return Refusal(
        Code.INSUFFICIENT_CAPACITY,
        f"partition {short.partition} found {short.found} SPUs with a free slot "
        f"for {short.needed} replicas, {need} more needed; "
        "add SPUs or capacity, delete topics, or ask for less",
    )


def too_complex(event: TopicCreate, given: int) -> Refusal:
    """Of a request that takes too much work; so many of its lists do not."""
    fewer = "ask for fewer partitions or replicas"
    if given:
        fewer = f"ask for at most {counted(given, 'partition')} at a time (create, then grow)"
    return Refusal(
        Code.TOO_COMPLEX,
        f"{counted(event.partitions, 'list')} of {counted(event.replication_factor, 'replica')} "
        f"under these rules take more work than one event may ({LOOKS_MAX:,} looks at SPUs); "
        f"{fewer}, or spread over fewer values, each level within the one before it",
    )


def _named(rule: HardRule, online: int) -> str:
    if rule.barred:
        return f"{rule.name} ({counted(rule.barred.bit_count(), 'SPU')} may not lead)"
    if rule.level is not None:
        values = len(rule.mins) or len(rule.level.cells)
        return f"{rule.name} ({counted(values, 'value')})"
    return f"{rule.name} (excludes {counted((rule.excluded & online).bit_count(), 'SPU')})"


def _short_under_rules(
    state: ClusterState, event: TopicCreate, rules: BoundRules, *, online: int
) -> Refusal:
    """Of SPUs that the rules allow, too few of which have room; `online`: with or without room."""
    code = Code.INSUFFICIENT_CAPACITY
    if online < event.replication_factor:
        code = Code.INSUFFICIENT_SPUS
    need = Need.of(event.demand, event.leader_demand)
    allowed = [rules.table.labels.id_list[place] for place in bits(rules.allowed)]
    able = sum(room > 0 for room in rooms_of(state, allowed, need))
    return Refusal(
        code,
        f"of {counted(online, 'SPU')} online the rules allow {len(allowed)}, of which {able} have "
        f"room for a replica{what_lacks(state, allowed, need)}: too little for "
        f"{counted(event.partitions, 'list')} of {event.replication_factor}; "
        "add SPUs or capacity, delete topics, or ask for less",
    )


def unsatisfied(state: ClusterState, event: TopicCreate, constraints: Constraints) -> Refusal:
    """Of lists that the rules of a topic do not permit, or for which there is no room."""
    rules = topic_rules(state, event.topic, constraints, ignore_rack=event.ignore_rack)
    labels, need = rules.table.labels, Need.of(event.demand, event.leader_demand)
    online = list(bits(labels.open))
    each = rooms_of(state, [labels.id_list[place] for place in online], need, as_empty=True)
    rooms = {place: room for place, room in zip(online, each, strict=True) if room > 0}
    request = RuledRequest(rules, rooms, event.partitions, event.replication_factor)
    fits = request.fits(rules.hard)
    if fits is None:
        return too_complex(event, 0)
    if fits or request.fits(()) is False:
        return _short_under_rules(state, event, rules, online=len(rooms))
    names = " and ".join(_named(rule, labels.open) for rule in conflict_of(request))
    return Refusal(
        Code.UNSATISFIABLE,
        f"{counted(event.partitions, 'list')} of {counted(event.replication_factor, 'replica')} "
        f"cannot hold {names}, with {counted(len(rooms), 'SPU')} online; "
        "relax one of these, or add SPUs that hold them",
    )


def short_of_room(
    state: ClusterState, event: TopicCreate, spu_ids: Sequence[int], need: Need | None
) -> Refusal:
    """Of a ring on which not so many lists fit; `spu_ids` are its members, ascending."""
    rooms = rooms_of(state, spu_ids, need)
    replicas = event.replication_factor
    lists = bisect_left(
        range(event.partitions), True, key=lambda lists: slack(rooms, lists + 1, replicas) < 0
    )
    found = sum(room > lists for room in rooms)
    if need is None:
        return short_on_the_way(ShortRingError(partition=lists, needed=replicas, found=found))
    why = what_lacks(state, spu_ids, need).strip(" ()")
    why = why or f"{found} have room for {counted(lists + 1, 'replica')}"
    return Refusal(
        Code.INSUFFICIENT_CAPACITY,
        f"partition {lists} found too few SPUs for {counted(replicas, 'replica')}: of "
        f"{counted(len(spu_ids), 'SPU')} in the ring {why}; add SPUs or capacity, delete topics, "
        "or ask for less",
    )


def rooms_of(
    state: ClusterState, spu_ids: Sequence[int], need: Need | None, *, as_empty: bool = False
) -> list[int]:
    """How many followers each SPU has room for; `as_empty`: if it held nothing."""
    amounts = () if need is None else [each for each in need.by_name() if each[1]]
    counts = state.ledger.counts(np.array(spu_ids, dtype=np.int32)).tolist() if spu_ids else []
    found = []
    for spu_id, count in zip(spu_ids, counts, strict=True):
        spu = state.spus[SpuId(spu_id)]
        room = spu.capacity - (0 if as_empty else count)
        if amounts:
            has, used = dict(spu.resources), {} if as_empty else state.ledger.used(spu_id)
            for name, follower, _ in amounts:
                room = min(room, (has.get(name, 0) - used.get(name, 0)) // follower)
        found.append(max(room, 0))
    return found


def what_lacks(state: ClusterState, spu_ids: Sequence[int], need: Need | None) -> str:
    """Of which resources how many of these SPUs have too little left, in brackets; "" if of none.

    `spu_ids` are ascending.
    """
    if need is None or not spu_ids:
        return ""
    found = []
    for name, follower, leader in need.by_name():
        left = [
            dict(state.spus[SpuId(spu_id)].resources).get(name, 0)
            - state.ledger.used(spu_id).get(name, 0)
            for spu_id in spu_ids
        ]
        amount, whom = follower, ""
        if not any(each < follower for each in left):
            amount, whom = leader, ", for a leader"
        if count := sum(each < amount for each in left):
            have = "has" if count == 1 else "have"
            found.append(f"{count} {have} less than {amount} of {name} free{whom}")
    return f" ({', '.join(found)})" if found else ""


def counted(count: int, what: str) -> str:
    """A number of things."""
    return f"{count} {what}{'' if count == 1 else 's'}"
