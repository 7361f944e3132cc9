"""`spu-assigner schemas`: the messages' schemas in a Schema Registry."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from spu_assigner.stream.kafka.config.command_options import output_option

if TYPE_CHECKING:
    from spu_assigner.schemas.avro.registry import Registered


@click.group()
def schemas() -> None:
    """Put the messages' schemas into a Schema Registry, or check whether they are there.

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

    found = registry_publish.publish(registry_publish.SchemaRegistryClient(url, os.environ))
    _show(output, {"published": found.missing, "unchanged": found.present})
    return 0


@schemas.command()
@click.argument("url")
@output_option
def check(url: str, output: str) -> int:
    """Check whether the registry at URL has all schemas; status 1 if one is missing."""
    from spu_assigner.stream.client import registry_publish

    found = registry_publish.compare(registry_publish.SchemaRegistryClient(url, os.environ))
    _show(output, {"missing": found.missing, "present": found.present})
    return 1 if found.missing else 0


def _show(output: str, entries_by_state: Mapping[str, Sequence[Registered]]) -> None:
    if output == "json":
        ids = {state: [each.id for each in entries] for state, entries in entries_by_state.items()}
        click.echo(json.dumps(ids))
        return
    for state, entries in entries_by_state.items():
        for entry in entries:
            click.echo(f"{state:<9}  {entry.id:>3}  {entry.type_name} version {entry.version}")
