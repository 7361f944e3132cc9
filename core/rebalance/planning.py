"""The plan of `ClusterRebalance`: which replicas move, then which lists change their leader.

Rules:
- An SPU's band is one replica on either side of its fair share (or, with a band of 0, the share
  rounded down and up), never above its capacity: fair
  share = replicas on all online SPUs * capacity / capacity of all online SPUs, as far as the lists
  permit it (`fair`): a rack that must hold a replica of every list holds that, whatever its size.
- A move replaces one online SPU in one list by another, which takes its position. Lists stay
  distinct. A rack holds at most as many replicas of a list as it does now, or one: so the number of
  distinct racks of a list never falls.
- The plan has the fewest moves that bring all SPUs into their bands; where that cannot be, the
  fewest that bring them as near as can be (least sum of squares of the distances to the bands).
- Where many more moves are needed than are allowed, the plan is one for wider bands, which takes no
  fewer than are allowed: the SPUs furthest from their share come nearer first.
- Moves are in the order they are to be made: the most overloaded giver first, to the least loaded
  SPU that is to take from it. Every prefix keeps the rules, so a limit just cuts the order off.
- An SPU that holds more than its capacity may take a replica only in place of one it has given.
- Leaders: as even as the lists permit, over the SPUs and then within each topic (`leaders`). The
  leader of a list and an online member change places.
- SPUs that are not in `loads` (offline, leaving, cordoned) keep what they hold, take nothing and
  count for the racks of a list. Lists led by one of them keep their leader.
- Where topics say what they need of resources, a `ResourceGoal` is given: then the moves are those
  that `relief_search` finds, the fewest bytes that bring each SPU's dominant share within a band
  above the fair one (`resource_loads`), and any prefix of them keeps the rules above as well.
  Leaders are evened by number where they need what followers do; other lists keep the leader that
  the search gave them.
- A demoted SPU takes no lead. What it leads after the moves, another member leads that can
  (`state.leading`), also one that is not in `loads`; where none can, it stays. It stands last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Final

import numpy as np
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import BAND, REBALANCE_MOVES_MAX
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix
from spu_assigner.core.rebalance.fair_share import (
    Holders,
    Shares,
    fair_shares,
    kinds_of,
)
from spu_assigner.core.rebalance.flow import Bands, Flags, even_out
from spu_assigner.core.rebalance.leaders import even_leaders
from spu_assigner.core.rebalance.move_order import in_order
from spu_assigner.core.rebalance.relief_search import find_relief
from spu_assigner.core.rebalance.relief_state import Step
from spu_assigner.core.rebalance.resource_loads import (
    MovableLists,
    ResourceGoal,
    ShareChange,
    dominant_share,
)
from spu_assigner.core.rebalance.ruled_lists import (
    RuledLists,
    RuledPool,
    RuledTopics,
    Zones,
    able_to_lead,
)
from spu_assigner.core.rebalance.transfer_candidates import ReplicaPool
from spu_assigner.core.state.leading import LeaderChoice, swap_leaders
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.loads import Loads

LOOKS_MAX: Final = 4_000_000  # for replicas that do not go in one step; some 1.5 s
WHOLE_PLAN_MAX: Final = 1_000  # moves up to which a plan is made whole, however few are allowed


class TooManyMovesError(AssignerError):
    """A plan takes more moves than one is made of."""

    def __init__(self, moves: int) -> None:
        super().__init__(f"the plan takes at least {moves} moves")
        self.moves = moves


@dataclass(frozen=True, slots=True, kw_only=True)
class ListMove:
    """One replica goes from one SPU to another."""

    topic: int  # index among the topics that were given
    partition: int
    gone: int
    taken: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """What is to change."""

    changed: dict[int, IdMatrix]  # by topic index, ascending; new arrays, padded as they came
    moves: tuple[ListMove, ...]  # in the order to be made
    reorders: int  # lists that get another leader from among their members
    size: int = 0  # bytes that the moves copy, as far as topics say
    shares: ShareChange | None = None  # None: there was no goal of resources
    is_cut: bool = False  # the search ended at its limit: another request may find more


@dataclass(slots=True)
class _ClusterLists:
    """The lists of all topics, one below the other."""

    topics: IdArray  # of each row
    partitions: IdArray
    ids: IdMatrix  # padded with -1
    places: IdMatrix  # positions in `loads`; len(loads) where there is none

    def move(self, step: Step, taken: int) -> ListMove:
        """Let the taker, which has this id, have the giver's place."""
        row = step.row
        at = self.places[row].tolist().index(step.giver)
        gone = int(self.ids[row, at])
        self.ids[row, at], self.places[row, at] = taken, step.taker
        topic, partition = int(self.topics[row]), int(self.partitions[row])
        return ListMove(topic=topic, partition=partition, gone=gone, taken=taken)

    def lead(self, row: int, leader: int) -> None:
        """Let a member lead, in place of the one that does."""
        at = self.places[row].tolist().index(leader)
        for members in (self.ids, self.places):
            members[row, 0], members[row, at] = int(members[row, at]), int(members[row, 0])


