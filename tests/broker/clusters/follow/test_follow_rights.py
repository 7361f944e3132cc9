"""`adopt` and `follow` by users who have the rights of their roles, and no others."""

from __future__ import annotations

import re
import signal
from contextlib import closing

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.cli import cli
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.election import FollowerLooks
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.job.kafka_operator import Operator, TopicFollower
from support.job.small_job import small_job
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.secured import allow, rights


@pytest.mark.long("a cluster of its own, where users have rights")
def test_the_rights_of_the_roles_are_enough_to_adopt_plan_follow_and_place(
    topic_prefix: str,
) -> None:
    """`adopt` and then `plan` with the adopter's, `--place-new` with those of three roles."""
    users = {
        "adopter": rights(topic_prefix, Role.ADOPTER),
        "follower": rights(topic_prefix, Role.FOLLOWER, Role.ADOPTER, Role.MOVER),
    }
    with KafkaCluster(users=users) as cluster, AdminClient(cluster.client) as admin:
        allow(admin, users)
        operator = Operator(cluster, topic_prefix, admin)
        create_topics(cluster.client, prefix=topic_prefix, partitions=2)

        def environ(user: str) -> dict[str, str]:
            return {**cluster.environ(user), "SPU_ASSIGNER_TOPIC_PREFIX": topic_prefix}

        def called(*command: str) -> Result:
            asked = [*command, "--cluster", "c1", "--topics", f"{topic_prefix}*"]
            return CliRunner().invoke(cli, asked, env=environ("adopter"))

        seen = closing(FollowerLooks(operator.settings().connection()))
        with small_job(operator.settings()) as job, job.answering(), seen as looks:
            operator.make("there", [[1, 2], [2, 3]])
            operator.write("there", b"a record")
            adopted = called("adopt", "--resources", "disk_bytes=1000000")
            assert adopted.exit_code == 0, adopted.output
            assert re.search(r"topic \S+: 2 partitions of 2 replicas of \d+ B", adopted.stdout)
            planned = called("plan")
            assert planned.exit_code == 0, planned.output
            assert called("adopt", "--dry-run").exit_code == 0

            operator.make("seen", [[1, 2]])  # before the first look: it is adopted
            follower = TopicFollower(operator, job, "--place-new", environ=environ("follower"))
            try:
                follower.waits(lambda: follower.maps().get("seen") == [[1, 2]])
                operator.make("new", [[1, 2]] * 6)
                follower.waits(lambda: "new" in follower.maps())
                placed = follower.maps()["new"]
                assert {3} < {each for row in placed for each in row}
                operator.until("new", placed)
                follower.process.send_signal(signal.SIGSTOP)
                operator.make("late", [[1, 2]] * 6)  # It holds data when it is first seen.
                operator.write("late", b"a record", partition=5)
                follower.process.send_signal(signal.SIGCONT)
                follower.waits(lambda: follower.maps().get("late") == [[1, 2]] * 6)
                late = f"does not place topic {operator.name('late')}"
                follower.waits(lambda: any(late in line for line in follower.lines))
                follower.waits(lambda: {"there", "seen", "new"} <= operator.recorded().keys())
                operator.remove("seen")
                follower.waits(lambda: "seen" not in follower.maps())
                follower.waits(lambda: "seen" not in operator.recorded())
                follower.waits(lambda: looks.read(admin, 10.0)["c1"][1] == 0)
                grow = ("topic-grow", "--topic", operator.name("there"), "--partitions", "4")
                assert operator("produce", *grow, "--cluster", "c1").exit_code == 0
                follower.waits(lambda: looks.read(admin, 10.0)["c1"][1] == 2)
            finally:
                follower.end()
            unexpected = ("Traceback", "may not", "AUTHORIZATION", "retries", "warning: no")
            assert not [x for x in follower.lines if any(map(x.count, unexpected))], follower.lines
