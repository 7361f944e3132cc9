"""A checkpoint is lost, and made again out of what the job has published."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from spu_assigner.core import Assigner, LeaveMode, OnShortage, Policy
from spu_assigner.core.base.events import Event
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.schemas.messages.codec import decode_event, decode_record
from spu_assigner.schemas.messages.wire import RecoveredFrom
from spu_assigner.stream.audit.rebuild import last_marker, recover, survey
from spu_assigner.stream.job.checkpoint.recovered import RecoveryError
from spu_assigner.stream.job.lifecycle import Job, start_query
from spu_assigner.stream.job.marker_check import FencedError, ForeignCheckpointError
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.events.one_cluster import picture
from support.failpoints import Failpoint, dying_at
from support.job.small_job import SHARDS_LEFT, small_job
from support.job.streams import Streams
from support.kafka.traffic import PATIENCE_SECONDS, process_all
from support.shard.checkpoint_state import checkpoint_clusters

CLUSTERS = 6
COMMAND = [sys.executable, "-m", "spu_assigner.stream.cli", "recover"]
COMMAND_SECONDS_MAX = 180.0


def beginning(number: int) -> list[list[Event]]:
    """A cluster with everything in it: what waits, what leaves, what is full, chains of all kinds.
    In parts, each of which is applied before the next is sent."""
    events = Events(f"c{number}")
    return [
        [
            *events.racks({"a": [0, 1], "b": [2, 3]}, capacity=20 + number, cores=2),
            events.join(4, rack="b", capacity=3),
        ],
        [
            events.create("fluvio", 5, 2, policy=Policy.FLUVIO),
            events.create("kafka", 4, 2, policy=Policy.KAFKA),
            events.create("redpanda", 3, 2, policy=Policy.REDPANDA),
            events.create("balanced", 4, 4, policy=Policy.BALANCED),
            events.create("gone", 2, 1),
            events.delete("gone"),
            events.create("waits", 1, 9, on_shortage=OnShortage.WAIT),
            events.grow("kafka", 6),
            events.adopt("adopted", [2, 0], [1], pinned=True),
            events.replication("balanced", 3),
        ],
        [
            events.cordon(1),
            events.demote(2),
            # In one half the ring is empty then, and what SPU 3 alone has must stay there.
            *[events.leave(each) for each in (0, 1, 2, 4) if number % 2],
            events.leave(3, mode=LeaveMode.DECOMMISSION),
        ],
    ]


def going_on(number: int) -> list[Event]:
    """What is asked after the loss: all chains go on, and some of it was asked before."""
    events, before = Events(f"c{number}", first=100), beginning(number)
    return [
        before[0][1],
        before[1][0],
        events.uncordon(1),
        *[events.join(each, rack="ab"[each // 2], capacity=30) for each in (0, 2) if number % 2],
        events.create("fluvio-2", 3, 2, policy=Policy.FLUVIO),
        events.create("kafka-2", 3, 2, policy=Policy.KAFKA),
        events.create("redpanda-2", 2, 2, policy=Policy.REDPANDA),
        events.create("balanced-2", 3, 2, policy=Policy.BALANCED),
        events.create("fluvio", 9, 2),
        before[1][4],
        events.adopt("adopted", [0, 2], [1], pinned=True),  # as others moved it
        events.replication("adopted", 2),
        events.undemote(2),
        events.delete("waits"),
    ]


def sent(streams: Streams, events: list[Event], job: Job) -> None:
    """Send, and wait until the job has applied it."""
    before = streams.applied_count()
    streams.send(events)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while streams.applied_count() < before + len(events):
        assert not job.await_termination(0.1)
        assert time.monotonic() < deadline, f"{streams.applied_count()} applied"


def states(job: Job, checkpoint: str) -> dict[str, Any]:
    """All that the checkpoint's state holds, read with Spark's own reader."""
    found = checkpoint_clusters(checkpoint, job.spark)
    return {name: picture(found[name]) for name in found}


def applied_events(streams: Streams) -> list[Event]:
    kinds: dict[str, Any] = {"spu-events": "spu", "topic-events": "topic"}
    return [decode_event(read.value, kind=kinds[read.topic]) for read in streams.applied()]


def answers_of(streams: Streams, topic: str) -> dict[bytes | None, list[Any]]:
    found: dict[bytes | None, list[Any]] = {}
    for read in streams.read(topic):
        value = None if read.value is None else decode_record(read.value)
        found.setdefault(read.key, []).append(value)
    return found


def check_as_one_process(streams: Streams) -> Assigner:
    """Every answer is what one process gives that never stopped."""
    assigner = Assigner()
    expected: dict[bytes | None, list[Any]] = {}
    statuses: dict[bytes | None, list[Any]] = {}
    for event in applied_events(streams):
        for answer in assigner.apply(event):
            key = f"{answer.cluster_id}/{getattr(answer, 'topic', '')}".encode()
            if isinstance(answer, ReplicaMap):
                expected.setdefault(key, []).append(answer if answer.replicas is not None else None)
            elif hasattr(answer, "status"):
                statuses.setdefault(key, []).append(answer)
    assert answers_of(streams, "replica-map") == expected
    assert answers_of(streams, "topic-status") == statuses
    return assigner


def fails(*_given: object) -> None:
    raise ConnectionError("the broker is gone")


@pytest.mark.long("a job runs before the recovery and another after it")
def test_a_job_whose_checkpoint_was_deleted_goes_on_with_equal_state(
    settings: Settings, run: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted, made again in other shards, its first batch repeated, and again while a job runs."""
    streams = Streams(settings.bootstrap_servers, settings.topic_prefix)
    first = run()
    spark = first.spark
    for part in range(3):
        sent(streams, [event for n in range(CLUSTERS) for event in beginning(n)[part]], first)
    process_all(first.query)
    before, old = states(first, settings.checkpoint), str(first.query.id)
    assert any(picture["waiting"][0] for picture in before.values())
    assert any(picture["leaving"] for picture in before.values())
    _, cordoned, saturated = zip(*(each["outside"] for each in before.values()), strict=True)
    assert any(saturated)
    demoted = [each["demoted"] for each in before.values()]
    assert any(map(all, zip(cordoned, demoted, strict=True)))
    assert all(each["topics"]["adopted"].pinned for each in before.values())
    last = streams.markers()[-1]
    first.end_query()
    shutil.rmtree(settings.checkpoint)
    new = replace(settings, checkpoint=str(tmp_path / "new"), shards=3)
    with pytest.raises(ForeignCheckpointError):
        start_query(spark, new)

    looked = survey(new)
    with monkeypatch.context() as patched:  # the files are there, the marker is not
        patched.setattr(TransactionalSink, "mark", fails)
        with pytest.raises(ConnectionError):
            recover(new, spark=spark)
    with pytest.raises(RecoveryError, match=r"was not finished.* run `spu-assigner recover` again"):
        start_query(spark, new)
    report = recover(new, spark=spark)
    with pytest.raises(RecoveryError, match=r"recovered for query .* and the settings say 'other'"):
        start_query(spark, replace(new, query_name="other"))
    state = Path(new.checkpoint, "recovery/state.parquet")
    whole = state.read_bytes()
    state.write_bytes(whole[:-1] + b"?")
    with pytest.raises(RecoveryError, match=r"state\.parquet is damaged: SHA-256"):
        start_query(spark, new)
    state.write_bytes(whole)
    note = state.with_name("recovery.json")
    note.rename(tmp_path / "kept")
    with pytest.raises(RecoveryError, match=r"recovery\.json is missing"):
        start_query(spark, new)  # else it would begin with nothing
    (tmp_path / "kept").rename(note)
    assert replace(report, checkpoint_id=None) == looked
    assert report.recovered_from == RecoveredFrom(checkpoint_id=old, batch=last.batch)
    assert report.positions == last.positions
    assert (report.clusters, report.shards) == (CLUSTERS, 3)
    events = Events("c0", first=900)
    job = start_query(spark, replace(new, shards=None))
    sent(streams, [beginning(0)[0][0]], job)  # known already: it changes nothing
    process_all(job.query)
    assert str(job.query.id) == report.checkpoint_id
    assert job.shards == 3
    assert states(job, new.checkpoint) == before
    job.end_query()

    Path(new.checkpoint, "commits/0").unlink()  # as if it had died before Spark noted batch 0
    job = start_query(spark, new)
    process_all(job.query)
    assert states(job, new.checkpoint) == before
    sent(streams, [event for n in range(CLUSTERS) for event in going_on(n)], job)
    assert [m.batch for m in streams.markers() if m.checkpoint_id == report.checkpoint_id][:3] == [
        -1,
        0,
        1,
    ]
    job.end_query()

    job = start_query(spark, new)  # now without its initial state
    sent(streams, [events.create("later", 2, 2, policy=Policy.FLUVIO)], job)
    again = replace(new, checkpoint=str(tmp_path / "again"), shards=1)
    assert recover(again, spark=spark).recovered_from.checkpoint_id == report.checkpoint_id
    streams.send([events.create("shut-out")])
    with pytest.raises(FencedError):
        job.await_termination(PATIENCE_SECONDS)
    job.end_query()
    with pytest.raises(ForeignCheckpointError):
        start_query(spark, new)
    job = start_query(spark, again)
    sent(streams, [events.create("last", 3, 2, policy=Policy.KAFKA)], job)
    process_all(job.query)
    assigner = check_as_one_process(streams)
    assert states(job, again.checkpoint) == {
        name: picture(state) for name, state in assigner.clusters.items()
    }
    job.stop()
    ids = [read.ce_id for topic in ("topic-status", "replica-map") for read in streams.read(topic)]
    assert len(ids) == len(set(ids))


