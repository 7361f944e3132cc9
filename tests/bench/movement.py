"""How many replicas move after a change: ours, Kafka's own tool, and the policy run once more.

`python tests/bench/movement.py` prints the documentation's table; `--write` keeps the figures, also
of the other policies, in `results/movement.json`. Each cluster is filled by one policy; then an
incident happens:

- decommission: one SPU leaves for good. Ours: what the decommission itself moves.
- join: two empty SPUs join, or three, one in each rack. Ours: a rebalance.

Beside it, what `kafka-reassign-partitions --generate` proposes for the SPUs that are then there
(it draws at random: the run with the median of moved replicas is shown), and the same policy run
once more over them from an empty cluster. A replica has moved if its SPU did not hold that
partition before. "At least" is what the leaving SPU held; or, after a join, what is above the
bands (one replica around the fair share that the rack rule permits) or below them, whichever is
more: no fewer moves can bring all SPUs into them. 14 SPUs in racks of 5, 5 and 4 cannot hold as
many each while every list is on three racks.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`, as pytest does

from spu_assigner.core import Assigner, Event, Policy, ReplicaMap, Status, TopicStatus
from spu_assigner.core.base.events import LeaveMode
from support.bench.bench_pages import movement
from support.bench.figures import keep, parser_of, say
from support.events.builders import Events
from support.model.plain_rebalance import Bands
from support.model.plain_rebalance import Cluster as Bounded
from support.placers.kafka_reassign import KafkaReassign, running_kafka_reassign

SIZES: Final = (12, 100)  # SPUs
RACKS: Final = 3
TOPICS: Final = 100
PARTITIONS: Final = 12
REPLICAS: Final = 3
POLICIES: Final = (Policy.FLUVIO, Policy.KAFKA, Policy.BALANCED)
LEAVING: Final = 5
JOINING: Final = {"2 join": 2, "3 join": 3}
DRAWS: Final = 9  # of Kafka's tool
PLENTY: Final = 10**6

Maps = dict[str, list[list[int]]]


Row = dict[str, Any]  # one way to answer one incident


class Cluster:
    """One cluster in the core, and the lists of its topics as the records give them."""

    def __init__(self, policy: Policy, racks: dict[int, str]) -> None:
        self.policy = policy
        self.racks: dict[int, str] = {}
        self.maps: Maps = {}
        self.events = Events()
        self._assigner = Assigner(policy)
        for spu_id, rack in racks.items():
            self.join(spu_id, rack)

    def join(self, spu_id: int, rack: str) -> None:
        self.racks[spu_id] = rack
        self.apply(self.events.join(spu_id, rack=rack))

    def leave(self, spu_id: int) -> None:
        del self.racks[spu_id]
        self.apply(self.events.leave(spu_id, mode=LeaveMode.DECOMMISSION))

    def fill(self) -> Cluster:
        for number in range(TOPICS):
            self.apply(self.events.create(f"t{number:03}", PARTITIONS, REPLICAS))
        return self

    def apply(self, event: Event) -> None:
        for record in self._assigner.apply(event):
            if isinstance(record, ReplicaMap):
                assert record.replicas is not None
                self.maps[record.topic] = record.replicas.tolist()
            if isinstance(record, TopicStatus):
                assert record.status is Status.ASSIGNED, record


def moved(before: Maps, after: Maps) -> int:
    """Replicas on SPUs that did not hold their partition before."""
    return sum(
        len(set(new) - set(old))
        for topic in before
        for old, new in zip(before[topic], after[topic], strict=True)
    )


def least_of_leave(before: Maps, gone: int) -> int:
    return sum(row.count(gone) for lists in before.values() for row in lists)


def bands_of(lists: Maps, racks: dict[int, str]) -> Bands:
    """All SPUs have the same capacity here."""
    names = sorted(set(racks.values()))
    return Bounded(
        racks={spu_id: names.index(rack) for spu_id, rack in racks.items()},
        capacities=dict.fromkeys(racks, PLENTY),
        topics=list(lists.values()),
        other={},
    ).bands()


def least_of_join(lists: Maps, bands: Bands) -> int:
    counts = Counter(spu_id for topic in lists.values() for row in topic for spu_id in row)
    above = sum(max(0, counts[spu_id] - highest) for spu_id, (_, highest) in bands.items())
    below = sum(max(0, lowest - counts[spu_id]) for spu_id, (lowest, _) in bands.items())
    return max(above, below)


def described(cluster: Cluster, before: Maps, after: Maps, *, at_least: int, **names: str) -> Row:
    lists = [row for topic in after.values() for row in topic]
    held = Counter(spu_id for row in lists for spu_id in row)
    led = Counter(row[0] for row in lists)
    replicas = [held[spu_id] for spu_id in cluster.racks]
    leaders = [led[spu_id] for spu_id in cluster.racks]
    diverse = sum(len({cluster.racks[spu_id] for spu_id in row}) == RACKS for row in lists)
    return {
        "spus": len(cluster.racks),
        "policy": str(cluster.policy),
        **names,
        "moved": moved(before, after),
        "at_least": at_least,
        "replicas": (min(replicas), max(replicas)),  # least and most on an SPU, after
        "leaders": (min(leaders), max(leaders)),
        "rack_diverse": round(diverse / len(lists), 4),  # share of lists on as many as can be
    }


def rows_of(kafka: KafkaReassign, policy: Policy, size: int, incident: str) -> Iterator[Row]:
    cluster = Cluster(policy, {spu_id: f"r{spu_id % RACKS}" for spu_id in range(size)}).fill()
    before = dict(cluster.maps)
    if incident == "decommission":
        at_least = least_of_leave(before, LEAVING)
        cluster.leave(LEAVING)
    else:
        for spu_id in range(size, size + JOINING[incident]):
            cluster.join(spu_id, f"r{spu_id % RACKS}")
        bands = bands_of(before, cluster.racks)
        at_least = least_of_join(before, bands)
        cluster.apply(cluster.events.rebalance(PLENTY))
        # Of the others' lists some are repaired first, which changes what racks permit.
        assert policy is not Policy.BALANCED or least_of_join(cluster.maps, bands) == 0
    yield described(
        cluster, before, cluster.maps, at_least=at_least, incident=incident, by="spu-assigner"
    )
    draws = kafka.generate(before, cluster.racks, draws=DRAWS)
    draw = sorted(draws, key=lambda after: moved(before, after))[DRAWS // 2]
    by = "kafka-reassign-partitions --generate"
    yield described(cluster, before, draw, at_least=at_least, incident=incident, by=by)
    again = Cluster(policy, cluster.racks).fill()
    by = f"{policy} run once more"
    yield described(cluster, before, again.maps, at_least=at_least, incident=incident, by=by)


def main() -> None:
    options = parser_of(__doc__).parse_args()
    with running_kafka_reassign() as kafka:
        rows = [
            row
            for size in SIZES
            for policy in POLICIES
            for incident in ("decommission", *JOINING)
            for row in rows_of(kafka, policy, size, incident)
        ]
    figures = {
        f"{number:02} {row['incident']}, {row['policy']}, {row['by']}": row
        for number, row in enumerate(rows)
    }
    say(movement(figures))
    if options.write:
        sizes = {
            "spus_before": SIZES,
            "racks": RACKS,
            "topics": TOPICS,
            "partitions": PARTITIONS,
            "replicas": REPLICAS,
            "kafka_tools": "4.2.1",
            "draws_of_kafka_tools": DRAWS,
        }
        keep("movement", sizes=sizes, figures=figures)


if __name__ == "__main__":
    main()
