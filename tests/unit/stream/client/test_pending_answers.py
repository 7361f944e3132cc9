"""Which answers are awaited, and what their end means."""

from __future__ import annotations

from spu_assigner.core.base.events import Event, LeaveMode, Policy
from spu_assigner.core.base.records import ReplicaMap, RingEvent, Status, TopicStatus
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.client.pending_answers import Awaited
from spu_assigner.stream.kafka.client import Received
from support.events.builders import Events


class Answered:
    """Events that are sent one by one, each answered by the core before the next."""

    def __init__(self) -> None:
        self.events = Events()
        self.awaited = Awaited()
        self._state = ClusterState("c1")

    def send(self, *events: Event) -> None:
        for event in events:
            self.awaited.expect(event)
            for record in step(self._state, event, default_policy=Policy.BALANCED):
                if isinstance(record, ReplicaMap | TopicStatus | RingEvent):
                    self.awaited.take(Received(topic="any", key="c1", answer=record))


def test_a_decommission_that_no_list_waits_for_has_drained_the_spu() -> None:
    """That is what its end says of the maps."""
    job = Answered()
    job.send(*job.events.joins(0, 1, 2), job.events.create("t", 3, 2))
    assert job.awaited.drained == {}
    job.send(job.events.leave(1, mode=LeaveMode.DECOMMISSION))
    assert job.awaited.drained == {"c1": [1]}


def test_an_spu_that_a_map_still_names_is_not_drained() -> None:
    """The last replica stays in its list until another SPU can take it."""
    job = Answered()
    job.send(job.events.join(0), job.events.create("t", 1, 1))
    job.send(job.events.leave(0, mode=LeaveMode.DECOMMISSION))
    assert (job.awaited.waiting, job.awaited.drained) == (["c1/t"], {})
    job.send(job.events.join(1))
    assert (job.awaited.waiting, job.awaited.drained) == ([], {"c1": [0]})


def test_a_violation_is_no_end_of_what_waits() -> None:
    """It says what a topic's lists break, not that they were repaired."""
    job = Answered()
    job.send(job.events.join(0), job.events.create("t", 1, 1))
    job.send(job.events.leave(0, mode=LeaveMode.DECOMMISSION))
    violated = TopicStatus(
        cluster_id="c1",
        topic="t",
        status=Status.VIOLATED,
        code=None,
        message="partition 0 is on SPU 0, which is tainted",
        replicas=None,
        cause="e1",
    )
    assert job.awaited.take(Received(topic="any", key="c1/t", answer=violated))
    assert job.awaited.waiting == ["c1/t"]


def test_an_spu_that_is_offline_back_or_unknown_is_not_drained() -> None:
    """None of these took it out of a map."""
    job = Answered()
    job.send(*job.events.joins(0, 1, 2), job.events.leave(0))
    job.send(job.events.leave(1, mode=LeaveMode.DECOMMISSION), job.events.join(1))
    job.send(job.events.leave(9, mode=LeaveMode.DECOMMISSION))
    assert job.awaited.drained == {}
    assert len(job.awaited.rejected) == 1
