"""What an event costs the core as clusters, rings, maps and the state grow: µs of CPU time.

    python tests/bench/core_growth.py [--write]

The core decides and applies (`machine.step`), all checks on; events are made beforehand. Each
curve shows how many there are of what grows, and what an event costs: the least, median and
largest of some rounds. An event may cost in proportion to what it touches (its map's lists, the
ring that it changes or weighs, the replicas that have to move), never more, and nothing for what it
does not touch. `slope` is that between the smallest and the largest size on logarithmic scales, or
between the two largest if that is steeper: 1 is linear, 0 is flat. `times` is the cost at the
largest size over that at the smallest. Both are taken from the least of the rounds.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from spu_assigner.core import Assigner
from spu_assigner.core.base.events import (
    Event,
    LeaveMode,
    Policy,
    SpuJoined,
    SpuLeft,
    TopicCreate,
    TopicDelete,
    TopicGrow,
)

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`, as pytest does
from support.bench.figures import QUICK, keep, say, slope, spread

ROUNDS: Final = 3  # of a pass
PASSES: Final = 1 if QUICK else 2  # minutes apart: other work on the machine comes in bursts
CAPACITY: Final = 10**8
REPLICAS: Final = 3
USUAL_PARTITIONS: Final = 16
YOUNG_OBJECTS_MAX: Final = 10_000  # as the job's shard servers have it
CLUSTERS: Final = (1, 10, 100, 1_000) if QUICK else (1, 10, 100, 1_000, 10_000)
CLUSTER_SPUS: Final = 64
SPUS: Final = (10, 100, 1_000) if QUICK else (10, 100, 1_000, 10_000)
LISTS: Final = (1, 10, 100, 1_000, 10_000) if QUICK else (1, 10, 100, 1_000, 10_000, 100_000)
LISTS_SPUS: Final = 100
MOVED: Final = (100, 1_000) if QUICK else (100, 1_000, 10_000)
MOVED_SPUS: Final = 100
MOVED_PARTITIONS: Final = 100  # of each topic
TOPICS: Final = (1_000, 10_000) if QUICK else (1_000, 10_000, 100_000, 1_000_000)
TOPICS_CLUSTERS: Final = 50
TOPICS_PARTITIONS: Final = 4
POLICIES: Final = (Policy.FLUVIO, Policy.KAFKA, Policy.BALANCED)
EVENTS: Final = 2_000  # of a round, where they are cheap
Costs = dict[str, list[list[float]]]  # by kind of event, for each size the rounds' µs an event


def joins(cluster: str, spus: Iterable[int]) -> Iterator[Event]:
    for spu in spus:
        yield SpuJoined(
            event_id=f"{cluster}-j{spu}", cluster_id=cluster, spu_id=spu, capacity=CAPACITY
        )


def create(
    cluster: str, name: str, partitions: int = USUAL_PARTITIONS, policy: Policy | None = None
) -> TopicCreate:
    return TopicCreate(
        event_id=f"{cluster}-{name}",
        cluster_id=cluster,
        topic=name,
        partitions=partitions,
        replication_factor=REPLICAS,
        policy=policy,
    )


def delete(event: TopicCreate) -> TopicDelete:
    return TopicDelete(
        event_id=f"{event.event_id}-d", cluster_id=event.cluster_id, topic=event.topic
    )


def with_clusters(names: Iterable[str], spus: int, policy: Policy) -> Assigner:
    assigner = Assigner(policy)
    for name in names:
        apply(assigner, joins(name, range(spus)))
    return assigner


def apply(assigner: Assigner, events: Iterable[Event]) -> None:
    for event in events:
        assigner.records(event)


def cost(assigner: Assigner, events: Sequence[Event]) -> float:
    """µs of CPU time of an event."""
    gc.collect()
    begun = time.process_time()
    for event in events:
        assigner.records(event)
    return (time.process_time() - begun) * 1e6 / len(events)


def repeated(count: int) -> int:
    """Events of a round whose events cost as many times as much as a usual one."""
    return max(1, EVENTS // max(1, count))


def clusters_grow() -> tuple[Sequence[int], Costs]:
    """Creates over all clusters in turn: each touches one."""
    policies = (Policy.BALANCED, Policy.FLUVIO)
    costs: Costs = {f"create, {policy}": [] for policy in policies}
    for count in CLUSTERS:
        names = [f"c{number}" for number in range(count)]
        assigner = with_clusters(names, CLUSTER_SPUS, Policy.BALANCED)
        for policy in policies:
            apply(assigner, (create(name, f"warm-{policy}", policy=policy) for name in names))
            rounds = []
            for number in range(ROUNDS):
                chosen = [names[(number * EVENTS + n) % count] for n in range(EVENTS)]
                events = [
                    create(name, f"{policy}-{number}-{n}", policy=policy)
                    for n, name in enumerate(chosen)
                ]
                rounds.append(cost(assigner, events))
                apply(assigner, map(delete, events))
            costs[f"create, {policy}"].append(rounds)
    return CLUSTERS, costs


def spus_grow() -> tuple[Sequence[int], Costs]:
    """Creates of one size, and changes of the ring, each with the first create after it."""
    costs: Costs = {f"create, {policy}": [] for policy in POLICIES}
    costs |= {"join or leave and a create": []}
    for count in SPUS:
        for policy in POLICIES:
            assigner = with_clusters(["c"], count, policy)
            apply(assigner, [create("c", "warm")])
            rounds = []
            for number in range(ROUNDS):
                events = [create("c", f"t{number}-{n}") for n in range(EVENTS)]
                rounds.append(cost(assigner, events))
            costs[f"create, {policy}"].append(rounds)
            if policy is Policy.FLUVIO:
                changes = [ring_changes(number) for number in range(ROUNDS)]
                found = [cost(assigner, events) for events in changes]
                costs["join or leave and a create"].append(found)
    return SPUS, costs


def ring_changes(number: int) -> list[Event]:
    """SPU 0 leaves and comes back, some times over."""
    events: list[Event] = []
    for n in range(100):
        name = f"{number}-{n}"
        events.append(
            SpuLeft(event_id=f"l{name}", cluster_id="c", spu_id=0, mode=LeaveMode.OFFLINE)
        )
        events.append(create("c", f"left-{name}"))
        events.append(SpuJoined(event_id=f"r{name}", cluster_id="c", spu_id=0, capacity=CAPACITY))
        events.append(create("c", f"back-{name}"))
    return events


def lists_grow() -> tuple[Sequence[int], Costs]:
    """One map of so many lists: asked for, grown by a half, deleted."""
    kinds = ("create", "grow", "delete")
    policies = (Policy.FLUVIO, Policy.BALANCED)
    costs: Costs = {f"{kind}, {policy}": [] for kind in kinds for policy in policies}
    for count in LISTS:
        for policy in policies:
            assigner = with_clusters(["c"], LISTS_SPUS, policy)
            rounds: dict[str, list[float]] = {kind: [] for kind in kinds}
            first = max(1, count * 2 // 3)
            for number in range(-1, ROUNDS):
                names = range(repeated(count // 10))
                whole = [create("c", f"w{number}-{n}", count) for n in names]
                parts = [create("c", f"p{number}-{n}", first) for n in names]
                grows = [
                    TopicGrow(
                        event_id=f"{part.event_id}-g",
                        cluster_id="c",
                        topic=part.topic,
                        partitions=max(first + 1, count),
                    )
                    for part in parts
                ]
                created = cost(assigner, whole)
                apply(assigner, parts)
                grown = cost(assigner, grows)
                apply(assigner, map(delete, parts))
                deleted = cost(assigner, list(map(delete, whole)))
                if number >= 0:  # The first round makes tables.
                    for kind, found in zip(kinds, (created, grown, deleted), strict=True):
                        rounds[kind].append(found)
            for kind in kinds:
                costs[f"{kind}, {policy}"].append(rounds[kind])
    return LISTS, costs


def moved_grow() -> tuple[Sequence[int], Costs]:
    """An SPU that holds so many replicas is decommissioned: each of them has to move."""
    costs: Costs = {"decommission": []}
    for count in MOVED:
        topics = count * MOVED_SPUS // (REPLICAS * MOVED_PARTITIONS)
        assigner = with_clusters(["c"], MOVED_SPUS, Policy.BALANCED)
        apply(assigner, (create("c", f"t{n}", MOVED_PARTITIONS) for n in range(max(1, topics))))
        rounds = []
        for number in range(ROUNDS):
            leave = SpuLeft(
                event_id=f"l{number}",
                cluster_id="c",
                spu_id=number,
                mode=LeaveMode.DECOMMISSION,
            )
            rounds.append(cost(assigner, [leave]))
            # Another one takes its place; the next one to leave holds as many as this one did.
            apply(assigner, joins("c", [MOVED_SPUS + number]))
        costs["decommission"].append(rounds)
    return MOVED, costs


def topics_grow() -> tuple[Sequence[int], Costs]:
    """Creates and deletes beside so many topics that are there already."""
    costs: Costs = {}
    for policy in (Policy.FLUVIO, Policy.BALANCED):
        costs |= {f"create, {policy}": [], f"delete, {policy}": []}
        names = [f"c{number}" for number in range(TOPICS_CLUSTERS)]
        assigner = with_clusters(names, CLUSTER_SPUS, policy)
        there = 0
        for count in TOPICS:
            while there < count:
                cluster = names[there % TOPICS_CLUSTERS]
                assigner.records(create(cluster, f"s{there}", TOPICS_PARTITIONS))
                there += 1
            gc.collect()
            gc.freeze()  # Topics are in no cycle; looking through a million of them is no event's.
            created, deleted = [], []
            for number in range(ROUNDS):
                events = [
                    create(names[n % TOPICS_CLUSTERS], f"t{number}-{n}", TOPICS_PARTITIONS)
                    for n in range(EVENTS)
                ]
                created.append(cost(assigner, events))
                deleted.append(cost(assigner, list(map(delete, events))))
            costs[f"create, {policy}"].append(created)
            costs[f"delete, {policy}"].append(deleted)
        gc.unfreeze()
    return TOPICS, costs


CURVES: Final[dict[str, Callable[[], tuple[Sequence[int], Costs]]]] = {
    "clusters": clusters_grow,
    "SPUs of the cluster": spus_grow,
    "lists of the map": lists_grow,
    "replicas that have to move": moved_grow,
    "topics in state": topics_grow,
}


def joined(passes: Sequence[Costs]) -> Costs:
    """The rounds of all passes, size by size."""
    return {
        kind: [
            [us for rounds in of_a_size for us in rounds]
            for of_a_size in zip(*(each[kind] for each in passes), strict=True)
        ]
        for kind in passes[0]
    }


def curve(sizes: Sequence[int], costs: Costs) -> dict[str, Any]:
    """What is kept of a curve."""
    found: dict[str, Any] = {"sizes": list(sizes)}
    for kind, rounds in costs.items():
        least = [min(each) for each in rounds]
        found[kind] = {
            "us": [spread(each) for each in rounds],
            "slope": round(slope(sizes, least), 2),
            "times": round(least[-1] / least[0], 2),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    gc.set_threshold(YOUNG_OBJECTS_MAX)
    figures = {}
    passes: list[dict[str, tuple[Sequence[int], Costs]]] = []
    for number in range(PASSES):
        say(f"pass {number + 1} of {PASSES}")
        passes.append({})
        for name, curve in CURVES.items():
            say(f"  {name}")
            passes[-1][name] = curve()
    for name in CURVES:
        sizes = passes[0][name][0]
        figures[name] = curve(sizes, joined([each[name][1] for each in passes]))
        for kind, cost_ in figures[name].items():
            if kind != "sizes":
                medians = [f"{each['median']:,.1f}" for each in cost_["us"]]
                say(f"{name}: {kind}: {' '.join(medians)} µs, slope {cost_['slope']}")
    if options.write:
        keep(
            "core_growth",
            sizes={
                "replicas": REPLICAS,
                "partitions": USUAL_PARTITIONS,
                "spus_where_they_are_not_the_subject": {
                    "clusters": CLUSTER_SPUS,
                    "lists": LISTS_SPUS,
                    "moved": MOVED_SPUS,
                    "topics": CLUSTER_SPUS,
                },
                "unit": "µs of CPU time an event",
            },
            figures=figures,
            show=False,
        )


if __name__ == "__main__":
    main()
