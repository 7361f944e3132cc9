"""What can be wrong with an installation: each function makes a faulty one of a sound one."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.jvm.build_cache import cache_home
from spu_assigner.stream.local.jvm.jars import read_lock
from support.doctor.installations import Installation, InstallationFactory, rewrite
from support.kafka.open_transaction import OpenTransaction

Prepare = Callable[[InstallationFactory, Path], Installation]

# What is wrong with a checkpoint.


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def be_another(checkpoint: Path) -> None:
    other = json.dumps({"id": "00000000-0000-0000-0000-000000000000"})
    rewrite(checkpoint / "metadata", lambda text: other)


def be_older(checkpoint: Path) -> None:
    for log in ("offsets", "commits"):
        for batch in (11, 12):
            (checkpoint / log / str(batch)).unlink()


def changed(change: Callable[[Path], object]) -> Prepare:
    """With its checkpoint changed."""

    def prepare(factory: InstallationFactory, folder: Path) -> Installation:
        installation = factory.sound(folder)
        change(folder / "checkpoint")
        return installation

    return prepare


# What is wrong with the machine.


def given(**environ: str) -> Prepare:
    return lambda factory, folder: factory.sound(folder, **environ)


def java(version: str | None) -> Prepare:
    """Only this one, or none."""

    def prepare(factory: InstallationFactory, folder: Path) -> Installation:
        home = folder / "java"
        if version is not None:
            (home / "bin").mkdir(parents=True)
            (home / "bin/java").touch(mode=0o755)
            (home / "release").write_text(f'JAVA_VERSION="{version}"\n', encoding="utf-8")
        installation = factory.sound(folder, JAVA_HOME=str(home), PATH=str(folder))
        return replace(installation, has_no_other_java=True)

    return prepare


def jars(change: Callable[[Path], None]) -> Prepare:
    def prepare(factory: InstallationFactory, folder: Path) -> Installation:
        for group in ("spark-kafka", "spark-local"):
            for each in (cache_home() / "jars").glob(f"{group}-*"):
                shutil.copytree(each, folder / "cache/jars" / each.name)
        jar = next(
            each for each in read_lock()["spark-kafka"] if "commons-pool2" in each.coordinate
        )
        for path in (folder / "cache/jars").glob(f"spark-kafka-*/{jar.file_name}"):
            change(path)
        return factory.sound(folder, SPU_ASSIGNER_CACHE=str(folder / "cache"))

    return prepare


def foreign_address(factory: InstallationFactory, folder: Path) -> Installation:
    host = {"SPU_ASSIGNER_METRICS_HOST": "192.0.2.1"}  # of no machine
    return factory.sound(folder, SPU_ASSIGNER_METRICS_PORT="4060", **host)


def listening(factory: InstallationFactory) -> int:
    """The port of one who takes connections and says nothing."""
    listener = factory.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    return int(listener.getsockname()[1])


# What is wrong with the broker, or with how clients connect to it.


def at(address: Callable[[InstallationFactory], str]) -> Prepare:
    """With this address of the brokers."""
    return lambda factory, folder: factory.sound(folder, KAFKA_BOOTSTRAP_SERVERS=address(factory))


def as_user(name: str = "doctor", **environ: str) -> Prepare:
    """On the broker with users."""
    return lambda factory, folder: factory.user(folder, name, **environ)


def stranger(factory: InstallationFactory, folder: Path) -> Installation:
    authority = str(factory.secured.certificates.path("stranger.pem"))
    return factory.user(folder, SPU_ASSIGNER_SSL_CA_FILE=authority)


# What is wrong with topics.


def made(factory: InstallationFactory, folder: Path, prefix: str) -> Installation:
    """Topics as they should be, and no checkpoint yet."""
    create_topics(factory.client, prefix=prefix)
    return factory.without_checkpoint(folder, prefix)


def topic_gone(factory: InstallationFactory, folder: Path) -> Installation:
    installation, name = made(factory, folder, "doctor-gone."), "doctor-gone.ring-events"
    with AdminClient(factory.client) as admin:
        for future in admin.delete_topics([name]).values():
            future.result(timeout=60)
        factory.until_topics(lambda found: name not in found)
        return installation


# What is wrong between checkpoint and Kafka.


def input_lost(factory: InstallationFactory, folder: Path) -> Installation:
    prefix = factory.filled("doctor-lost.")
    topic = f"{prefix}topic-events"
    for _ in range(3):
        factory.send(topic, b"?", b"c1", partition=1)
    place = TopicPartition(topic, 1, OFFSET_END)
    with AdminClient(factory.client) as admin:
        for future in admin.delete_records([place]).values():
            future.result(timeout=60)
        return factory.sound(folder, prefix)


def open_input(factory: InstallationFactory, folder: Path) -> Installation:
    """A producer died in its transaction."""
    prefix = factory.filled("doctor-open-input.")
    OpenTransaction(factory.client, f"{prefix}spu-events")
    return factory.sound(folder, prefix)


def open_markers(factory: InstallationFactory, folder: Path) -> Installation:
    prefix = factory.filled("doctor-open-markers.")
    OpenTransaction(factory.client, f"{prefix}assigner-commits")
    return factory.sound(folder, prefix)


def repeated_under_another_policy(factory: InstallationFactory, folder: Path) -> Installation:
    installation = factory.sound(folder, SPU_ASSIGNER_DEFAULT_POLICY="kafka")
    (folder / "checkpoint/commits/12").unlink()
    return installation


def other_prefix(factory: InstallationFactory, folder: Path) -> Installation:
    installation, own = made(factory, folder, "doctor-other."), factory.checkpoint(folder)
    return replace(
        installation, environ={**installation.environ, "SPU_ASSIGNER_CHECKPOINT": str(own)}
    )
