"""The least rights that each part needs where Kafka has an authorizer: one table.

Rules: what is not in the table is not needed, and without a row something fails. Rights are given
for whole names, so that a job cannot touch what belongs to another; those on topics that replica
maps name are for any topic where none is said. `Read` and `Write` include
`Describe`, `AlterConfigs` includes `DescribeConfigs`. Nobody but a consumer of one's own that
keeps its place in a group, `follow` and `apply --moves` needs a right to a group: Spark's source,
the marker's reader and the other commands join none.
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
    """One row: rights that go together."""

    names: tuple[str, ...]  # of topics, without the prefix; else what the name is
    operations: str  # as Kafka names them, with commas
    reason: str
    resource: Resource = Resource.TOPIC
    is_mapped: bool = False  # for topics that maps name, in the Kafka cluster where they are
    only_for: str = ""  # what of the role's work alone needs it; the rest is done without it


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One right."""

    resource: Resource
    name: str  # in Kafka
    operation: str


GRANTS: Final[Mapping[Role, tuple[Grant, ...]]] = {
    Role.JOB: (
        Grant(
            INPUTS,
            "Read, DescribeConfigs",
            "reads the events; looks at its start whether they bear the broker's time",
        ),
        Grant(
            tuple(spec.name for spec in JOB_TOPICS if spec.name not in (*INPUTS, ASSIGNER_COMMITS)),
            "Write, DescribeConfigs",
            "answers; looks at its start whether maps fit",
        ),
        Grant(
            (ASSIGNER_COMMITS,),
            "Read, Write, DescribeConfigs",
            "writes its marker, and reads the last one back",
        ),
        Grant(
            ("prefix and query name",),
            "Write",
            "a batch is a transaction",
            resource=Resource.TRANSACTIONAL_ID,
        ),
    ),
    Role.PRODUCER: (
        Grant(
            INPUTS,
            "Write",
            "`produce`; with `--wait` the consumer's rights too; `spu-joined --keep` reads "
            "`spu-events` and `assigner-state`",
        ),
    ),
    Role.CONSUMER: (
        Grant(
            (*ANSWERS, ASSIGNER_STATE),
            "Read",
            "`watch`, `produce --wait`, `explain`, `whatif`, `ui`; "
            "a consumer of your own needs those it reads",
        ),
        Grant(
            (APPLIED_TOPICS,),
            "Read",
            "only for what is being moved, in `ui` and `explain`; the job's user needs it for its "
            "metrics of moves",
            only_for="moves in `ui` and `explain`",
        ),
    ),
    Role.GROUP: (
        Grant(
            ("its group",),
            "Read",
            "a consumer of your own that keeps its place in a group, besides the consumer's",
            resource=Resource.GROUP,
        ),
    ),
    Role.ADMIN: (
        Grant(
            tuple(spec.name for spec in TOPICS),
            "Create, Describe, AlterConfigs",
            "`topics create` creates topics and fixes their settings",
        ),
    ),
    Role.AUDITOR: (
        Grant(
            tuple(spec.name for spec in JOB_TOPICS),
            "Read",
            "`verify` reads everything, and answers the inputs once more",
        ),
    ),
    Role.RECOVERER: (
        Grant(
            INPUTS,
            "Describe, DescribeConfigs",
            "`recover` looks what is left of the input, and at the settings",
        ),
        Grant(
            (TOPIC_STATUS, RING_EVENTS, DEAD_LETTER),
            "Describe, DescribeConfigs",
            "looks at the settings",
        ),
        Grant((REPLICA_MAP, ASSIGNER_STATE), "Read, DescribeConfigs", "reads the state"),
        Grant(
            (ASSIGNER_COMMITS,),
            "Read, Write, DescribeConfigs",
            "reads the last marker, and writes that of the new checkpoint",
        ),
        Grant((ASSIGNER_AUDIT,), "Write, DescribeConfigs", "writes it here too"),
        Grant(
            ("prefix and query name",),
            "Write",
            "shuts out a job that still runs; the marker is a transaction",
            resource=Resource.TRANSACTIONAL_ID,
        ),
    ),
    Role.FOLLOWER: (
        Grant(
            (SPU_EVENTS,),
            "Read, Write",
            "`follow` sends joins and leaves, and reads earlier ones",
        ),
        Grant((ASSIGNER_STATE,), "Read", "reads what became of events that have expired"),
        Grant(
            (ASSIGNER_COMMITS,),
            "Describe",
            "whose one partition the followers' group is about; nothing is read",
        ),
        Grant(
            ("prefix, `follow.` and cluster",),
            "Read",
            "one of its members leads",
            resource=Resource.GROUP,
        ),
        Grant(
            ("prefix, `follow.` and cluster",),
            "Write",
            "shuts out a leader of before; of the watched cluster no right is needed",
            resource=Resource.TRANSACTIONAL_ID,
        ),
    ),
    Role.APPLIER: (
        Grant((REPLICA_MAP, ASSIGNER_STATE), "Read", "`plan`, `apply`: the maps, and what waits"),
        Grant(
            (APPLIED_TOPICS,),
            "Read, Write, Create",
            "`apply` records what it created, where the mapped topics are; `plan` needs Read alone",
        ),
        Grant(
            ("each that a map names",),
            "Create, Alter",
            "`apply` creates topics and adds partitions; `plan` needs Describe, which Alter holds",
            is_mapped=True,
        ),
        Grant(("each that a map names",), "Delete", "only for `apply --delete`", is_mapped=True),
    ),
    Role.ADOPTER: (
        Grant(
            (SPU_EVENTS,),
            "Read, Write",
            "`adopt`: brokers join that were never announced; `follow --topics` besides the "
            "follower's",
        ),
        Grant((TOPIC_EVENTS,), "Write", "sends topics as they are, and releases"),
        Grant((REPLICA_MAP, ASSIGNER_STATE), "Read", "what is mapped, and what the job remembers"),
        Grant((TOPIC_STATUS, RING_EVENTS, DEAD_LETTER), "Read", "waits for the answers"),
        Grant(
            (APPLIED_TOPICS,),
            "Read, Write, Create",
            "records what it adopted, where the topics are, for `plan` and `apply`",
        ),
        Grant(("each that is adopted",), "Describe", "is seen with its lists", is_mapped=True),
        Grant(
            (CLUSTER_NAME,),
            "Describe",
            "where the topics are: which partitions Kafka is reassigning, and their bytes",
            resource=Resource.CLUSTER,
        ),
    ),
    Role.MOVER: (
        Grant(
            (APPLIED_TOPICS,),
            "Read, Write",
            "what moves partitions records what is under way; besides the applier's rights, or for "
            "`follow --place-new` the adopter's",
        ),
        Grant(
            (SPU_EVENTS,),
            "Read, Write",
            "only for `drain`: what was announced; its leave",
            only_for="`drain`",
        ),
        Grant(
            (ASSIGNER_STATE,),
            "Read",
            "`drain`: what became of expired events, and why a topic stays; `rebalance` with a "
            "limit: the job's state",
            only_for="`drain` and `rebalance` with a limit",
        ),
        Grant(
            (TOPIC_EVENTS,),
            "Write",
            "only for `rebalance`: asks the job for one",
            only_for="`rebalance`",
        ),
        Grant(
            (TOPIC_STATUS, RING_EVENTS, DEAD_LETTER),
            "Read",
            "only for `rebalance`: waits for the answer",
            only_for="`rebalance`",
        ),
        Grant(
            (CLUSTER_NAME,),
            "Alter",
            "reassigns partitions, elects leaders, looks what is under way and at what brokers "
            "hold, of any topic (Describe, which Alter holds)",
            resource=Resource.CLUSTER,
        ),
        Grant(
            (CLUSTER_NAME,),
            "AlterConfigs",
            "the throttle's rate on brokers: only for `--throttle`",
            resource=Resource.CLUSTER,
        ),
        Grant(
            ("each that is moved",),
            "Describe, AlterConfigs",
            "where its replicas are; its throttled replicas: the second only for `--throttle`",
            is_mapped=True,
        ),
        Grant(
            ("prefix and `apply-moves`",),
            "Read",
            "one process at a time",
            resource=Resource.GROUP,
        ),
        Grant(
            ("prefix and `apply-moves`",),
            "Write",
            "shuts out a process of before; a record is a transaction",
            resource=Resource.TRANSACTIONAL_ID,
        ),
    ),
}


