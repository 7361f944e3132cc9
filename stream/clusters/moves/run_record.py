"""The record of the run in Kafka, and the seat: one process at a time moves partitions.

Rules: the record is one key of `applied-topics`, in the Kafka cluster of the moved partitions. Who
moves is a member of a group with one leader, so that a second process is refused while the first
one lives. The group alone is no lock: whoever has the seat writes under one transactional id, which
fences an older process; that one sees the other's record before it does anything more.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, Final, Self

from spu_assigner.schemas.messages.codec import encode_record
from spu_assigner.schemas.messages.wire import (
    MOVES_KEY,
    MovedPartition,
    MovesRun,
    MovesState,
    ThrottleValue,
)
from spu_assigner.stream.clusters.moves.reassigning import MovesError
from spu_assigner.stream.clusters.moves.status import MovesReport, place_of, say
from spu_assigner.stream.clusters.moves.throttle import WaveThrottle, place
from spu_assigner.stream.clusters.moves.waves import copied_bytes
from spu_assigner.stream.common.quantities import now_ms
from spu_assigner.stream.kafka.acls import Role, mover_name
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.election import SESSION_SECONDS, LeaderElection
from spu_assigner.stream.kafka.errors import ClientError
from spu_assigner.stream.kafka.fenced_producer import FencedProducer, OvertakenError
from spu_assigner.stream.kafka.moves_record import newest_run
from spu_assigner.stream.kafka.topic_admin import make_seen, require_access
from spu_assigner.stream.kafka.topics import APPLIED_TOPICS, topic_name

GROUP_SECONDS_MAX: Final = 30.0  # brokers wait some seconds for more members of a new group
SILENT_SECONDS: Final = SESSION_SECONDS + 4.0  # one that was killed is out of the group by then
POLL_SECONDS: Final = 0.1
FAILURES_MAX: Final = 10  # that are recorded; the command shows all


class SeatTakenError(MovesError):
    """Another process moves partitions."""


class Seat:
    """The right to move partitions of a Kafka cluster, and the record of what is moved.

    Let go at the end of a `with`. All methods raise SeatTakenError where another process has the
    seat, MovesError where a right is missing, and what `FencedProducer` raises.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._name = mover_name(prefix=connection.prefix)
        self._topic = topic_name(APPLIED_TOPICS, prefix=connection.prefix)
        self._election: LeaderElection | None = None
        self._reader: Reader | None = None
        self._producer: Any = None  # a FencedProducer, once the seat is taken
        self._opened = ExitStack()
        self.run_id = uuid.uuid4().hex[:16]
        self.latest: MovesRun | None = None  # None: nothing was ever moved

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def sit(self) -> None:
        """Take the seat if it is free."""
        self.look()
        self._election = election = LeaderElection(
            self._connection, group=self._name, topic=APPLIED_TOPICS, role=Role.MOVER
        )
        self._opened.callback(election.close)
        deadline = time.monotonic() + GROUP_SECONDS_MAX
        while not election.is_mine:
            election.poll(POLL_SECONDS)
            now = time.monotonic()
            if election.is_mine is False:  # Another process leads, or was killed just now.
                deadline = min(deadline, now + SILENT_SECONDS)
            if now > deadline:
                raise self._taken()
        self.take_over()

    def take_over(self) -> None:
        """Take the seat from the process that has it: it is fenced, sees so, and ends.

        What that process has recorded last is read then.
        """
        reader = self.look()
        self._producer = FencedProducer(self._connection, self._name, Role.MOVER)
        self._opened.callback(self._producer.close)
        self.latest = newest_run(reader.drain_messages(), self.latest)

    @property
    def is_open(self) -> bool:
        """Whether the record is of a run that has not ended."""
        return self.latest is not None and self.latest.state is MovesState.RUNNING

    def write(self, run: MovesRun) -> None:
        """Record this, under this run's id."""
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        run = replace(run, run_id=self.run_id, holder=holder, recorded_at=now_ms())
        try:
            self._producer.send(APPLIED_TOPICS, [(MOVES_KEY, encode_record(run))])
        except OvertakenError:
            deadline = time.monotonic() + SILENT_SECONDS
            while time.monotonic() < deadline:
                self.check()  # It says who has taken over, once that process has recorded it.
            raise
        self.latest = run

    def check(self) -> None:
        """Return if this process still has the seat; to be called often."""
        if self._election is not None:
            self._election.poll(0)
        if self._reader is not None:
            self.latest = newest_run(self._reader.messages(0.01), self.latest)
        if self.latest is not None and self.latest.run_id != self.run_id:
            is_cancelled = self.latest.state is MovesState.CANCELLED
            cancelled = f"the moves were cancelled by {self.latest.holder}; nothing goes on"
            raise SeatTakenError(cancelled) if is_cancelled else self._taken()

    def look(self) -> Reader:
        """Read the record, once; the topic is made if it is not there."""
        if self._reader is not None:
            return self._reader
        with DiagnosedAdmin(self._connection.client()) as admin:
            present = admin.metadata().topics
            require_access(admin, Role.MOVER, prefix=self._connection.prefix)
            if self._topic not in present:
                make_seen(admin, APPLIED_TOPICS, prefix=self._connection.prefix)
        reader = self._reader = self._opened.enter_context(
            Reader(self._connection, [APPLIED_TOPICS], from_beginning=True)
        )
        self.latest = newest_run(reader.drain_messages())
        return reader

    def _taken(self) -> SeatTakenError:
        run = self.latest
        who = f" ({run.holder})" if run is not None and self.is_open else ""
        return SeatTakenError(
            f"another process moves partitions{who}; wait for its end, or "
            "cancel what it moves with `spu-assigner apply --cancel`"
        )


