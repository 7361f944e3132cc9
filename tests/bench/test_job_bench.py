"""The job as a user runs it, beside a raw transactional echo of the same broker in the same run.

Work unit: a topic-create of 16 partitions × 3 replicas, over 50 clusters of 64 SPUs. Every answer
is compared with the core's own on the same events.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.core import Assigner
from spu_assigner.core.events import Policy
from spu_assigner.core.records import ReplicaMap
from spu_assigner.schemas.codec import decode_record, encode_event
from spu_assigner.stream.broker import EmbeddedBroker
from support.figures import keep, percentiles, spread
from support.programs import running
from support.workload import CLUSTERS, SIZES, SPUS, Client, creates, joins

CREATES: Final = int(os.environ.get("BENCH_CREATES", "100000"))
BACKLOGS: Final = int(os.environ.get("BENCH_BACKLOGS", "3"))
CLOSED_LOOPS: Final = int(os.environ.get("BENCH_LATENCIES", "200"))
WARM_UP: Final = 30
POLICIES: Final = (Policy.BALANCED, Policy.FLUVIO)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker of its own: what other tests left behind costs nothing here."""
    with EmbeddedBroker(tmp_path / "broker") as broker:
        yield broker


def measure(client: Client, first: int) -> tuple[list[float], list[float], int]:
    """Latencies in ms and rates per s; `first` is the number of the first create."""
    for event in creates(first, WARM_UP):
        client.ask(event.cluster_id, encode_event(event))
    first += WARM_UP
    latencies = [
        client.ask(event.cluster_id, encode_event(event)) for event in creates(first, CLOSED_LOOPS)
    ]
    first += CLOSED_LOOPS
    rates = []
    for _ in range(BACKLOGS):
        backlog = [(e.cluster_id, encode_event(e)) for e in creates(first, CREATES)]
        first += CREATES
        begun = time.perf_counter()
        client.send(backlog)
        client.take(CREATES)
        rates.append(CREATES / (time.perf_counter() - begun))
    return latencies, rates, first


def test_latency_and_throughput(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """One create at a time, then a backlog, through the job and through the echo."""
    bootstrap = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, 4, 1) for name in ("echo-in", "echo-out")])
    for future in made.values():
        future.result()
    script = str(Path(__file__).parent / "echo.py")
    with running([sys.executable, script, bootstrap, "echo-in", "echo-out"], tmp_path / "echo.log"):
        echo_ms, echo_rates, _ = measure(Client(bootstrap, "echo-in", "echo-out"), 0)
    figures: dict[str, object] = {
        "latency_echo_ms": percentiles(echo_ms),
        "echo_per_s": spread(echo_rates),
    }
    for policy in POLICIES:
        job_ms, job_rates = measure_job(bootstrap, policy, tmp_path)
        figures[f"{policy} latency_ms"] = percentiles(job_ms)
        figures[f"{policy} creates_per_s"] = spread(job_rates)
        figures[f"{policy} throughput_of_echo"] = spread(
            [job / echo for job, echo in zip(job_rates, echo_rates, strict=True)]
        )
    keep(
        "job",
        sizes={**SIZES, "backlog": CREATES},
        figures=figures,
    )


def measure_job(bootstrap: str, policy: Policy, folder: Path) -> tuple[list[float], list[float]]:
    """Latencies and rates of a job with this default policy, on topics of its own."""
    prefix = f"{policy}."
    environ = {
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
        "SPU_ASSIGNER_TOPIC_PREFIX": prefix,
        "SPU_ASSIGNER_DEFAULT_POLICY": policy.value,
    }
    program = str(Path(sys.executable).with_name("spu-assigner"))
    subprocess.run([program, "topics", "create"], env={**os.environ, **environ}, check=True)
    command = [program, "run", "--checkpoint", str(folder / f"checkpoint-{policy}")]
    with running(command, folder / f"job-{policy}.log", environ):
        spus = Client(bootstrap, f"{prefix}spu-events", f"{prefix}ring-events")
        spus.send([(event.cluster_id, encode_event(event)) for event in joins()])
        spus.take(CLUSTERS * SPUS)
        client = Client(bootstrap, f"{prefix}topic-events", f"{prefix}replica-map")
        latencies, rates, total = measure(client, 0)
        check_maps(bootstrap, policy, total)
    return latencies, rates


def check_maps(bootstrap: str, policy: Policy, total: int) -> None:
    """Every map that came out equals the core's on the same creates."""
    reader = Client(bootstrap, f"{policy}.topic-events", f"{policy}.replica-map")
    found = {}
    for value in reader.take(total):
        record = decode_record(value)
        assert isinstance(record, ReplicaMap)
        found[record.topic] = record
    assigner = Assigner(policy)
    for event in joins():
        assigner.apply(event)
    # Four input partitions, but one for each cluster: within a cluster the order is the producer's.
    for event in creates(0, total):
        expected = assigner.apply(event)[0]
        assert found[expected.topic] == expected  # type: ignore[union-attr]
