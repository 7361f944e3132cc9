"""`spu-assigner explain`: why replicas are where they are, from what the job published."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.kafka.config.command_options import Form, broker_options, output_option
from spu_assigner.stream.kafka.config.connection import Connection

if TYPE_CHECKING:
    from spu_assigner.core.state.cluster_state import ClusterState

PARTITIONS_SHOWN: Final = 16  # of a topic, as text; JSON has them all


@click.command()
@click.argument("cluster", metavar="CLUSTER")
@click.argument("topic", metavar="TOPIC")
@click.argument("partition", type=click.IntRange(min=0), required=False)
@output_option
@broker_options
def explain(
    *, cluster: str, topic: str, partition: int | None, output: Form, connection: Connection
) -> int:
    """Explain why the replicas of TOPIC in CLUSTER are where they are.

    Reads what the job has published, places the request again on the recorded ring, and reports
    for each replica which position of which order was read, and which SPUs were passed over and
    why: offline, leaving, saturated, on the same rack, in the list already. Of a repair or
    rebalance: the SPUs that lost and received replicas. It also reports what cannot be known.

    With --output json one line for each partition and each retained revision that set its list
    (type "explanation"; its fields are those of `simulate --explain`), or what the topic waits for
    (type "waiting").

    Exit status: 0 explained; 1 no such cluster, topic or partition.
    """
    from spu_assigner.core.explain.decisions import explain as explained
    from spu_assigner.stream.audit.cluster_report import read_topic
    from spu_assigner.stream.client.explanation import decision_json, explanation_text

    state, maps, partitions = read_topic(connection, cluster, topic, partition)
    if not partitions:
        click.echo(_waiting(state, topic, output))
        return 0
    shown = partitions if output == "json" else partitions[:PARTITIONS_SHOWN]
    for explanation in explained(state, maps, shown):
        if output == "table":
            click.echo(explanation_text(explanation))
            continue
        for decision in explanation.decisions:
            click.echo(decision_json(explanation, explanation.partition, decision))
    if left := len(partitions) - len(shown):
        click.echo(f"… {left} more (name one, or all with --output json)")
    return 0


def _waiting(state: ClusterState, topic: str, output: Form) -> str:
    """What a topic without a map waits for."""
    from spu_assigner.core.explain.decisions import why_it_waits
    from spu_assigner.stream.audit.cluster_report import waiting_fields

    waiting = state.waiting[topic]
    code, message = None, "nothing stands in its way; the next event of the cluster will serve it"
    if (refusal := why_it_waits(state, waiting)) is not None:
        code, message = refusal.code, refusal.message
    if output == "json":
        line = {"type": "waiting", "cluster_id": state.cluster_id, **waiting_fields(waiting)}
        return json.dumps({**line, "code": code, "message": message}, separators=(",", ":"))
    return (
        f"{state.cluster_id}/{topic} has no map yet: requested by {printable(waiting.cause)} "
        f"({waiting.partitions} partitions of {waiting.replication_factor} replicas, policy "
        f"{waiting.policy}), it waits as number {waiting.sequence}\n"
        f"  {'' if code is None else f'{code}: '}{message}"
    )