def plan_rebalance(
    topics: Sequence[IdMatrix],
    loads: Loads,
    *,
    racks: Mapping[int, int],
    max_moves: int,
    band: int = BAND,
    choice: LeaderChoice | None = None,
    goal: ResourceGoal | None = None,
    ruled: RuledTopics | None = None,
) -> Rebalance:
    """Even out replicas, then leaders.

    `topics` are the matrices of the topics that may move, short lists padded with -1 at the end;
    they are only read. `loads` are the online SPUs that are not cordoned, saturated ones too, with
    all that they hold;
    `racks` has the rack numbers of the SPUs in the lists that are not in `loads`, counted like
    those in `loads`. max_moves >= 0. `choice` is given where SPUs are demoted, `ruled` where topics
    have rules or replicas that stay.

    A plan carried out whole leaves nothing to a second one, unless lists came to more racks: they
    may not come back from there, so other shares may then be the permitted ones.

    Raises:
        TooManyMovesError: more moves are allowed than one plan is made of, and are needed.
    """
    if len(loads.ids) == 0 or int(loads.capacities.sum()) == 0 or not topics:
        return Rebalance(changed={}, moves=(), reorders=0)
    lists = _joined(topics, loads, ruled)
    before = lists.ids.copy()
    rack_of, rack_matrix = _rack_numbers(lists.ids, loads, racks)
    leads_before = _leads(lists, len(rack_of))
    under_rules = None
    if ruled is not None:
        fullness = _fullness(loads, goal)
        under_rules = RuledLists(
            ruled, lists, racks=rack_matrix, rack_of=rack_of, fullness=fullness
        )
    relief = None
    steps: Iterable[Step]
    is_cut = False
    if goal is None:
        steps, is_cut = _steps_by_count(
            lists, rack_of, rack_matrix, loads, ruled=under_rules, max_moves=max_moves, band=band
        )
    else:
        movable = MovableLists(
            topics=lists.topics.tolist(),
            places=lists.places,
            racks=rack_matrix,
            rack_of=rack_of,
            ruled=under_rules,
        )
        relief = find_relief(movable, goal, demoted=_demoted(loads, choice))
        steps, is_cut = relief.steps, relief.is_cut
    moves, reorders, size = _carry_out(steps, lists, loads, goal, max_moves=max_moves)
    leaders = loads.leaders - leads_before + _leads(lists, len(rack_of))
    if choice is not None:
        reorders += _give_leads_away(lists, choice, ruled, loads, leaders)
        leaders = loads.leaders - leads_before + _leads(lists, len(rack_of))
    able = _able_to_lead(lists, choice, goal, ruled)
    places = np.where(able, lists.places, len(rack_of))
    evened = even_leaders(lists.topics, places, leaders, loads.capacities)
    for row, leader in evened.leader_of.items():
        lists.lead(row, leader)
    if choice is not None:
        _demoted_last(lists, choice, ruled)
    return Rebalance(
        changed=_changed(topics, lists, before),
        moves=tuple(moves),
        reorders=reorders + len(evened.leader_of),
        size=size,
        shares=None if relief is None else relief.shares(lists.places),
        is_cut=is_cut or evened.is_cut,
    )


def _carry_out(
    steps: Iterable[Step],
    lists: _ClusterLists,
    loads: Loads,
    goal: ResourceGoal | None,
    *,
    max_moves: int,
) -> tuple[list[ListMove], int, int]:
    """Change the lists as far as the limits permit: the moves, the reorders and the bytes."""
    moves: list[ListMove] = []
    size = reorders = 0
    for step in steps:
        if step.is_lead:
            lists.lead(step.row, step.taker)
            reorders += 1
            continue
        each = 0 if goal is None else goal.needs[int(lists.topics[step.row])].size
        if len(moves) == max_moves or (
            goal is not None and goal.bytes_max is not None and size + each > goal.bytes_max
        ):
            break
        size += each
        moves.append(lists.move(step, int(loads.ids[step.taker])))
    return moves, reorders, size


