"""What makes the embedded broker start in one second instead of three: made once, then cached.

An image is an archive of the loaded classes (Java's class data sharing) and a formatted, empty data
folder that has already served a transaction and a consumer group, so that the broker's internal
topics exist. Both come from one short run of the real broker; a broker whose data folder is new
starts from a copy of it, under a cluster id of its own.
"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from spu_assigner.stream.common.child_processes import run_to_end
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.local.broker.process import (
    BROKER_SETTINGS,
    BrokerError,
    BrokerProcess,
    Ports,
)
from spu_assigner.stream.local.jvm.build_cache import cache_home, class_path_key, key_of, made_once
from spu_assigner.stream.local.jvm.java import Java

HEAP_MB: Final = 512  # 8 MiB messages and the cleaner's buffer fit many times
FORMAT_SECONDS_MAX: Final = 60.0
WARM_UP_SECONDS_MAX: Final = 30.0
_ARCHIVE: Final = "classes.jsa"
_REVISION: Final = 1  # counted up when an image's making changes


def ensure_image(
    java: Java,
    jars: Sequence[Path],
    *,
    ports: Ports,
    environ: Mapping[str, str] | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> Path:
    """The image's folder for this Java and these jars; made on first use, which takes 8 s.

    Args:
        ports: free ones, for the run that makes the image.
        report: is called when an image has to be made.

    Raises:
        BrokerError: the run that makes it failed.
    """

    def make(folder: Path) -> Path:
        report("running the broker once, so that it starts faster from now on (8 s)")
        return _make(folder, java=java, jars=jars, ports=ports)

    home = cache_home(environ)
    return made_once(home, home / "broker" / _key(java, jars), make)


def jvm_options(image: Path) -> list[str]:
    """What lets a JVM use the image's classes; a Java without support made none."""
    archive = image / _ARCHIVE
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive.exists() else []


def copy_data(image: Path, data: Path) -> None:
    """Make a new data folder from the image's, with a cluster id of its own."""
    shutil.copytree(image / "data", data, dirs_exist_ok=True)
    path = data / "meta.properties"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        re.sub(r"(?m)^cluster\.id=.*$", f"cluster.id={_new_cluster_id()}", text), encoding="utf-8"
    )


def _key(java: Java, jars: Sequence[Path]) -> str:
    """The archive is valid for one Java and one class path; the data for these settings."""
    settings = [f"{name}={value}" for name, value in sorted(BROKER_SETTINGS.items())]
    return key_of([str(_REVISION), *java.build, *class_path_key(jars), *settings])


def _new_cluster_id() -> str:
    """16 random bytes as Kafka writes them; a leading dash would read as an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))[0] == "-":
        pass
    return text


def _make(folder: Path, *, java: Java, jars: Sequence[Path], ports: Ports) -> Path:
    process = BrokerProcess(
        java=java,
        jars=jars,
        folder=folder / "run",
        ports=ports,
        heap_mb=HEAP_MB,
        umask=-1,  # An image holds nothing of anybody's: all users of a cache may start from it.
    )
    _format(process)
    archive = folder / _ARCHIVE
    process.jvm_options = [f"-XX:ArchiveClassesAtExit={archive}"]
    process.start()
    try:
        _warm_up(process.bootstrap_servers)
    finally:
        process.stop()
    image = folder / "image"
    image.mkdir()
    process.data.rename(image / "data")
    if archive.exists():
        archive.rename(image / _ARCHIVE)
    return image


def _format(process: BrokerProcess) -> None:
    settings = process.write_settings()
    command = process.java_command(
        *("kafka.tools.StorageTool", "format"),
        *("--cluster-id", _new_cluster_id(), "--config", str(settings)),
    )
    log = process.folder / "format.log"
    try:
        with log.open("wb") as output:
            status = run_to_end(command, output=output, seconds_max=FORMAT_SECONDS_MAX)
    except subprocess.TimeoutExpired as reason:
        raise BrokerError(
            f"Kafka's storage tool did not end within {FORMAT_SECONDS_MAX:.0f} s; run "
            "`python -m spu_assigner.stream.setup` again when the machine has less to do"
        ) from reason
    if status != 0:
        said = log.read_text(encoding="utf-8", errors="replace").strip() or "no output"
        raise BrokerError(
            f"Kafka's storage tool ended with status {status}: {said.splitlines()[-1]}; "
            "run `python -m spu_assigner.stream.setup`, which checks Java and the jars"
        )


def _warm_up(bootstrap_servers: str) -> None:
    """One transaction, one group: the topics behind both are made by their first use."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    client = {**Connection(bootstrap_servers=bootstrap_servers).client(), "log_level": 0}
    try:
        producer = Producer({**client, "transactional.id": "spu-assigner-image"})
        producer.init_transactions(WARM_UP_SECONDS_MAX)
        reading = {"group.id": "spu-assigner-image", "auto.offset.reset": "error"}  # nothing
        consumer = Consumer({**client, **reading})
        deadline = time.monotonic() + WARM_UP_SECONDS_MAX
        while True:
            try:
                consumer.committed([TopicPartition("none", 0)], timeout=WARM_UP_SECONDS_MAX)
                break
            except KafkaException:  # Its topic may be there before its coordinator is.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        consumer.close()
    except KafkaException as reason:
        raise BrokerError(
            f"the new broker did not serve a transaction: {reason}; "
            "run `python -m spu_assigner.stream.setup` again"
        ) from reason
