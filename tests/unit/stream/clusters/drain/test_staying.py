"""Why partitions stay on a broker that is drained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.clusters.drain.staying import (
    BY_HAND,
    CHANGED,
    DELETED,
    MOVING,
    NO_MAP,
    staying_lines,
)
from spu_assigner.stream.clusters.plan.decision import make_plan
from spu_assigner.stream.clusters.plan.model import Maps
from support.job.plans import Topics, kafka, maps, record, recorded, there, wanted

MADE = record("t", Origin.CREATED)
ON_3 = [[1, 3]]


def stays(
    wanted_maps: Maps,
    topics: Topics,
    *records: AppliedTopic,
    rules: Mapping[str, str] | None = None,
) -> list[str]:
    """What is said of the partitions on broker 3 that are not moved."""
    cluster = kafka(topics)
    plan = make_plan(wanted_maps, cluster, applied=recorded(*records))
    taken = {(each.topic, each.partition) for each in plan.moved_partitions()}
    held = [
        (topic, number)
        for topic, partitions in cluster.topics.items()
        for number, each in enumerate(partitions)
        if 3 in each.replicas and (topic, number) not in taken
    ]
    many = len(held) > 1
    begin = f"t: {len(held)} replica{'s stay' if many else ' stays'} on the broker: "
    lines = list(staying_lines(plan, held, rules or {}))
    assert all(line.startswith("t: ") for line in lines)
    return [line.removeprefix(begin) for line in lines]


@pytest.mark.parametrize(
    ("wanted_maps", "topics", "records", "reasons"),
    [
        (maps({}), {"t": ON_3}, (), [NO_MAP]),
        (
            maps({"t": wanted([[1]], factor=2)}),
            {"t": ON_3},
            (MADE,),
            [
                "the lists of partitions 0 wait for a replica; what is in Kafka stays; add SPUs or "
                "capacity, and run this again"
            ],
        ),
        (maps({"t": [[1, 2]]}), {"t": there([[1, 2, 3]], [[1, 3]])}, (MADE,), [MOVING]),
        (maps({"t": [[1, 2]]}), {"t": ON_3}, (MADE,), []),
        (maps({"t": None}), {"t": ON_3}, (MADE,), [DELETED]),
        (
            maps({"t": None}),
            {"t": ON_3},
            (),
            [
                "the topic is mapped no more; apply did not make it, so it stays; it has no map: "
                + BY_HAND
            ],
        ),
        (maps({"t": ON_3}), {"t": ON_3}, (MADE,), [CHANGED]),
    ],
    ids=["no map", "short", "moving", "moved", "deleted", "kept", "changed"],
)
def test_what_stays_is_reported_with_its_own_reason(
    wanted_maps: Maps, topics: Topics, records: Sequence[AppliedTopic], reasons: list[str]
) -> None:
    """To adopt a topic that has a map changes nothing."""
    assert stays(wanted_maps, topics, *records) == reasons


def test_a_topic_of_somebody_else_has_the_reason_that_apply_gives() -> None:
    """A map is there, and `--foreign` has it followed."""
    (reason,) = stays(maps({"t": [[1, 2]]}), {"t": ON_3})
    assert reason.startswith("exists in Kafka, was not made by apply, and is not as mapped")


def test_partitions_of_one_topic_stay_for_different_reasons() -> None:
    """One is moved now, one is being moved, and two wait; each is counted."""
    lists = wanted([[1, 2], [1, 2], [1], [2]], factor=2)
    found = there([[1, 3], [1, 2, 3], [1, 3], [2, 3]], [[1, 3], [1, 3], [1, 3], [2, 3]])
    assert stays(maps({"t": lists}), {"t": found}, MADE) == [
        f"t: 1 replica stays on the broker: {MOVING}",
        "t: 2 replicas stay on the broker: the lists of partitions 2, 3 wait for a replica; what "
        "is in Kafka stays; add SPUs or capacity, and run this again",
    ]


@pytest.mark.parametrize(
    "asked", [maps({"t": ON_3}), maps({"t": wanted([[1]], factor=2)})], ids=["kept", "short"]
)
def test_what_the_job_cannot_take_off_the_broker_has_the_rule_that_holds_it(asked: Maps) -> None:
    """Whether the list keeps the SPU or lost it and is short."""
    reasons = stays(asked, {"t": ON_3}, MADE, rules={"t": "no list holds a rule", "u": "another"})
    assert reasons == ["no list holds a rule; run this again when that is done"]
