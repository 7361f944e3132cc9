"""A slow and obvious model of ring, indexes, requests and waiting, to hold the core against.

Written from the contract, apart from the core, in plain Python; it imports nothing of the product.
Everything is done the plainest way: one partition after the other, indexes as plain integers that
are re-based at each change of the ring, a deep copy for what may have to be undone. Events and
answers are the JSON objects of `spu-assigner simulate`; messages are always null.

Not modelled: where `balanced`, `kraft` and `rendezvous` place, named starts, what changes lists
that are there (repairs, demotions, adoptions, other factors, rebalances), and what a single event
can be rejected for by itself: numbers out of range, malformed lists, limits.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from support.model.plain_cluster import Cluster, Json, Refusal, Spu, Topic, release_cores, resized
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
            spu.cordoned = before.cordoned
        cluster.spus[spu_id] = spu
        is_update = before is not None and before.online
        cluster.report(spu_id, "updated" if is_update else "joined")
        cluster.refresh()
        grew = before is None or not before.online or capacity > before.capacity
        if before is None or grew or rack != before.rack:  # Racks may be complete now.
            self._serve()

    def spu_left(self) -> None:
        cluster, spu_id = self.cluster, self.event["spu_id"]
        if spu_id not in cluster.spus:
            cluster.report(spu_id, "ignored", "SPU_UNKNOWN")
            return
        cluster.spus[spu_id].online = False
        cluster.report(spu_id, "left")
        cluster.refresh()

    def spu_cordon(self) -> None:
        self._set_cordoned(True)

    def spu_uncordon(self) -> None:
        if self._set_cordoned(False):
            self._serve()

    def _set_cordoned(self, value: bool) -> bool:
        cluster, spu_id = self.cluster, self.event["spu_id"]
        spu = cluster.spus.get(spu_id)
        if spu is None or spu.cordoned is value:
            cluster.report(spu_id, "ignored", "SPU_UNKNOWN" if spu is None else "SPU_UNCHANGED")
            return False
        spu.cordoned = value
        cluster.report(spu_id, "cordoned" if value else "uncordoned")
        cluster.refresh()
        return True

    def topic_create(self) -> None:
        event, name = self.event, self.event["topic"]
        policy = event.get("policy")
        if policy is None:
            policy = "manual" if event.get("replicas") is not None else self.default_policy
        before, is_trial = self.cluster, event.get("validate_only", False)
        if name.startswith("__") or name in PRODUCT_TOPICS:
            raise Refusal("RESERVED_NAME")
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
        for ids in topic.replicas:
            for spu_id in ids:
                cluster.spus[spu_id].count -= 1
        if topic.cores is not None:
            pairs = zip(topic.replicas, topic.cores, strict=True)
            release_cores(
                cluster, [pair for ids, cores in pairs for pair in zip(ids, cores, strict=True)]
            )
        cluster.refresh()
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
            "partitions": event["partitions"] - len(topic.replicas),
            "replication_factor": topic.width,
            "ignore_rack": topic.ignore_rack,
        }
        lists, cores = place(after, request, topic.policy)
        topic.replicas += lists
        if topic.cores is not None:
            topic.cores += cores or []
        topic.revision += 1
        topic.changed_by.append(cause)
        self._keep(after, name, topic, cause)

    def _serve(self) -> None:
        """Try the creates that wait, once, oldest first."""
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
        ignore_rack=event.get("ignore_rack", False),
    )
    return after, topic
