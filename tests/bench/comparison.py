"""How even and how safe lists are: our policies beside Kafka's two placers, in whole clusters.

`python tests/bench/comparison.py` prints tables in Markdown; `--write` also keeps the figures in
`results/comparison.json`. Five clusters of 1,000 SPUs are filled with 1,000 topics of 10 partitions
and 3 replicas, one topic after another. Two of them also have a life: 30 SPUs join when half of the
topics are there; then 30 are decommissioned, 300 topics are deleted, 300 created.

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
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`, as pytest does

from spu_assigner.core.base.events import Policy
from support.bench.figures import keep
from support.placers.comparing import (
    PARTITIONS,
    REPLICAS,
    SCENARIOS,
    Cluster,
    Evenness,
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


@dataclass(frozen=True, kw_only=True)
class Run:
    """One placer in one scenario, once."""

    evenness: Evenness
    seconds: float
    held: int  # replicas by the SPUs that were decommissioned
    moved: int


Runs = dict[str, list[Run]]  # by name of the placer


def measured(cluster: Cluster) -> Run:
    lists = [ids for lists in cluster.topics.values() for ids in lists]
    return Run(
        evenness=evenness(cluster.hosts, lists),
        seconds=round(cluster.seconds, 2),
        held=cluster.held,
        moved=cluster.moved,
    )


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


COLUMNS: Final[Mapping[str, Callable[[Run], float | None]]] = {
    "leaders min": lambda run: run.evenness.leaders_min,
    "leaders max": lambda run: run.evenness.leaders_max,
    "replicas min": lambda run: run.evenness.replicas_min,
    "replicas max": lambda run: run.evenness.replicas_max,
    "leaders, spread of alike": lambda run: run.evenness.alike_leaders_spread,
    "replicas, spread of alike": lambda run: run.evenness.alike_replicas_spread,
    "leaders off fair share": lambda run: run.evenness.leaders_off,
    "replicas off fair share": lambda run: run.evenness.replicas_off,
    "fullest SPU %": lambda run: run.evenness.fullest_percent,
    "rack-diverse %": lambda run: run.evenness.diverse_percent,
    "peers, median": lambda run: run.evenness.peers_median,
}


OF_FILLING: Final[Mapping[str, Callable[[Run], float | None]]] = {
    **COLUMNS,
    "seconds": lambda run: run.seconds,
}
OF_LIFE: Final[Mapping[str, Callable[[Run], float | None]]] = {
    **COLUMNS,
    "held by the leaving": lambda run: run.held,
    "moved": lambda run: run.moved,
}


def table(runs: Runs, columns: Mapping[str, Callable[[Run], float | None]]) -> str:
    """In Markdown; where runs differ, their lowest and highest figure."""
    lines = [
        f"| placer | {' | '.join(columns)} |",
        f"| --- |{' ---: |' * len(columns)}",
    ]
    for name, several in runs.items():
        cells = [_cell([figure(run) for run in several]) for figure in columns.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "–"
    low, high = min(numbers), max(numbers)
    return f"{low:g}" if low == high else f"{low:g} … {high:g}"


def main() -> int:
    wanted = sys.argv[1:]
    if wanted not in ([], ["--write"]):
        print("usage: python tests/bench/comparison.py [--write]", file=sys.stderr)
        return 2
    figures: dict[str, Any] = {}
    missed: list[str] = []
    with ExitStack() as stack:
        makers = placers(
            stack.enter_context(running_kafka_placer()),
            stack.enter_context(running_kraft_placer()),
        )
        for scenario in SCENARIOS:
            filled, lived = compare(scenario, makers)
            (balanced,) = filled[f"`{Policy.BALANCED}`"]
            missed += [f"{scenario.name}: {each}" for each in goals_missed(balanced.evenness)]
            print(f"\n### {scenario.name}\n")
            print(table(filled, OF_FILLING), flush=True)
            figures[scenario.name] = _plain(filled)
            if lived:
                print(f"\n### {scenario.name}, after a life\n")
                print(table(lived, OF_LIFE), flush=True)
                figures[f"{scenario.name}, after a life"] = _plain(lived)
    print("\n" + "\n".join(missed or ["`balanced` holds its goals in every filled cluster."]))
    figures["goals of balanced missed"] = missed
    if wanted:
        keep("comparison", sizes=_sizes(), figures=figures, show=False)
    return 1 if missed else 0


def _plain(runs: Runs) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [
            {**asdict(run.evenness), "seconds": run.seconds, "held": run.held, "moved": run.moved}
            for run in several
        ]
        for name, several in runs.items()
    }


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
