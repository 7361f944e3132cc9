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
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.stream.audit.verify.audit import verify
from spu_assigner.stream.audit.verify.model import How
from spu_assigner.stream.job.shard.batch import own_names
from spu_assigner.stream.kafka.topics import TOPICS
from support.events.builders import Events
from support.events.histories import PREFIX, Outgoing, Writer
from support.events.one_cluster import OneCluster, the_status

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
    assert [how for how, _, _ in report.how()] == [How.REPLAYED]