def mover_name(*, prefix: str = "") -> str:
    """The group, and the transactional id, of those that move partitions."""
    return f"{prefix}apply-moves"


def follower_name(cluster_id: str, *, prefix: str = "") -> str:
    """The group, and the transactional id, of those that follow brokers for a cluster."""
    return f"{prefix}follow.{cluster_id}"


def acls(
    role: Role,
    *,
    prefix: str = "",
    query_name: str,
    group: str,
    cluster_id: str = "",
    mapped: str = ANY_TOPIC,
    with_optional: bool = True,
) -> tuple[Acl, ...]:
    """The rights of a role, by their names in Kafka.

    Args:
        cluster_id: a follower's.
        mapped: a topic that replica maps name; by default Kafka's name for any.
        with_optional: also those that only some of the role use; else what each of it must have.
    """
    names = {Resource.TRANSACTIONAL_ID: f"{prefix}{query_name}", Resource.GROUP: group}
    if role is Role.FOLLOWER:
        names = dict.fromkeys(names, follower_name(cluster_id, prefix=prefix))
    elif role is Role.MOVER:
        names = dict.fromkeys(names, mover_name(prefix=prefix))
    names[Resource.CLUSTER] = CLUSTER_NAME

    def named(grant: Grant, name: str) -> str:
        if grant.is_mapped:
            return mapped
        is_topic = grant.resource is Resource.TOPIC
        return topic_name(name, prefix=prefix) if is_topic else names[grant.resource]

    return tuple(
        Acl(resource=grant.resource, name=named(grant, name), operation=operation)
        for grant in GRANTS[role]
        if with_optional or not grant.only_for
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
