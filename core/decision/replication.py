"""`TopicReplication`: each list of a living topic gets another length; kept replicas stay in order.

A replica that comes is chosen as in a repair, and goes to the end. One that goes is, in this order
of preference: on a leaving SPU, on one that is offline (the leader before others), on the rack with
the most replicas of the list, on the fullest SPU, on that with the lowest id.

What stays: a leader that is online and not leaving, or one of a list of which nothing can be read;
the only replica that is online, or that can be read; of each value of a level of `spread` its
`min`, if another replica can go, even the leader. With SPU 3 offline:

    [3, 1, 2], factor 2 → [1, 2]

All or nothing: what goes is taken off first, so that slots that become free can be used. A list for
which no SPU is left takes one from a list that can do with another.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from spu_assigner.core.base.bounded_repr import bounded_repr
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy, SpuId, TopicReplication
from spu_assigner.core.base.limits import (
    REPLICATION_FACTOR_MAX,
    RESIZE_MOVES_MAX,
    ruled_moves_max,
)
from spu_assigner.core.base.records import Mode, Move, Record, Status
from spu_assigner.core.base.replica_lists import PADDING, ReplicaLists
from spu_assigner.core.base.resources import Need
from spu_assigner.core.constraints.kept_rules import kept_rules, leaving_spus
from spu_assigner.core.constraints.rule_table import BoundRules
from spu_assigner.core.decision.answers import Refusal, rejected, status, unknown_topic
from spu_assigner.core.decision.assignment import refuse_size
from spu_assigner.core.decision.repair import outcome, revised
from spu_assigner.core.decision.ring_changes import ring_after
from spu_assigner.core.decision.shortage import what_lacks
from spu_assigner.core.placement.choose import Chooser, topic_chooser
from spu_assigner.core.placement.list_repair import ListRepair, RepairRun, is_dead
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.leading import LeaderChoice
from spu_assigner.core.state.memory import own_events_after
from spu_assigner.core.state.topic import Topic

LOOKS_MAX: Final = 1_000_000  # of one request, for SPUs that lists exchange; some 0.1 s

SHARE_BITS: Final = 32  # of the fraction by which shares of capacity are compared

Rows = list[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizedLists:
    """Lists of another length."""

    rows: Rows
    moves: list[Move]  # what goes, then what comes, both in order of partition
    changes: Mapping[int, int]  # replicas more or fewer, by SPU


@dataclass(frozen=True, slots=True)
class _Shortening:
    """What decides which replicas go, but for loads and racks."""

    leaving: Collection[int]
    rules: BoundRules | None
    ignore_rack: bool


def change_replication(state: ClusterState, event: TopicReplication) -> list[Record]:
    """The topic's next map, or the refusal; no map where every list is to be as long already.

    Cost: O(replicas + moves * log(ring size)) without constraints.
    """
    refusal = _refuse(state, event)
    if refusal is not None:
        return [rejected(state, event.topic, refusal, event.event_id)]
    topic, factor = state.topics[event.topic], event.replication_factor
    refusal = _refuse_moves(state, topic, factor)
    if refusal is not None:
        return [rejected(state, event.topic, refusal, event.event_id)]
    assigned = status(state, event.topic, Status.ASSIGNED, event.event_id)
    if topic.wanted_lengths is None and topic.replication_factor == factor:
        return [assigned]
    resized = resize(state, event.topic, factor)
    if isinstance(resized, Refusal):
        return [rejected(state, event.topic, resized, event.event_id)]
    replicas = ReplicaLists.of_lists(resized.rows)
    too_large = refuse_size(replicas, None if topic.cores is None else replicas)
    if too_large is not None:
        return [rejected(state, event.topic, too_large, event.event_id)]
    after = ring_after(state, resized.changes)
    changed = revised(
        state,
        event.topic,
        cause=event.event_id,
        replicas=replicas,
        mode=Mode.REPLICATION,
        moves=resized.moves,
        ring=after.ring,
        chains=after.chains,
    )
    leaving = leaving_spus(state, topic)
    held = [row for row in resized.rows if not leaving.isdisjoint(row)]
    return [
        *after.described.values(),
        replace(
            changed,
            replication_factor=factor,
            own_events=own_events_after(topic, event.event_id),
            wanted_lengths=None,
        ),
        assigned,
        *outcome(state, event.topic, held, cause=event.event_id, is_retry=True),
        *after.records(state, event.event_id),
    ]


def _refuse(state: ClusterState, event: TopicReplication) -> Refusal | None:
    topic = state.topics.get(event.topic)
    if topic is None:
        return unknown_topic(state, event.topic)
    if not 1 <= event.replication_factor <= REPLICATION_FACTOR_MAX:
        return Refusal(
            Code.INVALID_REPLICATION_FACTOR,
            f"replication_factor is {bounded_repr(event.replication_factor)}; "
            f"expected 1 to {REPLICATION_FACTOR_MAX}",
        )
    if topic.policy is Policy.MANUAL:
        return Refusal(
            Code.MANUAL_TOPIC,
            f"topic {event.topic!r} was placed by hand, so there is no rule to place replicas by; "
            "adopt it with the lists that it is to have",
        )
    return None


def _refuse_moves(state: ClusterState, topic: Topic, factor: int) -> Refusal | None:
    """Why so many replicas are not added or removed at once."""
    lengths = (topic.replicas.matrix() != PADDING).sum(axis=1)
    moves = int(np.abs(lengths - factor).sum())
    limit = RESIZE_MOVES_MAX if topic.constraints is None else ruled_moves_max(len(state.spus))
    if moves <= limit:
        return None
    step = max(limit // len(lengths), 1)
    now = int(np.sort(lengths)[len(lengths) // 2])
    nearer = min(now + step, factor) if factor > now else max(now - step, factor)
    return Refusal(
        Code.TOO_MANY_MOVES,
        f"{len(lengths)} lists come to {factor} replicas each by {moves} that are added or "
        f"removed; one request may take {limit}: go there in steps, the first to "
        f"replication_factor {nearer}",
    )


def resize(state: ClusterState, name: str, factor: int) -> ResizedLists | Refusal:
    """Give each of a topic's lists so many replicas, or say why that cannot be."""
    rows: Rows = state.topics[name].replicas.lists().tolist()
    changes: Counter[int] = Counter()
    rules = kept_rules(state, name)
    topic = state.topics[name]
    shortening = _Shortening(leaving_spus(state, topic), rules, topic.ignore_rack)
    shorter, gone = _shorten(state, rows, factor, changes, shortening)
    refusal = _refuse_broken(rules, rows, shorter)
    if refusal is not None:
        return refusal
    choice = RepairRun(state).leaders(name)
    led = _settled(choice, rows, shorter)
    longer = _lengthen(state, name, led, factor, changes)
    if isinstance(longer, Refusal):
        return longer
    longer = _settled(choice, led, longer)
    come = [
        Move(partition=partition, gone=None, taken=spu_id)
        for partition, (row, before) in enumerate(zip(longer, shorter, strict=True))
        for spu_id in row
        if spu_id not in before
    ]
    return ResizedLists(rows=longer, moves=[*gone, *come], changes=changes)


