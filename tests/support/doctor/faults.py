"""What can be wrong with an installation: each function makes a patient of a sound one."""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.schemas.messages.codec import decode_record, encode_record
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.jvm.build_cache import cache_home
from spu_assigner.stream.jvm.jars import read_lock
from spu_assigner.stream.kafka.topics import create_topics
from support.doctor.installations import (
    AHEAD_SECONDS,
    SHARDS_THEN,
    Clinic,
    Patient,
    rewrite,
    write_sums,
)

# What is wrong with a checkpoint: each changes the folder that it is given.


def flip(checkpoint: Path) -> None:
    path = checkpoint / "state/0/1/13.changelog"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def lose_changes(checkpoint: Path) -> None:
    (checkpoint / "state/0/1/12.changelog").unlink()


def cut_offsets(checkpoint: Path) -> None:
    path = checkpoint / "offsets/12"
    rewrite(path, lambda text: text[: text.index('"conf"')])


def lose_offsets(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "offsets")


def cut_table(checkpoint: Path) -> None:
    (path,) = checkpoint.glob("state/0/1/SSTs/*.sst")
    path.write_bytes(path.read_bytes()[:-1])
    write_sums(path)


def write_by_newer_spark(checkpoint: Path) -> None:
    rewrite(checkpoint / "offsets/12", lambda text: text.replace("v1", "v9", 1))


def be_of_another_program(checkpoint: Path) -> None:
    rewrite(
        checkpoint / "state/0/_metadata/v2/0",
        lambda text: text.replace('\\"stateName\\":\\"shard\\"', '\\"stateName\\":\\"count\\"'),
    )


def be_another(checkpoint: Path) -> None:
    other = json.dumps({"id": "00000000-0000-0000-0000-000000000000"})
    rewrite(checkpoint / "metadata", lambda text: other)


def be_older(checkpoint: Path) -> None:
    for log in ("offsets", "commits"):
        for batch in (11, 12):
            (checkpoint / log / str(batch)).unlink()


def repeat_last(checkpoint: Path) -> None:
    (checkpoint / "commits/12").unlink()


def open_to_read(checkpoint: Path) -> None:
    checkpoint.chmod(0o755)


def open_to_write(checkpoint: Path) -> None:
    checkpoint.chmod(0o777)


def lose_sums(checkpoint: Path) -> None:
    (checkpoint / "offsets/.12.crc").unlink()


