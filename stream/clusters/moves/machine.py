"""The state machine of a run that moves partitions.

    machine.resume()                  # finish what a run that was killed has left
    report = machine.carry_out(moves)

| state | event | action | next |
| --- | --- | --- | --- |
| READY | moves are left | choose a wave, record it with its throttle | RECORDED |
| READY | the cluster is not healthy | record STOPPED | OVER |
| READY | no move is left | record DONE, or STOPPED if something failed | OVER |
| RECORDED | Kafka takes the throttle | set it | THROTTLED |
| RECORDED | Kafka refuses the throttle | take it back, record that no wave is under way | (error) |
| THROTTLED | Kafka takes the new lists | give them | STARTED |
| THROTTLED | `apply --cancel` came first | cancel what was just begun | (error) |
| STARTED | a move has ended, or failed | count it | STARTED |
| STARTED | a move has no leader to copy from | take it back after a minute | STARTED |
| STARTED | no move is under way | none | ENDED |
| ENDED | | remove the throttle | CLEARED |
| CLEARED | | elect preferred leaders, record that the wave is over | READY |
| CANCELLING | | record CANCELLED, take back the wave, remove the throttle | OVER |

The record in Kafka (`MovesRun`) is all that a run remembers: `state_of` reads the state from it.
The states from THROTTLED to CLEARED are not recorded: Kafka shows what has been done, and every
action leaves alone what is done. So a run that is killed in any of them goes on at RECORDED, and
does nothing twice. What Kafka does not move yet is not begun then: the next plan has it, and obeys
the guards of its run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from spu_assigner.schemas.messages.wire import MovedPartition, MovesRun, MovesState, ThrottleValue
from spu_assigner.stream.clusters.moves.health import UnhealthyError, require_health
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.moves.progress import MovesOutput
from spu_assigner.stream.clusters.moves.reassigning import MovesError, Reassigner
from spu_assigner.stream.clusters.moves.run_record import RunLog, Seat
from spu_assigner.stream.clusters.moves.status import (
    BEYOND_LIMIT,
    MoveProgress,
    MovesReport,
    place_of,
)
from spu_assigner.stream.clusters.moves.throttle import WaveThrottle
from spu_assigner.stream.clusters.moves.wave import Wave, look, take_back
from spu_assigner.stream.clusters.moves.waves import (
    adding,
    copied_bytes,
    first_within,
    in_order,
    next_wave,
    waves,
)
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.job.failpoints import Armed, Failpoint
from spu_assigner.stream.kafka.log_dirs import Partition

CANCEL_SECONDS_MAX: Final = 4.0
CANCEL_QUIET_SECONDS: Final = 0.5  # a run that was overtaken may just have started some
CANCEL_LOOK_SECONDS: Final = 0.05


class State(StrEnum):
    """Where a run is; the module's table says what follows."""

    READY = "ready"
    RECORDED = "recorded"
    THROTTLED = "throttled"
    STARTED = "started"
    ENDED = "ended"
    CLEARED = "cleared"
    CANCELLING = "cancelling"
    OVER = "over"


def state_of(run: MovesRun) -> State:
    """Where a recorded run goes on."""
    match run.state:
        case MovesState.RUNNING:
            return State.RECORDED if run.moves else State.READY
        case MovesState.CANCELLED if run.moves:
            return State.CANCELLING
        case _:
            return State.OVER


