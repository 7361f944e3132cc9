"""Answers together with their reasons, for a caller that has the events: the state before each
decision is at hand, so everything can be named.

A second copy of each cluster's state follows the records one by one and stands, when a map is
decided, where the decision stood.
"""

from __future__ import annotations

from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import DEFAULT_POLICY, Event, Policy
from spu_assigner.core.base.records import Answer, Mode, ReplicaMap
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.explain.decisions import explain_map
from spu_assigner.core.explain.placement_decision import PlacementDecision
from spu_assigner.core.state.cluster_state import ClusterState, evolve

Reasons = list[tuple[int, PlacementDecision]]  # by partition, of those whose list the map set


class ExplainingAssigner:
    """As `Assigner`, but each map comes with the decision for each list that it set."""

    def __init__(self, default_policy: Policy = DEFAULT_POLICY) -> None:
        self.assigner = Assigner(default_policy)
        self._followers: dict[str, ClusterState] = {}

    def apply(self, event: Event) -> list[tuple[Answer, Reasons]]:
        """Decide and apply; the answers in their fixed order, without reasons but for maps."""
        records = self.assigner.records(event)
        follower = self._followers.setdefault(event.cluster_id, ClusterState(event.cluster_id))
        reasons: dict[int, Reasons] = {}  # by the identity of the map
        decided: list[ReplicaMap] = []  # together, on the state that the follower has
        for record in records:
            if isinstance(record, ReplicaMap) and record.replicas is not None:
                topic = follower.topics.get(record.topic)
                before = None if topic is None else topic.replicas.lists().tolist()
                found = explain_map(follower, record, before, is_before=True)
                reasons[id(record)] = [*found.items()]
                if record.reason is not None and record.reason.mode is Mode.REBALANCE:
                    decided.append(record)  # All maps of a rebalance are decided on one state.
                    continue
            for each in (*decided, record):
                evolve(follower, each)
            decided.clear()
        if follower.is_empty:  # As the assigner forgets it.
            del self._followers[event.cluster_id]
        return [(answer, reasons.get(id(answer), [])) for answer in answers(records)]
