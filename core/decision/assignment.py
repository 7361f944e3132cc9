"""What is given to a request, what any of it must hold, and the refusal where SPUs are too few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core.balanced.by_need import ResourceLoads
from spu_assigner.core.base.chains import Chain, Order
from spu_assigner.core.base.constraints import NO_CONSTRAINTS, Constraints, constraints_fault
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, SpuId, TopicCreate
from spu_assigner.core.base.limits import (
    AMOUNT_MAX,
    KAFKA_OWN,
    MAP_SIZE_MAX,
    PLACING_LOOKS_MAX,
    RESOURCES_MAX,
)
from spu_assigner.core.base.records import Reason
from spu_assigner.core.base.replica_lists import IdMatrix, ReplicaLists, tally
from spu_assigner.core.base.resources import Need, amounts_fault
from spu_assigner.core.base.structs import FrozenStruct
from spu_assigner.core.constraints.conflict import (
    HardRule,
    RuledRequest,
    conflict_of,
    hard_rules,
)
from spu_assigner.core.constraints.placing import Placing, SpuRoom
from spu_assigner.core.constraints.rule_table import RuleTable, bits, bound_table
from spu_assigner.core.constraints.work import LOOKS_MAX, TooMuchWorkError, Work
from spu_assigner.core.decision.answers import Refusal, refuse_name
from spu_assigner.core.policies.planner import ShortRingError, TooManyLooksError
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.loads import Loads
from spu_assigner.core.state.ring import Ring

ID_SIZE_MAX: Final = 5  # bytes of an id on the wire
_VARINT_STEPS: Final = np.array([64, 8_192, 2**20, 2**27])  # from here on an id takes a byte more


@dataclass(frozen=True, slots=True)
class ResourceLoad:
    """One resource over all SPUs, by ascending id."""

    name: str
    capacities: Sequence[int]
    used: list[int]  # what is given is added
    follower: int  # what one needs of it
    leader: int

    @property
    def most(self) -> int:
        """What a replica of either kind needs at most."""
        return max(self.follower, self.leader)


class Assignment(FrozenStruct, frozen=True, kw_only=True):
    """Where a topic goes."""

    policy: Policy
    replicas: ReplicaLists
    cores: ReplicaLists | None = None
    order: Order | None = None  # whose chain index the record shows
    chain: Chain | None = None  # of that order after the request; None: it stays
    departed: tuple[tuple[int, ...], ...] = ()  # SPUs that it saturates, in groups that leave
    reason: Reason


def refuse_size(
    replicas: ReplicaLists, cores: ReplicaLists | None, wanted_lengths: bytes | None = None
) -> Refusal | None:
    """Why a map cannot be sent: it is too large for a message."""
    size = len(wanted_lengths or b"")
    for lists in (replicas, cores):
        if lists is not None:
            partitions, width = lists.matrix.shape
            bound = partitions * (2 + width * ID_SIZE_MAX) + 8
            size += bound if bound <= MAP_SIZE_MAX else _wire_size(lists.matrix)
    if size <= MAP_SIZE_MAX:
        return None
    hint = "ask for fewer partitions or replicas"
    return Refusal(
        Code.MAP_TOO_LARGE, f"the map takes {size} bytes, the limit is {MAP_SIZE_MAX}; {hint}"
    )


def departed_one_by_one(matrix: IdMatrix, full: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Groups of SPUs that a map fills with the same partition, in the map's order."""
    if not full:
        return ()
    last_row = {spu_id: int(np.flatnonzero((matrix == spu_id).any(axis=1))[-1]) for spu_id in full}
    rows = sorted(set(last_row.values()))
    return tuple(tuple(spu_id for spu_id in full if last_row[spu_id] == row) for row in rows)


def short_on_the_way(short: ShortRingError) -> Refusal:
    """Of a ring that became too small within the request."""
    need = short.needed - short.found
    return Refusal(
        Code.INSUFFICIENT_CAPACITY,
        f"partition {short.partition} found {short.found} SPUs with a free slot "
        f"for {short.needed} replicas, {need} more needed; "
        "add SPUs or capacity, delete topics, or ask for less",
    )


def too_many_looks(error: TooManyLooksError) -> Refusal:
    """Of a request that takes more looks at SPUs than one may."""
    return Refusal(
        Code.TOO_COMPLEX,
        f"one request may take {PLACING_LOOKS_MAX} looks at SPUs, which place {error.done} of "
        f"{error.partitions} partitions by this policy; ask for {max(error.done, 1)}, and let the "
        "topic grow after that, or choose another policy",
    )


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