class MovesMachine:
    """One process that moves partitions; it has the seat.

    All methods raise MovesError or ClientError where something cannot be done now; what is under
    way stays recorded then, for the next run.
    """

    def __init__(
        self,
        kafka: Reassigner,
        seat: Seat,
        options: MoveOptions,
        output: MovesOutput,
        *,
        cluster_id: str,
        armed: Armed,
    ) -> None:
        self._kafka = kafka
        self._log = RunLog(seat, cluster_id)
        self._options = options
        self._output = output
        self._armed = armed
        self._throttle = WaveThrottle(
            kafka, output, rate=options.rate, force=options.force, forgotten=options.forgotten
        )
        self._left: list[MovedPartition] = []  # in no wave yet
        self._planned: frozenset[Partition] = frozenset()
        self._beyond = 0  # moves that a limit of bytes leaves for later
        self._wave: Wave  # of the states from RECORDED to CLEARED
        self.cancelled: list[Partition] = []

    @property
    def report(self) -> MovesReport:
        """What became of the moves so far."""
        return self._log.report

    @property
    def under_way(self) -> int:
        """How many moves Kafka has under way, or is about to."""
        return len(self._log.run.moves)

    def resume(self) -> None:
        """Finish the wave, and remove the throttle, that a run which was killed has left."""
        log, left = self._log, self._log.seat.latest
        if left is None or not (left.moves or left.throttles):
            return
        self._require_rights(left.throttles)
        if state_of(left) is State.CANCELLING:
            begun = log.run
            self._output.say("apply: an `apply --cancel` broke off; it is finished first")
            self.cancel(left)
            log.run = replace(begun, throttles=log.run.throttles)
            return
        log.change(throttles=left.throttles, wave=left.wave - bool(left.moves), waves=left.wave)
        progress = look(self._kafka, log, left.moves)
        to_start = [at for at, each in progress.items() if each is MoveProgress.TO_START]
        wave = [each for each in left.moves if place_of(each) not in to_start]
        log.plan(wave)
        self._output.resumed(left, not_begun=len(to_start))
        if not wave or self._throttle.is_another_rate(left.throttles):
            log.record(wave, log.cleared(self._throttle))
        if wave:
            self._advance(self._begin(wave), until=State.READY)

    def carry_out(
        self, moves: Sequence[MovedPartition], *, bytes_max: int | None = None
    ) -> MovesReport:
        """Move these partitions; what became of them, and of a wave that was resumed.

        Args:
            bytes_max: to be copied; what would be more is not begun. None: no limit.

        Raises:
            UnhealthyError: the cluster is not healthy; nothing was begun.
        """
        ordered = in_order(self._sized(moves))
        self._left = ordered if bytes_max is None else first_within(ordered, bytes_max)
        self._beyond = len(ordered) - len(self._left)
        self.report.stopped = BEYOND_LIMIT if self._beyond else None
        self._planned = frozenset(map(place_of, self._left))
        if self._left:
            self._require_rights(self._log.run.throttles)
            require_health(self._kafka, self._planned, force=self._options.force)
            self._announce()
        self._advance(State.READY, until=State.OVER)
        self._output.end()
        return self.report

    def cancel(self, run: MovesRun) -> None:
        """Take back what is under way of a recorded wave, to `cancelled`; what was moved stays."""
        self._log.run = run
        self._advance(State.CANCELLING, until=State.OVER)

    def _advance(self, state: State, *, until: State) -> None:
        """Take the actions of the table."""
        entered = None
        while state is not until:
            if state is not entered and state in _FAILPOINTS:
                self._armed.reach(_FAILPOINTS[state], self._log.run.wave)
            entered, state = state, _ACTIONS[state](self)

    def _choose(self) -> State:
        """READY: the next wave, if the cluster bears it."""
        alive = self._kafka.brokers().keys() if self._left else ()
        for move in self._left:
            if absent := sorted({*move.after}.difference(alive)):
                self._log.fail(
                    move,
                    f"its list names brokers {listed(absent)}, which are not alive; start them, or "
                    "decommission them, and run again",
                )
        self._left = [each for each in self._left if place_of(each) not in self.report.failed]
        if not self._left:
            return self._finish()
        try:
            require_health(self._kafka, self._planned, force=self._options.force)
        except UnhealthyError as reason:
            self.report.stopped = str(reason)
            return self._finish()
        wave = next_wave(self._left, concurrency=self._options.concurrency)
        taken = {place_of(each) for each in wave}
        self._left = [each for each in self._left if place_of(each) not in taken]
        return self._begin(wave)

    def _begin(self, wave: Sequence[MovedPartition]) -> State:
        """READY: record a wave with its throttle, before anything of it is done."""
        self._output.wave_begins()
        self._wave = Wave(self._kafka, self._log, self._throttle, self._output, wave)
        return State.RECORDED

    def _limit(self) -> State:
        """RECORDED: set the throttle."""
        self._wave.limit()
        return State.THROTTLED

    def _start(self) -> State:
        """THROTTLED: give Kafka the new lists."""
        self._wave.start()
        return State.STARTED

    def _wait(self) -> State:
        """STARTED: look once at what is under way."""
        return State.ENDED if self._wave.is_over() else State.STARTED

    def _clear(self) -> State:
        """ENDED: remove the throttle."""
        self._log.change(throttles=self._log.cleared(self._throttle))
        return State.CLEARED

    def _close(self) -> State:
        """CLEARED: elect preferred leaders, and record that the wave is over."""
        moved = self._wave.moved
        self._kafka.elect(map(place_of, moved))
        self._log.moved(moved)
        self._log.record((), self._log.run.throttles)
        self._output.wave_ends(self._log.run.wave, moved)
        return State.READY

    def _finish(self) -> State:
        """READY, and nothing more is begun: record how the run ended."""
        log = self._log
        self.report.left = len(self._left) + self._beyond
        if log.run.moves_total or log.seat.is_open:  # Else it stays that of the run before.
            state = MovesState.DONE if self.report.is_whole else MovesState.STOPPED
            log.record((), log.run.throttles, state=state)
        return State.OVER

    def _take_back(self) -> State:
        """CANCELLING: each list as it was before, and no throttle."""
        log, wave = self._log, {place_of(each): each for each in self._log.run.moves}
        log.record(log.run.moves, log.run.throttles, state=MovesState.CANCELLED)
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
        self.cancelled = [*cancelled]
        log.record((), log.cleared(self._throttle), state=MovesState.CANCELLED)
        return State.OVER

    def _sized(self, moves: Iterable[MovedPartition]) -> list[MovedPartition]:
        """The moves with how much there is to copy: the largest replica counts."""
        given = [*moves]
        holders = {broker for each in given if adding(each) for broker in each.before}
        alive = self._kafka.brokers().keys() if holders else ()
        sizes = self._kafka.sizes(holders.intersection(alive), map(place_of, given))
        return [
            replace(each, size_bytes=max(sizes.get(place_of(each), {0: 0}).values()))
            if adding(each)
            else each
            for each in given
        ]

    def _announce(self) -> None:
        """Say and record what is to be moved, and name what health leaves out."""
        if any(map(copied_bytes, self._left)):
            text = "whether they have leaders and replicas in sync is not looked at"
            for line in self._kafka.unseen().lines(text):
                self._output.say(f"apply: warning: {line}")
        count = sum(1 for _ in waves(self._left, concurrency=self._options.concurrency))
        self._output.planned(self._left, count)
        self._log.change(waves=self._log.run.wave + count)
        self._log.plan(self._left)

    def _require_rights(self, throttles: Sequence[ThrottleValue]) -> None:
        """Return if this user may move, and set or remove a throttle where there is one."""
        is_limited = self._options.rate is not None or bool(throttles)
        self._kafka.require_rights(is_limited=is_limited)


_ACTIONS: Final[Mapping[State, Callable[[MovesMachine], State]]] = {
    State.READY: MovesMachine._choose,
    State.RECORDED: MovesMachine._limit,
    State.THROTTLED: MovesMachine._start,
    State.STARTED: MovesMachine._wait,
    State.ENDED: MovesMachine._clear,
    State.CLEARED: MovesMachine._close,
    State.CANCELLING: MovesMachine._take_back,
}
_FAILPOINTS: Final = {  # where a test kills the process
    State.RECORDED: Failpoint.WAVE_RECORDED,
    State.THROTTLED: Failpoint.WAVE_THROTTLED,
    State.STARTED: Failpoint.WAVE_STARTED,
    State.ENDED: Failpoint.WAVE_ENDED,
    State.CLEARED: Failpoint.WAVE_CLEARED,
}
