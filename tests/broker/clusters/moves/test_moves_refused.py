"""`apply --moves` where Kafka forbids a topic's settings: nothing is moved or left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from support.job.kafka_operator import Operator
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.moving import Mover

ASKING = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture
def operator(topic_prefix: str) -> Iterator[Operator]:
    """Brokers of the test's own, which ask what a user may do."""
    with KafkaCluster(settings=ASKING) as cluster, AdminClient(cluster.client) as admin:
        yield Operator(cluster, topic_prefix, admin)


def forbid(operator: Operator) -> None:
    """All may do everything with the topic but change its settings."""
    given = {
        AclOperation.ALL: AclPermissionType.ALLOW,
        AclOperation.ALTER_CONFIGS: AclPermissionType.DENY,
    }
    bindings = [
        AclBinding(
            ResourceType.TOPIC,
            operator.name("orders"),
            ResourcePatternType.LITERAL,
            "User:*",
            "*",
            operation,
            permission,
        )
        for operation, permission in given.items()
    ]
    with AdminClient(operator.cluster.client) as admin:
        for future in admin.create_acls(bindings).values():
            future.result(timeout=60)


@pytest.mark.long("a cluster of its own, which asks what a user may do")
def test_a_throttle_that_kafka_refuses_is_one_line_and_nothing_is_moved(
    operator: Operator, tmp_path: Path
) -> None:
    """The brokers' settings, which it has taken, are removed; without a throttle all is moved."""
    mover = Mover(operator, tmp_path)
    operator.make("orders", [[1, 2]])
    mover.fill("orders", partitions=1, values=2)
    mover.map({"orders": [[3, 2]]})
    forbid(operator)
    status, lines, errors = mover.move("--throttle", "50MB/s")
    assert (status, len(errors)) == (1, 1), (lines, errors)
    assert errors[0].startswith("spu-assigner: the throttle cannot be set: topic "), errors
    assert errors[0].endswith("or run without --throttle; nothing more was begun"), errors
    assert operator.lists("orders") == {"orders": [[1, 2]]}
    assert mover.throttles("orders") == {}
    status, lines, errors = mover.move()
    assert (status, errors) == (0, []), lines
    operator.until("orders", [[3, 2]])
