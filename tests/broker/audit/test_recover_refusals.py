"""What `recover` refuses, and what it reports before it does anything: real outputs, no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from spu_assigner.schemas.messages.wire import PartitionPosition, RecoveredFrom
from spu_assigner.stream.audit import rebuild
from spu_assigner.stream.audit.rebuild import (
    FolderTakenError,
    NothingToRecoverError,
    last_marker,
    recover,
    survey,
)
from spu_assigner.stream.cli import cli
from spu_assigner.stream.job.checkpoint.inputs import LostInputError
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.open_transactions import OpenTransactionError
from support.events.builders import Events
from support.job.small_job import SHARDS_LEFT, SmallJob, small_job
from support.job.streams import Outgoing
from support.kafka.one_topic import open_transaction


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return replace(settings, checkpoint=str(tmp_path / "new"), shards=None)


@pytest.fixture
def job(settings: Settings) -> Iterator[SmallJob]:
    """A job of two clusters that has answered two batches."""
    one, two = Events("c1"), Events("c2")
    with small_job(settings) as job:
        job.apply([*one.joins(0, 1, 2), *two.joins(0, 1), one.create("a", 2, 2)])
        job.apply([two.create("b", 3, 2), one.delete("nothing")])
        yield job


def test_maps_behind_an_open_transaction_are_not_left_out(
    settings: Settings, job: SmallJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint would lack what the job has committed behind its first message."""
    monkeypatch.setattr(rebuild, "HELD_SECONDS_MAX", 0.5)
    topic, events = f"{settings.topic_prefix}replica-map", Events("c1", first=100)
    with open_transaction(settings.bootstrap_servers, topic, key=b"", value=b"") as transaction:
        job.answer_unsettled([events.create(f"t{number}", 1, 1) for number in range(9)])
        with pytest.raises(OpenTransactionError, match=r"replica-map: offsets \d+ to \d+ are held"):
            survey(settings)
        transaction.abort()
        assert survey(settings).topics == 11


@pytest.mark.smoke
@pytest.mark.usefixtures("job")
def test_a_dry_run_reports_and_does_nothing(settings: Settings, tmp_path: Path) -> None:
    """What would be done, as text and as JSON."""
    before = last_marker(settings)
    report = survey(settings)
    prefix = settings.topic_prefix
    assert report.recovered_from == RecoveredFrom(checkpoint_id="old", batch=1)
    assert (report.clusters, report.spus, report.topics, report.partitions) == (2, 5, 2, 5)
    assert (report.shards, report.checkpoint_id, report.skipped) == (SHARDS_LEFT, None, ())
    assert survey(replace(settings, shards=3)).shards == 3
    assert report.positions == {
        f"{prefix}spu-events": (PartitionPosition(partition=0, next=5),),
        f"{prefix}topic-events": (PartitionPosition(partition=0, next=3),),
    }
    flags = ["-b", settings.bootstrap_servers, "--topic-prefix", prefix, "--checkpoint"]
    result = CliRunner().invoke(
        cli, ["recover", *flags, str(tmp_path / "new"), "--dry-run", "-o", "json"]
    )
    assert json.loads(result.stdout)["positions"] == {
        f"{prefix}spu-events": {"0": 5},
        f"{prefix}topic-events": {"0": 3},
    }
    result = CliRunner().invoke(cli, ["recover", *flags, str(tmp_path / "new"), "--dry-run"])
    assert "2 clusters, 5 SPUs, 2 topics (5 partitions), 0 waiting" in result.stdout
    result = CliRunner().invoke(cli, ["recover", *flags, str(tmp_path / "new")])
    assert "no terminal to confirm on; give --yes" in result.stderr
    assert not (tmp_path / "new").exists()
    assert last_marker(settings) == before


def test_a_query_that_never_answered_is_reported(settings: Settings) -> None:
    """Mostly a prefix or a name that was mistyped."""
    with pytest.raises(NothingToRecoverError, match="no marker of query 'spu-assigner'"):
        recover(settings)


@pytest.mark.usefixtures("job")
def test_a_folder_that_holds_something_is_not_touched(settings: Settings, tmp_path: Path) -> None:
    """It may be the checkpoint that somebody needs."""
    (tmp_path / "new/offsets").mkdir(parents=True)
    (tmp_path / "new/metadata").write_text("{}")
    for attempt in (recover, survey):
        with pytest.raises(FolderTakenError, match="there already and holds offsets; name a new"):
            attempt(settings)
    with pytest.raises(FolderTakenError, match="is no folder"):
        survey(replace(settings, checkpoint=str(tmp_path / "new/metadata")))


def test_input_that_is_gone_is_reported_and_may_be_skipped(
    settings: Settings, job: SmallJob
) -> None:
    """What retention took before it was read is lost: that is for somebody to decide."""
    prefix, events = settings.topic_prefix, Events("c1", first=50)
    job.streams.send([Outgoing.of_event(events.create(f"x{n}"), 0) for n in range(5)])
    with AdminClient({"bootstrap.servers": settings.bootstrap_servers}) as admin:
        place = TopicPartition(f"{prefix}topic-events", 0, 6)  # as retention does
        for future in admin.delete_records([place]).values():
            future.result(30)
    reported = f"{prefix}topic-events, partition 0: read up to offset 3, kept from 6: 3 offsets are"
    for attempt in (recover, survey):
        with pytest.raises(LostInputError, match=reported) as caught:
            attempt(settings)
        [lost] = caught.value.lost
        assert (lost.position, lost.to, lost.earliest, lost.end) == (3, 6, 6, 8)
    report = survey(settings, skip_lost=True)
    assert report.skipped == (lost,)
    assert report.positions[f"{prefix}topic-events"] == (PartitionPosition(partition=0, next=6),)
    assert report.positions[f"{prefix}spu-events"] == (PartitionPosition(partition=0, next=5),)


def test_recreated_input_is_reported(settings: Settings, job: SmallJob) -> None:
    """Its offsets begin at 0 again, before those that were read."""
    job.answer([Outgoing.of_event(Events("c1", first=50).create("y"), 0)])  # never sent there
    with pytest.raises(LostInputError, match="to offset 4, and it ends at 3: it was recreated"):
        survey(settings)
    report = survey(settings, skip_lost=True)
    topic = f"{settings.topic_prefix}topic-events"
    assert report.positions[topic] == (PartitionPosition(partition=0, next=3),)
