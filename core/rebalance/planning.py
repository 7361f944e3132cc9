"""The plan of `ClusterRebalance`: which replicas move, then which lists change their leader.

Rules:
- The fewest moves bring all SPUs into the bands around their fair shares (`fair_share`), or as near
  as can be. With a `ResourceGoal` the moves are those of `relief` instead.
- A move replaces one online SPU in one list by another, which takes its position. Lists stay
  distinct. A rack holds at most as many replicas of a list as it does now, or one. An SPU above its
  capacity takes a replica only in place of one it has given. Every prefix of the moves keeps this.
- Where many more moves are needed than are allowed, the plan is one for wider bands, which takes no
  fewer than are allowed: the SPUs furthest from their share come nearer first.
- SPUs that are not in `loads` (offline, leaving, cordoned) keep what they hold, take nothing and
  count for the racks of a list. Lists led by one of them keep their leader.
- Leaders are as even as the lists permit (`leaders`); but lists whose leaders need other amounts
  than followers keep the leader that `relief` gave them.
- A demoted SPU takes no lead. What it leads after the moves, another member leads that can
  (`state.leading`), also one that is not in `loads`; where none can, it stays. It stands last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from spu_assigner.core.base.errors import Code, Rejection
from spu_assigner.core.base.limits import BAND, REBALANCE_MOVES_MAX
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.rebalance.fair_share import Bands, fair_shares, kinds_of
from spu_assigner.core.rebalance.flow import even_out, in_order
from spu_assigner.core.rebalance.leaders import even_leaders
from spu_assigner.core.rebalance.lists import ClusterLists, ListMove, Step
from spu_assigner.core.rebalance.relief import Relief
from spu_assigner.core.rebalance.replica_pool import ReplicaPool
from spu_assigner.core.rebalance.resource_goal import ResourceGoal
from spu_assigner.core.rebalance.ruled_lists import RuledLists, RuledTopics
from spu_assigner.core.state.leading import swap_leaders
from spu_assigner.core.state.ledger import CountArray, Loads

LOOKS_MAX: Final = 1_200_000_000  # for replicas that do not go in one step; some 1.3 s
WHOLE_PLAN_MAX: Final = 1_000  # moves up to which a plan is made whole, however few are allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """What is to change."""

    changed: dict[int, IdMatrix]  # by topic index, ascending; new arrays, padded as they came
    moves: tuple[ListMove, ...]  # in the order to be made
    reorders: int  # lists that get another leader from among their members
    size: int = 0  # bytes that the moves copy, as far as topics say
    # The largest dominant share before and after, and the fair one; None: numbers decided.
    shares: tuple[Fraction, Fraction, Fraction] | None = None
    is_cut: bool = False  # the search ended at its limit: another request may find more


def plan_rebalance(
    topics: Sequence[IdMatrix],
    loads: Loads,
    *,
    racks: Mapping[int, int],
    max_moves: int,
    band: int = BAND,
    goal: ResourceGoal,
    ruled: RuledTopics,
) -> Rebalance:
    """Even out replicas, then leaders.

    `topics` are the matrices of the topics that may move, short lists padded with -1 at the end;
    they are only read. `loads` are the online SPUs that are not cordoned, saturated ones too, with
    all that they hold; `racks` has the rack numbers of all SPUs. max_moves >= 0.

    A plan carried out whole leaves nothing to a second one, unless lists came to more racks: they
    may not come back from there, so other shares may then be the permitted ones.

    Raises:
        Rejection: more moves are allowed than one plan is made of, and are needed.
    """
    if len(loads.ids) == 0 or int(loads.capacities.sum()) == 0 or not topics:
        return Rebalance(changed={}, moves=(), reorders=0)
    lists = ClusterLists.of(topics, loads, racks)
    is_closed = np.append(ruled.closed, False)[lists.places]
    has_rules = np.array([rules is not None for rules in ruled.rules])[lists.topics]
    lists.places[is_closed & ~has_rules[:, None]] = lists.spus
    under_rules = RuledLists(ruled, lists, loads.ids, fullness=goal.dominant_shares())
    before, other_leads = lists.ids.copy(), loads.leaders - lists.leads()
    steps: Iterable[Step]
    relief = Relief(lists, goal, under_rules) if goal.decides else None
    if relief is not None:
        steps, is_cut = relief.steps, relief.is_cut
    else:
        steps, is_cut = _steps_by_count(lists, loads, under_rules, max_moves=max_moves, band=band)
    moves, reorders, size = _carry_out(steps, lists, loads, goal, max_moves=max_moves)
    given, is_lead_cut = _choose_leaders(lists, loads, other_leads, goal=goal, ruled=under_rules)
    shares = None
    if relief is not None:
        used = goal.movable(lists) + relief.fixed
        shares = goal.largest(goal.used), goal.largest(used), relief.fair
    return Rebalance(
        changed=lists.changed(topics, before),
        moves=tuple(moves),
        reorders=reorders + given,
        size=size,
        shares=shares,
        is_cut=is_cut or is_lead_cut,
    )


def _steps_by_count(
    lists: ClusterLists, loads: Loads, ruled: RuledLists, *, max_moves: int, band: int
) -> tuple[Iterable[Step], bool]:
    """The fewest moves that bring the SPUs' numbers of replicas into their bands, and whether the
    search ended at its limit."""
    if max_moves == 0:
        return (), False
    counts = loads.replicas.astype(np.int64)
    movable = np.bincount(lists.places.ravel(), minlength=lists.spus + 1)[:-1]
    fixed, (kinds, _) = (counts - movable).tolist(), kinds_of(lists, ruled)
    shares = fair_shares(loads.capacities.tolist(), fixed, ruled.zone_of, kinds)
    bands = Bands.around(shares, loads.capacities, band)
    needed = bands.moves(counts)
    if min(needed, max_moves) > REBALANCE_MOVES_MAX:
        raise Rejection(
            Code.TOO_MANY_MOVES,
            f"to even out takes at least {needed} moves; one request may take "
            f"{REBALANCE_MOVES_MAX}: ask with max_moves {REBALANCE_MOVES_MAX}, and again until "
            "nothing moves",
        )
    if needed > max(max_moves, WHOLE_PLAN_MAX):
        bands = bands.widest(counts, moves=max_moves)
    pool = ReplicaPool(lists, ruled)
    planned, is_cut = even_out(pool, counts, bands, looks_max=LOOKS_MAX)
    return in_order(pool.changes(), counts, planned, shares, bands), is_cut


def _carry_out(
    steps: Iterable[Step], lists: ClusterLists, loads: Loads, goal: ResourceGoal, *, max_moves: int
) -> tuple[list[ListMove], int, int]:
    """Change the lists as far as the limits permit: the moves, the reorders and the bytes."""
    moves: list[ListMove] = []
    size = reorders = 0
    for step in steps:
        if step.is_lead:
            lists.lead(step.row, step.taker)
            reorders += 1
            continue
        each = goal.needs[int(lists.topics[step.row])].size
        if len(moves) == max_moves or size + each > goal.bytes_max:
            break
        size += each
        moves.append(lists.move(step, int(loads.ids[step.taker])))
    return moves, reorders, size


def _choose_leaders(
    lists: ClusterLists,
    loads: Loads,
    other_leads: CountArray,
    *,
    goal: ResourceGoal,
    ruled: RuledLists,
) -> tuple[int, bool]:
    """Give away what demoted SPUs lead, then even out leaders: how many lists got another one, and
    whether the search ended at its limit."""
    reorders, by_choice = 0, ruled.by_choice(lists)
    led = dict(zip(loads.ids.tolist(), (other_leads + lists.leads()).tolist(), strict=True))
    for each, rows in by_choice:
        each.led.update({i: count for i, count in led.items() if i in each.led})
        swaps = [(int(rows[at]), place) for at, place in each.swaps(lists.ids[rows])]
        swap_leaders(lists.ids, swaps)
        swap_leaders(lists.places, swaps)
        reorders += len(swaps)
    able = ruled.able_to_lead(lists)
    is_settled = np.array([need.leader != need.follower for need in goal.needs])
    able[is_settled[lists.topics]] = False
    places, leads = np.where(able, lists.places, lists.spus), other_leads + lists.leads()
    leader_of, is_cut = even_leaders(lists.topics, places, leads, loads.capacities)
    for row, leader in leader_of.items():
        lists.lead(row, leader)
    for each, rows in by_choice:  # Those that are not to lead follow all others.
        ids = lists.ids[rows]
        ranks = np.where(ids < 0, 2, np.isin(ids, each.demoted))[:, 1:]
        order = np.argsort(ranks, axis=1, kind="stable")
        for members in (lists.ids, lists.places):
            members[rows, 1:] = np.take_along_axis(members[rows, 1:], order, axis=1)
    return reorders + len(leader_of), is_cut