def hold_something_else(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    (checkpoint / "photos").mkdir(mode=0o700, parents=True)


def break_off_recovery(checkpoint: Path) -> None:
    for name in ("offsets", "commits", "state", "sources"):
        shutil.rmtree(checkpoint / name)
    rewrite(checkpoint / "metadata", lambda text: text.replace("}", ',"recovered":true}'))


def changed(change: Callable[[Path], None], **environ: str) -> Callable[[Clinic, Path], Patient]:
    def prepare(clinic: Clinic, folder: Path) -> Patient:
        patient = clinic.sound(folder, **environ)
        change(folder / "checkpoint")
        return patient

    return prepare


def move(clinic: Clinic, folder: Path) -> Patient:
    patient = clinic.sound(folder)
    (folder / "checkpoint").rename(folder / "elsewhere")
    return replace(
        patient,
        environ={**patient.environ, "SPU_ASSIGNER_CHECKPOINT": str(folder / "elsewhere")},
    )


# What is wrong with the machine.


def given(**environ: str) -> Callable[[Clinic, Path], Patient]:
    return lambda clinic, folder: clinic.sound(folder, **environ)


def java(version: str | None, says: str = "exit 1") -> Callable[[Clinic, Path], Patient]:
    def prepare(clinic: Clinic, folder: Path) -> Patient:
        home = folder / "java"
        if version is not None:
            (home / "bin").mkdir(parents=True)
            (home / "bin/java").write_text(f"#!/bin/sh\n{says}\n", encoding="utf-8")
            (home / "bin/java").chmod(0o755)
            (home / "release").write_text(f'JAVA_VERSION="{version}"\n', encoding="utf-8")
        patient = clinic.sound(folder, JAVA_HOME=str(home), PATH=str(folder))
        return replace(patient, has_no_other_java=True)

    return prepare


def package(name: str, version: str, *requires: str) -> Callable[[Clinic, Path], Patient]:
    """A package's description that is found before the one which is installed."""

    def prepare(clinic: Clinic, folder: Path) -> Patient:
        described = folder / f"packages/{name.replace('-', '_')}-{version}.dist-info"
        described.mkdir(parents=True)
        lines = [f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {each}" for each in requires]
        text = "\n".join(["Metadata-Version: 2.4", *lines, ""])
        (described / "METADATA").write_text(text, encoding="utf-8")
        return replace(clinic.sound(folder), python_path=(folder / "packages",))

    return prepare


def jars(change: Callable[[Path], None]) -> Callable[[Clinic, Path], Patient]:
    def prepare(clinic: Clinic, folder: Path) -> Patient:
        for group in ("spark-kafka", "spark-local"):
            for each in (cache_home() / "jars").glob(f"{group}-*"):
                shutil.copytree(each, folder / "cache/jars" / each.name)
        jar = next(
            each for each in read_lock()["spark-kafka"] if "commons-pool2" in each.coordinate
        )
        for path in (folder / "cache/jars").glob(f"spark-kafka-*/{jar.file_name}"):
            change(path)
        return clinic.sound(folder, SPU_ASSIGNER_CACHE=str(folder / "cache"))

    return prepare


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def other_spark(clinic: Clinic, folder: Path) -> Patient:
    (folder / "spark/jars").mkdir(parents=True)
    (folder / "spark/jars/spark-core_2.13-3.5.1.jar").write_bytes(b"")
    return clinic.sound(folder, SPARK_HOME=str(folder / "spark"))


def taken_port(clinic: Clinic, folder: Path) -> Patient:
    return clinic.sound(folder, SPU_ASSIGNER_UI_PORT=str(listening(clinic)))


def listening(clinic: Clinic) -> int:
    """The port of one who takes connections and says nothing."""
    listener = clinic.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    return int(listener.getsockname()[1])


# What is wrong with the broker, or with how it is spoken to.


def closed(clinic: Clinic, folder: Path) -> Patient:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return clinic.sound(folder, KAFKA_BOOTSTRAP_SERVERS=f"127.0.0.1:{port}")


def silent(clinic: Clinic, folder: Path) -> Patient:
    address = f"127.0.0.1:{listening(clinic)}"
    return clinic.sound(folder, KAFKA_BOOTSTRAP_SERVERS=address)


def one_of_two(clinic: Clinic, folder: Path) -> Patient:
    away = closed(clinic, folder / "closed").environ["KAFKA_BOOTSTRAP_SERVERS"]
    return clinic.sound(folder, KAFKA_BOOTSTRAP_SERVERS=f"{away},{clinic.bootstrap}")


def stranger(clinic: Clinic, folder: Path) -> Patient:
    authority = str(clinic.secured.certificates.path("stranger.pem"))
    return clinic.user(folder, SPU_ASSIGNER_SSL_CA_FILE=authority)


def misnamed(clinic: Clinic, folder: Path) -> Patient:
    return clinic.user(folder, KAFKA_BOOTSTRAP_SERVERS=clinic.secured.address("MISNAMED"))


def no_tls(clinic: Clinic, folder: Path) -> Patient:
    return clinic.user(folder, KAFKA_BOOTSTRAP_SERVERS=clinic.bootstrap)


def only_tls(clinic: Clinic, folder: Path) -> Patient:
    return clinic.sound(folder, KAFKA_BOOTSTRAP_SERVERS=clinic.secured.address("SASL_SSL"))


def no_certificate(clinic: Clinic, folder: Path) -> Patient:
    address = clinic.secured.address("SSL")
    return clinic.user(
        folder,
        KAFKA_BOOTSTRAP_SERVERS=address,
        SPU_ASSIGNER_SECURITY_PROTOCOL="SSL",
        SPU_ASSIGNER_SASL_USERNAME="",
        SPU_ASSIGNER_SASL_PASSWORD="",
    )


def wrong_password(clinic: Clinic, folder: Path) -> Patient:
    return clinic.user(folder, SPU_ASSIGNER_SASL_PASSWORD="another")


def less(clinic: Clinic, folder: Path) -> Patient:
    return clinic.user(folder, "doctor-less")


# What is wrong with topics.


def made(clinic: Clinic, folder: Path, prefix: str) -> Patient:
    """Topics as they should be, and no checkpoint yet."""
    create_topics(clinic.client, prefix=prefix)
    return clinic.without_checkpoint(folder, prefix)


def topic_gone(clinic: Clinic, folder: Path) -> Patient:
    patient, name = made(clinic, folder, "doctor-gone."), "doctor-gone.ring-events"
    with AdminClient(clinic.client) as admin:
        for future in admin.delete_topics([name]).values():
            future.result(timeout=60)
        clinic.until_topics(lambda found: name not in found)
        return patient


def partitions(clinic: Clinic, folder: Path) -> Patient:
    """A topic that a broker has made by itself, as it would have it."""
    prefix, name = "doctor-parts.", "doctor-parts.assigner-audit"
    with AdminClient(clinic.client) as admin:
        for future in admin.create_topics([NewTopic(name, 2, 1)]).values():
            future.result(timeout=60)
        clinic.until_topics(lambda found: name in found)
        return clinic.without_checkpoint(folder, prefix)


def topic_set(prefix: str, topic: str, name: str, value: str) -> Callable[[Clinic, Path], Patient]:
    def prepare(clinic: Clinic, folder: Path) -> Patient:
        patient = made(clinic, folder, prefix)
        clinic.set(prefix + topic, name, value)
        return patient

    return prepare


def clock(clinic: Clinic, folder: Path) -> Patient:
    """The broker's time is later than ours: as if its clock had been so."""
    prefix = "doctor-clock."
    patient = made(clinic, folder, prefix)
    topic = f"{prefix}topic-events"
    clinic.set(topic, "message.timestamp.type", "CreateTime")
    later = int((time.time() + AHEAD_SECONDS) * 1000)
    times: list[int] = []  # that the log has given, as the broker tells them
    deadline = time.monotonic() + 60
    while later not in times:  # A log hears of its setting after the broker tells of it.
        assert time.monotonic() < deadline, f"{topic} has {times}, never {later}"
        clinic.send(
            topic,
            b"?",
            b"c1",
            timestamp=later,
            on_delivery=lambda error, message: times.append(
                message.timestamp()[1] if error is None else 0
            ),
        )
    clinic.set(topic, "message.timestamp.type", "LogAppendTime")
    return patient


# What is wrong between checkpoint and Kafka.


def input_lost(clinic: Clinic, folder: Path) -> Patient:
    prefix = clinic.filled("doctor-lost.")
    topic = f"{prefix}topic-events"
    for _ in range(3):
        clinic.send(topic, b"?", b"c1", partition=1)
    place = TopicPartition(topic, 1, 20)
    with AdminClient(clinic.client) as admin:
        for future in admin.delete_records([place]).values():
            future.result(timeout=60)
        return clinic.sound(folder, prefix)


def input_replaced(clinic: Clinic, folder: Path) -> Patient:
    """The topics of another cluster, where nothing was sent yet; only the marker is there."""
    prefix = "doctor-replaced."
    create_topics(clinic.client, prefix=prefix)
    for left in clinic.messages:
        if left.topic == "assigner-commits":
            clinic.send(prefix + left.topic, left.value, left.key or b"")
    return clinic.sound(folder, prefix)


def newer_release(clinic: Clinic, folder: Path) -> Patient:
    prefix = clinic.filled("doctor-newer.")
    last = [left for left in clinic.messages if left.topic == "assigner-commits"][-1]
    marker = decode_record(last.value or b"")
    assert isinstance(marker, CommitMarker)
    newer = encode_record(replace(marker, release="9.1.0", shards=SHARDS_THEN))
    clinic.send(f"{prefix}assigner-commits", newer, last.key or b"")
    return clinic.sound(folder, prefix)


def no_marker(clinic: Clinic, folder: Path) -> Patient:
    return clinic.sound(folder, SPU_ASSIGNER_QUERY_NAME="another")


def garbled_marker(clinic: Clinic, folder: Path) -> Patient:
    prefix = clinic.filled("doctor-garbled.")
    clinic.send(f"{prefix}assigner-commits", b"\0\0\0\0\7?", b"spu-assigner")
    return clinic.sound(folder, prefix)


def other_prefix(clinic: Clinic, folder: Path) -> Patient:
    patient, own = made(clinic, folder, "doctor-other."), clinic.checkpoint(folder)
    return replace(patient, environ={**patient.environ, "SPU_ASSIGNER_CHECKPOINT": str(own)})


def stand_in(version: str) -> str:
    """A script that answers as a Java of this version would."""
    lines = ("    java.home = /somewhere", f"    java.version = {version}")
    return "\n".join(f"echo '{line}' >&2" for line in lines)
