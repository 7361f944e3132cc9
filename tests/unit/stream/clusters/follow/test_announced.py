"""What is known of SPUs by their events and their state; whose brokers they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from spu_assigner.core.base.constraints import Taint, TaintEffect
from spu_assigner.core.base.events import LeaveMode, SpuJoined, SpuLeft
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.schemas.messages.codec import encode_record
from spu_assigner.stream.client.announced import AnnouncedOfCluster, EventPosition
from spu_assigner.stream.client.spu_description import LABEL
from spu_assigner.stream.clusters.follow.kafka import FollowError, require_cluster
from spu_assigner.stream.job.shard.clusters import entry_key

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


def state(
    cluster_id: str, kafka_cluster: str | None, *, gone: bool = False, **more: Any
) -> StateMessage:
    """What is kept of SPU 1."""
    spu = SpuChanged(
        cluster_id=cluster_id,
        spu_id=1,
        online=True,
        rack=None,
        cores=1,
        capacity=9,
        labels=() if kafka_cluster is None else ((LABEL, kafka_cluster),),
        registration=0,
        core_weights=(0,),
        **more,
    )
    return StateMessage(entry_key(spu)[1:], None if gone else encode_record(spu))


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


def test_brokers_that_are_spus_of_another_cluster_are_not_those_of_a_new_one() -> None:
    """Else one typing error maps each topic twice, and each cluster undoes the other's moves."""
    with pytest.raises(FollowError) as found:
        require_cluster(known(state("prod", "k1")), "k1")
    assert str(found.value) == (
        "cluster 'prdo' has no SPUs, and the brokers of Kafka cluster k1 are SPUs of cluster "
        "'prod'; check --cluster, or say --accept-cluster if they are to be SPUs of both"
    )


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (state("prod", "k2"),),
        (state("prod", None),),
        (state("prod", "k1"), state("prod", "k1", gone=True)),
        (StateMessage(b"prod/spu/1", b"damaged"),),
        (StateMessage(b"another program's", b""),),
    ],
    ids=["none", "of another Kafka cluster", "by hand", "forgotten", "damaged", "foreign"],
)
def test_a_new_cluster_may_have_brokers_that_nobody_has(messages: tuple[StateMessage, ...]) -> None:
    """The first `adopt` of each Kafka cluster; of others' state nothing else counts."""
    require_cluster(known(*messages), "k1")


def test_a_cluster_that_has_spus_already_is_no_typing_error() -> None:
    """Two that follow the same brokers, as --accept-cluster permits, go on."""
    found = known(state("prod", "k1"))
    found.take(JOIN, EventPosition(0, 0, 0))
    require_cluster(found, "k1")
