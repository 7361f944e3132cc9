"""What moves look at on three real brokers: before each wave, and before the job is asked."""

from __future__ import annotations

import json

import pytest
from spu_assigner.stream.clusters.moves.run_record import Seat
from support.job.kafka_operator import Operator
from support.kafka.reading import committed


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
