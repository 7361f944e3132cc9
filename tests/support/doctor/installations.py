"""Installations for the doctor: sound ones, of which seeds make faulty ones.

The checkpoint and the topics are those that a release left behind, put back under a prefix and at a
path of their own; so nothing here starts Spark. Faults that Kafka keeps have a prefix each.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.kafka.acls import Role, acls
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.job.released import PREFIX as RELEASED_PREFIX
from support.job.released import Left, archives, fill, note_ids, unpack
from support.kafka.secured import Secured

PREFIX = "doctor."
PASSWORD = "doctor's"
_OWN = ("SPU_ASSIGNER_", "KAFKA_", "SPARK_", "PYSPARK_")
_KEPT = ("SPU_ASSIGNER_CACHE", "SPU_ASSIGNER_MAVEN_URL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What the doctor is called with."""

    environ: Mapping[str, str]
    has_no_other_java: bool = False  # only what JAVA_HOME and PATH name is looked for


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
        self.filled(PREFIX)
        create_topics(self.secured.plain, prefix=PREFIX)
        rights = acls(Role.JOB, prefix=PREFIX, query_name="spu-assigner", group="unused")
        letters = (f"{PREFIX}dead-letter", "Write")
        less = tuple(acl for acl in rights if (acl.name, acl.operation) != letters)
        for user in ("doctor", "doctor-less"):
            self.secured.add_user(user, PASSWORD)
        self.secured.allow({"doctor": rights, "doctor-less": less})

    def _installation(self, folder: Path, prefix: str, changed: Mapping[str, str]) -> Installation:
        """In this process's environment, without anything of the product's but the cache."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or not name.startswith(_OWN)
        }
        own = {
            "SPU_ASSIGNER_TOPIC_PREFIX": prefix,
            "SPU_ASSIGNER_CHECKPOINT": str(folder / "none-yet"),
            "SPU_ASSIGNER_UI_PORT": "0",
            "SPU_ASSIGNER_METRICS_PORT": "off",
        }
        return Installation(environ={**kept, **own, **changed})

    def sound(self, folder: Path, prefix: str = PREFIX, **changed: str) -> Installation:
        """One with nothing wrong, and with a checkpoint of its own."""
        own = {"SPU_ASSIGNER_CHECKPOINT": str(self.checkpoint(folder, prefix))}
        return self.without_checkpoint(folder, prefix, **{**own, **changed})

    def without_checkpoint(self, folder: Path, prefix: str, **changed: str) -> Installation:
        """One that has not begun yet."""
        return self._installation(
            folder, prefix, {"KAFKA_BOOTSTRAP_SERVERS": self.bootstrap, **changed}
        )

    def user(self, folder: Path, name: str = "doctor", **changed: str) -> Installation:
        """One of the broker that asks who is there, with no checkpoint yet."""
        user = {**self.secured.environ(name), "SPU_ASSIGNER_SASL_PASSWORD": PASSWORD}
        return self._installation(folder, PREFIX, {**user, **changed})

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
        return checkpoint

    def filled(self, prefix: str) -> str:
        """The topics once more, under a prefix of their own."""
        fill(self.bootstrap, self.messages, prefix=prefix)
        return prefix

    def send(self, topic: str, values: Sequence[bytes], key: bytes, **given: Any) -> None:
        producer = Producer(self.client)
        for value in values:
            producer.produce(topic, value, key, **given)
        assert producer.flush(60) == 0

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until the broker reports it."""
        with AdminClient(self.client) as admin:
            admin.delete_topics([topic])[topic].result(timeout=60)
            deadline = time.monotonic() + 60
            while topic in admin.list_topics(timeout=60).topics:
                assert time.monotonic() < deadline, f"{topic} is still there"
                time.sleep(0.02)
