"""What is concluded from the records of topics: whose a topic is, and what is recorded next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from spu_assigner.schemas.messages.wire import AppliedTopic, Origin
from spu_assigner.stream.clusters.plan.applied import (
    INTENT_MS_MAX,
    AppliedRecords,
    Notes,
    adopted,
    fold,
    is_unmoved,
    notes,
    resolved,
    seen,
)
from spu_assigner.stream.clusters.plan.decision import HIDDEN, make_plan
from spu_assigner.stream.clusters.plan.model import (
    ChangeKind,
    KafkaCluster,
    TopicChange,
    TopicReason,
    TopicsPlan,
    Wanted,
    rows_digest,
)
from support.events import plans
from support.events.plans import kafka, maps, recorded, wanted

NOW = 100 * INTENT_MS_MAX
ROWS = ((1, 2), (2, 3))


def record(origin: Origin, **fields: Any) -> AppliedTopic:
    """Of the topic that `KAFKA` has."""
    given = {"topic_id": None} if origin is Origin.INTENT else {}
    of_rows = replace(plans.record("t", origin), recorded_at=0, lists=rows_digest(ROWS))
    return replace(of_rows, **{**given, **fields})


KAFKA = kafka({"t": [*ROWS]})
OTHERWISE = kafka({"t": [[1, 2], [3, 2]]})
NOTHING = kafka({})


MAPPED = wanted(ROWS)
DELETED = Wanted(replicas=None)
RELEASED = Wanted(replicas=None, is_released=True, was_released=True)


def test_the_latest_record_of_a_topic_counts_and_an_intent_stands_beside_it() -> None:
    """Two runs at the same time: the intent of one must not hide what the other has made."""
    made, intent = record(Origin.CREATED), record(Origin.INTENT)
    found = fold([("t", record(Origin.FOUND)), ("t", made), ("t/intent", intent), ("u", None)])
    assert found == AppliedRecords(records={"t": made}, intents={"t": intent})
    assert (
        fold([("t", made), ("t/intent", intent), ("t", None), ("t/intent", None)])
        == AppliedRecords()
    )


@pytest.mark.parametrize(
    ("age_ms", "is_untouched", "cluster", "origin"),
    [
        (INTENT_MS_MAX, True, KAFKA, Origin.CREATED),
        (INTENT_MS_MAX + 1, True, KAFKA, Origin.FOUND),  # by somebody, since then
        (0, False, KAFKA, Origin.FOUND),  # somebody's data are in it
        (0, True, OTHERWISE, None),  # it is not what was intended
        (0, True, NOTHING, None),
    ],
)
def test_a_creation_that_broke_off_is_ours_only_if_no_data_can_be_concerned(
    age_ms: int, is_untouched: bool, cluster: KafkaCluster, origin: Origin | None
) -> None:
    """Kafka had made the topic, and apply was killed before it could record that."""
    intents = {"t": record(Origin.INTENT, recorded_at=NOW - age_ms)}
    earlier = recorded(record(Origin.CREATED, topic_id="earlier")).records
    untouched = {"t"} if is_untouched else set()
    for records in ({}, earlier):  # A record of an earlier topic says nothing.
        applied = AppliedRecords(records=records, intents=intents)
        now, settled = resolved(applied, cluster, lambda _: untouched, now_ms=NOW)
        assert settled == (() if origin is None else (record(origin, recorded_at=NOW - age_ms),))
        assert now.origin("t", "id-of-t") is origin
    for known in (Origin.CREATED, Origin.FOUND, Origin.RELEASED):
        applied = replace(recorded(record(known)), intents=intents)
        assert resolved(applied, cluster, lambda _: untouched, now_ms=NOW) == (applied, ())


OTHER = record(Origin.CREATED, topic_id="an-earlier-one")


@pytest.mark.parametrize(
    ("asked", "cluster", "before", "noted"),
    [
        # As mapped, and not known: found.
        (MAPPED, KAFKA, [], Origin.FOUND),
        (MAPPED, KAFKA, [record(Origin.RELEASED)], Origin.FOUND),
        (MAPPED, KAFKA, [OTHER], Origin.FOUND),
        # Known already, or not as mapped, or not there: nothing.
        (MAPPED, KAFKA, [record(Origin.CREATED)], None),
        (MAPPED, KAFKA, [record(Origin.FOUND)], None),
        (MAPPED, OTHERWISE, [], None),
        (MAPPED, NOTHING, [record(Origin.CREATED)], None),
        # Released: no concern any more, and for good.
        (RELEASED, KAFKA, [record(Origin.CREATED)], Origin.RELEASED),
        (RELEASED, KAFKA, [record(Origin.RELEASED)], None),
        # Released and asked for again, with no apply between: not ours to delete.
        (replace(MAPPED, was_released=True), KAFKA, [record(Origin.CREATED)], Origin.FOUND),
        (replace(MAPPED, was_released=True), KAFKA, [record(Origin.FOUND)], None),
        # Deleted, and still there.
        (DELETED, KAFKA, [record(Origin.CREATED)], None),
    ],
)
def test_what_apply_records_of_a_topic_that_it_finds(
    asked: Wanted, cluster: KafkaCluster, before: list[AppliedTopic], noted: Origin | None
) -> None:
    """Before it changes anything."""
    found = notes(maps({"t": asked}), cluster, recorded(*before))
    assert found == Notes(records=() if noted is None else (record(noted),))


def test_a_topic_that_is_neither_mapped_nor_in_kafka_is_forgotten() -> None:
    """Else its name, asked for again, would seem to have lost its data."""
    for asked in (DELETED, RELEASED):
        found = notes(maps({"t": asked}), NOTHING, recorded(record(Origin.CREATED)))
        assert found == Notes(forgotten=("t",))
    assert Notes() == notes(maps({"t": DELETED}), NOTHING, AppliedRecords())
    of_kafka = kafka({"__offsets": [*ROWS]})
    assert Notes() == notes(maps({"__offsets": MAPPED}), of_kafka, AppliedRecords())


def test_a_topic_that_the_user_may_not_see_any_more_is_not_forgotten() -> None:
    """It may be there, and then it is still one that apply made."""
    hidden = replace(NOTHING, hidden=frozenset({"t"}))
    made = recorded(record(Origin.CREATED))
    assert notes(maps({"t": DELETED}), hidden, made) == Notes()
    plan = make_plan(maps({"t": DELETED}), hidden, applied=made, delete=True)
    assert plan.staying == (TopicReason(topic="t", reason=HIDDEN),)


def test_a_plan_records_what_it_sees_and_only_that() -> None:
    """It takes nothing over, and overwrites nothing."""
    found = notes(maps({"t": MAPPED}), KAFKA, AppliedRecords())
    assert seen(found, AppliedRecords()) == (record(Origin.SEEN),)
    for applied in (recorded(OTHER), AppliedRecords(intents={"t": record(Origin.INTENT)})):
        assert not seen(found, applied)
    released = notes(maps({"t": RELEASED}), KAFKA, recorded(record(Origin.CREATED)))
    assert not seen(released, recorded(record(Origin.CREATED)))


def test_a_topic_that_is_changed_is_known_from_then_on_with_what_is_yet_to_move() -> None:
    """A word need not be given again, and gives no right to delete it."""
    change = TopicChange(
        topic="t", kind=ChangeKind.CHANGE, before=ROWS, after=(*ROWS, (3, 1)), topic_id="id-of-t"
    )
    plan = TopicsPlan(cluster_id="c1", kafka_id="k", brokers=(1, 2, 3), changes=(change,))
    made = recorded(record(Origin.CREATED))
    assert adopted(plan, AppliedRecords()) == (record(Origin.FOUND),)
    assert adopted(plan, made) == ()
    moved = replace(change, after=((9, 8), *change.after[1:]))
    plan = replace(plan, changes=(moved,))
    [found] = adopted(plan, made)
    assert replace(found, lists=made.records["t"].lists) == made.records["t"]
    unmoved = [(0, ROWS[0]), (1, ROWS[1]), (0, (9, 8))]
    assert [is_unmoved(found, number, row) for number, row in unmoved] == [True, False, False]
    assert adopted(plan, recorded(found)) == ()
