"""The rejection of a request: too few SPUs, too little room, rules that conflict, too much work."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.errors import Code, Rejection
from spu_assigner.core.base.events import SpuId, TopicCreate
from spu_assigner.core.base.resources import Need
from spu_assigner.core.constraints.kept_rules import barring_rules, leaving_spus
from spu_assigner.core.constraints.rule_table import HardRule, topic_rules
from spu_assigner.core.constraints.spu_labels import Flags
from spu_assigner.core.constraints.work import LOOKS_MAX
from spu_assigner.core.decision.answers import counted
from spu_assigner.core.placement.choose import binding_rules
from spu_assigner.core.placement.list_search import RuledRequest, conflict_of
from spu_assigner.core.placement.request import slack
from spu_assigner.core.policies.cursor import ShortRingError
from spu_assigner.core.state.cluster_state import ClusterState


def short_ring(state: ClusterState, event: TopicCreate, *, offline: int = 0) -> Rejection:
    """Of a ring that is too small; `offline`: SPUs outside it that could take replicas too."""
    found = state.ring.size
    need = event.replication_factor - found - (offline if found else 0)
    if event.replication_factor <= state.online_count:
        _, closed, full = map(len, state.ledger.outside_ring())
        and_closed = f", {closed} are cordoned or tainted" if closed else ""
        return Rejection(
            Code.INSUFFICIENT_CAPACITY,
            f"replication_factor {event.replication_factor} needs {need} more SPUs with a free "
            f"slot: {full} of {state.online_count} online SPUs are saturated{and_closed}; "
            f"add SPUs or capacity, {'uncordon SPUs, ' if closed else ''}or delete topics",
        )
    and_offline = f", and {offline} SPUs are offline and cannot lead" if offline else ""
    return Rejection(
        Code.INSUFFICIENT_SPUS,
        f"replication_factor {event.replication_factor} needs {need} more SPUs: "
        f"the ring has {found}{and_offline}; add SPUs or ask for fewer replicas",
    )


def too_complex(event: TopicCreate, given: int) -> Rejection:
    """Of a request that takes too much work; so many of its lists do not."""
    fewer = "ask for fewer partitions or replicas"
    if given:
        fewer = f"ask for at most {counted(given, 'partition')} at a time (create, then grow)"
    return Rejection(
        Code.TOO_COMPLEX,
        f"{counted(event.partitions, 'list')} of {counted(event.replication_factor, 'replica')} "
        f"under these rules take more work than one event may ({LOOKS_MAX:,} looks at SPUs); "
        f"{fewer}, or spread over fewer values, each level within the one before it",
    )


def incomplete_racks(state: ClusterState) -> Rejection:
    """Of a policy that places over racks, where some SPUs have none."""
    missing = min(spu_id for spu_id, spu in state.spus.items() if spu.online and spu.rack is None)
    return Rejection(
        Code.RACKS_INCOMPLETE,
        f"{state.racked_count} of {state.online_count} online SPUs have a rack, "
        f"SPU {missing} has none; label all or none, or set ignore_rack",
    )


def _named(rule: HardRule, online: Flags) -> str:
    if rule.barred is not None:
        return f"{rule.name} ({counted(int(rule.barred.sum()), 'SPU')} may not lead)"
    if rule.level is not None:
        values = len(rule.mins) or len(rule.level.cells)
        return f"{rule.name} ({counted(values, 'value')})"
    return f"{rule.name} (excludes {counted(int((rule.excluded & online).sum()), 'SPU')})"


def unsatisfied(state: ClusterState, event: TopicCreate, constraints: Constraints) -> Rejection:
    """Of lists that the rules of a topic do not permit, or for which there is no room."""
    rules = topic_rules(state, event.topic, constraints, ignore_rack=event.ignore_rack)
    labels = rules.table.labels
    need, replicas = Need.of(event.demand, event.leader_demand), event.replication_factor
    online = np.flatnonzero(labels.open).tolist()
    each = rooms_of(state, [labels.id_list[place] for place in online], need, as_empty=True)
    rooms = {place: room for place, room in zip(online, each, strict=True) if room > 0}
    request = RuledRequest(rules, rooms, event.partitions, replicas)
    fits = request.fits(rules.hard)
    if fits is None:
        return too_complex(event, 0)
    lists, spus = counted(event.partitions, "list"), f"{counted(len(rooms), 'SPU')} online"
    if fits or request.fits(()) is False:
        allowed = labels.ids[rules.allowed].tolist()
        why = _lacks(state, allowed, need, is_closed_out=False)
        return Rejection(
            Code.INSUFFICIENT_SPUS if len(rooms) < replicas else Code.INSUFFICIENT_CAPACITY,
            f"of {spus} the rules allow {len(allowed)}{why}: too little room for {lists} of "
            f"{replicas}; add SPUs or capacity, delete topics, or ask for less",
        )
    names = " and ".join(_named(rule, labels.open) for rule in conflict_of(request))
    return Rejection(
        Code.UNSATISFIABLE,
        f"{lists} of {counted(replicas, 'replica')} cannot hold {names}, with {spus}; "
        "relax one of these, or add SPUs that hold them",
    )


def short_of_room(
    state: ClusterState, event: TopicCreate, spu_ids: Sequence[int], need: Need | None
) -> Rejection:
    """Of a ring on which not so many lists fit; `spu_ids` are its members, ascending."""
    rooms = rooms_of(state, spu_ids, need)
    replicas = event.replication_factor
    lists = bisect_left(
        range(event.partitions), True, key=lambda lists: slack(rooms, lists + 1, replicas) < 0
    )
    found = sum(room > lists for room in rooms)
    why = _lacks(state, spu_ids, need)
    return ShortRingError(partition=lists, needed=replicas, found=found, why=why)


def short_of_repairs(
    state: ClusterState, name: str, open_rows: Sequence[Sequence[int]]
) -> Rejection:
    """Of lists that stay open; counted for the first of them."""
    code, lacks = _no_other(state, name, open_rows[0])
    online = [spu_id for spu_id, spu in state.spus.items() if spu.online]
    if not any(spu_id not in row for row in open_rows for spu_id in online):
        code = Code.INSUFFICIENT_SPUS
    are = "list is" if len(open_rows) == 1 else "lists are"
    return Rejection(
        code,
        f"{len(open_rows)} {are} short, or on SPUs to be left: no other SPU can take the replicas"
        f"{lacks}; tried again when the ring grows or room is freed",
    )


def short_of_factor(
    state: ClusterState, name: str, partition: int, row: Sequence[int], factor: int
) -> Rejection:
    """Of a list for which no SPU is left that it could be lengthened by."""
    _, lacks = _no_other(state, name, row)
    others = sum(spu.online and spu_id not in row for spu_id, spu in state.spus.items())
    is_short = others < factor - len(row)
    return Rejection(
        Code.INSUFFICIENT_SPUS if is_short else Code.INSUFFICIENT_CAPACITY,
        f"partition {partition} has {len(row)} of {factor} replicas, and no other SPU can take one"
        f"{lacks}; add SPUs or capacity, uncordon SPUs, or ask for fewer replicas",
    )


def _no_other(state: ClusterState, name: str, row: Sequence[int]) -> tuple[Code, str]:
    """Why no other SPU can take a replica of a list: rules, slots, or a resource."""
    topic, constraints = state.topics[name], binding_rules(state, name)
    if constraints is None:
        spus = sorted(state.spus.items())
        others = [spu_id for spu_id, spu in spus if spu.online and spu_id not in row]
        return Code.INSUFFICIENT_CAPACITY, _lacks(state, others, topic.need)
    leaving = leaving_spus(state, topic)
    staying = [spu_id for spu_id in row if spu_id not in leaving]
    wanted = max(topic.replication_factor, len(row))
    barring, left = barring_rules(state, name, constraints, staying, wanted)
    left = [spu_id for spu_id in left if spu_id not in row]
    code = Code.INSUFFICIENT_CAPACITY if left else Code.UNSATISFIABLE
    return code, _lacks(state, left, topic.need, barring, is_closed_out=False)


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


def _lacks(
    state: ClusterState,
    spu_ids: Sequence[int],
    need: Need | None,
    rules: Sequence[str] = (),
    *,
    is_closed_out: bool = True,
) -> str:
    """What SPUs, ascending, lack for a replica, after the `rules` that bar others; "": nothing."""
    found = [*rules, *lacking(state, spu_ids, need, is_closed_out=is_closed_out)]
    return f" ({', '.join(found)})" if found else ""


def lacking(
    state: ClusterState, spu_ids: Sequence[int], need: Need | None, *, is_closed_out: bool = True
) -> list[str]:
    """What SPUs, ascending, lack for a replica: each in words."""
    spus = [state.spus[SpuId(spu_id)] for spu_id in spu_ids]
    left = [spu for spu in spus if not (is_closed_out and spu.is_closed)]
    found = [f"{len(spus) - len(left)} cordoned or tainted"] if len(left) < len(spus) else []
    free = [spu for spu in left if state.ledger.count(spu.spu_id) < spu.capacity]
    found += [f"{len(left) - len(free)} without a free slot"] if len(free) < len(left) else []
    for name, follower, leader in () if need is None else need.by_name():
        rest = [
            dict(spu.resources).get(name, 0) - state.ledger.used(spu.spu_id).get(name, 0)
            for spu in free
        ]
        amount, use = follower, ""
        if not any(each < follower for each in rest):
            amount, use = leader, ", for a leader"
        if count := sum(each < amount for each in rest):
            have = "has" if count == 1 else "have"
            found.append(f"{count} {have} less than {amount} of {name} free{use}")
    return found
