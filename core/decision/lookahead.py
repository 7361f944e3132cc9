"""Creates that saturate no SPU, placed from rows made ahead: nearly all events of a job are such.

What the requests of one kind on one ring have in common is kept with the ring. Other creates are
placed by `requests.place_create`, with the same lists; tests hold one to the other.

Requests of one rule go on where the last one stopped, so the next rows are known before anybody
asks for them: they are made many at once, as a `Table` of which each request takes a slice. On a
small ring that is the whole period of the rule, on a large one a window that moves on.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from spu_assigner.core.balanced.failover import is_ordered, order_followers
from spu_assigner.core.balanced.policy import SMALL_REQUEST_CELLS_MAX, place_balanced
from spu_assigner.core.balanced.rounds import RoundsAhead, has_rounds
from spu_assigner.core.balanced.uniform_ring import UniformRing
from spu_assigner.core.base.chains import Order
from spu_assigner.core.base.events import Policy, TopicCreate
from spu_assigner.core.base.records import GrantedCreate, Mode, RingFacts
from spu_assigner.core.base.replica_lists import ReplicaLists, Table
from spu_assigner.core.decision.answers import recorded_ring
from spu_assigner.core.decision.requests import rule_of
from spu_assigner.core.policies.planner import (
    MODE_OF,
    ORDER_OF,
    PASSED_BEFORE,
    Cursor,
    PlacementRule,
    known_table,
    period_of,
    period_table,
    table_ahead,
)
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.leading import has_demoted
from spu_assigner.core.state.loads import Layout

PARTITIONS_AHEAD_MAX: Final = 1_024  # a larger one costs so much that nothing is saved here
AHEAD_FIRST: Final = 64  # rows; doubled each time, since a ring may not last
AHEAD_MAX: Final = 8_192  # 100 KB of three replicas each; made in the time of some ten requests

Passed = tuple[int, int]  # SPUs passed over: for their rack, because the list had them
_NOBODY: Final[Passed] = (0, 0)


Placed = tuple[RingFacts, ReplicaLists, Passed]  # what the reason says, and the lists


class PlacementLookahead(Protocol):
    """How requests of one replication factor are placed while a ring lasts."""

    order: Order

    def lists(self, state: ClusterState, index: int, count: int) -> Placed:
        """The lists of so many partitions, placed from a chain index on; they fill nobody."""


class Facts:
    """What the reason of each map says of the ring."""

    __slots__ = ("cache", "mode", "order", "ring")

    def __init__(self, state: ClusterState, mode: Mode, order: Order) -> None:
        self.cache: bytes | None = None
        self.mode = mode
        self.order = order
        self.ring = recorded_ring(state, order)


class RuleLookahead(Facts):
    """Of a rule, whose rows depend on the index alone."""

    __slots__ = ("_ahead", "_first", "_passed_before", "_replicas", "_rule", "_table")

    def __init__(self, state: ClusterState, rule: PlacementRule, replicas: int) -> None:
        super().__init__(state, MODE_OF[rule], ORDER_OF[rule])
        self._rule = rule
        self._replicas = replicas
        self._ahead = AHEAD_FIRST // 2
        self._table: Table | None = None
        self._first = 0  # the chain index of the table's first row
        self._passed_before: NDArray[Any] | None = None

    def lists(self, state: ClusterState, index: int, count: int) -> Placed:
        table, begin = self._table, index - self._first
        if table is None or begin < 0 or begin + count > table.count:
            table = self._look_ahead(state, index, count)
            begin = index - self._first
        before = self._passed_before
        if before is None:
            return self, ReplicaLists.of_table(table, begin, count), _NOBODY
        same_rack, in_list = (before[begin + count] - before[begin]).tolist()
        return self, ReplicaLists.of_table(table, begin, count), (same_rack, in_list)

    def _look_ahead(self, state: ClusterState, index: int, count: int) -> Table:
        """A table that holds these rows; twice as many as the last time."""
        ring, rule, replicas = state.ring, self._rule, self._replicas
        self._ahead = min(2 * self._ahead, AHEAD_MAX)
        period = period_of(rule, ring.size, replicas)
        if period is not None and (
            period <= self._ahead
            or (period <= AHEAD_MAX and known_table(ring, rule, replicas) is not None)
        ):
            self._first = index - index % period
            table = period_table(ring, rule, replicas, period)
        else:
            self._first = index
            table = table_ahead(Cursor(ring, rule, index), max(self._ahead, count), replicas)
        self._table = table
        self._passed_before = table.cache.get(PASSED_BEFORE)
        return table


class BalancedLookahead(Facts):
    """Of `balanced`, which weighs the ring for each request."""

    __slots__ = ("_ignore_rack", "_is_ordered", "_of_rounds", "_replicas", "_rounds", "_uniform")

    def __init__(self, state: ClusterState, replicas: int, *, ignore_rack: bool) -> None:
        super().__init__(state, Mode.BALANCED, Order.BALANCED)
        self._replicas = replicas
        self._ignore_rack = ignore_rack
        loads = state.ring_loads()
        layout = loads.layout
        if layout is None or (ignore_rack and not layout.is_one):
            layout = Layout.of(loads.ids, np.zeros_like(loads.ids), loads.capacities)
        self._is_ordered = is_ordered(state, replicas, ignore_rack=ignore_rack)
        kept = state.ring.uniform_rings
        if ignore_rack not in kept:
            kept[ignore_rack] = UniformRing.of(loads.ids, layout)
        uniform: UniformRing | None = kept[ignore_rack]
        self._uniform = None if uniform is None or not uniform.takes(replicas) else uniform
        self._rounds: RoundsAhead | None = None
        if has_rounds(layout, replicas):
            self._rounds = RoundsAhead(
                loads.ids, layout, self._uniform, replicas, is_kept=not self._is_ordered
            )
        self._of_rounds = Facts(state, Mode.BALANCED_ROUNDS, Order.BALANCED)

    def lists(self, state: ClusterState, index: int, count: int) -> Placed:
        if self._rounds is not None:
            lists = self._rounds.lists(state.ledger, partitions=count, start=index)
            if lists is not None:
                if self._is_ordered:
                    order_followers(
                        state, lists.matrix, ignore_rack=self._ignore_rack, may_exchange=True
                    )
                return self._of_rounds, lists, _NOBODY
        lists = None
        if self._uniform is not None and count * self._replicas <= SMALL_REQUEST_CELLS_MAX:
            lists = self._uniform.lists(
                state.ledger, partitions=count, replicas=self._replicas, start=index
            )
        if lists is None:
            loads = state.ring_loads()
            matrix = place_balanced(
                loads.without_racks() if self._ignore_rack else loads,
                partitions=count,
                replicas=self._replicas,
                start=index,
            )
            lists = ReplicaLists(matrix)
        if self._is_ordered:
            order_followers(state, lists.matrix, ignore_rack=self._ignore_rack, may_exchange=True)
        return self, lists, _NOBODY


def lookahead_of(
    state: ClusterState, policy: Policy, replicas: int, ignore_rack: bool
) -> PlacementLookahead | None:
    """The lookahead of such requests on the present ring; None: none, or they are refused.

    With a demoted SPU in the ring there is none.
    """
    ring = state.ring
    if not 1 <= replicas <= ring.size or has_demoted(state):
        return None
    match policy:
        case Policy.BALANCED:
            return BalancedLookahead(state, replicas, ignore_rack=ignore_rack)
        case Policy.FLUVIO | Policy.KAFKA:
            rule = rule_of(state, policy, ignore_rack=ignore_rack)
            return None if rule is None else RuleLookahead(state, rule, replicas)
        case _:
            return None


def grant_ahead(
    state: ClusterState, event: TopicCreate, policy: Policy, event_hash: int
) -> GrantedCreate | None:
    """Grant a create that is not refused; None: it may saturate an SPU, or names its own
    start, or what it needs of resources.

    The state is only read, but for the rows kept with its ring.
    """
    partitions, ledger = event.partitions, state.ledger
    if (
        event.start_index is not None
        or event.demand is not None
        or event.leader_demand is not None
        or event.constraints is not None
        or event.topic in state.apart_from
        or event.validate_only
        or partitions > PARTITIONS_AHEAD_MAX
        or (ledger.known_floor <= partitions and ledger.free_floor(partitions) <= partitions)
    ):
        return None
    ring = state.ring
    kind = policy, event.replication_factor, event.ignore_rack
    lookahead = ring.lookaheads.get(kind)
    if lookahead is None:
        lookahead = lookahead_of(state, *kind)
        if lookahead is None:
            return None
        ring.lookaheads[kind] = lookahead
    order = lookahead.order
    start = ring.index(order, state.chains[order])
    facts, lists, passed = lookahead.lists(state, start, partitions)
    after = start + partitions
    return GrantedCreate(
        event,
        policy,
        facts,
        lists,
        passed,
        start,
        after,
        ring.chain_at(order, after),
        event_hash,
        state.registration_next,
    )