def chain_after(
    ring: Ring, order: Order, index: int, matrix: IdMatrix, departed: tuple[tuple[int, ...], ...]
) -> Chain:
    """The chain after a request: one further for each partition, re-based where the ring lost
    members on the way."""
    done = 0
    for gone in departed:
        last = int(np.flatnonzero((matrix == gone[0]).any(axis=1))[-1]) + 1
        chain = ring.chain_at(order, index + last - done)
        chain = ring.chain_without(order, chain, gone)
        ring, done = ring.without(gone), last
        if ring.size == 0:
            return chain
        index = ring.index(order, chain)
    return ring.chain_at(order, index + len(matrix) - done)


def _wire_size(matrix: IdMatrix) -> int:
    """Bytes of a map on the wire: ids and lengths are in variable-length form; each list and the
    whole end with a byte."""
    partitions, replicas = matrix.shape
    larger = sum(int(np.count_nonzero(matrix >= step)) for step in _VARINT_STEPS)
    return int(partitions * (2 + replicas) + 8 + larger)


def refuse_need(
    state: ClusterState, demand: Mapping[str, int] | None, leader_demand: Mapping[str, int] | None
) -> Refusal | None:
    """Why no topic of the cluster can need this; None: it can."""
    if not leader_demand and _is_plain(demand or {}, state.ring.resource_names()):
        return None
    for field, given in (("demand", demand), ("leader_demand", leader_demand)):
        fault = amounts_fault(field, given)
        if fault is not None:
            return Refusal(Code.INVALID_DEMAND, fault)
    need = Need.of(demand, leader_demand)
    if need is None:
        return None
    names = [name for name, follower, leader in need.by_name() if follower or leader]
    if state.ring.resource_names().issuperset(names):
        return None
    known = {name for spu in state.spus.values() for name, _ in spu.resources}
    for name in names:
        if name not in known:
            field = "demand" if name in (demand or {}) else "leader_demand"
            has = (
                f"they have {', '.join(sorted(known))}: name one of these"
                if known
                else "none has any: leave it out"
            )
            return Refusal(
                Code.UNKNOWN_RESOURCE,
                f"{field} names {name!r}, which no SPU of cluster {state.cluster_id!r} has; "
                f"{has}, or send the joins of its SPUs again with this one",
            )
    return None


def _is_plain(demand: Mapping[str, int], known: frozenset[str]) -> bool:
    """Whether these are amounts of resources that SPUs of the ring have, as nearly always."""
    for name, amount in demand.items():
        if name not in known or not 0 <= amount <= AMOUNT_MAX:
            return False
    return len(demand) <= RESOURCES_MAX


def refuse_constraints(
    state: ClusterState, topic: str, policy: Policy, constraints: Constraints
) -> Refusal | None:
    """Why no topic of this name and policy can have these constraints; None: it can."""
    fault = constraints_fault(constraints, topic=topic)
    if fault is not None:
        return Refusal(Code.INVALID_CONSTRAINTS, fault)
    if policy is not Policy.BALANCED:
        return Refusal(
            Code.INVALID_CONSTRAINTS,
            f"constraints with policy {policy.value!r}; they are for 'balanced' only, leave them "
            "out, or name that",
        )
    for field in ("apart_from", "together_with"):
        for other in getattr(constraints, field):
            if other not in state.topics:
                return Refusal(
                    Code.INVALID_CONSTRAINTS,
                    f"constraints.{field} names {other!r}, which is no topic of cluster "
                    f"{state.cluster_id!r}; create it first, or leave it out",
                )
    return None


