"""One run that moves partitions, from taking the seat to letting it go."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from spu_assigner.stream.clusters.moves.health import require_health
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.moves.reassigning import MovesError, Reassigner
from spu_assigner.stream.clusters.moves.run_record import Seat, SeatTakenError
from spu_assigner.stream.clusters.moves.runner import MovesRunner
from spu_assigner.stream.clusters.moves.status import say
from spu_assigner.stream.clusters.moves.waves import copied_bytes
from spu_assigner.stream.common.printable import counted
from spu_assigner.stream.job.failpoints import armed
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.log_dirs import Partition


@contextmanager
def moving(
    connection: Connection,
    options: MoveOptions,
    *,
    cluster_id: str,
    is_quiet: bool = False,
    may_copy: bool = True,
) -> Iterator[MovesRunner]:
    """A runner that has the seat, and has finished what a run before has left.

    Args:
        connection: to the Kafka cluster of the partitions, with the prefix of the job's topics.
        is_quiet: print no lines of waves.
        may_copy: finish what a run before has left, also if it copies something; else an error.

    Raises:
        SeatTakenError: another process moves partitions, or has left some.
        MovesError, ClientError: Kafka does not answer, or a right is missing.
    """
    with Reassigner(connection) as kafka, Seat(connection) as seat:
        seat.sit()
        left = seat.latest
        if not may_copy and left is not None and any(map(copied_bytes, left.moves)):
            raise SeatTakenError(
                f"{left.holder} has left moves unfinished; finish them with `spu-assigner apply "
                "--moves`, or take them back with `spu-assigner apply --cancel`"
            )
        runner = MovesRunner(
            kafka, seat, options, cluster_id=cluster_id, armed=armed(), is_quiet=is_quiet
        )
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
    """Return if moves could begin now: for who changes something before he moves.

    Args:
        planned: the partitions that are to be moved, as far as that is known.

    Raises:
        UnhealthyError: the cluster is not healthy.
        SeatTakenError: another process moves partitions.
        MovesError, ClientError: Kafka does not answer, or a right is missing.
    """
    with Reassigner(connection) as kafka:
        kafka.require_rights(is_limited=options.rate is not None)
        require_health(kafka, planned, force=options.force)
    with Seat(connection) as seat:
        seat.sit()


def cancel(
    connection: Connection, options: MoveOptions, *, cluster_id: str = ""
) -> tuple[str, list[str]]:
    """Take back what a run has under way, be it alive or not; a line, and what is left to do.

    Args:
        cluster_id: whose run is meant; empty: whosoever it is.

    Raises:
        MovesError, ClientError: the run is another cluster's, Kafka does not answer, or a right is
            missing.
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
        runner = MovesRunner(kafka, seat, options, cluster_id=run.cluster_id, armed=armed({}))
        cancelled = runner.cancel(run)
        what = f"cancelled {counted(len(cancelled), 'move')}, their lists are as before"
        if not cancelled:
            what = "no move of the run was under way; what it had not begun stays as it was"
        left = runner.report.throttles
        return what + (", and the throttle is removed" if run.throttles and not left else ""), left
