"""Where replicas go: the pure functions under every policy.

They turn an order of the ring into replica lists and know nothing of clusters, capacity or topics.
Whoever calls them sees to it that the ring cannot change within a call.

Rules:
- An index counts partitions of one long topic. It may grow for ever, so it is reduced before numpy
  sees it: placement repeats after a period, stated at each function, N the length of the ring.
- Results are new int32 arrays of shape (partitions, replicas), SPU ids, leader first, distinct in
  a row.
- 1 <= replicas <= N, partitions >= 1, start >= 0 and shift >= 0 are the caller's to check; asking
  for anything else is a bug and raises `InvariantError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.limits import REDPANDA_CORE0_WEIGHT
from spu_assigner.core.base.replica_lists import IdArray, IdMatrix

IntArray = NDArray[np.signedinteger[Any]]  # shape (n,)

ROWS_AT_ONCE = 16_384  # so that their columns stay in a processor's cache
ROWS_BY_HAND_MAX = 48  # below it, walking in plain Python beats building the table of nearest racks


def round_robin(ring: IdArray, *, start: int, partitions: int, replicas: int) -> IdMatrix:
    """Place each partition on the next SPU, its followers after a gap that grows with each turn.

    Period: N * (N - replicas + 1). Cost: one copy for each turn of the ring and each column.

    Source: Fluvio 0.11.10 documentation, "Replica Assignment", CRA without rack.
    """
    _require(ring, start=start, partitions=partitions, replicas=replicas)
    followers = [(replica, 0) for replica in range(1, replicas)]
    return _turn(ring, start, partitions, followers, len(ring) - replicas + 1)


def walk(sequence: IdArray, *, start: int, partitions: int, replicas: int) -> IdMatrix:
    """Place each partition on SPUs that are neighbours in the sequence, one step further each time.

    Period: N.

    Source: Fluvio 0.11.10 documentation, "Replica Assignment", CRA with rack, stage 3.
    """
    _require(sequence, start=start, partitions=partitions, replicas=replicas)
    followers = [(replica, 0) for replica in range(1, replicas)]
    return _turn(sequence, start, partitions, followers, 1)


def shifted(ring: IdArray, *, start: int, shift: int, partitions: int, replicas: int) -> IdMatrix:
    """Place leaders in turn, followers behind a shift that rises by one with each turn of the ring.

    Period: N * (N - 1). Cost: as `round_robin`.

    Source: Kafka 4.0.0, AdminUtils.assignReplicasToBrokers without racks.
    """
    _require(ring, start=start, partitions=partitions, replicas=replicas)
    followers = [(1, shift + follower) for follower in range(replicas - 1)]
    return _turn(ring, start, partitions, followers, max(1, len(ring) - 1))


def shifted_over_racks(
    ring: IdArray, racks: IntArray, *, start: int, shift: int, partitions: int, replicas: int
) -> IdMatrix:
    """Place leaders in turn; followers walk on from the leader, over racks not used while any is.

    `ring` is the list that `alternation` gives; `racks` has the rack of each, numbered from 0 in
    any way. Period: N * (N - 1), or a divisor of it. Cost: O(partitions * replicas**2), however
    uneven the racks, since each step jumps to the nearest rack that was not looked at yet.

    Source: Kafka 4.0.0, AdminUtils.assignReplicasToBrokers with racks.
    """
    return shifted_over_racks_counted(
        ring, racks, start=start, shift=shift, partitions=partitions, replicas=replicas
    )[0]


def shifted_over_racks_counted(
    ring: IdArray, racks: IntArray, *, start: int, shift: int, partitions: int, replicas: int
) -> tuple[IdMatrix, IdMatrix]:
    """As `shifted_over_racks`; also how many SPUs each row's walk passed over.

    The second array has a row for each partition: passed over for their rack, and because the list
    had them already.
    """
    _require(ring, start=start, partitions=partitions, replicas=replicas)
    size = len(ring)
    if size == 1:
        none = np.zeros((partitions, 2), dtype=np.int32)
        return np.full((partitions, 1), ring[0], dtype=np.int32), none
    rack_count = int(np.count_nonzero(np.bincount(racks)))
    steps = size - 1  # the walk passes every SPU but the leader, then begins again
    rows = min(partitions, size * (steps // gcd(rack_count, steps)))
    turn, position = divmod(start, size)
    turns = -(-(position + rows) // size)
    offset_of_turn = np.array(
        [(shift + turn + later) * rack_count % steps for later in range(turns)], dtype=np.int32
    )
    if rows <= ROWS_BY_HAND_MAX:
        first, offset = _begins(offset_of_turn, position, rows, size)
        chosen, passed = _walk_by_hand(racks, rack_count, first, offset, replicas)
        return _repeat(ring[chosen], partitions), _repeat(passed, partitions)
    nearest = _nearest_racks(racks.tolist(), min(replicas, rack_count))
    rack_at = np.tile(racks.astype(np.int32), 3)
    placed: IdMatrix = np.empty((rows, replicas), dtype=np.int32)
    passed = np.empty((rows, 2), dtype=np.int32)
    for begin in range(0, rows, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, rows - begin)
        first, offset = _begins(offset_of_turn, position + begin, count, size)
        places = _walk_at_once(nearest, rack_at, first, offset, replicas)
        for column, positions in enumerate(places):
            placed[begin : begin + count, column] = ring.take(positions)
        for column, counts in enumerate(_passed_over(places, offset, size)):
            passed[begin : begin + count, column] = counts
    return _repeat(placed, partitions), _repeat(passed, partitions)


def _begins(offset_of_turn: IdArray, begin: int, count: int, size: int) -> tuple[IdArray, IdArray]:
    """For rows from `begin` on: where the leader stands, and how far from it its walk begins."""
    first = np.arange(begin, begin + count, dtype=np.int32)
    turns = first // np.int32(size)
    first -= turns * np.int32(size)
    return first, offset_of_turn[turns]


def diagonal(ids: Sequence[int], racks: Sequence[str]) -> list[int]:
    """Order SPUs by reading the matrix of racks along its diagonals.

    `racks` names the rack of each SPU, "" for none. Rows are racks by size descending, then name,
    ids ascending in a row, W the length of the first. Column k = 0 … W - 1 takes from each row r
    `row[((k + r) % W) % len(row)]`, unless it is taken already. Cost: O(n log n).

    Source: Fluvio 0.11.10 documentation, "Replica Assignment", CRA with rack, stages 1 and 2.
    """
    rows = sorted(_rows_by_rack(ids, racks).items(), key=lambda row: (-len(row[1]), row[0]))
    width = len(rows[0][1]) if rows else 0
    placed = []
    for number, (_, row) in enumerate(rows):
        begin = number % width  # what column 0 reads; column 1 reads the next, and so on
        length = len(row)
        for cell, spu_id in enumerate(row):
            column = (cell - begin) % length
            if begin + column >= width:  # not met before the end of the width: met after it
                column = width - begin + cell
            placed.append((column, number, spu_id))
    placed.sort()
    return [spu_id for _, _, spu_id in placed]


def alternation(ids: Sequence[int], racks: Sequence[str]) -> list[int]:
    """Order SPUs by taking one of each rack in turn, racks by name, ids ascending in a rack.

    Cost: O(n log n).

    Source: Kafka 4.0.0, AdminUtils.getRackAlternatedBrokerList.
    """
    rows = sorted(_rows_by_rack(ids, racks).items())
    placed = [
        (cell, number, spu_id)
        for number, (_, row) in enumerate(rows)
        for cell, spu_id in enumerate(row)
    ]
    placed.sort()
    return [spu_id for _, _, spu_id in placed]


def initial_weights(cores: int) -> list[int]:
    """Weights of the cores of an SPU that holds nothing yet.

    Source: Redpanda's RFC 20191020_partition_allocator, core0_extra_weight.
    """
    return [REDPANDA_CORE0_WEIGHT] + [0] * (cores - 1)


def take_cores(weights: Sequence[int], count: int) -> list[int]:
    """Cores for `count` replicas in order: each time the first core of least weight, plus one.

    `weights` stays as it is. Cost: O(cores * distinct weights + count).

    Source: Redpanda's RFC 20191020_partition_allocator, allocation_node::allocate.
    """
    least = min(weights)
    if count == 1:
        return [weights.index(least)]
    taken: list[int] = []
    levels = sorted(set(weights))
    for level, above in zip(levels, [*levels[1:], levels[-1] + count], strict=True):
        missing = count - len(taken)
        if missing <= 0:
            break
        group = [core for core, weight in enumerate(weights) if weight <= level]
        taken += group * min(above - level, -(-missing // len(group)))
    return taken[:count]


def shrink_weights(weights: Sequence[int], cores: int) -> list[int]:
    """Weights after the number of cores changed.

    Each core that is gone, in order, hands its whole weight to the least loaded that remains, the
    lowest on a tie. Cores that are new start at 0.
    """
    kept = [*weights[:cores], *[0] * (cores - len(weights))]
    for weight in weights[cores:]:
        kept[kept.index(min(kept))] += weight
    return kept


def _require(ring: IdArray, *, start: int, partitions: int, replicas: int) -> None:
    if not 1 <= replicas <= len(ring) or partitions < 1 or start < 0:
        raise InvariantError(
            f"asked to place {partitions} partitions with {replicas} replicas from index {start} "
            f"on a ring of {len(ring)}; expected partitions >= 1, index >= 0, 1 <= replicas <= ring"
        )


def _turn(
    ring: IdArray, start: int, partitions: int, followers: list[tuple[int, int]], span: int
) -> IdMatrix:
    """Rows start, start + 1, … of a placement that turns round the ring, turn by turn.

    In turn t the leader at position x has its follower (base, phase) at position
    x + base + (t + phase) % span.
    """
    size = len(ring)
    rows = min(partitions, size * span)
    turn, position = divmod(start, size)
    twice = np.concatenate((ring, ring))  # base + span <= size: slices end inside
    placed: IdMatrix = np.empty((rows, len(followers) + 1), dtype=np.int32)
    row = 0
    while row < rows:
        end = min(size, position + rows - row)
        block = placed[row : row + end - position]
        block[:, 0] = twice[position:end]
        for column, (base, phase) in enumerate(followers, 1):
            offset = base + (turn + phase) % span
            block[:, column] = twice[position + offset : end + offset]
        row += end - position
        turn, position = turn + 1, 0
    return _repeat(placed, partitions)


def _repeat(period: IdMatrix, partitions: int) -> IdMatrix:
    """The rows of the period over and over, by doubling what is there."""
    rows = len(period)
    if rows == partitions:
        return period
    repeated: IdMatrix = np.empty((partitions, period.shape[1]), dtype=np.int32)
    repeated[:rows] = period
    while rows < partitions:
        more = min(rows, partitions - rows)
        repeated[rows : rows + more] = repeated[:more]
        rows += more
    return repeated


def _rows_by_rack(ids: Sequence[int], racks: Sequence[str]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for spu_id, rack in sorted(zip(ids, racks, strict=True)):
        rows.setdefault(rack, []).append(spu_id)
    return rows


def _walk_by_hand(
    racks: IntArray, rack_count: int, first: IdArray, offset: IdArray, replicas: int
) -> tuple[IdMatrix, IdMatrix]:
    """Positions of each row's replicas, step by step: what Kafka's own loop does; and how many were
    passed over for their rack, and because the row had them."""
    rack_at = racks.tolist()
    size = len(rack_at)
    rows, passed = [], []
    for leader, begin in zip(first.tolist(), offset.tolist(), strict=True):
        row = [leader]
        used = {rack_at[leader]}
        same_rack = in_list = 0
        step = begin
        while len(row) < replicas:
            position = (leader + 1 + step) % size
            rack = rack_at[position]
            if rack not in used if len(used) < rack_count else position not in row:
                row.append(position)
                used.add(rack)
            elif position in row:
                in_list += 1
            else:
                same_rack += 1
            step = (step + 1) % (size - 1)
        rows.append(row)
        passed.append((same_rack, in_list))
    return np.array(rows, dtype=np.int32), np.array(passed, dtype=np.int32)


def _passed_over(places: list[IdArray], offset: IdArray, size: int) -> tuple[IdArray, IdArray]:
    """For each row of positions: how many its walk passed over for their rack, and because the row
    had them.

    Between one replica and the next all were passed over: who is in the row already, for that; the
    others for their rack.
    """
    walked = [_wrapped(column - places[0] - np.int32(1), size) for column in places[1:]]
    same_rack, in_list = np.zeros_like(offset), np.zeros_like(offset)
    place = offset
    for at, column in enumerate(walked):
        gone_by = _wrapped(column - place, size - 1)
        for earlier in walked[:at]:
            in_list += _wrapped(earlier - place, size - 1) < gone_by
        same_rack += gone_by
        place = column + np.int32(1)
        place[place == size - 1] = 0
    return same_rack - in_list, in_list


def _wrapped(values: IdArray, size: int) -> IdArray:
    """Values from 1 - size to size - 1 modulo the size, in place and without dividing."""
    values += values >> np.int32(31) & np.int32(size)
    return values


def _walk_at_once(
    nearest: list[IdArray], rack_at: IdArray, first: IdArray, offset: IdArray, replicas: int
) -> list[IdArray]:
    """As `_walk_by_hand`, one replica of all rows at a time: a column of positions for each.

    Places are positions not yet reduced by N: a walk goes from first + 1 to first + N - 1, and
    behind the last comes first + 1 again. `rack_at` has the racks of the ring, three times over.
    """
    size = len(rack_at) // 3
    last = first + np.int32(size - 1)
    place = first + offset + np.int32(1)
    places = [first]
    used = [rack_at[first]]
    for replica in range(1, replicas):
        if replica < len(nearest):
            found = _seek_new_rack(nearest, rack_at, place, used)
            beyond = np.flatnonzero(found > last)
            if beyond.size:  # The rest of the walk has none: on from its beginning.
                used_there = [column[beyond] for column in used]
                found[beyond] = _seek_new_rack(nearest, rack_at, first[beyond] + 1, used_there)
            if replica + 1 < len(nearest):
                used.append(rack_at[found])
        else:
            found = _seek_new_spu(first, last, place, places, size)
        places.append(np.where(found < size, found, found - np.int32(size)))
        place = np.where(found == last, first, found) + np.int32(1)
    return places


def _nearest_racks(racks: list[int], depth: int) -> list[IdArray]:
    """At [t][place], places from 0 to 2N - 1: where the (t + 1)th rack is met on the way on.

    There must be so many racks.
    """
    size = len(racks)
    met: list[int] = []  # places, each of another rack, the nearest first
    racks_met: list[int] = []
    for place, rack in enumerate(racks, size):
        if len(met) == depth:
            break
        if rack not in racks_met:
            met.append(place)
            racks_met.append(rack)
    rows: list[list[int]] = []
    for place in range(size - 1, -1, -1):
        rack = racks[place]
        gone = racks_met.index(rack) if rack in racks_met else -1
        del met[gone], racks_met[gone]
        met.insert(0, place)
        racks_met.insert(0, rack)
        rows.append(met.copy())
    once = np.array(rows[::-1], dtype=np.int32).T
    return list(np.concatenate((once, once + np.int32(size)), axis=1))


def _seek_new_rack(
    nearest: list[IdArray], rack_at: IdArray, place: IdArray, used: list[IdArray]
) -> IdArray:
    """The first place from each `place` on with a rack not used; it may lie behind the walk."""
    found = place.copy()
    unfit = np.flatnonzero(_is_among(rack_at[found], used))
    depth = 0
    while unfit.size:  # Of one rack more than are used, one is new.
        depth += 1
        found[unfit] = nearest[depth][place[unfit]]
        still = _is_among(rack_at[found[unfit]], [column[unfit] for column in used])
        unfit = unfit[still]
    return found


def _seek_new_spu(
    first: IdArray, last: IdArray, place: IdArray, places: list[IdArray], size: int
) -> IdArray:
    """The first place of each walk from `place` on whose SPU has no replica of the row."""
    found = place.copy()
    unfit = np.flatnonzero(_is_among(found % np.int32(size), places))
    while unfit.size:  # Each step passes a replica of the row: at most `replicas`.
        there = found[unfit]
        there = np.where(there == last[unfit], first[unfit], there) + np.int32(1)
        found[unfit] = there
        still = _is_among(there % np.int32(size), [column[unfit] for column in places])
        unfit = unfit[still]
    return found


def _is_among(values: IdArray, columns: list[IdArray]) -> NDArray[np.bool_]:
    among: NDArray[np.bool_] = values == columns[0]
    for column in columns[1:]:
        among |= values == column
    return among
