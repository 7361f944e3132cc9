"""`spu-assigner watch`: what the job answers, as it comes."""

from __future__ import annotations

from typing import Final

import click
from spu_assigner.stream.kafka.config.command_options import Form, broker_options, output_option
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.topics import DEAD_LETTER, REPLICA_MAP, RING_EVENTS, TOPIC_STATUS

TOPICS: Final = {
    "maps": REPLICA_MAP,
    "status": TOPIC_STATUS,
    "ring": RING_EVENTS,
    "dead-letters": DEAD_LETTER,
}
PROBE_SECONDS: Final = 5.0  # between looks whether the topics are still the same


def _topics(_ctx: click.Context, _parameter: click.Parameter, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",")]
    if unknown := [name for name in names if name not in TOPICS]:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(TOPICS)}")
    return [TOPICS[name] for name in dict.fromkeys(names)]


@click.command()
@click.option("--cluster", "cluster_id", help="Show this cluster alone.")
@click.option("--from-beginning", is_flag=True, help="Begin with what the topics still hold.")
@click.option(
    "--topics",
    default=",".join(TOPICS),
    callback=_topics,
    show_default=True,
    metavar="LIST",
    help="What to show.",
)
@click.option("--count", type=click.IntRange(min=1), help="End after so many.")
@output_option
@broker_options
def watch(
    *,
    cluster_id: str | None,
    from_beginning: bool,
    topics: list[str],
    count: int | None,
    output: Form,
    connection: Connection,
) -> int:
    """Show replica maps and answers as they come; committed ones only. Ctrl-C ends it."""
    from spu_assigner.stream.client.rendering import received_line
    from spu_assigner.stream.kafka.client import Reader

    shown = 0
    with Reader(connection, topics, from_beginning=from_beginning) as reader:
        click.echo("watching; Ctrl-C ends it", err=True)
        while True:
            reader.probe(PROBE_SECONDS)  # A broker that does not answer is waited for.
            answers = reader.poll()
            while reader.passed_over:
                click.echo(f"warning: {reader.passed_over.pop(0)}", err=True)
            for received in answers:
                # A key is the cluster, or cluster/topic; neither name holds a slash.
                if cluster_id in (None, received.key.partition("/")[0]):
                    click.echo(received_line(received, output))
                    shown += 1
                    if shown == count:
                        return 0
