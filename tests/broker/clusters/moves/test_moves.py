"""`apply --moves` on three real brokers: moved as mapped, whatever happens in between."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from spu_assigner.schemas.messages.wire import MovesState
from spu_assigner.stream.clusters.moves.reassigning import Reassigner
from spu_assigner.stream.clusters.moves.run_record import RunLog, Seat, SeatTakenError
from spu_assigner.stream.clusters.moves.wave import PORTION
from spu_assigner.stream.clusters.plan.target_cluster import Target
from support.failpoints import Failpoint
from support.kafka.moving import Mover, until
from support.placers.kafka_reassign import run_tool

IN_A_WAVE = [each for each in Failpoint if each.startswith("wave-")]
CANCEL_SECONDS_MAX = 5.0  # what an operator is promised; 2.5 s with the start of a process
BEFORE = [[1, 2], [2, 1], [1, 2], [2, 1]]
AFTER = [[3, 2], [2, 3], [2, 1], [3, 1]]  # two moves, a new order, a move of both


@pytest.mark.smoke
def test_partitions_are_moved_as_mapped_and_nothing_is_lost(mover: Mover, tmp_path: Path) -> None:
    """Kafka's own tool agrees; a second run has nothing to do; no throttle is left."""
    operator = mover.operator
    operator.make("orders", BEFORE)
    mover.fill("orders", partitions=4, values=8)
    before = mover.checksums("orders", 4)
    mover.map({"orders": AFTER})
    status, lines, errors = mover.move("--throttle", "100MB/s")
    assert (status, errors) == (0, []), lines
    assert lines[0].startswith("moves    4 partitions, ")
    assert [line[:29] for line in lines if line.startswith("wave ")] == [
        "wave 1   4 partitions moved, "
    ]
    operator.until("orders", AFTER)
    assert mover.throttles("orders") == {}
    assert mover.leaders("orders") == [row[0] for row in AFTER]
    assert mover.checksums("orders", 4) == before

    moves = [
        {"topic": operator.name("orders"), "partition": number, "replicas": row}
        for number, row in enumerate(AFTER)
    ]
    file = tmp_path / "moves.json"
    file.write_text(json.dumps({"version": 1, "partitions": moves}), "utf-8")
    servers = operator.cluster.bootstrap_servers
    assert "No partition reassignments found." in run_tool(servers, "--list")
    output = run_tool(servers, "--verify", "--reassignment-json-file", file)
    assert output.count("is completed") == 4, output
    record = mover.record()
    assert record is not None
    assert (record.state, record.moves, record.throttles) == (MovesState.DONE, (), ())
    assert record.moves_by_state() == {"pending": 0, "done": 4, "failed": 0}
    assert record.bytes_done == record.bytes_total > 0
    assert (record.wave, record.waves, record.failures) == (1, 1, ())
    assert mover.move()[:2] == (0, ["0 created, 0 grown, 0 deleted; 1 as mapped before"])
    assert mover.record() == record  # Of the run that moved something.


@pytest.mark.long("the next run waits until Kafka has missed the one that was killed")
@pytest.mark.parametrize("failpoint", IN_A_WAVE)
def test_a_run_that_is_killed_is_finished_by_the_next_one(
    mover: Mover, failpoint: Failpoint
) -> None:
    """Killed at any step of a wave: no throttle and no half-done move is left."""
    operator = mover.operator
    operator.make("orders", BEFORE)
    mover.fill("orders", partitions=4, values=4)
    before = mover.checksums("orders", 4)
    mover.map({"orders": AFTER})
    mover.killed(f"{failpoint}:1", "--throttle", "50MB/s")
    record = mover.record()
    assert record is not None
    assert (record.state, record.wave, len(record.moves)) == (MovesState.RUNNING, 1, 4)
    assert record.throttles
    is_set = failpoint not in (Failpoint.WAVE_RECORDED, Failpoint.WAVE_CLEARED)
    assert bool(mover.throttles("orders")) is is_set
    status, lines, errors = mover.move()
    assert status == 0, (lines, errors)
    assert errors[0].startswith("apply: resumes a wave of 4 partitions that process ")
    operator.until("orders", AFTER)
    assert mover.throttles("orders") == {}
    assert mover.checksums("orders", 4) == before
    record = mover.record()
    assert record is not None
    assert (record.state, record.throttles) == (MovesState.DONE, ())


