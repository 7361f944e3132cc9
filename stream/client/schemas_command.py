"""`spu-assigner schemas`: the messages' schemas in a Schema Registry."""

from __future__ import annotations

import json
import os

import click
from spu_assigner.stream.kafka.config.command_options import output_option


@click.group()
def schemas() -> None:
    """Put the messages' schemas into a Schema Registry.

    The product needs none. A reader's deserializer may: it then finds each schema under the id that
    messages carry. Credentials: SPU_ASSIGNER_REGISTRY_AUTH=user:password; other authorities for
    https: SSL_CERT_FILE.
    """


@schemas.command()
@click.argument("url")
@output_option
def publish(url: str, output: str) -> int:
    """Put what is missing into the registry at URL. Safe to repeat.

    Each subject is put into mode IMPORT and back to READWRITE, so that ids can be given. Nothing is
    changed where an id of ours belongs to another schema.
    """
    from spu_assigner.stream.client import registry_publish

    client = registry_publish.SchemaRegistryClient(url, os.environ)
    missing, present = registry_publish.publish(client)
    by_state = {"published": missing, "unchanged": present}
    if output == "json":
        click.echo(json.dumps({state: [each.id for each in by_state[state]] for state in by_state}))
    else:
        for state, entries in by_state.items():
            for entry in entries:
                click.echo(f"{state:<9}  {entry.id:>3}  {entry.type_name} version {entry.version}")
    return 0