def _settled(choice: LeaderChoice, before: Rows, rows: Rows) -> Rows:
    """The lists, those that changed in the order that they are to have."""
    pairs = zip(rows, before, strict=True)
    return [row if row == old else choice.settle(row, old) for row, old in pairs]


def _shorten(
    state: ClusterState,
    rows: Rows,
    factor: int,
    changes: Counter[int],
    shortening: _Shortening,
) -> tuple[Rows, list[Move]]:
    """The rows, those that are too long cut, which is counted; with what goes."""
    counts = {int(spu_id): state.ledger.count(spu_id) for spu_id in state.spus}
    rows = [list(row) for row in rows]
    moves: list[Move] = []
    for partition, row in enumerate(rows):
        while len(row) > factor:
            gone = _first_to_go(state, row, counts, shortening)
            counts[gone] -= 1
            changes[gone] -= 1
            moves.append(Move(partition=partition, gone=gone, taken=None))
            row.remove(gone)
    return rows, moves


def _refuse_broken(rules: BoundRules | None, rows: Rows, shorter: Rows) -> Refusal | None:
    """Why lists may not be so short: they would break a rule, or break it more than before."""
    for partition, (before, row) in enumerate(zip(rows, shorter, strict=True)):
        if rules is None or len(row) == len(before):
            continue
        for name in rules.worsened(before, row):
            return Refusal(
                Code.UNSATISFIABLE,
                f"partition {partition} cannot hold {name} with "
                f"{len(row)} replica{'' if len(row) == 1 else 's'}; "
                "relax it, or ask for more replicas",
            )
    return None


def _online(state: ClusterState, row: Sequence[int]) -> list[int]:
    return [spu_id for spu_id in row if state.spus[SpuId(spu_id)].online]


def _first_to_go(
    state: ClusterState,
    row: Sequence[int],
    counts: dict[int, int],
    shortening: _Shortening,
) -> int:
    """The replica of a list that goes first when the list is to be shorter."""
    leaving, rules = shortening.leaving, shortening.rules
    online = _online(state, row)
    alive = [spu_id for spu_id in row if not is_dead(state, spu_id)]
    kept = {online[0]} if len(online) == 1 else {alive[0]} if len(alive) == 1 else set()
    may_go = [spu_id for spu_id in row if spu_id not in kept]
    if (row[0] in online or not alive) and row[0] not in leaving:
        may_go = [spu_id for spu_id in may_go if spu_id != row[0]]
    if rules is not None:

        def can_spare(spu_id: int) -> bool:
            return not rules.worsened(row, [each for each in row if each != spu_id])

        spare = list(filter(can_spare, may_go))
        if not spare and row[0] not in kept and can_spare(row[0]):
            spare = [row[0]]
        may_go = spare or may_go
    racks = Counter("" if shortening.ignore_rack else state.spus[SpuId(i)].rack or "" for i in row)

    def rank(spu_id: int) -> tuple[bool, bool, bool, int, int, int]:
        spu = state.spus[SpuId(spu_id)]
        is_dark_lead = not spu.online and spu_id == row[0]
        share = (counts[spu_id] << SHARE_BITS) // max(spu.capacity, 1)
        is_leaving, rack = spu_id in leaving, "" if shortening.ignore_rack else spu.rack or ""
        return (is_leaving, not spu.online, is_dark_lead, racks[rack], share, -spu_id)

    return max(may_go, key=rank)