def _steps_by_count(
    lists: _ClusterLists,
    rack_of: CountArray,
    rack_matrix: IdMatrix,
    loads: Loads,
    *,
    ruled: RuledLists | None,
    max_moves: int,
    band: int,
) -> tuple[Iterator[Step], bool]:
    """The fewest moves that bring the SPUs' numbers of replicas into their bands, and whether the
    search ended at its limit."""
    if max_moves == 0:
        return iter(()), False
    counts = loads.replicas.astype(np.int64)
    zones = None if ruled is None else ruled.zones()
    shares = _replica_shares(lists, rack_of, rack_matrix, loads, zones)
    bands = _bands(shares, loads.capacities, band)
    needed = bands.moves(counts)
    if min(needed, max_moves) > REBALANCE_MOVES_MAX:
        raise TooManyMovesError(needed)
    if needed > max(max_moves, WHOLE_PLAN_MAX):
        bands = bands.widest(counts, moves=max_moves)

    pool: ReplicaPool | RuledPool
    if ruled is None:
        pool = ReplicaPool(lists.places, rack_matrix, rack_of, topics=lists.topics)
    else:
        pool = RuledPool(ruled, rack_matrix, rack_of, topics=lists.topics)
    evened = even_out(pool, counts, bands, looks_max=LOOKS_MAX)
    order = in_order(evened.pool.changes(), counts, evened.counts, shares, bands)
    return (Step(*change, is_lead=False) for change in order), evened.is_cut


def _demoted(loads: Loads, choice: LeaderChoice | None) -> frozenset[int]:
    """The positions of the SPUs that are to lead nothing."""
    places = () if choice is None else np.flatnonzero(np.isin(loads.ids, choice.demoted))
    return frozenset(map(int, places))


def _fullness(loads: Loads, goal: ResourceGoal | None) -> list[int]:
    """The share of each SPU that is used, of slots or of any resource."""
    capacities, used = loads.capacities[:, None].tolist(), loads.replicas[:, None].tolist()
    if goal is not None:
        capacities, used = goal.loads.capacities, goal.loads.used
    return [dominant_share(*pair) for pair in zip(used, capacities, strict=True)]


def _able_to_lead(
    lists: _ClusterLists,
    choice: LeaderChoice | None,
    goal: ResourceGoal | None,
    ruled: RuledTopics | None,
) -> Flags:
    """Which members may take part when leaders are evened; shape (lists, members)."""
    able = np.ones(lists.ids.shape, dtype=np.bool_)
    if choice is not None:
        able &= ~np.isin(lists.ids, choice.demoted)
    if goal is not None:
        settled = [need.leader != need.follower for need in goal.needs]
        able &= ~np.array(settled)[lists.topics][:, None]
    if ruled is not None:
        able &= able_to_lead(ruled, lists)
    return able


def _give_leads_away(
    lists: _ClusterLists,
    choice: LeaderChoice,
    ruled: RuledTopics | None,
    loads: Loads,
    leaders: CountArray,
    /,
) -> int:
    """Let others lead what demoted SPUs lead; the number of lists in which one does."""
    counts = dict(zip(loads.ids.tolist(), leaders.tolist(), strict=True))
    choice.recount(counts.items())
    choices = {} if ruled is None else ruled.choices
    has_own = np.isin(lists.topics, list(choices))[:, None]
    swaps = choice.swaps(np.where(has_own, -1, lists.ids))
    for topic, own in choices.items():
        own.recount(counts.items())
        rows = np.flatnonzero(lists.topics == topic)
        swaps += [(int(rows[at]), place) for at, place in own.swaps(lists.ids[rows])]
    swap_leaders(lists.ids, swaps)
    swap_leaders(lists.places, swaps)
    return len(swaps)


