"""What `inspect` and `ui` report of a cluster, as plain data; and the topic that `explain` reads.

`inspect` prints it as JSON or as tables; `ui` draws it. The fields are a promise: names and
meanings stay, later releases only add some.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from msgspec.structs import asdict
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.records import Order, ReplicaMap, Status, Wait, Waiting
from spu_assigner.core.base.resources import dominant_share
from spu_assigner.core.constraints.improvable import improvable
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.topic import Topic
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.job.shard.clusters import output_key
from spu_assigner.stream.job.shard.published import PublishedState, checked_record, own_messages
from spu_assigner.stream.kafka.cloud_events import tombstone_is_release
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.topics import REPLICA_MAP

FORMAT: Final = 1  # rises when a field changes its meaning
WAITING_FIELDS: Final = (
    *("topic", "kind", "sequence", "cause", "policy", "partitions", "replication_factor"),
)

Report = dict[str, Any]


class NotThereError(AssignerError):
    """There is no such cluster, topic or partition."""


def inspect_report(
    states: Iterable[ClusterState], *, is_named: bool = False, topic: str | None = None
) -> Report:
    """The clusters; one that was named in detail, and of it a named topic as `topic_map`."""
    clusters = [
        {
            **cluster_report(state),
            "detail": _detail(state) if is_named else None,
            "topic": None if topic is None else topic_map(state, topic),
        }
        for state in states
    ]
    return {"format": FORMAT, "clusters": clusters}


def cluster_report(state: ClusterState) -> Report:
    """One cluster in numbers."""
    loads = spu_loads(state)
    online = [load for load in loads if load["fair_share"] is not None]
    states = [load["state"] for load in loads]
    sizes = [_size(each) for each in state.topics.values()]
    kinds = [waiting.kind for waiting in state.waiting.values()]
    return {
        "cluster_id": state.cluster_id,
        "spus": {  # total = online + leaving + offline
            "total": len(loads),
            "online": len(online),  # the saturated and the cordoned ones included
            # online, but not in the ring: without a free slot; by an order or a taint
            **{name: states.count(name) for name in ("saturated", "cordoned")},
            # decommissioned, and some list still holds them; away
            **{name: states.count(name) for name in ("leaving", "offline")},
        },
        "ring_size": state.ring.size,
        "racks": len({load["rack"] for load in loads} - {None}),
        "capacity": sum(load["capacity"] for load in online),  # replica slots
        "topics": len(state.topics),
        "partitions": sum(partitions for partitions, _, _ in sizes),
        "replicas": sum(replicas for _, replicas, _ in sizes),
        "short_lists": sum(short for _, _, short in sizes),
        "chain_indexes": {order.value: state.chain_index(order) for order in Order},
        "waiting_creates": kinds.count(Wait.CREATE),
        "waiting_repairs": kinds.count(Wait.REPAIR),
        # Over the online SPUs; None: there is none.
        "replicas_per_spu": _spread([load["replicas"] for load in online]),
        "leaders_per_spu": _spread([load["leaders"] for load in online]),
        "off_fair_share": _spread([load["replicas"] - load["fair_share"] for load in online]),
        "improvable": asdict(improvable(state)),  # as `plan` counts what could be better
    }


def _detail(state: ClusterState) -> Report:
    """What is reported of a cluster that is named."""
    loads = spu_loads(state)
    return {
        "racks": rack_loads(loads),
        "spus": loads,
        "topics": [topic_summary(state, name) for name in sorted(state.topics)],
        "waiting": waiting_requests(state),
    }


def spu_loads(state: ClusterState) -> list[Report]:
    """What each SPU of a cluster holds, by id."""
    ids = sorted(state.spus)
    spus = [state.spus[spu_id] for spu_id in ids]
    array = np.array(ids, dtype=np.int32)
    counts, leaders = state.ledger.counts(array).tolist(), state.ledger.leaders(array).tolist()
    members = set(state.ring.ids.tolist())
    capacity_online = sum(spu.capacity for spu in spus if spu.online)
    replicas_online = sum(count for spu, count in zip(spus, counts, strict=True) if spu.online)
    loads: list[Report] = []
    for spu, replicas, led in zip(spus, counts, leaders, strict=True):
        if spu.online:
            condition = "online" if spu.spu_id in members else "saturated"
            condition = "cordoned" if spu.is_closed else condition  # or tainted so
        else:
            condition = "leaving" if spu.leaving else "offline"
        has, used = dict(spu.resources), dict(sorted(state.ledger.used(spu.spu_id).items()))
        shares = [(name, used.get(name, 0), amount) for name, amount in has.items()]
        share, resource = dominant_share([(None, replicas, spu.capacity), *shares])
        fair = replicas_online * spu.capacity / capacity_online if capacity_online else 0.0
        loads.append(
            {
                "spu_id": spu.spu_id,
                "rack": spu.rack,
                "state": condition,
                "capacity": spu.capacity,
                "replicas": replicas,
                "share_used": round(replicas / spu.capacity, 4) if spu.capacity else None,
                # What it would hold if all did by capacity; None: it is not online.
                "fair_share": round(fair, 2) if spu.online else None,
                "leaders": led,
                "cores": spu.cores,
                "core_weights": spu.core_weights,  # one for each core; only `redpanda` weighs
                "registration": spu.registration,  # place in the ring of `redpanda`
                "labels": dict(spu.labels),
                "cordoned": spu.cordoned,  # whatever its state is
                "demoted": spu.demoted,
                "resources": has,  # beside slots
                "resources_used": used,
                "dominant_share": round(share, 4),  # the largest that is used, slots included
                "dominant_resource": resource,  # of which that is; None: of slots
                "taints": spu.taints,
            }
        )
    return loads


def rack_loads(loads: Sequence[Report]) -> list[Report]:
    """The same by rack, in the order of names; SPUs without a rack come first."""
    by_rack: dict[str | None, list[Report]] = {}
    for load in sorted(loads, key=lambda load: (load["rack"] is not None, load["rack"] or "")):
        by_rack.setdefault(load["rack"], []).append(load)
    return [
        {
            "rack": rack,
            "spus": len(members),
            "online": sum(load["fair_share"] is not None for load in members),
            "capacity": sum(load["capacity"] for load in members if load["fair_share"] is not None),
            "replicas": sum(load["replicas"] for load in members),
            "leaders": sum(load["leaders"] for load in members),
        }
        for rack, members in by_rack.items()
    ]


def waiting_requests(state: ClusterState) -> list[Report]:
    """What waits, as it will be served: repairs first."""
    by_turn = sorted(
        state.waiting.values(), key=lambda each: (each.kind is Wait.CREATE, each.sequence)
    )
    return [waiting_fields(each) for each in by_turn]


def waiting_fields(waiting: Waiting) -> Report:
    """The report's fields of a waiting request or repair, by name."""
    return {name: getattr(waiting, name) for name in WAITING_FIELDS}


