"""Carrying moves out: wave by wave, each recorded before it is begun.

    runner.resume()                  # finish what a run that was killed has left
    report = runner.carry_out(moves)

A wave: record it with its throttle; set the throttle; give Kafka the new lists; wait; remove the
throttle; elect preferred leaders; record that it is over. Killed anywhere, the next run finds the
record, compares it with Kafka, and finishes what is under way, step by step the same: whatever was
done already is seen to be done. Before each wave the cluster is looked at; nothing that Kafka does
not move yet is begun without that.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from spu_assigner.schemas.messages.wire import MovedPartition, MovesRun, MovesState, ThrottleValue
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.moves.progress import MovesOutput
from spu_assigner.stream.clusters.moves.reassigning import MovesError, Partition, Reassigner
from spu_assigner.stream.clusters.moves.run_record import Seat, SeatTakenError, begun_run
from spu_assigner.stream.clusters.moves.status import (
    BEYOND_LIMIT,
    MoveProgress,
    MovesReport,
    fault_text,
    place_of,
    progresses_of,
)
from spu_assigner.stream.clusters.moves.taking_back import SourceWatch, reorder
from spu_assigner.stream.clusters.moves.throttle import place
from spu_assigner.stream.clusters.moves.wave_guards import (
    RefusedThrottleError,
    UnhealthyError,
    WaveThrottle,
    require_health,
)
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

POLL_SECONDS: Final = 0.25
COPIED_SECONDS: Final = 1.0  # between looks at the sizes of what is being copied
SEEN_SECONDS_MAX: Final = 30.0  # from the controller's answer to what a broker shows: milliseconds
NOTED_SECONDS: Final = 5.0  # between records of how far a wave is
FAILURES_MAX: Final = 10  # that are recorded; the command shows all
CANCEL_SECONDS_MAX: Final = 4.0
CANCEL_QUIET_SECONDS: Final = 0.5  # a run that was overtaken may just have started some


class MovesRunner:
    """One process that moves partitions; it has the seat."""

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
        self._seat = seat
        self._options = options
        self._output = output
        self._armed = armed
        self._throttle = WaveThrottle(
            kafka, output, rate=options.rate, force=options.force, forgotten=options.forgotten
        )
        self._run = begun_run(cluster_id)
        self._noted = 0.0  # when it was recorded last how far a wave is
        self._absent: list[int] = []  # brokers that a wave waits for
        self.report = MovesReport()

    @property
    def under_way(self) -> int:
        """How many moves Kafka has under way, or is about to."""
        return len(self._run.moves)

    def resume(self) -> None:
        """Finish the wave, and remove the throttle, that a run which was killed has left.

        What Kafka does not move yet is not begun here: the next plan has it, and `carry_out` looks
        at the cluster first.

        Raises:
            MovesError, ClientError: it cannot be done now; all stays recorded.
        """
        left = self._seat.latest
        if left is None or not (left.moves or left.throttles):
            return
        self._require_rights(left.throttles)
        number = left.wave - bool(left.moves)
        self._run = replace(self._run, throttles=left.throttles, wave=number, waves=left.wave)
        if left.state is MovesState.CANCELLED:
            begun = self._run
            self._output.say("apply: an `apply --cancel` broke off; it is finished first")
            self.cancel(left)
            self._run = replace(begun, throttles=self._run.throttles)
            return
        states = self._states(left.moves)
        wave = [each for each in left.moves if states[place_of(each)] is not MoveProgress.TO_START]
        self._run = replace(
            self._run,
            moves_total=len(wave),
            bytes_total=sum(map(copied_bytes, wave)),
        )
        self._output.resumed(left, not_begun=len(left.moves) - len(wave))
        if not wave or self._throttle.is_another_rate(left.throttles):
            self._record(wave, self._cleared())
        if wave:
            self._wave(wave, states)

    def carry_out(
        self, moves: Sequence[MovedPartition], *, bytes_max: int | None = None
    ) -> MovesReport:
        """Move these partitions; what became of them, and of a wave that was resumed.

        Args:
            bytes_max: to be copied; what would be more is not begun. None: no limit.

        Raises:
            UnhealthyError: the cluster is not healthy; nothing was begun.
            MovesError, ClientError: Kafka does not answer, or a right is missing; what is under
                way stays recorded, for the next run.
        """
        left = in_order(self._sized(moves))
        beyond = 0 if bytes_max is None else len(left) - len(first_within(left, bytes_max))
        if beyond:
            del left[-beyond:]
            self.report.stopped = BEYOND_LIMIT
        planned = {place_of(each) for each in left}
        if left:
            self._require_rights(self._run.throttles)
            self._require_health(planned, copies=0)
            self._warn_of_unseen(left)
            self._announce(left)
        while left:
            brokers = self._kafka.brokers()
            for move in [each for each in left if not brokers.keys() >= {*each.after}]:
                absent = sorted({*move.after} - brokers.keys())
                self._fail(
                    move,
                    f"its list names brokers {listed(absent)}, which are not alive; start them, or "
                    "decommission them, and run again",
                )
            left = [each for each in left if place_of(each) not in self.report.failed]
            if not left:
                break
            try:
                wave = self._next(left, planned)
            except UnhealthyError as reason:
                self.report.stopped = str(reason)
                break
            taken = {place_of(each) for each in wave}
            left = [each for each in left if place_of(each) not in taken]
            self._wave(wave, self._states(wave))
        self.report.left = len(left) + beyond
        if self._run.moves_total or self._seat.is_open:  # Else it stays that of the run before.
            state = MovesState.DONE if self.report.is_whole else MovesState.STOPPED
            self._record((), self._run.throttles, state=state)
        self._output.end()
        return self.report

    def cancel(self, run: MovesRun) -> list[Partition]:
        """Take back what is under way of a recorded wave: each list is as it was before.

        Returns the partitions that were under way. What was moved by then stays.

        Raises:
            MovesError, ClientError: Kafka does not answer, or refuses.
        """
        self._run = replace(run, state=MovesState.CANCELLED)
        self._record(run.moves, run.throttles, state=MovesState.CANCELLED)
        places = {place_of(each): each for each in run.moves}
        cancelled: dict[Partition, MovedPartition] = {}
        refused: dict[Partition, str] = {}
        deadline = time.monotonic() + CANCEL_SECONDS_MAX
        quiet_since = time.monotonic()
        while time.monotonic() < min(deadline, quiet_since + CANCEL_QUIET_SECONDS):
            ongoing = self._kafka.ongoing()
            ours = {
                at: move
                for at, move in places.items()
                if at in ongoing and ongoing[at].target == move.after
            }
            refused = self._kafka.reassign(dict.fromkeys(ours)) if ours else {}
            if ours:
                cancelled |= ours
                quiet_since = time.monotonic()
            time.sleep(POLL_SECONDS / 5)
        if refused:
            (topic, number), why = next(iter(refused.items()))
            raise MovesError(
                f"Kafka does not cancel {counted(len(refused), 'move')} ({topic}-{number}: {why}); "
                "check that the brokers of the lists of before run, and run this again"
            )
        reorder(self._kafka, cancelled)
        self._record((), self._cleared(), state=MovesState.CANCELLED)
        return list(cancelled)

    def _sized(self, moves: Sequence[MovedPartition]) -> list[MovedPartition]:
        """The moves with how much there is to copy: the largest replica counts."""
        sizes: dict[Partition, int] = {}
        if copies := [place_of(each) for each in moves if adding(each)]:
            for (_, topic, number), size in self._kafka.sizes(copies).items():
                sizes[topic, number] = max(sizes.get((topic, number), 0), size)
        return [replace(each, size_bytes=sizes.get(place_of(each), 0)) for each in moves]

    def _announce(self, moves: Sequence[MovedPartition]) -> None:
        count = sum(1 for _ in waves(moves, concurrency=self._options.concurrency))
        self._output.planned(moves, count)
        self._run = replace(
            self._run,
            waves=self._run.wave + count,
            moves_total=self._run.moves_total + len(moves),
            bytes_total=self._run.bytes_total + sum(map(copied_bytes, moves)),
        )

    def _next(
        self, left: Sequence[MovedPartition], planned: Collection[Partition]
    ) -> list[MovedPartition]:
        """The next wave, if the cluster bears it.

        Raises:
            UnhealthyError: it does not.
        """
        copies = int(bool(adding(left[0])))
        lagging = self._require_health(planned, copies=copies)
        most = self._options.under_replicated_max
        copies_max = None if most is None else most - lagging
        return next_wave(left, concurrency=self._options.concurrency, copies_max=copies_max)

    def _require_rights(self, throttles: Sequence[ThrottleValue]) -> None:
        """Return if this user may move, and set or remove a throttle where there is one."""
        is_limited = self._options.rate is not None or bool(throttles)
        self._kafka.require_rights(is_limited=is_limited)

    def _require_health(self, planned: Collection[Partition], *, copies: int) -> int:
        options = self._options
        return require_health(
            self._kafka,
            planned,
            copies=copies,
            under_replicated_max=options.under_replicated_max,
            force=options.force,
        )

    def _warn_of_unseen(self, moves: Sequence[MovedPartition]) -> None:
        """Name what health leaves out, once and where something is copied."""
        if any(map(copied_bytes, moves)):
            text = "whether they have leaders and replicas in sync is not looked at"
            for line in self._kafka.unseen().lines(text):
                self._output.say(f"apply: warning: {line}")

    def _wave(
        self, wave: Sequence[MovedPartition], states: Mapping[Partition, MoveProgress]
    ) -> None:
        """Carry out one wave, or what is under way of it."""
        self._output.wave_begins()
        number = self._run.wave + 1
        self._run = replace(self._run, wave=number)
        left = [each for each in wave if states[place_of(each)] in _NOT_ENDED]
        recorded = self._run.throttles
        throttles = self._throttle.of_wave(left, recorded)
        self._record(wave, throttles)
        self._armed.reach(Failpoint.WAVE_RECORDED, number)
        is_moving = any(state is MoveProgress.UNDER_WAY for state in states.values())
        self._set_throttle(throttles if left else (), recorded, is_moving=is_moving)
        self._armed.reach(Failpoint.WAVE_THROTTLED, number)
        self._start([each for each in left if states[place_of(each)] is MoveProgress.TO_START])
        self._armed.reach(Failpoint.WAVE_STARTED, number)
        moved = self._wait([each for each in wave if place_of(each) not in self.report.failed])
        self._armed.reach(Failpoint.WAVE_ENDED, number)
        throttles = self._cleared()
        self._armed.reach(Failpoint.WAVE_CLEARED, number)
        if self._options.elect:
            self._kafka.elect(map(place_of, moved))
        self.report.moved += map(place_of, moved)
        self._run = replace(
            self._run,
            moves_done=self._run.moves_done + len(moved),
            bytes_done=self._run.bytes_done + sum(map(copied_bytes, moved)),
        )
        self._record((), throttles)
        self._output.wave_ends(number, moved)

    def _set_throttle(
        self,
        throttles: Sequence[ThrottleValue],
        recorded: Sequence[ThrottleValue],
        *,
        is_moving: bool,
    ) -> None:
        """Set the throttle of a wave; `recorded` is what was recorded before it.

        Raises:
            RefusedThrottleError: if nothing of the wave is under way, nothing is left behind.
        """
        try:
            self._throttle.set(throttles, recorded)
        except RefusedThrottleError as refused:
            if not is_moving:
                is_set = [each for each in throttles if place(each) not in refused.places]
                self._run = replace(self._run, throttles=tuple(is_set))
                self._record((), self._cleared())
            raise

    def _start(self, wave: Sequence[MovedPartition]) -> None:
        """Give Kafka the new lists.

        Raises:
            SeatTakenError: the moves were cancelled meanwhile; so is this wave.
        """
        lists = {place_of(each): each.after for each in wave}
        failures = self._kafka.reassign(lists)
        for move in [each for each in wave if place_of(each) in failures]:
            reason = failures[place_of(move)]
            self._fail(move, f"Kafka does not move it: {reason}; fix that and run again")
        try:
            self._seat.check()
        except SeatTakenError:
            latest = self._seat.latest
            if latest is not None and latest.state is MovesState.CANCELLED:
                self._kafka.reassign({at: None for at in lists if at not in failures})
            raise

    def _wait(self, wave: Sequence[MovedPartition]) -> list[MovedPartition]:
        """Wait until all moves of the wave have ended; those that were made."""
        pending = {place_of(each): each for each in wave}
        moved: list[MovedPartition] = []
        seen = looked = time.monotonic()
        sources = SourceWatch(self._kafka)
        while True:
            ongoing = self._kafka.ongoing()
            shapes = self._kafka.shapes(topic for topic, _ in pending)
            states = progresses_of(pending.values(), shapes, ongoing)
            now = time.monotonic()
            if MoveProgress.UNDER_WAY in states.values():
                seen = now
            for at, why in sources.taken_back(pending, shapes).items():
                self._fail(pending.pop(at), why)
            for at, state in states.items():
                if at not in pending:
                    continue
                is_lost = state is MoveProgress.TO_START and now > seen + SEEN_SECONDS_MAX
                if state is MoveProgress.DONE:
                    moved.append(pending.pop(at))
                elif is_lost or state not in _NOT_ENDED:
                    move = pending.pop(at)
                    self._fail(move, fault_text(move, state, shapes.get(at), ongoing.get(at)))
            if not pending:
                return moved
            if now > looked + COPIED_SECONDS:
                self._show_copied(list(pending.values()), moved)
                looked = time.monotonic()
            self._seat.check()
            time.sleep(POLL_SECONDS)

    def _fail(self, move: MovedPartition, why: str) -> None:
        at = place_of(move)
        if at not in self.report.failed:
            self._run = replace(
                self._run,
                moves_failed=self._run.moves_failed + 1,
                bytes_failed=self._run.bytes_failed + copied_bytes(move),
            )
        self.report.failed[at] = why

    def _states(self, wave: Sequence[MovedPartition]) -> dict[Partition, MoveProgress]:
        """How far each move is; what cannot be moved any more is reported."""
        ongoing = self._kafka.ongoing()
        shapes = self._kafka.shapes(each.topic for each in wave)
        states = progresses_of(wave, shapes, ongoing)
        for move in wave:
            at = place_of(move)
            if states[at] in _NEVER_BEGUN:
                self._fail(move, fault_text(move, states[at], shapes.get(at), ongoing.get(at)))
        return states

    def _show_copied(
        self, pending: Sequence[MovedPartition], moved: Sequence[MovedPartition]
    ) -> None:
        alive = self._kafka.brokers()
        absent = sorted({broker for each in pending for broker in each.after} - alive.keys())
        if absent and absent != self._absent:
            self._output.say(
                f"apply: waits for brokers {listed(absent)}, which are not alive; start them, or "
                "take the wave back with `spu-assigner apply --cancel`"
            )
        self._absent = absent
        brokers = sorted({broker for each in pending for broker in adding(each)} & alive.keys())
        sizes = self._kafka.sizes([*map(place_of, pending)], brokers) if brokers else {}
        copied = sum(
            min(sizes.get((broker, *place_of(each)), 0), each.size_bytes)
            for each in pending
            for broker in adding(each)
        )
        copied += sum(map(copied_bytes, moved))
        self._output.copied(copied)
        if time.monotonic() > self._noted + NOTED_SECONDS:
            done = replace(
                self._run,
                moves_done=self._run.moves_done + len(moved),
                bytes_done=self._run.bytes_done + copied,
            )
            self._seat.note(done)
            self._noted = time.monotonic()

    def _cleared(self) -> tuple[ThrottleValue, ...]:
        """Remove the throttle that is recorded; what could not be removed."""
        left, self.report.throttles = self._throttle.remove(self._run.throttles)
        return left

    def _record(
        self,
        moves: Sequence[MovedPartition],
        throttles: Sequence[ThrottleValue],
        *,
        state: MovesState = MovesState.RUNNING,
    ) -> None:
        failed = [f"{topic}-{number}: {why}" for (topic, number), why in self.report.failed.items()]
        stopped = [f"not begun: {self.report.stopped}"] if self.report.stopped else []
        faults = (*stopped, *self.report.throttles, *failed[:FAILURES_MAX])
        self._run = replace(
            self._run,
            moves=tuple(moves),
            throttles=tuple(throttles),
            state=state,
            failures=faults or self._run.failures,
        )
        self._seat.write(self._run)


_NOT_ENDED: Final = (MoveProgress.TO_START, MoveProgress.UNDER_WAY)
_NEVER_BEGUN: Final = (MoveProgress.GONE, MoveProgress.OTHERS, MoveProgress.NO_SOURCE)
