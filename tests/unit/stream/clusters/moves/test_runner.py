"""Runs that move partitions: killed at any moment, cancelled, refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from spu_assigner.schemas.messages.wire import MovesRun, MovesState
from spu_assigner.stream.clusters.moves import runner, throttle, wave
from spu_assigner.stream.clusters.moves.health import UnhealthyError
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.moves.run_record import SeatTakenError
from spu_assigner.stream.clusters.moves.runner import MovesRunner
from spu_assigner.stream.clusters.moves.status import BEYOND_LIMIT
from spu_assigner.stream.clusters.moves.throttle import RATES, RefusedThrottleError
from support.kafka.memory_cluster import Killed, MemoryKafka, MemorySeat, move

MOVES = [
    move(0, (1, 2), (3, 2)),
    move(1, (2, 1), (2, 3)),
    move(2, (1, 2), (2, 1)),  # a new order
    move(3, (2, 1), (3, 1)),
]
BEFORE = {("t", each.partition): each.before for each in MOVES}
AFTER = {("t", each.partition): each.after for each in MOVES}
LIMITED = MoveOptions(rate=1000)
FOREIGN = {(3, RATES[0]): "77"}  # a throttle of somebody else


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wave, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(throttle, "SEEN_SECONDS_MAX", 0.0)
    monkeypatch.setattr(runner, "CANCEL_QUIET_SECONDS", 0.002)
    monkeypatch.setattr(runner, "CANCEL_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(runner, "wave_bytes", lambda _: 1)  # one move of a broker at once


class Cluster:
    """A Kafka, the record in it, and the processes that move its partitions."""

    def __init__(self, **given: Any) -> None:
        self.kafka = MemoryKafka(BEFORE, **given)
        self.seat = MemorySeat(self.kafka)

    def process(self, options: MoveOptions = LIMITED) -> MovesRunner:
        return MovesRunner(self.kafka, self.seat, options, cluster_id="c1", is_quiet=True)

    def run(self, options: MoveOptions = LIMITED, **given: Any) -> MovesRunner:
        """`apply --moves`: what was left, then a new plan."""
        found = self.process(options)
        found.resume()
        left = [each for each in MOVES if self.kafka.lists["t", each.partition] != each.after]
        found.carry_out(left, **given)
        return found

    @property
    def record(self) -> MovesRun:
        assert self.seat.latest is not None
        return self.seat.latest


def killed_runs(options: MoveOptions = LIMITED) -> list[Cluster]:
    """A run that is killed at its first moment, one at its second, …, up to its end."""
    found = []
    while True:
        cluster = Cluster()
        cluster.kafka.values |= FOREIGN
        cluster.kafka.kill_at = len(found) + 1
        try:
            cluster.run(options)
        except Killed:
            found.append(cluster)
        else:
            return found


@pytest.mark.parametrize("options", [MoveOptions(), MoveOptions(rate=1000, force=True)])
def test_killed_at_any_moment_a_run_is_finished_by_the_next_one(options: MoveOptions) -> None:
    """All is as mapped, nothing was begun twice, and settings are as they were."""
    clusters = killed_runs(options)
    assert len(clusters) > (30 if options.rate else 15)
    for cluster in clusters:
        kafka = cluster.kafka
        found = cluster.run(options)
        assert found.report.is_whole
        assert kafka.lists == AFTER
        assert kafka.leaders == {at: row[0] for at, row in AFTER.items()}
        assert sorted(kafka.begun) == [("t", 0), ("t", 1), ("t", 3)]  # each once
        assert kafka.is_set == FOREIGN
        run = cluster.seat.latest
        # Killed before anything was recorded, or after the end: nothing is left to record.
        assert run is None or (run.state, run.moves, run.throttles) == (MovesState.DONE, (), ())


def test_killed_at_any_moment_a_run_is_cancelled() -> None:
    """What had not ended is on its list of before; killed in the cancel, the next one ends it."""
    for number, cluster in enumerate(killed_runs(MoveOptions(rate=1000, force=True))):
        kafka, left = cluster.kafka, cluster.seat.latest
        if left is None or not (left.moves or left.throttles):
            continue
        kafka.is_endless = True
        moved = {at: row for at, row in kafka.lists.items() if row == AFTER[at]}
        kafka.kill_at = kafka.steps + 1 + number % 8
        try:
            cluster.process().cancel(left)
        except Killed:
            cluster.process().cancel(cluster.record)
        assert kafka.moving == {}
        assert kafka.lists == BEFORE | moved
        assert kafka.is_set == FOREIGN
        assert (cluster.record.moves, cluster.record.throttles) == ((), ())


def test_a_refused_throttle_leaves_nothing_behind() -> None:
    """No move, no setting, and no wave in the record."""
    cluster = Cluster(refusing={3})
    with pytest.raises(RefusedThrottleError, match="broker 3 refuses"):
        cluster.run()
    assert (cluster.record.moves, cluster.record.throttles) == ((), ())
    assert (cluster.kafka.is_set, cluster.kafka.begun) == ({}, [])


def test_what_is_begun_as_a_cancel_comes_first_is_taken_back() -> None:
    """The run sees so in the record before it does anything more."""
    cluster = Cluster()
    cluster.kafka.is_endless = True
    process = cluster.process()

    def cancelled() -> None:
        cluster.seat.latest = replace(cluster.record, state=MovesState.CANCELLED)
        raise SeatTakenError("cancelled")

    cluster.seat.check = cancelled  # type: ignore[method-assign]  # the cancel comes then
    with pytest.raises(SeatTakenError):
        process.carry_out(MOVES[:1])
    assert (cluster.kafka.begun, cluster.kafka.moving) == ([("t", 0)], {})


def test_what_a_killed_run_had_not_begun_goes_in_waves_of_the_new_run() -> None:
    """And only if the cluster is healthy."""
    cluster = Cluster()
    cluster.kafka.kill_at = 2  # The first wave is recorded.
    with pytest.raises(Killed):
        cluster.process(MoveOptions()).carry_out([MOVES[0]])
    assert (cluster.record.state, len(cluster.record.moves)) == (MovesState.RUNNING, 1)
    cluster.kafka.lists["alone", 0] = (4,)
    cluster.kafka.dead = {4}
    with pytest.raises(UnhealthyError, match=r"1 partition has no leader \(alone-0\)"):
        cluster.run()
    assert cluster.kafka.begun == []
    cluster.kafka.dead = set()
    assert cluster.run().report.is_whole
    assert cluster.record.wave == 3


def test_what_a_dead_broker_owes_fails_the_run_in_which_it_died_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Later runs name it, until it is back and one sets it as before."""
    cluster = Cluster()
    reassign = cluster.kafka.reassign

    def reassign_and_die(lists: Any) -> Any:
        cluster.kafka.dead = {1}
        return reassign(lists)

    cluster.kafka.reassign = reassign_and_die  # type: ignore[method-assign]  # the broker dies then
    first = cluster.process()
    first.carry_out(MOVES[:1])
    owed = f"broker 1 is not alive and may still have {RATES[0]}=1000 (before: not set)"
    assert [line[: len(owed)] for line in first.report.throttles] == [owed]
    assert (first.report.is_whole, cluster.record.state) == (False, MovesState.STOPPED)
    second = cluster.process()
    second.resume()
    assert second.carry_out([]).is_whole
    assert f"apply: {owed}" in capsys.readouterr().err
    assert {each.broker for each in cluster.record.throttles} == {1}
    cluster.kafka.dead = set()
    cluster.process().resume()
    assert (cluster.kafka.is_set, cluster.record.throttles) == ({}, ())


