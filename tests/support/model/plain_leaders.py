"""How the oracle chooses who leads where a leader goes, or is not to lead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from support.model.plain_cluster import Cluster, Topic

Lists = list[list[int]]


def can_lead(cluster: Cluster, spu_id: int) -> bool:
    spu = cluster.spus[spu_id]
    return spu.online and not spu.demoted


def twice_fair_share(cluster: Cluster, spu_id: int, lists: int) -> int:
    """Twice what an SPU leads of so many lists if all that can lead do so by capacity."""
    capacities = {i: max(spu.capacity, 1) for i, spu in cluster.spus.items()}
    whole = sum(capacities[i] for i in capacities if can_lead(cluster, i))
    return -(-2 * lists * capacities[spu_id] // whole)


class Leads:
    """Who leads how many lists, of the cluster and of one topic, while leaders are chosen."""

    def __init__(self, cluster: Cluster, lists: Lists) -> None:
        """`lists` are the topic's as they are."""
        self.cluster = cluster
        self.of_cluster = cluster.leaders()
        self.of_topic = Counter(ids[0] for ids in lists)
        self.lists = len(lists)

    def choose(self, ids: list[int]) -> int | None:
        def worth(spu_id: int) -> tuple[bool, int, int]:
            own = self.of_topic[spu_id]
            capacity = max(self.cluster.spus[spu_id].capacity, 1)
            share = ((2 * self.of_cluster[spu_id] + 1) << 32) // (2 * capacity)
            return own >= twice_fair_share(self.cluster, spu_id, self.lists), share, own

        return min((i for i in ids if can_lead(self.cluster, i)), key=worth, default=None)

    def count(self, spu_id: int, by: int) -> None:
        self.of_cluster[spu_id] += by
        self.of_topic[spu_id] += by

    def settled(self, was: list[int], ids: list[int]) -> list[int]:
        """A list in its order; kept replicas stand before new ones."""
        spus, leader = self.cluster.spus, ids[0]
        if leader != was[0] or spus[leader].demoted:
            copies = [i for i in ids if i in was]
            online = [i for i in copies if spus[i].online]
            heir = self.choose(copies)
            if heir is None and (online or spus[leader].demoted):  # All with data that are online.
                heir = self.choose(ids)
                if heir is None and online and leader != was[0]:
                    heir = online[0]
            leader = leader if heir is None else heir
        if leader != was[0]:
            self.count(leader, 1)
            self.count(was[0], -1)
        return sorted(ids, key=lambda i: (i != leader, spus[i].demoted, ids.index(i)))


def lead_new(cluster: Cluster, lists: Lists, cores: Lists | None) -> None:
    """New lists that a demoted SPU would lead: it and another that can change places."""
    leads = Leads(cluster, lists)
    leads.of_cluster += leads.of_topic
    for number, ids in enumerate(lists):
        heir = leads.choose(ids) if cluster.spus[ids[0]].demoted else None
        if heir is not None:
            leads.count(heir, 1)
            place = ids.index(heir)
            for row in (ids, *([] if cores is None else [cores[number]])):
                row[0], row[place] = row[place], row[0]


def settle(cluster: Cluster, before: Lists, lists: Lists) -> Lists:
    """The lists of a topic in their order, where they are no longer as they were before.

    The cluster must hold those before: who leads is chosen by the counts before.
    """
    leads = Leads(cluster, before)
    pairs = zip(before, lists, strict=True)
    return [ids if was == ids else leads.settled(was, ids) for was, ids in pairs]


def demoted_last(cluster: Cluster) -> list[str]:
    """Put all lists in order; the topics that changed."""
    changed = []
    for name, topic in sorted(cluster.topics.items()):
        leads = Leads(cluster, topic.replicas)
        if reorder(topic, [leads.settled(ids, ids) for ids in topic.replicas]):
            changed.append(name)
    return changed


def take_back(cluster: Cluster, spu_id: int) -> list[str]:
    """Let an SPU that is no longer demoted lead its share; the topics that changed."""
    changed = set[str]()
    while can_lead(cluster, spu_id):
        ways = [
            (*way, name)
            for name, topic in cluster.topics.items()
            if topic.policy != "manual" and not topic.is_pinned
            for way in _ways(cluster, topic, spu_id)
        ]
        if not ways:
            break
        *_, number, name = min(ways, key=lambda way: (*way[:3], way[4], way[3]))
        lists = list(cluster.topics[name].replicas)
        lists[number] = [spu_id, *[i for i in lists[number] if i != spu_id]]
        reorder(cluster.topics[name], lists)
        changed.add(name)
    return sorted(changed)


def _ways(cluster: Cluster, topic: Topic, spu_id: int) -> Iterator[tuple[int, int, int, int]]:
    """The lists of a topic that an SPU may come to lead, each with what it is chosen by."""
    led, own = cluster.leaders(), Counter(ids[0] for ids in topic.replicas)
    capacity = {i: max(spu.capacity, 1) for i, spu in cluster.spus.items()}
    if own[spu_id] >= twice_fair_share(cluster, spu_id, len(topic.replicas)):
        return
    more = Fraction(2 * led[spu_id] + 1, capacity[spu_id])
    for number, (leader, *others) in enumerate(topic.replicas):
        is_more_even = more < Fraction(2 * led[leader] - 1, capacity[leader])
        if spu_id in others and can_lead(cluster, leader) and is_more_even:
            share = ((2 * led[leader] + 1) << 32) // (2 * capacity[leader])
            yield -share, leader, own[spu_id] - own[leader], number


def reorder(topic: Topic, lists: Lists) -> bool:
    """Give a topic its lists in another order; cores follow. Whether they changed."""
    if topic.cores is not None:
        pairs = zip(lists, topic.replicas, topic.cores, strict=True)
        topic.cores = [[of[was.index(i)] for i in ids] for ids, was, of in pairs]
    has_changed = topic.replicas != lists
    topic.replicas = lists
    return has_changed
