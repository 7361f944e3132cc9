"""A slow and obvious model of the whole core, to hold the real one against.

Written from the contract, apart from the core, in plain Python; it imports nothing of the product.
Everything is done the plainest way: one partition after the other, indexes as plain integers that
are re-based at each change of the ring, a deep copy for what may have to be undone. Events and
answers are the JSON objects of `spu-assigner simulate`; messages are always null.

Not modelled: where `balanced` places, what a rebalance moves, and what a single event can be
rejected for by itself: numbers out of range, malformed lists, limits.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from support.model.plain_changes import change_lists, resized_lists
from support.model.plain_cluster import (
    Cluster,
    Json,
    Refusal,
    Spu,
    Topic,
    release_cores,
    resized,
)
from support.model.plain_leaders import demoted_last, take_back
from support.model.plain_repair import repair_topic, shortage
from support.model.plain_requests import PARTITIONS_MAX, place, place_by_hand

REMEMBERED = 256
CHANGES_REMEMBERED = 15
PRODUCT_TOPICS = (
    *("spu-events", "topic-events", "replica-map", "topic-status", "ring-events", "dead-letter"),
    *("assigner-state", "assigner-commits", "assigner-audit", "applied-topics"),
)


class Oracle:
    def __init__(self, default_policy: str = "fluvio") -> None:
        self.default_policy = default_policy
        self.clusters: dict[str, Cluster] = {}

    def apply(self, event: Json) -> list[Json]:
        """The answers to one event, in the contract's order."""
        name, cause = event["cluster_id"], event["event_id"]
        cluster = self.clusters.setdefault(name, Cluster())
        if _is_repeated(cluster, event):
            return []
        cluster.seen = [*cluster.seen, cause][-REMEMBERED:]
        cluster.cause = cause
        talk = Talk(cluster, event, self.default_policy)
        try:
            getattr(talk, event["type"])()
        except Refusal as refusal:
            talk.say(event["topic"], "rejected", cause, code=refusal.args[0])
        after = self.clusters[name] = talk.cluster
        rings, after.ring_events = after.ring_events, []
        talk.maps.sort(key=lambda line: (line["topic"], line["revision"]))
        rings.sort(key=lambda line: line["spu_id"])  # stable: then as decided
        for line in rings:
            line["ring_size"] = len(after.ring)
        answers = [*talk.maps, *talk.statuses, *rings]
        for answer in answers:
            answer["cluster_id"] = name
        if not (after.spus or after.topics or after.creates):
            del self.clusters[name]  # Nothing is kept of a cluster of which nothing is left.
        return answers


def _is_repeated(cluster: Cluster, event: Json) -> bool:
    known = list(cluster.seen)
    topic = cluster.topics.get(event.get("topic", ""))
    if topic is not None:
        known += [topic.created_by, *topic.changed_by[-CHANGES_REMEMBERED:]]
    waiting = cluster.creates.get(event.get("topic", ""))
    if waiting is not None:
        known.append(waiting["event_id"])
    return event["event_id"] in known