@pytest.mark.long("the next run waits until Kafka has missed the one that was killed")
def test_many_small_moves_are_one_wave_and_leaders_change_in_portions(
    mover: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a kill in the first portion: seen by what is asked of Kafka."""
    operator = mover.operator
    orders, leaving, others = [[2, 1]] * 120, [[3, 2]] * 80, [[1, 3]] * 10
    after = [*orders, *leaving, *others]
    operator.make("small", [[1, 2]] * len(after))
    mover.map({"small": after})
    mover.killed(f"{Failpoint.WAVE_STARTED}:1", "--throttle", "2MB/s")
    asked: dict[str, list[set[int]]] = {"reassign": [], "elect": []}
    for name, found in asked.items():
        method = getattr(Reassigner, name)

        def noted(
            kafka: Reassigner, places: Any, method: Any = method, found: list[set[int]] = found
        ) -> Any:
            found.append({number for _, number in places})
            return method(kafka, places)

        monkeypatch.setattr(Reassigner, name, noted)
    status, lines, errors = mover.move("--throttle", "2MB/s")
    assert status == 0, (lines, errors)
    assert errors[0].startswith("apply: resumes a wave of 210 partitions that process ")
    assert "; 30 of it not begun, planned again" in errors[0]
    assert [line[:29] for line in lines if line.startswith("wave ")] == [
        "wave 1   180 partitions moved",
        "wave 2   30 partitions moved,",
    ]
    assert [each for each in asked["reassign"] if each] == [{*range(170, 200)}]
    assert [len(each) for each in asked["elect"] if each][:3] == [50, 50, 20]
    assert max(map(len, asked["elect"])) == PORTION
    assert mover.leaders("small") == [row[0] for row in after]
    assert mover.throttles("small") == {}
    operator.until("small", after)


@pytest.mark.long("a second run waits whether the first one lives")
def test_what_is_under_way_is_cancelled_and_a_second_run_is_refused(mover: Mover) -> None:
    """One at a time; after a cancel each list is as it was, in its order, and unthrottled."""
    operator = mover.operator
    operator.make("orders", BEFORE)
    mover.fill("orders", partitions=4, values=8)
    mover.map({"orders": AFTER})
    with mover.running("--throttle", "1kB/s") as process:
        until(lambda: operator.lists("orders")["orders"][2] == AFTER[2])
        begun = until(lambda: record if (record := mover.record()) and record.moves else None)
        noted = until(lambda: record if (record := mover.record()) != begun else None)
        assert (noted.state, noted.moves, noted.throttles) == (
            MovesState.RUNNING,
            begun.moves,
            begun.throttles,
        )
        assert (noted.moves_done, noted.moves_total) == (1, 4)
        status, lines, errors = mover.move()
        assert (status, lines) == (1, [])
        assert errors[0].startswith(
            f"spu-assigner: another process moves partitions (process {process.pid} on "
        )
        begun_at = time.monotonic()
        cancelled = operator("apply", "--cancel")
        assert time.monotonic() - begun_at < CANCEL_SECONDS_MAX
        assert (cancelled.exit_code, cancelled.stderr) == (0, "")
        assert cancelled.stdout == (
            "cancelled 3 moves, their lists are as before, and the throttle is removed\n"
        )
        _, output = process.communicate(timeout=120)
        assert process.returncode == 1
        assert output.startswith("spu-assigner: the moves were cancelled by process "), output
    operator.until("orders", [BEFORE[0], BEFORE[1], AFTER[2], BEFORE[3]])
    assert mover.throttles("orders") == {}
    with mover.kafka() as kafka:
        assert kafka.ongoing() == {}
    again = operator("apply", "--cancel")
    assert (again.exit_code, again.stdout) == (0, "nothing is under way; nothing was changed\n")
    assert mover.move()[0] == 0
    operator.until("orders", AFTER)


def test_what_an_interrupted_run_has_left_is_cancelled(mover: Mover) -> None:
    """Ctrl-C ends the command, and says that Kafka goes on."""
    operator = mover.operator
    operator.make("orders", [[1, 2]])
    mover.fill("orders", partitions=1, values=8)
    mover.map({"orders": [[3, 2]]})
    with mover.running("--throttle", "1kB/s") as process:
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=120)
        # Python ends by the signal itself if it came while `exec` made a class of an import.
        assert process.returncode in {130, -signal.SIGINT}, output
        assert "apply: interrupted; Kafka goes on with 1 move: run again to finish" in output
    assert mover.throttles("orders")
    others = operator("apply", "--cancel", "--cluster", "c2")
    assert (others.exit_code, others.stdout) == (1, "")
    assert "what is under way is of cluster 'c1', not of 'c2'; nothing was changed" in others.stderr
    cancelled = operator("apply", "--cancel", "--cluster", "c1")
    assert (cancelled.exit_code, cancelled.stderr) == (0, "")
    assert cancelled.stdout.startswith("cancelled 1 move, their lists are as before")
    operator.until("orders", [[1, 2]])
    assert mover.throttles("orders") == {}


def test_an_overtaken_run_notes_nothing_and_goes_on_until_it_reads_so(mover: Mover) -> None:
    """Else a cancel could end as a failure to record, before its own word is read."""
    connection = mover.operator.settings().connection()
    with Seat(connection) as first, Seat(connection) as second:
        log = RunLog(first, "c1")
        first.take_over()
        log.record((), ())
        log.note(1, 0)
        second.take_over()
        log.note(2, 0)
        first.check()
        noted = mover.record()
        assert noted is not None
        assert (noted.run_id, noted.moves_done) == (first.run_id, 1)
        RunLog(second, "c1").record((), (), state=MovesState.CANCELLED)
        with pytest.raises(SeatTakenError, match="the moves were cancelled by process "):
            until(first.check)
        with pytest.raises(SeatTakenError, match="the moves were cancelled by process "):
            log.record((), ())


def test_a_topics_id_is_the_one_that_a_plan_has(mover: Mover) -> None:
    """Two clients report it, in two alphabets: every second topic would look made again."""
    operator = mover.operator
    names = [f"t{number}" for number in range(8)]
    for name in names:
        operator.make(name, [[1]])
    topics = list(map(operator.name, names))
    with mover.kafka() as kafka, Target(operator.settings().connection()) as target:
        shapes = kafka.shapes(topics)
        assert {topic: shapes[topic, 0].topic_id for topic in topics} == target.look(topics).ids
