"""Names that no create may take: Kafka's own, and the product's topics with their prefix."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import OnShortage, Policy
from spu_assigner.core.base.limits import PRODUCT_NAMES
from spu_assigner.core.base.records import Status, TopicStatus
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.stream.audit.verify.audit import verify
from spu_assigner.stream.audit.verify.model import How
from spu_assigner.stream.job.shard.batch import own_names
from spu_assigner.stream.kafka.topics import TOPICS
from support.events.builders import Events
from support.events.histories import PREFIX, Outgoing, Writer
from support.model.pictures import picture

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
    events, state = Events(), ClusterState("c1")
    for event in events.joins(0, 1):
        step(state, event, default_policy=Policy.FLUVIO)
    before = picture(state) | {"seen": None}
    asked = events.create(name, **way)
    records = step(state, asked, default_policy=Policy.FLUVIO)
    [status] = answers(records)
    assert isinstance(status, TopicStatus)
    assert (status.status, status.code) == (Status.REJECTED, Code.RESERVED_NAME)
    assert picture(state) | {"seen": None} == before


@pytest.mark.parametrize("name", ["_", "_x", "a__b", "topic-status.", "staging.topic-status"])
def test_a_name_that_is_merely_like_one_is_granted(name: str) -> None:
    """Only what begins with two underscores, and only whole names."""
    events, assigner = Events(), Assigner()
    assigner.apply(events.join(0))
    _, status = assigner.apply(events.create(name))
    assert isinstance(status, TopicStatus)
    assert status.status is Status.ASSIGNED


def test_the_products_names_are_those_of_its_table_of_topics() -> None:
    """The core names them, since `Assigner` knows no table; a topic that is added there belongs in
    `ProductTopic` too."""
    assert {spec.name for spec in TOPICS} == PRODUCT_NAMES == own_names("")


def test_with_a_prefix_the_prefixed_names_are_reserved_alone() -> None:
    """The bare names are nobody's then."""
    events, assigner = Events(), Assigner(reserved_names=own_names("staging."))
    assigner.apply(events.join(0))
    found = [
        assigner.apply(events.create(name))[-1] for name in ("staging.dead-letter", "dead-letter")
    ]
    assert [(each.status, each.code) for each in found if isinstance(each, TopicStatus)] == [
        (Status.REJECTED, Code.RESERVED_NAME),
        (Status.ASSIGNED, None),
    ]


def test_the_job_reserves_the_names_with_its_prefix_and_the_audit_replays_it() -> None:
    """Replay and job must come to the same bytes."""
    events, writer = Events(), Writer(1, shards=1)
    names = (f"{PREFIX}topic-status", "topic-status", "__x")
    assert PREFIX
    asked = [events.create(name, policy=Policy.FLUVIO) for name in names]
    for event in (*events.joins(0), *asked):
        writer.send([Outgoing.of_event(event, None)])
        writer.batch()
    statuses = {}
    for (name, _), log in writer.topics.logs.items():
        for read in log if name == "topic-status" else ():
            record = decode_record(read.value or b"")
            assert isinstance(record, TopicStatus)
            statuses[record.topic] = record.code
    assert statuses == dict(zip(names, (Code.RESERVED_NAME, None, Code.RESERVED_NAME), strict=True))
    report = verify(writer.topics.history())
    assert (report.findings, list(report.unchecked())) == ([], [])
    assert [how for how, _, _ in report.how()] == [How.REPLAYED]
