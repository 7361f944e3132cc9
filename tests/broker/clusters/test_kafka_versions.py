"""The product on the oldest and the newest Kafka that it is tested on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.local.jvm.java import Java
from support.job.kafka_operator import Operator
from support.job.programs import Service
from support.kafka.checked_records import CheckedRecords
from support.kafka.kafka_cluster import TWO_REPLICAS, KafkaCluster
from support.kafka.moving import COMMAND, Mover, until, use_a_group
from support.project.jars_lock import KAFKAS

LOST = 3
LISTS = [[1, 2], [2, 1], [1, 2], [2, 1], [1, 2], [2, 1]]


@pytest.fixture(params=KAFKAS)
def operator(request: pytest.FixtureRequest, topic_prefix: str) -> Iterator[Operator]:
    """Three brokers of this version."""
    cluster = KafkaCluster(settings=TWO_REPLICAS, version=request.param)
    with cluster, AdminClient(cluster.client) as admin:
        yield Operator(cluster, topic_prefix, admin)


@pytest.mark.long("a cluster of its own and a whole job, and data is moved twice")
def test_the_job_and_all_that_moves_partitions_work(
    operator: Operator, java: Java, tmp_path: Path
) -> None:
    """The documents' examples, follow, adopt, apply, rebalance; a broker is lost, and drained."""
    mover = Mover(operator, tmp_path)
    operator.make("orders", LISTS)
    records = CheckedRecords(operator.cluster.client, {operator.name("orders"): len(LISTS)}, 1)
    records.fill(100)
    use_a_group(operator, "orders")
    cluster, throttle = ("--cluster", "c1"), ("--throttle", "100MB/s")
    with ExitStack() as stack:
        ports = ("--ui-port", "0", "--metrics-port", "off")
        run = (*COMMAND, "run", "--demo", *ports, "--checkpoint", str(tmp_path / "job/checkpoint"))
        job = Service(stack, tmp_path / "run.log", run, **operator.environ)
        until(lambda: "Events are answered" in job.log.read_text("utf-8"))
        assert " are equal to what was expected." in job.log.read_text("utf-8")
        create = ("--topic", operator.name("made"), "--partitions", 3, "--replication-factor", 2)
        for arguments in (
            ("follow", *cluster, "--once"),
            ("adopt", *cluster, "--topics", f"{operator.prefix}*"),
            ("produce", "topic-create", *cluster, *create, "--wait"),
            ("apply", *cluster),
            ("rebalance", *cluster, *throttle),
        ):
            done = operator(*arguments)
            assert done.exit_code == 0, (arguments, done.output)
        operator.cluster.kill(LOST)
        drained = operator("drain", LOST, *cluster, *throttle)
        assert drained.exit_code == 0, drained.output
        assert drained.stdout.splitlines()[-1].startswith(f"empty    broker {LOST} is in no list")
        for arguments in (("plan", *cluster), ("verify", "--strict")):
            done = operator(*arguments)
            assert done.exit_code == 0, (arguments, done.output)
    with mover.kafka() as kafka:
        assert not any(LOST in shape.replicas for shape in kafka.shapes().values())
        assert kafka.ongoing() == {}
    assert mover.throttles() == {}
    assert records.read() == records.checksums()
