"""Make what a release leaves behind: its checkpoint, all messages of its topics, its schemas.

    PYTHONPATH=VIEW python tests/data/make_release.py tests/data/release-X.Y.Z.tar.gz

VIEW is a folder where `spu_assigner` is that release. A job of it processes each batch of the
events below; its checkpoint, messages.jsonl (bytes in base64) and registry.json are packed. Tests
of schemas and `tests/broker/job/test_upgrade.py` hold the next release to it.
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

from confluent_kafka import Producer
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy, SpuEvent
from spu_assigner.schemas.avro.registry import FILE_NAME, FOLDER
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.job.checkpoint.files import LocalFiles, batches_in
from spu_assigner.stream.job.lifecycle import start
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.kafka.topics import TOPICS
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`

from support.events.builders import Events
from support.kafka.reading import committed

PREFIX = "released."


def batches() -> Iterator[list[Event]]:
    """Of events of three clusters: all policies, what waits, what leaves, what is gone."""
    clusters = [Events(name) for name in ("c1", "c2", "c3")]
    for build in clusters:
        yield [*_joins(build)]
        yield [*_creates(build)]
        yield [*_changes(build)]
        yield [build.leave(1, mode=LeaveMode.DECOMMISSION, event_id="l")]
    yield [_create(build, "last", Policy.FLUVIO) for build in clusters]


def _create(build: Events, name: str, policy: Policy, factor: int = 2, **given: Any) -> Event:
    return build.create(name, 4, factor, policy=policy, event_id=f"create-{name}", **given)


def _joins(build: Events) -> Iterator[Event]:
    for spu_id in range(6):
        yield build.join(
            spu_id,
            event_id=f"join-{spu_id}",
            rack="ab"[spu_id % 2],
            cores=2,
            capacity=60,
            labels={"zone": "xyz"[spu_id // 2]},
            resources={"disk_bytes": 1_000},
            taints=[{"key": "k", "value": "v", "effect": "no_leaders"}] if spu_id == 5 else [],
        )


def _creates(build: Events) -> Iterator[Event]:
    for policy in Policy:
        if policy is not Policy.MANUAL:
            yield _create(build, policy.value, policy)
    yield _create(
        build,
        "ruled",
        Policy.BALANCED,
        demand={"disk_bytes": 10},
        leader_demand={"disk_bytes": 12},
        constraints={
            "tolerations": [{"key": "k", "value": "v"}],
            "forbid": ["zone in (q)"],
            "prefer": [{"select": "zone in (x)", "weight": 10}],
            "spread": [{"label": "zone", "max": 1}],
        },
    )


def _changes(build: Events) -> Iterator[Event]:
    yield _create(build, "waits", Policy.FLUVIO, 9, on_shortage=OnShortage.WAIT)
    yield _create(build, "refused", Policy.KAFKA, 9)
    yield _create(build, "seen", Policy.KRAFT, validate_only=True)
    yield _create(build, "manual", Policy.MANUAL, replicas=[{"id": 0, "replicas": [3]}])
    yield build.grow("kafka", 7, event_id="g")
    yield build.delete("fluvio", event_id="d")
    yield build.adopt("adopted", [0, 1], [2], pinned=True, event_id="a")
    yield build.replication("kraft", 3, event_id="r")
    yield build.demand("balanced", demand={"disk_bytes": 5}, event_id="n")
    yield build.constraints("balanced", Constraints(require=("zone",)), event_id="c")
    yield build.release("rendezvous", event_id="f")
    yield build.cordon(4, event_id="o")
    yield build.demote(2, event_id="m")
    yield build.rebalance(10, event_id="b")


def read(bootstrap: str, topic: str) -> Iterator[dict[str, Any]]:
    """All that is committed on a topic."""
    for message in committed(bootstrap, topic):
        yield {
            "topic": topic,
            "partition": message.partition(),
            "offset": message.offset(),
            "time_ms": message.timestamp()[1],
            "key": _text(message.key()),
            "value": _text(message.value()),
            "headers": [[name, _text(value)] for name, value in message.headers() or ()],
        }


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
        made = list(batches())
        for batch in made:  # All of it is there when the job looks: it is one batch.
            for event in batch:
                topic = PREFIX + ("spu-events" if isinstance(event, SpuEvent) else "topic-events")
                producer.produce(topic, encode_event(event), event.cluster_id.encode())
            producer.flush()
            with start(settings) as job:
                job.query.processAllAvailable()
        if len(batches_in(LocalFiles(), f"{checkpoint}/commits")) != len(made):
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
