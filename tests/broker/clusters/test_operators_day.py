"""An operator's day on four real brokers: every command is killed, and nothing is lost.

SPU_ASSIGNER_DAY_SEED repeats a day: it says when what is killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from spu_assigner.core.base.events import SpuJoined
from spu_assigner.schemas.messages.codec import decode_event
from spu_assigner.stream.local.jvm.java import Java
from support.job.kafka_operator import Lists, Operator
from support.job.programs import Service
from support.kafka.checked_records import CheckedRecords
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.moving import COMMAND, SECONDS_MAX, Mover, until, use_a_group
from support.kafka.reading import committed

TOPICS, PARTITIONS, FILLED = 6, 6, 512  # records in each partition at the beginning: 500 KB
ADDED, DRAINED = 4, 2
THROTTLE = (
    "800kB/s"  # what is copied is more than the ten seconds' worth that Kafka lets pass at once
)
START_SECONDS = 3.0  # a command starts in one, and asks the job and Kafka in the next
MOVE_SECONDS = 1.5
RESUME_SECONDS = 15.0  # a run waits until Kafka misses the one that was killed
KILLS, TRIES_MAX = 3, 8
NOTHING_LEFT = "no drain of broker"  # to undo: the run before had done all when it was killed


class Day:
    """The commands of an operator, each killed up to three times."""

    def __init__(self, mover: Mover, folder: Path, draw: random.Random) -> None:
        self._mover, self._folder, self._draw = mover, folder, draw
        self.killed_in_moves: list[str] = []

    def command(self, *arguments: object, beside: Service | None = None) -> str:
        """Run it until its status is 0, killed on the way; what the last run says. First it dies in
        its start, then in the moves, together with `beside`, then when it resumes."""
        name = f"{arguments[0]}{'-undo' if '--undo' in arguments else ''}"
        for number in range(TRIES_MAX):
            log = self._folder / f"{name}-{number}.log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [*COMMAND, *map(str, arguments)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self._mover.operator.environ},
                )
            try:
                if number == 0:
                    self._kill_within(process, START_SECONDS)
                elif number == 1:
                    until(lambda: self.is_moving() or process.poll() is not None)  # noqa: B023
                    self._kill_within(process, MOVE_SECONDS)
                    if process.poll() == -signal.SIGKILL:
                        self.killed_in_moves.append(name)
                    if beside is not None:
                        beside.kill()
                elif number < KILLS:
                    self._kill_within(process, RESUME_SECONDS)
                status = process.wait(SECONDS_MAX)
            finally:
                process.kill()
                process.wait()
            said = log.read_text("utf-8")
            print(f"{name}, run {number}: status {status}\n{said}", flush=True)
            assert "Traceback" not in said
            if status == 0 or (number and NOTHING_LEFT in said):
                return said
            assert status == 1 or (number < KILLS and status == -signal.SIGKILL)
        raise AssertionError(f"{name} did not end in {TRIES_MAX} runs")

    def killed(self, service: Service) -> None:
        """At a moment of this day."""
        time.sleep(self._draw.uniform(0.0, START_SECONDS))
        service.kill()

    def _kill_within(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(self._draw.uniform(0.0, seconds))
            return
        process.kill()
        process.wait()

    def is_moving(self) -> bool:
        with self._mover.kafka() as kafka:
            return bool(kafka.ongoing())

    def held(self, broker: int) -> tuple[int, int]:
        """How many replicas are on it in Kafka, and how many of those lead."""
        with self._mover.kafka() as kafka:
            shapes = kafka.shapes().values()
        held = [shape for shape in shapes if broker in shape.replicas]
        return len(held), sum(shape.leader == broker for shape in held)


@pytest.fixture
def operator(topic_prefix: str) -> Iterator[Operator]:
    """Four brokers of its own in three racks; the last one comes in the course of the day."""
    cluster = KafkaCluster(["a", "b", "c", "a"], settings={"offsets.topic.num.partitions": "6"})
    with cluster, AdminClient(cluster.client) as admin:
        cluster.stop(ADDED)
        yield Operator(cluster, topic_prefix, admin)


def rotated(number: int) -> Lists:
    """On the first three brokers, each leads the same."""
    ring = [1, 2, 3]
    starts = [(number + partition) % 3 for partition in range(PARTITIONS)]
    return [[*ring[start:], *ring[:start]] for start in starts]


def has_joined(operator: Operator, broker: int) -> bool:
    messages = committed(operator.cluster.bootstrap_servers, operator.name("spu-events"))
    events = [decode_event(each.value() or b"", kind="spu") for each in messages]
    return any(isinstance(each, SpuJoined) and each.spu_id == broker for each in events)


@pytest.mark.long("commands move data for minutes, and are killed and run again")
@pytest.mark.timeout(1200)
def test_a_day_of_kills_loses_no_record_and_leaves_nothing_undone(
    operator: Operator, java: Java, tmp_path: Path
) -> None:
    """Adopt, add a broker, rebalance, drain, undo: a run that is killed is finished by the next."""
    seed = int(os.environ.get("SPU_ASSIGNER_DAY_SEED") or random.SystemRandom().randrange(10**6))
    print(f"SPU_ASSIGNER_DAY_SEED={seed}")
    mover, draw = Mover(operator, tmp_path), random.Random(seed)
    day = Day(mover, tmp_path, draw)
    topics = {operator.name(f"t{number}"): PARTITIONS for number in range(TOPICS)}
    for number in range(TOPICS):
        operator.make(f"t{number}", rotated(number))
    records = CheckedRecords(operator.cluster.client, topics, seed)
    records.fill(FILLED)
    use_a_group(operator, "t0")
    where: Mapping[str, str] = operator.environ
    throttled = ("--cluster", "c1", "--throttle", THROTTLE)

    with ExitStack() as stack, records.written():
        checkpoint = ("--checkpoint", str(tmp_path / "job" / "checkpoint"), "--shards", "2")
        ports = ("--ui-port", "0", "--metrics-port", "off")
        run = (*COMMAND, "run", "--create-topics", *checkpoint, *ports)
        job = Service(stack, tmp_path / "run.log", run, **where)
        until(lambda: "Events are answered" in job.log.read_text("utf-8"))
        day.command("adopt", "--cluster", "c1")
        following = (*COMMAND, "follow", "--cluster", "c1", "--topics", "--interval", "1")
        follow = Service(stack, tmp_path / "follow.log", following, **where)

        operator.cluster.start(ADDED)
        day.killed(follow)
        until(lambda: has_joined(operator, ADDED))
        day.command("rebalance", *throttled, beside=follow)
        replicas, leads = day.held(ADDED)
        assert replicas >= TOPICS * PARTITIONS // 2 - 1  # of those in rack a
        assert leads > 0

        before = day.held(DRAINED)
        said = day.command("drain", DRAINED, *throttled, beside=job)
        assert said.splitlines()[-1].startswith(f"empty    broker {DRAINED} holds nothing;")
        assert day.held(DRAINED) == (0, 0)
        day.command("drain", "--undo", DRAINED, *throttled, beside=follow)
        assert day.held(DRAINED) == before
        follow.end()
        job.end()

    planned = operator.plan()
    assert planned.exit_code == 0, planned.output
    assert f"= {TOPICS} topics as mapped" in planned.stdout
    audited = operator("verify", "--strict")
    assert audited.exit_code == 0, audited.output
    assert not day.is_moving()
    assert mover.throttles() == {}
    with mover.kafka() as kafka:
        shapes = kafka.shapes()
    assert all(shape.leader == shape.replicas[0] for shape in shapes.values())
    assert all(sorted(shape.in_sync) == sorted(shape.replicas) for shape in shapes.values())
    assert {"rebalance", "drain", "drain-undo"} <= set(day.killed_in_moves)
    assert records.read() == records.checksums()
