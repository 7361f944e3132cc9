"""A run that moves partitions, wave after wave.

A wave is a barrier; these are its steps:

1. recorded: its moves and its throttle are in the record (`MovesRun`), before anything is done
2. throttled: Kafka has the throttle; if it refuses, it is taken back and nothing is moved
3. started: Kafka has new lists; if an `apply --cancel` came first, they are taken back
4. ended: each move has failed or ended, with its preferred leader; without a source it is undone
5. cleared: the throttle is removed, and the end is recorded

The record is all that a run remembers: Kafka shows what has been done of the steps after the first,
and each leaves alone what is done. So a run that is killed in any of them goes on at the first, and
does nothing twice. What Kafka does not move yet is not begun then: the next plan has it, and obeys
the guards of its run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import click
from spu_assigner.schemas.messages.wire import MovedPartition, MovesRun, MovesState
from spu_assigner.stream.clusters.moves.health import UnhealthyError, require_health
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.moves.reassigning import MovesError, Reassigner
from spu_assigner.stream.clusters.moves.run_record import RunLog, Seat
from spu_assigner.stream.clusters.moves.status import (
    BEYOND_LIMIT,
    MoveProgress,
    MovesReport,
    place_of,
    say,
)
from spu_assigner.stream.clusters.moves.throttle import WaveThrottle
from spu_assigner.stream.clusters.moves.wave import Wave, look, take_back
from spu_assigner.stream.clusters.moves.waves import (
    adding,
    copied_bytes,
    first_within,
    in_order,
    wave_bytes,
    waves,
)
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.common.quantities import bytes_text
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.log_dirs import Partition

CANCEL_SECONDS_MAX: Final = 4.0
CANCEL_QUIET_SECONDS: Final = 0.5  # a run that was overtaken may just have started some
CANCEL_LOOK_SECONDS: Final = 0.05


class MovesRunner:
    """One process that moves partitions; it has the seat.

    All methods raise MovesError or ClientError where something cannot be done now; what is under
    way stays recorded then, for the next run.
    """

    def __init__(
        self,
        kafka: Reassigner,
        seat: Seat,
        options: MoveOptions,
        *,
        cluster_id: str,
        is_quiet: bool = False,
    ) -> None:
        self._kafka = kafka
        self._log = RunLog(seat, cluster_id)
        self._options = options
        self._is_quiet = is_quiet
        self._throttle = WaveThrottle(kafka, rate=options.rate, force=options.force)

    @property
    def report(self) -> MovesReport:
        """What became of the moves so far."""
        return self._log.report

    @property
    def under_way(self) -> int:
        """How many moves Kafka has under way, or is about to."""
        return len(self._log.run.moves)

    def resume(self) -> None:
        """Finish the wave, and remove the throttle, that a run which was killed has left.

        What is still copied then is limited by the throttle of this run.
        """
        log, left = self._log, self._log.seat.latest
        if left is None or not (left.moves or left.throttles):
            return
        self._kafka.require_rights(is_limited=bool(self._options.rate or left.throttles))
        log.change(throttles=left.throttles, wave=left.wave - bool(left.moves), waves=left.wave)
        progress = look(self._kafka, log, left.moves)
        to_start = [at for at, each in progress.items() if each is MoveProgress.TO_START]
        wave = [each for each in left.moves if place_of(each) not in to_start]
        log.plan(wave)
        if left.moves:
            again = f"; {len(to_start)} of it not begun, planned again" if to_start else ""
            what = f"resumes a wave of {counted(len(left.moves), 'partition')} that"
            say(f"{what} {left.holder} has left{again}")
        else:
            say(f"removes the throttle that {left.holder} has left")
        log.record(wave, log.cleared(self._throttle))
        log.inherit()
        if wave:
            self._move(wave)

    def carry_out(
        self, moves: Sequence[MovedPartition], *, bytes_max: int | None = None
    ) -> MovesReport:
        """Move these partitions; what became of them, and of a wave that was resumed.

        What would copy more than `bytes_max` is not begun. UnhealthyError: nothing was begun.
        """
        log, report = self._log, self.report
        ordered = in_order(self._sized(moves))
        meant = ordered if bytes_max is None else first_within(ordered, bytes_max)
        report.left = len(ordered) - len(meant)
        report.stopped = BEYOND_LIMIT if report.left else None
        planned = {place_of(each) for each in meant}
        to_come = waves(meant, bytes_max=wave_bytes(self._options.rate))
        if meant:
            is_limited = bool(self._options.rate or log.run.throttles)
            self._kafka.require_rights(is_limited=is_limited)
            require_health(self._kafka, planned, force=self._options.force)
            self._announce(meant, len(to_come))
        for number, wave in enumerate(to_come):
            try:
                require_health(self._kafka, planned, force=self._options.force)
            except UnhealthyError as reason:
                report.stopped = str(reason)
                report.left += sum(map(len, to_come[number:]))
                break
            if reachable := self._reachable(wave):
                self._move(reachable)
        if log.run.moves_total or log.seat.is_open:  # Else it stays that of the run before.
            state = MovesState.DONE if report.is_whole else MovesState.STOPPED
            log.record((), log.run.throttles, state=state)
        return report

    def cancel(self, run: MovesRun) -> list[Partition]:
        """Take back what is under way of a recorded run; what was moved stays, no throttle does."""
        log, wave = self._log, {place_of(each): each for each in run.moves}
        log.run = run
        log.record(run.moves, run.throttles, state=MovesState.CANCELLED)
        refused: dict[Partition, str] = {}
        cancelled: dict[Partition, MovedPartition] = {}
        quiet_since = time.monotonic()
        deadline = quiet_since + CANCEL_SECONDS_MAX
        while time.monotonic() < min(deadline, quiet_since + CANCEL_QUIET_SECONDS):
            ongoing = self._kafka.ongoing()
            ours = {
                at: move
                for at, move in wave.items()
                if at in ongoing and ongoing[at].target == move.after
            }
            refused = take_back(self._kafka, ours)
            if ours:
                cancelled |= ours
                quiet_since = time.monotonic()
            time.sleep(CANCEL_LOOK_SECONDS)
        if refused:
            (topic, number), why = next(iter(refused.items()))
            raise MovesError(
                f"Kafka does not cancel {counted(len(refused), 'move')} ({topic}-{number}: {why}); "
                "check that the brokers of the lists of before run, and run this again"
            )
        log.record((), log.cleared(self._throttle), state=MovesState.CANCELLED)
        return [*cancelled]

    def _move(self, moves: Sequence[MovedPartition]) -> None:
        """Take the steps of one wave."""
        log, begun = self._log, time.monotonic()

        def reach(place: str) -> None:
            sys.audit(f"spu_assigner.wave-{place}", log.run.wave)

        wave = Wave(self._kafka, log, self._throttle, moves, self._print)
        reach("recorded")
        wave.limit()
        reach("throttled")
        wave.start()
        reach("started")
        wave.wait()
        reach("ended")
        log.change(throttles=log.cleared(self._throttle))
        reach("cleared")
        log.moved(wave.moved)
        log.record((), log.run.throttles)
        size = bytes_text(sum(map(copied_bytes, wave.moved)))
        self._print(
            f"wave {log.run.wave:<4}{counted(len(wave.moved), 'partition')} moved, {size}, "
            f"{time.monotonic() - begun:.1f} s"
        )

    def _reachable(self, wave: Sequence[MovedPartition]) -> list[MovedPartition]:
        """The wave without moves to a broker that is not alive, which fail."""
        alive = self._kafka.brokers().keys()
        absent = {place_of(each): sorted({*each.after} - alive) for each in wave}
        for move in wave:
            if brokers := absent[place_of(move)]:
                self._log.fail(
                    move,
                    f"its list names brokers {listed(brokers)}, which are not alive; start them, "
                    "or decommission them, and run again",
                )
        return [each for each in wave if not absent[place_of(each)]]

    def _sized(self, moves: Sequence[MovedPartition]) -> list[MovedPartition]:
        """The moves with how much there is to copy: the largest replica counts."""
        holders = {broker for each in moves if adding(each) for broker in each.before}
        sizes = self._kafka.sizes(holders & self._kafka.brokers().keys()) if holders else {}
        return [
            replace(each, size_bytes=max(sizes.get(place_of(each), {0: 0}).values()))
            for each in moves
        ]

    def _announce(self, moves: Sequence[MovedPartition], count: int) -> None:
        """Say and record what is to be moved, and name what health leaves out."""
        total = sum(map(copied_bytes, moves))
        if total:
            text = "whether they have leaders and replicas in sync is not looked at"
            for line in self._kafka.unseen().summary.lines(text):
                say(f"warning: {line}")
        self._print(
            f"moves    {counted(len(moves), 'partition')}, {bytes_text(total)} to copy, in "
            f"{counted(count, 'wave')}"
        )
        self._log.change(waves=self._log.run.wave + count)
        self._log.plan(moves)

    def _print(self, text: str) -> None:
        if not self._is_quiet:
            click.echo(text)


@contextmanager
def moving(
    connection: Connection, options: MoveOptions, *, cluster_id: str, is_quiet: bool = False
) -> Iterator[MovesRunner]:
    """A runner that has the seat, and has finished what a run before has left.

    The connection is to the Kafka cluster of the partitions, with the prefix of the job's topics.
    """
    with Reassigner(connection) as kafka, Seat(connection) as seat:
        seat.sit()
        runner = MovesRunner(kafka, seat, options, cluster_id=cluster_id, is_quiet=is_quiet)
        try:
            runner.resume()
            yield runner
        except (KeyboardInterrupt, SystemExit):
            if runner.under_way:
                say(
                    f"interrupted; Kafka goes on with {counted(runner.under_way, 'move')}: run "
                    "again to finish them, or `spu-assigner apply --cancel` to take them back"
                )
            raise


def require_ready(
    connection: Connection, options: MoveOptions, planned: Collection[Partition]
) -> None:
    """Return if moves could begin now: for who changes something before he moves."""
    with Reassigner(connection) as kafka:
        kafka.require_rights(is_limited=options.rate is not None)
        require_health(kafka, planned, force=options.force)
    with Seat(connection) as seat:
        seat.sit()


def cancel(connection: Connection, *, cluster_id: str = "") -> tuple[str, list[str]]:
    """Take back what a run has under way, alive or not, of this cluster or (empty) of any.

    Returns a line, and what is left to do.
    """
    with Reassigner(connection) as kafka, Seat(connection) as seat:
        seat.look()
        run = seat.latest
        if run is not None and cluster_id not in ("", run.cluster_id) and run.moves:
            raise MovesError(
                f"what is under way is of cluster {run.cluster_id!r}, not of {cluster_id!r}; "
                "nothing was changed: leave out --cluster, or name that one"
            )
        kafka.require_rights(is_limited=run is not None and bool(run.throttles))
        seat.take_over()
        run = seat.latest
        if run is None or not (run.moves or run.throttles):
            return "nothing is under way; nothing was changed", []
        runner = MovesRunner(kafka, seat, MoveOptions(), cluster_id=run.cluster_id)
        cancelled, left = runner.cancel(run), runner.report.throttles
    what = "no move of the run was under way; what it had not begun stays as it was"
    if cancelled:
        what = f"cancelled {counted(len(cancelled), 'move')}, their lists are as before"
    return what + (", and the throttle is removed" if run.throttles and not left else ""), left
