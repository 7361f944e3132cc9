"""`produce spu-joined --keep` on a real broker: what it does not name stays as announced last."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.constraints import Taint, TaintEffect
from spu_assigner.core.base.events import SpuJoined
from spu_assigner.schemas.messages.codec import decode_event, encode_record
from spu_assigner.stream.cli import cli
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.kafka.reading import committed
from support.kafka.shared_broker import SharedBroker

SECONDS_MAX = 60.0
DESCRIBED: dict[str, Any] = {
    "rack": "r1",
    "cores": 2,
    "capacity": 50,
    "labels": {"zone": "a", "kafka-cluster": "k"},
    "resources": {"disk_bytes": 9},
    "taints": (Taint("pool", "pay", TaintEffect.EVICT),),
}


def test_what_is_not_named_stays(kafka: SharedBroker, topic_prefix: str) -> None:
    """By the state of an SPU whose events have expired, and by an event that no job has read yet.

    Without `--keep` a join describes its SPU whole.
    """
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    create_topics(client, prefix=topic_prefix)

    def join(*options: str) -> SpuJoined:
        """The event that the command writes."""
        common = ["--spu-id", "1", "--cluster", "c1", "-b", kafka.bootstrap_servers]
        given = ["produce", "spu-joined", *common, "--topic-prefix", topic_prefix, *options]
        done = CliRunner().invoke(cli, given, catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
        message = committed(kafka.bootstrap_servers, f"{topic_prefix}spu-events")[-1]
        event = decode_event(message.value(), kind="spu")
        assert isinstance(event, SpuJoined)
        return event

    assert described(join("--keep", "--label", "x=y")) == {
        **dict.fromkeys(DESCRIBED),
        "cores": 1,
        "capacity": 6_998,
        "labels": {"x": "y"},
        "taints": (),
    }
    expire(client, f"{topic_prefix}spu-events")
    write_state(
        client, topic_prefix, SpuJoined(event_id="e", cluster_id="c1", spu_id=1, **DESCRIBED)
    )
    labelled = {**DESCRIBED, "labels": {**DESCRIBED["labels"], "tier": "ssd"}}
    assert described(join("--keep", "--label", "tier=ssd")) == labelled
    assert described(join("--keep", "--capacity", "60")) == {**labelled, "capacity": 60}
    assert described(join("--rack", "r2")) == {
        **dict.fromkeys(DESCRIBED),
        "rack": "r2",
        "cores": 1,
        "taints": (),
    }


def described(join: SpuJoined) -> dict[str, Any]:
    return {name: getattr(join, name) for name in DESCRIBED}


def write_state(client: dict[str, str], prefix: str, join: SpuJoined) -> None:
    """What the job would write of it."""
    assigner = Assigner()
    assigner.apply(join)
    producer = Producer(client)
    for spu in assigner.clusters["c1"].spus.values():
        key = f"c1/spu/{spu.spu_id}"
        producer.produce(f"{prefix}assigner-state", encode_record(spu), key)
    assert producer.flush(SECONDS_MAX) == 0


def expire(client: dict[str, str], name: str) -> None:
    """All that lies in a topic now."""
    with AdminClient(client) as admin:
        partitions = admin.list_topics(timeout=SECONDS_MAX).topics[name].partitions
        ends = [TopicPartition(name, partition, OFFSET_END) for partition in partitions]
        for future in admin.delete_records(ends).values():
            future.result(timeout=SECONDS_MAX)
