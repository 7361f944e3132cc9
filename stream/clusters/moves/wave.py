"""One wave, from its record until all of its moves have ended or failed.

Leaders change in portions, as clients wait for them: of moves that take a leader away, a portion is
under way; preferred leaders are elected for the next portion once brokers show those before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from spu_assigner.schemas.messages.wire import MovedPartition, MovesState
from spu_assigner.stream.clusters.moves.reassigning import NOT_ALIVE, PartitionShape, Reassigner
from spu_assigner.stream.clusters.moves.run_record import RunLog, SeatTakenError
from spu_assigner.stream.clusters.moves.status import (
    MoveProgress,
    fault_text,
    place_of,
    progress_of,
    say,
)
from spu_assigner.stream.clusters.moves.throttle import (
    RefusedThrottleError,
    WaveThrottle,
    place,
    refused_text,
)
from spu_assigner.stream.clusters.moves.waves import adding, copied_bytes
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.common.quantities import bytes_text
from spu_assigner.stream.kafka.log_dirs import Partition

POLL_SECONDS: Final = 0.25
NOTED_SECONDS: Final = 5.0  # between records of how far the wave is
SHOWN_SECONDS: Final = 60.0  # between lines that say so
PORTION: Final = 50  # leaders that change at once: producers waited 4 s for 282
ELECTED_SECONDS_MAX: Final = 5.0  # until brokers show an elected leader: milliseconds
SEEN_SECONDS_MAX: Final = 30.0  # from the controller's answer to what a broker shows: milliseconds
SOURCE_SECONDS_MAX: Final = 60.0  # without a leader: a broker that restarts leads again by then


class Wave:
    """Partitions that are moved together: recorded with their throttle as soon as it is made.

    All methods raise MovesError where Kafka does not answer or this user may not.
    """

    def __init__(
        self,
        kafka: Reassigner,
        log: RunLog,
        throttle: WaveThrottle,
        moves: Sequence[MovedPartition],
        show: Callable[[str], None],
    ) -> None:
        self._kafka = kafka
        self._log = log
        self._throttle = throttle
        self._show = show
        self.moved: list[MovedPartition] = []
        self._progress = look(kafka, log, moves)  # of each, when it was recorded
        self._pending = {at: each for each in moves if (at := place_of(each)) in self._progress}
        self._to_start = [at for at in self._pending if self._progress[at] is MoveProgress.TO_START]
        self._to_elect: dict[Partition, int] = {}  # the preferred leaders of what was moved
        self._electing: frozenset[Partition] = frozenset()
        self._led: dict[Partition, float] = {}  # when each had a leader last
        # When something was under way, recorded, shown and elected last.
        self._seen = self._noted = self._shown = self._elected = time.monotonic()
        self._absent: list[int] = []  # brokers that it waits for
        unended = [
            each
            for at, each in self._pending.items()
            if self._progress[at] is not MoveProgress.DONE
        ]
        owed = log.run.throttles
        self._limits = throttle.of_wave(unended, owed)
        log.change(wave=log.run.wave + 1)
        log.record(moves, (*owed, *self._limits))

    def limit(self) -> None:
        """Set the throttle.

        Raises:
            RefusedThrottleError: if nothing of the wave is under way, nothing is left behind.
        """
        failures = self._throttle.set(self._limits)
        if not failures:
            return
        if MoveProgress.UNDER_WAY not in self._progress.values():
            refused = {at for at, reason in failures.items() if reason != NOT_ALIVE}
            log = self._log
            is_set = tuple(each for each in log.run.throttles if place(each) not in refused)
            log.change(throttles=is_set)
            log.record((), log.cleared(self._throttle))
        raise RefusedThrottleError(refused_text(failures))

    def start(self) -> None:
        """Give Kafka new lists, as many as may be under way.

        Raises:
            SeatTakenError: the moves were cancelled meanwhile; so is this wave.
        """
        leaving = {at for at, each in self._pending.items() if each.before[0] not in each.after}
        waiting = [at for at in self._to_start if at in self._pending]
        room = max(0, PORTION - len(leaving.difference(waiting)))
        self._to_start = [at for at in waiting if at in leaving][room:]
        later = frozenset(self._to_start)
        lists = {at: self._pending[at].after for at in waiting if at not in later}
        if not lists:
            return
        refused = self._kafka.reassign(lists)
        for at, reason in refused.items():
            self._drop(at, f"Kafka does not move it: {reason}; fix that and run again")
        try:
            self._log.seat.check()
        except SeatTakenError:
            latest = self._log.seat.latest
            if latest is not None and latest.state is MovesState.CANCELLED:
                self._kafka.reassign({at: None for at in lists if at not in refused})
            raise
        self._seen = time.monotonic()

    def wait(self) -> None:
        """Return once all moves have ended, with their preferred leaders, or failed."""
        while True:
            self._look()
            if not (self._pending or self._to_elect):
                return
            self.start()
            if time.monotonic() > self._noted + NOTED_SECONDS:
                self._note()
            self._log.seat.check()
            time.sleep(POLL_SECONDS)

    def _look(self) -> None:
        """Look once how far all are."""
        ongoing = self._kafka.ongoing()
        shapes = self._kafka.shapes(topic for topic, _ in (*self._pending, *self._to_elect))
        now, to_start = time.monotonic(), frozenset(self._to_start)
        self._take_back_stalled(shapes, now)
        for at, move in [*self._pending.items()]:
            progress = progress_of(move, shapes.get(at), ongoing.get(at))
            if progress is MoveProgress.UNDER_WAY:
                self._seen = now
            elif progress is MoveProgress.DONE:
                self.moved.append(self._pending.pop(at))
                self._to_elect[at] = move.after[0]
            elif at in to_start and progress in (MoveProgress.TO_START, MoveProgress.NO_SOURCE):
                pass
            elif progress is not MoveProgress.TO_START or now > self._seen + SEEN_SECONDS_MAX:
                self._drop(at, fault_text(move, progress, shapes.get(at), ongoing.get(at)))
        self._elect(shapes, now)

    def _elect(self, shapes: Mapping[Partition, PartitionShape], now: float) -> None:
        """Have the preferred leaders of the next portion elected, once the one before leads."""
        left = {
            at: broker
            for at, broker in self._to_elect.items()
            if at in shapes and shapes[at].leader != broker and broker in shapes[at].in_sync
        }
        if now < self._elected + ELECTED_SECONDS_MAX and self._electing & left.keys():
            return
        self._to_elect = {at: left[at] for at in left if at not in self._electing}
        self._electing = frozenset([*self._to_elect][:PORTION])
        self._elected = now
        self._kafka.elect(self._electing)

    def _drop(self, at: Partition, why: str) -> None:
        self._log.fail(self._pending.pop(at), why)

    def _take_back_stalled(self, shapes: Mapping[Partition, PartitionShape], now: float) -> None:
        """Take back moves that have nothing to copy from: others are not to wait for them.

        Kafka takes back none of which no replica is in sync. It is left to Kafka, which makes it
        when the broker is back.
        """
        for at in self._pending:
            if at not in self._led or (at in shapes and shapes[at].leader is not None):
                self._led[at] = now
        stalled = {
            at: move
            for at, move in self._pending.items()
            if now > self._led[at] + SOURCE_SECONDS_MAX
        }
        take_back(self._kafka, stalled)
        for at, move in stalled.items():
            self._drop(at, fault_text(move, MoveProgress.NO_SOURCE, shapes.get(at), None))

    def _note(self) -> None:
        """Record how much of the wave is there, and name brokers that it waits for."""
        pending = [*self._pending.values()]
        alive = self._kafka.brokers().keys()
        absent = sorted({broker for each in pending for broker in each.after} - alive)
        if absent and absent != self._absent:
            say(
                f"waits for brokers {listed(absent)}, which are not alive; start them, or take the "
                "wave back with `spu-assigner apply --cancel`"
            )
        self._absent = absent
        receiving = {broker for each in pending for broker in adding(each)} & alive
        sizes = self._kafka.sizes(receiving)
        copied = sum(map(copied_bytes, self.moved)) + sum(
            min(sizes.get(place_of(each), {}).get(broker, 0), each.size_bytes)
            for each in pending
            for broker in adding(each)
        )
        self._log.note(len(self.moved), copied)
        self._noted = time.monotonic()
        if self._noted > self._shown + SHOWN_SECONDS:
            self._shown = self._noted
            of = counted(len(self.moved) + len(pending), "partition")
            done = f"{len(self.moved)} of {of} moved, {bytes_text(copied)} copied"
            self._show(f"wave {self._log.run.wave:<4}{done}")


def look(
    kafka: Reassigner, log: RunLog, moves: Sequence[MovedPartition]
) -> dict[Partition, MoveProgress]:
    """How far each move is; without those that cannot be made any more, which have failed."""
    ongoing = kafka.ongoing()
    shapes = kafka.shapes(each.topic for each in moves)
    found: dict[Partition, MoveProgress] = {}
    for move in moves:
        at = place_of(move)
        progress = progress_of(move, shapes.get(at), ongoing.get(at))
        if progress in (MoveProgress.GONE, MoveProgress.OTHERS, MoveProgress.NO_SOURCE):
            log.fail(move, fault_text(move, progress, shapes.get(at), ongoing.get(at)))
        else:
            found[at] = progress
    return found


def take_back(kafka: Reassigner, moves: Mapping[Partition, MovedPartition]) -> dict[Partition, str]:
    """Cancel moves, and give their partitions the lists of before; those that Kafka refuses.

    Kafka keeps the replicas of before, not their order: the preferred leader may be another.
    """
    refused = kafka.reassign(dict.fromkeys(moves))
    shapes = kafka.shapes(topic for topic, _ in moves.keys() - refused.keys())
    kafka.reassign(
        {
            at: move.before
            for at, move in moves.items()
            if at not in refused and at in shapes and shapes[at].topic_id == move.topic_id
        }
    )
    return refused
