"""`spu-assigner doctor`: the Kafka cluster whose topics `apply` makes, and what stands in its way.

Rights to move data, replication throttles that a move has left behind, and reassignments under way.
Nothing is changed: what is left over may be in use by others.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from spu_assigner.schemas.messages.wire import MovesRun, MovesState
from spu_assigner.stream.audit.doctor.look import DoctorLook, NotCheckedError
from spu_assigner.stream.clusters.moves.health import require_health
from spu_assigner.stream.clusters.moves.reassigning import Ongoing, Place, Reassigner
from spu_assigner.stream.clusters.moves.throttle import FOLLOWERS, LEADERS, RATES
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.connection import address
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin, UnreachableError
from spu_assigner.stream.kafka.log_dirs import Partition
from spu_assigner.stream.kafka.moves_record import is_silent, latest_run

NAMES_MAX: Final = 3


def look_at_target(look: DoctorLook) -> str:
    """Whether data can be moved there, and nothing is left of earlier moves."""
    own, given = look.start.settings.connection(), look.target_connection
    connection = given or own
    try:
        with DiagnosedAdmin(connection.client()) as admin:
            found = admin.metadata(look.start.limits)
    except UnreachableError as reason:
        look.current.add("D601", f"the target: {str(reason).partition('; ')[0]}")
        raise NotCheckedError("the target does not answer") from reason
    with Reassigner(connection) as kafka:
        moving, throttles = kafka.ongoing(), _throttles(kafka, found.brokers, found.topics)
        run = latest_run(own.to_target(given)) if moving or throttles else None
        report_moves(look, moving, throttles, run, now_ms=time.time_ns() // 1_000_000)
        lagging = require_health(kafka, ()) if look.role is Role.MOVER else 0
        kafka.require_rights(is_limited=True)
    parts = [
        f"{address(connection.client())}, {len(found.brokers)} brokers, {len(found.topics)} topics",
        f"{counted(len(moving), 'partition')} being moved" if moving else "",
        *throttles,
        counted(lagging, "under-replicated partition") if lagging else "",
    ]
    return "; ".join(filter(None, parts))


def _throttles(kafka: Reassigner, brokers: Collection[int], topics: Collection[str]) -> list[str]:
    """The limits of replication that are set: of each broker, and which topics name replicas."""
    places: list[Place] = [(broker, rate) for broker in sorted(brokers) for rate in RATES]
    places += [(topic, setting) for topic in topics for setting in (LEADERS, FOLLOWERS)]
    values = {at: value for at, value in kafka.settings(places).items() if value}
    rates: dict[int | str, list[str]] = {}
    for (at, name), value in values.items():
        if not isinstance(at, str):
            rates.setdefault(at, []).append(f"{name}={value}")
    lines = [f"broker {broker}: {', '.join(found)}" for broker, found in rates.items()]
    if limited := sorted({at for at, _ in values if isinstance(at, str)}):
        lines.append(f"replicas of topics {listed(limited, NAMES_MAX)} are limited")
    return lines


def report_moves(
    look: DoctorLook,
    moving: Mapping[Partition, Ongoing],
    throttles: Collection[str],
    run: MovesRun | None,
    *,
    now_ms: int,
) -> None:
    """Report what no running `apply --moves` does, by what it recorded last, if it did."""
    is_over = run is None or run.state is not MovesState.RUNNING or is_silent(run, now_ms=now_ms)
    begun = () if run is None else {(each.topic, each.partition) for each in run.moves}
    left = {at: each for at, each in moving.items() if at in begun}
    others = {at: each for at, each in moving.items() if at not in begun}
    if run is not None and is_over and left:
        by_whom = f"by a run of `apply --moves` for cluster {run.cluster_id!r} that ended early"
        look.current.add("D604", _moving_text(left, by_whom), _resuming(run))
    if others:
        look.current.add("D604", _moving_text(others, "not by a running `apply --moves`"))
    elif throttles and not moving:
        is_ours = run is not None and is_over and run.throttles
        look.current.add(
            "D603",
            f"no partition is being moved, and replication is limited: {'; '.join(throttles)}",
            _resuming(run) if run is not None and is_ours else "",
        )


def _resuming(run: MovesRun) -> str:
    """What to do about what a run that ended early has left, before anything by hand."""
    return (
        f"run `spu-assigner apply --moves --cluster {run.cluster_id}` to finish what it began, or "
        "`spu-assigner apply --cancel` to take it back; both remove its throttle. By hand only "
        "what is left after that"
    )


def _moving_text(moving: Mapping[Partition, Ongoing], by_whom: str) -> str:
    named = [
        f"{topic}-{number} (adding {listed(each.adding)}, removing {listed(each.removing)})"
        for (topic, number), each in sorted(moving.items(), key=lambda pair: pair[0])
    ]
    many = counted(len(moving), "partition")
    return f"{many} being moved, and {by_whom}: {listed(named, NAMES_MAX)}"
