"""The least rights that each part needs where Kafka has an authorizer: one table.

What is not in the table is not needed, and without a row something fails. Rights are given for
whole names, so that a job cannot touch what belongs to another. `Read` and `Write` include
`Describe`, `AlterConfigs` includes `DescribeConfigs`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spu_assigner.stream.kafka.topics import (
    APPLIED_TOPICS,
    ASSIGNER_AUDIT,
    ASSIGNER_COMMITS,
    ASSIGNER_STATE,
    DEAD_LETTER,
    INPUTS,
    JOB_TOPICS,
    REPLICA_MAP,
    RING_EVENTS,
    SPU_EVENTS,
    TOPIC_EVENTS,
    TOPIC_STATUS,
    TOPICS,
    topic_name,
)

ANY_TOPIC: Final = "*"  # as Kafka's authorizer takes it
CLUSTER_NAME: Final = "kafka-cluster"  # Kafka's name for the one that it is
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
    ADOPTER = "adopter"
    MOVER = "mover"


class Resource(StrEnum):
    """What a right is for, as `kafka-acls` names it."""

    TOPIC = "topic"
    TRANSACTIONAL_ID = "transactional-id"
    GROUP = "group"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Grant:
    """One row: rights that go together. docs/security.md says what each is for."""

    names: tuple[str, ...]  # of topics, without the prefix; else templates of names
    operations: str  # as Kafka names them, with commas
    resource: Resource = Resource.TOPIC
    is_mapped: bool = False  # for topics that maps name, in the Kafka cluster where they are
    is_optional: bool = False  # the role does some of its work without it


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One right."""

    resource: Resource
    name: str  # in Kafka
    operation: str


_QUERY: Final = "{prefix}{query_name}"
_FOLLOWER: Final = "{prefix}follow.{cluster_id}"
_MOVER: Final = "{prefix}apply-moves"
_MAPPED: Final = ("each that a map names",)

GRANTS: Final[Mapping[Role, tuple[Grant, ...]]] = {
    Role.JOB: (
        Grant(INPUTS, "Read, DescribeConfigs"),
        Grant((*ANSWERS, ASSIGNER_STATE, ASSIGNER_AUDIT), "Write, DescribeConfigs"),
        Grant((ASSIGNER_COMMITS,), "Read, Write, DescribeConfigs"),
        Grant((_QUERY,), "Write", Resource.TRANSACTIONAL_ID),
    ),
    Role.PRODUCER: (Grant(INPUTS, "Write"),),
    Role.CONSUMER: (
        Grant((*ANSWERS, ASSIGNER_STATE), "Read"),
        Grant((APPLIED_TOPICS,), "Read", is_optional=True),
        Grant((_FOLLOWER,), "Describe", Resource.GROUP, is_optional=True),
    ),
    Role.GROUP: (Grant(("{group}",), "Read", Resource.GROUP),),
    Role.ADMIN: (Grant(tuple(spec.name for spec in TOPICS), "Create, Describe, AlterConfigs"),),
    Role.AUDITOR: (Grant(tuple(spec.name for spec in JOB_TOPICS), "Read"),),
    Role.RECOVERER: (
        Grant((*INPUTS, TOPIC_STATUS, RING_EVENTS, DEAD_LETTER), "Describe, DescribeConfigs"),
        Grant((REPLICA_MAP, ASSIGNER_STATE), "Read, DescribeConfigs"),
        Grant((ASSIGNER_COMMITS,), "Read, Write, DescribeConfigs"),
        Grant((ASSIGNER_AUDIT,), "Write, DescribeConfigs"),
        Grant((_QUERY,), "Write", Resource.TRANSACTIONAL_ID),
    ),
    Role.FOLLOWER: (
        Grant((SPU_EVENTS,), "Read, Write"),
        Grant((ASSIGNER_STATE,), "Read"),
        Grant((ASSIGNER_COMMITS,), "Describe"),
        Grant((_FOLLOWER,), "Read", Resource.GROUP),
        Grant((_FOLLOWER,), "Write", Resource.TRANSACTIONAL_ID),
    ),
    Role.APPLIER: (
        Grant((REPLICA_MAP, ASSIGNER_STATE), "Read"),
        Grant((APPLIED_TOPICS,), "Read, Write, Create"),
        Grant(_MAPPED, "Create, Alter", is_mapped=True),
        Grant(_MAPPED, "Delete", is_mapped=True),
        Grant(_MAPPED, "DescribeConfigs", is_mapped=True, is_optional=True),
    ),
    Role.ADOPTER: (
        Grant((SPU_EVENTS,), "Read, Write"),
        Grant((TOPIC_EVENTS,), "Write"),
        Grant((REPLICA_MAP, ASSIGNER_STATE), "Read"),
        Grant((TOPIC_STATUS, RING_EVENTS, DEAD_LETTER), "Read"),
        Grant((APPLIED_TOPICS,), "Read, Write, Create"),
        Grant(("each that is adopted",), "Describe", is_mapped=True),
        Grant((CLUSTER_NAME,), "Describe", Resource.CLUSTER),
    ),
    Role.MOVER: (
        Grant((APPLIED_TOPICS,), "Read, Write"),
        Grant((SPU_EVENTS,), "Read, Write", is_optional=True),
        Grant((ASSIGNER_STATE,), "Read", is_optional=True),
        Grant((TOPIC_EVENTS,), "Write", is_optional=True),
        Grant((TOPIC_STATUS, RING_EVENTS, DEAD_LETTER), "Read", is_optional=True),
        Grant((CLUSTER_NAME,), "Alter", Resource.CLUSTER),
        Grant((CLUSTER_NAME,), "AlterConfigs", Resource.CLUSTER),
        Grant(("each that is moved",), "Describe, AlterConfigs", is_mapped=True),
        Grant((_MOVER,), "Read", Resource.GROUP),
        Grant((_MOVER,), "Write", Resource.TRANSACTIONAL_ID),
    ),
}


