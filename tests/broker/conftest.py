"""A job on the shared broker, with topics and a checkpoint of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.job.lifecycle import Job, start
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.jvm.java import Java
from support.job.kafka_operator import Operator
from support.job.streams import SHARDS
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.secured import Secured, secured_broker
from support.kafka.shared_broker import SharedBroker

RIGHTS_OF_A_ROLE_MAX = 40


@pytest.fixture(scope="session")
def secured(kafka: SharedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that asks who is there and what he may do; `kafka` says whether one can be had."""
    users = [f"{role}-{number}" for role in Role for number in range(RIGHTS_OF_A_ROLE_MAX)]
    folder = tmp_path_factory.mktemp("secured")
    with secured_broker(folder, plain_users=["nobody", *users]) as broker:
        yield broker


@pytest.fixture
def settings(kafka: SharedBroker, topic_prefix: str, java: Java, tmp_path: Path) -> Settings:
    create_topics({"bootstrap.servers": kafka.bootstrap_servers}, prefix=topic_prefix)
    return Settings.load(
        flags={
            "bootstrap_servers": kafka.bootstrap_servers,
            "topic_prefix": topic_prefix,
            "checkpoint": str(tmp_path / "checkpoint"),
            "shards": SHARDS,
            "ui_port": 0,
            "master": "local[2]",
        },
        environ={},
    )


@pytest.fixture
def run(settings: Settings) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def begin(changed: Settings = settings) -> Job:
        jobs.append(start(changed))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.stop()


@pytest.fixture
def operator(kafka_cluster: KafkaCluster, topic_prefix: str) -> Iterator[Operator]:
    """The shared cluster is left without the topics of the test."""
    with AdminClient(kafka_cluster.client) as admin:
        yield Operator(kafka_cluster, topic_prefix, admin)
    with AdminClient(kafka_cluster.client) as admin:
        left = [
            name for name in admin.list_topics(timeout=20).topics if name.startswith(topic_prefix)
        ]
        for future in admin.delete_topics(left).values() if left else ():
            future.result(timeout=60)