def test_an_unhealthy_cluster_ends_a_run_between_two_waves() -> None:
    """The wave that is under way ends; the record says why no other was begun."""
    cluster = Cluster()
    cluster.kafka.lists["alone", 0] = (4,)
    elect = cluster.kafka.elect

    def elect_and_die(partitions: Any) -> None:
        elect(partitions)
        cluster.kafka.dead = {4}

    cluster.kafka.elect = elect_and_die  # type: ignore[method-assign]  # the broker dies then
    report = cluster.run().report
    assert (len(report.moved), report.left) == (2, 2)
    assert str(report.stopped).startswith("Kafka is not healthy: 1 partition has no leader (alone-")
    assert cluster.record.state is MovesState.STOPPED
    assert cluster.record.failures == (f"not begun: {report.stopped}",)
    assert cluster.kafka.is_set == {}


@pytest.mark.parametrize("is_killed", [False, True])
def test_leaders_change_in_portions(
    is_killed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By election and as a leader goes; what changes no leader is begun at once.

    Producers of hundreds of partitions wait for all leaders that change at once. Progress is shown.
    """
    monkeypatch.setattr(runner, "wave_bytes", lambda _: 1000)
    monkeypatch.setattr(wave, "NOTED_SECONDS", -1.0)
    monkeypatch.setattr(wave, "SHOWN_SECONDS", -1.0)
    moves = [move(number, (1, 2), (2, 1)) for number in range(120)]
    moves += [move(number, (1, 2), (3, 2)) for number in range(120, 240)]
    moves += [move(number, (1, 2), (1, 3)) for number in range(240, 300)]
    cluster = Cluster()
    kafka = cluster.kafka
    kafka.lists = {("t", each.partition): each.before for each in moves}
    begun: list[list[int]] = []
    reassign = kafka.reassign

    def noted(lists: Any) -> Any:
        begun.append([number for _, number in lists])
        under_way = [*kafka.moving, *lists]
        assert sum(120 <= number < 240 for _, number in under_way) <= wave.PORTION
        return reassign(lists)

    kafka.reassign = noted  # type: ignore[method-assign]  # what is asked of Kafka is seen
    process = MovesRunner(kafka, cluster.seat, MoveOptions(), cluster_id="c1")
    if is_killed:
        kafka.kill_at = 530  # The second portion is under way.
        with pytest.raises(Killed):
            process.carry_out(moves)
        process.resume()
        left = [each for each in moves if kafka.lists["t", each.partition] != each.after]
        assert 0 < len(left) < 240
        process.carry_out(left)
    else:
        assert process.carry_out(moves).is_whole
        assert sorted(begun[0]) == [*range(170), *range(240, 300)]
        assert [len(each) for each in begun[1:] if each] == [50, 20]
        lines = capsys.readouterr().out.splitlines()
        assert lines[1] == "wave 1   120 of 300 partitions moved, 0 B copied"
        assert lines[-1].startswith("wave 1   300 partitions moved, 180 B, ")
    assert kafka.lists == {("t", each.partition): each.after for each in moves}
    assert kafka.leaders == {("t", each.partition): each.after[0] for each in moves}
    assert max(map(len, kafka.elected)) == wave.PORTION
    elected = [at for each in kafka.elected for at in each]
    assert {number for _, number in elected} >= {*range(120)}


def test_an_election_that_kafka_does_not_make_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The move has ended all the same; `plan` counts leaders by lists."""
    monkeypatch.setattr(wave, "ELECTED_SECONDS_MAX", 0.0)
    cluster = Cluster()
    asked: list[Any] = []
    cluster.kafka.elect = asked.extend  # type: ignore[method-assign]
    assert cluster.run().report.is_whole
    assert asked == [("t", 2)]


def test_what_cannot_be_moved_has_a_line_and_all_else_goes_on() -> None:
    """A list with a broker that is away, a topic that is gone, one of others, more than a limit."""
    cluster = Cluster(dead={4})
    del cluster.kafka.lists["t", 1]
    cluster.kafka.lists["t", 3] = (1, 2)
    report = cluster.process().carry_out([*MOVES, move(9, (1,), (4,))])
    why = {number: text.partition(";")[0] for (_, number), text in report.failed.items()}
    assert why == {
        1: "the topic was deleted, or made again, meanwhile",
        3: "was on [2, 1] and is on [1, 2] now, by somebody else",
        9: "its list names brokers 4, which are not alive",
    }
    assert {number for _, number in report.moved} == {0, 2}
    assert cluster.record.moves_by_state() == {"pending": 0, "done": 2, "failed": 3}
    limited = Cluster().run(bytes_max=1).report
    assert (len(limited.moved), limited.left, limited.stopped) == (2, 2, BEYOND_LIMIT)


def test_a_move_that_has_lost_its_source_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are not to wait for it, and the next run has it again."""
    monkeypatch.setattr(wave, "SOURCE_SECONDS_MAX", -1.0)
    cluster = Cluster()
    cluster.kafka.is_endless = True
    report = cluster.process().carry_out(MOVES[:1])
    (why,) = report.failed.values()
    assert why.startswith("it has no leader to copy from: none of brokers 1, 2 is alive")
    assert (cluster.kafka.moving, cluster.kafka.lists) == ({}, BEFORE)
    assert cluster.kafka.is_set == {}


def test_a_wave_that_is_resumed_gets_the_rate_of_the_run_that_resumes_it() -> None:
    """At the rate of before it would take hours."""
    cluster = Cluster()
    cluster.kafka.is_endless = True
    cluster.kafka.kill_at = 15  # The first wave that copies something has been begun.
    with pytest.raises(Killed):
        cluster.process().carry_out(MOVES[:1])
    assert (cluster.kafka.is_set[3, RATES[0]], len(cluster.kafka.moving)) == ("1000", 1)
    seen = []
    change = cluster.kafka.change

    def changed(values: Any) -> Any:
        seen.append(values.get((3, RATES[0]), "none of it"))
        cluster.kafka.is_endless = False
        return change(values)

    cluster.kafka.change = changed  # type: ignore[method-assign]  # what is set is seen
    cluster.process(MoveOptions(rate=5000)).resume()
    assert seen == [None, "5000", None]
    assert cluster.kafka.lists["t", 0] == (3, 2)