def mover_name(*, prefix: str = "") -> str:
    """The group, and the transactional id, of those that move partitions."""
    return _MOVER.format(prefix=prefix)


def follower_name(cluster_id: str, *, prefix: str = "") -> str:
    """The group, and the transactional id, of those that follow brokers for a cluster."""
    return _FOLLOWER.format(prefix=prefix, cluster_id=cluster_id)


def acls(
    role: Role,
    *,
    prefix: str = "",
    query_name: str = "",
    group: str = "",
    cluster_id: str = "",
    mapped: str = ANY_TOPIC,
    with_optional: bool = True,
) -> tuple[Acl, ...]:
    """The rights of a role, by their names in Kafka."""
    parts = {"prefix": prefix, "query_name": query_name, "group": group, "cluster_id": cluster_id}

    def named(grant: Grant, name: str) -> str:
        if grant.is_mapped:
            return mapped
        is_topic = grant.resource is Resource.TOPIC
        return topic_name(name, prefix=prefix) if is_topic else name.format(**parts)

    return tuple(
        Acl(resource=grant.resource, name=named(grant, name), operation=operation)
        for grant in GRANTS[role]
        if with_optional or not grant.is_optional
        for name in grant.names
        for operation in grant.operations.split(", ")
    )


def commands(given: Iterable[Acl], *, principal: str, servers: str) -> Iterator[str]:
    """The lines that give these rights, one for each resource."""
    operations: dict[tuple[Resource, str], list[str]] = {}
    for acl in given:
        operations.setdefault((acl.resource, acl.name), []).append(acl.operation)
    for (resource, name), listed in operations.items():
        asked = " ".join(f"--operation {operation}" for operation in listed)
        on = "" if resource is Resource.CLUSTER else f" {shlex.quote(name)}"  # There is but one.
        yield (
            f"kafka-acls --bootstrap-server {servers} --add --allow-principal {principal} "
            f"{asked} --{resource}{on}"
        )
