"""Orders and replica lists in the plainest words: one list at a time, as the contract says."""

from __future__ import annotations


def diagonal_order(racks: dict[int, str]) -> list[int]:
    """Fluvio's sequence over racks."""
    rows = _rows(racks)
    matrix = [rows[rack] for rack in sorted(rows, key=lambda rack: (-len(rows[rack]), rack))]
    width = max((len(row) for row in matrix), default=0)
    sequence: list[int] = []
    for k in range(width):
        for r, row in enumerate(matrix):
            spu_id = row[((k + r) % width) % len(row)]
            if spu_id not in sequence:
                sequence.append(spu_id)
    return sequence


def alternation_order(racks: dict[int, str]) -> list[int]:
    """Kafka's rack-alternated list."""
    rows = _rows(racks)
    alternated: list[int] = []
    while any(rows.values()):
        for rack in sorted(rows):
            if rows[rack]:
                alternated.append(rows[rack].pop(0))
    return alternated


def _rows(racks: dict[int, str]) -> dict[str, list[int]]:
    return {
        rack: sorted(spu_id for spu_id in racks if racks[spu_id] == rack)
        for rack in set(racks.values())
    }


def fluvio_list(ring: list[int], *, index: int, replicas: int) -> list[int]:
    """Fluvio without racks: the replica list at this chain index."""
    size = len(ring)
    gap = (index // size) % (size - replicas + 1)
    return [ring[index % size], *(ring[(index + r + gap) % size] for r in range(1, replicas))]


def fluvio_rack_list(sequence: list[int], *, index: int, replicas: int) -> list[int]:
    return [sequence[(index + r) % len(sequence)] for r in range(replicas)]


def kafka_list(ring: list[int], *, first: int, shift: int, replicas: int) -> list[int]:
    size = len(ring)
    chosen = [ring[first]]
    for j in range(replicas - 1):
        chosen.append(ring[(first + 1 + (shift + j) % (size - 1)) % size])
    return chosen


def kafka_rack_list(
    ring: list[int], racks: dict[int, str], *, first: int, shift: int, replicas: int
) -> list[int]:
    size = len(ring)
    all_racks = {racks[spu_id] for spu_id in ring}
    chosen = [ring[first]]
    k = 0
    while len(chosen) < replicas:
        spu_id = ring[(first + 1 + (shift * len(all_racks) + k) % (size - 1)) % size]
        k += 1
        used_racks = {racks[other] for other in chosen}
        if racks[spu_id] in used_racks and used_racks != all_racks:
            continue
        if spu_id in chosen and len(chosen) < size:
            continue
        chosen.append(spu_id)
    return chosen
