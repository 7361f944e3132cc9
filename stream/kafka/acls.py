"""The least rights that each part needs where Kafka has an authorizer: one table.

Rules: what is not in the table is not needed, and without a row something fails. Rights are given
for whole names, so that a job cannot touch what belongs to another; those on topics that replica
maps name are for any topic where none is said. `Read` and `Write` include
`Describe`, `AlterConfigs` includes `DescribeConfigs`. Nobody but a consumer of one's own that
keeps its place in a group, and `follow-brokers`, needs a right to a group: Spark's source, the
marker's reader and the other commands join none.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spu_assigner.stream.kafka.topics import (
    APPLIED_TOPICS,
    ASSIGNER_AUDIT,
    ASSIGNER_COMMITS,
    ASSIGNER_STATE,
    DEAD_LETTER,
    JOB_TOPICS,
    REPLICA_MAP,
    RING_EVENTS,
    SPU_EVENTS,
    TOPIC_EVENTS,
    TOPIC_STATUS,
    TOPICS,
    topic_name,
)

INPUTS: Final = (SPU_EVENTS, TOPIC_EVENTS)
ANY_TOPIC: Final = "*"  # as Kafka's authorizer takes it
ANSWERS: Final = (REPLICA_MAP, TOPIC_STATUS, RING_EVENTS, DEAD_LETTER)


class Role(StrEnum):
    """Who is given rights."""

    JOB = "job"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    GROUP = "group"
    ADMIN = "admin"
    AUDITOR = "auditor"
    RECOVERER = "recoverer"
    FOLLOWER = "follower"
    APPLIER = "applier"


class Resource(StrEnum):
    """What a right is for, as `kafka-acls` names it."""

    TOPIC = "topic"
    TRANSACTIONAL_ID = "transactional-id"
    GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One row: rights that go together."""

    role: Role
    resource: Resource
    names: tuple[str, ...]  # of topics, without the prefix; else what the name is
    operations: tuple[str, ...]  # as Kafka names them
    reason: str
    is_mapped: bool = False  # for topics that maps name, in the Kafka cluster where they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One right."""

    resource: Resource
    name: str  # in Kafka
    operation: str


GRANTS: Final = (
    Grant(
        role=Role.JOB,
        resource=Resource.TOPIC,
        names=INPUTS,
        operations=("Read", "DescribeConfigs"),
        reason="reads the events; looks at its start whether they bear the broker's time",
    ),
    Grant(
        role=Role.JOB,
        resource=Resource.TOPIC,
        names=tuple(
            spec.name for spec in JOB_TOPICS if spec.name not in (*INPUTS, ASSIGNER_COMMITS)
        ),
        operations=("Write", "DescribeConfigs"),
        reason="answers; looks at its start whether maps fit",
    ),
    Grant(
        role=Role.JOB,
        resource=Resource.TOPIC,
        names=(ASSIGNER_COMMITS,),
        operations=("Read", "Write", "DescribeConfigs"),
        reason="writes its marker, and reads the last one back",
    ),
    Grant(
        role=Role.JOB,
        resource=Resource.TRANSACTIONAL_ID,
        names=("prefix and query name",),
        operations=("Write",),
        reason="a batch is a transaction",
    ),
    Grant(
        role=Role.PRODUCER,
        resource=Resource.TOPIC,
        names=INPUTS,
        operations=("Write",),
        reason="`produce`; with `--wait` the consumer's rights too",
    ),
    Grant(
        role=Role.CONSUMER,
        resource=Resource.TOPIC,
        names=(*ANSWERS, ASSIGNER_STATE),
        operations=("Read",),
        reason="`watch`, `produce --wait`, `explain`, `ui`; "
        "a consumer of your own needs those it reads",
    ),
    Grant(
        role=Role.GROUP,
        resource=Resource.GROUP,
        names=("its group",),
        operations=("Read",),
        reason="a consumer of your own that keeps its place in a group, besides the consumer's",
    ),
    Grant(
        role=Role.ADMIN,
        resource=Resource.TOPIC,
        names=tuple(spec.name for spec in TOPICS),
        operations=("Create", "Describe", "AlterConfigs"),
        reason="`topics create` makes topics and mends their settings",
    ),
    Grant(
        role=Role.AUDITOR,
        resource=Resource.TOPIC,
        names=tuple(spec.name for spec in JOB_TOPICS),
        operations=("Read",),
        reason="`verify` reads everything, and answers the inputs once more",
    ),
    Grant(
        role=Role.RECOVERER,
        resource=Resource.TOPIC,
        names=INPUTS,
        operations=("Describe", "DescribeConfigs"),
        reason="`recover` looks what is left of the input, and at the settings",
    ),
    Grant(
        role=Role.RECOVERER,
        resource=Resource.TOPIC,
        names=(TOPIC_STATUS, RING_EVENTS, DEAD_LETTER),
        operations=("Describe", "DescribeConfigs"),
        reason="looks at the settings",
    ),
    Grant(
        role=Role.RECOVERER,
        resource=Resource.TOPIC,
        names=(REPLICA_MAP, ASSIGNER_STATE),
        operations=("Read", "DescribeConfigs"),
        reason="reads the state",
    ),
    Grant(
        role=Role.RECOVERER,
        resource=Resource.TOPIC,
        names=(ASSIGNER_COMMITS,),
        operations=("Read", "Write", "DescribeConfigs"),
        reason="reads the last marker, and writes that of the new checkpoint",
    ),
    Grant(
        role=Role.RECOVERER,
        resource=Resource.TOPIC,
        names=(ASSIGNER_AUDIT,),
        operations=("Read", "Write", "DescribeConfigs"),
        reason="writes it here too; reads all markers where the last is of a release before 0.3",
    ),
    Grant(
        role=Role.RECOVERER,
        resource=Resource.TRANSACTIONAL_ID,
        names=("prefix and query name",),
        operations=("Write",),
        reason="shuts out a job that still runs; the marker is a transaction",
    ),
    Grant(
        role=Role.FOLLOWER,
        resource=Resource.TOPIC,
        names=(SPU_EVENTS,),
        operations=("Read", "Write"),
        reason="`follow-brokers` sends joins and leaves, and reads what was said before",
    ),
    Grant(
        role=Role.FOLLOWER,
        resource=Resource.TOPIC,
        names=(ASSIGNER_STATE,),
        operations=("Read",),
        reason="reads what became of events that have expired",
    ),
    Grant(
        role=Role.FOLLOWER,
        resource=Resource.TOPIC,
        names=(ASSIGNER_COMMITS,),
        operations=("Describe",),
        reason="whose one partition the followers' group is about; nothing is read",
    ),
    Grant(
        role=Role.FOLLOWER,
        resource=Resource.GROUP,
        names=("prefix, `follow-brokers.` and cluster",),
        operations=("Read",),
        reason="one of its members leads",
    ),
    Grant(
        role=Role.FOLLOWER,
        resource=Resource.TRANSACTIONAL_ID,
        names=("prefix, `follow-brokers.` and cluster",),
        operations=("Write",),
        reason="shuts out a leader of before; of the watched cluster no right is needed",
    ),
    Grant(
        role=Role.APPLIER,
        resource=Resource.TOPIC,
        names=(REPLICA_MAP, ASSIGNER_STATE),
        operations=("Read",),
        reason="`plan`, `apply`: the maps, and what waits",
    ),
    Grant(
        role=Role.APPLIER,
        resource=Resource.TOPIC,
        names=(APPLIED_TOPICS,),
        operations=("Read", "Write", "Create"),
        reason="`apply` records what it made, where the mapped topics are; `plan` needs Read alone",
    ),
    Grant(
        role=Role.APPLIER,
        resource=Resource.TOPIC,
        names=("each that a map names",),
        operations=("Create", "Alter"),
        reason="`apply` makes topics and adds partitions; `plan` needs Describe, which Alter holds",
        is_mapped=True,
    ),
    Grant(
        role=Role.APPLIER,
        resource=Resource.TOPIC,
        names=("each that a map names",),
        operations=("Delete",),
        reason="only for `apply --delete`",
        is_mapped=True,
    ),
)


