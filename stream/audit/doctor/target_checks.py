"""`spu-assigner doctor`: the Kafka cluster whose topics `apply` makes, and what stands in its way.

Rights to move data, replication throttles that a move has left behind, and reassignments under way.
Nothing is changed: what is left over may be in use by somebody else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from spu_assigner.schemas.messages.wire import MovesRun, MovesState
from spu_assigner.stream.audit.doctor.checks import Check, Unchecked
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.kafka.access import allowed_operations
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.connection import Connection, address
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.connection_diagnosis import (
    DiagnosedAdmin,
    UnreachableError,
    WaitLimits,
)
from spu_assigner.stream.kafka.errors import ClientError, admin_result
from spu_assigner.stream.kafka.moves_record import is_silent, latest_run

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

# What moving data needs (Kafka 4.2, AclEntry and the admin protocol's requests).
CLUSTER_RIGHTS: Final = {
    "Alter": "reassign partitions, elect leaders",
    "AlterConfigs": "limit the rate on brokers",
    "Describe": "see reassignments and bytes",
}
TOPIC_RIGHTS: Final = {"AlterConfigs": "say which replicas are limited"}
BROKER_THROTTLES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
)
TOPIC_THROTTLES: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
TOPICS_MAX: Final = 2_000  # whose rights and throttles are looked at, in a second
TOPICS_OF_A_REQUEST: Final = 500
NAMES_MAX: Final = 3
CONNECT_SECONDS_MAX: Final = 2.0
NO_LIMIT: Final = 2**63 - 1  # Kafka's value of a rate that is not set


def check_target(check: Check, *, settings: Settings) -> None:
    """Whether data can be moved in the target, and nothing is left of earlier moves."""
    given = check.target.target_connection
    if given is None and not check.target.is_broker_named:
        raise Unchecked("no broker is named (--bootstrap-servers)")
    connection = given or settings.connection()
    left = check.seconds_left
    limits = WaitLimits(
        request=0.4 * left,
        refused=min(check.slowness, 0.2 * left),
        probe=min(CONNECT_SECONDS_MAX * check.slowness, 0.2 * left),
    )
    try:
        with DiagnosedAdmin(connection.client()) as admin:
            found = admin.metadata(limits)
            names = sorted(found.topics)
            topics = names[:TOPICS_MAX]
            if len(names) > len(topics):
                more = len(names) - len(topics)
                check.left_out.append(f"rights and throttles of {more:,} more topics")
            _check_rights(check, admin, topics)
    except UnreachableError as reason:
        if given is None:
            raise Unchecked("no broker answers") from reason
        check.report("D601", f"the target: {str(reason).partition('; ')[0]}")
        raise Unchecked("the target does not answer") from reason
    recorded = settings.connection().to_target(given)
    _check_moves(check, connection, recorded, brokers=sorted(found.brokers), topics=topics)
    if check.target.role is Role.MOVER:
        _check_health(check, connection)
    elsewhere = "" if given is None else f"{address(connection.client())}, "
    check.summary = f"{elsewhere}{check.summary}"


def _check_rights(check: Check, admin: DiagnosedAdmin, topics: Sequence[str]) -> None:
    """Whether this user may move data: of the cluster, and of topics that he may see."""
    try:
        described = admin_result(
            admin.describe_cluster(
                include_authorized_operations=True, request_timeout=check.seconds_left
            ),
            "the cluster could not be described",
        )
        allowed = {_right(each.name) for each in described.authorized_operations or ()}
        of_topics = allowed_operations(
            admin, [name for name in topics if not name.startswith("__")]
        )
    except ClientError as reason:
        check.left_out.append(f"rights to move data: {reason}")
        return
    lacking = {right: use for right, use in CLUSTER_RIGHTS.items() if right not in allowed}
    if lacking:
        uses = "; ".join(f"{right}: {use}" for right, use in lacking.items())
        check.report(
            "D602",
            f"this user may not move data: it lacks rights to the cluster ({uses})",
            f"grant {', '.join(lacking)} on the cluster (`kafka-acls --cluster`), or have another "
            "user make the moves",
        )
    short = [
        name
        for name, operations in of_topics.items()
        if operations is not None and not set(TOPIC_RIGHTS) <= set(operations)
    ]
    if short and not lacking:
        check.report(
            "D602",
            f"this user lacks AlterConfigs on {listed(short, NAMES_MAX)}: moves of them cannot be "
            "limited",
            "grant AlterConfigs on these topics, or have the moves made by another user",
        )


def _right(name: str) -> str:
    return name.title().replace("_", "")


def _recorded_run(check: Check, connection: Connection) -> MovesRun | None:
    """What `apply --moves` has recorded last; None: nothing, or it cannot be seen."""
    try:
        return latest_run(connection)
    except (ClientError, UnreachableError) as reason:
        check.left_out.append(f"which moves are those of `apply --moves`: {reason}")
        return None


def split_moves(
    moving: Mapping[Any, Any], run: MovesRun | None, *, now_ms: int
) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
    """What a run of `apply --moves` that lives is moving, and what others are."""
    ours = set()
    if run is not None and run.state is MovesState.RUNNING and not is_silent(run, now_ms=now_ms):
        ours = {(each.topic, each.partition) for each in run.moves}
    own = {at: move for at, move in moving.items() if (at.topic, at.partition) in ours}
    return own, {at: move for at, move in moving.items() if at not in own}


def _ended_early(run: MovesRun | None, *, now_ms: int) -> MovesRun | None:
    """A run of `apply --moves` that lives no more and has left something; None: there is none."""
    if run is None or not (run.moves or run.throttles):
        return None
    lives = run.state is MovesState.RUNNING and not is_silent(run, now_ms=now_ms)
    return None if lives else run


def _resuming(run: MovesRun) -> str:
    """What to do about what such a run has left, before anything by hand."""
    return (
        f"run `spu-assigner apply --moves --cluster {run.cluster_id}` to finish what it began, or "
        "`spu-assigner apply --cancel` to take it back; both remove its throttle. By hand only "
        "what is left after that"
    )


def _check_health(check: Check, connection: Connection) -> None:
    """Whether `drain`, `rebalance` and `apply --moves` would refuse to begin."""
    from spu_assigner.stream.clusters.moves.health import UnhealthyError, require_health
    from spu_assigner.stream.clusters.moves.reassigning import MovesError, Reassigner

    with Reassigner(connection) as kafka:
        try:
            lagging = require_health(kafka, ())
        except UnhealthyError as reason:
            check.report("D605", str(reason).partition("; ")[0])
        except (MovesError, ClientError) as reason:
            check.left_out.append(f"whether partitions are in sync: {reason}")
        else:
            if lagging:
                check.summary += f"; {counted(lagging, 'under-replicated partition')}"


def _check_moves(
    check: Check,
    connection: Connection,
    recorded: Connection,
    *,
    brokers: Sequence[int],
    topics: Sequence[str],
) -> None:
    """What is under way, and what is left of what was; kafka-python asks.

    Args:
        recorded: to the record of the moves, with the prefix of the job's topics.
    """
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError

    limit_ms = int(1000 * check.seconds_left / 3)
    try:
        client = KafkaAdminClient(
            request_timeout_ms=limit_ms, bootstrap_timeout_ms=limit_ms, **connection.kafka_python()
        )
        try:
            moving = client.list_partition_reassignments()
            throttles = _throttles(client, brokers, topics)
        finally:
            client.close()
    except (KafkaError, OSError, ValueError) as reason:  # ValueError: a broker it does not know.
        check.left_out.append(f"reassignments and throttles: {type(reason).__name__} {reason}")
        return
    now_ms = time.time_ns() // 1_000_000
    run = _recorded_run(check, recorded) if moving or throttles else None
    own, others = split_moves(moving, run, now_ms=now_ms)
    ended = _ended_early(run, now_ms=now_ms)
    left: Mapping[Any, Any] = {}
    if ended is not None:
        begun = {(each.topic, each.partition) for each in ended.moves}
        left = {at: move for at, move in others.items() if (at.topic, at.partition) in begun}
        others = {at: move for at, move in others.items() if at not in left}
    if ended is not None and left:
        by_whom = f"by a run of `apply --moves` for cluster {ended.cluster_id!r} that ended early"
        check.report("D604", _moving_text(left, by_whom), _resuming(ended))
    if others:
        check.report("D604", _moving_text(others, "not by a running `apply --moves`"))
    elif throttles and not moving:
        is_ours = ended is not None and bool(ended.throttles)
        check.report(
            "D603",
            f"no partition is being moved, and replication is limited: {'; '.join(throttles)}",
            _resuming(ended) if ended is not None and is_ours else None,
        )
    check.summary = f"{len(brokers)} brokers, {len(topics)} topics: nothing under way or left over"
    if moving or throttles:
        limited = "; ".join(throttles) or "no throttle"
        by_whom = f", {len(own)} of them by `apply --moves`" if own else ""
        check.summary = f"{len(moving)} partitions being moved{by_whom}; {limited}"


def _moving_text(moving: Mapping[Any, Any], by_whom: str) -> str:
    named = ", ".join(_move_text(place, move) for place, move in _first(moving))
    more = f" and {len(moving) - NAMES_MAX:,} more" if len(moving) > NAMES_MAX else ""
    return f"{counted(len(moving), 'partition')} being moved, and {by_whom}: {named}{more}"


def _first(moving: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    return islice(sorted(moving.items()), NAMES_MAX)


def _move_text(place: Any, move: Mapping[str, Sequence[int]]) -> str:
    return (
        f"{place.topic}-{place.partition} (adding {listed(move['adding_replicas'])}, removing "
        f"{listed(move['removing_replicas'])})"
    )


def _throttles(
    client: KafkaAdminClient, brokers: Sequence[int], topics: Sequence[str]
) -> list[str]:
    """The limits of replication that are set: of each broker, and how many topics name replicas."""
    from kafka.admin import ConfigResource, ConfigResourceType

    def described(kind: Any, names: Sequence[object], keys: Sequence[str]) -> dict[str, Any]:
        asked = [ConfigResource(kind, str(name), dict.fromkeys(keys)) for name in names]
        found = client.describe_configs(asked, config_filter="all").get(kind.name.lower(), {})
        return {
            name: {key: entry["value"] for key, entry in entries.items() if entry["value"]}
            for name, entries in found.items()
        }

    lines = []
    rates = described(ConfigResourceType.BROKER, brokers, BROKER_THROTTLES)
    for broker in brokers:
        values = {
            key: value for key, value in rates.get(str(broker), {}).items() if int(value) < NO_LIMIT
        }
        if values:
            shown = ", ".join(f"{key}={value}" for key, value in sorted(values.items()))
            lines.append(f"broker {broker}: {shown}")
    limited: list[str] = []
    for first in range(0, len(topics), TOPICS_OF_A_REQUEST):
        names = topics[first : first + TOPICS_OF_A_REQUEST]
        found = described(ConfigResourceType.TOPIC, names, TOPIC_THROTTLES)
        limited += [name for name in names if found.get(name)]
    if limited:
        lines.append(f"replicas of topics {listed(limited, NAMES_MAX)} are limited")
    return lines
