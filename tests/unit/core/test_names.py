"""Names that no create may take: Kafka's own, the product's, and those that collide with others."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import OnShortage, Policy
from spu_assigner.core.base.limits import PRODUCT_NAMES
from spu_assigner.core.base.records import Status, TopicStatus
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.stream.audit.verify.audit import verify
from spu_assigner.stream.audit.verify.model import How
from spu_assigner.stream.job.shard.batch import own_names
from spu_assigner.stream.kafka.topics import TOPICS
from support.events.builders import Events
from support.events.histories import PREFIX, Outgoing, Writer
from support.events.one_cluster import OneCluster, statuses, the_status

WAYS: list[dict[str, Any]] = [
    *({"policy": policy} for policy in Policy if policy is not Policy.MANUAL),
    {"replicas": [{"id": 0, "replicas": [0]}]},
    {"validate_only": True},
    {"replication_factor": 9, "on_shortage": OnShortage.WAIT},
    {"policy": Policy.KAFKA, "start_index": 1, "shift": 1},
]
NAMES = ("__consumer_offsets", "__", *sorted(PRODUCT_NAMES))


@pytest.mark.parametrize(("name", "way"), list(product(NAMES, WAYS)))
def test_a_reserved_name_is_refused_whatever_is_asked_for(name: str, way: dict[str, Any]) -> None:
    """Such a topic in Kafka would be deleted or overwritten; the state is untouched."""
    life = OneCluster(*Events().joins(0, 1))
    before = life.kept()
    status = the_status(life.apply(life.build.create(name, **way)))
    assert (status.status, status.code) == (Status.REJECTED, Code.RESERVED_NAME)
    whose = "begins with '__', as Kafka's own" if name[0] == "_" else "is one of the assigner's own"
    assert (status.message or "").startswith(f"topic {name!r} {whose} topics")
    assert life.kept() == before


@pytest.mark.parametrize("name", ["_", "_x", "a__b", "topic-status.", "staging.topic-status"])
def test_a_name_that_is_merely_like_one_is_granted(name: str) -> None:
    life = OneCluster(*Events().joins(0))
    assert the_status(life.create(name, 1, 1)).status is Status.ASSIGNED


def test_the_products_names_are_those_of_its_table_of_topics() -> None:
    """The core names them, since `Assigner` knows no table; a topic that is added there belongs in
    `ProductTopic` too."""
    assert {spec.name for spec in TOPICS} == PRODUCT_NAMES == own_names("")


def test_with_a_prefix_the_prefixed_names_are_reserved_alone() -> None:
    """The bare names are nobody's then; the audit of a job comes to the same bytes."""
    assigner = Assigner(reserved_names=own_names("staging."))
    for name, code in (("staging.dead-letter", Code.RESERVED_NAME), ("dead-letter", None)):
        assigner.apply(Events().join(0))
        assert the_status(assigner.apply(Events(first=9).create(name, event_id=name))).code is code
    events, writer = Events(), Writer(1, shards=1)
    names = (f"{PREFIX}topic-status", "topic-status", "__x")
    asked = [events.create(name, policy=Policy.FLUVIO) for name in names]
    for event in (*events.joins(0), *asked):
        writer.send([Outgoing.of_event(event, None)])
        writer.batch()
    found = [
        decode_record(read.value or b"")
        for (name, _), log in writer.topics.logs.items()
        for read in log
        if name == "topic-status"
    ]
    codes = {each.topic: each.code for each in found if isinstance(each, TopicStatus)}
    assert codes == dict(zip(names, (Code.RESERVED_NAME, None, Code.RESERVED_NAME), strict=True))
    report = verify(writer.topics.history())
    assert (report.findings, list(report.unchecked())) == ([], [])
    assert set(report.checked) == {How.REPLAYED}


def codes(found: Iterable[object]) -> list[tuple[Status, Code | None]]:
    return [(status, code) for _, status, code, _ in statuses(found)]


COLLIDES = [(Status.REJECTED, Code.TOPIC_COLLIDES)]
GRANTED = [(Status.ASSIGNED, None)]


@pytest.mark.parametrize("policy", [Policy.BALANCED, Policy.FLUVIO, Policy.RENDEZVOUS])
def test_the_second_of_two_is_rejected(policy: Policy) -> None:
    life = OneCluster(*Events().joins(0, 1))
    life.create("a.b_c", 1, 1, policy=policy)
    answers = life.create("a_b.c", 1, 1, policy=policy)
    assert codes(answers) == COLLIDES
    assert the_status(answers).message == (
        "topic 'a_b.c' and 'a.b_c' of cluster 'c1' differ in dots and underscores alone, "
        "so Kafka refuses one of them; choose another name"
    )
    assert codes(life.create("a-b_c", 1, 1, policy=policy)) == GRANTED
    life.apply(life.build.delete("a.b_c"))
    assert codes(life.create("a_b.c", 1, 1, policy=policy)) == GRANTED


@given(
    st.lists(
        st.tuples(st.sampled_from(("a.b", "a_b", "a.b.c", "a_b.c", "a_b_c", "x")), st.booleans())
    )
)
def test_no_two_that_collide_are_ever_there(steps: list[tuple[str, bool]]) -> None:
    life = OneCluster(*Events().joins(0))
    for name, waits in steps:
        state = life.state
        if name in state.topics or name in state.waiting:
            life.apply(life.build.delete(name))
            continue
        others = {each.replace(".", "_") for each in (*state.topics, *state.waiting)}
        found = codes(life.wait(name, 1, 2) if waits else life.create(name, 1, 1))
        assert (found == COLLIDES) is (name.replace(".", "_") in others)


def test_adopted_topics_are_as_they_are() -> None:
    """A fact is not rejected; creates beside it are."""
    life = OneCluster(*Events().joins(0))
    life.create("a.b", 1, 1)
    assert codes(life.adopt("a_b", [0])) == [(Status.ADOPTED, None)]
    life.apply(life.build.release("a.b"))
    assert codes(life.create("a.b", 1, 1)) == COLLIDES