def _joined(topics: Sequence[IdMatrix], loads: Loads, ruled: RuledTopics | None) -> _ClusterLists:
    width = max(matrix.shape[1] for matrix in topics)
    sizes = [len(matrix) for matrix in topics]
    ids = np.full((sum(sizes), width), -1, dtype=np.int32)
    at = 0
    for matrix in topics:
        ids[at : at + len(matrix), : matrix.shape[1]] = matrix
        at += len(matrix)
    found = np.minimum(np.searchsorted(loads.ids, ids), len(loads.ids) - 1)
    places = np.where(loads.ids[found] == ids, found, len(loads.ids)).astype(np.int32)
    topic_of = np.repeat(np.arange(len(topics), dtype=np.int32), sizes)
    if ruled is not None:
        has_rules = np.array([rules is not None for rules in ruled.rules])[topic_of][:, None]
        is_closed = np.append(ruled.closed, False)[places]
        places[is_closed & ~has_rules] = len(loads.ids)
    partitions = [np.arange(size, dtype=np.int32) for size in sizes]
    return _ClusterLists(
        topics=topic_of,
        partitions=np.concatenate(partitions),
        ids=ids,
        places=places,
    )


def _replica_shares(
    lists: _ClusterLists,
    rack_of: CountArray,
    rack_matrix: IdMatrix,
    loads: Loads,
    zones: Zones | None,
) -> Shares:
    """The fair share of replicas of each online SPU."""
    movable = np.bincount(lists.places.ravel(), minlength=len(loads.ids) + 1)[:-1]
    holders = Holders(
        capacities=loads.capacities.tolist(),
        fixed=(loads.replicas - movable).tolist(),
        racks=rack_of if zones is None else zones.of,
    )
    return fair_shares(holders, kinds_of(lists.places, rack_matrix, rack_of, zones))


def _bands(shares: Shares, capacities: CountArray, band: int) -> Bands:
    """So many replicas on either side of the fair share, in whole ones: of a band of 0 the share
    rounded down and up."""
    floors, ceilings = [], []
    for share, capacity in zip(shares, capacities.tolist(), strict=True):
        highest = floor(share + band) if band else ceil(share)
        lowest = ceil(share - band) if band else floor(share)
        ceilings.append(min(highest, capacity))
        floors.append(min(ceilings[-1], max(0, lowest)))
    return Bands(
        floors=np.array(floors, dtype=np.int64),
        ceilings=np.array(ceilings, dtype=np.int64),
        limits=capacities,
    )


def _rack_numbers(
    ids: IdMatrix, loads: Loads, racks: Mapping[int, int]
) -> tuple[CountArray, IdMatrix]:
    """The rack of each online SPU, 0 … without gaps, and of each replica: then come the racks of
    others alone; -1 where a list is short."""
    known, rack_of = np.unique(loads.racks, return_inverse=True)
    number_of = {rack: number for number, rack in enumerate(known.tolist())}
    online = dict(zip(loads.ids.tolist(), rack_of.tolist(), strict=True))
    every = np.unique(ids[ids >= 0])
    numbers = [
        online[i] if i in online else number_of.setdefault(racks[i], len(number_of))
        for i in every.tolist()
    ]
    numbers.append(-1)  # of the padding
    at = np.where(ids >= 0, np.searchsorted(every, ids), len(every))
    return rack_of, np.array(numbers, dtype=np.int32)[at]


def _leads(lists: _ClusterLists, count: int) -> CountArray:
    """How many of the lists each of the online SPUs leads."""
    return np.bincount(lists.places[:, 0], minlength=count + 1)[:count].astype(np.int64)


def _demoted_last(lists: _ClusterLists, choice: LeaderChoice, ruled: RuledTopics | None) -> None:
    """Let those that are not to lead follow all others."""
    is_demoted = np.isin(lists.ids, choice.demoted)
    for topic, own in ({} if ruled is None else ruled.choices).items():
        rows = lists.topics == topic
        is_demoted[rows] = np.isin(lists.ids[rows], own.demoted)
    ranks = np.where(lists.ids < 0, 2, is_demoted)[:, 1:]
    order = np.argsort(ranks, axis=1, kind="stable")
    for members in (lists.ids, lists.places):
        members[:, 1:] = np.take_along_axis(members[:, 1:], order, axis=1)


def _changed(
    topics: Sequence[IdMatrix], lists: _ClusterLists, before: IdMatrix
) -> dict[int, IdMatrix]:
    """The new matrices of the topics in which any list differs."""
    touched = np.unique(lists.topics[(lists.ids != before).any(axis=1)])
    ends = np.cumsum([len(matrix) for matrix in topics])
    changed = {}
    for index in touched.tolist():
        rows, width = topics[index].shape
        end = int(ends[index])
        changed[index] = lists.ids[end - rows : end, :width].copy()
    return changed
