"""How even the lists of a cluster are, measured from outside: lists and SPUs alone are read."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
HALVINGS = 100  # of an interval: more than a float has bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    rack: str | None
    capacity: int


Hosts = Mapping[int, Host]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evenness:
    """Figures of all lists of a cluster."""

    leaders_min: int  # on an SPU
    leaders_max: int
    replicas_min: int
    replicas_max: int
    alike_leaders_spread: int  # most less least of SPUs of one rack and capacity, where it is worst
    alike_replicas_spread: int
    leaders_off: float  # furthest that an SPU is from its fair share, in replicas
    replicas_off: float
    fullest_percent: float  # of its capacity that the fullest SPU holds
    diverse_percent: float | None  # lists on as many racks as can be; None: there are no racks
    peers_min: int  # different followers in the lists that one SPU leads
    peers_median: float


def evenness(hosts: Hosts, lists: Iterable[list[int]]) -> Evenness:
    """Measure lists that all have the same length; each SPU in them is one of the hosts."""
    ids = np.array(sorted(hosts))
    rows = np.searchsorted(ids, np.array(list(lists)))
    names = [hosts[spu_id].rack or "" for spu_id in ids.tolist()]
    racks = np.unique(names, return_inverse=True)[1]
    rack_count = int(racks.max()) + 1
    capacities = np.array([hosts[spu_id].capacity for spu_id in ids.tolist()], dtype=np.float64)
    alike = np.unique(np.stack((racks, capacities)), axis=1, return_inverse=True)[1].ravel()
    leaders = np.bincount(rows[:, 0], minlength=len(ids))
    replicas = np.bincount(rows.ravel(), minlength=len(ids))
    fair = fair_replicas(capacities, racks, lists=len(rows), replicas=rows.shape[1])
    fair_leaders = poured(capacities, fair, float(len(rows)))
    of_rows = np.sort(racks[rows], axis=1)
    different = 1 + (np.diff(of_rows, axis=1) != 0).sum(axis=1)
    diverse = 100 * float((different == min(rows.shape[1], rack_count)).mean())
    led: list[set[int]] = [set() for _ in hosts]
    for leader, *followers in rows.tolist():
        led[leader].update(followers)
    peers = [len(each) for each in led]
    return Evenness(
        leaders_min=int(leaders.min()),
        leaders_max=int(leaders.max()),
        replicas_min=int(replicas.min()),
        replicas_max=int(replicas.max()),
        alike_leaders_spread=_worst_spread(leaders, alike),
        alike_replicas_spread=_worst_spread(replicas, alike),
        leaders_off=round(float(np.abs(leaders - fair_leaders).max()), 2),
        replicas_off=round(float(np.abs(replicas - fair).max()), 2),
        fullest_percent=round(100 * float((replicas / capacities).max()), 1),
        diverse_percent=None if rack_count == 1 else round(diverse, 2),
        peers_min=min(peers),
        peers_median=statistics.median(peers),
    )


def _worst_spread(counts: Integers, kinds: Integers) -> int:
    return max(int(np.ptp(counts[kinds == kind])) for kind in range(int(kinds.max()) + 1))


def fair_replicas(capacities: Floats, racks: Integers, *, lists: int, replicas: int) -> Floats:
    """Replicas for each SPU by its capacity, as far as lists as even over racks as can be allow it.

    Not whole numbers: one level for all SPUs, as a share of capacity, but for racks of which each
    list must hold more than that, or cannot hold as much, a level of their own. No SPU holds more
    replicas than there are lists.
    """
    sizes = np.bincount(racks)
    at_most = 1
    while len(sizes) > 1 and int(np.minimum(sizes, at_most).sum()) < replicas:
        at_most += 1
    single = len(sizes) == 1
    least = np.zeros(1) if single else np.minimum(sizes, at_most - 1) * float(lists)
    most = np.array([np.inf]) if single else np.minimum(sizes, at_most) * float(lists)
    limits = np.full(len(capacities), float(lists))

    def of_racks(level: float) -> Floats:
        wanted = np.bincount(racks, weights=np.minimum(capacities * level, limits))
        return np.clip(wanted, least, most)

    low, high = 0.0, lists / float(capacities.min())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if of_racks(middle).sum() >= lists * replicas else (middle, high)
    shares = np.empty(len(capacities))
    for rack, total in enumerate(of_racks(high).tolist()):
        here = racks == rack
        shares[here] = poured(capacities[here], limits[here], total)
    return shares


def poured(capacities: Floats, limits: Floats, total: float) -> Floats:
    """A total over SPUs by capacity, none above its limit; the limits must have room for it."""
    low, high = 0.0, float((limits / capacities).max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = np.minimum(capacities * middle, limits).sum() >= total
        low, high = (low, middle) if enough else (middle, high)
    shares: Floats = np.minimum(capacities * high, limits)
    return shares
