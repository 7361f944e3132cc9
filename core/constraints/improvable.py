"""What could be better in a cluster: lists on few racks, broken rules, topics with one leader.

Topics alike are looked at together, as arrays: 1,000 of nine replicas take 1 ms, 100,000 150 ms.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from spu_assigner.core.base.constraints import NO_CONSTRAINTS
from spu_assigner.core.base.replica_lists import PADDING
from spu_assigner.core.base.selectors import RACK
from spu_assigner.core.base.structs import FrozenStruct
from spu_assigner.core.constraints.rule_table import topic_rules
from spu_assigner.core.constraints.violations import breaking
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.topic import PackedLists, Topic


class Improvable(FrozenStruct, frozen=True):
    """How much could be better; racks and leaders of pinned topics are as they are to be."""

    few_racks: int = 0  # lists on fewer racks than the ring has for them
    broken_rules: int = 0  # lists that break a hard rule of their topic
    one_leader: int = 0  # topics of several partitions that one SPU leads, and others could


def improvable(state: ClusterState) -> Improvable:
    """The figures of a cluster. O(replicas); SPUs that are not described count for nothing."""
    alike: dict[Hashable, list[tuple[str, Topic]]] = {}
    for name, topic in state.topics.items():
        given = topic.constraints
        is_bound = given is not None and (given.apart_from or given.together_with)
        own = name if is_bound or name in state.apart_from else ""
        key = topic.width, topic.columns, topic.ignore_rack, topic.pinned, given, own
        alike.setdefault(key, []).append((name, topic))
    found = [_of_topics(state, *zip(*each, strict=True)) for each in alike.values()]
    return Improvable(*map(sum, zip(*found, strict=True)))


def _of_topics(
    state: ClusterState, names: Sequence[str], topics: Sequence[Topic]
) -> tuple[int, int, int]:
    """The figures of topics that are alike to the rules."""
    first = topics[0]
    of_topic = first.constraints or NO_CONSTRAINTS
    rules = topic_rules(state, names[0], of_topic, ignore_rack=first.ignore_rack)
    table, labels = rules.table, rules.table.labels
    data = b"".join([topic.data for topic in topics])
    rows = PackedLists(data, first.width, first.columns).matrix()
    is_there = rows != PADDING
    if not np.isin(rows[is_there], labels.ids).all():
        return 0, 0, 0
    places = np.where(is_there, labels.ids.searchsorted(rows), PADDING)
    given = rules.hard if first.constraints else ()
    broken = int(np.any([breaking(rule, places) for rule in given if rule.is_given], axis=0).sum())
    if first.pinned:
        return 0, broken, 0
    is_open = rules.allowed & np.isin(labels.ids, state.ring.ids)
    few = 0
    if not first.ignore_rack:
        racks, _ = labels.groups(RACK)
        on = np.sort(np.where(is_there, racks[places], PADDING), axis=1)
        found = (np.diff(on, prepend=PADDING, axis=1) != 0).sum(axis=1)
        few = int((found < np.minimum(is_there.sum(axis=1), len({*racks[is_open].tolist()}))).sum())
    counts = np.array([len(topic.data) for topic in topics]) // (first.width * first.columns)
    starts, leaders = counts.cumsum() - counts, places[:, 0]
    lone = np.minimum.reduceat(leaders, starts)
    lone = lone[(lone == np.maximum.reduceat(leaders, starts)) & (counts > 1)]
    ranks = np.minimum(table.columns[2], table.last_rank)  # in the last nothing is to be led
    able = is_open & (ranks < table.last_rank)
    others = np.sort(ranks[able]).searchsorted(ranks[lone], side="right") - able[lone]
    return few, broken, int((others > 0).sum())
