"""Who calls `plan`, `apply` and `follow` on a real cluster."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from spu_assigner.core.base.events import DEFAULT_POLICY, Event
from spu_assigner.schemas.json_lines.lines import event_to_json
from spu_assigner.schemas.messages.wire import AppliedTopic
from spu_assigner.stream.cli import cli
from spu_assigner.stream.client.simulate import answer_lines
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.events.builders import Events
from support.job.small_job import SmallJob, small_job
from support.kafka.kafka_cluster import KafkaCluster

SEEN_SECONDS_MAX = 240.0  # until brokers report what was done: milliseconds
Lists = list[list[int]]


class Operator:
    """Who calls the commands on the cluster: the job's topics and the mapped ones are both there.
    The test's prefix is that of the job's topics and, so that tests do not meet, of mapped ones."""

    def __init__(self, cluster: KafkaCluster, prefix: str, admin: AdminClient) -> None:
        self.cluster = cluster
        self.prefix = prefix
        self.events = Events()
        self._admin = admin
        self._environ = {
            "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "SPU_ASSIGNER_TOPIC_PREFIX": prefix,
        }

    def __call__(self, *arguments: object) -> Result:
        """A command of ours; a broken one is no answer. What `apply` has made is shown by one
        broker: the others follow before this is back."""
        done = CliRunner().invoke(cli, [str(each) for each in arguments], env=self._environ)
        assert isinstance(done.exception, SystemExit | None), done.exc_info
        if arguments[0] == "apply":
            self.settle()
        return done

    def settle(self) -> None:
        """Wait until all running brokers report the same topics."""

        def counts(broker: int) -> dict[str, int] | None:
            found = self.cluster.reported_by(broker)
            return found and {name: len(each.partitions) for name, each in found.topics.items()}

        deadline = time.monotonic() + SEEN_SECONDS_MAX
        first, *others = map(counts, self.cluster.running)
        while any(found != first for found in others):
            assert time.monotonic() < deadline, (first, *others)
            time.sleep(0.1)
            first, *others = map(counts, self.cluster.running)

    def plan(self, *options: object) -> Result:
        return self("plan", "--cluster", "c1", *options)

    def apply(self, *options: object) -> Result:
        return self("apply", "--cluster", "c1", *options)

    def name(self, topic: str) -> str:
        return f"{self.prefix}{topic}"

    def settings(self) -> Settings:
        flags = {"bootstrap_servers": self.cluster.bootstrap_servers, "topic_prefix": self.prefix}
        return Settings.load(flags=flags, environ={})

    def lists(self, *topics: str) -> dict[str, Lists]:
        """What the brokers report of topics, now."""
        return self._lists(self._admin.list_topics(timeout=20), topics)

    def each(self, *topics: str) -> list[dict[str, Lists] | None]:
        """What each running broker reports of topics by itself, now; None: it does not answer."""
        reported = [self.cluster.reported_by(each) for each in self.cluster.running]
        return [None if found is None else self._lists(found, topics) for found in reported]

    def make(self, topic: str, lists: Lists) -> None:
        """A topic that is none of the product's; back when every broker reports it."""
        new = NewTopic(self.name(topic), len(lists), replica_assignment=lists)
        self._admin.create_topics([new])[self.name(topic)].result(timeout=20)
        self.until(topic, lists)

    def remove(self, *topics: str) -> None:
        """Back when no broker reports them any more."""
        for future in self._admin.delete_topics([self.name(each) for each in topics]).values():
            future.result(timeout=20)
        self.wait(topics, lambda found: found == {})

    def reassign(self, topics: dict[str, Lists]) -> None:
        """Have Kafka move partitions; back when that is done and every broker reports it."""
        client = KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap_servers.split(","))
        try:
            client.alter_partition_reassignments(
                {
                    TopicPartition(self.name(topic), number): row
                    for topic, lists in topics.items()
                    for number, row in enumerate(lists)
                }
            )
            deadline = time.monotonic() + SEEN_SECONDS_MAX
            while under_way := client.list_partition_reassignments():
                assert time.monotonic() < deadline, under_way
                time.sleep(0.1)
        finally:
            client.close()
        self.wait(list(topics), lambda found: found == topics)

    def until(self, topic: str, lists: Lists) -> None:
        self.wait([topic], lambda found: found == {topic: lists})

    def wait(self, topics: Sequence[str], is_so: Callable[[dict[str, Lists]], bool]) -> None:
        """Until each running broker reports it by itself: a command may ask any of them."""
        deadline = time.monotonic() + SEEN_SECONDS_MAX
        reported = self.each(*topics)
        while not all(found is not None and is_so(found) for found in reported):
            assert time.monotonic() < deadline, reported
            time.sleep(0.1)
            reported = self.each(*topics)

    def _lists(self, metadata: ClusterMetadata, topics: Sequence[str]) -> dict[str, Lists]:
        return {
            topic: [list(parts[number].replicas) for number in sorted(parts)]
            for topic in topics
            if self.name(topic) in metadata.topics
            for parts in [metadata.topics[self.name(topic)].partitions]
        }

    @property
    def environ(self) -> dict[str, str]:
        """For a command in a process of its own."""
        return dict(self._environ)

    @contextmanager
    def job(self) -> Iterator[SmallJob]:
        """What the job leaves in Kafka: maps, statuses, state; with an SPU for each broker."""
        create_topics(self.cluster.client, prefix=self.prefix, partitions=2)
        with small_job(self.settings()) as job:
            job.apply([self.events.join(n, rack=rack) for n, rack in self.cluster.racks.items()])
            yield job

    def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Records of a user's."""
        producer = Producer({**self.cluster.client, "acks": "all"})
        for value in values:
            producer.produce(self.name(topic), value, partition=partition)
        assert producer.flush(60) == 0

    def recorded(self) -> dict[str, AppliedTopic]:
        """What `apply` has recorded, by the topics' short names."""
        connection = self.settings().connection()
        records = AppliedLedger(connection, "c1", is_there=True).read().records
        return {name.removeprefix(self.prefix): record for name, record in records.items()}


