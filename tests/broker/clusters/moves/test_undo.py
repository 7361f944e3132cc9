"""`drain --undo` on three real brokers: lists, leaders and the SPU are as before the drain."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.clusters.drain.undoing import CHANGED, GONE
from spu_assigner.stream.clusters.moves.reassigning import PartitionShape
from spu_assigner.stream.kafka.log_dirs import Partition
from support.failpoints import Failpoint, dying_at
from support.job.kafka_operator import Operator
from support.job.small_job import SmallJob
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.moving import SECONDS_MAX, Mover, until

from .test_drain import LEAVES, TWO, use_a_group

UNDO = ("drain", LEAVES, "--cluster", "c1", "--undo")
DRAIN = UNDO[:-1]
WHOLE = "undone   Kafka shows all that broker 3 gave away as before"


@pytest.fixture
def operator(topic_prefix: str) -> Iterator[Operator]:
    """Brokers of the test's own: what it is about is all that is on one of them."""
    with KafkaCluster(settings=TWO) as cluster, AdminClient(cluster.client) as admin:
        yield Operator(cluster, topic_prefix, admin)


def led(mover: Mover) -> dict[Partition, tuple[tuple[int, ...], int | None]]:
    """The list and the leader of every partition, as Kafka shows it."""
    with mover.kafka() as kafka:
        return {at: _led(shape) for at, shape in kafka.shapes().items()}


def _led(shape: PartitionShape) -> tuple[tuple[int, ...], int | None]:
    return shape.replicas, shape.leader


def described(state: ClusterState) -> SpuChanged:
    return state.spus[LEAVES]


def filled(operator: Operator, job: SmallJob, mover: Mover) -> list[str]:
    """Topics of all kinds, with leads as preferred; the checksums of one."""
    events = operator.events
    with job.answering():  # Where the events of commands are, too.
        text = f"--cluster c1 --spu-id {LEAVES} --rack c --capacity 6000 --label tier=ssd"
        joined = (*text.split(), "--resources", "disk_bytes=1", "--wait", 60)
        assert operator("produce", "spu-joined", *joined).exit_code == 0
    job.apply([events.create(operator.name(each), 6, 2) for each in ("orders", "others", "more")])
    assert operator.apply().exit_code == 0
    mover.fill("orders", partitions=6, values=2)
    use_a_group(operator, "orders")
    operator.make("foreign", [[3, 1], [1, 2]])
    with mover.kafka() as kafka:
        kafka.elect(kafka.shapes())
    until(lambda: all(row[0] == leader for row, leader in led(mover).values()))
    for topic in ("orders", "others", "more"):
        assert any(
            LEAVES in row for at, (row, _) in led(mover).items() if at[0] == operator.name(topic)
        )
    return mover.checksums("orders", 6)


def undone(operator: Operator, *options: object) -> str:
    """The last line of an undo that ends well; what else is said is checked by the caller."""
    done = operator(*UNDO, "--throttle", "100MB/s", *options)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()[-1]


@pytest.mark.long("a cluster of its own, and a broker that is emptied and filled again")
def test_a_drain_is_undone_with_kafkas_own_topics_and_the_products(
    operator: Operator, tmp_path: Path
) -> None:
    """Lists, leaders, and what the SPU was like; a list that was changed meanwhile is left."""
    mover, foreign = Mover(operator, tmp_path), operator.name("foreign")
    with operator.job() as job:
        checksums, before = filled(operator, job, mover), led(mover)
        spu = described(job.states()["c1"])
        unrecorded = operator(*UNDO)
        assert (unrecorded.exit_code, unrecorded.stdout) == (1, "")
        assert unrecorded.stderr.startswith(
            "spu-assigner: no drain of broker 3 is recorded for cluster 'c1': "
        )
        assert operator(*UNDO, "--foreign", "x").exit_code == 2
        with job.answering():
            drained = operator(*DRAIN, "--foreign", foreign)
            assert (drained.exit_code, drained.stderr) == (0, ""), drained.stdout
            maps = job.states()["c1"].topics
            assert LEAVES not in job.states()["c1"].spus
            assert led(mover) != before

            shown = operator(*UNDO, "--dry-run", "--throttle", "1MB/s")
            assert (shown.exit_code, shown.stderr) == (0, ""), shown.output
            joins, moves, time, *_ = shown.stdout.splitlines()
            assert joins == "joins    SPU 3, as it was announced last"
            assert moves.startswith("moves    ")
            assert time.startswith("time     ")
            assert job.states()["c1"].topics == maps

            assert undone(operator) == WHOLE
            again = operator(*UNDO)
            assert again.exit_code == 1
            assert "no drain of broker 3 is recorded" in again.stderr
        now = job.states()["c1"]
    assert led(mover) == before
    assert mover.checksums("orders", 6) == checksums
    known = described(now)
    fields = ("rack", "capacity", "labels", "taints", "resources", "online", "leaving")
    assert [getattr(known, each) for each in fields] == [getattr(spu, each) for each in fields]
    assert operator.plan().exit_code == 0
    assert mover.throttles("orders") == {}


