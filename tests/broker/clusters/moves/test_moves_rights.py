"""Moves by users who lack a right: one line, nothing is recorded, and the job is asked nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.kafka.acls import Resource, Role
from support.failpoints import Failpoint
from support.job.kafka_operator import Operator
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.moving import COMMAND, SECONDS_MAX, Mover, until
from support.kafka.reading import committed
from support.kafka.secured import allow, rights

GRANT = "grant what `spu-assigner topics acls --role mover` lists\n"
THROTTLE = ("--throttle", "50MB/s")


@pytest.mark.long("a cluster of its own, where users have rights")
def test_a_missing_right_to_move_or_cancel_is_one_line_and_nothing_is_recorded(
    topic_prefix: str, tmp_path: Path
) -> None:
    """A wave that Kafka refuses was left recorded, and the next run had to finish it."""
    whole = rights(topic_prefix, Role.MOVER, Role.APPLIER)
    seeing = {each for each in rights(topic_prefix, Role.ADOPTER) if each.name == "kafka-cluster"}
    users = {
        "nobody": set(),
        "unmoving": {*(each for each in whole if each.resource is not Resource.CLUSTER), *seeing},
        "unrecording": {
            each
            for each in whole
            if not (each.name.endswith("applied-topics") and each.operation == "Write")
        },
        "ungrouped": {each for each in whole if each.resource is not Resource.GROUP},
        "unfencing": {each for each in whole if each.resource is not Resource.TRANSACTIONAL_ID},
    }
    records = f"{topic_prefix}applied-topics"
    name = f"{topic_prefix}apply-moves"
    no_mover = f"this user may not do what the mover does: {records}: access is "
    topics = ", expected Read, Write; grant what `spu-assigner topics acls --role mover` lists\n"
    reading = "Alter, AlterConfigs, Create, Delete, Describe, DescribeConfigs, Read"
    not_seen, no_write = f"{no_mover}none{topics}", f"{no_mover}{reading}{topics}"
    no_alter = f"this user may not Alter the cluster; {GRANT}"
    no_configs = f"this user may not Alter and AlterConfigs the cluster; {GRANT}"
    no_group = f"this user may not Read group {name!r}; {GRANT}"
    no_id = (
        f"this user may not Write transactional id {name!r} "
        f"(TRANSACTIONAL_ID_AUTHORIZATION_FAILED); {GRANT}"
    )
    with KafkaCluster(users=users) as cluster, AdminClient(cluster.client) as admin:
        allow(admin, users)
        mover = Mover(Operator(cluster, topic_prefix, admin), tmp_path)
        mover.operator.make("orders", [[1, 2]])
        mover.map({"orders": [[3, 2]]})

        def called(user: str, *command: str) -> str:
            """What one without some right is told."""
            environ = {**cluster.environ(user), "SPU_ASSIGNER_TOPIC_PREFIX": topic_prefix}
            done = subprocess.run(
                [*COMMAND, *command],
                env={**os.environ, **environ},
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
            warning, _, errors = done.stderr.partition("\n")
            assert "SASL_PLAINTEXT does not encrypt" in warning
            assert done.returncode == 1, (user, command)
            return errors

        def refused(user: str, why: str, *command: str) -> None:
            before = mover.record()
            assert called(user, *command) == f"spu-assigner: {why}", (user, command)
            assert mover.record() == before

        moves = mover.arguments()
        refused("nobody", not_seen, "apply", "--cancel")
        refused("unmoving", no_alter, *moves)
        refused("unmoving", no_configs, *moves, *THROTTLE)
        refused("unrecording", no_write, *moves)
        refused("ungrouped", no_group, *moves)
        refused("unfencing", no_id, *moves)
        with mover.operator.job():
            servers, topic = cluster.bootstrap_servers, mover.operator.name("spu-events")
            spus = len(committed(servers, topic))
            refused("unmoving", no_configs, "drain", "3", "--cluster", "c1", *THROTTLE)
            assert len(committed(servers, topic)) == spus
        assert mover.record() is None
        mover.killed(f"{Failpoint.WAVE_RECORDED}:1", *THROTTLE)
        # Kafka shows a transaction a little after its end.
        until(lambda: bool((record := mover.record()) and record.moves))
        refused("unmoving", no_configs, *moves)
        for user, why in (
            ("nobody", not_seen),
            ("unmoving", no_configs),
            ("unrecording", no_write),
            ("unfencing", no_id),
        ):
            refused(user, why, "apply", "--cancel")
        cancelled = mover.operator("apply", "--cancel")
        assert (cancelled.exit_code, cancelled.stdout) == (
            0,
            "no move of the run was under way; what it had not begun stays as it was, and the "
            "throttle is removed\n",
        )
