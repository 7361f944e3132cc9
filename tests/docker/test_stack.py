"""docker/compose.yaml at work: the scenario's maps, what a container may do, and containers that
are killed while they work. Several minutes, so `make docker-test` alone runs it.
"""

from __future__ import annotations

import itertools
import urllib.request
from collections.abc import Iterator

import pytest
from spu_assigner.core import TopicStatus
from spu_assigner.core.base.records import Status
from spu_assigner.schemas.messages.codec import decode_record
from support.events.builders import Events
from support.job.streams import Streams
from support.project.stack import Stack, docker, eventually

OF_THE_JOB = ("job", "scenario", "spark-master", "spark-worker-1", "spark-worker-2", "topics")
LASTING = ("kafka", "spark-master", "spark-worker-1", "spark-worker-2", "job")
CREATES = 480
BATCH = 24  # so that work is under way for many batches, and a kill meets it
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """Everything up, the scenario played; nothing is left of it afterwards."""
    made = Stack.fresh(SPU_ASSIGNER_TOPIC_EVENTS_PER_BATCH=str(BATCH))
    try:
        done = made.command("up")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "All 93 replica lists and 41 rings and answers are equal" in done.stdout
        yield made
    finally:
        gone = made.command("down", "--volumes")
        assert gone.returncode == 0, gone.stderr


@pytest.fixture
def streams(stack: Stack) -> Streams:
    return Streams(stack.bootstrap_servers, "")


class Work:
    """Creates in a cluster of their own, under way."""

    def __init__(self, streams: Streams) -> None:
        self.cluster_id = f"killed-{next(_numbers)}"
        events = Events(self.cluster_id)
        ring = events.joins(0, 1, 2, 3, 4)
        creates = [events.create(f"t{number}", 4, 3) for number in range(CREATES)]
        self.total = streams.applied_count() + len(ring) + len(creates)
        self.streams = streams
        streams.send(ring)
        streams.send(creates)

    def reach(self, share: int) -> None:
        """Wait until so many hundredths of the creates are answered; fails if none are left."""
        wanted = self.total - CREATES + CREATES * share // 100
        eventually(lambda: self.streams.applied_count() >= wanted, f"{wanted} events are applied")
        assert self.streams.applied_count() < self.total, "nothing was left to do"

    def finish(self) -> None:
        """Wait for the last answer; each create has exactly one, and is assigned."""
        eventually(lambda: self.streams.applied_count() >= self.total, "every event is applied")
        assert self.streams.applied_count() == self.total
        statuses = [decode_record(read.value or b"") for read in self.streams.read("topic-status")]
        own = [
            status
            for status in statuses
            if isinstance(status, TopicStatus) and status.cluster_id == self.cluster_id
        ]
        assert sorted(status.topic for status in own) == sorted(f"t{n}" for n in range(CREATES))
        assert {status.status for status in own} == {Status.ASSIGNED}


@pytest.mark.smoke
def test_the_scenario_is_verified(stack: Stack) -> None:
    """`up` has held its maps against the documents; the audit holds every message against both."""
    assert stack.verified()["findings"] == []


@pytest.mark.smoke
def test_every_lasting_container_is_healthy(stack: Stack) -> None:
    """A health check that nobody passes, or that is not there, would say nothing."""
    assert {service: stack.health(service) for service in LASTING} == dict.fromkeys(
        LASTING, "healthy"
    )


@pytest.mark.smoke
def test_no_container_of_ours_has_rights_or_writes_to_its_root(stack: Stack) -> None:
    """Not by what the file says, by what is refused inside."""
    found = stack.inspect()
    assert sorted(found) == sorted([*OF_THE_JOB, "kafka"])
    for service in LASTING:
        container = found[service]["Id"]
        assert int(docker("exec", container, "id", "-u")) >= 1000, service
    refused = "for f in /x /etc/x /opt/spu-assigner/x /usr/local/bin/x; do ! : >$f || exit 1; done"
    for service in ("job", "spark-worker-1", "spark-master"):
        docker("exec", found[service]["Id"], "bash", "-c", f"({refused}) 2>/dev/null")


@pytest.mark.smoke
def test_the_published_pages_answer(stack: Stack) -> None:
    """A port that is open and leads nowhere is of no use: each page is asked for from outside."""
    pages = {
        "SPARK_MASTER_UI_PORT": ("json/", '"status" : "ALIVE"'),
        "SPARK_UI_PORT": ("StreamingQuery/", "Active Streaming Queries"),
        "METRICS_PORT": ("metrics", "spu_assigner_"),
    }
    for variable, (path, expected) in pages.items():
        address = f"http://127.0.0.1:{stack.environ[variable]}/{path}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert expected in answer.read().decode()


def test_the_work_goes_on_without_a_killed_worker(stack: Stack, streams: Streams) -> None:
    """The other worker takes over its shards; the killed one comes back and is taken in again."""
    worker = stack.container("spark-worker-1")
    work = Work(streams)
    work.reach(20)
    docker("kill", worker)
    work.finish()
    assert stack.verified()["findings"] == []
    docker("start", worker)
    stack.await_health("spark-worker-1")


def test_a_job_that_crashes_is_started_again_and_goes_on(stack: Stack, streams: Streams) -> None:
    """Driver and JVM die as by the kernel's hand; nobody but the engine starts them again."""
    job = stack.container("job")
    before = stack.inspect()["job"]["RestartCount"]
    work = Work(streams)
    work.reach(20)
    docker("exec", job, "bash", "-c", "kill -9 -1 || true")
    work.finish()
    assert stack.inspect()["job"]["RestartCount"] > before
    assert stack.container("job") == job
    assert stack.verified()["findings"] == []


def test_a_killed_job_container_goes_on_when_it_is_started(stack: Stack, streams: Streams) -> None:
    """A kill by an operator is final for the engine: `up` starts the container again."""
    work = Work(streams)
    work.reach(20)
    docker("kill", stack.container("job"))
    done = stack.command("up")
    assert done.returncode == 0, done.stdout + done.stderr
    eventually(lambda: streams.applied_count() > work.total, "the scenario was played again")
    assert stack.verified()["findings"] == []


def test_the_data_outlive_the_containers(stack: Stack, streams: Streams) -> None:
    """Kafka's log and the checkpoint are on volumes: new containers go on with the next batch."""
    batches = len(streams.markers())
    assert stack.command("down").returncode == 0
    assert stack.inspect() == {}
    done = stack.command("up")
    assert done.returncode == 0, done.stdout + done.stderr
    markers = Streams(stack.bootstrap_servers, "").markers()
    assert [marker.batch for marker in markers] == list(range(len(markers)))
    assert len(markers) > batches
    assert stack.verified()["findings"] == []


@pytest.mark.parametrize("variable", ["KAFKA_IMAGE", "SPU_ASSIGNER_IMAGE"])
def test_an_image_that_cannot_be_pulled_is_named(variable: str) -> None:
    """One line, with the variable that asked for it."""
    image = "127.0.0.1:1/nowhere/nothing:0"
    other = Stack.fresh(COMPOSE_PROJECT_NAME="spu-assigner-refused", **{variable: image})
    done = other.command("up")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"docker-up: image {image} cannot be pulled: ")
    assert f"{variable} names it" in done.stdout