def _lengthen(
    state: ClusterState, name: str, rows: Rows, factor: int, changes: Counter[int]
) -> Rows | Refusal:
    """The rows, those that are too short filled, which is counted; `changes` are those before."""
    if all(len(row) >= factor for row in rows):
        return rows
    ring = ring_after(state, changes).ring
    chooser = topic_chooser(state, name, ring=ring)
    for spu_id, more in changes.items():
        for _ in range(-more):
            chooser.release(spu_id)
    for row, before in zip(rows, state.topics[name].replicas.lists().tolist(), strict=True):
        if row[0] != before[0]:
            chooser.pass_lead(before[0], row[0])
    rows = [list(row) for row in rows]
    held = Counter(spu_id for row in rows for spu_id in row)
    chooser.bind(held, factor * len(rows))
    choice = RepairRun(state).leaders(name) if state.demoted else None
    filling = ListRepair(state, leaving_spus(state, state.topics[name]), chooser, choice)
    given = Exchanges(rows, ring.ids.tolist())
    for partition, row in enumerate(rows):
        while len(row) < factor:
            taken = filling.take(row, factor)
            if taken is None and chooser.field.table is None:
                taken = given.make_room(partition, chooser)
            if taken is None:
                return _shortage(state, state.topics[name].need, partition, row, factor)
            row.append(taken)
            given.note(partition, taken)
    for spu_id, partitions in given.holders.items():
        changes[spu_id] += len(partitions)
    return rows


class Exchanges:
    """What lists were given, and how one gives way to another that finds no SPU.

    A list that cannot be filled takes an SPU from one that can do with another, which may take that
    from a third; the shortest such way is gone.
    """

    def __init__(self, rows: Rows, ring: list[int]) -> None:
        # The partitions that each was given.
        self.holders: defaultdict[int, list[int]] = defaultdict(list, {i: [] for i in ring})
        self._rows = rows
        self._looks_left = LOOKS_MAX

    def note(self, partition: int, spu_id: int) -> None:
        """A list was given an SPU."""
        self.holders[spu_id].append(partition)

    def make_room(self, partition: int, chooser: Chooser) -> int | None:
        """The SPU that a list can have once others have given way, which they do; None: none."""
        # From each SPU: the list that would take it, and the SPU that this list would give up.
        ways: dict[int, tuple[int, int] | None] = {
            spu_id: None for spu_id in self.holders if spu_id not in self._rows[partition]
        }
        queue = deque(ways)
        while queue:
            spu_id = queue.popleft()
            if chooser.give(spu_id):
                return self._walk_back(ways, spu_id)
            for holder in self.holders[spu_id]:
                self._looks_left -= len(self.holders)
                if self._looks_left < 0:
                    return None
                for other in self.holders:
                    if other not in ways and other not in self._rows[holder]:
                        ways[other] = holder, spu_id
                        queue.append(other)
        return None

    def _walk_back(self, ways: dict[int, tuple[int, int] | None], spu_id: int) -> int:
        while (way := ways[spu_id]) is not None:
            holder, given_up = way
            row = self._rows[holder]
            row[row.index(given_up)] = spu_id
            self.holders[given_up].remove(holder)
            self.holders[spu_id].append(holder)
            spu_id = given_up
        return spu_id


def _shortage(
    state: ClusterState, need: Need | None, partition: int, row: list[int], factor: int
) -> Refusal:
    others = [spu for spu_id, spu in state.spus.items() if spu.online and spu_id not in row]
    if factor - len(row) > len(others):
        code, found = Code.INSUFFICIENT_SPUS, "is online; add SPUs"
    else:
        uncordon = ", uncordon SPUs" if any(spu.is_closed for spu in others) else ""
        lacks = what_lacks(state, sorted(spu.spu_id for spu in others), need)
        code = Code.INSUFFICIENT_CAPACITY
        found = f"can take one{lacks}; add SPUs or capacity{uncordon}"
    return Refusal(
        code,
        f"partition {partition} has {len(row)} of {factor} replicas, and no other SPU {found}, or "
        "ask for fewer replicas",
    )
