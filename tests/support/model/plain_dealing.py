"""How `balanced` fills many lists, one cell after the other, as its rules say it.

Imports nothing of the product, which is held against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WORD = 2**64 - 1
FIRST = 0x9E3779B97F4A7C15
SECOND = 0xBF58476D1CE4E5B9

Rows = list[list[int]]


@dataclass(frozen=True, kw_only=True)
class Spu:
    """What an SPU brings to a division."""

    group: int
    capacity: int
    held: int
    limit: int  # what it may take


def interleaved(counts: Sequence[int], positions: Sequence[int]) -> list[int]:
    """Each index as often as its count says, at the places (2t + 1) / 2c, equals by position."""
    cards = [
        (((2 * turn + 1) << 32) // count, positions[index], index)
        for index, count in enumerate(counts)
        for turn in range(count)
    ]
    return [index for *_, index in sorted(cards)]


def dealt(counts: Sequence[int], groups: Sequence[int], seed: int) -> list[int]:
    """The same by group, with places of 20 bits, equals by 15 mixed bits, then by index."""
    cards = [
        (
            groups[index],
            ((2 * turn + 1) << 20) // (2 * count),
            mixed(index << 32 | turn, seed) >> 49,
            index,
        )
        for index, count in enumerate(counts)
        for turn in range(count)
    ]
    return [index for *_, index in sorted(cards)]


def mixed(number: int, seed: int) -> int:
    """64 bits made of a number and a seed."""
    word = number * FIRST & WORD ^ seed * SECOND & WORD
    word = (word ^ word >> 30) * SECOND & WORD
    return word ^ word >> 31


def repaired(rows: Rows, groups: Rows | None, seed: int, tries: int) -> list[int]:
    """Swap followers of the rows, in rounds, until no row has a number twice.

    In a round each row that has one asks one cell of its group for a swap: the second cell of the
    smallest number that comes twice. Of those who ask the same row the first is served. Returns the
    rows that had a number twice when the last round began.
    """
    width = len(rows[0]) - 1
    cells = [(row, column) for row in range(len(rows)) for column in range(1, width + 1)]
    members: dict[int, list[tuple[int, int]]] = {}
    for row, column in cells:
        members.setdefault(groups[row][column - 1] if groups else 0, []).append((row, column))
    bad = [row for row in range(len(rows)) if len(set(rows[row])) <= width]
    for attempt in range(tries):
        bad = [row for row in bad if len(set(rows[row])) <= width]
        swaps: dict[int, tuple[int, int, int]] = {}
        for row in bad:
            given = min(number for number in rows[row] if rows[row].count(number) > 1)
            column = rows[row].index(given, rows[row].index(given) + 1)
            own = members[groups[row][column - 1] if groups else 0]
            other, other_column = own[(mixed(row << 8 | attempt, seed) >> 32) % len(own)]
            taken = rows[other][other_column]
            if other not in bad and given not in rows[other] and taken not in rows[row]:
                swaps.setdefault(other, (other_column, row, column))
        for other, (other_column, row, column) in swaps.items():
            rows[row][column], rows[other][other_column] = (
                rows[other][other_column],
                rows[row][column],
            )
    return bad


def racks_apart(
    to_follow: Sequence[int], leading: Sequence[int], followers: int, seed: int, tries: int
) -> Rows | None:
    """For each row the racks of its followers; None where swapping does not get there.

    Dealt are the racks that a row has, or, where these are more than half, those that it has not.
    """
    racks, width, counts = len(to_follow), followers, list(to_follow)
    if racks - 1 - followers < followers:
        width = racks - 1 - followers
        counts = [len(leading) - counts[rack] - leading.count(rack) for rack in range(racks)]
    cards = dealt(counts, [0] * racks, seed)
    rows = [[leader, *cards[at * width : (at + 1) * width]] for at, leader in enumerate(leading)]
    if width and repaired(rows, None, seed, tries):
        return None
    if width == followers:
        return [row[1:] for row in rows]
    present = [[rack for rack in range(racks) if rack not in row] for row in rows]
    return [turned(row, at) for at, row in enumerate(present)]


def turned(row: list[int], by: int) -> list[int]:
    """The row, begun so many places later."""
    turn = by % max(len(row), 1)
    return row[turn:] + row[:turn]


def all_racks(leading: Sequence[int], followers: int, seed: int) -> Rows:
    """Racks where a row has all of them: those after the leader's, begun later from row to row."""
    others = [
        [(rack + 1 + step) % (followers + 1) for step in range(followers)] for rack in leading
    ]
    return [turned(row, seed + at) for at, row in enumerate(others)]


def racks_shared(
    totals: Sequence[int], lower: Sequence[int], leading: Sequence[int], seed: int
) -> Rows:
    """For each row the racks of its followers, ascending: `lower` of each and one more of some,
    who come to the rows in mixed order."""
    lists = len(leading)
    rows = [[rack for rack, least in enumerate(lower) for _ in range(least)] for _ in leading]
    extra = [rack for rack, total in enumerate(totals) for _ in range(total - lists * lower[rack])]
    order = sorted(range(lists), key=lambda row: (mixed(row, seed), row))
    for at, rack in enumerate(extra):
        rows[order[at % lists]].append(rack)
    for row, leader in zip(rows, leading, strict=True):
        row.remove(leader)
        row.sort()
    return rows


def in_cells(racks: Rows, sequence: Sequence[int], rack_of: Sequence[int]) -> Rows:
    """The racks' cells, row by row, filled with the SPUs of a sequence that goes by rack."""
    own: dict[int, list[int]] = {}
    for spu in sequence:
        own.setdefault(rack_of[spu], []).append(spu)
    return [[own[rack].pop(0) for rack in row] for row in racks]


def shares(
    spus: Sequence[Spu], lower: Sequence[int], upper: Sequence[int], total: int
) -> list[tuple[int, bool]]:
    """What each SPU gets for sure, and whether it is among equals for one more.

    All keys are looked at one after the other. A group that would stay below its lower bound, or
    go past its upper one, gets just that; the others get all up to the same key.
    """
    keys = sorted(
        ((2 * (spu.held + more) - 1) << 62) // spu.capacity * len(lower) + spu.group
        for spu in spus
        for more in range(1, spu.limit + 1)
    )
    own: list[list[int]] = [[] for _ in lower]
    for key in keys:
        own[key % len(lower)].append(key // len(lower))
    last = [-1] * len(lower)
    if sum(upper) != total:
        for key in (-1, *(key // len(lower) for key in keys)):
            given = [sum(each <= key for each in of_group) for of_group in own]
            bounds = zip(given, lower, upper, strict=True)
            if sum(min(max(count, least), most) for count, least, most in bounds) >= total:
                break
        last = [key] * len(lower)
    for group, of_group in enumerate(own):
        if sum(upper) == total or sum(each < last[group] for each in of_group) > upper[group]:
            last[group] = of_group[upper[group] - 1] if upper[group] else -1
        elif sum(each <= last[group] for each in of_group) < lower[group]:
            last[group] = of_group[lower[group] - 1]
    found = []
    for spu in spus:
        numbers = range(spu.held + 1, spu.held + spu.limit + 1)
        mine = [((2 * number - 1) << 62) // spu.capacity for number in numbers]
        found.append((sum(key < last[spu.group] for key in mine), last[spu.group] in mine))
    return found
