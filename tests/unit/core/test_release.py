"""`TopicRelease`: a topic is forgotten as by a delete, and a consumer sees which it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import TopicDelete, TopicRelease
from spu_assigner.core.base.records import ReplicaMap, Status, TopicStatus
from spu_assigner.stream.client.rendering import received_line
from spu_assigner.stream.job.shard.bundle import KINDS, MessageKind
from spu_assigner.stream.kafka.client import Received
from support.events.builders import Events
from support.events.histories import Outgoing, Writer
from support.events.random_lives import life_of
from support.model.pictures import picture

LIVES = 90


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_release_differs_from_a_delete_in_status_and_tombstone_alone(seed: int) -> None:
    """Random lives, played twice: with releases, and with deletes in their place."""
    life = life_of(seed)
    one, other = Assigner(life.default_policy), Assigner(life.default_policy)
    for event in life.events:
        plain = []
        for answer in one.apply(event):
            if isinstance(answer, ReplicaMap):
                plain.append(replace(answer, is_released=False))
            elif isinstance(answer, TopicStatus) and answer.status is Status.RELEASED:
                plain.append(replace(answer, status=Status.DELETED))
            else:
                plain.append(answer)
        common = {"event_id": event.event_id, "cluster_id": event.cluster_id}
        is_release = isinstance(event, TopicRelease)
        expected = TopicDelete(**common, topic=event.topic) if is_release else event
        assert tuple(plain) == other.apply(expected)
        pictures = [{name: picture(s) for name, s in a.clusters.items()} for a in (one, other)]
        assert pictures[0] == pictures[1]


def test_the_tombstone_of_a_release_has_a_type_of_its_own() -> None:
    """A consumer sees by the header whether data are to go; nothing else differs."""
    events, writer = Events(), Writer(1, shards=1)
    for event in (
        *events.joins(0),
        *(events.create("kept"), events.create("dropped")),
        *(events.release("kept"), events.delete("dropped")),
    ):
        writer.send([Outgoing.of_event(event, None)])
        writer.batch()
    tombstones = {
        read.key: dict(read.headers)["ce_type"]
        for (name, _), log in writer.topics.logs.items()
        if name == "replica-map"
        for read in log
        if read.value is None
    }
    assert tombstones == {
        b"c1/kept": b"io.spuassigner.v1.TopicReleased",
        b"c1/dropped": b"io.spuassigner.v1.ReplicaMap",
    }
    assert KINDS[MessageKind.TOPIC_RELEASED] == ("replica-map", "TopicReleased")


def test_watch_shows_that_the_data_of_a_released_topic_stay() -> None:
    deleted = Received(topic="replica-map", key="c1/t", answer=None)
    assert received_line(deleted, "table") == "map     c1/t  none: the topic is deleted"
    assert received_line(replace(deleted, is_released=True), "table") == (
        "map     c1/t  none: the topic is released, its data stay in Kafka"
    )
