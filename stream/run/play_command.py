"""`spu-assigner play`: the source documents' examples through a job that runs somewhere.

`run --demo` starts a job for them; this command needs none but its topics: it sends the events,
waits for their answers, and prints them beside what the documents say.
"""

from __future__ import annotations

import uuid

import click
from spu_assigner.stream.config.command_options import broker_options
from spu_assigner.stream.config.connection import Connection


@click.command()
@broker_options
def play(*, connection: Connection) -> int:
    """Play the source documents' examples through a job that runs, and compare its answers.

    Ends with 0 if every map and every answer is as expected, else with 1. It may be repeated: each
    performance has clusters of its own.
    """
    from spu_assigner.stream.kafka.topic_admin import check_topics
    from spu_assigner.stream.run.demo import Play, report
    from spu_assigner.stream.run.scenario import examples

    check_topics(connection.client(), prefix=connection.prefix)
    performance = Play(connection, examples(f"play-{uuid.uuid4().hex[:6]}."))
    click.echo(f"{performance.send()} messages sent to Kafka, waiting for their answers", err=True)
    found = performance.gather(lambda: None)
    return 0 if report(performance.examples, found) else 1
