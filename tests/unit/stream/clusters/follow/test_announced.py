"""What is known of SPUs by their events and their state; whose brokers they are."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from spu_assigner.core.base.constraints import Taint, TaintEffect
from spu_assigner.core.base.events import LeaveMode, SpuJoined, SpuLeft
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.schemas.messages.codec import encode_record
from spu_assigner.stream.client.announced import LABEL, AnnouncedOfCluster, EventPosition
from spu_assigner.stream.clusters.follow.session import FollowError, require_cluster
from spu_assigner.stream.job.shard.clusters import output_key

JOIN = SpuJoined(event_id="j", cluster_id="prdo", spu_id=1, labels={LABEL: "k1"})
LEAVE = SpuLeft(event_id="l", cluster_id="prdo", spu_id=1)
REFUSED = replace(JOIN, event_id="no", labels={}, cores=0)


@pytest.mark.parametrize(
    ("events", "online"),
    [
        ([(JOIN, (0, 5, 9)), (LEAVE, (0, 6, 9))], False),
        ([(LEAVE, (1, 0, 7)), (JOIN, (0, 5, 8))], True),
        ([(JOIN, (0, 5, 8)), (LEAVE, (1, 0, 7))], True),
        ([(JOIN, (0, 1, 1)), (LEAVE, (0, 2, 2)), (JOIN, (0, 3, 3))], False),
        ([(LEAVE, (0, 1, 1)), (REFUSED, (0, 2, 2))], False),
    ],
    ids=["in order", "another partition", "as read", "a copy", "a refused join"],
)
def test_what_was_announced_last_is_what_the_job_follows(
    events: list[tuple[SpuJoined | SpuLeft, tuple[int, int, int]]], online: bool
) -> None:
    """Partitions by the broker's time; a copy and what is refused say nothing."""
    found = known()
    for event, place in events:
        found.take(event, EventPosition(*place))
    assert found.by_spu()[1].online is online


def test_a_leave_for_a_while_differs_from_a_decommission() -> None:
    """`drain` sends the one after the other; a join ends both."""
    found, states = known(), []
    decommission = replace(LEAVE, event_id="for good", mode=LeaveMode.DECOMMISSION)
    for offset, event in enumerate((LEAVE, decommission, JOIN)):
        found.take(event, EventPosition(0, offset, offset))
        announced = found.by_spu()[1]
        states.append((announced.online, announced.is_decommissioned))
    assert states == [(False, False), (False, True), (True, False)]


class StateMessage:
    """One of `assigner-state`."""

    def __init__(self, key: bytes, value: bytes | None) -> None:
        self._key, self._value = key, value

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes | None:
        return self._value


def state(cluster_id: str, kafka_cluster: str, *, gone: bool = False, **more: Any) -> StateMessage:
    """What is kept of SPU 1."""
    spu = SpuChanged(
        cluster_id=cluster_id,
        spu_id=1,
        online=True,
        rack=None,
        cores=1,
        capacity=9,
        labels=((LABEL, kafka_cluster),) if kafka_cluster else (),
        registration=0,
        core_weights=(0,),
        **more,
    )
    return StateMessage(output_key(spu), None if gone else encode_record(spu))


def known(*messages: StateMessage) -> AnnouncedOfCluster:
    found = AnnouncedOfCluster("prdo")
    for message in messages:
        found.take_state(message)  # type: ignore[arg-type]  # of a message two methods are called
    return found


def test_what_an_spu_was_given_is_read_from_the_state_where_its_joins_are_gone() -> None:
    """`spu-events` keeps its messages for a time only."""
    taints = (Taint("pool", "pay", TaintEffect.EVICT),)
    given = state("prdo", "k1", resources=(("disk", 9),), taints=taints)
    found = known(given).by_spu()[1].described
    assert found is not None
    assert (found.resources, found.taints) == ({"disk": 9}, taints)


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        (
            [state("prod", "k1")],
            "cluster 'prdo' has no SPUs, and the brokers of Kafka cluster k1 are SPUs of cluster "
            "'prod'; check --cluster, or say --accept-cluster if they are to be SPUs of both",
        ),
        ([state("prdo", "k2")], "SPUs of cluster 'prdo' are brokers of Kafka cluster k2, and this"),
        # Two that follow the same brokers, as --accept-cluster permits, go on.
        ([state("prod", "k1"), state("prdo", "k1")], None),
        ([], None),
        ([state("prod", "k2")], None),
        ([state("prod", "")], None),
        ([state("prod", "k1"), state("prod", "k1", gone=True)], None),
        ([StateMessage(b"prod/spu/1", b"damaged"), StateMessage(b"another program's", b"")], None),
    ],
)
def test_brokers_are_spus_of_one_cluster_and_these_of_one_kafka_cluster(
    messages: list[StateMessage], fault: str | None
) -> None:
    """Else one typing error maps each topic twice, and each cluster undoes the other's moves."""
    if fault is None:
        require_cluster(known(*messages), "k1")
    else:
        with pytest.raises(FollowError, match=re.escape(fault)):
            require_cluster(known(*messages), "k1")
