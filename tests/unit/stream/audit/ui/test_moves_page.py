"""The page of moves: what is under way, and what the last run did."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient
from spu_assigner.schemas.messages.wire import MovedPartition, MovesRun, MovesState, ThrottleValue
from spu_assigner.stream.audit.ui import live
from spu_assigner.stream.audit.ui.app import make_app
from spu_assigner.stream.audit.ui.known import Known
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.moves.run_record import begun_run
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import ClientError
from spu_assigner.stream.kafka.moves_record import SILENT_SECONDS, move_of
from support.pages.ui_pages import Still, read

MIB = 1024**2
RATE = "leader.replication.throttled.rate"
HOSTILE = "<script>alert(1)</script>"


def moved(partition: int) -> MovedPartition:
    return MovedPartition(
        topic=f"orders{HOSTILE}",
        topic_id="id",
        partition=partition,
        before=(1, 2),
        after=(3, 2),
        size_bytes=5 * MIB,
    )


def under_way(age_seconds: float = 1.0) -> MovesRun:
    """Ten of 40 MiB after ten seconds."""
    now = time.time_ns() // 1_000_000 - int(age_seconds * 1000)
    throttle = ThrottleValue(broker=3, topic=None, setting=RATE, value=str(MIB), before=None)
    return replace(
        begun_run("c1"),
        holder=f"process 7 on admin{HOSTILE}",
        began_at=now - 10_000,
        recorded_at=now,
        wave=2,
        waves=5,
        moves=(moved(0), moved(1)),
        throttles=(throttle,),
        moves_total=8,
        moves_done=2,
        moves_failed=1,
        bytes_total=40 * MIB,
        bytes_done=10 * MIB,
        bytes_failed=5 * MIB,
        failures=(f"orders-9: the topic was deleted{HOSTILE}",),
    )


def pages(run: MovesRun | None) -> tuple[FlaskClient, Still]:
    still = Still(Known())
    still.moves.run = run
    return make_app(still.as_live()).test_client(), still


@pytest.mark.parametrize(
    ("run", "shown", "not_shown"),
    [
        (
            under_way,
            [
                "Run of cluster c1 running process 7 on admin",
                "Partitions moved 2 5 pending, 1 failed",
                "Copied 10.0 MiB 25.0 MiB pending, 5.0 MiB failed",
                "Waves 2 of 5 throttle 1.0 MiB/s",
                "Time left 25 s 1.0 MiB/s, begun 20",
                "10.0 MiB of 40.0 MiB, 25.0%",
                "What went wrong orders-9: the topic was deleted",
                f"orders{HOSTILE} 0 1, 2 3, 2 5.0 MiB",
                "1–2 of 2 partitions",
            ],
            ["Nothing was recorded"],
        ),
        (  # Who looks the day after sees what was done, and how long it took.
            lambda: replace(under_way(3600), state=MovesState.STOPPED, moves=(), throttles=()),
            [
                "Last run of cluster c1 stopped",
                "no throttle is set",
                "Time taken 10 s 1.0 MiB/s, ended 20",
            ],
            ["Wave 2", "Nothing was recorded"],
        ),
        (  # A kill leaves a wave to Kafka, and a throttle: somebody must run it again.
            lambda: under_way(SILENT_SECONDS + 60),
            [
                "Nothing was recorded since",
                "run spu-assigner apply --moves to finish it",
                "Last run of cluster c1 silent",
                "last recorded",
            ],
            ["running"],
        ),
    ],
    ids=["under way", "ended", "killed"],
)
def test_a_run_is_shown(
    run: Callable[[], MovesRun], shown: list[str], not_shown: list[str]
) -> None:
    """State, numbers, speed, the throttle, and each partition with both lists; all as text."""
    client, _ = pages(run())
    text = read(client, "/moves").text
    assert [words for words in shown if words not in text] == []
    assert [words for words in not_shown if words in text] == []
    assert "<script>alert" not in client.get("/moves").text


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({}, "No moves so far."),
        ({"has_topic": False}, "No moves so far: there is no topic applied-topics here"),
        ({"is_read": False}, "The record of the moves has not been read yet."),
        (
            {"trouble": "cannot read applied-topics: not authorized", "run": under_way()},
            "The record of the moves is not read: cannot read applied-topics",
        ),
        ({"run": under_way()}, "Partitions moved 2"),
    ],
)
def test_a_page_says_what_is_known_of_moves(known: dict[str, object], words: str) -> None:
    """It is no error that nothing was moved, or read so far; then the page is renewed."""
    client, still = pages(None)
    still.moves.has_topic = True
    before = client.get("/version").data
    for name, value in known.items():
        setattr(still.moves, name, value)
    assert words in read(client, "/moves").text
    assert (client.get("/version").data != before) is bool(known)


def test_a_partition_is_under_way_while_its_wave_is() -> None:
    """Of this cluster, and no longer once the run has ended."""
    run, topic = under_way(), moved(1).topic
    assert move_of(run, "c1", topic, 1) == moved(1)
    assert move_of(run, "c2", topic, 1) is move_of(run, "c1", topic, 2) is None
    assert move_of(replace(run, state=MovesState.CANCELLED), "c1", topic, 1) is None


@pytest.mark.parametrize("servers", ["jobs:9092", "others:9092"])
def test_moves_are_read_from_the_cluster_of_the_topics(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the prefix of the job, as `apply --moves` records them."""

    def noted(_: Connection, *, moved: Connection) -> None:
        raise ClientError(f"{moved.prefix} of {moved.bootstrap_servers}")

    monkeypatch.setattr(live, "Live", noted)
    environ = {"SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS": servers} if "others" in servers else {}
    asked = ["ui", "--port", "0", "-b", "jobs:9092", "--topic-prefix", "p-"]
    assert f"p- of {servers}" in CliRunner().invoke(cli, asked, env=environ).stderr
