"""Make what a release leaves behind: its checkpoint, and all messages of its topics.

    PYTHONPATH=VIEW python tests/data/make_release.py tests/data/release-X.Y.Z.tar.gz

VIEW is a folder where `spu_assigner` is that release. It starts a broker and a job of the release,
sends the events below in several batches, stops the job and packs

    checkpoint/       as the job left it
    messages.jsonl    {"topic", "partition", "offset", "time_ms", "key", "value", "headers"} a line,
                      bytes in base64; topics with the prefix

Run it once for a release; `tests/broker/job/test_upgrade.py` then holds the next one to it.
"""

from __future__ import annotations

import base64
import json
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from spu_assigner.core.base.events import SpuJoined, SpuLeft
from spu_assigner.schemas.json_lines.lines import event_from_json
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.broker.embedded import EmbeddedBroker
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.job.lifecycle import start
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.kafka.topics import TOPICS

PREFIX = "released."
PATIENCE_SECONDS = 120.0


def events() -> Iterator[list[dict[str, Any]]]:
    """Batches of events of three clusters: all policies, what waits, what leaves, what is gone."""
    for cluster in ("c1", "c2", "c3"):
        common = {"cluster_id": cluster}

        def create(name: str, policy: str, _common: dict[str, str] = common, **more: Any) -> Any:
            return {
                "type": "topic_create",
                "event_id": f"create-{name}",
                "topic": name,
                "partitions": 4,
                "replication_factor": 2,
                "policy": policy,
                **_common,
                **more,
            }

        yield [
            {
                "type": "spu_joined",
                "event_id": f"join-{spu_id}",
                "spu_id": spu_id,
                "rack": "ab"[spu_id % 2],
                "cores": 2,
                "capacity": 40,
                **common,
            }
            for spu_id in range(4)
        ]
        yield [create(policy, policy) for policy in ("fluvio", "kafka", "redpanda", "balanced")]
        yield [
            create("waits", "fluvio", replication_factor=9, on_shortage="wait"),
            {"type": "topic_grow", "event_id": "g", "topic": "kafka", "partitions": 7, **common},
            {"type": "topic_delete", "event_id": "d", "topic": "fluvio", **common},
            create("manual", "manual", replicas=[{"id": 0, "replicas": [3]}]),
        ]
        yield [{"type": "spu_left", "event_id": "l", "spu_id": 1, "mode": "decommission", **common}]
    yield [{**create("last", "fluvio"), "cluster_id": name} for name in ("c1", "c2", "c3")]


def read(bootstrap: str, topic: str) -> Iterator[dict[str, Any]]:
    """All that is committed on a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "make-release",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    open_ends = set(consumer.list_topics(topic, 10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in open_ends])
    while open_ends:
        for message in consumer.consume(500, 0.5):
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise RuntimeError(error)
                open_ends.discard(message.partition())
                continue
            yield {
                "topic": topic,
                "partition": message.partition(),
                "offset": message.offset(),
                "time_ms": message.timestamp()[1],
                "key": _text(message.key()),
                "value": _text(message.value()),
                "headers": [[name, _text(value)] for name, value in message.headers() or ()],
            }
    consumer.close()


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def main() -> None:
    """Make the file."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker() as broker:
        bootstrap, checkpoint = broker.bootstrap_servers, Path(folder, "checkpoint")
        create_topics({"bootstrap.servers": bootstrap}, prefix=PREFIX)
        settings = Settings.load(
            flags={
                "bootstrap_servers": bootstrap,
                "topic_prefix": PREFIX,
                "checkpoint": str(checkpoint),
                "shards": 2,
                "ui_port": 0,
                "master": "local[2]",
            },
            environ={},
        )
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        job = start(settings)
        for batch in events():
            for each in batch:
                event = event_from_json(json.dumps(each))
                is_spu = isinstance(event, SpuJoined | SpuLeft)
                topic = PREFIX + ("spu-events" if is_spu else "topic-events")
                producer.produce(topic, encode_event(event), event.cluster_id.encode())
            producer.flush()
            before = time.monotonic()
            job.query.processAllAvailable()
            if time.monotonic() - before > PATIENCE_SECONDS:
                raise RuntimeError("the job takes too long")
        job.stop()
        lines = [
            json.dumps(message)
            for spec in TOPICS
            for message in read(bootstrap, PREFIX + spec.name)
        ]
        with tarfile.open(sys.argv[1], "w:gz") as archive:
            archive.add(checkpoint, "checkpoint")
            data = "".join(f"{line}\n" for line in lines).encode()
            info = tarfile.TarInfo("messages.jsonl")
            info.size = len(data)
            archive.addfile(info, BytesIO(data))


if __name__ == "__main__":
    main()
