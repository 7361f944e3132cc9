"""The policy `balanced`: every list valid, then every SPU its fair share, then many neighbours.

Rules, in this order:
1. The SPUs of a list are distinct; so are its racks when the ring has as many. Otherwise a list is
   as even over racks as can be: of a rack of m SPUs it has min(m, c - 1) … min(m, c), with the
   smallest c that gives it enough.
2. Each SPU's share of its capacity is as even, over all topics, as rule 1 permits; likewise, where
   that leaves a choice, its leaders as a share of its capacity.
3. The lists led by one SPU have many different followers: what it led spreads when it fails.
   Which of them comes first, and so leads then, is decided in `failover`.

How: first the number of replicas and of leaders of each SPU (`quotas`), then the lists
(`list_filling`; large requests that fill nobody: `by_leader`).

An SPU whose last slot is taken leaves the ring. Numbers are made for as many lists as the rule
about racks allows on the ring as it is; the others are placed on the ring as it then is.

No randomness: what looks so is a fixed mixing of ids, counts and `start`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

import numpy as np
from spu_assigner.core.balanced.by_leader import rows_by_leader
from spu_assigner.core.balanced.list_filling import Task, fill_rows
from spu_assigner.core.balanced.mixing import mixed_turns
from spu_assigner.core.balanced.quotas import Takers, even_shares, keys
from spu_assigner.core.balanced.small_quotas import SmallRequest
from spu_assigner.core.balanced.small_request import place_few
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.state.ledger import CountArray
from spu_assigner.core.state.loads import Layout, Loads

ROWS_AT_ONCE: Final = 4_096  # so that numpy's wider copy of their numbers stays small
# Replicas of a request up to which plain Python is faster; more are dealt leader by leader.
SMALL_REQUEST_CELLS_MAX: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """The ring while it does not change its rule about racks, SPUs sorted by rack, then id."""

    ids: CountArray
    racks: CountArray  # 0 … without gaps, ascending
    starts: CountArray  # where each rack begins
    capacities: CountArray
    replicas: CountArray
    leaders: CountArray
    free: CountArray  # 1 or more
    lower: CountArray  # replicas of a list on each rack: at least
    upper: CountArray  # at most
    positions: CountArray  # 0 for the SPU preferred on a tie, and on by id

    def takes(self, lists: int, replicas: int) -> bool:
        """Whether so many lists can be placed under one rule."""
        slots = np.add.reduceat(np.minimum(self.free, lists), self.starts)
        usable = np.minimum(slots, lists * self.upper).sum()
        return bool((slots >= lists * self.lower).all() and usable >= lists * replicas)


def place_balanced(loads: Loads, *, partitions: int, replicas: int, start: int) -> IdMatrix:
    """Place the partitions on the ring whose members `loads` describes.

    `start` says which position in id order is preferred to lead on a tie (modulo the ring's size),
    and varies who comes together. Members without a free slot are passed over.

    Returns one row a partition, leader first. **Fewer rows than partitions** when the ring became
    too small: the next partition finds fewer than `replicas` SPUs with a free slot.
    Cost: O(n log n) for n SPUs and O(cells log n); vectorised when the ring has `replicas` racks.
    """
    if partitions < 1 or replicas < 1 or start < 0:
        raise InvariantError(
            f"asked for {partitions} partitions of {replicas} replicas from {start}; expected 1 or "
            f"more of both, from 0 or later"
        )
    held, led = loads.replicas, loads.leaders
    if partitions * replicas <= SMALL_REQUEST_CELLS_MAX and replicas <= len(loads.ids):
        layout = loads.layout or Layout.of(loads.ids, loads.racks, loads.capacities)
        if int((layout.capacities - held).min()) >= partitions:
            return place_few(
                SmallRequest(
                    layout=layout,
                    rule=layout.rule(replicas),
                    ids=loads.ids,
                    held=held,
                    led=led,
                    lists=partitions,
                    replicas=replicas,
                    begin=start % len(loads.ids),
                    seed=start % 2**32,
                )
            )
    held, led = held.astype(np.int64), led.astype(np.int64)
    by_leader = is_by_leader(loads, partitions=partitions, replicas=replicas)
    blocks: list[IdMatrix] = []
    done = 0
    while done < partitions:
        field = field_of(loads, held, led, replicas, start + done)
        if field is None:
            break
        count = lists_under_one_rule(field, partitions - done, replicas)
        seed = (start + done) % 2**32
        quotas, leaders = _quotas(field, count, replicas, seed)
        rows = filled(field, quotas, leaders, replicas, seed, by_leader=by_leader)
        blocks.append(rows)
        done += count
        if done == partitions:
            break
        held += np.bincount(np.searchsorted(loads.ids, rows.ravel()), minlength=len(held))
        led += np.bincount(np.searchsorted(loads.ids, rows[:, 0]), minlength=len(led))
    if len(blocks) == 1:
        return blocks[0]
    return np.concatenate(blocks) if blocks else np.zeros((0, replicas), dtype=np.int32)


def is_by_leader(loads: Loads, *, partitions: int, replicas: int) -> bool:
    """Whether lists are dealt leader by leader, where they are on distinct racks or racks do not
    matter: they are many, and fill no slot."""
    is_large = partitions * replicas > SMALL_REQUEST_CELLS_MAX
    return is_large and bool((loads.capacities - loads.replicas > partitions).all())


def field_of(
    loads: Loads,
    held: CountArray,
    led: CountArray,
    replicas: int,
    start: int,
    *,
    room: CountArray | None = None,
) -> Field | None:
    """The ring with these counts; None when it has fewer SPUs than a list.

    `room` says how many replicas each SPU can take; None: as many as it has free slots.
    """
    if room is None:
        room = loads.capacities.astype(np.int64) - held
    members = np.flatnonzero(room > 0)
    if len(members) < replicas:
        return None
    positions = (np.arange(len(members)) - start % len(members)) % len(members)
    by_rack = np.argsort(loads.racks[members], kind="stable")
    members, positions = members[by_rack], positions[by_rack]
    racks = loads.racks[members]
    begins = np.concatenate(([True], racks[1:] != racks[:-1]))
    starts = np.flatnonzero(begins)
    if len(starts) == 1:  # Then SPUs need only be distinct, as if each were a rack.
        starts, begins = np.arange(len(members)), np.ones(len(members), dtype=np.bool_)
    sizes = np.diff(starts, append=len(members))
    at_most = 1
    while int(np.minimum(sizes, at_most).sum()) < replicas:
        at_most += 1
    capacities = loads.capacities[members].astype(np.int64)
    return Field(
        ids=loads.ids[members].astype(np.int64),
        racks=np.cumsum(begins) - 1,
        starts=starts,
        capacities=capacities,
        replicas=held[members],
        leaders=led[members],
        free=room[members],
        lower=np.minimum(sizes, at_most - 1),
        upper=np.minimum(sizes, at_most),
        positions=positions,
    )


def lists_under_one_rule(field: Field, wanted: int, replicas: int) -> int:
    """How many lists can be placed before the rule about racks becomes another; at least 1."""
    if field.takes(wanted, replicas):
        return wanted
    too_many = bisect_left(
        range(2, wanted), True, key=lambda lists: not field.takes(lists, replicas)
    )
    return 1 + too_many


def filled(
    field: Field,
    quotas: CountArray,
    leaders: CountArray,
    replicas: int,
    seed: int,
    *,
    by_leader: bool = False,
) -> IdMatrix:
    """Lists in which each SPU is as often, and leads as many, as the numbers say.

    `by_leader`: the order of followers is that of `rows_by_leader`, where that has rows.
    """
    task = Task(
        ids=field.ids,
        racks=field.racks,
        starts=field.starts,
        lower=field.lower,
        upper=field.upper,
        quotas=quotas,
        leaders=leaders,
        positions=field.positions,
        replicas=replicas,
        seed=seed,
    )
    rows = None
    if by_leader and replicas > 1 and int(field.upper.max()) == 1:
        rows = rows_by_leader(task, capacities=field.capacities, led=field.leaders)
    if rows is None:
        rows = fill_rows(task)
    ids = field.ids.astype(np.int32)
    placed = np.empty(rows.shape, dtype=np.int32)
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        placed[begin : begin + ROWS_AT_ONCE] = ids.take(rows[begin : begin + ROWS_AT_ONCE])
    return placed


def _quotas(field: Field, lists: int, replicas: int, seed: int) -> tuple[CountArray, CountArray]:
    """How many replicas each SPU gets, and how many of them lead.

    Between SPUs that deserve a replica alike, those that are to lead get it, then those that lead
    most: the others are kept to lead the next topics. Leaders are given by ascending key too; one
    that needs a replica which its rack has no room for is given to the next. Whether leaders fit
    depends on nested bounds as well, so that is the best any choice of equally good replicas gives.
    """
    single = len(field.starts) == len(field.ids)
    shares = even_shares(
        Takers(
            capacities=field.capacities,
            held=field.replicas,
            limits=np.minimum(field.free, lists),
            groups=np.zeros_like(field.racks) if single else field.racks,
            starts=field.starts[:1] if single else field.starts,
            lower=np.array([lists * replicas]) if single else lists * field.lower,
            upper=np.array([lists * replicas]) if single else lists * field.upper,
            total=lists * replicas,
        )
    )
    may_lead = shares.sure + shares.tied
    while True:
        leaders = even_leaders(field, may_lead, lists)
        wanted = np.flatnonzero(leaders > shares.sure)
        key = keys(field.capacities[wanted], field.leaders[wanted] + leaders[wanted])
        wanted = wanted[np.lexsort((field.positions[wanted], key))]
        chosen = shares.choose(wanted)
        if len(chosen) == len(wanted):
            break
        may_lead = np.where(shares.beyond(chosen), shares.sure, may_lead)
    others = shares.tied.copy()
    others[wanted] = False
    rest = np.flatnonzero(others)
    key = keys(field.capacities[rest], field.leaders[rest] + 1)
    tie = mixed_turns(field.ids[rest], field.replicas[rest], seed)
    rest = rest[np.lexsort((tie, -key))]
    quotas = shares.sure.copy()
    quotas[shares.choose(np.concatenate((chosen, rest)))] += 1
    return quotas, leaders


def even_leaders(field: Field, limits: CountArray, lists: int) -> CountArray:
    """How many of the lists each SPU leads, at most so many; as a share of its capacity even."""
    able = np.flatnonzero(limits)
    shares = even_shares(
        Takers(
            capacities=field.capacities[able],
            held=field.leaders[able],
            limits=limits[able],
            groups=np.zeros_like(able),
            starts=field.starts[:1],
            lower=np.array([lists]),
            upper=np.array([lists]),
            total=lists,
        )
    )
    tied = np.flatnonzero(shares.tied)
    tied = tied[np.argsort(field.positions[able[tied]])]
    leaders = np.zeros(len(limits), dtype=np.int64)
    leaders[able] = shares.sure
    leaders[able[shares.choose(tied)]] += 1
    return leaders
