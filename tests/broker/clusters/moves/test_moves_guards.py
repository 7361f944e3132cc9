"""What moves look at on three real brokers: before each wave, and before the job is asked."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.moves.run_record import Seat
from spu_assigner.stream.kafka.acls import Resource, Role
from support.job.kafka_operator import Operator
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.reading import committed
from support.kafka.secured import allow, rights


@pytest.mark.long("a seat that is taken is waited for, and a broker is stopped")
def test_the_job_is_asked_of_nothing_while_partitions_could_not_be_moved(
    operator: Operator,
) -> None:
    """Its maps would be changed, and Kafka not; a decommission is hard to take back."""
    operator.make("alone", [[3]])
    servers = operator.cluster.bootstrap_servers
    drain, rebalance = (
        (*command, "--cluster", "c1", "--wait", 0) for command in (("drain", 2), ("rebalance",))
    )

    def asked() -> list[int]:
        inputs = [operator.name(each) for each in ("spu-events", "topic-events")]
        return [len(committed(servers, each)) for each in inputs]

    def refused(command: tuple[object, ...], *, why: str) -> None:
        done = operator(*command)
        assert (done.exit_code, done.stdout) == (1, ""), done.stderr
        assert why in done.stderr
        assert asked() == [spus, topics]

    with operator.job():
        spus, topics = asked()
        with Seat(operator.settings().connection()) as other:
            other.sit()
            refused(drain, why="another process moves partitions")
        refused(drain, why=" cannot leave broker 2: no other broker is free for a replica; start")
        with operator.cluster.stopped(3):
            unhealthy = f"1 partition has no leader ({operator.name('alone')}-0); start the brokers"
            refused(drain, why=unhealthy)
            refused(rebalance, why=unhealthy)
            done = operator("doctor", "--role", "mover", "--output=json", "--timeout", 60)
            (target,) = [
                each for each in json.loads(done.stdout)["checks"] if each["check"] == "target"
            ]
            assert "D605" in [each["code"] for each in target["findings"]]
            operator(*rebalance, "--force")
            operator(*drain, "--force")
        assert asked() == [spus + 1, topics + 1]


@pytest.mark.long("a cluster of its own, where users have rights")
def test_a_missing_right_is_named_before_anything_is_changed(
    topic_prefix: str,
) -> None:
    """One line, and no decommission: one that cannot be carried out is hard to take back."""
    whole = rights(topic_prefix, Role.MOVER, Role.APPLIER)
    users = {
        "adopter": rights(topic_prefix, Role.ADOPTER),
        "mover": rights(topic_prefix, Role.MOVER),
        "unmoving": {
            *(each for each in whole if each.resource is not Resource.CLUSTER),
            *(each for each in rights(topic_prefix, Role.ADOPTER) if each.name == "kafka-cluster"),
        },
        "unlimited": {
            each
            for each in whole
            if (each.resource, each.operation) != (Resource.CLUSTER, "AlterConfigs")
        },
        "whole": whole,
    }
    output = {
        "adopter": "this user may not Alter and AlterConfigs the cluster; grant what ",
        "mover": "cannot read PREFIXreplica-map: ",
        "unmoving": "this user may not Alter and AlterConfigs the cluster; grant what ",
        "unlimited": "this user may not AlterConfigs the cluster; grant what ",
    }
    with KafkaCluster(users=users) as cluster, AdminClient(cluster.client) as admin:
        allow(admin, users)
        operator = Operator(cluster, topic_prefix, admin)

        def called(user: str, *command: str) -> Result:
            environ = {**cluster.environ(user), "SPU_ASSIGNER_TOPIC_PREFIX": topic_prefix}
            asked = [*command, "--cluster", "c1", "--throttle", "50MB/s", "--wait", "60"]
            return CliRunner().invoke(cli, asked, env=environ)

        with operator.job() as job:
            job.apply([operator.events.create(operator.name("orders"), 4, 2)])
            assert operator.apply().exit_code == 0
            before = len(committed(cluster.bootstrap_servers, operator.name("spu-events")))
            for user, why in output.items():
                done = called(user, "drain", "3")
                assert (done.exit_code, done.stdout) == (1, ""), (user, done.stderr)
                warning, line = done.stderr.splitlines()
                assert "SASL_PLAINTEXT does not encrypt" in warning
                assert why.replace("PREFIX", topic_prefix) in line, (user, line)
                assert "`spu-assigner topics acls" in line
            found = committed(cluster.bootstrap_servers, operator.name("spu-events"))
            assert len(found) == before
            with job.answering():
                done = called("whole", "rebalance")
            assert done.exit_code == 0, done.stderr