# A wave holds what a broker copies in a minute at this rate; here some replicas of few messages.
SMALL_WAVES = """
from spu_assigner.stream.cli import main
from spu_assigner.stream.clusters.moves import waves
waves.FULL_RATE = 4_000
main()
"""


def killed(operator: Operator, failpoint: str, *command: object) -> None:
    """A command in a process of its own, with small waves, which dies there."""
    done = subprocess.run(
        [sys.executable, "-c", SMALL_WAVES, *map(str, command)],
        env={**os.environ, **operator.environ, **dying_at(failpoint)},
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
        start_new_session=True,  # it kills its process group
    )
    assert done.returncode == -9, done.stdout + done.stderr


@pytest.mark.long("a cluster of its own, and processes that are killed")
def test_what_was_changed_since_is_left_whatever_was_killed(
    operator: Operator, tmp_path: Path
) -> None:
    """Both the drain and its undo die in a wave; what others did in between stays theirs."""
    mover, more = Mover(operator, tmp_path), operator.name("more")
    drain, slow = (*DRAIN, "--foreign", operator.name("foreign")), ("--throttle", "4kB/s")
    with operator.job() as job:
        checksums, before = filled(operator, job, mover), led(mover)
        with job.answering():
            killed(operator, f"{Failpoint.WAVE_STARTED}:2", *drain, *slow)
            killed(operator, f"{Failpoint.WAVE_CLEARED}:2", *drain, "--throttle", "100MB/s")
        half = led(mover)
        assert any(LEAVES in row for row, _ in half.values())
        assert any(LEAVES in row and half[at] != (row, _) for at, (row, _) in before.items())

        operator.remove("foreign")
        lists = job.states()["c1"].topics[more].replicas.lists().tolist()
        changed = min(at[1] for at, (row, _) in before.items() if at[0] == more and LEAVES in row)
        lists[changed] = lists[changed][::-1]
        job.apply([operator.events.adopt(more, *lists)])
        with job.answering():
            killed(operator, f"{Failpoint.WAVE_STARTED}:2", *UNDO, *slow)
            done = operator(*UNDO, "--throttle", "100MB/s")
        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines()[-1].startswith(f"{WHOLE} but "), done.output
        named = [line for line in done.stderr.splitlines() if line.startswith("left ")]
        gone = [
            at[1]
            for at, (row, _) in sorted(before.items())
            if at[0] == operator.name("foreign") and LEAVES in row
        ]
        assert named == [
            *(f"left     {operator.name('foreign')}-{number}: {GONE}" for number in gone),
            f"left     {more}-{changed}: {CHANGED}",
        ]
        assert job.states()["c1"].topics[more].replicas.lists().tolist()[changed] == lists[changed]
    now = led(mover)
    others = {(operator.name("foreign"), 0), (operator.name("foreign"), 1), (more, changed)}
    assert {at: each for at, each in now.items() if at not in others} == {
        at: each for at, each in before.items() if at not in others
    }
    assert mover.throttles("orders") == {}
    assert mover.checksums("orders", 6) == checksums
