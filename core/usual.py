"""The usual create: a new topic whose lists fill no SPU. Nearly all events of a job are such.

What `decide` finds out with care is known at once here: nobody leaves the ring, nothing follows,
and what a map's reason says of the ring is the same as in the map before. So the same records come
out at a tenth of the cost. Whatever is not usual is left to `decide`; tests hold one to the other.
"""

from __future__ import annotations

from typing import Final

from spu_assigner.core.courses import course_of
from spu_assigner.core.events import Policy, TopicCreate
from spu_assigner.core.limits import REPLICATION_FACTOR_MAX
from spu_assigner.core.quick import quick
from spu_assigner.core.records import (
    ChainsChanged,
    EventSeen,
    Reason,
    ReplicaMap,
    Status,
    TopicStatus,
    Usual,
)
from spu_assigner.core.state import ClusterState, event_hash

PARTITIONS_MAX: Final = 1_024  # a larger one costs so much that nothing is saved here

_reason = quick(Reason)
_replica_map = quick(ReplicaMap)
_topic_status = quick(TopicStatus)
_chains_changed = quick(ChainsChanged)
_event_seen = quick(EventSeen)


def usual_create(state: ClusterState, event: TopicCreate, default_policy: Policy) -> Usual | None:
    """The records of a usual create, as `decide` gives them; None: it is none. Changes nothing."""
    topic, partitions = event.topic, event.partitions
    if (
        topic in state.topics
        or topic in state.waiting
        or event.start_index is not None
        or event.shift is not None
        or event.replicas is not None
        or event.validate_only
        or not 1 <= partitions <= PARTITIONS_MAX
        or not 1 <= event.replication_factor <= REPLICATION_FACTOR_MAX
    ):
        return None
    hashed = event_hash(event.event_id)
    if hashed in state.memory or state.ledger.free_floor(partitions) <= partitions:
        return None
    policy = event.policy or default_policy
    kind = (policy, event.replication_factor, event.ignore_rack)
    ring = state.ring
    course = ring.courses.get(kind)
    if course is None:
        course = course_of(state, policy, event.replication_factor, ignore_rack=event.ignore_rack)
        if course is None:
            return None
        ring.courses[kind] = course
    order = course.order
    index = ring.index(order, state.chains[order])
    lists, (same_rack, in_list) = course.lists(state, index, partitions)
    after = index + partitions
    cluster_id, cause = state.cluster_id, event.event_id
    return Usual(
        (
            _replica_map(
                cluster_id=cluster_id,
                topic=topic,
                revision=1,
                policy=policy,
                replicas=lists,
                cores=None,
                chain_index=after,
                cause=cause,
                replication_factor=event.replication_factor,
                ignore_rack=event.ignore_rack,
                reason=_reason(
                    mode=course.mode,
                    start_index=index,
                    ring_size=course.ring_size,
                    ring_fingerprint=course.ring_fingerprint,
                    offline=course.offline,
                    saturated=course.saturated,
                    same_rack=same_rack,
                    in_list=in_list,
                ),
            ),
            _topic_status(
                cluster_id=cluster_id,
                topic=topic,
                status=Status.ASSIGNED,
                code=None,
                message=None,
                replicas=None,
                cause=cause,
            ),
            _chains_changed(
                cluster_id=cluster_id,
                chains=((order, ring.chain_at(order, after)),),
                registration_next=state.registration_next,
            ),
            _event_seen(cluster_id=cluster_id, event_hash=hashed),
        )
    )
