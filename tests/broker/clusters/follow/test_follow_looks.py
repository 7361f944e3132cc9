"""What the job reads of followers, while the coordinators of their groups move."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.job.kafka_operator import Operator
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.moving import SECONDS_MAX, Mover, until, use_a_group

MOVES = 6
OFFSETS = "__consumer_offsets"
# Of a process of its own: librdkafka ends it where it does not bear what Kafka answers.
READER = """
import select, sys
from contextlib import closing
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.election import FollowerLooks, LeaderElection
from spu_assigner.stream.kafka.acls import Role, follower_name
from spu_assigner.stream.kafka.topics import SPU_EVENTS

connection = Settings.load().connection()
group = follower_name("c1", prefix=connection.prefix)
election = LeaderElection(connection, group=group, topic=SPU_EVENTS, role=Role.FOLLOWER)
seen = 0
with AdminClient(connection.client()) as admin, closing(FollowerLooks(connection)) as looks:
    while not (seen and select.select([sys.stdin], [], [], 0)[0]):
        election.poll(0.05)
        election.commit_look(7)
        try:
            seen += looks.read(admin, 3.0).get("c1", (0.0, None))[1] == 7
        except KafkaException:
            pass
election.close()
"""


@pytest.mark.long("a cluster of its own, whose coordinators move")
def test_a_coordinator_that_moves_ends_no_process(topic_prefix: str, tmp_path: Path) -> None:
    """An answer that another broker is the coordinator is asked again, and no fault."""
    with KafkaCluster() as cluster, AdminClient(cluster.client) as admin:
        operator = Operator(cluster, topic_prefix, admin)
        create_topics(cluster.client, prefix=topic_prefix, partitions=1)
        operator.make("any", [[1, 2]])
        operator.write("any", b"a record")
        use_a_group(operator, "any")
        environ = {**os.environ, **operator.environ}
        with (
            subprocess.Popen(
                [sys.executable, "-c", READER], env=environ, stdin=subprocess.PIPE
            ) as reader,
            Mover(operator, tmp_path).kafka() as kafka,
        ):
            try:
                for move in range(MOVES):
                    rows = {
                        at: (1 + (at[1] + move) % 3, 1 + (at[1] + move + 1) % 3)
                        for at in kafka.shapes([OFFSETS])
                    }
                    assert kafka.reassign(rows) == {}
                    until(lambda: not kafka.ongoing())
                    kafka.elect(rows)
                    assert reader.poll() is None, f"ended by signal {-reader.returncode}"
            finally:
                _, _ = reader.communicate(b"end", timeout=SECONDS_MAX)
        assert reader.returncode == 0
