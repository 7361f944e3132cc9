"""What moves look at on three real brokers: before each wave, and before the job is asked."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient
from spu_assigner.schemas.messages.wire import MovesState
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.moves.run_record import Seat
from spu_assigner.stream.clusters.moves.throttle import FOLLOWERS, LEADERS
from spu_assigner.stream.job.failpoints import Failpoint
from spu_assigner.stream.kafka.acls import Resource, Role
from support.job.kafka_operator import Operator
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.moving import Mover
from support.kafka.reading import committed
from support.kafka.secured import allow, rights


def test_no_further_wave_is_begun_when_the_cluster_becomes_unhealthy(mover: Mover) -> None:
    """What is under way ends, its throttle is removed, and the rest is left as it was."""
    operator = mover.operator
    topic = operator.name("orders")
    operator.make("alone", [[3]])
    operator.make("orders", [[1], [1], [1]])
    mover.fill("orders", partitions=3, values=4)
    mover.map({"orders": [[2], [2], [2]]})
    limits = ("--throttle", "1kB/s", "--concurrency", "1")
    with mover.running(*limits) as process, mover.kafka() as kafka:
        with operator.cluster.stopped(3):
            assert kafka.change({(topic, LEADERS): None, (topic, FOLLOWERS): None}) == {}
            lines, output = process.communicate(timeout=240)
        assert process.returncode == 1, output
    assert [line for line in lines.splitlines() if line.startswith("wave ")][1:] == []
    assert output == (
        "apply: stops with 2 partitions to move: Kafka is not healthy: 1 partition has no leader "
        f"({operator.name('alone')}-0); start the brokers that are missing, or give --force; run "
        "again\n"
    )
    operator.until("orders", [[2], [1], [1]])
    assert mover.throttles("orders") == {}
    record = mover.record()
    assert record is not None
    assert (record.state, record.moves, record.throttles) == (MovesState.STOPPED, (), ())
    assert record.moves_by_state() == {"pending": 2, "done": 1, "failed": 0}
    status, lines_of_next, errors = mover.move()
    assert (status, errors) == (0, []), lines_of_next
    operator.until("orders", [[2], [2], [2]])


def test_what_a_killed_run_has_not_begun_waits_for_a_healthy_cluster(mover: Mover) -> None:
    """A resumed run looks at the cluster as a new one does, and has waves of its own."""
    operator = mover.operator
    operator.make("alone", [[3]])
    operator.make("orders", [[1], [1], [1]])
    mover.fill("orders", partitions=3, values=1)
    mover.map({"orders": [[2], [2], [2]]})
    mover.killed(f"{Failpoint.WAVE_RECORDED}:1", "--throttle", "50MB/s")
    with operator.cluster.stopped(3):
        found = operator("doctor", "--role", "mover", "--output=json", "--timeout", 60)
        status, lines, errors = mover.move()
    assert (status, lines, len(errors)) == (1, [], 2), errors
    checks = {each["check"]: each for each in json.loads(found.stdout)["checks"]}
    refused = [each for each in checks["target"]["findings"] if each["code"] == "D605"]
    assert [each["message"] for each in refused] == [
        f"Kafka is not healthy: 1 partition has no leader ({operator.name('alone')}-0)"
    ]
    assert errors[0].endswith(" has left; 3 of it not begun, planned again")
    assert "Kafka is not healthy: 1 partition has no leader" in errors[1]
    assert operator.lists("orders") == {"orders": [[1], [1], [1]]}
    record = mover.record()
    assert record is not None
    assert (record.moves, record.throttles) == ((), ())
    assert mover.throttles("orders") == {}
    status, lines, errors = mover.move("--concurrency", "1")
    assert (status, errors) == (0, [])
    assert len([line for line in lines if line.startswith("wave ")]) == 3
    operator.until("orders", [[2], [2], [2]])


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
