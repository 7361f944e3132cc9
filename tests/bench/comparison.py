"""How even and how safe lists are: our policies beside Kafka's two placers, in whole clusters.

`python tests/bench/comparison.py` prints the documentation's table of each cluster; `--write` keeps
all figures in `results/comparison.json`. Five clusters of 1,000 SPUs are filled with 1,000 topics
of 10 partitions and 3 replicas, one topic after another. Two of them also have a life: 30 SPUs join
when half of the topics are there; then 30 are decommissioned, 300 topics are deleted, 300 created.

Ours go through the whole core. Kafka's are called in their jars: `AdminUtils` and the placer of the
KRaft controller draw at random, so each has three runs (seeds 1 to 3), and a cell shows the lowest
and the highest figure of them. Neither knows capacities, nor the topics before. Neither can repair:
in a life, each topic that a decommissioned SPU held is placed again as a whole.

An SPU's fair share is what capacity alone would give it, as far as the rule about racks allows: a
list is on as many racks as can be. With as many racks as replicas each rack must hold a third of
all, however few its SPUs. SPUs are alike when rack and capacity are the same; their spread is shown
where it is worst. Peers of an SPU: the different followers in the lists that it leads, which take
over when it fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`, as pytest does

from spu_assigner.core.base.events import Policy
from support.bench.bench_pages import evenness as evenness_table
from support.bench.figures import keep, parser_of, say
from support.placers.comparing import (
    PARTITIONS,
    REPLICAS,
    SCENARIOS,
    Cluster,
    Hosts,
    Life,
    OurCluster,
    Scenario,
    TheirCluster,
    evenness,
    fill,
    goals_missed,
)
from support.placers.kafka_java import (
    KafkaPlacer,
    KraftPlacer,
    running_kafka_placer,
    running_kraft_placer,
)
from support.project.jars_lock import ROOTS

TOPICS: Final = 1_000
LIFE: Final = Life(topics=TOPICS, joining=30, leaving=30, deleted=300)
SEEDS: Final = (1, 2, 3)
POLICIES: Final = tuple(policy for policy in Policy if policy is not Policy.MANUAL)


Run = dict[str, Any]  # figures of one placer in one scenario, once
Runs = dict[str, list[Run]]  # by name of the placer


def measured(cluster: Cluster) -> Run:
    """`held`: replicas by the SPUs that were decommissioned."""
    lists = [ids for lists in cluster.topics.values() for ids in lists]
    found = evenness(cluster.hosts, lists)
    return {
        **asdict(found),
        "goals_missed": goals_missed(found),
        "seconds": round(cluster.seconds, 2),
        "held": cluster.held,
        "moved": cluster.moved,
    }


def placers(admin_utils: KafkaPlacer, kraft: KraftPlacer) -> dict[str, list[Callable[..., Any]]]:
    """What makes a cluster of hosts, once for each run, by name of the placer."""
    ours: dict[str, list[Callable[..., Any]]] = {
        f"`{policy}`": [partial(OurCluster, policy)] for policy in POLICIES
    }
    theirs: dict[str, list[Callable[..., Any]]] = {
        "Kafka's AdminUtils": [
            partial(TheirCluster.of_admin_utils, placer=admin_utils, seed=seed) for seed in SEEDS
        ],
        "KRaft's striped placer": [
            partial(TheirCluster.of_kraft, placer=kraft, seed=seed) for seed in SEEDS
        ],
    }
    return {**ours, **theirs}


def compare(
    scenario: Scenario, makers: Mapping[str, Sequence[Callable[[Hosts], Cluster]]]
) -> tuple[Runs, Runs]:
    """The runs of a filled cluster and, where the scenario has one, those of a life."""
    filled: Runs = {}
    lived: Runs = {}
    for name, of_runs in makers.items():
        for make in of_runs:
            cluster = make(scenario.hosts())
            fill(cluster, topics=TOPICS)
            filled.setdefault(name, []).append(measured(cluster))
            if scenario.lives:
                cluster = make(scenario.hosts())
                LIFE.live(cluster, scenario)
                lived.setdefault(name, []).append(measured(cluster))
                if isinstance(cluster, OurCluster) and cluster.policy is Policy.BALANCED:
                    cluster.rebalance()
                    lived[f"{name}, then a rebalance"] = [measured(cluster)]
    return filled, lived


def main() -> int:
    options = parser_of(__doc__).parse_args()
    figures: dict[str, Any] = {}
    missed: list[str] = []
    with ExitStack() as stack:
        makers = placers(
            stack.enter_context(running_kafka_placer()), stack.enter_context(running_kraft_placer())
        )
        for scenario in SCENARIOS:
            filled, lived = compare(scenario, makers)
            (balanced,) = filled[f"`{Policy.BALANCED}`"]
            missed += [f"{scenario.name}: {each}" for each in balanced["goals_missed"]]
            for name, runs in ((scenario.name, filled), (f"{scenario.name}, after a life", lived)):
                if runs:
                    figures[name] = runs
                    say(f"\n### {name}\n\n{evenness_table(figures[name])}")
    say("\n".join(missed or ["`balanced` holds its goals in every filled cluster."]))
    figures["goals of balanced missed"] = missed
    if options.write:
        keep("comparison", sizes=_sizes(), figures=figures, show=False)
    return 1 if missed else 0


def _sizes() -> dict[str, Any]:
    return {
        "topics": TOPICS,
        "partitions_each": PARTITIONS,
        "replicas": REPLICAS,
        "seeds": SEEDS,
        "life": asdict(LIFE),
        "jars": [ROOTS["kafka-placer"][0].coordinate, ROOTS["broker"][0].coordinate],
        "scenarios": {
            scenario.name: {"racks": dict(scenario.racks), "capacities": list(scenario.capacities)}
            for scenario in SCENARIOS
        },
    }


if __name__ == "__main__":
    sys.exit(main())
