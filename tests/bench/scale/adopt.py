"""How long `adopt` takes on a cluster that has its topics already, with a job that runs.

    python tests/bench/scale/adopt.py [--topics 1800] [--partitions 10] [--brokers 1] [--write]

Topics of one replica are made on embedded brokers by Kafka's admin client (an embedded broker keeps
a file open for each partition, so one takes as many as this process may open files; the stored
result is of 10,000 topics on six), and the job
runs as a process of its own on two cores. Measured is the whole command, the start of its
interpreter included: the first run, which adopts all, then `plan`, a second run, and
`verify --strict`. It ends with an error unless `plan` has nothing to do, the second run sends
nothing, no replica has moved and the audit is clean. With --write the figures go to
results/adopt.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.bench.figures import keep, say
from support.kafka import kafka_cluster
from support.kafka.kafka_cluster import KafkaCluster

PROGRAM: Final = (sys.executable, "-m", "spu_assigner.stream.cli")
PREFIX: Final = "job."
BATCH: Final = 100  # topics of a request
HEAP_MB: Final = 1_024  # of a broker with some ten thousand partitions
SECONDS_MAX: Final = 1_800.0
CAPACITY: Final = 1_000_000  # of a broker: a default one is half full of so many replicas


class Bench:
    """Brokers, topics, and commands on them."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._environ = {
            **os.environ,
            "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "SPU_ASSIGNER_TOPIC_PREFIX": PREFIX,
        }

    def make_topics(self, topics: int, partitions: int) -> float:
        """Seconds until a broker reports all."""
        begun = time.monotonic()
        with AdminClient(self._cluster.client) as admin:
            for first in range(0, topics, BATCH):
                numbers = range(first, min(topics, first + BATCH))
                new = [self._topic(number, partitions) for number in numbers]
                for future in admin.create_topics(new, request_timeout=120.0).values():
                    future.result(timeout=120)
                self._wait_for(admin, numbers[-1] + 1, begun)
                say(f"{numbers[-1] + 1} topics after {time.monotonic() - begun:.0f} s")
        return time.monotonic() - begun

    def _topic(self, number: int, partitions: int) -> NewTopic:
        brokers = self._cluster.ids
        rows = [[brokers[(number + each) % len(brokers)]] for each in range(partitions)]
        return NewTopic(f"t{number:05}", partitions, replica_assignment=rows)

    def _wait_for(self, admin: AdminClient, count: int, begun: float) -> None:
        """Each step is waited for: a broker makes partitions more slowly than the controller."""
        while sum(name.startswith("t") for name in admin.list_topics(timeout=60).topics) < count:
            if time.monotonic() - begun > SECONDS_MAX:
                raise SystemExit(f"the brokers do not show {count} topics")
            time.sleep(0.2)

    def start_job(self) -> subprocess.Popen[bytes]:
        """A job that has answered."""
        log = (self._folder / "job.log").open("wb")
        job = subprocess.Popen(
            [*PROGRAM, "run", "--checkpoint", str(self._folder / "checkpoint"), "--ui-port", "0"],
            env=self._environ,
            stdout=log,
            stderr=log,
        )
        asked = ("topic-create", "--cluster", "warm", "--topic", "t", "--validate-only")
        self.run("produce", *asked, "--wait", "120", statuses=(0, 1))
        return job

    def run(self, *arguments: str, statuses: tuple[int, ...] = (0,)) -> tuple[float, str]:
        """Seconds and output of a command."""
        begun = time.monotonic()
        done = subprocess.run(
            [*PROGRAM, *arguments],
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in statuses:
            raise SystemExit(f"{arguments} ended with {done.returncode}: {done.stderr[-2_000:]}")
        return time.monotonic() - begun, done.stdout


def measure(bench: Bench, topics: int) -> dict[str, Any]:
    """The four commands."""
    adopt = ("adopt", "--cluster", "c1", "-o", "json")
    seconds, output = bench.run(*adopt, "--capacity", str(CAPACITY))
    report = json.loads(output)
    if len(report["adopted"]) != topics:
        raise SystemExit(f"adopted {len(report['adopted'])} of {topics} topics")
    say(f"adopted in {seconds:.1f} s")
    plan_seconds, output = bench.run("plan", "--cluster", "c1", "-o", "json")
    plan = json.loads(output)
    again_seconds, output = bench.run(*adopt)
    again = json.loads(output)
    if again["events"] or again["as_mapped"] != topics or plan["changes"]:
        raise SystemExit("there was something left to do")
    verify_seconds, _ = bench.run("verify", "--strict")
    return {
        "adopt_s": round(seconds, 1),
        "topics_per_s": round(topics / seconds),
        "changes_planned_afterwards": len(plan["changes"]),
        "events_of_a_second_run": len(again["events"]),
        "plan_s": round(plan_seconds, 1),
        "second_run_s": round(again_seconds, 1),
        "verify_strict_s": round(verify_seconds, 1),
    }


def main() -> None:
    """Set up, measure, keep."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=1_800)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    kafka_cluster.HEAP_MB = HEAP_MB
    kafka_cluster.CONTROLLER_HEAP_MB = HEAP_MB
    racks = [f"rack-{number}" for number in range(given.brokers)]
    with tempfile.TemporaryDirectory() as name, KafkaCluster(racks) as cluster:
        bench = Bench(cluster, Path(name))
        create_topics(cluster.client, prefix=PREFIX)
        made_seconds = bench.make_topics(given.topics, given.partitions)
        job = bench.start_job()
        try:
            figures = measure(bench, given.topics)
        finally:
            job.terminate()
            job.wait(60)
    sizes = {
        "topics": given.topics,
        "partitions": given.partitions,
        "replicas": 1,
        "brokers": given.brokers,
        "topics_made_s": round(made_seconds),
    }
    say(json.dumps({**sizes, **figures}))
    if given.write:
        keep("adopt", sizes=sizes, figures=figures)


if __name__ == "__main__":
    main()
