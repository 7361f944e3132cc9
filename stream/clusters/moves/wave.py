"""One wave, from its record until all of its moves have ended or failed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
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
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.kafka.log_dirs import Partition

POLL_SECONDS: Final = 0.25
NOTED_SECONDS: Final = 5.0  # between records of how far the wave is
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
    ) -> None:
        self._kafka = kafka
        self._log = log
        self._throttle = throttle
        self.moved: list[MovedPartition] = []
        self._progress = look(kafka, log, moves)  # of each, when it was recorded
        self._pending = {at: each for each in moves if (at := place_of(each)) in self._progress}
        self._led: dict[Partition, float] = {}  # when each had a leader last
        self._seen = self._noted = time.monotonic()  # something under way; when that was recorded
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
        """Give Kafka the new lists.

        Raises:
            SeatTakenError: the moves were cancelled meanwhile; so is this wave.
        """
        lists = {
            at: each.after
            for at, each in self._pending.items()
            if self._progress[at] is MoveProgress.TO_START
        }
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
        """Return once all moves have ended, or failed."""
        while True:
            self._look()
            if not self._pending:
                return
            if time.monotonic() > self._noted + NOTED_SECONDS:
                self._note()
            self._log.seat.check()
            time.sleep(POLL_SECONDS)

    def _look(self) -> None:
        """Look once how far all are."""
        ongoing = self._kafka.ongoing()
        shapes = self._kafka.shapes(topic for topic, _ in self._pending)
        now = time.monotonic()
        self._take_back_stalled(shapes, now)
        for at, move in [*self._pending.items()]:
            progress = progress_of(move, shapes.get(at), ongoing.get(at))
            if progress is MoveProgress.UNDER_WAY:
                self._seen = now
            elif progress is MoveProgress.DONE:
                self.moved.append(self._pending.pop(at))
            elif progress is not MoveProgress.TO_START or now > self._seen + SEEN_SECONDS_MAX:
                self._drop(at, fault_text(move, progress, shapes.get(at), ongoing.get(at)))

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
