"""What events are answered with, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from spu_assigner.core.base.errors import Code, Rejection
from spu_assigner.core.base.records import (
    Answer,
    Record,
    ReplicaMap,
    RingChange,
    RingEvent,
    Status,
    TopicStatus,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.topic import Topic

CLUSTER_TOPIC: Final = ""  # what a status names that answers for the cluster


def status(
    state: ClusterState,
    topic: str,
    answer: Status,
    cause: str,
    *,
    why: Rejection | None = None,
    message: str | None = None,
    replicas: ReplicaLists | None = None,
    moves: int | None = None,
) -> TopicStatus:
    """The answer to a request; `why` it is not met, or what else there is to say."""
    return TopicStatus(
        cluster_id=state.cluster_id,
        topic=topic,
        status=answer,
        code=None if why is None else why.code,
        message=message if why is None else why.message,
        replicas=replicas,
        cause=cause,
        moves=moves,
    )


def ring_event(
    state: ClusterState,
    spu_id: int,
    change: RingChange,
    size: int,
    cause: str,
    *,
    why: Rejection | None = None,
    resource: str | None = None,
) -> RingEvent:
    """What became of an SPU, or `why` its event is ignored; `size` is the ring's after it."""
    return RingEvent(
        cluster_id=state.cluster_id,
        spu_id=spu_id,
        change=change,
        code=None if why is None else why.code,
        message=None if why is None else why.message,
        ring_size=size,
        cause=cause,
        resource=resource,
    )


def known_topic(state: ClusterState, name: str) -> Topic:
    """The living topic of this name."""
    topic = state.topics.get(name)
    if topic is None:
        waits = ": it still waits" if name in state.waiting else ""
        found = f"no topic {name!r} in cluster {state.cluster_id!r}{waits}"
        raise Rejection(Code.TOPIC_UNKNOWN, found)
    return topic


def counted(count: int, what: str) -> str:
    """A number of things."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def answers(records: Sequence[Record]) -> tuple[Answer, ...]:
    """The answers among the records of one event: maps by topic, statuses, ring events by SPU id.

    The records themselves are in the order in which they apply.
    """
    of: dict[type, list[Any]] = {ReplicaMap: [], TopicStatus: [], RingEvent: []}
    for record in records:
        if (kind := type(record)) in of:
            of[kind].append(record)
    of[ReplicaMap].sort(key=attrgetter("topic", "revision"))
    of[RingEvent].sort(key=attrgetter("spu_id"))
    return tuple(chain.from_iterable(of.values()))
