"""What moves ask of Kafka, kept in memory: for every moment at which a run may be killed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from spu_assigner.schemas.messages.wire import MovedPartition, MovesRun
from spu_assigner.stream.clusters.moves.reassigning import (
    NOT_ALIVE,
    Ongoing,
    PartitionShape,
    Place,
    Reassigner,
    Replicas,
    Values,
)
from spu_assigner.stream.clusters.moves.run_record import Seat
from spu_assigner.stream.kafka.log_dirs import Partition, UnseenReplicas

LOOKS = 2  # until a move that copies something has ended


def move(
    partition: int, before: Replicas, after: Replicas, size: int = 1, *, topic: str = "t"
) -> MovedPartition:
    return MovedPartition(
        topic=topic, topic_id="id", partition=partition, before=before, after=after, size_bytes=size
    )


class Killed(BaseException):
    """The process is killed here."""


class MemoryKafka(Reassigner):
    """Brokers 1 to 4 and their partitions; some are dead, and some refuse settings.

    What changes something has a moment before it and one after: at that of the number `kill_at` the
    process is killed.
    """

    def __init__(
        self,
        lists: Mapping[Partition, Replicas] | None = None,
        *,
        dead: Collection[int] = (),
        refusing: Collection[int] = (),
    ) -> None:
        self.lists = dict(lists or {})
        self.dead = {*dead}
        self.refusing = {*refusing}
        self.values: dict[Place, str | None] = {}
        self.moving: dict[Partition, tuple[Replicas, int]] = {}
        self.begun: list[Partition] = []
        self.leaders: dict[Partition, int] = {}
        self.elected: list[list[Partition]] = []  # what was asked for together
        self.steps = 0
        self.kill_at: int | None = None
        self.is_endless = False  # moves do not end

    def step(self) -> None:
        """A moment of the run."""
        self.steps += 1
        if self.steps == self.kill_at:
            raise Killed

    def brokers(self) -> dict[int, str | None]:
        return dict.fromkeys({1, 2, 3, 4} - self.dead)

    def require_rights(self, *, is_limited: bool) -> None:
        pass

    def unseen(self) -> UnseenReplicas:
        return UnseenReplicas()

    def sizes(self, brokers: Iterable[int]) -> dict[Partition, dict[int, int]]:
        return {at: dict.fromkeys({*row} & {*brokers}, 1) for at, row in self.lists.items()}

    def shapes(self, topics: Iterable[str] | None = None) -> dict[Partition, PartitionShape]:
        named = None if topics is None else {*topics}
        found = {}
        for at, row in self.lists.items():
            if named is None or at[0] in named:
                alive = tuple(broker for broker in row if broker not in self.dead)
                if alive and self.leaders.get(at) not in alive:
                    self.leaders[at] = alive[0]
                leader = self.leaders[at] if alive else None
                found[at] = PartitionShape(
                    topic_id="id", leader=leader, replicas=row, in_sync=alive
                )
        return found

    def ongoing(self) -> dict[Partition, Ongoing]:
        for at, (after, looks) in [*self.moving.items()]:
            self.moving[at] = after, looks - (not self.is_endless)
            if looks == 0:
                self.lists[at] = self.moving.pop(at)[0]
        return {
            at: Ongoing(
                replicas=(*after, *(each for each in self.lists[at] if each not in after)),
                adding=tuple(each for each in after if each not in self.lists[at]),
                removing=tuple(each for each in self.lists[at] if each not in after),
            )
            for at, (after, _) in self.moving.items()
        }

    def reassign(self, lists: Mapping[Partition, Replicas | None]) -> dict[Partition, str]:
        for at, row in lists.items():
            self.step()
            if row is None:
                self.moving.pop(at, None)
            elif {*row} <= {*self.lists[at]}:
                self.lists[at] = row
            else:
                self.moving[at] = row, LOOKS
                self.begun.append(at)
            self.step()
        return {}

    def elect(self, partitions: Iterable[Partition]) -> None:
        if asked := sorted(partitions):
            self.step()
            self.elected.append(asked)
            self.leaders |= {at: self.lists[at][0] for at in asked}
            self.step()

    def settings(self, places: Iterable[Place], *, with_defaults: bool = False) -> Values:
        return {at: self.values.get(at) for at in places if at[0] not in self.dead}

    def change(self, values: Values) -> dict[Place, str]:
        failures = {}
        for at, value in values.items():
            self.step()
            if at[0] in self.dead:
                failures[at] = NOT_ALIVE
            elif at[0] in self.refusing:
                failures[at] = "CLUSTER_AUTHORIZATION_FAILED"
            else:
                self.values[at] = value
        return failures

    @property
    def is_set(self) -> dict[Place, str]:
        """The settings that have a value."""
        return {at: value for at, value in self.values.items() if value is not None}


class MemorySeat(Seat):
    """A seat that nobody contends for, and its record."""

    def __init__(self, kafka: MemoryKafka) -> None:
        self._kafka = kafka
        self.run_id = "run"
        self.latest: MovesRun | None = None
        self.trouble: Exception | None = None  # what `check` raises

    def write(self, run: MovesRun) -> None:
        self._kafka.step()
        self.latest = replace(run, run_id=self.run_id, holder="process 7", recorded_at=1)
        self._kafka.step()

    def check(self) -> None:
        if self.trouble is not None:
            raise self.trouble