def by_constraints(
    state: ClusterState,
    event: TopicCreate,
    constraints: Constraints,
    retry: Work | None = None,
) -> IdMatrix | Refusal:
    """The lists of a request under the rules that bind it, or why they cannot be given.

    `retry`: counts the work of one that is tried again, which is not told which rules conflict.
    """
    table, of_topics = bound_table(state, constraints, ignore_rack=event.ignore_rack)
    mask = table.allowed(of_topics)
    need = Need.of(event.demand, event.leader_demand)
    placing = Placing(state, table, mask, need, event.replication_factor, retry or Work())
    try:
        rows = placing.rows(event.partitions)
    except TooMuchWorkError as error:
        return _too_complex(event, error.given)
    if rows is not None:
        ids: IdMatrix = table.id_array[np.array(rows)]
        return ids
    if retry is not None:
        return Refusal(Code.INSUFFICIENT_CAPACITY, "there is still no room")
    rooms = SpuRoom(state, table, table.open, need, as_empty=True).rooms()
    request = RuledRequest(table, rooms, event.partitions, event.replication_factor)
    rules = hard_rules(table, of_topics)
    fits = request.fits(rules)
    if fits is None:
        return _too_complex(event, 0)
    if fits or request.fits(()) is False:
        return _short_under_rules(state, event, table, mask, online=len(rooms))
    names = " and ".join(_named(rule, table) for rule in conflict_of(request, rules))
    return Refusal(
        Code.UNSATISFIABLE,
        f"{_counted(event.partitions, 'list')} of {_counted(event.replication_factor, 'replica')} "
        f"cannot hold {names}, with {_counted(len(rooms), 'SPU')} online; "
        "relax one of these, or add SPUs that hold them",
    )


def _too_complex(event: TopicCreate, given: int) -> Refusal:
    """Of a request that takes too much work; so many of its lists do not."""
    fewer = "ask for fewer partitions or replicas"
    if given:
        fewer = f"ask for at most {_counted(given, 'partition')} at a time (create, then grow)"
    return Refusal(
        Code.TOO_COMPLEX,
        f"{_counted(event.partitions, 'list')} of {_counted(event.replication_factor, 'replica')} "
        f"under these rules take more work than one event may ({LOOKS_MAX:,} looks at SPUs); "
        f"{fewer}, or spread over fewer values, each level within the one before it",
    )


def _named(rule: HardRule, table: RuleTable) -> str:
    if rule.barred:
        return f"{rule.name} ({_counted(rule.barred.bit_count(), 'SPU')} may not lead)"
    if rule.level is not None:
        values = sum(map(bool, rule.level.mins)) or rule.level.size
        return f"{rule.name} ({_counted(values, 'value')})"
    return f"{rule.name} (excludes {_counted((rule.excluded & table.open).bit_count(), 'SPU')})"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _short_under_rules(
    state: ClusterState, event: TopicCreate, table: RuleTable, mask: int, *, online: int
) -> Refusal:
    """Of SPUs that the rules allow, too few of which have room; `online`: with or without room."""
    code = Code.INSUFFICIENT_CAPACITY
    if online < event.replication_factor:
        code = Code.INSUFFICIENT_SPUS
    need = Need.of(event.demand, event.leader_demand)
    able = len(SpuRoom(state, table, mask, need).rooms())
    allowed = [table.ids[place] for place in bits(mask)]
    return Refusal(
        code,
        f"of {_counted(online, 'SPU')} online the rules allow {len(allowed)}, of which {able} have "
        f"room for a replica{what_lacks(state, allowed, need)}: too little for "
        f"{_counted(event.partitions, 'list')} of {event.replication_factor}; "
        "add SPUs or capacity, delete topics, or ask for less",
    )


def what_lacks(state: ClusterState, spu_ids: Sequence[int], need: Need | None) -> str:
    """Of which resources how many of these SPUs have too little left, in brackets; "" if of none.

    `spu_ids` are ascending.
    """
    if need is None or not spu_ids:
        return ""
    ids = np.array(spu_ids, dtype=np.int32)
    short = _short_of(resource_loads(state, Ring(ids, state.spus), state.loads(ids), need))
    return short and f" ({short})"


def ring_resources(state: ClusterState, ring: Ring, need: Need) -> list[ResourceLoad]:
    """Every resource of the ring with what is used of it, and what the need takes."""
    use = state.resource_use
    used = [use.of(spu_id) for spu_id in ring.ids.tolist()]
    amounts = {name: (follower, leader) for name, follower, leader in need.by_name()}
    return [
        ResourceLoad(
            name, capacities, [each.get(name, 0) for each in used], *amounts.get(name, (0, 0))
        )
        for name, capacities in ring.resources(amounts)
    ]


def resource_loads(state: ClusterState, ring: Ring, loads: Loads, need: Need) -> ResourceLoads:
    """The same as arrays, with the replica slots."""
    amounts = {name: each for name, *each in need.by_name() if any(each)}
    names, capacities = ring.resource_table(amounts)
    used = np.empty_like(capacities)
    used[0] = loads.replicas
    used[1:] = state.resource_use.of_each(ring.ids, names)
    each = [amounts.get(name, [0, 0]) for name in names]
    return ResourceLoads(
        names=names,
        capacities=capacities,
        used=used,
        follower=np.array([1.0, *(follower for follower, _ in each)]),
        leader=np.array([1.0, *(leader for _, leader in each)]),
    )