@pytest.mark.usefixtures("java")
def test_a_recovery_that_is_killed_is_run_again(settings: Settings) -> None:
    """The files come first and the marker last, so what is left of it stands in nobody's way."""
    events = Events()
    with small_job(settings) as job:
        job.apply([*events.joins(0, 1), events.create("a", 2, 2)])

    def command(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
        place = {
            "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
            "SPU_ASSIGNER_TOPIC_PREFIX": settings.topic_prefix,
        }
        return subprocess.run(
            [*COMMAND, "--checkpoint", settings.checkpoint, "--yes", "-o", "json"],
            env={**os.environ, **place, **environ},
            timeout=COMMAND_SECONDS_MAX,
            start_new_session=True,
            check=False,
            capture_output=True,
            text=True,
        )

    killed = command(dying_at(Failpoint.BEFORE_RECOVERY_MARKER))
    assert killed.returncode == -signal.SIGKILL
    names = [path.name for path in Path(settings.checkpoint).glob("[!.]*")]
    assert sorted(names) == ["metadata", "recovery"]
    assert Path(settings.checkpoint).stat().st_mode & 0o777 == 0o700
    assert last_marker(settings).checkpoint_id == "old"
    done = command({})
    assert (done.returncode, done.stderr) == (0, "")
    reported, marker = json.loads(done.stdout), last_marker(settings)
    assert reported["recovered_from"] == {"checkpoint_id": "old", "batch": 0}
    assert (marker.batch, marker.count, marker.shards) == (-1, 0, SHARDS_LEFT)
    assert marker.recovered_from == RecoveredFrom(checkpoint_id="old", batch=0)
    written = json.loads(Path(settings.checkpoint, "metadata").read_text(encoding="utf-8"))
    assert reported["checkpoint_id"] == marker.checkpoint_id == written["id"]
