"""Faults that the doctor is to find, some for each check, with what it is to say of each.

A seed makes a faulty installation of a sound one.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.doctor.installations import Installation, InstallationFactory
from support.kafka.one_topic import OpenTransaction

Prepare = Callable[[InstallationFactory, Path], Installation]


def given(**environ: str) -> Prepare:
    return lambda factory, folder: factory.sound(folder, **environ)


def as_user(name: str = "doctor", **environ: str) -> Prepare:
    """On the broker with users."""
    return lambda factory, folder: factory.user(folder, name, **environ)


def changed(change: Callable[[Path], object]) -> Prepare:
    """With its checkpoint changed."""

    def prepare(factory: InstallationFactory, folder: Path) -> Installation:
        installation = factory.sound(folder)
        change(folder / "checkpoint")
        return installation

    return prepare


def another_checkpoint(checkpoint: Path) -> None:
    (checkpoint / "metadata").write_text(json.dumps({"id": "0" * 8}), encoding="utf-8")


def older_copy(checkpoint: Path) -> None:
    for log in ("offsets", "commits"):
        for batch in (11, 12):
            (checkpoint / log / str(batch)).unlink()


def no_java(factory: InstallationFactory, folder: Path) -> Installation:
    installation = factory.sound(folder, JAVA_HOME=str(folder / "java"), PATH=str(folder))
    return replace(installation, has_no_other_java=True)


def silent_port(factory: InstallationFactory, folder: Path) -> Installation:
    """That of one who takes connections and says nothing."""
    listener = factory.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    return factory.sound(folder, KAFKA_BOOTSTRAP_SERVERS=address)


def stranger(factory: InstallationFactory, folder: Path) -> Installation:
    authority = str(factory.secured.certificates.path("stranger.pem"))
    return factory.user(folder, SPU_ASSIGNER_SSL_CA_FILE=authority)


def topic_missing(factory: InstallationFactory, folder: Path) -> Installation:
    create_topics(factory.client, prefix="doctor-gone.")
    factory.delete("doctor-gone.ring-events")
    return factory.without_checkpoint(folder, "doctor-gone.")


def another_prefix(factory: InstallationFactory, folder: Path) -> Installation:
    create_topics(factory.client, prefix="doctor-other.")
    own = str(factory.checkpoint(folder))
    return factory.without_checkpoint(folder, "doctor-other.", SPU_ASSIGNER_CHECKPOINT=own)


def input_lost(factory: InstallationFactory, folder: Path) -> Installation:
    prefix = factory.filled("doctor-lost.")
    topic = f"{prefix}topic-events"
    factory.send(topic, [b"?"] * 3, b"c1", partition=1)
    place = TopicPartition(topic, 1, OFFSET_END)
    with AdminClient(factory.client) as admin:
        for future in admin.delete_records([place]).values():
            future.result(timeout=60)
        return factory.sound(folder, prefix)


def left_open(topic: str) -> Prepare:
    """A producer died in its transaction."""

    def prepare(factory: InstallationFactory, folder: Path) -> Installation:
        prefix = factory.filled(f"doctor-open-{topic}.")
        OpenTransaction(factory.client, f"{prefix}{topic}")
        return factory.sound(folder, prefix)

    return prepare


def repeated_under_another_policy(factory: InstallationFactory, folder: Path) -> Installation:
    installation = factory.sound(folder, SPU_ASSIGNER_DEFAULT_POLICY="kafka")
    (folder / "checkpoint/commits/12").unlink()
    return installation


@dataclass(frozen=True, slots=True)
class Seed:
    """One thing that is wrong, and what is to be said of it."""

    name: str
    codes: str  # all that is found, in their order
    prepare: Prepare
    fix: str  # in what is to be done about the first
    waits: bool = False  # a part of the time that there is, for an answer

    @property
    def slug(self) -> str:
        """For a test and a folder."""
        return re.sub(r"\W+", "-", self.name)


SEEDS: Sequence[Seed] = (
    Seed("no Java", "D101", no_java, "spu_assigner.stream.setup"),
    Seed("silent port", "D202", silent_port, "check the address", waits=True),
    Seed("another authority", "D203", stranger, "SPU_ASSIGNER_SSL_CA_FILE"),
    Seed("wrong password", "D209", as_user(SPU_ASSIGNER_SASL_PASSWORD="another"), "PASSWORD"),
    Seed("right missing", "D301", as_user("doctor-less"), "topics acls --role job`"),
    Seed("topic missing", "D302", topic_missing, "topics create"),
    Seed("checkpoint writable", "D402", changed(lambda it: it.chmod(0o777)), "chmod 700"),
    Seed("offsets lost", "D404", changed(lambda it: shutil.rmtree(it / "offsets")), "recover"),
    Seed("other shards", "D406", given(SPU_ASSIGNER_SHARDS="5"), "--shards 5"),
    Seed("another prefix", "D410 D502", another_prefix, "topic prefix"),
    Seed("another checkpoint", "D501", changed(another_checkpoint), "recover"),
    Seed("older copy", "D502", changed(older_copy), "bring back the latest one"),
    Seed("input lost", "D504", input_lost, "nothing of it was answered"),
    Seed("repeated otherwise", "D508", repeated_under_another_policy, "start once with"),
    Seed("another query", "D510", given(SPU_ASSIGNER_QUERY_NAME="another"), "query name"),
    Seed("open transaction on the input", "D511", left_open("spu-events"), "kafka-transactions.sh"),
    Seed("open transaction on the markers", "D511", left_open("assigner-commits"), "find-hanging"),
)