class FollowerProcess:
    """`follow` as a process; what it prints is kept as it comes."""

    def __init__(self, *options: str, environ: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        command = [sys.executable, "-m", "spu_assigner.stream.cli", "follow", "--cluster", "c1"]
        self.process = subprocess.Popen(
            [*command, "--interval", "0.2", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **environ, "PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append(line.rstrip())

    def waits(self, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + SEEN_SECONDS_MAX
        while not is_so():
            assert time.monotonic() < deadline, self.lines
            time.sleep(0.05)

    def says(self, pattern: str) -> re.Match[str]:
        """What of a line is such, once there is one."""
        found: list[re.Match[str] | None] = []

        def is_there() -> bool:
            found[:] = [re.search(pattern, line) for line in list(self.lines)]
            return any(found)

        self.waits(is_there)
        return next(filter(None, found))

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        status = self.process.wait()
        self._reader.join()
        return status


class TopicFollower(FollowerProcess):
    """`follow --topics`, and the job that answers it.

    Args:
        environ: of the process; by default the operator's.
    """

    def __init__(
        self,
        operator: Operator,
        job: SmallJob,
        *options: str,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.job = job
        self._operator = operator
        globs = ("--topics", f"{operator.prefix}*")
        super().__init__(*globs, *options, environ=environ or operator.environ)

    def maps(self) -> dict[str, Lists]:
        """As the job knows them."""
        state = self.job.states().get("c1")
        return {
            name.removeprefix(self._operator.prefix): topic.replicas.lists().tolist()
            for name, topic in ({} if state is None else dict(state.topics)).items()
        }


def simulated(path: Path, events: Sequence[Event]) -> dict[str, Lists | None]:
    """Write the events; gives the maps in `simulate`'s answers."""
    lines = "".join(f"{event_to_json(event)}\n" for event in events).encode()
    answers = io.BytesIO()
    assert answer_lines(io.BytesIO(lines), answers, DEFAULT_POLICY) == 0
    path.write_bytes(lines)
    found = [json.loads(line) for line in answers.getvalue().splitlines()]
    return {each["topic"]: each["replicas"] for each in found if each["type"] == "replica_map"}
