"""What asks Kafka closes its clients when it has the answer, or the error, and not at some later
time: one that is open when the process ends can crash it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest
from spu_assigner.stream.audit.doctor.checks import run_checks
from spu_assigner.stream.audit.doctor.look import DoctorLook
from spu_assigner.stream.clusters.follow.watched import WatchedCluster
from spu_assigner.stream.clusters.plan.target_cluster import Target
from spu_assigner.stream.job.start_checks import StartLook
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import check_topics, create_topics, partition_counts
from support.kafka.kafka_threads import kafka_threads
from support.kafka.shared_broker import SharedBroker

LISTED_SECONDS_MAX: Final = 5.0  # a client that is open has its threads for as long as it lives


@pytest.fixture
def connection(kafka: SharedBroker, topic_prefix: str) -> Connection:
    """To topics that are there."""
    create_topics({"bootstrap.servers": kafka.bootstrap_servers}, prefix=topic_prefix)
    flags = {"bootstrap_servers": kafka.bootstrap_servers, "topic_prefix": topic_prefix}
    return Settings.load(flags=flags, environ={}).connection()


@pytest.fixture
def opened() -> Iterator[Callable[[], list[str]]]:
    """Threads of clients that were opened in this test and are open; no garbage is collected."""
    gc.collect()
    before = kafka_threads()

    def new() -> list[str]:
        """A thread that was waited for is in /proc for a moment more, so this looks again."""
        deadline = time.monotonic() + LISTED_SECONDS_MAX
        while True:
            now = kafka_threads()
            for name in before:
                if name in now:
                    now.remove(name)
            if not now or time.monotonic() > deadline:
                return now
            time.sleep(0.02)

    gc.disable()
    try:
        yield new
    finally:
        gc.enable()


def read_all(connection: Connection) -> None:
    with Reader(connection, ["replica-map"], from_beginning=True) as reader:
        assert reader.drain() == []


def look_at_topics(connection: Connection) -> None:
    with Target(connection) as target:
        assert target.look(()).brokers


def watch_brokers(connection: Connection) -> None:
    watched = WatchedCluster(connection)
    assert watched.first_look().racks
    assert watched.topics(lambda _: False)
    watched.close()


def settings_of(connection: Connection) -> Settings:
    place = {"bootstrap_servers": connection.bootstrap_servers, "topic_prefix": connection.prefix}
    return Settings.load(flags=place, environ={})


def doctor(connection: Connection) -> None:
    look = DoctorLook(start=StartLook(settings=settings_of(connection)), role=Role.CONSUMER)
    checks = run_checks(look, 60)
    assert {check.name: check.not_checked for check in checks if check.not_checked} == {}
    assert [found for check in checks for found in check.findings] == []


ASKING: Final[Sequence[Callable[[Connection], object]]] = (
    read_all,
    lambda to: check_topics(to.client(), prefix=to.prefix),
    lambda to: partition_counts(to.client(), ["replica-map"], prefix=to.prefix),
    look_at_topics,
    watch_brokers,
    doctor,
    lambda to: create_topics(to.client(), prefix=to.prefix),
)


@pytest.mark.smoke
@pytest.mark.parametrize("ask", ASKING)
def test_who_asks_closes(
    ask: Callable[[Connection], object], connection: Connection, opened: Callable[[], list[str]]
) -> None:
    ask(connection)
    assert opened() == []