class RunLog:
    """What a run has done: its record, and its report for the command that runs it."""

    def __init__(self, seat: Seat, cluster_id: str) -> None:
        self.seat = seat
        self.run = begun_run(cluster_id)
        self.report = MovesReport()
        self._inherited: frozenset[int | str] = frozenset()  # brokers and topics

    def change(self, **values: Any) -> None:
        """Set fields of what is recorded next."""
        self.run = replace(self.run, **values)

    def plan(self, moves: Sequence[MovedPartition]) -> None:
        """So much more is to be moved."""
        self._add("total", moves)

    def moved(self, moves: Sequence[MovedPartition]) -> None:
        """These have been moved."""
        self._add("done", moves)
        self.report.moved += map(place_of, moves)

    def fail(self, move: MovedPartition, why: str) -> None:
        """This is not moved."""
        at = place_of(move)
        if at not in self.report.failed:
            self._add("failed", (move,))
        self.report.failed[at] = why

    def _add(self, what: str, moves: Sequence[MovedPartition]) -> None:
        count, size = getattr(self.run, f"moves_{what}"), getattr(self.run, f"bytes_{what}")
        size += sum(map(copied_bytes, moves))
        self.change(**{f"moves_{what}": count + len(moves), f"bytes_{what}": size})

    def cleared(self, throttle: WaveThrottle) -> tuple[ThrottleValue, ...]:
        """Remove the throttle that is recorded; what could not be removed."""
        left, lines = throttle.remove(self.run.throttles)
        self.report.throttles = [
            line for where, line in lines.items() if where not in self._inherited
        ]
        return left

    def inherit(self) -> None:
        """Take what a run before has left, and could not be removed now, for no fault of this."""
        for line in self.report.throttles:
            say(line)
        self._inherited = frozenset(place(each)[0] for each in self.run.throttles)
        self.report.throttles = []

    def record(
        self,
        moves: Sequence[MovedPartition],
        throttles: Sequence[ThrottleValue],
        *,
        state: MovesState = MovesState.RUNNING,
    ) -> None:
        """Record which moves are under way, and the settings that are set, or about to be."""
        report = self.report
        failed = [f"{topic}-{number}: {why}" for (topic, number), why in report.failed.items()]
        stopped = [f"not begun: {report.stopped}"] if report.stopped else []
        faults = (*stopped, *report.throttles, *failed[:FAILURES_MAX])
        self.change(
            moves=tuple(moves),
            throttles=tuple(throttles),
            state=state,
            failures=faults or self.run.failures,
        )
        self.seat.write(self.run)

    def note(self, moved: int, size: int) -> None:
        """Record how much of a wave is done, if that can be done now.

        What is missed here is seen elsewhere: `Seat.check` finds who has taken the seat.
        """
        run = self.run
        done, size = run.moves_done + moved, run.bytes_done + size
        with suppress(ClientError, OvertakenError):
            self.seat.write(replace(run, moves_done=done, bytes_done=size))


def begun_run(cluster_id: str) -> MovesRun:
    """A run that has done nothing yet."""
    return MovesRun(
        cluster_id=cluster_id,
        run_id="",
        holder="",
        state=MovesState.RUNNING,
        recorded_at=0,
        began_at=now_ms(),
    )