def topic_summary(state: ClusterState, name: str) -> Report:
    """A living topic of the cluster, without its lists."""
    topic = state.topics[name]
    partitions, replicas, short = _size(topic)
    return {
        "topic": name,
        "policy": topic.policy.value,
        "revision": topic.revision,
        "partitions": partitions,
        "replication_factor": topic.replication_factor,  # that was asked for
        "replicas": replicas,  # that there are
        "short_lists": short,  # with fewer; of an adopted one, than it was adopted with
        "ignore_rack": topic.ignore_rack,
        # Hash of its create's event_id: 64 bits as 16 hexadecimal digits; likewise of the last
        # that changed it on request, oldest first.
        "created_by": f"{topic.created_by:016x}",
        "grown_by": [f"{each:016x}" for each in topic.changed_by],
        "is_waiting": name in state.waiting,  # to be repaired
        "pinned": topic.pinned,
        "demand": {} if topic.need is None else dict(topic.need.demand),  # of each replica
        "leader_demand": {} if topic.need is None else dict(topic.need.leader_demand),
        "constraints": topic.constraints,
    }


def topic_map(state: ClusterState, name: str) -> Report | None:
    """A living topic's map; None: a create that waits. Raises NotThereError: no such topic."""
    topic = state.topics.get(name)
    if topic is None:
        if name in state.waiting:
            return None
        raise NotThereError(
            f"cluster {state.cluster_id!r} has no topic {name!r}; it has "
            f"{listed(sorted({*state.topics, *state.waiting}))}"
        )
    return {
        "summary": topic_summary(state, name),
        "lists": topic.replicas.lists().tolist(),
        "cores": None if topic.cores is None else topic.cores.lists().tolist(),  # `redpanda` only
    }


def read_topic(
    connection: Connection, cluster_id: str, topic: str, partition: int | None = None
) -> tuple[ClusterState, list[ReplicaMap], range]:
    """A cluster as its outputs show it, the retained maps of a topic's present life, and the
    partition that is asked for, or all; no map and no partition while the topic waits.

    Raises:
        NotThereError: there is no such topic or partition.
        ClusterUnknownError: no message is of the cluster.
        DamagedOutputError: a message is none of the job's.
        ClientError: Kafka cannot be reached, or topics are missing.
    """
    published, topic_key = PublishedState(connection.prefix), f"{cluster_id}/{topic}".encode()
    maps: list[ReplicaMap] = []
    gone: Status | None = None  # how the topic went, if it did last
    for name, key, message in own_messages(connection, cluster_id):
        published.take_message(name, message)
        if name != REPLICA_MAP or key != topic_key:
            continue
        if (found := checked_record(message, ReplicaMap, output_key)) is not None:
            maps.append(found)
            gone = None
        else:
            is_release = tombstone_is_release(message.headers())
            gone = Status.RELEASED if is_release else Status.DELETED
            maps.clear()
    state = published.unchecked(cluster_id)
    partitions = range(len(maps[-1].replicas or ()) if maps else 0)
    if not maps and topic not in state.waiting:
        has = f"no topic {topic!r} in cluster {cluster_id!r}; it has {listed(sorted(state.topics))}"
        went = f"topic {topic!r} of cluster {cluster_id!r} is {gone}"
        raise NotThereError(has if gone is None else went)
    if partition is not None and maps:
        if partition not in partitions:
            raise NotThereError(
                f"no partition {partition} in topic {topic!r}; expected 0 to {len(partitions) - 1}"
            )
        partitions = range(partition, partition + 1)
    return state, maps, partitions


def _size(topic: Topic) -> tuple[int, int, int]:
    """Its partitions, its replicas, and how many lists are shorter than they are to be."""
    lengths = np.array(topic.replicas.lists().lengths())
    short = lengths < np.array(topic.lengths_wanted(len(lengths)))
    return len(lengths), int(lengths.sum()), int(short.sum())


def _spread(values: Sequence[float]) -> Report | None:
    """The least and the most."""
    return {"least": round(min(values), 2), "most": round(max(values), 2)} if values else None
