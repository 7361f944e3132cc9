"""Installations for the doctor: a sound one, and one for each thing that can be wrong with it.

The checkpoint and the topics are those that a release left behind, put back under a prefix and at a
path of their own; so nothing here starts Spark. Faults that Kafka keeps have a prefix each.
"""

from __future__ import annotations

import os
import shutil
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from spu_assigner.stream.kafka.acls import Acl, Role, acls
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.job.released import PREFIX as RELEASED_PREFIX
from support.job.released import Left, archives, fill, note_ids, unpack
from support.kafka.secured import Secured

PREFIX = "doctor."
SHARDS_THEN = 2
CHUNK = 512  # bytes that Hadoop makes a sum of
PASSWORD = "doctor's"
NO_PORTS = {"SPU_ASSIGNER_UI_PORT": "0", "SPU_ASSIGNER_METRICS_PORT": "off"}
_OWN = ("SPU_ASSIGNER_", "KAFKA_", "SPARK_", "PYSPARK_")
_KEPT = ("SPU_ASSIGNER_CACHE", "SPU_ASSIGNER_MAVEN_URL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What the doctor is called with."""

    environ: Mapping[str, str]
    has_no_other_java: bool = False  # only what JAVA_HOME and PATH name is looked for
    arguments: Sequence[str] = ()


@dataclass(kw_only=True)
class InstallationFactory:
    """Brokers, and a sound checkpoint to make installations of; sockets live as long as it does."""

    bootstrap: str
    secured: Secured
    folder: Path
    stack: ExitStack
    messages: list[Left] = field(default_factory=list)

    @property
    def client(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap}

    @property
    def pristine(self) -> Path:
        return self.folder / "pristine/checkpoint"

    def open(self) -> None:
        """Unpack, fill the topics of the sound one, and make the users."""
        self.pristine.parent.mkdir(parents=True)
        *_, archive = archives().values()
        self.messages = unpack(archive, self.pristine.parent)
        fill(self.bootstrap, self.messages, prefix=PREFIX)
        create_topics(self.secured.plain, prefix=PREFIX)
        rights = acls(Role.JOB, prefix=PREFIX, query_name="spu-assigner", group="unused")
        kept = tuple(acl for acl in rights if not _is_write_to_dead_letter(acl))
        for user in ("doctor", "doctor-less"):
            self.secured.add_user(user, PASSWORD)
        self.secured.allow({"doctor": rights, "doctor-less": kept})

    def environ(self, **changed: str) -> dict[str, str]:
        """This process's, without anything of the product's but the cache."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or not name.startswith(_OWN)
        }
        return {**kept, **changed}

    def sound(self, folder: Path, prefix: str = PREFIX, **changed: str) -> Installation:
        """One with nothing wrong, and with a checkpoint of its own."""
        own = {"SPU_ASSIGNER_CHECKPOINT": str(self.checkpoint(folder, prefix))}
        return self.without_checkpoint(folder, prefix, **{**own, **changed})

    def without_checkpoint(
        self, folder: Path, prefix: str = PREFIX, **changed: str
    ) -> Installation:
        """One that has not begun yet."""
        environ = self.environ(
            KAFKA_BOOTSTRAP_SERVERS=self.bootstrap,
            SPU_ASSIGNER_TOPIC_PREFIX=prefix,
            SPU_ASSIGNER_CHECKPOINT=str(folder / "none-yet"),
            **NO_PORTS,
        )
        return Installation(environ={**environ, **changed})

    def user(self, folder: Path, name: str = "doctor", **changed: str) -> Installation:
        """One of the broker that asks who is there, with no checkpoint yet."""
        environ = self.environ(
            **self.secured.environ(name),
            SPU_ASSIGNER_SASL_PASSWORD=PASSWORD,
            SPU_ASSIGNER_TOPIC_PREFIX=PREFIX,
            SPU_ASSIGNER_CHECKPOINT=str(folder / "none-yet"),
            **NO_PORTS,
        )
        return Installation(environ={**environ, **changed})

    def checkpoint(self, folder: Path, prefix: str = PREFIX) -> Path:
        """A sound one, as it would be had it always been there."""
        checkpoint = folder / "checkpoint"
        shutil.copytree(self.pristine, checkpoint)
        checkpoint.chmod(0o700)
        for path in [*checkpoint.glob("offsets/*"), *checkpoint.glob("sources/*/*")]:
            text = path.read_bytes().replace(f'"{RELEASED_PREFIX}'.encode(), f'"{prefix}'.encode())
            path.write_bytes(text)
        for path in checkpoint.glob("state/*/_metadata/v2/*"):
            text = path.read_bytes().replace(str(self.pristine).encode(), str(checkpoint).encode())
            path.write_bytes(text)
        note_ids(self.bootstrap, checkpoint, prefix=prefix)
        for path in [each for each in checkpoint.rglob("*") if each.is_file()]:
            write_sums(path)
        return checkpoint

    def filled(self, prefix: str) -> str:
        """The topics once more, under a prefix of their own."""
        fill(self.bootstrap, self.messages, prefix=prefix)
        return prefix

    def set(self, topic: str, name: str, value: str) -> None:
        """A topic's setting."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        with AdminClient(self.client) as admin:
            for future in admin.incremental_alter_configs([resource]).values():
                future.result(timeout=60)
            asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
            deadline = time.monotonic() + 60
            while True:  # The controller answers before its broker knows.
                (found,) = admin.describe_configs([asked]).values()
                if found.result(timeout=60)[name].value == value:
                    return
                assert time.monotonic() < deadline, f"{topic}: {name} is not {value}"
                time.sleep(0.05)

    def send(self, topic: str, value: bytes | None, key: bytes, **given: Any) -> None:
        """One message."""
        producer = Producer(self.client)
        producer.produce(topic, value, key, **given)
        assert producer.flush(60) == 0

    def until_topics(self, is_so: Callable[[Mapping[str, Any]], bool]) -> None:
        """Until the broker reports it."""
        deadline = time.monotonic() + 60
        with AdminClient(self.client) as admin:
            while not is_so(admin.list_topics(timeout=60).topics):
                assert time.monotonic() < deadline, "the topics are not as they are to be"
                time.sleep(0.05)


def _is_write_to_dead_letter(acl: Acl) -> bool:
    return acl.name.endswith("dead-letter") and acl.operation == "Write"


def write_sums(path: Path) -> None:
    """As Hadoop does beside a file."""
    data = path.read_bytes()
    sums = b"".join(
        struct.pack(">I", zlib.crc32(data[at : at + CHUNK])) for at in range(0, len(data), CHUNK)
    )
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + struct.pack(">I", CHUNK) + sums)


def rewrite(path: Path, change: Callable[[str], str]) -> None:
    """Change a file, and its sums with it."""
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    write_sums(path)
