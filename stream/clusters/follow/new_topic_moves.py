"""Moves partitions of new topics, which are still empty, to where the job has placed them."""

from __future__ import annotations

from collections.abc import Sequence

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.moves.runner import moving
from spu_assigner.stream.clusters.plan.target_cluster import Target
from spu_assigner.stream.common.daemon_threads import DaemonThread
from spu_assigner.stream.kafka.config.connection import Connection


class NewTopicMoves:
    """Moves beside the looks, in a thread: it waits for the seat of moves, and for brokers.

    A process that ends in between leaves what it has begun to the next one.

    Args:
        connection: to the watched cluster, with the prefix of the job's topics.
    """

    def __init__(self, connection: Connection, cluster_id: str) -> None:
        self._connection = connection
        self._cluster_id = cluster_id
        self._thread: DaemonThread | None = None
        self._topics: frozenset[str] = frozenset()  # of the moves that were begun last
        self._moved: list[str] = []
        self._trouble: str | None = None

    def start(self, moves: Sequence[MovedPartition]) -> None:
        """Begin, unless earlier ones are under way."""
        if moves and not self._is_running:
            self._topics = frozenset(each.topic for each in moves)
            self._thread = DaemonThread(lambda: self._run(moves), name="new-topics")
            self._thread.start()

    @property
    def under_way(self) -> frozenset[str]:
        """The topics that are being moved."""
        return self._topics if self._is_running else frozenset()

    def take(self) -> tuple[list[str], str | None]:
        """Topics that were moved since this was called last; and why others were not."""
        moved, self._moved = self._moved, []
        return moved, self._trouble

    @property
    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self, moves: Sequence[MovedPartition]) -> None:
        connection, cluster_id = self._connection, self._cluster_id
        try:
            with (
                Target(connection) as target,
                moving(
                    connection, MoveOptions(), cluster_id=cluster_id, is_quiet=True, may_copy=False
                ) as runner,
            ):
                cluster = target.look(())
                names = {each.topic for each in moves}
                empty = target.untouched(cluster, sorted(names & cluster.topics.keys()))
                report = runner.carry_out([each for each in moves if each.topic in empty])
        except AssignerError as reason:
            self._trouble = str(reason)
        else:
            self._moved += dict.fromkeys(topic for topic, _ in report.moved)
            self._trouble = report.stopped or next(iter(report.failed.values()), None)
