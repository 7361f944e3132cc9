"""Dominant shares at creation, and what a rebalance moves: 1,000 SPUs, 30,000 replicas.

    python tests/bench/scale/resources.py [--write]

1,000 topics of 10 partitions with 3 replicas, whose sizes are Zipf's (the k-th largest has 1/k**s
of the largest), in a drawn order, on SPUs of three sizes in racks of 500, 300 and 200. The bound is
the optimum of the linear programme, in which replicas may be divided, and of which SPUs alike are
one; beside it stands what the largest replica takes of the largest SPU of a rack, which no
placement beats. For the rebalance a tenth of the topics is measured again, at twice or half the
size. Its bound are the bytes above the band, SPU by SPU; beside it stand those of whole replicas,
by HiGHS. Two more figures show that the order of creates decides how near they come to the bound: a
rebalance at once, with a band as narrow as the target, and the same topics with the largest first.
Last, known rules for what comes one by one, in the same order and twelve others.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from spu_assigner.core.base.events import ClusterRebalance

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench.figures import QUICK, keep, parser_of, say
from support.bench.zipf_cluster import PARTITIONS, REPLICAS, RULES, ZipfCluster, ratio

SPUS: Final = 100 if QUICK else 1_000
TOPICS: Final = 100 if QUICK else 1_000
TARGET_PERCENT: Final = 3  # above the bound, at creation
EXPONENTS: Final = (0.5, 1.0)
DRAWN: Final = range(2, 14)  # seeds of orders
PLACERS: Final = ("balanced", "counts", "kafka", "kraft")  # counts: `balanced` without the demand


def figures_of(exponent: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for placer in PLACERS:
        cluster = ZipfCluster(spus=SPUS, topics=TOPICS, exponent=exponent)
        begin = time.perf_counter()
        cluster.place(placer)
        seconds = time.perf_counter() - begin
        bound = cluster.bound()
        replica = cluster.largest_replica()
        found[placer] = {
            "largest_share": cluster.largest(),
            "of_bound": cluster.largest() / bound,
            "bound": bound,
            "largest_replica": replica,
            "of_both": cluster.largest() / max(bound, replica),
            "rack_diverse": cluster.is_diverse(),
            "seconds": seconds,
        }
        if placer == "balanced":
            cluster.change_demands()
            found["rebalance"] = rebalanced(cluster, band_percent=5)
    cluster = ZipfCluster(spus=SPUS, topics=TOPICS, exponent=exponent)
    cluster.place("balanced")
    found["rebalance_at_once"] = rebalanced(cluster, band_percent=TARGET_PERCENT)
    found["largest_first"] = largest_first(exponent)
    return found


def by_rule() -> dict[str, dict[str, Any]]:
    """How near `balanced` and each rule come to the bound in orders that were drawn."""
    found: dict[str, list[float]] = {"balanced": [], **{name: [] for name in RULES}}
    for order in (None, *DRAWN):
        cluster = ZipfCluster(spus=SPUS, topics=TOPICS, exponent=EXPONENTS[0], order=order)
        for name, rule in RULES.items():
            found[name].append(ratio(rule, cluster))
        cluster.place("balanced")
        found["balanced"].append(cluster.largest() / cluster.bound())
    return {
        name: {
            "same_order": ratios[0],
            "mean": fmean(ratios),
            "largest": max(ratios),
            "within_target": sum(each <= 1 + TARGET_PERCENT / 100 for each in ratios),
            "orders": len(ratios),
        }
        for name, ratios in found.items()
    }


def largest_first(exponent: float) -> dict[str, Any]:
    """The same topics, the largest first, by `balanced`."""
    cluster = ZipfCluster(spus=SPUS, topics=TOPICS, exponent=exponent, largest_first=True)
    cluster.place("balanced")
    bound = cluster.bound()
    both = max(bound, cluster.largest_replica())
    return {"of_bound": cluster.largest() / bound, "of_both": cluster.largest() / both}


def rebalanced(cluster: ZipfCluster, *, band_percent: int) -> dict[str, Any]:
    bound, before = cluster.bound(), dict(cluster.maps)
    level = max(bound, cluster.largest_replica())
    share_before = cluster.largest()
    divided, whole = cluster.bytes_beyond(level * (100 + band_percent) / 100)
    begin = time.perf_counter()
    cluster.say(ClusterRebalance, max_moves=2**31 - 1, band_percent=band_percent)
    seconds = time.perf_counter() - begin
    moved = 0
    for number, size in enumerate(cluster.sizes):
        pairs = zip(before[f"t{number}"], cluster.maps[f"t{number}"], strict=True)
        moved += sum(size * len({*new} - {*old}) for old, new in pairs)
    return {
        "bound": bound,
        "share_before": share_before,
        "share_after": cluster.largest(),
        "of_bound_after": cluster.largest() / bound,
        "of_both_after": cluster.largest() / level,
        "bytes": moved,
        "bytes_held": sum(cluster.used().values()),
        "bytes_bound": int(divided),
        "of_bytes_bound": moved / divided if divided else None,
        "bytes_of_whole_replicas": whole,
        "of_whole_replicas": moved / whole if whole else None,
        "seconds": seconds,
    }


def main() -> None:
    options = parser_of(__doc__).parse_args()
    figures = {f"zipf_{exponent}": figures_of(exponent) for exponent in EXPONENTS}
    figures["rules"] = by_rule()
    for name, found in figures.items():
        say(f"{name}: {found}")
    if options.write:
        sizes = {"spus": SPUS, "topics": TOPICS, "partitions": PARTITIONS, "replicas": REPLICAS}
        keep("resources", sizes=sizes, figures=figures, show=False)


if __name__ == "__main__":
    main()