class Talk:
    """One event and what is answered to it; `cluster` is replaced by a changed copy."""

    def __init__(self, cluster: Cluster, event: Json, default_policy: str) -> None:
        self.cluster = cluster
        self.event = event
        self.default_policy = default_policy
        self.maps: list[Json] = []
        self.statuses: list[Json] = []

    def spu_joined(self) -> None:
        cluster, event = self.cluster, self.event
        spu_id, rack, cores = event["spu_id"], event.get("rack"), event.get("cores", 1)
        capacity = event.get("capacity")
        if capacity is None:
            capacity = cores * 7000 - 2
        before = cluster.spus.get(spu_id)
        spu = Spu(rack=rack, capacity=capacity, weights=resized([2], cores))
        if before is not None:
            spu.weights, spu.count = resized(before.weights, cores), before.count
            spu.cordoned, spu.demoted = before.cordoned, before.demoted
        cluster.spus[spu_id] = spu
        is_update = before is not None and before.online
        cluster.report(spu_id, "updated" if is_update else "joined")
        cluster.refresh()
        if not is_update and any(cluster.spus[i].demoted for i in cluster.leaders()):
            self._demoted_last()
        if before is None or not before.online or capacity > before.capacity:
            self._serve()

    def spu_left(self) -> None:
        cluster, spu_id = self.cluster, self.event["spu_id"]
        if spu_id not in cluster.spus:
            cluster.report(spu_id, "ignored", "SPU_UNKNOWN")
            return
        spu, is_final = cluster.spus[spu_id], self.event.get("mode", "offline") == "decommission"
        if (is_final and spu.is_dead) or (spu.leaving and not is_final):
            spu.unreachable = True
        spu.online = False
        cluster.report(spu_id, "left")
        cluster.refresh()
        if is_final:
            spu.leaving = True
            self._decommission(spu_id, self.event["event_id"])

    def spu_cordon(self) -> None:
        self._set("cordoned", True, "cordoned")

    def spu_uncordon(self) -> None:
        if self._set("cordoned", False, "uncordoned"):
            self._serve()

    def spu_demote(self) -> None:
        if self._set("demoted", True, "demoted"):
            self._demoted_last()

    def spu_undemote(self) -> None:
        if self._set("demoted", False, "undemoted"):
            self._demoted_last()
            self._say_reordered(take_back(self.cluster, self.event["spu_id"]))

    def _set(self, flag: str, value: bool, change: str) -> bool:
        cluster, spu_id = self.cluster, self.event["spu_id"]
        spu = cluster.spus.get(spu_id)
        if spu is None or getattr(spu, flag) is value:
            code = "SPU_UNKNOWN" if spu is None else "SPU_UNCHANGED"
            cluster.report(spu_id, "ignored", code)
            return False
        setattr(spu, flag, value)
        cluster.report(spu_id, change)
        cluster.refresh()
        return True

    def _demoted_last(self) -> None:
        self._say_reordered(demoted_last(self.cluster))

    def _say_reordered(self, names: list[str]) -> None:
        for name in names:
            topic = self.cluster.topics[name]
            topic.revision += 1
            self.say_map(name, topic, self.event["event_id"])

    def _decommission(self, spu_id: int, cause: str) -> None:
        cluster = self.cluster
        for name, topic in sorted(cluster.topics.items()):
            if not any(spu_id in ids for ids in topic.replicas):
                continue
            self._repair_lists(name, topic, cause, only=spu_id)
        cluster.forget_the_gone()

    def _repair_lists(
        self, name: str, topic: Topic, cause: str, *, only: int | None = None
    ) -> None:
        """Repair a topic that lies on leaving SPUs, and say so."""
        cluster = self.cluster
        if repair_topic(cluster, topic, only=only):
            topic.revision += 1
            self.say_map(name, topic, cause)
        code = shortage(cluster, topic)
        if code is not None:
            cluster.repairs[name] = cause
            self.say(name, "waiting", cause, code=code)
        elif name in cluster.repairs:
            self.say(name, "assigned", cluster.repairs.pop(name))

    def topic_create(self) -> None:
        event, name = self.event, self.event["topic"]
        policy = event.get("policy")
        if policy is None:
            policy = "manual" if event.get("replicas") is not None else self.default_policy
        before, is_trial = self.cluster, event.get("validate_only", False)
        _check_reserved(name)
        if name in before.topics or name in before.creates:
            raise Refusal("TOPIC_EXISTS")
        others = {other.replace(".", "_") for other in (*before.topics, *before.creates)}
        if name.replace(".", "_") in others:
            raise Refusal("TOPIC_COLLIDES")
        try:
            after, topic = _created(before, event, policy)
        except Refusal as refusal:
            code = refusal.args[0]
            waits = policy != "manual" and event.get("on_shortage", "reject") == "wait"
            if not waits or is_trial or not code.startswith("INSUFFICIENT_"):
                raise
            before.creates[name] = {**event, "policy": policy}
            self.say(name, "waiting", event["event_id"], code=code)
            return
        if is_trial:
            self.say(name, "validated", event["event_id"], replicas=topic.replicas)
        else:
            self._keep(after, name, topic, event["event_id"])

    def topic_delete(self) -> None:
        self._forget("deleted")

    def topic_release(self) -> None:
        self._forget("released")

    def _forget(self, answer: str) -> None:
        """A release differs from a delete in the answer's word alone."""
        cluster, name, cause = self.cluster, self.event["topic"], self.event["event_id"]
        if name in cluster.creates:
            del cluster.creates[name]
            self.say(name, answer, cause)
            return
        topic = _known(cluster, name)
        del cluster.topics[name]
        cluster.repairs.pop(name, None)
        for ids in topic.replicas:
            for spu_id in ids:
                cluster.spus[spu_id].count -= 1
        if topic.cores is not None:
            pairs = zip(topic.replicas, topic.cores, strict=True)
            release_cores(
                cluster, [pair for ids, cores in pairs for pair in zip(ids, cores, strict=True)]
            )
        cluster.refresh()
        cluster.forget_the_gone()
        topic.revision += 1
        self.say_map(name, topic, cause, is_gone=True)
        self.say(name, answer, cause)
        self._serve()

    def topic_grow(self) -> None:
        event, name, cause = self.event, self.event["topic"], self.event["event_id"]
        after = deepcopy(self.cluster)
        topic = _known(after, name)
        if topic.policy == "manual":
            raise Refusal("MANUAL_TOPIC")
        if not len(topic.replicas) < event["partitions"] <= PARTITIONS_MAX:
            raise Refusal("INVALID_PARTITIONS")
        request = {
            "topic": name,
            "first_partition": len(topic.replicas),
            "partitions": event["partitions"] - len(topic.replicas),
            "replication_factor": topic.width,
            "ignore_rack": topic.ignore_rack,
        }
        lists, cores = place(after, request, topic.policy)
        topic.replicas += lists
        if topic.cores is not None:
            topic.cores += cores or []
        topic.revision += 1
        topic.widths += [topic.width] * len(lists)
        topic.changed_by.append(cause)
        self._keep(after, name, topic, cause)

    def topic_adopted(self) -> None:
        event, name, cause = self.event, self.event["topic"], self.event["event_id"]
        cluster, lists = self.cluster, [list(ids) for ids in event["replicas"]]
        _check_reserved(name)
        if any(spu_id not in cluster.spus for ids in lists for spu_id in ids):
            raise Refusal("MANUAL_UNKNOWN_SPU")
        known, is_pinned = cluster.topics.get(name), event.get("pinned", False)
        policy = event.get("policy") or (self.default_policy if known is None else known.policy)
        if known is not None and (known.policy, known.is_pinned, known.replicas) == (
            policy,
            is_pinned,
            lists,
        ):
            self.say(name, "adopted", cause)
            return
        topic = known
        if topic is None:
            topic = Topic(policy, [], None, cause, 0, [], ignore_rack=False, revision=0)
            cluster.topics[name] = topic
        else:
            topic.changed_by.append(cause)
        frees = change_lists(cluster, topic, lists, policy=policy)
        topic.policy, topic.is_pinned, topic.revision = policy, is_pinned, topic.revision + 1
        topic.widths = [len(ids) for ids in lists]
        topic.width = max(topic.widths)
        self.say_map(name, topic, cause)
        self.say(name, "adopted", cause)
        waits = cluster.creates.pop(name, None)
        if waits is not None:
            self.say(name, "rejected", waits["event_id"], code="TOPIC_EXISTS")
        if any(cluster.spus[spu_id].leaving for ids in lists for spu_id in ids):
            self._repair_lists(name, topic, cause)
        elif name in cluster.repairs:
            self.say(name, "assigned", cluster.repairs.pop(name))
        cluster.forget_the_gone()
        if frees:
            self._serve()

    def topic_replication(self) -> None:
        event, name, cause = self.event, self.event["topic"], self.event["event_id"]
        cluster, factor = self.cluster, event["replication_factor"]
        topic = _known(cluster, name)
        if not 1 <= factor <= 32:
            raise Refusal("INVALID_REPLICATION_FACTOR")
        if topic.policy == "manual":
            raise Refusal("MANUAL_TOPIC")
        lists = topic.replicas
        if set(topic.widths) != {factor}:
            lists = resized_lists(cluster, topic, factor)
        self.say(name, "assigned", cause)
        if lists is topic.replicas:
            return
        frees = change_lists(cluster, topic, lists, policy=topic.policy)
        topic.changed_by.append(cause)
        topic.revision += 1
        topic.width, topic.widths = factor, [factor] * len(lists)
        self.say_map(name, topic, cause)
        if name in cluster.repairs and shortage(cluster, topic) is None:
            self.say(name, "assigned", cluster.repairs.pop(name))
        cluster.forget_the_gone()
        if frees:
            self._serve()

    def _serve(self) -> None:
        """Try what waits, once: short lists first, then creates, oldest first."""
        for name, cause in list(self.cluster.repairs.items()):
            cluster = self.cluster
            cluster.cause = cause
            topic = cluster.topics[name]
            if repair_topic(cluster, topic):
                topic.revision += 1
                self.say_map(name, topic, cause)
            if shortage(cluster, topic) is None:
                del cluster.repairs[name]
                self.say(name, "assigned", cause)
            cluster.forget_the_gone()
        for name, event in list(self.cluster.creates.items()):
            self.cluster.cause = event["event_id"]
            try:
                after, topic = _created(self.cluster, event, event["policy"])
            except Refusal:
                continue
            del after.creates[name]
            self._keep(after, name, topic, event["event_id"])

    def _keep(self, after: Cluster, name: str, topic: Topic, cause: str) -> None:
        """Go on with the changed copy, and report the topic that is new in it."""
        self.cluster = after
        after.topics[name] = topic
        self.say_map(name, topic, cause)
        self.say(name, "assigned", cause)

    def say_map(self, name: str, topic: Topic, cause: str, *, is_gone: bool = False) -> None:
        line = {
            "type": "replica_map",
            "topic": name,
            "revision": topic.revision,
            "policy": topic.policy,
            "replicas": None if is_gone else deepcopy(topic.replicas),
            "cores": None if is_gone else deepcopy(topic.cores),
            "chain_index": self.cluster.index_shown(topic),
            "cause": cause,
        }
        self.maps.append(line)

    def say(self, name: str, status: str, cause: str, **fields: Any) -> None:
        line = {"type": "topic_status", "topic": name, "status": status, "code": None}
        line |= {"message": None, "replicas": None, "cause": cause}
        self.statuses.append({**line, **fields})


def _check_reserved(name: str) -> None:
    if name.startswith("__") or name in PRODUCT_TOPICS:
        raise Refusal("RESERVED_NAME")


def _known(cluster: Cluster, name: str) -> Topic:
    if name not in cluster.topics:
        raise Refusal("TOPIC_UNKNOWN")
    return cluster.topics[name]


def _created(before: Cluster, event: Json, policy: str) -> tuple[Cluster, Topic]:
    """The cluster with the topic placed, and the topic; `before` stays as it is."""
    after = deepcopy(before)
    if policy == "manual":
        lists, cores = place_by_hand(after, event["replicas"]), None
    else:
        lists, cores = place(after, event, policy)
    topic = Topic(
        policy=policy,
        replicas=lists,
        cores=cores,
        created_by=event["event_id"],
        width=len(lists[0]),
        widths=[len(lists[0])] * len(lists),
        ignore_rack=event.get("ignore_rack", False),
    )
    return after, topic
