"""What of a plan the job would reject: the core is asked, with the state that is published."""

from __future__ import annotations

from dataclasses import replace

from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.records import Status, TopicStatus
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.clusters.desired.decision import (
    DesiredChange,
    DesiredChanges,
    DesiredRefusal,
)


def without_rejected(
    found: DesiredChanges, state: ClusterState, *, reserved: frozenset[str]
) -> DesiredChanges:
    """The same, with the changes that the core rejects among what cannot be as desired.

    A request that names no policy is tried with the default policy; the job may have another.

    Args:
        state: of the cluster; it is changed.
        reserved: names that no topic may have.
    """
    assigner = Assigner(reserved_names=reserved)
    assigner.clusters[state.cluster_id] = state
    accepted: list[DesiredChange] = []
    refused = list(found.refused)
    for number, change in enumerate(found.changes):
        asked = replace(change.event, event_id=f"asked-{number}")
        rejected = [
            each
            for each in assigner.apply(asked)
            if isinstance(each, TopicStatus)
            and each.cause == asked.event_id
            and each.status is Status.REJECTED
        ]
        if rejected:
            reason = f"{change.about}: rejected as the cluster is now: {rejected[0].message}"
            refused.append(
                DesiredRefusal(topic=asked.topic, reason=f"{reason} ({rejected[0].code})")
            )
        else:
            accepted.append(change)
    return replace(found, changes=tuple(accepted), refused=tuple(refused))
