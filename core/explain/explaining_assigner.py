"""Answers together with their reasons, for a caller that has the events: the state before each
decision is at hand, so everything can be named."""

from __future__ import annotations

from collections.abc import Sequence

from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import DEFAULT_POLICY, Event, Policy
from spu_assigner.core.base.records import Answer, Record, ReplicaMap
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.explain.decisions import explain_map
from spu_assigner.core.explain.placement_decision import PlacementDecision
from spu_assigner.core.state.cluster_state import ClusterState

Reasons = list[tuple[int, PlacementDecision]]  # by partition, of those whose list the map set


class ExplainingAssigner:
    """As `Assigner`, but each map comes with the decision for each list that it set."""

    def __init__(self, default_policy: Policy = DEFAULT_POLICY) -> None:
        self.assigner = Assigner(default_policy)

    def apply(self, event: Event) -> list[tuple[Answer, Reasons]]:
        """Decide and apply; the answers in their fixed order, without reasons but for maps."""
        reasons: dict[int, Reasons] = {}  # by the identity of the map

        def explain(state: ClusterState, decided: Sequence[Record]) -> None:
            for record in decided:
                if isinstance(record, ReplicaMap) and record.replicas is not None:
                    topic = state.topics.get(record.topic)
                    before = None if topic is None else topic.replicas.lists().tolist()
                    found = explain_map(state, record, before, is_before=True)
                    reasons[id(record)] = [*found.items()]

        records = self.assigner.records(event, witness=explain)
        return [(answer, reasons.get(id(answer), [])) for answer in answers(records)]
