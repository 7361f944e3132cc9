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
from support.bench.figures import QUICK, keep, parser_of, say, slope, spread

ROUNDS: Final = 3 if QUICK else 6
CAPACITY: Final = 10**8
REPLICAS: Final = 3
USUAL_PARTITIONS: Final = 16
YOUNG_OBJECTS_MAX: Final = 10_000  # as the job's shard servers have it
CLUSTER_SPUS: Final = 64
LISTS_SPUS: Final = 100
MOVED_SPUS: Final = 100
MOVED_PARTITIONS: Final = 100  # of each topic
TOPICS_CLUSTERS: Final = 50
TOPICS_PARTITIONS: Final = 4
TWO: Final = (Policy.FLUVIO, Policy.BALANCED)
EVENTS: Final = 2_000  # of a round, where they are cheap
Cost = tuple[str, float]  # kind of event, µs of one


def joins(cluster: str, spus: Iterable[int]) -> Iterator[Event]:
    for spu in spus:
        name = f"{cluster}-j{spu}"
        yield SpuJoined(event_id=name, cluster_id=cluster, spu_id=spu, capacity=CAPACITY)


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
    name = f"{event.event_id}-d"
    return TopicDelete(event_id=name, cluster_id=event.cluster_id, topic=event.topic)


def apply(assigner: Assigner, events: Iterable[Event]) -> None:
    for event in events:
        assigner.records(event)


def with_clusters(names: Iterable[str], spus: int, policy: Policy) -> Assigner:
    assigner = Assigner(policy)
    for name in names:
        apply(assigner, joins(name, range(spus)))
    return assigner


def cost(assigner: Assigner, events: Sequence[Event]) -> float:
    """µs of CPU time of an event."""
    gc.collect()
    begun = time.process_time()
    apply(assigner, events)
    return (time.process_time() - begun) * 1e6 / len(events)


def clusters_grow(count: int) -> Iterator[Cost]:
    """Creates over all clusters in turn: each touches one."""
    names = [f"c{number}" for number in range(count)]
    assigner = with_clusters(names, CLUSTER_SPUS, Policy.BALANCED)
    for policy in reversed(TWO):  # What is left of fluvio's topics is uneven for `balanced`.
        apply(assigner, (create(name, f"warm-{policy}", policy=policy) for name in names))
        for number in range(ROUNDS):
            events = [
                create(
                    names[(number * EVENTS + n) % count], f"{policy}-{number}-{n}", policy=policy
                )
                for n in range(EVENTS)
            ]
            yield f"create, {policy}", cost(assigner, events)
            apply(assigner, map(delete, events))


def spus_grow(count: int) -> Iterator[Cost]:
    """Creates of one size, and changes of the ring, each with the first create after it."""
    for policy in (Policy.FLUVIO, Policy.KAFKA, Policy.BALANCED):
        assigner = with_clusters(["c"], count, policy)
        apply(assigner, [create("c", "warm")])
        for number in range(ROUNDS):
            events = [create("c", f"t{number}-{n}") for n in range(EVENTS)]
            yield f"create, {policy}", cost(assigner, events)
        for number in range(ROUNDS if policy is Policy.FLUVIO else 0):
            yield "join or leave and a create", cost(assigner, ring_changes(number))


def ring_changes(number: int) -> list[Event]:
    """SPU 0 leaves and comes back, some times over."""
    events: list[Event] = []
    for n in range(100):
        name, who = f"{number}-{n}", {"cluster_id": "c", "spu_id": 0}
        events += [
            SpuLeft(event_id=f"l{name}", mode=LeaveMode.OFFLINE, **who),  # type: ignore[arg-type]
            create("c", f"left-{name}"),
            SpuJoined(event_id=f"r{name}", capacity=CAPACITY, **who),  # type: ignore[arg-type]
            create("c", f"back-{name}"),
        ]
    return events


