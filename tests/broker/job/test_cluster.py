"""The job as it is, on Spark clusters: executors in processes of their own, one of them killed, and
`spark-submit` to a standalone master and two workers. All on this machine, on loopback.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from spu_assigner.core import Assigner, Event, Policy, ReplicaMap
from spu_assigner.schemas.messages.codec import EventKind, decode_event, decode_record
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.jvm.java import Java
from support.events.builders import Events
from support.job.programs import left_after, running, session
from support.job.shards import SHARDS
from support.job.streams import OUTPUTS, SPU_EVENTS, TOPIC_EVENTS, Streams
from support.kafka.shared_broker import SharedBroker

CLUSTERS = [f"c{number}" for number in range(6)]
SPARK = Path(pyspark.__file__).parent
EXECUTOR = "CoarseGrainedExecutorBackend"
SERVER = "spu_assigner.stream.job.shard.server"
EVENTS_MAX = 4_000
KINDS: dict[str, EventKind] = {SPU_EVENTS: "spu", TOPIC_EVENTS: "topic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A job on a cluster."""

    process: subprocess.Popen[bytes]
    streams: Streams
    log: Path


def environ_of(kafka: SharedBroker, prefix: str, checkpoint: Path) -> dict[str, str]:
    """The job's settings, and Spark's own: where it is, its workers' Python, loopback only."""
    return {
        "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SPU_ASSIGNER_TOPIC_PREFIX": prefix,
        "SPU_ASSIGNER_CHECKPOINT": str(checkpoint),
        "SPU_ASSIGNER_SHARDS": str(SHARDS),
        "SPU_ASSIGNER_TOPIC_EVENTS_PER_BATCH": "24",
        "SPU_ASSIGNER_UI_PORT": "0",
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",  # five short-lived JVMs on few cores
    }


def prepared(kafka: SharedBroker, prefix: str) -> Streams:
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    create_topics(client, prefix=prefix, partitions=2)  # each is a task of every batch
    return Streams(kafka.bootstrap_servers, prefix)


