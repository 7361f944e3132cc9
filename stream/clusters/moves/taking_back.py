"""Moves that are taken back: the lists of their partitions are as before."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.moves.reassigning import Partition, PartitionShape, Reassigner
from spu_assigner.stream.clusters.moves.status import MoveProgress, fault_text

SOURCE_SECONDS_MAX: Final = 60.0  # without a leader: a broker that restarts leads again by then


class SourceWatch:
    """Takes back moves under way that have nothing to copy from: others are not to wait for them.

    Kafka takes back none of which no replica is in sync. It is left to Kafka, which makes it when
    the broker is back. One of its kind for each wave.
    """

    def __init__(self, kafka: Reassigner) -> None:
        self._kafka = kafka
        self._led: dict[Partition, float] = {}  # when each had a leader last

    def taken_back(
        self,
        pending: Mapping[Partition, MovedPartition],
        shapes: Mapping[Partition, PartitionShape],
    ) -> dict[Partition, str]:
        """Those of the moves that were taken back now, and why.

        Raises:
            MovesError: Kafka does not answer, or this user may not.
        """
        now = time.monotonic()
        for at in pending:
            is_led = at in shapes and shapes[at].leader is not None
            self._led[at] = now if is_led else self._led.get(at, now)
        stalled = {
            at: move for at, move in pending.items() if now > self._led[at] + SOURCE_SECONDS_MAX
        }
        refused = self._kafka.reassign(dict.fromkeys(stalled)) if stalled else {}
        reorder(self._kafka, {at: move for at, move in stalled.items() if at not in refused})
        return {
            at: fault_text(move, MoveProgress.NO_SOURCE, shapes.get(at), None)
            + (_text(refused[at]) if at in refused else "")
            for at, move in stalled.items()
        }


def _text(refusal: str) -> str:
    return f"; Kafka does not take the move back ({refusal}) and makes it once there is a leader"


def reorder(kafka: Reassigner, cancelled: Mapping[Partition, MovedPartition]) -> None:
    """Give partitions of which the move was cancelled their lists of before.

    Kafka keeps the replicas of before, not their order: the preferred leader may be another.

    Raises:
        MovesError: Kafka does not answer, or this user may not.
    """
    shapes = kafka.shapes(topic for topic, _ in cancelled)
    lists = {
        at: move.before
        for at, move in cancelled.items()
        if at in shapes and shapes[at].topic_id == move.topic_id
    }
    if lists:
        kafka.reassign(lists)
