"""`TopicReplication`: each list of a living topic gets another length; kept replicas stay in order.

A replica that comes is chosen as in a repair, and goes to the end. One that goes is, in this order
of preference: on a leaving SPU, on one that is offline (the leader before others), on the rack with
the most replicas of the list, on the fullest SPU, on that with the lowest id.

What stays: a leader that is online and not leaving, or one of a list of which nothing can be read;
the only replica that is online, or that can be read; of each value of a level of `spread` its
`min`, if another replica can go, even the leader. With SPU 3 offline:

    [3, 1, 2], factor 2 → [1, 2]

All or nothing: what goes is taken off first, so that slots that become free can be used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from spu_assigner.core.base.errors import Code, Rejection
from spu_assigner.core.base.events import Policy, SpuId, TopicReplication
from spu_assigner.core.base.limits import RESIZE_MOVES_MAX, SPUS_A_RULED_MOVE
from spu_assigner.core.base.records import Mode, Move, Record, Status
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.constraints.kept_rules import kept_rules, leaving_spus
from spu_assigner.core.constraints.rule_table import BoundRules
from spu_assigner.core.decision.answers import counted, known_topic, status
from spu_assigner.core.decision.checks import check_ranges
from spu_assigner.core.decision.repair import outcome
from spu_assigner.core.decision.ring_changes import revised, ring_after
from spu_assigner.core.decision.shortage import short_of_factor
from spu_assigner.core.placement.choose import topic_chooser
from spu_assigner.core.placement.list_repair import ListRepair, RepairRun, is_dead
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.leading import LeaderChoice
from spu_assigner.core.state.memory import own_events_after
from spu_assigner.core.state.topic import Topic

SHARE_BITS: Final = 32  # of the fraction by which shares of capacity are compared

Rows = list[list[int]]


def change_replication(state: ClusterState, event: TopicReplication) -> list[Record]:
    """The topic's next map; no map where every list is to be as long already.

    Cost: O(replicas + moves * log(ring size)) without constraints.
    """
    name, factor, cause = event.topic, event.replication_factor, event.event_id
    topic = known_topic(state, name)
    check_ranges(event, "replication_factor")
    if topic.policy is Policy.MANUAL:
        raise Rejection(
            Code.MANUAL_TOPIC,
            f"topic {name!r} was placed by hand, so there is no rule to place replicas by; "
            "adopt it with the lists that it is to have",
        )
    _check_moves(state, topic, factor)
    assigned = status(state, name, Status.ASSIGNED, cause)
    if topic.wanted_lengths is None and topic.replication_factor == factor:
        return [assigned]
    before: Rows = topic.replicas.lists().tolist()
    choice = RepairRun(state).leaders(name)
    shorter, gone = _shorten(state, name, before, factor)
    shorter = _settled(choice, before, shorter)
    longer, come = _lengthen(state, name, shorter, factor, gone=gone, choice=choice)
    rows = _settled(choice, shorter, longer)
    leaving = leaving_spus(state, topic)
    held = [row for row in rows if not leaving.isdisjoint(row)]
    return revised(
        state,
        cause,
        Mode.REPLICATION,
        {name: ReplicaLists.of_lists(rows)},
        assigned,
        *([] if held else outcome(state, name, held, cause=cause)),
        moves={name: [*gone, *come]},
        replication_factor=factor,
        own_events=own_events_after(topic, cause),
        wanted_lengths=None,
    )


def _check_moves(state: ClusterState, topic: Topic, factor: int) -> None:
    """One request adds or removes so many replicas at most."""
    lengths = topic.replicas.lists().lengths()
    moves = sum(abs(length - factor) for length in lengths)
    limit = RESIZE_MOVES_MAX
    if topic.constraints is not None:
        limit //= 2 + len(state.spus) // SPUS_A_RULED_MOVE
    if moves > limit:
        step = max(limit // len(lengths), 1)
        now = sorted(lengths)[len(lengths) // 2]
        nearer = min(now + step, factor) if factor > now else max(now - step, factor)
        raise Rejection(
            Code.TOO_MANY_MOVES,
            f"{len(lengths)} lists come to {factor} replicas each by {moves} that are added or "
            f"removed; one request may take {limit}: go there in steps, the first to "
            f"replication_factor {nearer}",
        )


def _settled(choice: LeaderChoice, before: Rows, rows: Rows) -> Rows:
    """The lists, those that changed in the order that they are to have."""
    pairs = zip(rows, before, strict=True)
    return [row if row == old else choice.settle(row, old) for row, old in pairs]


def _shorten(state: ClusterState, name: str, before: Rows, factor: int) -> tuple[Rows, list[Move]]:
    """The lists, those that are too long cut; with what goes."""
    topic, rules = state.topics[name], kept_rules(state, name)
    leaving = leaving_spus(state, topic)
    counts = {int(spu_id): state.ledger.count(spu_id) for spu_id in state.spus}
    rows = [list(row) for row in before]
    moves: list[Move] = []
    for partition, row in enumerate(rows):
        while len(row) > factor:
            gone = _first_to_go(state, row, counts, leaving, rules, ignore_rack=topic.ignore_rack)
            counts[gone] -= 1
            moves.append(Move(partition=partition, gone=gone, taken=None))
            row.remove(gone)
        if rules is not None and len(row) < len(before[partition]):
            for rule in rules.worsened(before[partition], row):
                raise Rejection(
                    Code.UNSATISFIABLE,
                    f"partition {partition} cannot hold {rule} with "
                    f"{counted(len(row), 'replica')}; relax it, or ask for more replicas",
                )
    return rows, moves


def _first_to_go(
    state: ClusterState,
    row: Sequence[int],
    counts: dict[int, int],
    leaving: Collection[int],
    rules: BoundRules | None,
    *,
    ignore_rack: bool,
) -> int:
    """The replica of a list that goes when the list is to be shorter."""
    spus = {spu_id: state.spus[SpuId(spu_id)] for spu_id in row}
    online = [spu_id for spu_id in row if spus[spu_id].online]
    alive = [spu_id for spu_id in row if not is_dead(state, spu_id)]
    only = online if len(online) == 1 else alive if len(alive) == 1 else []
    leader = row[0]
    leader_stays = (leader in online or not alive) and leader not in leaving
    racks = {spu_id: "" if ignore_rack else spu.rack or "" for spu_id, spu in spus.items()}
    on_rack = Counter(racks.values())

    def rank(spu_id: int) -> tuple[int, ...]:
        spu = spus[spu_id]
        return (
            spu_id not in only,
            rules is None or not rules.worsened(row, [each for each in row if each != spu_id]),
            spu_id != leader or not leader_stays,
            spu_id in leaving,
            not spu.online,
            spu_id == leader and not spu.online,
            on_rack[racks[spu_id]],
            (counts[spu_id] << SHARE_BITS) // max(spu.capacity, 1),
            -spu_id,
        )

    return max(row, key=rank)


def _lengthen(
    state: ClusterState,
    name: str,
    shorter: Rows,
    factor: int,
    *,
    gone: Sequence[Move],
    choice: LeaderChoice,
) -> tuple[Rows, list[Move]]:
    """The lists, those that are too short filled once what others lose is free; with what comes."""
    rows, topic = [list(row) for row in shorter], state.topics[name]
    moves: list[Move] = []
    if all(len(row) >= factor for row in rows):
        return rows, moves
    freed = Counter(move.gone for move in gone if move.gone is not None)
    ring = ring_after(state, {spu_id: -count for spu_id, count in freed.items()}).ring
    chooser = topic_chooser(state, name, ring=ring)
    for spu_id in freed.elements():
        chooser.release(spu_id)
    for row, before in zip(rows, topic.replicas.lists().tolist(), strict=True):
        if row[0] != before[0]:
            chooser.pass_lead(before[0], row[0])
    chooser.bind(Counter(spu_id for row in rows for spu_id in row), factor * len(rows))
    filling = ListRepair(state, leaving_spus(state, topic), chooser, choice)
    for partition, row in enumerate(rows):
        while len(row) < factor:
            taken = filling.take(row, factor)
            if taken is None:
                raise short_of_factor(state, name, partition, row, factor)
            row.append(taken)
            moves.append(Move(partition=partition, gone=None, taken=taken))
    return rows, moves