@pytest.fixture(scope="module")
def local_cluster(
    kafka: SharedBroker, java: Java, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A job on `local-cluster`: a driver, and two executors in JVMs of their own."""
    folder = tmp_path_factory.mktemp("local-cluster")
    streams = prepared(kafka, "local-cluster.")
    environ = environ_of(kafka, "local-cluster.", folder / "checkpoint")
    environ["SPU_ASSIGNER_MASTER"] = "local-cluster[2,1,1024]"
    command = [sys.executable, "-m", "spu_assigner.stream.job.lifecycle"]
    with running(command, folder / "job.log", environ) as process:
        yield Running(process=process, streams=streams, log=folder / "job.log")


def joins(cluster_id: str) -> list[Event]:
    """Seven SPUs, two of them small enough to be saturated."""
    events = Events(cluster_id)
    return [*events.joins(0, 1, 2, 3, 4), *events.joins(5, 6, capacity=9)]


def creates(cluster_id: str, name: str, count: int) -> list[Event]:
    """Topics of all automatic policies in turn."""
    events = Events(cluster_id)
    policies = (Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA)
    return [
        events.create(
            f"{name}-{number}", 4, 3, policy=policies[number % 3], event_id=f"{name}-{number}"
        )
        for number in range(count)
    ]


def in_turn(lists: list[list[Event]]) -> list[Event]:
    """The clusters' events, one of each after the other."""
    return [event for events in zip(*lists, strict=True) for event in events]


def maps_of_core(events: list[Event]) -> dict[bytes, list[ReplicaMap]]:
    """What the core itself decides, by key."""
    assigner = Assigner()
    maps: dict[bytes, list[ReplicaMap]] = defaultdict(list)
    for event in events:
        for answer in assigner.apply(event):
            if isinstance(answer, ReplicaMap):
                maps[f"{answer.cluster_id}/{answer.topic}".encode()].append(answer)
    return maps


def maps_in_kafka(streams: Streams) -> dict[bytes, list[ReplicaMap]]:
    maps: dict[bytes, list[ReplicaMap]] = defaultdict(list)
    for read in streams.read("replica-map"):
        assert read.key is not None
        assert read.value is not None
        record = decode_record(read.value)
        assert isinstance(record, ReplicaMap)
        maps[read.key].append(record)
    return maps


def check_all(streams: Streams, events: list[Event]) -> None:
    """Every map equals the core's and is there once; the markers have each batch once."""
    assert maps_in_kafka(streams) == maps_of_core(events)
    markers = streams.markers()
    assert [marker.batch for marker in markers] == list(range(len(markers)))
    written = [read.ce_id for topic in OUTPUTS for read in streams.read(topic)]
    assert len(written) == len(set(written)) == sum(marker.count for marker in markers)
    assert len(streams.applied()) == len(events)


@pytest.mark.long("a standalone Spark cluster of a master and two workers starts")
def test_executors_answer_as_the_core_does(local_cluster: Running) -> None:
    """Executors have neither this process's modules nor its class path, only what they are sent."""
    streams, process = local_cluster.streams, local_cluster.process
    ring = in_turn([joins(cluster_id) for cluster_id in CLUSTERS])
    topics = in_turn([creates(cluster_id, "first", 6) for cluster_id in CLUSTERS])
    streams.send(ring)
    streams.send(topics)
    streams.wait(lambda: streams.applied_count() == len(ring + topics), process)
    check_all(streams, ring + topics)
    commands = list(session(process).values())
    assert len([command for command in commands if EXECUTOR in command]) == 2


@pytest.mark.long("a shard server and an executor are killed in mid-stream")
def test_a_killed_shard_server_and_a_killed_executor_lose_and_double_nothing(
    local_cluster: Running,
) -> None:
    """What an executor held is decided again on another; what was sent is not sent again."""
    streams, process = local_cluster.streams, local_cluster.process
    known = [decode_event(read.value, kind=KINDS[read.topic]) for read in streams.applied()]
    events = [*known, *in_turn([joins(f"killed-{cluster_id}") for cluster_id in CLUSTERS])]
    streams.send(events[len(known) :])
    for name in (SERVER, EXECUTOR):
        is_in_mid_stream = False
        while not is_in_mid_stream:
            assert len(events) < EVENTS_MAX, f"no {name} was killed in mid-stream"
            before = len(events)
            topics = f"topic-{before}"  # a name of these alone
            events += in_turn([creates(f"killed-{each}", topics, 30) for each in CLUSTERS])
            streams.send(events[before:])
            streams.wait(lambda before=before: streams.applied_count() > before, process)
            victims = [pid for pid, command in session(process).items() if name in command]
            os.kill(victims[-1], signal.SIGKILL)
            is_in_mid_stream = streams.applied_count() < len(events)
    streams.wait(lambda: streams.applied_count() == len(events), process)
    check_all(streams, events)


@pytest.mark.long("spark-submit ships the job to a standalone cluster")
def test_spark_submit_runs_it_on_a_standalone_cluster(
    kafka: SharedBroker, java: Java, topic_prefix: str, tmp_path: Path
) -> None:
    """The command that `stream/submit.py` prints; SIGTERM ends it and all that it started."""
    streams = prepared(kafka, topic_prefix)
    environ = environ_of(kafka, topic_prefix, tmp_path / "checkpoint")
    ring = in_turn([joins(cluster_id) for cluster_id in CLUSTERS])
    topics = in_turn([creates(cluster_id, "first", 3) for cluster_id in CLUSTERS])
    streams.send(ring)
    streams.send(topics)
    with ExitStack() as stack:
        log = tmp_path / "master.log"
        master = stack.enter_context(running(daemon("master.Master"), log, environ))
        url = await_line(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)", master)
        for number in range(2):
            folder = tmp_path / f"worker-{number}"
            options = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder), url]
            worker = daemon("worker.Worker", *options)
            stack.enter_context(running(worker, tmp_path / f"worker-{number}.log", environ))
        result = subprocess.run(
            [sys.executable, "-m", "spu_assigner.stream.submit"],
            capture_output=True,
            text=True,
            check=True,
        )
        command = [str(SPARK / "bin" / "spark-submit"), "--master", url, *result.stdout.split()]
        job = stack.enter_context(running(command, tmp_path / "job.log", environ))
        streams.wait(lambda: streams.applied_count() == len(ring + topics), job)
        check_all(streams, ring + topics)
        job.terminate()
        job.wait(90)
        assert left_after(job) == {}
    used = {path.parts[-2] for path in tmp_path.glob("worker-*/app-*/*/stderr")}
    assert used == {"0", "1"}, "both executors were started"
    assert "Traceback" not in (tmp_path / "job.log").read_text()


def daemon(name: str, *options: str) -> list[str]:
    """A process of a standalone cluster, on free ports of 127.0.0.1."""
    spark_class = str(SPARK / "bin" / "spark-class")
    place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    return [spark_class, f"org.apache.spark.deploy.{name}", *place, *options]


def await_line(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    """The pattern's group, once the log has it."""
    deadline = time.monotonic() + 60
    while (found := re.search(pattern, log.read_text())) is None:
        assert process.poll() is None, f"{process.args} ended"
        assert time.monotonic() < deadline, f"{log} has no line like {pattern}"
        time.sleep(0.05)
    return found[1]