def lists_grow(count: int) -> Iterator[Cost]:
    """One map of so many lists: asked for, grown by a half, deleted."""
    first = max(1, count * 2 // 3)
    for policy in TWO:
        assigner = with_clusters(["c"], LISTS_SPUS, policy)
        for number in range(-1, ROUNDS):
            names = range(max(1, EVENTS // max(1, count // 10)))
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
                yield f"create, {policy}", created
                yield f"grow, {policy}", grown
                yield f"delete, {policy}", deleted


def moved_grow(count: int) -> Iterator[Cost]:
    """An SPU that holds so many replicas is decommissioned: each of them has to move."""
    topics = max(1, count * MOVED_SPUS // (REPLICAS * MOVED_PARTITIONS))
    assigner = with_clusters(["c"], MOVED_SPUS, Policy.BALANCED)
    apply(assigner, (create("c", f"t{n}", MOVED_PARTITIONS) for n in range(topics)))
    for number in range(ROUNDS):
        mode = LeaveMode.DECOMMISSION
        leave = SpuLeft(event_id=f"l{number}", cluster_id="c", spu_id=number, mode=mode)
        yield "decommission", cost(assigner, [leave])
        # Another one takes its place; the next one to leave holds as many as this one did.
        apply(assigner, joins("c", [MOVED_SPUS + number]))


def topics_grow(count: int) -> Iterator[Cost]:
    """Creates and deletes beside so many topics that are there already."""
    names = [f"c{number}" for number in range(TOPICS_CLUSTERS)]

    def topic(name: str, number: int) -> TopicCreate:
        return create(names[number % TOPICS_CLUSTERS], name, TOPICS_PARTITIONS)

    for policy in TWO:
        assigner = with_clusters(names, CLUSTER_SPUS, policy)
        apply(assigner, (topic(f"s{n}", n) for n in range(count)))
        gc.collect()
        gc.freeze()  # The collector would look through a million topics, which form no cycles.
        for number in range(ROUNDS):
            events = [topic(f"t{number}-{n}", n) for n in range(EVENTS)]
            yield f"create, {policy}", cost(assigner, events)
            yield f"delete, {policy}", cost(assigner, list(map(delete, events)))
        gc.unfreeze()


# What is measured at each size, the sizes, and how many of them a quick run has.
CURVES: Final[dict[str, tuple[Callable[[int], Iterator[Cost]], Sequence[int], int]]] = {
    "clusters": (clusters_grow, (1, 10, 100, 1_000, 10_000), 4),
    "SPUs of the cluster": (spus_grow, (10, 100, 1_000, 10_000), 3),
    "lists of the map": (lists_grow, (1, 10, 100, 1_000, 10_000, 100_000), 5),
    "replicas that have to move": (moved_grow, (100, 1_000, 10_000), 2),
    "topics in state": (topics_grow, (1_000, 10_000, 100_000, 1_000_000), 2),
}


def curve(sizes: Sequence[int], measure: Callable[[int], Iterator[Cost]]) -> dict[str, Any]:
    """What is kept of a curve."""
    costs: dict[str, list[list[float]]] = {}  # by kind, for each size the rounds
    for at, size in enumerate(sizes):
        for kind, us in measure(size):
            costs.setdefault(kind, [[] for _ in sizes])[at].append(us)
    found: dict[str, Any] = {"sizes": list(sizes)}
    for kind, rounds in costs.items():
        least = [min(each) for each in rounds]
        found[kind] = {
            "us": [spread(each) for each in rounds],
            "slope": round(slope(sizes, least), 2),
            "times": round(least[-1] / least[0], 2),
        }
        medians = [f"{each['median']:,.1f}" for each in found[kind]["us"]]
        say(f"{kind}: {' '.join(medians)} µs, slope {found[kind]['slope']}")
    return found


def main() -> None:
    options = parser_of(__doc__).parse_args()
    gc.set_threshold(YOUNG_OBJECTS_MAX)
    figures = {}
    for name, (measure, sizes, quick) in CURVES.items():
        say(name)
        figures[name] = curve(sizes[:quick] if QUICK else sizes, measure)
    if options.write:
        spus = {"clusters": CLUSTER_SPUS, "lists": LISTS_SPUS, "moved": MOVED_SPUS}
        sizes = {"replicas": REPLICAS, "partitions": USUAL_PARTITIONS, "spus": spus}
        keep("core_growth", sizes=sizes, figures=figures, show=False)


if __name__ == "__main__":
    main()
