"""What must hold after each event of a cluster's life, checked against the records alone.

The shadow keeps the maps that were given and counts for itself. It knows no placement rule: it
looks at what every placement must respect.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
from spu_assigner.core.base.constraints import Constraints, TaintEffect
from spu_assigner.core.base.events import (
    ClusterRebalance,
    Event,
    LeaveMode,
    Policy,
    SpuId,
    SpuLeft,
    TopicAdopted,
    TopicDemand,
    TopicGrow,
    TopicReplication,
)
from spu_assigner.core.base.limits import PRODUCT_NAMES
from spu_assigner.core.base.records import (
    ClusterGone,
    EventSeen,
    Mode,
    Record,
    ReplicaMap,
    RingChange,
    RingEvent,
    Status,
    TopicStatus,
    Wait,
)
from spu_assigner.core.base.resources import Need
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.memory import event_hash
from support.model.constrained_oracle import broken_levels, effects_on, permits, worsened

Lists = list[list[int]]


class ViolationError(Exception):
    """Something that must hold does not."""


class Shadow:
    def __init__(self) -> None:
        self.maps: dict[str, ReplicaMap] = {}
        self.lists: dict[str, Lists] = {}
        self.counts: Counter[int] = Counter()
        self.used: Counter[tuple[int, str]] = Counter()  # of resources, by SPU and name
        self.full: set[tuple[int, str]] = set()  # of resources, as ring events say
        self.racks: dict[int, str | None] = {}
        self.leaving: frozenset[int] = frozenset()
        self.offline: frozenset[int] = frozenset()
        self.demoted: frozenset[int] = frozenset()
        self.last: frozenset[int] = frozenset()  # demoted with this event
        self.barred: frozenset[int] = frozenset()  # tainted likewise, perhaps tolerated
        self.evicting: frozenset[int] = frozenset()
        self.event_ids: set[str] = set()
        self.given: set[str] = set()  # topics whose leaders came with their lists

    def follow(
        self, state: ClusterState, event: Event, records: tuple[Record, ...], *, is_known: bool
    ) -> None:
        """Take over the records of one event, and check them and the state after it."""
        self.event_ids.add(event.event_id)
        if is_known:
            _hold(records == (), "an event that is remembered gives no records")
            return
        before, lists = self.counts.copy(), dict(self.lists)
        self.evicting = frozenset(map(int, state.evicting))
        self.last = frozenset(int(i) for i, spu in state.spus.items() if spu.demoted)
        self.barred = frozenset(map(int, state.demoted)) - self.last
        for record in records:
            if isinstance(record, ReplicaMap):
                old = self.lists.get(record.topic, [])
                self._take(record, event)
                check_rules(state, record, old)
        if isinstance(event, ClusterRebalance) and state.constrained:
            for fault in worsened(state, self.maps, lists, self.lists):
                raise ViolationError(fault)
        if records:
            self._check_answers(state, event, records)
        self._check_state(state, before, is_fact=isinstance(event, TopicAdopted))
        self._check_resources(state, is_fact=isinstance(event, TopicAdopted | TopicDemand))
        self._check_full(state, records)

    def _take(self, record: ReplicaMap, event: Event) -> None:
        name = record.topic
        known = self.maps.get(name)
        revision = 1 if known is None else known.revision + 1
        _hold(record.revision == revision, f"revision of {name} is {record.revision}: {revision}")
        _hold(record.cause in self.event_ids, f"{record.cause} caused a map and never came")
        is_reserved = name.startswith("__") or name in PRODUCT_NAMES
        _hold(not is_reserved, f"{name} is a reserved name, and has a map")
        old = self.lists.pop(name, [])
        for ids in old:
            self.counts.subtract(ids)
        if record.reason is not None and record.reason.mode in (Mode.LISTS, Mode.ADOPTED):
            self.given.add(name)
        elif record.replicas is None or known is None:
            self.given.discard(name)
        if record.replicas is None:
            _hold(known is not None, f"tombstone for {name}, which is not there")
            del self.maps[name]
            return
        new = record.replicas.tolist()
        for ids in new:
            if len(set(ids)) < len(ids) or not 0 < len(ids) <= record.replication_factor:
                raise ViolationError(f"{name} has {ids}: one SPU twice, or a wrong length")
            self.counts.update(ids)
        wanted = wanted_lengths(record)
        if any(len(ids) > most for ids, most in zip(new, wanted, strict=True)):
            raise ViolationError(f"{name} has {new}, lists longer than {wanted}")
        if record.cores is not None:
            shapes = [len(row) for row in record.cores.tolist()], [len(row) for row in new]
            _hold(shapes[0] == shapes[1], f"{name}: cores are not parallel to replicas")
        self.maps[name], self.lists[name] = record, new
        if known is not None:
            self._check_movement(record, event, old, new)

    def _check_movement(self, record: ReplicaMap, event: Event, old: Lists, new: Lists) -> None:
        """A living topic changes only where it must."""
        name = record.topic
        mode = None if record.reason is None else record.reason.mode
        if mode is Mode.ADOPTED and isinstance(event, TopicAdopted):
            _hold(new == [list(ids) for ids in event.replicas], f"{name} is {new} by adoption")
            return
        if mode is Mode.REPLICATION and isinstance(event, TopicReplication):
            self._check_replication(name, old, new, event.replication_factor)
            self._check_order(name, old, new)
            return
        if record.cause == event.event_id and isinstance(event, TopicGrow):
            _hold(new[: len(old)] == old, f"{name} grew, and old partitions changed")
            _hold(len(new) == event.partitions, f"{name} has {len(new)} partitions")
            full = all(len(ids) == record.replication_factor for ids in new[len(old) :])
            _hold(full, f"{name} grew by short lists")
            return
        _hold(len(new) == len(old), f"{name} changed its partitions")
        if mode in (Mode.DEMOTION, Mode.REPAIR):
            self._check_order(name, old, new)
        is_rebalance = mode is Mode.REBALANCE
        leaver = event.spu_id if isinstance(event, SpuLeft) else None
        is_for_good = getattr(event, "mode", None) is LeaveMode.DECOMMISSION
        _hold(leaver is None or is_for_good, f"{name} changed by a leave for a while")
        for was, now in zip(old, new, strict=True):
            if was == now:
                continue
            gone = set(was) - set(now)
            if is_rebalance:
                _hold(record.policy is not Policy.MANUAL, f"{name} is manual and was moved")
                _hold(not record.pinned, f"{name} is pinned and was moved")
                _hold(not gone & (self.offline | self.leaving), f"{name}: {gone} is not online")
                _hold(len(now) == len(was), f"{name}: a rebalance changed the length of {was}")
                racks = [len({self.racks[i] for i in ids}) for ids in (was, now)]
                may_lose = record.constraints is not None  # Hard rules come before racks.
                _hold(
                    may_lose or racks[0] <= racks[1], f"{name}: {was} became {now}, on fewer racks"
                )
            elif leaver is not None:
                _hold(
                    gone <= {leaver} | self.evicting,
                    f"{name}: {was} became {now}, only {leaver} leaves",
                )
                _hold(
                    leaver in was or bool(gone & self.evicting),
                    f"{name}: {was} became {now} for nothing",
                )
            else:
                may_go = self.leaving | self.evicting
                _hold(gone <= may_go, f"{name}: {was} became {now}, {gone} did not leave")

    def _check_replication(self, name: str, old: Lists, new: Lists, factor: int) -> None:
        """Kept replicas stay in order, demoted ones behind; the leader leads on while online."""
        _hold(all(len(ids) == factor for ids in new), f"{name} has {new}, not {factor} each")
        _hold(len(new) == len(old), f"{name} changed its partitions")
        away = self.offline | self.leaving
        may_stop = away | self.demoted | self.evicting  # leading
        for was, now in zip(old, new, strict=True):
            gone, come = set(was) - set(now), set(now) - set(was)
            _hold(not gone or not come, f"{name}: {was} became {now}, which is a move")
            _hold(was[0] == now[0] or was[0] in may_stop, f"{name}: {was} became {now}: the leader")
            kept = [spu_id for spu_id in now if spu_id in was and spu_id not in self.demoted]
            in_order = [spu_id for spu_id in was if spu_id in kept]
            _hold(kept == in_order or was[0] != now[0], f"{name}: {was} became {now}: the order")
            served = [spu_id for spu_id in now if spu_id not in away]
            _hold(bool(served) or not set(was) - away, f"{name}: {was} became {now}: all offline")

    def _check_order(self, name: str, old: Lists, new: Lists) -> None:
        """Demoted SPUs stand last in lists that changed, but one that leads on."""
        for was, now in zip(old, new, strict=True):
            followers = now[1:] if was != now else []
            is_last = [i in self.last for i in followers if i not in self.barred]
            _hold(is_last == sorted(is_last), f"{name}: {was} became {now}, demoted: not last")

    def _check_answers(
        self, state: ClusterState, event: Event, records: tuple[Record, ...]
    ) -> None:
        reported = answers(records)
        statuses = [record for record in reported if isinstance(record, TopicStatus)]
        rings = [record for record in reported if isinstance(record, RingEvent)]
        maps = [(r.topic, r.revision) for r in reported if isinstance(r, ReplicaMap)]
        _hold(maps == sorted(maps), "maps are not by topic and revision")
        ids = [record.spu_id for record in rings]
        _hold(ids == sorted(ids), "ring events are not by SPU")
        sizes = {record.ring_size for record in rings}
        _hold(sizes <= {state.ring.size}, f"ring sizes {sizes} reported, it is {state.ring.size}")
        if hasattr(event, "spu_id"):
            changes = [r.change for r in rings if r.spu_id == event.spu_id]
            _hold(bool(changes), "an SPU event has no answer")
            refused = changes == [RingChange.IGNORED]
        else:
            first = statuses[0] if statuses else None
            asked = getattr(event, "topic", "")
            _hold(
                first is not None and (first.topic, first.cause) == (asked, event.event_id),
                "the first status does not answer the request",
            )
            refused = first is not None and first.status in (Status.REJECTED, Status.VALIDATED)
            if first is not None and first.topic == "" and not refused:
                self._check_rebalance(event, first, records)
        if refused:
            none = TopicStatus | RingEvent | EventSeen | ClusterGone
            kept = [r for r in records if not isinstance(r, none)]
            _hold(not kept, f"a refusal changed the state: {kept}")

    def _check_rebalance(
        self, event: Event, status: TopicStatus, records: tuple[Record, ...]
    ) -> None:
        made = [
            sum(move.gone is not None and move.taken is not None for move in record.reason.moves)
            for record in records
            if isinstance(record, ReplicaMap)
            and record.reason is not None
            and record.cause == event.event_id
        ]
        _hold(status.moves == sum(made), f"{status.moves} moves reported, {sum(made)} made")
        _hold(sum(made) <= getattr(event, "max_moves", 0), "more moves than were allowed")

    def _check_state(
        self, state: ClusterState, before: Counter[int], *, is_fact: bool = False
    ) -> None:
        ring = []
        leaving, offline = set(), set()
        ids = sorted(state.spus)
        counts = state.ledger.counts(np.array(ids, dtype=np.int32)).tolist() if ids else []
        for spu_id, count in zip(ids, counts, strict=True):
            spu = state.spus[spu_id]
            if count != self.counts[spu_id]:
                raise ViolationError(f"SPU {spu_id} counts {count}, the maps {self.counts[spu_id]}")
            if count > spu.capacity and count > before[spu_id] and not is_fact:
                raise ViolationError(f"SPU {spu_id} took more than its capacity {spu.capacity}")
            if spu.leaving:
                leaving.add(int(spu_id))
                if spu.online or count == 0:
                    raise ViolationError(f"SPU {spu_id} is leaving, online or held by no list")
            if not spu.online:
                offline.add(int(spu_id))
            elif spu.cordoned:
                _hold(
                    is_fact or count <= before[spu_id],
                    f"SPU {spu_id} is cordoned and took a replica",
                )
            elif count < spu.capacity and not spu.is_closed:
                ring.append(int(spu_id))
            self.racks[spu_id] = spu.rack
        if state.ring.ids.tolist() != ring:
            raise ViolationError(f"the ring is {state.ring.ids.tolist()}, expected {ring}")
        strangers = [i for i, count in self.counts.items() if count and i not in state.spus]
        _hold(not strangers, f"lists hold {strangers}, which are not there")
        _hold(state.topics.keys() == self.maps.keys(), "the topics are not those of the maps")
        _check_leads(state, self)
        self.leaving, self.offline = frozenset(leaving), frozenset(offline)
        self.demoted = frozenset(map(int, state.demoted))
        _hold(state.leaving == leaving, "the leaving SPUs are not those that say so")
        self._check_waiting(state)

    def _check_resources(self, state: ClusterState, *, is_fact: bool) -> None:
        """Sums are those of the maps, and no SPU is given more than it has."""
        used: Counter[tuple[int, str]] = Counter()
        by_role: set[str] = set()  # resources of which a leader needs another amount
        for name, record in self.maps.items():
            if record.need is None:
                continue
            by_role |= dict(record.need.leader_demand).keys()
            needed = record.need.by_name()
            for ids, (resource, follower, leader) in product(self.lists[name], needed):
                used[ids[0], resource] += leader
                for spu_id in ids[1:]:
                    used[spu_id, resource] += follower
        used = +used
        found = {
            (int(spu_id), resource): amount
            for spu_id in state.spus
            for resource, amount in state.ledger.used(spu_id).items()
        }
        _hold(found == used, f"{found} is used of resources, by the maps {dict(used)}")
        for (spu_id, resource), amount in used.items():
            has = dict(state.spus[SpuId(spu_id)].resources).get(resource, 0)
            is_more = amount > has and amount > self.used[spu_id, resource]
            if is_more and not is_fact and resource not in by_role:  # Who leads changes by itself.
                raise ViolationError(f"SPU {spu_id} has {has} of {resource}, and got {amount}")
        self.used = used

    def _check_full(self, state: ClusterState, records: tuple[Record, ...]) -> None:
        """Whoever has nothing left of a resource was said to be so, and nobody else."""
        for record in records:
            if isinstance(record, RingEvent) and record.resource is not None:
                place = (record.spu_id, record.resource)
                is_full = record.change is RingChange.SATURATED
                _hold(is_full or record.change is RingChange.RESTORED, f"{place}: {record.change}")
                _hold(is_full is (place not in self.full), f"{place} {record.change} twice")
                (self.full.add if is_full else self.full.discard)(place)
        full = {
            (int(spu_id), name)
            for spu_id, spu in state.spus.items()
            for name, capacity in spu.resources
            if self.used[spu_id, name] >= capacity
        }
        self.full = {place for place in self.full if place[0] in state.spus}
        _hold(self.full == full, f"{self.full} are said to be full, {full} are")

    def _check_waiting(self, state: ClusterState) -> None:
        wanting = set()
        for name, record in self.maps.items():
            for ids, wanted in zip(self.lists[name], wanted_lengths(record), strict=True):
                is_held = not self.leaving.isdisjoint(ids) or is_evicted(state, record, ids)
                if len(ids) < wanted or is_held:
                    wanting.add(name)
                    _check_nothing_helps(state, record, ids, is_held=is_held)
        if not state.waiting and not wanting:
            return
        repairs = {name for name, wait in state.waiting.items() if wait.kind is Wait.REPAIR}
        _hold(repairs == wanting, f"{repairs} wait for repair, {wanting} want it")
        creates = state.waiting.keys() - repairs
        _hold(creates.isdisjoint(self.maps), f"{creates} wait and are there")
        sequences = [wait.sequence for wait in state.waiting.values()]
        _hold(len(set(sequences)) == len(sequences), f"two wait at the same place: {sequences}")

    def leaders(self) -> Counter[int]:
        return Counter(ids[0] for lists in self.lists.values() for ids in lists)


def _check_leads(state: ClusterState, shadow: Shadow) -> None:
    """A demoted SPU leads nothing where another has room to, but what was given by hand."""
    able = {i for i, spu in state.spus.items() if spu.online and i not in state.demoted}
    for name, lists in shadow.lists.items():
        need = state.topics[name].need
        for ids in lists if name not in shadow.given else ():
            if state.spus[SpuId(ids[0])].demoted:
                others = [i for i in ids if i in able and _could_lead(state, i, need)]
                _hold(not others, f"{name} has {ids}, led by one that is demoted")


def _could_lead(state: ClusterState, follower: int, need: Need | None) -> bool:
    """Whether an SPU has room to lead a list that it follows in."""
    used, has = state.ledger.used(follower), dict(state.spus[SpuId(follower)].resources)
    return all(
        not leader or used.get(name, 0) - own + leader <= has.get(name, 0)
        for name, own, leader in (() if need is None else need.by_name())
        if leader != own
    )


def wanted_lengths(record: ReplicaMap) -> tuple[int, ...]:
    count = 0 if record.replicas is None else len(record.replicas)
    return record.wanted_lengths or (record.replication_factor,) * count


def is_evicted(state: ClusterState, record: ReplicaMap, ids: list[int]) -> bool:
    rules = record.constraints or Constraints()
    return any(TaintEffect.EVICT in effects_on(rules, state.spus[SpuId(i)]) for i in ids)


def _check_nothing_helps(
    state: ClusterState, record: ReplicaMap, ids: list[int], *, is_held: bool
) -> None:
    """A list waits only as long as it must; what rules forbid is not looked at."""
    if record.constraints is not None or record.topic in state.apart_from or state.barred:
        return
    spus = [state.spus[SpuId(spu_id)] for spu_id in ids]
    if is_held and all(not spu.online and (spu.unreachable or not spu.leaving) for spu in spus):
        return  # There is nothing to copy from.
    name, need = record.topic, [] if record.need is None else record.need.by_name()
    takers = [
        spu_id
        for spu_id in state.ring.ids.tolist()
        if spu_id not in ids
        and all(
            state.ledger.used(spu_id).get(resource, 0) + max(amounts)
            <= dict(state.spus[SpuId(spu_id)].resources).get(resource, 0)
            for resource, *amounts in need
            if max(amounts)
        )
    ]
    _hold(not takers, f"{name} has {ids}, and {takers} could take a replica")
    online = [spu_id for spu_id in ids if state.spus[SpuId(spu_id)].online]
    may_serve = is_held and online and not is_evicted(state, record, ids)
    _hold(not may_serve, f"{name} has {ids}, on a leaving SPU, and {online} could serve")


def is_remembered(state: ClusterState, event: Event) -> bool:
    return event_hash(event.event_id) in state.memory.known


def check_rules(state: ClusterState, record: ReplicaMap, old: Lists) -> None:
    """No replica comes to an SPU that a rule on single SPUs excludes, or a taint."""
    if record.replicas is None or (record.reason and record.reason.mode is Mode.ADOPTED):
        return
    rules = record.constraints or Constraints()
    for partition, row in enumerate(record.replicas.tolist()):
        was = old[partition] if partition < len(old) else []
        for spu_id in set(row) - set(was):
            spu = state.spus[SpuId(spu_id)]
            _hold(permits(rules, spu), f"{record.topic} came to {spu} against {rules}")
        is_placed = record.reason is not None and record.reason.mode is Mode.CONSTRAINED
        for fault in broken_levels(state, record.topic, row) if is_placed and not was else ():
            raise ViolationError(fault)


def _hold(claim: bool, otherwise: str) -> None:
    if not claim:
        raise ViolationError(otherwise)
