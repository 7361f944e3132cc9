"""`spu-assigner topics`: create the job's topics, or say what is wrong with them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
from spu_assigner.stream.kafka.acls import ANY_TOPIC, Role
from spu_assigner.stream.kafka.config.command_options import (
    broker_options,
    load_settings,
    output_option,
)
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.topics import PARTITIONS


@click.group()
def topics() -> None:
    """Create or check the Kafka topics."""


@topics.command()
@click.option(
    "--partitions",
    type=click.IntRange(min=1, max=1_000),
    default=PARTITIONS,
    show_default=True,
    help="Of each new topic that may have several.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1, max=32),
    help="Of each new topic. [default: the broker's]",
)
@output_option
@broker_options
def create(
    partitions: int, replication_factor: int | None, output: str, connection: Connection
) -> int:
    """Create the topics that are missing, fix the settings of the others. Safe to repeat."""
    from spu_assigner.stream.kafka.topic_admin import create_topics

    report = create_topics(
        connection.client(),
        prefix=connection.prefix,
        partitions=partitions,
        replication_factor=replication_factor or -1,
    )
    done = {"created": report.created, "mended": report.repaired, "unchanged": report.unchanged}
    if output == "json":
        click.echo(json.dumps(done))
    else:
        for deed, names in done.items():
            for name in names:
                click.echo(f"{deed:<9}  {name}")
    return 0


@topics.command()
@output_option
@broker_options
def check(output: str, connection: Connection) -> int:
    """Say whether the job can start on these topics; exit status 1 if it cannot."""
    from spu_assigner.stream.kafka.errors import CREATE_TOPICS, GRANTING
    from spu_assigner.stream.kafka.topic_admin import ACCESS, find_faults

    faults = find_faults(connection.client(), prefix=connection.prefix)
    if output == "json":
        click.echo(json.dumps({"faults": [asdict(fault) for fault in faults]}))
    elif faults:
        for fault in faults:
            click.echo(str(fault))
        click.echo(f"To fix this: {GRANTING if faults[0].setting == ACCESS else CREATE_TOPICS}.")
    else:
        click.echo("All topics are as the job needs them.")
    return 1 if faults else 0


@topics.command(name="acls")
@click.option("--role", type=click.Choice([*map(str, Role)]), help="Of this role alone.")
@click.option("--principal", help="Who is given the rights. [default: User: and the role]")
@click.option("--group", default="my-group", show_default=True, help="Of a consumer of your own.")
@click.option(
    "--cluster",
    "cluster_id",
    default="my-cluster",
    show_default=True,
    help="Of a follower of brokers.",
)
@click.option(
    "--mapped-topic",
    "mapped",
    default=ANY_TOPIC,
    show_default=True,
    help="Of an applier or adopter: a topic that a replica map names, or is to; call it once for "
    "each.",
)
@output_option
@broker_options
def list_acls(
    *, role: str | None, principal: str | None, output: str, connection: Connection, **named: Any
) -> int:
    """Print the least rights of each role, as lines of kafka-acls. Asks no broker."""
    from spu_assigner.stream.kafka.acls import acls, commands

    query = load_settings({}).query_name
    for each in Role if role is None else [Role(role)]:
        given = acls(each, prefix=connection.prefix, query_name=query, **named)
        user = principal or f"User:{each}"
        if output == "json":
            for acl in given:
                click.echo(json.dumps({"role": each, "principal": user, **asdict(acl)}))
        else:
            for line in commands(given, principal=user, servers=connection.bootstrap_servers):
                click.echo(line)
    return 0