def refuse_room(state: ClusterState, lists: ReplicaLists, need: Need) -> Refusal | None:
    """Why new lists may not be given: an SPU would get more than it has."""
    by_name = need.by_name()
    spu_ids, counts = tally(lists.flat())
    of_leaders = dict(zip(*tally(lists.matrix[:, 0]), strict=True))
    used = state.resource_use.of_each(np.array(spu_ids), tuple(name for name, *_ in by_name))
    for spu_id, count, of_spu in zip(spu_ids, counts, used.T.tolist(), strict=True):
        has, led = dict(state.spus[SpuId(spu_id)].resources), of_leaders.get(spu_id, 0)
        for (name, follower, leader), so_far in zip(by_name, of_spu, strict=True):
            amount = (count - led) * follower + led * leader
            free = max(has.get(name, 0) - int(so_far), 0)
            if amount > free:
                return Refusal(
                    Code.INSUFFICIENT_CAPACITY,
                    f"SPU {spu_id} has {free} of {name} free, and the lists take {amount} there; "
                    "add capacity, place with 'balanced', or ask for less",
                )
    return None


def with_room(
    state: ClusterState, event: TopicCreate, assignment: Assignment | Refusal
) -> Assignment | Refusal:
    """The assignment of a request, unless an SPU would get more of a resource than it has."""
    need = Need.of(event.demand, event.leader_demand)
    if need is None or isinstance(assignment, Refusal):
        return assignment
    return refuse_room(state, assignment.replicas, need) or assignment


def lacking(resources: ResourceLoads, *, ring_size: int, partition: int, replicas: int) -> Refusal:
    """Why there are too few SPUs for a partition: of which resource they have too little left."""
    why = _short_of(resources) or "too few have a free slot"
    return Refusal(
        Code.INSUFFICIENT_CAPACITY,
        f"partition {partition} found too few SPUs for {_counted(replicas, 'replica')}: of "
        f"{_counted(ring_size, 'SPU')} in the ring {why}; add SPUs or capacity, delete topics, or "
        "ask for less",
    )


def _short_of(resources: ResourceLoads) -> str:
    """Of which resources how many SPUs have too little left, for a follower or for a leader."""
    free = resources.capacities - resources.used
    found = []
    for name, left, follower, leader in zip(
        resources.names, free[1:], resources.follower[1:], resources.leader[1:], strict=True
    ):
        amount, whom = follower, ""
        if not np.any(left < follower):
            amount, whom = leader, ", for a leader"
        if count := np.count_nonzero(left < amount):
            have = "has" if count == 1 else "have"
            found.append(f"{count} {have} less than {amount:.0f} of {name} free{whom}")
    return ", ".join(found)


def refuse_described(state: ClusterState, event: TopicCreate, policy: Policy) -> Refusal | None:
    """Why no topic can have what a create says of resources and constraints; None: one can."""
    if event.demand is not None or event.leader_demand is not None:
        refusal = refuse_need(state, event.demand, event.leader_demand)
        if refusal is not None:
            return refusal
    if event.constraints is not None and event.constraints != NO_CONSTRAINTS:
        return refuse_constraints(state, event.topic, policy, event.constraints)
    return None


def refuse_taken(state: ClusterState, topic: str, reserved_names: frozenset[str]) -> Refusal | None:
    """Why no topic can be created under a name that is reserved, exists or waits, or collides."""
    if topic in reserved_names or topic.startswith(KAFKA_OWN):
        return refuse_name(topic, reserved_names)
    if topic not in state.topics and topic not in state.waiting:
        return Refusal(
            Code.TOPIC_COLLIDES,
            f"topic {topic!r} and {state.names.colliding(topic)!r} of cluster {state.cluster_id!r} "
            "differ in dots and underscores alone, so Kafka refuses one of them; choose another "
            "name",
        )
    found = "exists" if topic in state.topics else "waits"
    already = "" if topic in state.topics else " already"
    return Refusal(
        Code.TOPIC_EXISTS,
        f"topic {topic!r} {found} in cluster {state.cluster_id!r}{already}; "
        "delete it first, or choose another name",
    )
