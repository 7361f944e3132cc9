"""All clusters in one object: the way in for those who embed the core."""

from __future__ import annotations

from spu_assigner.core.base.events import DEFAULT_POLICY, Event, Policy, policy_of
from spu_assigner.core.base.limits import PRODUCT_NAMES
from spu_assigner.core.base.records import Answer, Record
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.decision.machine import Witness, step
from spu_assigner.core.state.cluster_state import ClusterState


class Assigner:
    """Keeps the state of each cluster in memory and answers events, in the order they are given.

    >>> from spu_assigner.core import Assigner, Policy, SpuJoined, TopicCreate
    >>> assigner = Assigner(default_policy=Policy.FLUVIO)
    >>> for spu_id in range(5):
    ...     joined = SpuJoined(event_id=f"join-{spu_id}", cluster_id="c1", spu_id=spu_id)
    ...     [answer] = assigner.apply(joined)
    >>> answer.change, answer.ring_size
    (<RingChange.JOINED: 'joined'>, 5)
    >>> create = TopicCreate(
    ...     event_id="e1", cluster_id="c1", topic="orders", partitions=3, replication_factor=3
    ... )
    >>> replica_map, status = assigner.apply(create)
    >>> replica_map.replicas.tolist()
    [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    >>> assigner.apply(create)  # a copy of an event changes nothing and is not answered again
    ()
    """

    def __init__(
        self,
        default_policy: Policy = DEFAULT_POLICY,
        *,
        reserved_names: frozenset[str] = PRODUCT_NAMES,
    ) -> None:
        """Start without any cluster; an unknown policy raises `InvalidEventError`."""
        self.default_policy = policy_of(default_policy)
        """The policy of creates that name none."""
        self.reserved_names = reserved_names
        """Topics that no create may be called."""
        self.clusters: dict[str, ClusterState] = {}
        """The state of each cluster that an event named."""

    def apply(self, event: Event) -> tuple[Answer, ...]:
        """Decide, apply, and give the answers: maps by topic, statuses, ring events by SPU id.

        An event that raises leaves the state as it was.
        """
        return answers(self.records(event))

    def records(self, event: Event, *, witness: Witness | None = None) -> tuple[Record, ...]:
        """All records, in the order in which they apply, with those that only the state needs.

        `witness` is given those that were decided together, on the state before they apply.
        """
        state = self.clusters.get(event.cluster_id)
        if state is None:
            state = self.clusters[event.cluster_id] = ClusterState(event.cluster_id)
        try:
            return step(
                state,
                event,
                default_policy=self.default_policy,
                reserved_names=self.reserved_names,
                witness=witness,
            )
        finally:
            if state.is_empty:  # Nothing is known of it, as if no event had come.
                del self.clusters[event.cluster_id]
