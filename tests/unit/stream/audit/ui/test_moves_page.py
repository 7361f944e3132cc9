"""The page of moves: what is under way, and what the last run did."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from flask.testing import FlaskClient
from spu_assigner.schemas.messages.wire import MovedPartition, MovesRun, MovesState, ThrottleValue
from spu_assigner.stream.audit.ui.app import make_app
from spu_assigner.stream.clusters.moves.run_record import begun_run
from spu_assigner.stream.kafka.moves_record import SILENT_SECONDS, move_of
from support.pages.ui_pages import Still, known_of, read

MIB = 1024**2
RATE = "leader.replication.throttled.rate"


def moved(partition: int, *, topic: str = "orders") -> MovedPartition:
    return MovedPartition(
        topic=topic,
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
        holder="process 7 on admin",
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
        failures=("orders-9: the topic was deleted",),
    )


def pages(run: MovesRun | None) -> tuple[FlaskClient, Still]:
    still = Still(known_of([]))
    still.moves.run = run
    return make_app(still.as_live()).test_client(), still


def ended() -> MovesRun:
    return replace(under_way(3600), state=MovesState.STOPPED, moves=(), throttles=())


def killed() -> MovesRun:
    return under_way(SILENT_SECONDS + 60)


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
                "orders 0 1, 2 3, 2 5.0 MiB",
                "1–2 of 2 partitions",
            ],
            ["Nothing was recorded"],
        ),
        (  # Who looks the day after sees what was done, and how long it took.
            ended,
            [
                "Last run of cluster c1 stopped",
                "no throttle is set",
                "Time taken 10 s 1.0 MiB/s, ended 20",
            ],
            ["Wave 2", "Nothing was recorded"],
        ),
        (  # A kill leaves a wave to Kafka, and a throttle: somebody must run it again.
            killed,
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
    """State, numbers, speed, the throttle, and each partition with both lists."""
    text = read(pages(run())[0], "/moves").text
    assert [words for words in shown if words not in text] == []
    assert [words for words in not_shown if words in text] == []


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
        ({"trouble": "not authorized", "run": under_way()}, "Partitions moved 2"),
    ],
)
def test_a_page_says_what_is_known_of_moves(known: dict[str, object], words: str) -> None:
    """It is no error that nothing was moved, or read so far; then the page is renewed."""
    client, still = pages(None)
    still.moves.has_topic = True
    before = client.get("/version?of=moves").data
    for name, value in known.items():
        setattr(still.moves, name, value)
    page = read(client, "/moves")
    assert words in page.text
    assert ("No moves so far" in page.text) is ("No moves so far" in words)
    assert (client.get("/version?of=moves").data != before) is bool(known)
    assert ("a", {"href": "/moves", "aria-current": "page"}) in page.tags


def test_the_page_alone_is_renewed_when_a_wave_goes_on() -> None:
    """Others would be read again every few seconds: explain reads topics each time."""
    client, still = pages(under_way())
    (watch,) = [
        each["data-watch"] for _, each in read(client, "/moves").tags if "data-watch" in each
    ]

    def versions() -> list[str]:
        return [client.get(path).get_json()["version"] for path in (watch or "", "/version")]

    before = versions()
    still.moves.run = replace(under_way(), recorded_at=1)
    assert [old == new for old, new in zip(before, versions(), strict=True)] == [False, True]


def test_hostile_names_are_escaped() -> None:
    """What others have recorded is text."""
    hostile = "<script>alert(1)</script>"
    run = replace(under_way(), moves=(moved(0, topic=hostile),), failures=(hostile,))
    answer = pages(replace(run, holder=hostile))[0].get("/moves")
    assert "<script>alert" not in answer.text
    assert answer.text.count("&lt;script&gt;alert") == 3


def test_a_partition_is_under_way_while_its_wave_is() -> None:
    """Of this cluster, and no longer once the run has ended."""
    run = under_way()
    assert move_of(run, "c1", "orders", 1) == moved(1)
    for other in (("c2", "orders", 1), ("c1", "t", 1), ("c1", "orders", 2)):
        assert move_of(run, *other) is None
    assert move_of(replace(run, state=MovesState.CANCELLED), "c1", "orders", 1) is None
    assert move_of(None, "c1", "orders", 1) is None
