"""Users who may not see some topic: what is on the brokers all the same is not taken for nothing.

Metadata hide such a topic; the brokers report what lies on their disks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.cli import cli
from spu_assigner.stream.kafka.acls import ANY_TOPIC, Acl, Resource, Role
from spu_assigner.stream.kafka.topics import TOPICS
from support.job.kafka_operator import Operator
from support.job.small_job import SmallJob
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.secured import allow, rights

SETTINGS = {  # two brokers can hold all of Kafka's own
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
}
PREFIX = "unseen."
USER = "limited"
ROLES = (Role.MOVER, Role.APPLIER, Role.ADOPTER, Role.CONSUMER)
HIDDEN = f"{PREFIX}secret"
UNSEEN = f"1 replica of 1 topic that you may not see ({HIDDEN}): "
VISIBLE = (f"{PREFIX}orders", "__consumer_offsets", "__transaction_state")
HOLDS = f"broker 2 holds 1 replica that you may not see ({HIDDEN}-0)"


def given() -> set[Acl]:
    """All rights of these roles, and sight of every topic but one."""
    found = rights(PREFIX, *ROLES)
    named = {
        replace(each, name=name)
        for each in found
        for name in (VISIBLE if each.name == ANY_TOPIC else [each.name])
    }
    own = {
        Acl(resource=Resource.TOPIC, name=f"{PREFIX}{spec.name}", operation="Describe")
        for spec in TOPICS
    }
    return named | own


class LimitedUser:
    """Calls commands on a cluster of which he may not see one topic; a job answers him."""

    def __init__(self, operator: Operator, job: SmallJob) -> None:
        self.operator = operator
        self.job = job
        self._environ = {**operator.cluster.environ(USER), "SPU_ASSIGNER_TOPIC_PREFIX": PREFIX}

    def __call__(self, *arguments: object) -> Result:
        asked = [*map(str, arguments), "--cluster", "c1"]
        done = CliRunner().invoke(cli, asked, env=self._environ)
        assert isinstance(done.exception, SystemExit | None), done.exc_info
        return done


@pytest.fixture
def user() -> Iterator[LimitedUser]:
    """The only replica of a topic that he may not see is on broker 2."""
    with (
        KafkaCluster(users=[USER], settings=SETTINGS) as cluster,
        AdminClient(cluster.client) as admin,
    ):
        allow(admin, {USER: given()})
        operator = Operator(cluster, PREFIX, admin)
        with operator.job() as job, job.answering():
            operator.make("orders", [[1, 2], [2, 1]] * 2)
            operator.make("secret", [[2]])
            for partition in range(4):
                operator.write("orders", b"a record", partition=partition)
            operator.write("secret", b"a record")
            yield LimitedUser(operator, job)


def lines_of(done: Result) -> list[str]:
    return [line for line in done.stderr.splitlines() if "does not encrypt" not in line]


@pytest.mark.long("a cluster of its own, where users have rights")
def test_drain_says_that_a_broker_holds_what_its_user_may_not_see(user: LimitedUser) -> None:
    """It said that the broker holds nothing and may be switched off. So do all that count."""
    adopted = user("adopt")
    assert adopted.exit_code == 1, adopted.output
    assert f"\n! {HIDDEN}  is on brokers, and you may not see it; grant " in adopted.stdout
    planned = user("plan")
    assert planned.exit_code == 0, planned.output
    assert planned.stdout.splitlines()[-1] == f"{UNSEEN}not compared with any map"
    document = json.loads(user("plan", "-o", "json").stdout)
    assert document["unseen"] == {"topics": [HIDDEN], "replicas": 1, "silent_brokers": []}
    moved = user("rebalance")
    assert moved.exit_code == 0, moved.output
    assert lines_of(moved) == [
        f"apply: warning: {UNSEEN}whether they have leaders and replicas in sync is not looked at"
    ]
    assert f"{UNSEEN}counted above without leaders" in moved.stdout.splitlines()

    refused = user("drain", 2)
    assert (refused.exit_code, refused.stdout) == (1, ""), refused.output
    (why,) = lines_of(refused)
    assert why.startswith(f"spu-assigner: {HOLDS}; "), why
    assert why.endswith("; the SPU was not decommissioned")
    assert user.job.states()["c1"].leaving == set()
    forced = user("drain", 2, "--force")
    assert forced.exit_code == 1, forced.output
    assert "empty" not in forced.stdout
    assert lines_of(forced)[-1].startswith(f"drain: {HOLDS}; ")
    assert all(2 not in row for row in user.operator.lists("orders")["orders"])
    user.operator.reassign({"secret": [[3]]})
    done = user("drain", 2)
    assert (done.exit_code, lines_of(done)) == (0, []), done.output
    assert done.stdout.splitlines()[-1] == "empty    broker 2 holds nothing; it may be switched off"
