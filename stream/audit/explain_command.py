"""`spu-assigner explain`: why replicas are where they are, from what the job published."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.common.printable import listed, printable
from spu_assigner.stream.kafka.config.command_options import (
    broker_options,
    output_option,
    with_target,
)
from spu_assigner.stream.kafka.config.connection import Connection

if TYPE_CHECKING:
    from spu_assigner.core.base.records import Status
    from spu_assigner.stream.kafka.config.command_options import Form
    from spu_assigner.stream.kafka.outputs import ClusterOutputs

PARTITIONS_SHOWN: Final = 16  # of a topic, as text; JSON has them all
_WAITING_FIELDS: Final = (
    *("kind", "sequence", "cause", "partitions", "replication_factor", "policy"),
)


class TopicUnknownError(AssignerError):
    """There is no such topic now."""

    def __init__(
        self, *, cluster_id: str, topic: str, gone: Status | None, known: list[str]
    ) -> None:
        self.cluster_id = cluster_id
        self.topic = topic
        self.gone = gone  # how it went: DELETED or RELEASED; None: it was never there
        if gone is not None:
            message = f"topic {topic!r} of cluster {cluster_id!r} is {gone}"
        else:
            message = f"no topic {topic!r} in cluster {cluster_id!r}; it has {listed(known)}"
        super().__init__(message)


class PartitionUnknownError(AssignerError):
    """The topic has no such partition."""

    def __init__(self, *, topic: str, partition: int, count: int) -> None:
        self.topic = topic
        self.partition = partition
        self.count = count
        super().__init__(f"no partition {partition} in topic {topic!r}; expected 0 to {count - 1}")


@click.command()
@click.argument("cluster", metavar="CLUSTER")
@click.argument("topic", metavar="TOPIC")
@click.argument("partition", type=click.IntRange(min=0), required=False)
@output_option
@broker_options
@with_target
def explain(
    *,
    cluster: str,
    topic: str,
    partition: int | None,
    output: Form,
    connection: Connection,
    target_connection: Connection | None,
) -> int:
    """Explain why the replicas of TOPIC in CLUSTER are where they are.

    Reads what the job has published, places the request again on the recorded ring, and reports
    for each replica which position of which order was read, and which SPUs were passed over and
    why: offline, leaving, saturated, on the same rack, in the list already. Of a repair or
    rebalance: the SPUs that lost and received replicas. It also reports what cannot be known.

    A partition that is being moved has a line; SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS names the
    Kafka cluster that has the record of the moves, if it is not the job's.

    With --output json one line for each partition and each retained revision that set its list
    (type "explanation"; its fields are those of `simulate --explain`), or what the topic waits for
    (type "waiting").

    Exit status: 0 explained; 1 no such cluster, topic or partition.
    """
    from spu_assigner.stream.kafka.outputs import read_cluster

    found = read_cluster(connection, cluster, topic)
    if not found.maps:
        click.echo(_waiting(found, cluster, topic, output))
        return 0
    newest = found.maps[-1]
    count = 0 if newest.replicas is None else len(newest.replicas)
    if partition is not None and partition >= count:
        raise PartitionUnknownError(topic=topic, partition=partition, count=count)
    partitions = range(count) if partition is None else [partition]
    _print(found, partitions, output)
    if output == "table":
        moved = connection.to_target(target_connection)
        _print_moves(moved, cluster, topic, partitions)
    return 0


def _print_moves(
    connection: Connection, cluster_id: str, topic: str, partitions: range | list[int]
) -> None:
    """A line for each partition that is being moved; none where that is not known."""
    from spu_assigner.stream.kafka.errors import ClientError
    from spu_assigner.stream.kafka.moves_record import latest_run, move_of

    run = None
    with suppress(ClientError):
        run = latest_run(connection)
    for partition in partitions:
        move = move_of(run, cluster_id, topic, partition)
        if move is not None:
            click.echo(
                f"{cluster_id}/{topic} partition {partition} is in the wave that is being moved: "
                f"{list(move.before)} → {list(move.after)}"
            )


def _print(found: ClusterOutputs, partitions: range | list[int], output: Form) -> None:
    from spu_assigner.core.explain.decisions import explain as explained
    from spu_assigner.stream.client.explanation import decision_json, explanation_text

    shown = partitions if output == "json" else partitions[:PARTITIONS_SHOWN]
    for explanation in explained(found.state, found.maps, shown):
        if output == "table":
            click.echo(explanation_text(explanation))
            continue
        for decision in explanation.decisions:
            line = decision_json(
                cluster_id=explanation.cluster_id,
                topic=explanation.topic,
                policy=explanation.policy,
                partition=explanation.partition,
                decision=decision,
            )
            click.echo(line)
    if len(shown) < len(partitions):
        click.echo(f"… {len(partitions) - len(shown)} more (name one, or all with --output json)")


def _waiting(found: ClusterOutputs, cluster_id: str, topic: str, output: Form) -> str:
    """What a topic without a map waits for.

    Raises:
        TopicUnknownError: it does not wait either.
    """
    from spu_assigner.core.explain.decisions import why_it_waits

    state = found.state
    waiting = state.waiting.get(topic)
    if waiting is None:
        known = sorted(state.topics)
        raise TopicUnknownError(cluster_id=cluster_id, topic=topic, gone=found.gone, known=known)
    refusal = why_it_waits(state, waiting)
    code = None if refusal is None else refusal.code
    message = (
        "nothing stands in its way; the next event of the cluster will serve it"
        if refusal is None
        else refusal.message
    )
    if output == "json":
        line = {
            "type": "waiting",
            "cluster_id": cluster_id,
            "topic": topic,
            **{name: getattr(waiting, name) for name in _WAITING_FIELDS},
            "code": code,
            "message": message,
        }
        return json.dumps(line, separators=(",", ":"))
    return (
        f"{cluster_id}/{topic} has no map yet: requested by {printable(waiting.cause)} "
        f"({waiting.partitions} partitions of {waiting.replication_factor} replicas, policy "
        f"{waiting.policy}), it waits as number {waiting.sequence}\n"
        f"  {'' if code is None else f'{code}: '}{message}"
    )
