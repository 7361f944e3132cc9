"""What the state keeps of a topic."""

from __future__ import annotations

from typing import Any

from spu_assigner.core import ClusterState, Policy, SpuJoined, TopicCreate, step
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.resources import Need


def created(**asked: Any) -> ClusterState:
    """A cluster of three SPUs with one topic."""
    state = ClusterState("c1")
    for spu_id in range(3):
        joined = SpuJoined(
            event_id=f"j{spu_id}", cluster_id="c1", spu_id=spu_id, resources={"disk_bytes": 10}
        )
        step(state, joined, default_policy=Policy.BALANCED)
    create = TopicCreate(event_id="e", cluster_id="c1", topic="t", **asked)
    step(state, create, default_policy=Policy.BALANCED)
    return state


def test_a_topic_keeps_what_it_names() -> None:
    """Its need and its rules, and defaults for all else."""
    rules = Constraints(forbid=("spot",))
    topic = created(demand={"disk_bytes": 1}, constraints=rules).topics["t"]
    need = Need((("disk_bytes", 1),))
    assert (topic.need, topic.constraints) == (need, rules)
    assert (topic.cores, topic.pinned, topic.wanted_lengths) == (None, False, None)