def follower_name(cluster_id: str, *, prefix: str = "") -> str:
    """The group, and the transactional id, of those that follow brokers for a cluster."""
    return f"{prefix}follow-brokers.{cluster_id}"


def acls(
    role: Role,
    *,
    prefix: str = "",
    query_name: str,
    group: str,
    cluster_id: str = "",
    mapped: str = ANY_TOPIC,
) -> tuple[Acl, ...]:
    """The rights of a role, by their names in Kafka.

    Args:
        cluster_id: a follower's.
        mapped: a topic that replica maps name; by default Kafka's name for any.
    """
    names = {Resource.TRANSACTIONAL_ID: f"{prefix}{query_name}", Resource.GROUP: group}
    if role is Role.FOLLOWER:
        names = dict.fromkeys(names, follower_name(cluster_id, prefix=prefix))

    def named(grant: Grant, name: str) -> str:
        if grant.is_mapped:
            return mapped
        is_topic = grant.resource is Resource.TOPIC
        return topic_name(name, prefix=prefix) if is_topic else names[grant.resource]

    return tuple(
        Acl(resource=grant.resource, name=named(grant, name), operation=operation)
        for grant in GRANTS
        if grant.role is role
        for name in grant.names
        for operation in grant.operations
    )


def commands(given: Iterable[Acl], *, principal: str, servers: str) -> Iterator[str]:
    """The lines that give these rights, one for each resource."""
    operations: dict[tuple[Resource, str], list[str]] = {}
    for acl in given:
        operations.setdefault((acl.resource, acl.name), []).append(acl.operation)
    for (resource, name), listed in operations.items():
        asked = " ".join(f"--operation {operation}" for operation in listed)
        yield (
            f"kafka-acls --bootstrap-server {servers} --add --allow-principal {principal} "
            f"{asked} --{resource} {shlex.quote(name)}"
        )


def describe() -> str:
    """The table in Markdown."""
    lines = ["| who | on | rights | what for |", "| --- | --- | --- | --- |"]
    for grant in GRANTS:
        names = ", ".join(
            f"`{name}`" if grant.resource is Resource.TOPIC and not grant.is_mapped else name
            for name in grant.names
        )
        rights = ", ".join(grant.operations)
        lines.append(f"| {grant.role} | {grant.resource} {names} | {rights} | {grant.reason} |")
    return "\n".join(lines)
