"""Make what a release leaves behind: its checkpoint, all messages of its topics, its schemas.

    PYTHONPATH=VIEW python tests/data/make_release.py tests/data/release-X.Y.Z.tar.gz

VIEW is a folder where `spu_assigner` is that release. It starts a broker, has a job of the release
process each batch of the events below, and packs

    checkpoint/       as the job left it
    messages.jsonl    {"topic", "partition", "offset", "time_ms", "key", "value", "headers"} a line,
                      bytes in base64; topics with the prefix
    registry.json     its schemas with their ids

Run it once for a release; `tests/unit/schemas/test_released.py` and
`tests/broker/job/test_upgrade.py` then hold the next one to it.
"""

from __future__ import annotations

import base64
import json
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from spu_assigner.core.base.events import SpuEvent
from spu_assigner.schemas.avro.registry import FILE_NAME, FOLDER
from spu_assigner.schemas.json_lines.lines import event_from_json
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.job.checkpoint.files import LocalFiles, batches_in
from spu_assigner.stream.job.lifecycle import start
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.kafka.topics import TOPICS
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker

PREFIX = "released."


def events() -> Iterator[list[dict[str, Any]]]:
    """Batches of events of three clusters: all policies, what waits, what leaves, what is gone."""
    for cluster in ("c1", "c2", "c3"):
        yield [_of(cluster, each) for each in _joins()]
        yield [_of(cluster, each) for each in _creates()]
        yield [_of(cluster, each) for each in _changes()]
        yield [_of(cluster, _event("spu_left", "l", spu_id=1, mode="decommission"))]
    yield [_of(cluster, _create("last", "fluvio")) for cluster in ("c1", "c2", "c3")]


def _of(cluster: str, event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "cluster_id": cluster}


def _event(kind: str, event_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "event_id": event_id, **fields}


def _create(name: str, policy: str, **fields: Any) -> dict[str, Any]:
    size = {"partitions": 4, "replication_factor": 2}
    return _event("topic_create", f"create-{name}", topic=name, policy=policy, **{**size, **fields})


def _joins() -> Iterator[dict[str, Any]]:
    for spu_id in range(6):
        yield _event(
            "spu_joined",
            f"join-{spu_id}",
            spu_id=spu_id,
            rack="ab"[spu_id % 2],
            cores=2,
            capacity=60,
            labels={"zone": "xyz"[spu_id // 2]},
            resources={"disk_bytes": 1_000},
            taints=[{"key": "k", "value": "v", "effect": "no_leaders"}] if spu_id == 5 else [],
        )


def _creates() -> Iterator[dict[str, Any]]:
    for policy in ("fluvio", "kafka", "redpanda", "balanced", "rendezvous", "kraft"):
        yield _create(policy, policy)
    yield _create(
        "ruled",
        "balanced",
        demand={"disk_bytes": 10},
        leader_demand={"disk_bytes": 12},
        constraints={
            "tolerations": [{"key": "k", "value": "v"}],
            "forbid": ["zone in (q)"],
            "prefer": [{"select": "zone in (x)", "weight": 10}],
            "spread": [{"label": "zone", "max": 1}],
        },
    )


def _changes() -> Iterator[dict[str, Any]]:
    yield _create("waits", "fluvio", replication_factor=9, on_shortage="wait")
    yield _create("refused", "kafka", replication_factor=9)
    yield _create("seen", "kraft", validate_only=True)
    yield _create("manual", "manual", replicas=[{"id": 0, "replicas": [3]}])
    yield _event("topic_grow", "g", topic="kafka", partitions=7)
    yield _event("topic_delete", "d", topic="fluvio")
    yield _event("topic_adopted", "a", topic="adopted", replicas=[[0, 1], [2]], pinned=True)
    yield _event("topic_replication", "r", topic="kraft", replication_factor=3)
    yield _event("topic_demand", "n", topic="balanced", demand={"disk_bytes": 5})
    yield _event("topic_constraints", "c", topic="balanced", constraints={"require": ["zone"]})
    yield _event("topic_release", "f", topic="rendezvous")
    yield _event("spu_cordon", "o", spu_id=4)
    yield _event("spu_demote", "m", spu_id=2)
    yield _event("cluster_rebalance", "b", max_moves=10)


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
        batches = list(events())
        for batch in batches:  # All of it is there when the job looks: it is one batch.
            for each in batch:
                event = event_from_json(json.dumps(each))
                topic = PREFIX + ("spu-events" if isinstance(event, SpuEvent) else "topic-events")
                producer.produce(topic, encode_event(event), event.cluster_id.encode())
            producer.flush()
            with start(settings) as job:
                job.query.processAllAvailable()
        if len(batches_in(LocalFiles(), f"{checkpoint}/commits")) != len(batches):
            raise RuntimeError("the job has made other batches of the events")
        lines = [
            json.dumps(message)
            for spec in TOPICS
            for message in read(bootstrap, PREFIX + spec.name)
        ]
        with tarfile.open(sys.argv[1], "w:gz") as archive:
            archive.add(checkpoint, "checkpoint")
            archive.add(FOLDER / FILE_NAME, FILE_NAME)
            data = "".join(f"{line}\n" for line in lines).encode()
            info = tarfile.TarInfo("messages.jsonl")
            info.size = len(data)
            archive.addfile(info, BytesIO(data))


if __name__ == "__main__":
    main()
