"""The audit of a real job's topics, by the command line."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from spu_assigner.core.base.events import OnShortage
from spu_assigner.stream.cli import cli
from spu_assigner.stream.job.lifecycle import Job
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.job.judge import audit
from support.kafka.traffic import PATIENCE_SECONDS, Kafka, process_all


def audited(settings: Settings, *options: str) -> tuple[int, dict[str, Any]]:
    return audit(settings.bootstrap_servers, settings.topic_prefix, *options)


def copied(settings: Settings, message: Message) -> None:
    """The same message once more, as a producer without transactions would leave it."""
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "log_level": 0})
    producer.produce(
        message.topic(),
        message.value(),
        message.key(),
        partition=message.partition(),
        headers=message.headers(),
    )
    assert producer.flush(30) == 0


def beginning_deleted(settings: Settings, topic: str, message: Message) -> None:
    """All up to a message is deleted by hand from a topic that is compacted."""
    with AdminClient({"bootstrap.servers": settings.bootstrap_servers, "log_level": 0}) as admin:
        name = f"{settings.topic_prefix}{topic}"
        entry = ConfigEntry(
            "cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(10)
        place = TopicPartition(name, message.partition(), message.offset() + 1)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:  # The partition's log hears of the setting a moment after it was promised.
            try:
                for future in admin.delete_records([place]).values():
                    future.result(10)
            except KafkaException as reason:
                is_early = reason.args[0].code() == KafkaError.POLICY_VIOLATION
                if not is_early or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return


@pytest.mark.long("a job starts twice, and its outputs are audited several times")
def test_a_job_that_was_stopped_in_between_passes_and_damage_by_hand_is_found(
    settings: Settings, run: Callable[..., Job]
) -> None:
    """Also while the job runs; then one message too many, and some too few."""
    kafka, events = Kafka(settings), Events()
    job = run()
    kafka.send([*events.joins(0, 1, 2, capacity=20), events.create("a", 3, 2)])
    kafka.send_raw("topic-events", b"c1", b"\xffno event")
    kafka.wait("topic-status", 1, job)
    kafka.wait("dead-letter", 1, job)
    kafka.send([events.create("b", 2, 2), events.create("c", 9, 4, on_shortage=OnShortage.WAIT)])
    kafka.wait("topic-status", 3, job)
    status, report = audited(settings)
    assert (status, report["findings"], report["not_checked"]) == (0, [], [])
    job.stop()
    job = run()
    kafka.send([events.delete("a"), *events.joins(3, 4)])
    kafka.wait("topic-status", 5, job)  # the delete's, and of what has waited
    process_all(job.query)  # The last join is answered by no status.
    job.stop()

    markers = kafka.markers()
    status, report = audited(settings, "--strict")
    assert (status, report["findings"], report["not_checked"]) == (0, [], [])
    [checked] = report["checked"]
    assert (checked["how"], checked["count"]) == ("replayed", len(markers))
    assert report["messages"] == sum(marker.count for marker in markers) > 20
    assert report["last"]["batch"] == markers[-1].batch

    first = kafka.read("topic-status")[0]
    copied(settings, first)
    status, report = audited(settings)
    [finding] = report["findings"]
    assert status == 1
    assert (finding["kind"], finding["topic"]) == ("TWICE", "topic-status")
    asked = next(
        marker for marker in markers if f"{settings.topic_prefix}topic-events" in marker.offsets
    )
    assert (finding["batch"], finding["key"]) == (asked.batch, "c1/a")

    entry = next(each for each in kafka.read("assigner-state") if each.value() is not None)
    beginning_deleted(settings, "assigner-state", entry)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "DELETED" not in {each["kind"] for each in report["findings"]}:
        assert time.monotonic() < deadline
        status, report = audited(settings)
    assert status == 1
    [deleted] = (each for each in report["findings"] if each["kind"] == "DELETED")
    assert (deleted["topic"], deleted["partition"]) == ("assigner-state", entry.partition())


@pytest.mark.smoke
def test_where_nothing_can_be_read_it_ends_with_2(settings: Settings) -> None:
    """That nothing was found must not be taken for that nothing is wrong."""
    place = ["-b", settings.bootstrap_servers, "--topic-prefix", f"{settings.topic_prefix}other-"]
    result = CliRunner().invoke(cli, ["verify", *place], env={})
    assert result.exit_code == 2
    assert "missing topics" in result.stderr
